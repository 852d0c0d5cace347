"""Time that a daemon's work takes where its times on a CPU were recorded (S10.14)."""

from __future__ import annotations

from pagealloc_model.allocator import layout as at
from pagealloc_model.allocator import pressure_layout as pr
from pagealloc_model.base.jit import inner


@inner
def begin_on_cpu(m: at.Arrays, daemon: int) -> None:
    """No kernel function: a daemon that slept gets its CPU as the recorded one did from now on.

    `daemon` is the offset of its words. It takes up the recorded span that is under way, for the
    rest of it, or else the next one; behind the last the first.
    """
    first, count = m.st[daemon + pr.SPANS_FROM], m.st[daemon + pr.SPANS]
    if count == 0:
        return
    low, high = 0, count
    while low < high:
        middle = (low + high) >> 1
        span = first + middle * pr.SPAN_WORDS
        if m.st[span + pr.SPAN_BEGIN] + m.st[span + pr.SPAN_RAN] > m.st[at.NOW]:
            high = middle
        else:
            low = middle + 1
    number = low if low < count else 0
    span = first + number * pr.SPAN_WORDS
    passed = m.st[at.NOW] - m.st[span + pr.SPAN_BEGIN] if low < count else 0
    m.st[daemon + pr.SPAN] = number
    m.st[daemon + pr.SPAN_LEFT] = m.st[span + pr.SPAN_RAN] - max(passed, 0)


@inner
def in_all(m: at.Arrays, first: int, count: int) -> tuple[int, int]:
    """No kernel function: return the sums of times on a CPU and of waits behind them, ns."""
    ran, waited = 0, 0
    for number in range(count):
        span = first + number * pr.SPAN_WORDS
        ran += m.st[span + pr.SPAN_RAN]
        waited += m.st[span + pr.SPAN_WAITED]
    return ran, waited


_LONGEST_NS = at.NEVER >> 3
"""What whole rounds of waits add at most: a damaged recording may hold waits of years."""


@inner
def time_of_work(m: at.Arrays, daemon: int, work_ns: int) -> int:
    """No kernel function: return how long work takes with the waits for the CPU, ns.

    Spans are used up one after the other, the first behind the last; a daemon waits behind each as
    the recorded one did.
    """
    first, count = m.st[daemon + pr.SPANS_FROM], m.st[daemon + pr.SPANS]
    if count == 0:
        return work_ns
    # long stretches without events are not computed step by step, so what is left may be any number
    number = m.st[daemon + pr.SPAN] % count
    left = max(m.st[daemon + pr.SPAN_LEFT], 1)
    rest, waited = work_ns, 0
    while rest >= left:
        rest -= left
        waited += m.st[first + number * pr.SPAN_WORDS + pr.SPAN_WAITED]
        number += 1
        if number == count:
            number = 0
            ran, waited_in_all = in_all(m, first, count)
            waited += min(rest // ran, _LONGEST_NS // max(waited_in_all, 1)) * waited_in_all
            rest %= ran
        left = m.st[first + number * pr.SPAN_WORDS + pr.SPAN_RAN]
    m.st[daemon + pr.SPAN] = number
    m.st[daemon + pr.SPAN_LEFT] = left - rest
    return work_ns + waited
