"""What an elastic replay reads of each recorded request and free beside what a literal one does."""

from __future__ import annotations

import numpy as np

from pagealloc_model.allocator.core import layout as at
from pagealloc_model.allocator.core import pressure_layout as pr
from pagealloc_model.predicted.demand.slab_frees import GFP_RECLAIMABLE, freed_by_rcu, slab_frees
from pagealloc_model.recording.trace.columns import Event, Trace

GFP_MOVABLE = 0x8
GFP_COMP = 0x40000
KSWAPD_NAME = "kswapd"


def page_classes(gfp: np.ndarray, order: np.ndarray) -> np.ndarray:
    """The class of the pages that each request asks for (S2.3, S2.4).

    Movable pages are anonymous, unless their request is one of the page cache: for reading ahead
    (NORETRY), for writing (WRITE), or without FS. Huge pages are anonymous.

    Args:
        gfp: uint32, gfp words.
        order: their orders.

    Returns:
        uint32, `KERNEL`, `RECLAIMABLE`, `ANON` or `FILE` of `allocator.pressure_layout`.
    """

    def has(bits: int) -> np.ndarray:
        return (gfp & np.uint32(bits)) != 0

    is_thp = (order == pr.THP_ORDER) & has(GFP_COMP) & has(at.GFP_NOMEMALLOC)
    is_file = (has(pr.GFP_NORETRY | at.GFP_WRITE) | ~has(pr.GFP_FS)) & ~is_thp
    conditions = [has(GFP_MOVABLE) & is_file, has(GFP_MOVABLE), has(GFP_RECLAIMABLE)]
    choices = [pr.FILE, pr.ANON, pr.RECLAIMABLE]
    return np.select(conditions, choices, pr.KERNEL).astype(np.uint32)


class ElasticRows:
    """Marks rows with page classes and with frees of reclaim and compaction; keeps who asked."""

    def __init__(self, trace: Trace) -> None:
        """Find when tasks of a trace reclaimed and compacted.

        Args:
            trace: the recording's events.
        """
        self._trace = trace
        names = trace.comms.items()
        self._kswapds = np.array(
            [pid for pid, name in names if name.startswith(KSWAPD_NAME)], np.int64
        )
        self._reclaims = _intervals(trace, *_RECLAIM)
        self._compactions = _intervals(trace, *_COMPACTION)
        slabs = slab_frees(trace)
        self._by_rcu = slabs[:0]
        if len(slabs):
            freed = np.flatnonzero(trace.event == Event.FREE)
            times = trace.time_ns[freed[self._freed_in_reclaim(freed)]]
            self._by_rcu = freed_by_rcu(trace, slabs, np.sort(times))
        self._pids: list[np.ndarray] = []
        self._alloc_rows: list[np.ndarray] = []

    @property
    def pids(self) -> np.ndarray:
        """int32, the task of each row marked so far."""
        return np.concatenate([np.zeros(0, np.int32), *self._pids])

    @property
    def alloc_rows(self) -> np.ndarray:
        """int64, rows in the trace of the successful allocations marked so far."""
        return np.concatenate([np.zeros(0, np.int64), *self._alloc_rows])

    def mark(self, rows: np.ndarray, kept: np.ndarray) -> None:
        """Add to rows what an elastic replay reads.

        Args:
            rows: `objects.ROW` records, otherwise complete; their bits and types are written.
            kept: each one's row in the trace.
        """
        trace = self._trace
        gfp = trace.gfp[kept]
        self._pids.append(trace.pid[kept])
        is_request = trace.event[kept] == Event.ALLOC
        self._alloc_rows.append(kept[is_request & (rows["pfn"] >= 0)])
        classes = page_classes(gfp, trace.order[kept]) << np.uint32(pr.CLASS_SHIFT)
        more = (gfp & np.uint32(pr.ELASTIC_BITS)) | classes
        rows["bits"][is_request] |= more[is_request]
        pid = trace.pid[kept].astype(np.int64)
        by_reclaim = self.freed_by_reclaim(kept)
        by_compaction = self._frees(kept) & _inside(self._compactions, pid, kept)
        for marked, bits in (
            (by_reclaim, pr.FREED_BY_RECLAIM),
            (by_compaction & ~by_reclaim, pr.FREED_BY_COMPACTION),
        ):
            rows["bits"][marked] |= np.uint32(bits)
            rows["migratetype"][marked] = at.MOVABLE

    def freed_by_reclaim(self, kept: np.ndarray) -> np.ndarray:
        """Whether recorded reclaim freed what the events are about (bool, one per event).

        Slabs are among them that RCU freed for it (T10.16).

        Args:
            kept: int64, rows in the trace.
        """
        return self._freed_in_reclaim(kept) | np.isin(kept, self._by_rcu)

    def _freed_in_reclaim(self, kept: np.ndarray) -> np.ndarray:
        """Whether a task that reclaimed freed what the events are about (bool, one per event)."""
        pid = self._trace.pid[kept].astype(np.int64)
        by_kswapd = np.isin(pid, self._kswapds)
        return self._frees(kept) & (by_kswapd | _inside(self._reclaims, pid, kept))

    def _frees(self, kept: np.ndarray) -> np.ndarray:
        """Whether events are frees, but not of interrupts (bool, one per event).

        What interrupts of these tasks do is neither reclaim's nor compaction's.
        """
        trace = self._trace
        return (trace.event[kept] == Event.FREE) & (trace.in_interrupt[kept] <= 0)


_ROW_BITS = 36
_RECLAIM = ("vmscan:mm_vmscan_direct_reclaim_begin", "vmscan:mm_vmscan_direct_reclaim_end")
_COMPACTION = ("compaction:mm_compaction_begin", "compaction:mm_compaction_end")


def _inside(
    intervals: tuple[np.ndarray, np.ndarray], pid: np.ndarray, row: np.ndarray
) -> np.ndarray:
    """Whether events lie within intervals of their task (bool, one per event)."""
    keys, ends = intervals
    if not len(keys):
        return np.zeros(len(row), bool)
    # Of two that begin at the same row, the earlier one is empty.
    place = np.searchsorted(keys, (pid << _ROW_BITS) + row, side="right") - 1
    return (place >= 0) & (keys[place] >> _ROW_BITS == pid) & (row < ends[place])


def _intervals(trace: Trace, begin_name: str, end_name: str) -> tuple[np.ndarray, np.ndarray]:
    """Task and row of each beginning as one sorted int64, and the rows of the ends (T10.10).

    One whose end was not seen is left out.
    """
    nothing = np.zeros(0, np.int64)
    begins = trace.tables.get(begin_name)
    ends = trace.tables.get(end_name)
    if begins is None or ends is None or not len(begins["pid"]) or not len(ends["pid"]):
        return nothing, nothing
    pid = np.concatenate([begins["pid"], ends["pid"]]).astype(np.int64)
    row = np.concatenate([begins["row"], ends["row"]]).astype(np.int64)
    time_ns = np.concatenate([begins["time_ns"], ends["time_ns"]])
    is_end = np.arange(len(pid)) >= len(begins["pid"])
    ranked = np.lexsort((is_end, time_ns, pid))
    before, after = ranked[:-1], ranked[1:]
    closed = ~is_end[before] & is_end[after] & (pid[before] == pid[after])
    before, after = before[closed], after[closed]
    return (pid[before] << _ROW_BITS) + row[before], row[after]
