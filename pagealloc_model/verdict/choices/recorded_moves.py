"""A recording as steps between true states: moves of pages, and what stands beside them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from pagealloc_model.allocator import layout as at
from pagealloc_model.allocator.choices import judging
from pagealloc_model.allocator.choices import true_state as rec
from pagealloc_model.allocator.choices.true_state import find_unseen_frees
from pagealloc_model.allocator.state import counter_thresholds
from pagealloc_model.measured.stream import Probe, allocator_stream
from pagealloc_model.predicted.demand.reclaim import kswapd_runs
from pagealloc_model.predicted.demand.rows import highest_type_by_gfp
from pagealloc_model.recording.machine import Machine
from pagealloc_model.recording.trace.columns import Event, Trace

if TYPE_CHECKING:
    from pagealloc_model.allocator.state import State
    from pagealloc_model.recording.recording import Recording


@dataclass(frozen=True, kw_only=True)
class FreeRead:
    """A figure that a snapshot names."""

    begun: int
    read: int
    pages: tuple[tuple[int, int], ...]


def free_pages_moved(moves: np.ndarray, isolated: np.ndarray, st: np.ndarray) -> np.ndarray:
    """By how many pages each of a zone's moves changes its free pages, as (row, pages)."""
    operation = moves["operation"]
    order = moves["order"].astype(np.int64)
    listed = order <= st[at.POLICY_COSTLY_ORDER]
    listed |= (order == st[at.HUGE_ORDER]) & (st[at.THP_LISTS] != 0)
    past_lists = ~listed | (moves["fate"] == rec.REMOVE)
    past_lists |= moves["flags"] & (rec.NESTED | rec.DIRECT) != 0
    change = np.zeros(len(moves), np.int64)
    gained = (operation == rec.DRAIN) | ((operation == rec.PUSH) & past_lists)
    change[gained] = 1 << order[gained]
    lost = operation == rec.REMOVE
    change[lost] = -(1 << order[lost])
    rows = np.concatenate([moves["row"], isolated["row"]]).astype(np.int64)
    pages = np.concatenate([change, -isolated["pages"].astype(np.int64)])
    by_row = np.argsort(rows, kind="stable")
    return np.column_stack([rows[by_row], pages[by_row]])


def agreed_free_pages(moved: np.ndarray, reads: list[FreeRead]) -> list[int]:
    """The zone's free pages when each snapshot begins."""
    counted = np.concatenate([[0], np.cumsum(moved[:, 1])])
    bounds = []
    starts = []
    for read in reads:
        first, last = np.searchsorted(moved[:, 0], [read.begun, read.read])
        window = counted[first : last + 1]
        least, most = int(window.min()), int(window.max())
        starts.append(int(counted[first]))
        low = max(pages - lag - most for pages, lag in read.pages)
        bounds.append((low, min(pages + lag - least for pages, lag in read.pages)))
    constants: list[int] = []
    while len(constants) < len(reads):
        low, high = bounds[len(constants)]
        alike = 1
        for other_low, other_high in bounds[len(constants) + 1 :]:
            if max(low, other_low) > min(high, other_high):
                break
            low, high = max(low, other_low), min(high, other_high)
            alike += 1
        nearest = constants[-1] if constants else (low + high) // 2
        constants += [min(max(nearest, low), high)] * alike
    return [start + constant for start, constant in zip(starts, constants, strict=True)]


SNAPSHOT_NS = 300_000_000
"""Time within which a snapshot, once begun, has read zoneinfo."""


def in_time_order(moves: np.ndarray, others: list[np.ndarray], unseen: np.ndarray) -> np.ndarray:
    """All steps: those of no row of the trace before, unseen pushes after the row they name."""
    beside = np.concatenate(others)
    keys = [beside["row"] * 4, moves["row"] * 4 + 1, unseen["row"] * 4 + 2]
    steps = np.concatenate([beside, moves, unseen])
    return steps[np.argsort(np.concatenate(keys), kind="stable")]


