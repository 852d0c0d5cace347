"""The run behind a replay: a state advances through demand and is sampled at instants."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass, field
from math import prod
from typing import TYPE_CHECKING

import numpy as np

from pagealloc_model.allocator.core import layout as at
from pagealloc_model.allocator.core import pressure_layout as pr
from pagealloc_model.allocator.core.state import State
from pagealloc_model.base.working_arrays import GrowingArray, working_arrays
from pagealloc_model.predicted import elastic_tables
from pagealloc_model.predicted.block_counter import BlockCounter
from pagealloc_model.predicted.carriers import Carrier
from pagealloc_model.predicted.checkpoints import Resumption
from pagealloc_model.predicted.list_use import (
    list_words,
    ownership_counters,
)
from pagealloc_model.predicted.recorded_kswapd import RecordedKswapd

if TYPE_CHECKING:
    from pagealloc_model.predicted.demand.demand import Demand

STEP_EVENTS = 1 << 18


class Cancelled(Exception):
    """A replay was told to stop through its `cancel` argument."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Samples:
    """Copies of the state's counters at instants.

    Attributes:
        time_ns: int64, shape (samples,).
        free_buddies: int64, shape (samples, zones, orders, migratetypes).
        blocks: int64, shape (samples, zones, migratetypes).
        pcp: int64, shape (samples, zones, cpus, 2): count and high.
        boosts: int64, shape (samples, zones), pages.
        list_locks: int64, shape (samples, zones, 3), cumulative, see `list_use.list_words`.
        ownership: int64, shape (samples, zones, SET_STRIDE), cumulative, see
            `list_use.ownership_counters`; (samples, zones, 0) where blocks are never owned.
        counters: int64, shape (samples, `pressure_layout.SCALARS`), of an elastic replay, else no
            words.
    """

    time_ns: np.ndarray
    free_buddies: np.ndarray
    blocks: np.ndarray
    pcp: np.ndarray
    boosts: np.ndarray
    list_locks: np.ndarray
    ownership: np.ndarray
    counters: np.ndarray = field(default_factory=lambda: np.zeros((0, 0), np.int64))


def advance_and_sample(
    carrier: Carrier,
    demand: Demand,
    places: np.ndarray,
    instants: np.ndarray,
    span: tuple[int, int],
    resumption: Resumption | None,
    kswapd: RecordedKswapd | None,
    progress: Callable[[float], None] | None,
    cancel: Callable[[], bool] | None,
) -> tuple[Samples, np.ndarray]:
    """Advance to every instant inside the span and copy the counters there.

    What kswapd has of the recorded one is set wherever it changes.
    """
    state = carrier.state
    events = demand.events
    block_counter = BlockCounter(state)
    kept: list[tuple[np.ndarray, ...]] = []
    sampled: list[int] = []
    log = GrowingArray(working_arrays(len(events)), at.LOG_COLUMNS, np.int64)
    position = 0
    if resumption is not None:
        position = resumption.position
        instants = np.union1d(instants, [resumption.stop_ns])
    instants = instants[instants <= span[1]]
    wanted = frozenset(instants.tolist())
    if kswapd is not None:
        now = int(events["time_ns"][min(position, len(events) - 1)])
        kswapd.set_at(state, now)
        changes = kswapd.changes_ns
        due = changes[(changes > now) & (changes < instants[-1])]
        instants = np.union1d(instants, due)
    # numpy's search would copy the times, which lie among other fields
    stops = [bisect_left(events["time_ns"], instant) for instant in instants.tolist()]
    for instant, stop in zip(instants.tolist(), stops, strict=True):
        while position < stop or _ticks_are_due(state, position, instant):
            goal = min(stop, position + STEP_EVENTS)
            until = instant if goal == stop else -1
            position = carrier.advance(events, places, position, goal, until)
            rows = state.log[: state.st[at.LOG_ROWS]]
            log.append(rows[(rows[:, 1] >= span[0]) & (rows[:, 1] < span[1])])
            state.st[at.LOG_ROWS] = 0
            if cancel is not None and cancel():
                raise Cancelled
            if progress is not None:
                progress(position / len(events))
        if kswapd is not None:
            kswapd.set_at(state, instant)
        if instant not in wanted:
            continue
        if resumption is not None:
            resumption.note(instant, position)
        if instant >= span[0]:
            sampled.append(instant)
            carrier.settle()
            kept.append(_sample(state, block_counter))
    columns = [np.stack(column) for column in zip(*kept, strict=True)]
    free_buddies, blocks, pcp, boosts, list_locks, ownership, counters = columns
    return (
        Samples(
            time_ns=np.array(sampled, np.int64),
            free_buddies=free_buddies,
            blocks=blocks,
            pcp=pcp,
            boosts=boosts,
            list_locks=list_locks,
            ownership=ownership,
            counters=counters,
        ),
        log.filled,
    )


def _ticks_are_due(state: State, position: int, instant: int) -> bool:
    return position > 0 and state.next_due_ns <= instant


def _sample(state: State, block_counter: BlockCounter) -> tuple[np.ndarray, ...]:
    return (
        state.free_buddies(),
        block_counter.counts(),
        state.pcp_words(at.PCP_COUNT, 2),
        state.zone_words(at.ZONE_BOOST),
        list_words(state),
        ownership_counters(state),
        state.pressure_words(0, pr.SCALARS),
    )


def fallback_counts(state: State) -> np.ndarray:
    """Fallbacks by requested type, type taken from, kind and orders (`layout.FALLBACK_SHAPE`)."""
    words = state.st[at.FALLBACKS : at.FALLBACKS + prod(at.FALLBACK_SHAPE)]
    return words.reshape(at.FALLBACK_SHAPE).copy()


def divergence(state: State, demand: Demand) -> dict[str, int]:
    """Return counts of what recording and model disagreed on, and of what demand had to make up."""
    st = state.st
    return {
        "forced": int(st[at.COUNT_FORCED]),
        "in_base_pages": int(st[at.COUNT_IN_BASE_PAGES]),
        "failed": int(st[at.COUNT_FAILED]),
        "unlogged_transactions": int(st[at.LOG_DROPPED]),
        "orphan_frees": int(st[at.COUNT_ORPHAN_FREE]),
        "recorded_failures": int(st[at.COUNT_RECORDED_FAILURE]),
        "live_at_start": len(demand.at_start),
        "hidden_allocations": demand.hidden_allocations,
        "hidden_over_losses": demand.hidden_over_losses,
        "repeated_frees": demand.repeated_frees,
        "isolated_pages": demand.isolated_pages,
        "isolated_unseen": demand.isolated_unseen,
        "captured": demand.captured,
        "stayed_pages": demand.stayed_pages,
        "moved_frees": demand.moved_frees,
        "failed_charges": demand.failed_charges,
        "recorded_twice": demand.recorded_twice,
        "missed_frees": demand.missed_frees,
        "split_frees": demand.split_frees,
        "grown_pages": demand.grown_pages,
        "outside_zones": demand.outside,
        **elastic_tables.divergence(state.pressure_words(0, pr.SCALARS)),
    }
