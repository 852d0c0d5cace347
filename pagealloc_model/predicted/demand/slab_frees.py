"""Frees of slab pages that recorded reclaim caused, though RCU made them later (T10.16)."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from pagealloc_model.base.working_arrays import parts
from pagealloc_model.recording.trace.columns import Event, Trace

GFP_RECLAIMABLE = 0x10
RCU_NS = 100_000_000
"""Time after a reclaim in which RCU frees what its shrinkers let go."""
_RCU_TASKS = "rcu"
_LONG_AGO = -(1 << 62)
_FRAMES = 1 << 36
"""Page frames that can be: 256 TiB."""
_ASKED = 1
"""Of a page frame: a slab was allocated there at some time."""


def slab_frees(trace: Trace) -> np.ndarray:
    """Rows of frees that give back what was allocated as a slab of a reclaimable cache.

    Args:
        trace: all events.

    Returns:
        int64, ascending. Slabs allocated before the recording are not known as such.
    """
    return np.concatenate([np.zeros(0, np.int64), *_slab_frees_by_part(trace)])


def _slab_frees_by_part(trace: Trace) -> Iterator[np.ndarray]:
    """Those of one part of the trace after the other."""
    known = np.zeros(0, np.int8)
    for part in parts(len(trace)):
        pfn = trace.pfn[part]
        is_wanted = (trace.event[part] <= Event.FREE) & (pfn >= 0) & (pfn < _FRAMES)
        is_asked = is_wanted & (trace.gfp[part] & np.uint32(GFP_RECLAIMABLE) != 0)
        is_asked &= trace.event[part] == Event.ALLOC
        asked = pfn[is_asked]
        if len(asked) and int(asked.max()) >= len(known):
            more = np.zeros(int(asked.max()) + 1, np.int8)
            more[: len(known)] = known
            known = more
        known[asked] |= _ASKED
        is_wanted &= pfn < len(known)
        rows = np.flatnonzero(is_wanted)
        rows = rows[known[pfn[rows]] != 0]
        if not len(rows):
            yield rows
            continue
        rows = rows[np.argsort(pfn[rows], kind="stable")]
        held = np.where(is_asked[rows], (trace.order[part][rows] + 1) * 2, 0).astype(np.int8)
        begins = np.diff(pfn[rows], prepend=-1) != 0
        before = np.concatenate([held[:1], held[:-1]])
        before[begins] = known[pfn[rows[begins]]] & ~_ASKED
        ends = np.append(begins[1:], True)
        known[pfn[rows[ends]]] = held[ends] | _ASKED
        is_slab = trace.event[part][rows] == Event.FREE
        is_slab &= before == (trace.order[part][rows] + 1) * 2
        yield np.sort(rows[is_slab]) + part.start


def slabs_freed_by_rcu(
    trace: Trace, freed_in_reclaim: Callable[[np.ndarray], np.ndarray]
) -> Iterator[np.ndarray]:
    """Which frees of slabs RCU made soon after reclaim, whose shrinkers are then taken to be why.

    Most reclaimable caches give their objects back after a grace period, in a softirq or in a task
    of RCU's. No event tells whether a shrinker or a file's removal had let them go.

    Args:
        trace: all events.
        freed_in_reclaim: tells of rows whether they are frees that reclaim itself made.

    Yields:
        int64, ascending: rows of them, one part of the trace after the other.
    """
    tasks = [pid for pid, name in trace.comms.items() if name.startswith(_RCU_TASKS)]
    last_ns = _LONG_AGO
    begin = 0
    for part, slabs in zip(parts(len(trace)), _slab_frees_by_part(trace), strict=True):
        # those of the part's last nanosecond count, too
        end = int(np.searchsorted(trace.time_ns, trace.time_ns[part.stop - 1], side="right"))
        freed = np.flatnonzero(trace.event[begin:end] == Event.FREE) + begin
        times = trace.time_ns[freed[freed_in_reclaim(freed)]]
        reclaimed_ns = np.concatenate([np.full(1, last_ns), times])
        begin, last_ns = end, int(reclaimed_ns[-1])
        by_rcu = (trace.in_interrupt[slabs] > 0) | np.isin(trace.pid[slabs], tasks)
        freed_ns = trace.time_ns[slabs]
        last = np.searchsorted(reclaimed_ns, freed_ns, side="right") - 1
        yield slabs[by_rcu & (freed_ns - reclaimed_ns[last] <= RCU_NS)]
