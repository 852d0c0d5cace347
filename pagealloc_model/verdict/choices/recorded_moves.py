"""A trace's rows as moves between true states (see `allocator.recorded_steps`)."""

from __future__ import annotations

import numpy as np

from pagealloc_model.allocator.choices import judging
from pagealloc_model.allocator.choices import recorded_steps as rec
from pagealloc_model.allocator.choices.unseen_frees import find_unseen_frees
from pagealloc_model.allocator.core import layout as at
from pagealloc_model.measured.stream import Probe, allocator_stream
from pagealloc_model.predicted.demand.demand_rows import highest_type_by_gfp
from pagealloc_model.recording.machine import Machine
from pagealloc_model.recording.trace.columns import Event, Trace

_OPERATIONS = {
    Event.ALLOC: rec.POP,
    Event.FREE: rec.PUSH,
    Event.FREE_BATCHED: rec.BATCHED,
    Event.ZONE_LOCKED: rec.REMOVE,
    Event.PCPU_DRAIN: rec.DRAIN,
    Event.EXTFRAG: rec.REMOVE,
}
_EXTFRAG = "kmem:mm_page_alloc_extfrag"
_DIRECT_FREE = "pa:free_one"
_REFILL = "pa:pcp_bulk_alloc"


def recorded_moves(trace: Trace, machine: Machine) -> tuple[np.ndarray, np.ndarray]:
    """Every row as a move, runs and fates noted.

    Args:
        trace: the recording's events.
        machine: its zones.

    Returns:
        `STEP` records, one per row but for rows that repeat another (T4), and int8 per page
        frame, the first operation on it.
    """
    steps = _plain_moves(trace, machine)
    frames = _frames(machine)
    cpus = int(max(steps["cpu"].max(initial=0) + 1, machine.nr_cpus))
    rec.match_batched(steps, np.zeros(frames, np.int32))
    rec.note_nesting(steps, np.zeros(cpus, np.int32), np.zeros(cpus, np.int8))
    steps = _with_fallbacks(steps, trace)
    first = np.zeros(frames, np.int8)
    rec.note_fates(steps, first, np.full(frames, -1, np.int8))
    rec.note_runs(steps, np.full(cpus, -1, np.int64), np.full(len(steps), -1, np.int32))
    _note_probed(steps, trace)
    return steps, first


