"""What an elastic replay reads of each recorded request and free beside what a literal one does."""

from __future__ import annotations

import numpy as np

from pagealloc_model.allocator.core import layout as at
from pagealloc_model.allocator.core import pressure_layout as pr
from pagealloc_model.recording.trace.columns import Event, Trace

GFP_MOVABLE, GFP_RECLAIMABLE = 0x8, 0x10
GFP_COMP = 0x40000
THP_ORDER = 9
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

    is_thp = (order == THP_ORDER) & has(GFP_COMP) & has(at.GFP_NOMEMALLOC)
    is_file = (has(pr.GFP_NORETRY | at.GFP_WRITE) | ~has(pr.GFP_FS)) & ~is_thp
    conditions = [has(GFP_MOVABLE) & is_file, has(GFP_MOVABLE), has(GFP_RECLAIMABLE)]
    choices = [pr.FILE, pr.ANON, pr.RECLAIMABLE]
    return np.select(conditions, choices, pr.KERNEL).astype(np.uint32)


class ElasticRows:
    """Marks rows with page classes and with frees that reclaim made; keeps who asked."""

    def __init__(self, trace: Trace) -> None:
        """Find the reclaim contexts of a trace.

        Args:
            trace: the recording's events.
        """
        self._trace = trace
        names = trace.comms.items()
        self._kswapds = np.array(
            [pid for pid, name in names if name.startswith(KSWAPD_NAME)], np.int64
        )
        self._keys, self._ends = _reclaim_intervals(trace)
        self._pids: list[np.ndarray] = []

    @property
    def pids(self) -> np.ndarray:
        """int32, the task of each row marked so far."""
        return np.concatenate([np.zeros(0, np.int32), *self._pids])

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
        classes = page_classes(gfp, trace.order[kept]) << np.uint32(pr.CLASS_SHIFT)
        more = (gfp & np.uint32(pr.ELASTIC_BITS)) | classes
        rows["bits"][is_request] |= more[is_request]
        by_reclaim = ~is_request & self._in_reclaim(kept)
        rows["bits"][by_reclaim] |= np.uint32(pr.FREED_BY_RECLAIM)
        rows["migratetype"][by_reclaim] = at.MOVABLE

    def _in_reclaim(self, kept: np.ndarray) -> np.ndarray:
        """Whether events come from kswapd or from within direct reclaim (T10.10).

        What interrupts of them do is not reclaim's.
        """
        pid = self._trace.pid[kept].astype(np.int64)
        found = np.isin(pid, self._kswapds)
        if len(self._keys):
            place = np.searchsorted(self._keys, (pid << _ROW_BITS) + kept, side="right") - 1
            inside = (self._keys[place] >> _ROW_BITS == pid) & (kept < self._ends[place])
            found |= (place >= 0) & inside
        return found & (self._trace.in_interrupt[kept] <= 0)


_ROW_BITS = 36


def _reclaim_intervals(trace: Trace) -> tuple[np.ndarray, np.ndarray]:
    """Direct reclaims: task and row of each begin as one sorted int64, and the rows of their ends.

    A reclaim whose end was not seen is left out.
    """
    nothing = np.zeros(0, np.int64)
    begins = trace.tables.get("vmscan:mm_vmscan_direct_reclaim_begin")
    ends = trace.tables.get("vmscan:mm_vmscan_direct_reclaim_end")
    if begins is None or ends is None or not len(begins["pid"]) or not len(ends["pid"]):
        return nothing, nothing
    begin = np.sort(_task_and_row(begins["pid"], begins["row"]))
    end = np.sort(_task_and_row(ends["pid"], ends["row"]))
    place = np.searchsorted(end, begin, side="left")
    following = end[np.minimum(place, len(end) - 1)]
    closed = (place < len(end)) & (following >> _ROW_BITS == begin >> _ROW_BITS)
    return begin[closed], following[closed] & ((1 << _ROW_BITS) - 1)


def _task_and_row(pid: np.ndarray, row: np.ndarray) -> np.ndarray:
    return (np.asarray(pid, np.int64) << _ROW_BITS) + np.asarray(row, np.int64)
