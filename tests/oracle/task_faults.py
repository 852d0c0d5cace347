"""Requests of a task in turn, fault by fault, as a recording may show them (T10.4, S8.5)."""

from __future__ import annotations

import random
from collections.abc import Iterator

from tests.oracle.lru import Kind
from tests.oracle.machine import PMD_ORDER
from tests.oracle.request import Bits

Drawn = tuple[Kind, int, Bits, bool]  # class, order, bits, whether it failed

KERNEL = Bits.IO | Bits.KSWAPD | Bits.DIRECT_RECLAIM
LIGHT = Bits.IO | Bits.NOMEMALLOC
HEAVY = LIGHT | Bits.DIRECT_RECLAIM
FILLS = (8, 8)
"""Orders of requests that together are a huge page."""


def task_requests(rng: random.Random) -> Iterator[Drawn]:
    """Faults that write or read where nothing is yet, pages touched later, kernel memory."""
    while True:
        kind = rng.choice(("write", "write", "read", "read", "touch", "touch", "folio", "kernel"))
        if kind == "kernel":
            order = rng.choice((0, 0, 1, 3))
            yield Kind.KERNEL, order, KERNEL, order > 0 and rng.random() < 0.5
        elif kind == "touch":
            orders = FILLS if rng.random() < 0.1 else (0,) * rng.choice((1, 1, 2, 5))
            for order in orders:
                yield Kind.ANON, order, KERNEL, False
        elif kind == "folio":
            yield from _smaller(rng)
        else:
            refused = False
            for bits in _attempts(rng):
                refused = rng.random() < 0.75
                yield Kind.ANON, PMD_ORDER, bits, refused
                if not refused:
                    break
            if refused and kind == "write":
                yield from _smaller(rng)


def _attempts(rng: random.Random) -> tuple[Bits, ...]:
    """Bits of the attempts at a huge page: on the task's node and anywhere, or one of the two.

    Some first attempts are the last ones, as if the recording had lost the second.
    """
    if rng.random() < 0.25:
        return (rng.choice((LIGHT, HEAVY)),)
    if rng.random() < 0.5:
        return (rng.choice((LIGHT, LIGHT, HEAVY)) | Bits.THISNODE,)
    return HEAVY | Bits.THISNODE | Bits.NORETRY, HEAVY | rng.choice((Bits.NORETRY, Bits.NONE))


def _smaller(rng: random.Random) -> Iterator[Drawn]:
    """Enabled orders from the largest down, in the end a single page, which seldom fails."""
    for order in rng.choice(((), (), (4,), (4, 2))):
        refused = rng.random() < 0.6
        yield Kind.ANON, order, HEAVY | Bits.NORETRY, refused
        if not refused:
            return
    yield Kind.ANON, 0, KERNEL, rng.random() < 0.05
