"""Recorded allocations and frees as rows for matching, freed of what is recorded twice."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pagealloc_model.allocator import layout as at
from pagealloc_model.allocator import objects as resolved
from pagealloc_model.errors import UsageError
from pagealloc_model.machine import Machine
from pagealloc_model.trace.columns import Event, Trace

GFP_DMA, GFP_HIGHMEM, GFP_DMA32, GFP_MOVABLE = 0x1, 0x2, 0x4, 0x8
GFP_KERNEL = 0xCC0
GFP_ACCOUNT = 0x400000


@dataclass(frozen=True, kw_only=True, eq=False)
class DemandRows:
    """Rows in time order, and what was left out.

    Attributes:
        rows: `objects.ROW` records.
        trace_rows: int64, each row's place in the trace.
        outside: events whose pages lie in no zone of the machine, or are no buddy.
        recorded_twice: events that repeat the one before them to the nanosecond.
    """

    rows: np.ndarray
    trace_rows: np.ndarray
    outside: int
    recorded_twice: int


def demand_rows(trace: Trace, machine: Machine, hidden_migratetype: int) -> DemandRows:
    """The allocations and frees of a trace that lie inside the machine's zones.

    Args:
        trace: the recording's events.
        machine: its zones.
        hidden_migratetype: type of allocations that the recording does not show.

    Raises:
        UsageError: there are none, or one is of a CPU or migratetype the machine does not have.
    """
    wanted = np.flatnonzero((trace.event == Event.ALLOC) | (trace.event == Event.FREE))
    is_again = _repeats_the_one_before(trace, wanted)
    seen = wanted[~is_again]
    pfn, order = trace.pfn[seen], trace.order[seen].astype(np.int64)
    failed = (pfn == -1) & (trace.event[seen] == Event.ALLOC)
    inside = (failed | _within_zones(machine, pfn, order)) & (order >= 0)
    inside &= order <= machine.max_order
    kept = seen[inside]
    if not len(kept):
        raise UsageError(f"{trace.source}: no allocation or free inside the machine's zones")
    _check_requests(trace, kept, machine)
    rows = np.zeros(len(kept), resolved.ROW)
    gfp = trace.gfp[kept]
    rows["time_ns"] = trace.time_ns[kept]
    rows["pfn"] = pfn[inside]
    rows["cpu"] = trace.cpu[kept]
    rows["is_free"] = trace.event[kept] == Event.FREE
    rows["order"] = order[inside]
    rows["migratetype"] = trace.migratetype[kept]
    rows["bits"] = gfp & np.uint32(_read_bits(trace))
    rows["zone"] = highest_type_by_gfp(machine)[gfp & np.uint32(15)]
    frees = rows["is_free"] == 1
    rows["migratetype"][frees] = hidden_migratetype
    rows["bits"][frees] = GFP_KERNEL & at.GFP_READ_BITS
    _, rows["task"] = np.unique(
        (trace.pid[kept].astype(np.int64) << 16) | trace.cpu[kept].astype(np.int64),
        return_inverse=True,
    )
    rows["task_request"] = _last_request(rows)
    _mark_failed_charges(rows, gfp)
    return DemandRows(
        rows=rows,
        trace_rows=kept,
        outside=len(seen) - len(kept),
        recorded_twice=int(is_again.sum()),
    )


def highest_type_by_gfp(machine: Machine) -> np.ndarray:
    """int8, shape (16,): the highest zone type allowed for each low gfp nibble (S2.2).

    A zone that the machine lacks degrades to Normal, and Normal to the highest populated one.
    """
    populated = [machine.type_index(zone.name) for zone in machine.zones if zone.managed]
    normal = machine.type_index("Normal")
    normal = normal if normal >= 0 else max(populated)
    wanted = {name: machine.type_index(name) for name in ("DMA", "DMA32", "HighMem", "Movable")}
    table = np.full(16, normal, np.int8)
    for nibble in range(16):
        name = ""
        if nibble & GFP_DMA:
            name = "DMA"
        elif nibble & GFP_DMA32:
            name = "DMA32"
        elif nibble & GFP_HIGHMEM:
            name = "Movable" if nibble & GFP_MOVABLE else "HighMem"
        if name and wanted[name] >= 0:
            table[nibble] = wanted[name]
    return table


def _repeats_the_one_before(trace: Trace, rows: np.ndarray) -> np.ndarray:
    """Whether an event is its CPU's preceding one once more, of the same nanosecond (bool)."""
    by_cpu = rows[np.argsort(trace.cpu[rows], kind="stable")]
    same = np.zeros(len(rows), bool)
    same[1:] = True
    for name in ("cpu", "time_ns", "event", "pfn", "order", "pid", "gfp"):
        column = getattr(trace, name)[by_cpu]
        same[1:] &= column[1:] == column[:-1]
    same &= trace.pfn[by_cpu] >= 0
    found = np.zeros(len(rows), bool)
    found[np.searchsorted(rows, by_cpu[same])] = True
    return found


