"""Of a recording's demand, what touches pages first, and what is known only by its frees."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from pagealloc_model.allocator.core import layout as at
from pagealloc_model.allocator.core import objects as resolved
from pagealloc_model.base.working_arrays import working_arrays
from pagealloc_model.predicted.demand import event_moves as moves
from pagealloc_model.predicted.demand.demand import Demand, doubled, with_compaction
from pagealloc_model.predicted.demand.demand_rows import demand_rows
from pagealloc_model.predicted.demand.direct_reclaim import direct_reclaims
from pagealloc_model.predicted.demand.event_order import split_hidden
from pagealloc_model.predicted.demand.recorded_reclaim import kswapd_runs

if TYPE_CHECKING:
    from pagealloc_model.base.column_space import NewArray
    from pagealloc_model.policy.policy import Assumptions
    from pagealloc_model.recording.machine import Machine
    from pagealloc_model.recording.trace.columns import Trace

_ROOM = 1 << 14
"""Events that have room at first."""


def first_touches(trace: Trace, machine: Machine, assumptions: Assumptions) -> Demand:
    """A literal replay's demand with those events only that touch pages first.

    All objects are there, and hidden allocations are counted, so that what a replay has to make up
    can be told. It cannot be replayed.

    Args:
        trace: the recording's events.
        machine: its zones.
        assumptions: ours.

    Raises:
        UsageError: as `resolve_demand` does.
    """
    new_array = working_arrays(len(trace))
    reclaims = direct_reclaims(trace)
    found = demand_rows(trace, machine, assumptions.hidden_migratetype, reclaims, new_array)
    emitted, objects, counts = _resolved(found.rows, machine.end_pfn, new_array)
    others, hidden = split_hidden(emitted, new_array)
    reclaim = kswapd_runs(trace, machine)
    _, hidden, objects, compaction = with_compaction(
        trace, machine, others, others[:0], hidden, objects, new_array
    )
    return Demand(
        events=others,
        objects=objects,
        missed_frees=int(counts[resolved.COUNT_MISSED_FREE]),
        split_frees=int(counts[resolved.COUNT_SPLIT_FREE]),
        hidden_allocations=len(hidden.events) - int(counts[resolved.COUNT_FAILED_CHARGE]),
        hidden_over_losses=0,
        repeated_frees=int(counts[resolved.COUNT_REPEATED_FREE]),
        failed_charges=int(counts[resolved.COUNT_FAILED_CHARGE]),
        recorded_twice=found.recorded_twice,
        outside=found.outside,
        kswapd_recorded=reclaim is not None,
        direct_reclaim_recorded=len(reclaims.row) > 0,
        **compaction,
    )


def _resolved(
    rows: np.ndarray, end_pfn: int, new_array: NewArray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The events of first touches, all objects, and counts, as `resolve_objects` makes them.

    The others soon give their room back, so that it stays in the processor's cache.
    """
    counts = np.zeros(resolved.COUNTS, np.int64)
    owner, last_free = np.zeros(end_pfn, np.int32), np.zeros(end_pfn, np.int32)
    events = np.empty(_ROOM, at.EVENT)
    objects = new_array(len(rows) + len(rows) // 8 + _ROOM, resolved.OBJECT)
    done = 0
    while done < len(rows):
        before, kept = done, int(counts[resolved.COUNT_EVENTS])
        done = resolved.resolve_objects(
            rows, done, len(rows), owner, last_free, events, objects, counts
        )
        words = moves.words_of(events)[: counts[resolved.COUNT_EVENTS]]
        kept = moves.keep_first_touches(words, kept, objects)
        counts[resolved.COUNT_EVENTS] = kept
        if done == before or 2 * kept > len(events):
            events = doubled(events, np.empty)
        if done == before or counts[resolved.COUNT_OBJECTS] + len(events) > len(objects):
            objects = doubled(objects, new_array)
    return (
        events[: counts[resolved.COUNT_EVENTS]],
        objects[: counts[resolved.COUNT_OBJECTS]],
        counts,
    )
