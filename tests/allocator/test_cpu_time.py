"""How long a daemon's work takes, by spans worked out by hand (S10.14)."""

from __future__ import annotations

import numpy as np
import pytest

from pagealloc_model.allocator import layout as at
from pagealloc_model.allocator import pressure_layout as pr
from pagealloc_model.allocator.cpu_time import begin_on_cpu, time_of_work
from pagealloc_model.allocator.state import State, with_cpu_spans
from pagealloc_model.base.jit import entry
from tests.allocator.small_state import Pressed

SPANS = np.array([(100, 50, 1_000), (2_000, 30, 0), (5_000, 70, 20)], np.int64)


@entry
def work_on(m: at.Arrays, daemon: int, wakes: int, times_ns: np.ndarray) -> None:
    """A daemon wakes if asked, and works several times: `times_ns` of work, then of all."""
    if wakes:
        begin_on_cpu(m, daemon)
    for number in range(len(times_ns)):
        times_ns[number] = time_of_work(m, daemon, times_ns[number])


def lasted(state: State, daemon: int, *works_ns: int, wakes: int = 1) -> list[int]:
    times_ns = np.array(works_ns, np.int64)
    work_on(state.arrays(), daemon, wakes, times_ns)
    return times_ns.tolist()


def kswapd_of(spans: dict[int, np.ndarray]) -> tuple[State, int]:
    """A state, and where its node's words of kswapd are."""
    state = with_cpu_spans(Pressed().state, spans, {})
    nodes = int(state.st[int(state.st[at.PRESSURE_BASE]) + pr.NODES_BASE])
    return state, nodes + pr.KSWAPD_CPU_TIME


@pytest.mark.parametrize(
    ("wakes", "works", "lasts"),
    [
        # all of the first span; a wait follows as soon as it is used up
        (0, [20, 29, 1, 5], [20, 29, 1_001, 5]),
        # what is left of the first; the second has no wait; the third's is behind it
        (120, [30, 29, 1, 69, 1], [1_030, 29, 1, 69, 21]),
        # between two spans the next one
        (1_500, [31], [31]),
        # behind the last the first, whole
        (9_000, [49, 1], [49, 1_001]),
        # one piece of work over all spans and round again
        (0, [50 + 30 + 70 + 50], [200 + 1_000 + 20 + 1_000]),
        # rounds without number are no steps without number
        (0, [150 * 10**12 + 50], [150 * 10**12 + 50 + 1_020 * 10**12 + 1_000]),
    ],
)
def test_work_waits_as_the_recorded_daemon_did(
    wakes: int, works: list[int], lasts: list[int]
) -> None:
    state, kswapd = kswapd_of({0: SPANS})
    state.st[at.NOW] = wakes
    assert lasted(state, kswapd, *works) == lasts


def test_waits_of_years_stay_within_a_machine_word() -> None:
    years_ns = 1 << 58
    state, kswapd = kswapd_of({0: np.array([(0, 1, years_ns)], np.int64)})
    (took_ns,) = lasted(state, kswapd, 10**9)
    assert years_ns < took_ns < at.NEVER


def test_without_spans_work_takes_what_it_takes() -> None:
    state, kswapd = kswapd_of({7: SPANS})
    assert lasted(state, kswapd, 1, 900) == [1, 900]


def test_words_that_went_on_by_themselves_do_no_harm() -> None:
    """Long stretches without events change words by as much as before, whatever they mean."""
    state, kswapd = kswapd_of({0: SPANS})
    state.st[kswapd + pr.SPAN] = 1_000_001
    state.st[kswapd + pr.SPAN_LEFT] = -7
    assert lasted(state, kswapd, 0, 1, wakes=0) == [0, 21]