def with_notes(state: State) -> np.ndarray:
    """A state's words with room for notes and repair counts behind them.

    Nothing is known at first: in the words lists overflow early, in the notes late. The limits of a
    machine that no snapshot describes stay unknown.
    """
    machine, st = state.machine, state.st.copy()
    for number, zone in enumerate(machine.zones):
        region = at.ZONES + number * at.ZONE_STRIDE
        st[region + at.ZONE_BELOW_HIGH] = st[at.RULE_BELOW_HIGH_TESTED]
        st[region + at.ZONE_RECLAIM_ACTIVE] = 1
        if zone.managed and not st[at.COUNTS_BY_CPU]:
            # Pages that a CPU may hold back from what watermark tests see (S1.10).
            asleep, awake = counter_thresholds(zone, machine.nr_cpus)
            drifts = machine.nr_cpus * asleep > zone.low - zone.min
            st[region + at.ZONE_THRESHOLD] = st[region + at.ZONE_THRESHOLD_ASLEEP] = asleep
            st[region + at.ZONE_THRESHOLD_AWAKE] = awake if drifts else asleep
    scale = int(st[at.POLICY_PCP_BATCH_SCALE_MAX])
    notes = np.zeros((len(machine.zones) * machine.nr_cpus, rec.NOTE_STRIDE), np.int64)
    lists = notes[:, rec.NOTE_WORDS :].reshape(len(notes), -1, at.LIST_WORDS)
    lists[:, :, [at.HEAD, at.TAIL]] = -1
    for number, note in enumerate(notes):
        pcp = int(st[at.PCP_BASE]) + number * at.PCP_STRIDE
        note[rec.NOTE_HIGH] = st[pcp + at.PCP_HIGH_MAX]
        note[rec.NOTE_ALLOC_FACTOR] = scale
        note[rec.NOTE_SLACK] = note[rec.NOTE_REMAINDER] = st[pcp + at.PCP_HIGH_MAX]
        note[rec.NOTE_UNSURE] = not machine.zones[number // machine.nr_cpus].pagesets
        st[pcp + at.PCP_HIGH] = st[pcp + at.PCP_HIGH_MIN]
        st[pcp + at.PCP_COUNT] += st[pcp + at.PCP_HIGH_MAX]
        st[pcp + at.PCP_ALLOC_FACTOR] = 0
        st[pcp + at.PCP_FREE_COUNT] = st[pcp + at.PCP_BATCH] << scale
        st[pcp + at.PCP_PREV_FREE_HIGH_ORDER] = 1
    zones = np.full((len(machine.zones), rec.ZONE_NOTES), -1, np.int64)
    zones[:, rec.ZONE_NOTE_BELOW_HIGH :] = 0
    return np.concatenate([st, notes.ravel(), zones.ravel(), np.zeros(rec.REPAIRS, np.int64)])


def tracked(state: State, st: np.ndarray) -> np.ndarray:
    """`TRACK` records of a start image: no event tells the place of what it holds."""
    track = np.zeros(len(state.pages), rec.TRACK)
    track["mark"][state.pages["where"] == at.BUDDY] = rec.SINCE_START
    base = int(st[at.PCP_BASE])
    for number in range(len(state.machine.zones) * state.machine.nr_cpus):
        for index in range(at.PCP_LISTS_MAX):
            lst = base + number * at.PCP_STRIDE + at.PCP_LISTS + index * at.LIST_WORDS
            pfn = int(st[lst + at.HEAD])
            while pfn >= 0:
                track["mark"][pfn] = -lst
                track["fate"][pfn] = rec.POP
                pfn = int(state.pages["next"][pfn])
    return track


def snapshot_steps(
    recording: Recording, machine: Machine, moves: np.ndarray, isolated: np.ndarray, st: np.ndarray
) -> np.ndarray:
    """Steps for every pageset and zone of the snapshots taken while events were recorded."""
    trace = recording.trace
    reads: dict[int, list[tuple[FreeRead, int, int]]] = {}
    rows: list[tuple[int, ...]] = []
    times = [snapshot.time_ns for snapshot in recording.snapshots]
    for snapshot, following in zip(recording.snapshots, [*times, np.inf][1:], strict=True):
        end_ns = min(snapshot.time_ns + SNAPSHOT_NS, following)
        begun, read = np.searchsorted(trace.time_ns, [snapshot.time_ns, end_ns]).tolist()
        if snapshot.zoneinfo is None or begun == 0 or begun == len(trace):
            continue
        for zone in snapshot.zoneinfo.zones:
            number = machine.zone_index(zone.node, zone.name)
            if number < 0 or not machine.zones[number].managed:
                continue
            name = (zone.node, zone.name)
            region = at.ZONES + number * at.ZONE_STRIDE
            pages = [(zone.free, int(st[region + at.ZONE_THRESHOLD_AWAKE]) * machine.nr_cpus)]
            if snapshot.buddyinfo is not None:
                counts = [row for row in snapshot.buddyinfo.zones if (row.node, row.zone) == name]
                pages += [(row.free_pages, 0) for row in counts]
            reserved = -1  # free pages on HIGHATOMIC lists
            for row in snapshot.pagetypeinfo.free_lists if snapshot.pagetypeinfo else ():
                if (row.node, row.zone, row.migratetype) == (*name, "HighAtomic"):
                    reserved = sum(count << order for order, count in enumerate(row.buddies))
            free = FreeRead(begun=begun, read=read, pages=tuple(pages))
            reads.setdefault(number, []).append((free, reserved, zone.boost or 0))
            for pageset in zone.pagesets:
                if pageset.cpu < machine.nr_cpus:
                    words = (number, pageset.cpu, pageset.count, pageset.high, 0)
                    rows.append((begun, rec.SNAPSHOT, *words))
                    rows.append((read, rec.SNAPSHOT_END, *words))
    for number, known in reads.items():
        of_zone = (steps[steps["zone"] == number] for steps in (moves, isolated))
        agreed = agreed_free_pages(free_pages_moved(*of_zone, st), [free for free, _, _ in known])
        for (free, reserved, boost), pages_then in zip(known, agreed, strict=True):
            rows.append((free.begun, rec.FREE_READ, number, 0, reserved, pages_then, boost))
    steps = np.zeros(len(rows), rec.STEP)
    names = ("row", "operation", "zone", "cpu", "objects", "pages", "asked")
    columns = np.array(rows, np.int64).reshape(-1, len(names)).T
    for name, column in zip(names, columns, strict=True):
        steps[name] = column
    return steps


def isolation_steps(trace: Trace, machine: Machine, moves: np.ndarray) -> np.ndarray:
    """Steps for free pages that left the buddy without an event of their own (S9.3, S9.7, T7).

    Compaction isolates pages as targets, and captures those that it was asked for: an allocation
    of such an order whose pages nothing took from the buddy before is a capture.
    """
    parts = []
    for name in ("isolate_freepages", "fast_isolate_freepages"):
        table = trace.tables.get(f"compaction:mm_compaction_{name}")
        if table is None:
            continue
        steps = np.zeros(len(table["time_ns"]), rec.STEP)
        steps["row"] = table["row"]
        steps["pages"] = table["nr_taken"]
        steps["zone"] = -1
        first = table["start_pfn"].astype(np.int64)
        for number, zone in enumerate(machine.zones):
            inside = (first >= zone.start_pfn) & (first < zone.end_pfn) & (zone.managed > 0)
            steps["zone"][inside] = number
        parts.append(steps[steps["zone"] >= 0])
    operation = moves["operation"]
    whole = moves["order"] >= machine.pageblock_order
    heads = np.unique(moves["pfn"][whole & (operation == rec.POP)])
    of_heads = np.flatnonzero(
        (operation >= rec.POP) & (operation <= rec.DRAIN) & np.isin(moves["pfn"], heads)
    )
    of_heads = of_heads[np.lexsort((of_heads, moves["pfn"][of_heads]))]
    pops = np.flatnonzero(whole[of_heads[1:]] & (operation[of_heads[1:]] == rec.POP)) + 1
    before, after = of_heads[pops - 1], of_heads[pops]
    listed = (operation[before] == rec.REMOVE) | (operation[before] == rec.PUSH)
    listed &= moves["order"][before] == moves["order"][after]
    captures = moves[after[(moves["pfn"][before] == moves["pfn"][after]) & ~listed]].copy()
    captures["pages"] = np.int32(1) << captures["order"].astype(np.int32)
    steps = np.concatenate([*parts, captures])
    steps["operation"] = rec.ISOLATED
    return steps[np.argsort(steps["row"], kind="stable")]


def reclaim_steps(trace: Trace, machine: Machine) -> np.ndarray:
    """Steps for the start and end of kswapd's runs, if those were recorded (S10.2)."""
    runs = kswapd_runs(trace, machine)
    if runs is None:
        return np.zeros(0, rec.STEP)
    steps = np.zeros(len(runs), rec.STEP)
    steps["row"] = np.searchsorted(trace.time_ns, runs["time_ns"])
    starts = runs["operation"] == at.KSWAPD_START
    steps["operation"] = np.where(starts, rec.RECLAIM_STARTS, rec.RECLAIM_STOPS)
    steps["objects"] = runs["offset"]
    steps["zone"] = runs["zone"]
    return steps


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
    """Every row as a move, runs and fates noted."""
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
    begin, end = trace.demand_span_ns
    bins = (trace.time_ns - begin) * judging.TIME_BINS // max(end - begin + 1, 1)
    steps["time_bin"] = np.clip(bins, 0, judging.TIME_BINS - 1)
    outside = steps["zone"] < 0
    failed = (trace.event == Event.ALLOC) & (trace.pfn < 0)
    steps["operation"][outside] = np.where(failed[outside], rec.FAILED, rec.NOTHING)
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


def _with_fallbacks(steps: np.ndarray, trace: Trace) -> np.ndarray:
    """Mark removals by fallback; a partial claim's event repeats the removal before it (T4)."""
    table = trace.tables.get(_EXTFRAG)
    rows = np.flatnonzero(trace.event == Event.EXTFRAG)
    if table is None or len(table["time_ns"]) != len(rows):
        return steps
    # The row before each on the same CPU, itself where there is none.
    by_cpu = np.argsort(trace.cpu, kind="stable")
    place = np.empty(len(trace), np.int64)
    place[by_cpu] = np.arange(len(trace))
    before = by_cpu[np.maximum(place[rows] - 1, 0)]
    before = np.where(trace.cpu[before] == trace.cpu[rows], before, rows)
    twin = (trace.event[before] == Event.ZONE_LOCKED) & (trace.pfn[before] == trace.pfn[rows])
    target = np.where(twin, before, rows)
    owned = np.asarray(table["change_ownership"]) != 0
    steps["flags"][target] |= rec.FALLBACK
    steps["flags"][target[owned]] |= rec.OWNERSHIP
    steps["migratetype"][target] = table["alloc_migratetype"]
    steps["found_order"][target] = table["fallback_order"]
    steps["found_type"][target] = table["fallback_migratetype"]
    return np.delete(steps, rows[twin])


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

    # The last free of each page before the buddy's own free function was called for it.
    freed = stream.kind == Probe.FREE_ONE
    frees = np.flatnonzero((steps["operation"] == rec.PUSH) | (steps["operation"] == rec.DEFERRED))
    frees = frees[np.lexsort((frees, steps["pfn"][frees]))]
    keys = steps["pfn"][frees].astype(np.int64) << 33 | steps["row"][frees].astype(np.int64)
    row = np.searchsorted(trace.time_ns, stream.time_ns[freed])
    last = np.searchsorted(keys, stream.pfn[freed] << 33 | row) - 1
    steps["flags"][frees[last[last >= 0]]] |= rec.DIRECT
    opened = np.zeros(len(steps), bool)
    calls = stream.kind == Probe.BULK_ALLOC
    called = following_steps(calls)
    opened[called[called >= 0]] = True
    steps["asked"][called[called >= 0]] = stream.value[calls][called >= 0]
    taken = (steps["operation"] == rec.REMOVE) & (steps["flags"] & rec.RUN_FIRST != 0)
    steps["flags"][taken & ~opened & (steps["objects"] == 1)] |= rec.DIRECT


def unseen_pushes(steps: np.ndarray, m: at.Arrays, machine: Machine) -> np.ndarray:
    """Pushes for frees that no event shows; `row` is the row after which each fell."""
    frames = _frames(machine)
    lists = len(machine.zones) * machine.nr_cpus * at.PCP_LISTS_MAX
    pairs = np.zeros((len(steps) // 16 + 1024, 2), np.int32)
    unknown = (np.full(size, -1, np.int32) for size in (frames, lists, machine.nr_cpus))
    count = find_unseen_frees(m, steps, np.zeros(frames, bool), *unknown, pairs)
    later, before = pairs[:count].T
    popped = steps["operation"][later] == rec.POP
    rank = np.where(popped, -np.arange(count), np.arange(count))
    by_row = np.lexsort((rank, before))
    pushes = steps[later[by_row]].copy()
    pushes["fate"] = pushes["operation"]
    pushes["operation"] = rec.PUSH
    pushes["flags"] = rec.UNSEEN
    pushes["objects"] = pushes["pages"] = 0
    pushes["row"] = steps["row"][before[by_row]]
    return pushes
