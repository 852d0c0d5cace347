"""Frees of slab pages that recorded reclaim caused, though RCU made them later (T10.16)."""

from __future__ import annotations

import numpy as np

from pagealloc_model.recording.trace.columns import Event, Trace

GFP_RECLAIMABLE = 0x10
RCU_NS = 100_000_000
"""Time after a reclaim in which RCU frees what its shrinkers let go."""
_RCU_TASKS = "rcu"


def slab_frees(trace: Trace) -> np.ndarray:
    """Rows of frees that give back what was allocated as a slab of a reclaimable cache.

    Args:
        trace: all events.

    Returns:
        int64, ascending. Slabs allocated before the recording are not known as such.
    """
    asked = np.flatnonzero(
        (trace.gfp & np.uint32(GFP_RECLAIMABLE) != 0)
        & (trace.event == Event.ALLOC)
        & (trace.pfn >= 0)
    )
    if not len(asked):
        return asked
    about = np.isin(trace.event, (Event.ALLOC, Event.FREE)) & np.isin(trace.pfn, trace.pfn[asked])
    rows = np.flatnonzero(about)
    rows = rows[np.lexsort((rows, trace.pfn[rows]))]
    before, after = rows[:-1], rows[1:]
    is_slab = (
        (trace.pfn[before] == trace.pfn[after])
        & (trace.order[before] == trace.order[after])
        & (trace.event[after] == Event.FREE)
        & (trace.event[before] == Event.ALLOC)
        & (trace.gfp[before] & np.uint32(GFP_RECLAIMABLE) != 0)
    )
    return np.sort(after[is_slab])


def freed_by_rcu(trace: Trace, slabs: np.ndarray, reclaimed_ns: np.ndarray) -> np.ndarray:
    """Which frees of slabs RCU made soon after reclaim, whose shrinkers are then taken to be why.

    Most reclaimable caches give their objects back after a grace period, in a softirq or in a task
    of RCU's. No event tells whether a shrinker or a file's removal had let them go.

    Args:
        trace: all events.
        slabs: int64, rows as `slab_frees` gives them.
        reclaimed_ns: int64, ascending: times at which reclaim itself freed pages.

    Returns:
        int64, ascending: rows of them.
    """
    if not len(slabs) or not len(reclaimed_ns):
        return slabs[:0]
    tasks = [pid for pid, name in trace.comms.items() if name.startswith(_RCU_TASKS)]
    by_rcu = (trace.in_interrupt[slabs] > 0) | np.isin(trace.pid[slabs], tasks)
    freed_ns = trace.time_ns[slabs]
    last = np.searchsorted(reclaimed_ns, freed_ns, side="right") - 1
    soon = (last >= 0) & (freed_ns - reclaimed_ns[np.maximum(last, 0)] <= RCU_NS)
    return slabs[by_rcu & soon]
