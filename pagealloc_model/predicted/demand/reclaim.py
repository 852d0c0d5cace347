"""Recorded reclaim as demand: when direct reclaim and kswapd ran (S8.2, S10, T7)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pagealloc_model.allocator import layout as at
from pagealloc_model.base.errors import UsageError
from pagealloc_model.measured.stream import begun_and_ended
from pagealloc_model.predicted.demand.event_order import new_events, rows_where
from pagealloc_model.recording.machine import Machine
from pagealloc_model.recording.trace import tracepoints as tp
from pagealloc_model.recording.trace.columns import Event, Trace

"""The event of one look at an inactive list."""

NUMBERS = at.REQUEST_RECLAIMED >> at.RECLAIM_SHIFT
"""Direct reclaims that a replay tells apart at a time."""
_ROW_BITS = 36
VAIN_ORDER_MAX = 3
"""Largest order of requests whose reclaims in vain count: PAGE_ALLOC_COSTLY_ORDER (T10.17)."""
_RESERVES = np.uint32(at.GFP_DIRECT_RECLAIM | at.GFP_HIGH | at.GFP_MEMALLOC)


@dataclass(frozen=True, kw_only=True, eq=False)
class DirectReclaims:
    """Direct reclaims that freed something, by the request that each ran for and by time.

    `row` is that of the request's allocation in the trace; `in_vain`: the attempt behind it found
    no page, as the demand tells (T10.17); `number`: of a request's last one that it does not tell
    of, 1 to `NUMBERS`, as no other has between its begin and `row` unless more run at a time; or 0.
    """

    row: np.ndarray
    begin_ns: np.ndarray
    begin_cpu: np.ndarray
    end_ns: np.ndarray
    end_cpu: np.ndarray
    in_vain: np.ndarray
    number: np.ndarray


def direct_reclaims(trace: Trace, *, is_start_known: bool = False) -> DirectReclaims | None:
    """Direct reclaims and the requests they ran for; None if they were not recorded.

    A reclaim's request is its task's next one of that order that may reclaim: an interrupt's
    requests, which carry the same task, may come before it. A task's reclaims do not nest.

    Args:
        trace: the recording's events.
        is_start_known: a replay begins with the kernel's own free pages, so that it can tell by
            its own whether a request's last reclaim was in vain (T10.17).
    """
    pairs = begun_and_ended(trace, *tp.DIRECT_RECLAIM)
    if pairs is None:
        return None
    begins, ends = (trace.tables[name] for name in tp.DIRECT_RECLAIM)
    begin, end, _ = pairs
    freed = np.asarray(ends["nr_reclaimed"])[end] > 0
    begin, end = begin[freed], end[freed]
    pid, order = (np.asarray(begins[name])[begin] for name in ("pid", "order"))
    row = next_requests(trace, pid, order, np.asarray(ends["row"])[end])
    end_ns = np.asarray(ends["time_ns"])[end]
    ranked = np.lexsort((end_ns, row))
    ranked = ranked[row[ranked] >= 0]
    begin, end, pid, order, row, end_ns = (
        each[ranked] for each in (begin, end, pid, order, row, end_ns)
    )
    begin_ns = np.asarray(begins["time_ns"])[begin]
    is_last = np.diff(row, append=-1) != 0
    served = trace.pfn[row] >= 0
    compacts = _next_of_tasks(trace, tp.TRY_TO_COMPACT_PAGES, pid, end_ns) < trace.time_ns[row]
    in_vain = np.where(is_last, ~served | (compacts & (order > 0)), order <= VAIN_ORDER_MAX)
    near = is_last & served & (order == 0)
    near &= not is_start_known
    for each in np.flatnonzero(near).tolist():
        in_vain[each] = was_at_marks(trace, int(pid[each]), int(end_ns[each]))
    number = np.zeros(len(row), np.int64)
    asked = is_last & ~in_vain & ~near
    number[asked] = _numbers(begin_ns[asked], trace.time_ns[row[asked]])
    return DirectReclaims(
        row=row,
        begin_ns=begin_ns,
        begin_cpu=np.asarray(begins["cpu"])[begin].astype(np.int16),
        end_ns=end_ns,
        end_cpu=np.asarray(ends["cpu"])[end].astype(np.int16),
        in_vain=in_vain,
        number=number,
    )


def _next_of_tasks(trace: Trace, name: str, pid: np.ndarray, after_ns: np.ndarray) -> np.ndarray:
    """Times of the next events of a table by tasks, the largest integer for none."""
    table, latest = trace.tables.get(name), np.iinfo(np.int64).max
    found = np.full(len(pid), latest)
    for task in np.unique(pid).tolist() if table is not None else ():
        times = np.append(table["time_ns"][table["pid"] == task], latest)
        found[pid == task] = times[np.searchsorted(times, after_ns[pid == task])]
    return found


def was_at_marks(trace: Trace, pid: int, time_ns: int) -> bool:
    """Whether what is nearest in time says that zones were at their marks (T10.17).

    The beginning of a reclaim says so. Another task's request of a page says the opposite: it was
    served, though it may reclaim and may not use reserves.
    """
    begins = trace.tables[tp.DIRECT_RECLAIM_BEGIN]["time_ns"]
    place = int(np.searchsorted(begins, time_ns))
    near = int(np.abs(begins[max(place - 1, 0) : place + 1] - time_ns).min())
    part = slice(*np.searchsorted(trace.time_ns, [time_ns - near, time_ns + near]))
    served = (trace.event[part] == Event.ALLOC) & (trace.pfn[part] >= 0) & (trace.order[part] == 0)
    served &= (trace.gfp[part] & _RESERVES == at.GFP_DIRECT_RECLAIM) & (trace.pid[part] != pid)
    return not served.any()


def next_requests(trace: Trace, pid: np.ndarray, order: np.ndarray, row: np.ndarray) -> np.ndarray:
    """Rows of the next requests of tasks and orders that may reclaim directly; -1: none."""

    def key(pid: np.ndarray, order: np.ndarray, row: np.ndarray) -> np.ndarray:
        task_and_order = (pid.astype(np.int64) << 4) + order.astype(np.int64)
        return (task_and_order << _ROW_BITS) + row.astype(np.int64)

    tasks = np.unique(pid)
    rows = rows_where(
        len(trace) if len(tasks) else 0,
        lambda part: (
            (trace.event[part] == Event.ALLOC)
            & (trace.gfp[part] & np.uint32(at.GFP_DIRECT_RECLAIM) != 0)
            & np.isin(trace.pid[part], tasks)
        ),
    )
    keys = key(trace.pid[rows], trace.order[rows], rows)
    ranked = np.argsort(keys)
    rows, keys = np.append(rows[ranked], -1), np.append(keys[ranked], -1)
    wanted = key(pid, order, row)
    place = np.searchsorted(keys[:-1], wanted)
    return np.where(keys[place] >> _ROW_BITS == wanted >> _ROW_BITS, rows[place], -1)


def _numbers(begin_ns: np.ndarray, end_ns: np.ndarray) -> np.ndarray:
    """The lowest number that is free while each reclaim lasts; the last one is shared."""
    numbers = np.zeros(len(begin_ns), np.int64)
    busy_until = np.full(NUMBERS, np.iinfo(np.int64).min)
    for index in np.argsort(begin_ns, kind="stable").tolist():
        free = np.flatnonzero(busy_until < begin_ns[index])
        slot = int(free[0]) if len(free) else NUMBERS - 1
        busy_until[slot] = max(end_ns[index], busy_until[slot])
        numbers[index] = slot + 1
    return numbers


KSWAPD_NAP_NS = 100_000_000


def kswapd_runs(trace: Trace, machine: Machine) -> np.ndarray | None:
    """Kswapd's recorded runs as KSWAPD_START and KSWAPD_STOP events; None if none were recorded.

    In a literal replay reclaim is the recording's, and so are the times at which it is active
    (S10.2). A run ends a nap before the node's kswapd sleeps (S10.3), or where its next one begins.
    One whose wake does not name its highest zone may use all zones.

    Args:
        trace: the recording's events.
        machine: its nodes and zone types.

    Raises:
        UsageError: an event of a node that the machine does not have.
    """
    wakes = trace.tables.get(tp.KSWAPD_WAKE)
    sleeps = trace.tables.get(tp.KSWAPD_SLEEP)
    if wakes is None or sleeps is None or not len(wakes["time_ns"]):
        return None
    last = trace.demand_span_ns[1] + 1
    woken, asleep = (np.asarray(table["nid"], np.int64) for table in (wakes, sleeps))
    strange = np.setdiff1d(woken, machine.nodes)
    if len(strange):
        raise UsageError(
            f"{trace.source}: kswapd of node {strange[0]} woke, but zoneinfo at the start has no "
            "such node; record without bringing nodes on- or offline"
        )
    top = len(machine.zone_types) - 1
    highest = np.asarray(wakes.get("zid", np.full(len(woken), top)))
    runs = []
    for index, node in enumerate(machine.nodes):
        starts = np.asarray(wakes["time_ns"])[woken == node]
        naps = np.asarray(sleeps["time_ns"])[asleep == node] - KSWAPD_NAP_NS
        following = np.append(starts[1:], last)[: len(starts)]
        slept = np.append(naps, last)[np.searchsorted(naps, starts)]
        stops = np.maximum(np.minimum(following, slept), starts)
        own = new_events(at.KSWAPD_START, 2 * len(starts), offset=index)
        own["operation"][1::2] = at.KSWAPD_STOP
        own["time_ns"][0::2], own["time_ns"][1::2] = starts, stops
        own["zone"][0::2] = np.clip(highest[woken == node], 0, top)
        runs.append(own)
    together = np.concatenate(runs)
    return together[np.argsort(together["time_ns"], kind="stable")]
