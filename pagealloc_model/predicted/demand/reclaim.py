"""Recorded reclaim as demand: when direct reclaim and kswapd ran (S8.2, S10, T7)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pagealloc_model.allocator import layout as at
from pagealloc_model.base.errors import UsageError
from pagealloc_model.measured.stream import begun_and_ended
from pagealloc_model.predicted.demand.event_order import new_events, rows_where
from pagealloc_model.recording.machine import Machine
from pagealloc_model.recording.trace.columns import Event, Trace

SHRUNK = "vmscan:mm_vmscan_lru_shrink_inactive"
"""The event of one look at an inactive list."""

NUMBERS = at.REQUEST_RECLAIMED >> at.RECLAIM_SHIFT
"""Direct reclaims that a replay tells apart at a time."""
_ROW_BITS = 36
VAIN_ORDER_MAX = 3
"""Largest order of requests whose reclaims in vain count: PAGE_ALLOC_COSTLY_ORDER (T10.17)."""
_BEGIN = "vmscan:mm_vmscan_direct_reclaim_begin"
_END = "vmscan:mm_vmscan_direct_reclaim_end"


@dataclass(frozen=True, kw_only=True, eq=False)
class DirectReclaims:
    """Reclaims that freed something, one for each request that they ran for, by request.

    Attributes:
        row: int64, ascending: row in the trace of the request's allocation.
        begin_ns: int64, when the last reclaim before it began.
        cpu: int16, the CPU that it began on.
        number: int64, 1 to `NUMBERS`: no other reclaim has it between this one's begin and `row`,
            unless more run at a time than there are numbers.
        vain_row: int64: of each reclaim that another one of its request followed, that row.
        vain_ns: int64, when it ended.
        vain_cpu: int16, the CPU that it ended on.
    """

    row: np.ndarray
    begin_ns: np.ndarray
    cpu: np.ndarray
    number: np.ndarray
    vain_row: np.ndarray
    vain_ns: np.ndarray
    vain_cpu: np.ndarray


def direct_reclaims(trace: Trace) -> DirectReclaims:
    """Direct reclaims and the requests they ran for; none if they were not recorded.

    A reclaim's request is its task's next one of that order that may reclaim: an interrupt's
    requests, which carry the same task, may come before it. A task's reclaims do not nest.
    """
    pairs = begun_and_ended(trace, _BEGIN, _END)
    if pairs is None:
        nothing, cpus = np.zeros(0, np.int64), np.zeros(0, np.int16)
        return DirectReclaims(
            row=nothing,
            begin_ns=nothing,
            cpu=cpus,
            number=nothing,
            vain_row=nothing,
            vain_ns=nothing,
            vain_cpu=cpus,
        )
    begins, ends = trace.tables[_BEGIN], trace.tables[_END]
    begin, end, _ = pairs
    freed = np.asarray(ends["nr_reclaimed"])[end] > 0
    begin, end = begin[freed], end[freed]
    pid, order = (np.asarray(begins[name])[begin] for name in ("pid", "order"))
    requests = next_requests(trace, pid, order, np.asarray(ends["row"])[end])
    begin, end, requests = (rows[requests >= 0] for rows in (begin, end, requests))
    begin_ns, order = np.asarray(begins["time_ns"])[begin], np.asarray(begins["order"])[begin]
    latest = np.lexsort((begin_ns, requests))
    is_last = np.diff(requests[latest], append=-1) != 0
    last = latest[is_last]
    vain = latest[~is_last & (order[latest] <= VAIN_ORDER_MAX)]
    return DirectReclaims(
        row=requests[last],
        begin_ns=begin_ns[last],
        cpu=np.asarray(begins["cpu"])[begin[last]].astype(np.int16),
        number=_numbers(begin_ns[last], trace.time_ns[requests[last]]),
        vain_row=requests[vain],
        vain_ns=np.asarray(ends["time_ns"])[end[vain]],
        vain_cpu=np.asarray(ends["cpu"])[end[vain]].astype(np.int16),
    )


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
    wakes = trace.tables.get("vmscan:mm_vmscan_kswapd_wake")
    sleeps = trace.tables.get("vmscan:mm_vmscan_kswapd_sleep")
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
