"""What an elastic replay reads of each recorded request and free beside what a literal one does."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pagealloc_model.allocator.core import layout as at
from pagealloc_model.allocator.core import pressure_layout as pr
from pagealloc_model.base.filling_array import FillingArray, all_of
from pagealloc_model.base.working_arrays import parts, working_directory
from pagealloc_model.predicted.demand.file_uses import is_recorded
from pagealloc_model.predicted.demand.slab_frees import GFP_RECLAIMABLE, slabs_freed_by_rcu
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


REQUEST_SEEN = np.dtype(
    [
        ("row", np.int32),
        ("task", np.int32),
        ("kind", np.int8),
        ("order", np.int8),
        ("failed", np.int8),
        ("tried", np.int8),
    ],
    align=True,
)
"""A recorded request: its row of the trace, its task, the class of its pages, its order, whether it
failed and is one that could have succeeded."""


@dataclass(frozen=True, kw_only=True, eq=False)
class ElasticRequests:
    """What an elastic replay wants to know of a part's requests.

    Attributes:
        seen: `REQUEST_SEEN` records, in time order; none where no request of the trace failed.
        alloc_rows: int32, rows of the trace of the allocations; none where no file is known.
    """

    seen: np.ndarray
    alloc_rows: np.ndarray


class ElasticRows:
    """Marks rows with page classes and with frees of reclaim and compaction; tells who asked.

    Attributes:
        any_by_compaction: whether a row marked so far is a free by compaction.
    """

    def __init__(self, trace: Trace) -> None:
        """Find when tasks of a trace reclaimed and compacted.

        Args:
            trace: the recording's events.
        """
        self._trace = trace
        self.any_by_compaction = False
        names = trace.comms.items()
        self._kswapds = np.array(
            [pid for pid, name in names if name.startswith(KSWAPD_NAME)], np.int64
        )
        self._reclaims = _intervals(trace, *_RECLAIM)
        self._compactions = _intervals(trace, *_COMPACTION)
        self._any_failed = _any_failed(trace)
        self._any_file = is_recorded(trace)
        self._by_rcu = np.zeros(0, np.int64)
        if len(self._kswapds) or len(self._reclaims[0]):
            found = FillingArray(1, np.int64, working_directory(len(trace)))
            self._by_rcu = all_of(found, slabs_freed_by_rcu(trace, self._freed_in_reclaim))

    def mark(self, rows: np.ndarray, kept: np.ndarray) -> ElasticRequests:
        """Add to rows what an elastic replay reads.

        Args:
            rows: `objects.ROW` records, otherwise complete; their bits and types are written.
            kept: each one's row in the trace.
        """
        trace = self._trace
        gfp = trace.gfp[kept]
        is_request = rows["is_free"] == 0
        classes = page_classes(gfp, rows["order"]) << np.uint32(pr.CLASS_SHIFT)
        more = (gfp & np.uint32(pr.ELASTIC_BITS)) | classes
        rows["bits"] |= np.where(is_request, more, np.uint32(0))
        pid = rows["pid"].astype(np.int64)
        by_reclaim = self.freed_by_reclaim(kept)
        by_compaction = self._frees(kept) & _inside(self._compactions, pid, kept)
        for marked, bits in (
            (by_reclaim, pr.FREED_BY_RECLAIM),
            (by_compaction & ~by_reclaim, pr.FREED_BY_COMPACTION),
        ):
            rows["bits"][marked] |= np.uint32(bits)
            rows["migratetype"][marked] = at.MOVABLE
        # Parts are marked at the same time: only ever set, so that no other's is lost.
        if by_compaction.any():
            self.any_by_compaction = True
        made = is_request & (rows["pfn"] >= 0)
        return ElasticRequests(
            seen=_requests(rows[is_request]) if self._any_failed else _requests(rows[:0]),
            alloc_rows=rows["row"][made] if self._any_file else rows["row"][:0],
        )

    def freed_by_reclaim(self, kept: np.ndarray) -> np.ndarray:
        """Whether recorded reclaim freed what the events are about (bool, one per event).

        Slabs are among them that RCU freed for it (T10.16).

        Args:
            kept: int64, rows in the trace.
        """
        freed = self._freed_in_reclaim(kept)
        if len(kept) and len(self._by_rcu):
            near = slice(*np.searchsorted(self._by_rcu, [kept.min(), kept.max() + 1]))
            freed |= np.isin(kept, self._by_rcu[near])
        return freed

    def _freed_in_reclaim(self, kept: np.ndarray) -> np.ndarray:
        """Whether a task that reclaimed freed what the events are about (bool, one per event)."""
        if not len(self._kswapds) and not len(self._reclaims[0]):
            return np.zeros(len(kept), bool)
        pid = self._trace.pid[kept].astype(np.int64)
        by_kswapd = np.isin(pid, self._kswapds)
        return self._frees(kept) & (by_kswapd | _inside(self._reclaims, pid, kept))

    def _frees(self, kept: np.ndarray) -> np.ndarray:
        """Whether events are frees, but not of interrupts (bool, one per event).

        What interrupts of these tasks do is neither reclaim's nor compaction's.
        """
        trace = self._trace
        return (trace.event[kept] == Event.FREE) & (trace.in_interrupt[kept] <= 0)


def _requests(rows: np.ndarray) -> np.ndarray:
    """Return what is wanted of rows that are requests."""
    bits = rows["bits"]
    seen = np.zeros(len(rows), REQUEST_SEEN)
    is_atomic = (bits & np.uint32(at.GFP_HIGH) != 0) & (
        bits & np.uint32(at.GFP_DIRECT_RECLAIM) == 0
    )
    seen["row"], seen["task"], seen["order"] = rows["row"], rows["pid"], rows["order"]
    seen["kind"] = bits >> np.uint32(pr.CLASS_SHIFT)
    seen["failed"] = rows["pfn"] < 0
    seen["tried"] = (rows["pfn"] < 0) & (rows["order"] > 0) & ~is_atomic
    return seen


def _any_failed(trace: Trace) -> bool:
    """Return whether a request above order 0 failed."""
    return any(
        bool(
            (
                (trace.pfn[part] == -1)
                & (trace.event[part] == Event.ALLOC)
                & (trace.order[part] > 0)
            ).any()
        )
        for part in parts(len(trace))
    )


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
