"""Requests that compaction served past the free lists, as its own events tell (S9.7, T7)."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass

import numpy as np

from pagealloc_model.allocator.core import layout as at
from pagealloc_model.base.working_arrays import parts
from pagealloc_model.predicted.demand.compaction_demand import has_numbers, zone_of_page
from pagealloc_model.recording.machine import Machine
from pagealloc_model.recording.trace.columns import Event, Trace

TRIES = "compaction:mm_compaction_try_to_compact_pages"
_BEGIN = "compaction:mm_compaction_begin"
_TURN = "compaction:mm_compaction_finished"
_END = "compaction:mm_compaction_end"
_RECLAIM = "vmscan:mm_vmscan_direct_reclaim_begin"

CONTENDED, SUCCESS = 7, 8
"""How a run ends, as the events of all three trees number it."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Captures:
    """Requests whose page compaction captured.

    Attributes:
        row: int64, ascending: row in the trace of the request's allocation.
        zone: int64, number of the zone that was compacted.
    """

    row: np.ndarray
    zone: np.ndarray


def captured_requests(trace: Trace, machine: Machine) -> Captures:
    """Requests of direct compactors that got a page without a free buddy having been found.

    A run looks for a free buddy at every turn (mm_compaction_finished). One that ends with success
    though its last turn had found none holds a captured page. So does one that gave way to others,
    if the request then succeeds with nothing tried in between: what its last drain of the CPU's
    lists completed was captured. Runs that found a buddy may have captured one too; that is not
    told, and they are left out.

    Args:
        trace: the recording's events; of the main ones, only requests are read.
        machine: its zones.
    """
    ends = _ends_without_buddy(trace, machine)
    found: dict[int, int] = {}
    if len(ends):
        requests = _requests_above_order_0(trace, np.unique(ends[:, 1]))
        for time_ns, pid, zone, order, until_ns, status in ends.tolist():
            mine = requests.get((pid, order), np.zeros(0, np.int64))
            place = int(np.searchsorted(trace.time_ns[mine], time_ns))
            if place == len(mine):
                continue
            row = int(mine[place])
            in_time = status == SUCCESS or trace.time_ns[row] < until_ns
            if in_time and trace.pfn[row] >= 0:
                found[row] = zone
    row = np.array(sorted(found), np.int64)
    return Captures(row=row, zone=np.array([found[each] for each in row.tolist()], np.int64))


def _ends_without_buddy(trace: Trace, machine: Machine) -> np.ndarray:
    """Ends of runs of direct compactors that found no buddy yet may have captured a page.

    int64, shape (runs, 6): time, task, zone, order tried for, time of the task's next attempt of
    any kind, status.
    """
    rows: list[list[int]] = []
    order: dict[int, int] = {}
    zone: dict[int, int] = {}
    turn: dict[int, int] = {}
    open_row: dict[int, list[int]] = {}
    for time_ns, kind, pid, value in _compactor_events(trace):
        if kind == _TURN:
            turn[pid] = value
            continue
        if pid in open_row:
            open_row.pop(pid)[4] = time_ns
        if kind == TRIES:
            order[pid] = value
            turn.pop(pid, None)
        elif kind == _BEGIN:
            zone[pid] = zone_of_page(machine, value)
        elif kind == _END and pid in order and zone.get(pid, -1) >= 0:
            found_none = turn.get(pid, SUCCESS) != SUCCESS
            if found_none and value in (CONTENDED, SUCCESS):
                row = [time_ns, pid, zone[pid], order[pid], np.iinfo(np.int64).max, value]
                rows.append(row)
                open_row[pid] = row
    return np.array(rows, np.int64).reshape(-1, 6)


def _compactor_events(trace: Trace) -> list[tuple[int, str, int, int]]:
    """Time, kind, task and value of what direct compactors do, in time order."""
    fields = {TRIES: "order", _BEGIN: "zone_start", _TURN: "ret", _END: "status", _RECLAIM: "order"}
    found: list[tuple[int, str, int, int]] = []
    for kind, field in fields.items():
        table = trace.tables.get(kind)
        if table is not None and has_numbers(table, (field,)):
            columns = (table["time_ns"], table["pid"], table[field].astype(np.int64))
            rows = zip(*(each.tolist() for each in columns), strict=True)
            found += [(time_ns, kind, pid, value) for time_ns, pid, value in rows]
    found.sort(key=lambda each: each[0])
    return found


def _requests_above_order_0(trace: Trace, tasks: np.ndarray) -> dict[tuple[int, int], np.ndarray]:
    """Rows of requests by some tasks that may reclaim directly, by task and order."""
    found = [np.zeros(0, np.int64)]
    for part in parts(len(trace)):
        wanted = (trace.event[part] == Event.ALLOC) & (trace.order[part] > 0)
        wanted &= trace.gfp[part] & np.uint32(at.GFP_DIRECT_RECLAIM) != 0
        wanted &= np.isin(trace.pid[part], tasks)
        found.append(np.flatnonzero(wanted) + part.start)
    rows = np.concatenate(found)
    if not len(rows):
        return {}
    rows = rows[np.lexsort((rows, trace.order[rows], trace.pid[rows]))]
    pid, order = trace.pid[rows], trace.order[rows]
    begins = np.flatnonzero((np.diff(pid) != 0) | (np.diff(order) != 0)) + 1
    return {
        (int(trace.pid[each[0]]), int(trace.order[each[0]])): each
        for each in np.split(rows, begins)
    }


def mark_captured(events: np.ndarray, trace: Trace, captures: Captures) -> int:
    """Turn captured requests' allocations into CAPTURE events; how many there were.

    Args:
        events: `layout.EVENT` records in time order, changed in place.
        trace: the recording's events.
        captures: of that trace.
    """
    count = 0
    times = trace.time_ns[captures.row]
    for number, row in enumerate(captures.row.tolist()):
        # numpy's search would copy the times, which lie among other fields
        first = bisect_left(events["time_ns"], times[number])
        together = events[first : bisect_right(events["time_ns"], times[number])]
        mine = (together["operation"] == at.ALLOC) & (together["cpu"] == trace.cpu[row])
        mine &= together["order"] == trace.order[row]
        if mine.any():
            place = first + int(np.argmax(mine))
            events["operation"][place] = at.CAPTURE
            events["offset"][place] = captures.zone[number]
            count += 1
    return count