def _frames(machine: Machine) -> int:
    block_pages = 1 << machine.pageblock_order
    return -(-machine.end_pfn // block_pages) * block_pages


def _plain_moves(trace: Trace, machine: Machine) -> np.ndarray:
    steps = np.zeros(len(trace), rec.STEP)
    steps["row"] = np.arange(len(trace))
    for name in ("pfn", "pid", "cpu", "order", "migratetype", "gfp"):
        steps[name] = getattr(trace, name)
    operations = np.zeros(len(Event), np.int8)
    for event, operation in _OPERATIONS.items():
        operations[event] = operation
    steps["operation"] = operations[trace.event]
    steps["zone"] = _zone_numbers(trace, machine)
    steps["found_order"] = -1
    steps["highest"] = highest_type_by_gfp(machine)[trace.gfp & np.uint32(15)]
    workers = [pid for pid, comm in trace.comms.items() if comm.startswith("kworker")]
    steps["flags"][np.isin(trace.pid, workers)] = rec.KWORKER
    steps["time_bin"] = time_bins(trace, trace.time_ns)
    outside = steps["zone"] < 0
    failed = (trace.event == Event.ALLOC) & (trace.pfn < 0)
    steps["operation"][outside] = np.where(failed[outside], rec.FAILED, rec.NOTHING)
    return steps


def _zone_numbers(trace: Trace, machine: Machine) -> np.ndarray:
    """Zone of each row's page; -1 outside, across an edge or for orders and CPUs unknown."""
    size = np.int64(1) << np.clip(trace.order, 0, machine.max_order).astype(np.int64)
    sound = (trace.order >= 0) & (trace.order <= machine.max_order)
    sound &= (trace.pfn & (size - 1) == 0) & (trace.cpu >= 0) & (trace.cpu < machine.nr_cpus)
    numbers = np.full(len(trace), -1, np.int8)
    for number, zone in enumerate(machine.zones):
        inside = (trace.pfn >= zone.start_pfn) & (trace.pfn + size <= zone.end_pfn)
        numbers[inside & sound & (zone.managed > 0)] = number
    return numbers


def time_bins(trace: Trace, times: np.ndarray) -> np.ndarray:
    """int16, the bin of each time on the grid of `judging.TIME_BINS` over the recording."""
    first, last = trace.demand_span_ns
    bins = (times - first) * judging.TIME_BINS // max(last - first + 1, 1)
    return np.clip(bins, 0, judging.TIME_BINS - 1).astype(np.int16)


def _row_before(trace: Trace, rows: np.ndarray) -> np.ndarray:
    """The row before each on the same CPU, itself where there is none."""
    by_cpu = np.argsort(trace.cpu, kind="stable")
    place = np.empty(len(trace), np.int64)
    place[by_cpu] = np.arange(len(trace))
    before = by_cpu[np.maximum(place[rows] - 1, 0)]
    return np.where(trace.cpu[before] == trace.cpu[rows], before, rows)


def _with_fallbacks(steps: np.ndarray, trace: Trace) -> np.ndarray:
    """Mark removals by fallback; a partial claim's event repeats the removal before it (T4)."""
    table = trace.tables.get(_EXTFRAG)
    rows = np.flatnonzero(trace.event == Event.EXTFRAG)
    if table is None or len(table["time_ns"]) != len(rows):
        return steps
    before = _row_before(trace, rows)
    twin = (trace.event[before] == Event.ZONE_LOCKED) & (trace.pfn[before] == trace.pfn[rows])
    target = np.where(twin, before, rows)
    owned = np.asarray(table["change_ownership"]) != 0
    steps["flags"][target] |= rec.FALLBACK
    steps["flags"][target[owned]] |= rec.OWNERSHIP
    steps["migratetype"][target] = table["alloc_migratetype"]
    steps["found_order"][target] = table["fallback_order"]
    steps["found_type"][target] = table["fallback_migratetype"]
    kept = np.ones(len(steps), bool)
    kept[rows[twin]] = False
    return steps[kept]


def _note_probed(steps: np.ndarray, trace: Trace) -> None:
    """Where kprobes bound the allocator's calls: what went past the lists, and whole refills."""
    if not {_DIRECT_FREE, _REFILL} <= set(trace.tables):
        return
    stream = allocator_stream(trace, with_probes=True)
    rows = np.concatenate([[0], np.cumsum(stream.kind < Probe.BULK_ALLOC)])
    main = np.flatnonzero(stream.kind < Probe.BULK_ALLOC)
    order = np.argsort(trace.cpu, kind="stable")
    number_of_row = np.full(len(trace), -1, np.int64)
    number_of_row[steps["row"]] = np.arange(len(steps))

    def following_steps(mask: np.ndarray) -> np.ndarray:
        """Number of the step after each marked probe row on its CPU, -1 if there is none."""
        place = rows[np.flatnonzero(mask)]
        place = np.minimum(place, len(main) - 1)
        same = stream.cpu[main[place]] == stream.cpu[mask]
        return np.where(same, number_of_row[order[place]], -1)

    freed = np.flatnonzero(stream.kind == Probe.FREE_ONE)
    _note_direct_frees(steps, stream.pfn[freed], stream.time_ns[freed], trace)
    opened = np.zeros(len(steps), bool)
    calls = stream.kind == Probe.BULK_ALLOC
    called = following_steps(calls)
    opened[called[called >= 0]] = True
    steps["asked"][called[called >= 0]] = stream.value[calls][called >= 0]
    taken = (steps["operation"] == rec.REMOVE) & (steps["flags"] & rec.RUN_FIRST != 0)
    steps["flags"][taken & ~opened & (steps["objects"] == 1)] |= rec.DIRECT


def _note_direct_frees(
    steps: np.ndarray, pfn: np.ndarray, time_ns: np.ndarray, trace: Trace
) -> None:
    """Mark the last free of each page before the buddy's own free function was called for it."""
    frees = np.flatnonzero((steps["operation"] == rec.PUSH) | (steps["operation"] == rec.DEFERRED))
    frees = frees[np.lexsort((frees, steps["pfn"][frees]))]
    keys = steps["pfn"][frees].astype(np.int64) << 33 | steps["row"][frees].astype(np.int64)
    row = np.searchsorted(trace.time_ns, time_ns)
    found = np.searchsorted(keys, pfn << 33 | row) - 1
    found = found[found >= 0]
    steps["flags"][frees[found]] |= rec.DIRECT


def unseen_pushes(steps: np.ndarray, m: at.MachineArrays, machine: Machine) -> np.ndarray:
    """Pushes for frees that no event shows; `row` is the row after which each fell.

    Args:
        steps: from `recorded_moves`.
        m: a state's arrays, for the number of lists.
        machine: its zones and CPUs.
    """
    frames = _frames(machine)
    lists = len(machine.zones) * machine.nr_cpus * at.PCP_LISTS_MAX
    found = np.zeros((len(steps) // 16 + 1024, 2), np.int32)
    count = find_unseen_frees(
        m,
        steps,
        np.zeros(frames, bool),
        np.full(frames, -1, np.int32),
        np.full(lists, -1, np.int32),
        np.full(machine.nr_cpus, -1, np.int32),
        found,
    )
    found = found[:count]
    popped = steps["operation"][found[:, 0]] == rec.POP
    rank = np.where(popped, -np.arange(count), np.arange(count))
    found = found[np.lexsort((rank, found[:, 1]))]
    pushes = steps[found[:, 0]].copy()
    pushes["fate"] = pushes["operation"]
    pushes["operation"] = rec.PUSH
    pushes["flags"] = rec.UNSEEN
    pushes["objects"] = 0
    pushes["pages"] = 0
    pushes["row"] = steps["row"][found[:, 1]]
    return pushes
