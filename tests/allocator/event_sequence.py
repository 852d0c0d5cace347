"""A reproducible sequence of resolved events, replayed as one wishes, and a digest of the outcome.

Run as a program it prints the digest of a plain replay, for processes that differ in how kernels
are compiled: `python -m tests.allocator.event_sequence EVENTS`.
"""

from __future__ import annotations

import hashlib
import random
import sys
from collections.abc import Iterable

import numpy as np

from pagealloc_model.allocator import layout as at
from pagealloc_model.allocator.events import advance
from pagealloc_model.allocator.state import State, make_state, place_buddies
from pagealloc_model.policy.kernel_rules import KernelRules
from pagealloc_model.policy.policy import Assumptions, Policy
from pagealloc_model.recording.machine import Machine, Zone

BLOCK = 512  # pages in a pageblock

ORDERS = (0,) * 20 + (1, 1, 2, 2, 3, 3, 4)
"""Orders asked for; larger ones, served in single pages, would overflow the log."""

REQUESTS = (
    at.GFP_DIRECT_RECLAIM | at.GFP_KSWAPD_RECLAIM,
    at.GFP_DIRECT_RECLAIM | at.GFP_KSWAPD_RECLAIM,
    at.GFP_HIGH | at.GFP_KSWAPD_RECLAIM,
    at.GFP_KSWAPD_RECLAIM | at.GFP_NOMEMALLOC,
)
"""gfp bits of requests."""

MACHINE = Machine(
    zones=(
        Zone(
            name="DMA32",
            start_pfn=0,
            spanned=4 * BLOCK,
            present=4 * BLOCK,
            managed=60_000,
            min=100,
            low=150,
            high=200,
            lowmem_reserve=(0, 64),
        ),
        Zone(
            name="Normal",
            start_pfn=4 * BLOCK,
            spanned=4 * BLOCK,
            present=4 * BLOCK,
            managed=60_000,
            min=200,
            low=300,
            high=400,
        ),
    ),
    nr_cpus=3,
)

POLICY = Policy(pcp_batch=7, pcp_high_min=28, pcp_high_max=112)


def start_state(log_rows: int = 1 << 20) -> State:
    """All memory free and movable, pages logged, a decay tick every 3 ms on each CPU."""
    state = make_state(
        MACHINE,
        KernelRules.preset("6.12"),
        POLICY,
        Assumptions(decay_period_ns=3_000_000),
        log_rows=log_rows,
    )
    firsts = np.arange(0, MACHINE.end_pfn, 2 * BLOCK, dtype=np.int32)
    place_buddies(state.arrays(), firsts, np.full(len(firsts), 10, np.int8))
    state.st[at.LOG_PAGES] = 1
    return state


def random_events(count: int, seed: int = 1) -> np.ndarray:
    """`layout.EVENT` records, 50 us apart on average: mostly allocations and frees."""
    rng = random.Random(seed)
    events = np.zeros(count, at.EVENT)
    live: list[tuple[int, int, int]] = []
    now = 0
    for number, event in enumerate(events):
        if number % 200 == 0:
            pressure = rng.choice((0.3, 0.55, 0.6, 0.95))
        now += rng.randrange(100_000)
        event["time_ns"] = now
        event["cpu"] = rng.randrange(MACHINE.nr_cpus)
        event["object"] = number
        kind = rng.random()
        if kind < 0.01:
            event["operation"] = rng.choice((at.KSWAPD_START, at.KSWAPD_STOP))
            event["zone"] = len(MACHINE.zones) - 1
        elif kind < 0.015:
            event["operation"] = at.RECORDED_FAILURE
        elif live and rng.random() > pressure:
            _fill_free(event, live, rng)
        else:
            _fill_alloc(event, number, live, rng)
    return events


def _fill_alloc(
    event: np.void, number: int, live: list[tuple[int, int, int]], rng: random.Random
) -> None:
    order = rng.choice(ORDERS)
    event["operation"] = at.HIDDEN_ALLOC if rng.random() < 0.05 else at.ALLOC
    event["order"] = order
    event["migratetype"] = rng.randrange(at.PCP_TYPES)
    event["zone"] = rng.randrange(len(MACHINE.zones))
    event["bits"] = rng.choice(REQUESTS)
    live.append((number, 0, order))


def _fill_free(event: np.void, live: list[tuple[int, int, int]], rng: random.Random) -> None:
    number, offset, order = live.pop(rng.randrange(len(live)))
    if order and rng.random() < 0.1:
        order -= 1
        live.append((number, offset + (1 << order), order))
    event["operation"] = at.FREE
    event["object"] = number
    event["offset"] = offset
    event["order"] = order


def replay(
    state: State, events: np.ndarray, stops: Iterable[int] = (), until_ns: int = -1
) -> tuple[np.ndarray, np.ndarray]:
    """Replay all events, emptying the log whenever the kernels return.

    Returns:
        Where each object is, and the log rows.
    """
    object_pfn = np.full(len(events), -1, np.int32)
    logged = []
    position = 0
    for stop in (*sorted(stops), len(events)):
        until = until_ns if stop == len(events) else -1
        while True:
            position = advance(state.arrays(object_pfn), events, position, stop, until)
            logged.append(_take_log(state))
            if position == stop and state.st[at.NEXT_TICK] > until:
                break
    return object_pfn, np.concatenate(logged)


def _take_log(state: State) -> np.ndarray:
    """Empty the log."""
    rows = state.log[: int(state.st[at.LOG_ROWS])].copy()
    state.st[at.LOG_ROWS] = 0
    return rows


def digest(state: State, object_pfn: np.ndarray, rows: np.ndarray) -> str:
    found = hashlib.sha256()
    for array in (state.pages, state.blocks, state.st, object_pfn, rows):
        found.update(array.tobytes())
    return found.hexdigest()


def plain_digest(count: int) -> str:
    state = start_state()
    return digest(state, *replay(state, random_events(count)))


if __name__ == "__main__":
    print(plain_digest(int(sys.argv[1])))