def _last_request(rows: np.ndarray) -> np.ndarray:
    """Each row's last earlier row of the same task that is an allocation, -1 if none."""
    number = np.arange(len(rows))
    by_task = np.lexsort((number, rows["task"]))
    request = np.where(rows["is_free"][by_task] == 0, number[by_task], -1)
    starts = np.flatnonzero(np.diff(rows["task"][by_task], prepend=-1))
    latest = np.maximum.accumulate(np.where(request >= 0, np.arange(len(rows)), -1))
    first = np.repeat(starts, np.diff(np.append(starts, len(rows))))
    found = np.where(latest >= first, request[np.maximum(latest, 0)], -1)
    result = np.empty(len(rows), np.int32)
    result[by_task] = found
    return result


def _mark_failed_charges(rows: np.ndarray, gfp: np.ndarray) -> None:
    """Mark frees that precede the failure of the same request, which they then stand for (T2)."""
    by_cpu = np.argsort(rows["cpu"], kind="stable")
    free, failure = by_cpu[:-1], by_cpu[1:]
    is_one = (rows["is_free"][free] == 1) & (rows["is_free"][failure] == 0)
    is_one &= (rows["pfn"][failure] == -1) & (gfp[failure] & np.uint32(GFP_ACCOUNT) != 0)
    for name in ("task", "order"):
        is_one &= rows[name][free] == rows[name][failure]
    free, failure = free[is_one], failure[is_one]
    rows["failed_charge"][free] = 1
    for name in ("migratetype", "bits", "zone"):
        rows[name][free] = rows[name][failure]


def _read_bits(trace: Trace) -> int:
    """Bits of a gfp word that the kernels read; bit 0x200 only where it is ATOMIC (S2.3)."""
    if "__GFP_ATOMIC" in trace.gfp_bits:
        return at.GFP_READ_BITS
    return at.GFP_READ_BITS & ~at.GFP_ATOMIC


def _within_zones(machine: Machine, pfn: np.ndarray, order: np.ndarray) -> np.ndarray:
    """Whether pages are an aligned run inside one populated zone."""
    size = np.int64(1) << np.clip(order, 0, machine.max_order)
    inside = np.zeros(len(pfn), bool)
    for zone in machine.zones:
        if zone.managed:
            inside |= (pfn >= zone.start_pfn) & (pfn + size <= zone.end_pfn)
    return inside & (pfn & (size - 1) == 0)


def _check_requests(trace: Trace, rows: np.ndarray, machine: Machine) -> None:
    """Refuse CPUs and migratetypes for which the model has no list."""
    cpus = trace.cpu[rows]
    strange = cpus[(cpus < 0) | (cpus >= machine.nr_cpus)]
    if len(strange):
        raise UsageError(
            f"{trace.source}: has events of CPU {strange[0]}, but zoneinfo at the start lists CPUs "
            f"0 to {machine.nr_cpus - 1}; record without bringing CPUs on- or offline"
        )
    types = trace.migratetype[rows][trace.event[rows] == Event.ALLOC]
    odd = types[(types < 0) | (types >= at.PCP_TYPES)]
    if len(odd):
        raise UsageError(
            f"{trace.source}: a request has migratetype {odd[0]}; requests have 0 to 2 (S2.1)"
        )
