"""Recorded reclaim as demand: when direct reclaim and kswapd ran (S8.2, S10, T7)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from pagealloc_model.allocator import layout as at
from pagealloc_model.base.arrays import parts
from pagealloc_model.base.errors import UsageError
from pagealloc_model.measured.stream import begun_and_ended
from pagealloc_model.recording.machine import Machine
from pagealloc_model.recording.trace.columns import Event, Trace

SHRUNK = "vmscan:mm_vmscan_lru_shrink_inactive"
"""The event of one look at an inactive list."""

NUMBERS = at.REQUEST_RECLAIMED >> at.RECLAIM_SHIFT
"""Direct reclaims that a replay tells apart at a time."""
_ROW_BITS = 36
VAIN_ORDER_MAX = 3
"""Largest order of requests whose reclaims in vain are told: PAGE_ALLOC_COSTLY_ORDER (T10.17)."""
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
    requests, which carry the same task, may come before it.
    """
    found = _brackets(trace)
    rows = _requests_of(trace, np.unique(found["pid"]))
    rows = rows[np.lexsort((rows, trace.order[rows], trace.pid[rows]))]
    keys = _task_order_row(trace.pid[rows], trace.order[rows], rows)
    wanted = _task_order_row(found["pid"], found["order"], found["row"])
    place = np.searchsorted(keys, wanted)
    found = {name: column[place < len(keys)] for name, column in found.items()}
    wanted, place = wanted[place < len(keys)], place[place < len(keys)]
    is_same = keys[place] >> _ROW_BITS == wanted >> _ROW_BITS
    requests = rows[place[is_same]]
    found = {name: column[is_same] for name, column in found.items()}
    latest = np.lexsort((found["begin_ns"], requests))
    is_last = np.diff(requests[latest], append=-1) != 0
    chosen = latest[is_last]
    vain = latest[~is_last & (found["order"][latest] <= VAIN_ORDER_MAX)]
    row, begin_ns = requests[chosen], found["begin_ns"][chosen]
    return DirectReclaims(
        row=row,
        begin_ns=begin_ns,
        cpu=found["cpu"][chosen].astype(np.int16),
        number=_numbers(begin_ns, trace.time_ns[row]),
        vain_row=requests[vain],
        vain_ns=found["end_ns"][vain],
        vain_cpu=found["end_cpu"][vain].astype(np.int16),
    )


def _requests_of(trace: Trace, tasks: np.ndarray) -> np.ndarray:
    """Rows of the allocations by some tasks that may reclaim directly."""
    found = [np.zeros(0, np.int64)]
    for part in parts(len(trace) if len(tasks) else 0):
        wanted = trace.event[part] == Event.ALLOC
        wanted &= trace.gfp[part] & np.uint32(at.GFP_DIRECT_RECLAIM) != 0
        wanted &= np.isin(trace.pid[part], tasks)
        found.append(np.flatnonzero(wanted) + part.start)
    return np.concatenate(found)


def _brackets(trace: Trace) -> dict[str, np.ndarray]:
    """Task, order, begin and end, their CPUs, and row of the end of each reclaim that freed pages.

    Only those of which begin and end were seen; a task's reclaims do not nest.
    """
    pairs = begun_and_ended(trace, _BEGIN, _END)
    if pairs is None:
        names = ("pid", "order", "begin_ns", "cpu", "row", "end_ns", "end_cpu")
        return {name: np.zeros(0, np.int64) for name in names}
    begins, ends = trace.tables[_BEGIN], trace.tables[_END]
    begin, end, _ = pairs
    freed = np.asarray(ends["nr_reclaimed"])[end] > 0
    begin, end = begin[freed], end[freed]
    return {
        "pid": np.asarray(begins["pid"], np.int64)[begin],
        "order": np.asarray(begins["order"])[begin],
        "begin_ns": np.asarray(begins["time_ns"])[begin],
        "cpu": np.asarray(begins["cpu"])[begin],
        "row": np.asarray(ends["row"])[end],
        "end_ns": np.asarray(ends["time_ns"])[end],
        "end_cpu": np.asarray(ends["cpu"])[end],
    }


def _task_order_row(pid: np.ndarray, order: np.ndarray, row: np.ndarray) -> np.ndarray:
    """One int64 that sorts by task, order and row."""
    task_and_order = (pid.astype(np.int64) << 4) + order.astype(np.int64)
    return (task_and_order << _ROW_BITS) + row.astype(np.int64)


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
    strange = np.setdiff1d(_nodes_of(wakes), machine.nodes)
    if len(strange):
        raise UsageError(
            f"{trace.source}: kswapd of node {strange[0]} woke, but zoneinfo at the start has no "
            "such node; record without bringing nodes on- or offline"
        )
    runs = [
        _runs_of_node(
            index,
            {name: np.asarray(column)[_nodes_of(wakes) == node] for name, column in wakes.items()},
            np.asarray(sleeps["time_ns"])[_nodes_of(sleeps) == node],
            len(machine.zone_types),
            last,
        )
        for index, node in enumerate(machine.nodes)
    ]
    together = np.concatenate(runs)
    return together[np.argsort(together["time_ns"], kind="stable")]


def _nodes_of(table: Mapping[str, np.ndarray]) -> np.ndarray:
    """Node numbers of kswapd's events."""
    return np.asarray(table["nid"], np.int64)


def _runs_of_node(
    index: int, wakes: Mapping[str, np.ndarray], sleeps: np.ndarray, zone_types: int, last: int
) -> np.ndarray:
    """One node's runs; those whose wake does not name its highest zone may use all zones."""
    starts = np.asarray(wakes["time_ns"])
    naps = sleeps - KSWAPD_NAP_NS
    following = np.append(starts[1:], last)[: len(starts)]
    slept = np.append(naps, last)[np.searchsorted(naps, starts)]
    runs = np.zeros(2 * len(starts), at.EVENT)
    runs["time_ns"][0::2] = starts
    runs["time_ns"][1::2] = np.maximum(np.minimum(following, slept), starts)
    runs["operation"][0::2] = at.KSWAPD_START
    runs["operation"][1::2] = at.KSWAPD_STOP
    runs["object"] = -1
    runs["offset"] = index
    highest = np.asarray(wakes.get("zid", np.full(len(starts), zone_types - 1)))
    runs["zone"][0::2] = np.clip(highest, 0, zone_types - 1)
    return runs
