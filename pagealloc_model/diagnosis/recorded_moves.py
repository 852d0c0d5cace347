"""A recording as moves between true states, what stands beside them, and the state at the start."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from pagealloc_model.allocator import layout as at
from pagealloc_model.allocator.state import (
    LISTED,
    StartImage,
    counter_thresholds,
    maximal_buddies,
)
from pagealloc_model.diagnosis import judging
from pagealloc_model.diagnosis import true_state as rec
from pagealloc_model.diagnosis.true_state import find_unseen_frees
from pagealloc_model.measured.stream import Probe, allocator_stream
from pagealloc_model.measured.transactions import partial_claim_duplicates
from pagealloc_model.predicted.demand.reclaim import kswapd_runs
from pagealloc_model.predicted.demand.rows import highest_type_by_gfp
from pagealloc_model.predicted.start.evidence import MIGRATABLE, StartCounts, frame_count
from pagealloc_model.predicted.start.placement import TOO_OLD, buddy_table, wanted_buddies
from pagealloc_model.recording.machine import Machine
from pagealloc_model.recording.proc import pages as flags
from pagealloc_model.recording.trace import tracepoints as tp
from pagealloc_model.recording.trace.columns import Event, Trace

if TYPE_CHECKING:
    from pagealloc_model.allocator.state import State
    from pagealloc_model.recording.recording import Recording

FreeRead = tuple[int, int, list[tuple[int, int]]]
"""A figure that a snapshot names: rows of the trace before it began and when it was read, and
numbers of free pages, each with how far it may lag."""
_SNAPSHOT_NS = 300_000_000
"""Time within which a snapshot, once begun, has read zoneinfo."""
_OPERATIONS = {
    Event.ALLOC: rec.POP,
    Event.FREE: rec.PUSH,
    Event.FREE_BATCHED: rec.BATCHED,
    Event.ZONE_LOCKED: rec.REMOVE,
    Event.PCPU_DRAIN: rec.DRAIN,
    Event.EXTFRAG: rec.REMOVE,
}


def _steps(count: int, **columns: npt.ArrayLike) -> np.ndarray:
    steps = np.zeros(count, rec.STEP)
    for name, values in columns.items():
        steps[name] = values
    return steps


def recorded_moves(trace: Trace, machine: Machine) -> tuple[np.ndarray, np.ndarray]:
    """Every row as a move, runs and fates noted, and the first operation on each page frame."""
    operations = np.zeros(len(Event), np.int8)
    operations[list(_OPERATIONS)] = list(_OPERATIONS.values())
    # Zones are -1 outside, across an edge or for orders and CPUs unknown.
    size = np.int64(1) << np.clip(trace.order, 0, machine.max_order).astype(np.int64)
    zone = machine.zones_of_pages(trace.pfn)
    sound = (trace.order >= 0) & (trace.order <= machine.max_order)
    sound &= (trace.pfn & (size - 1) == 0) & (trace.cpu >= 0) & (trace.cpu < machine.nr_cpus)
    zone[~sound | (zone != machine.zones_of_pages(trace.pfn + size - 1))] = -1
    workers = [pid for pid, comm in trace.comms.items() if comm.startswith("kworker")]
    begin, end = trace.demand_span_ns
    bins = (trace.time_ns - begin) * judging.TIME_BINS // max(end - begin + 1, 1)
    failed = np.where((trace.event == Event.ALLOC) & (trace.pfn < 0), rec.FAILED, rec.NOTHING)
    steps = _steps(
        len(trace),
        row=np.arange(len(trace)),
        **{
            name: getattr(trace, name)
            for name in ("pfn", "pid", "cpu", "order", "migratetype", "gfp")
        },
        operation=np.where(zone < 0, failed, operations[trace.event]),
        zone=zone,
        found_order=-1,
        highest=highest_type_by_gfp(machine)[trace.gfp & np.uint32(15)],
        flags=np.where(np.isin(trace.pid, workers), rec.KWORKER, 0),
        time_bin=np.clip(bins, 0, judging.TIME_BINS - 1),
    )
    frames = frame_count(machine)
    cpus = int(max(steps["cpu"].max(initial=0) + 1, machine.nr_cpus))
    rec.match_batched(steps, np.zeros(frames, np.int32))
    rec.note_nesting(steps, np.zeros(cpus, np.int32), np.zeros(cpus, np.int8))
    steps = _with_fallbacks(steps, trace)
    first = np.zeros(frames, np.int8)
    rec.note_fates(steps, first, np.full(frames, -1, np.int8))
    rec.note_runs(steps, np.full(cpus, -1, np.int64), np.full(len(steps), -1, np.int32))
    _note_probed(steps, trace)
    return steps, first


def _with_fallbacks(steps: np.ndarray, trace: Trace) -> np.ndarray:
    """Mark removals by fallback; a partial claim's event repeats the removal before it (T4)."""
    table = trace.tables.get(tp.PAGE_ALLOC_EXTFRAG)
    rows = np.flatnonzero(trace.event == Event.EXTFRAG)
    if table is None or len(table["time_ns"]) != len(rows):
        return steps
    repeats = partial_claim_duplicates(allocator_stream(trace, with_probes=False))
    by_cpu = np.argsort(trace.cpu, kind="stable")
    before = np.arange(len(trace))
    places = np.flatnonzero(repeats)
    before[by_cpu[places]] = by_cpu[places - 1]
    target = before[rows]
    owned = np.asarray(table["change_ownership"]) != 0
    steps["flags"][target] |= rec.FALLBACK
    steps["flags"][target[owned]] |= rec.OWNERSHIP
    steps["migratetype"][target] = table["alloc_migratetype"]
    steps["found_order"][target] = table["fallback_order"]
    steps["found_type"][target] = table["fallback_migratetype"]
    return np.delete(steps, by_cpu[places])


def _note_probed(steps: np.ndarray, trace: Trace) -> None:
    """Where kprobes bound the allocator's calls: what went past the lists, and whole refills."""
    if not {"pa:free_one", "pa:pcp_bulk_alloc"} <= set(trace.tables):
        return
    stream = allocator_stream(trace, with_probes=True)
    # The last free of each page before the buddy's own free function was called for it.
    freed = stream.kind == Probe.FREE_ONE
    frees = np.flatnonzero((steps["operation"] == rec.PUSH) | (steps["operation"] == rec.DEFERRED))
    frees = frees[np.lexsort((frees, steps["pfn"][frees]))]
    keys = steps["pfn"][frees].astype(np.int64) << 33 | steps["row"][frees].astype(np.int64)
    row = np.searchsorted(trace.time_ns, stream.time_ns[freed])
    last = np.searchsorted(keys, stream.pfn[freed] << 33 | row) - 1
    steps["flags"][frees[last[last >= 0]]] |= rec.DIRECT
    # The step after each call of the bulk allocation on its CPU, -1 if there is none.
    main = stream.kind < Probe.BULK_ALLOC
    calls = np.flatnonzero(stream.kind == Probe.BULK_ALLOC)
    place = np.minimum(np.cumsum(main)[calls], np.count_nonzero(main) - 1)
    number_of_row = np.full(len(trace), -1, np.int64)
    number_of_row[steps["row"]] = np.arange(len(steps))
    called = number_of_row[np.argsort(trace.cpu, kind="stable")[place]]
    called[stream.cpu[np.flatnonzero(main)[place]] != stream.cpu[calls]] = -1
    steps["asked"][called[called >= 0]] = stream.value[calls][called >= 0]
    direct = (steps["operation"] == rec.REMOVE) & (steps["flags"] & rec.RUN_FIRST != 0)
    direct &= steps["objects"] == 1
    direct[called[called >= 0]] = False
    steps["flags"][direct] |= rec.DIRECT


def unseen_pushes(steps: np.ndarray, m: at.Arrays, machine: Machine) -> np.ndarray:
    """Pushes for frees that no event shows; `row` is the row after which each fell."""
    frames = frame_count(machine)
    lists = len(machine.zones) * machine.nr_cpus * at.PCP_LISTS_MAX
    pairs = np.zeros((len(steps) // 16 + 1024, 2), np.int32)
    unknown = (np.full(size, -1, np.int32) for size in (frames, lists, machine.nr_cpus))
    count = find_unseen_frees(m, steps, np.zeros(frames, bool), *unknown, pairs)
    later, before = pairs[:count].T
    popped = steps["operation"][later] == rec.POP
    by_row = np.lexsort((np.where(popped, -np.arange(count), np.arange(count)), before))
    pushes = steps[later[by_row]].copy()
    pushes["fate"] = pushes["operation"]
    pushes["operation"] = rec.PUSH
    pushes["flags"] = rec.UNSEEN
    pushes["objects"] = pushes["pages"] = 0
    pushes["row"] = steps["row"][before[by_row]]
    return pushes


def isolation_steps(trace: Trace, machine: Machine, moves: np.ndarray) -> np.ndarray:
    """Steps for free pages that left the buddy without an event of their own (S9.3, S9.7, T7).

    Compaction isolates pages as targets, and captures those that it was asked for: an allocation
    of such an order whose pages nothing took from the buddy before is a capture.
    """
    parts = []
    for name in (tp.ISOLATE_FREEPAGES, tp.FAST_ISOLATE_FREEPAGES):
        table = trace.tables.get(name)
        if table is not None:
            zone = machine.zones_of_pages(table["start_pfn"].astype(np.int64))
            columns = {"row": table["row"], "pages": table["nr_taken"], "zone": zone}
            parts.append(_steps(len(zone), **columns)[zone >= 0])
    operation, pfn = moves["operation"], moves["pfn"]
    whole = moves["order"] >= machine.pageblock_order
    heads = np.unique(pfn[whole & (operation == rec.POP)])
    is_of_head = (operation >= rec.POP) & (operation <= rec.DRAIN) & np.isin(pfn, heads)
    of_heads = np.flatnonzero(is_of_head)
    of_heads = of_heads[np.lexsort((of_heads, pfn[of_heads]))]
    pops = np.flatnonzero(whole[of_heads[1:]] & (operation[of_heads[1:]] == rec.POP)) + 1
    before, after = of_heads[pops - 1], of_heads[pops]
    listed = (operation[before] == rec.REMOVE) | (operation[before] == rec.PUSH)
    listed &= moves["order"][before] == moves["order"][after]
    captures = moves[after[(pfn[before] == pfn[after]) & ~listed]].copy()
    captures["pages"] = np.int32(1) << captures["order"].astype(np.int32)
    steps = np.concatenate([*parts, captures])
    steps["operation"] = rec.ISOLATED
    return steps[np.argsort(steps["row"], kind="stable")]


def reclaim_steps(trace: Trace, machine: Machine) -> np.ndarray:
    """Steps for the start and end of kswapd's runs, if those were recorded (S10.2)."""
    runs = kswapd_runs(trace, machine)
    if runs is None:
        return _steps(0)
    starts = runs["operation"] == at.KSWAPD_START
    return _steps(
        len(runs),
        row=np.searchsorted(trace.time_ns, runs["time_ns"]),
        operation=np.where(starts, rec.RECLAIM_STARTS, rec.RECLAIM_STOPS),
        objects=runs["offset"],
        zone=runs["zone"],
    )


def snapshot_steps(
    recording: Recording, machine: Machine, moves: np.ndarray, isolated: np.ndarray, st: np.ndarray
) -> np.ndarray:
    """Steps for every pageset and zone of the snapshots taken while events were recorded."""
    trace = recording.trace
    reads: dict[int, list[tuple[FreeRead, int, int]]] = {}
    rows: list[tuple[int, ...]] = []
    times = [snapshot.time_ns for snapshot in recording.snapshots]
    for snapshot, following in zip(recording.snapshots, [*times, np.inf][1:], strict=True):
        end_ns = min(snapshot.time_ns + _SNAPSHOT_NS, following)
        begun, read = np.searchsorted(trace.time_ns, [snapshot.time_ns, end_ns]).tolist()
        if snapshot.zoneinfo is None or begun == 0 or begun == len(trace):
            continue
        for zone in snapshot.zoneinfo.zones:
            number = machine.zone_index(zone.node, zone.name)
            if number < 0 or not machine.zones[number].managed:
                continue
            name = (zone.node, zone.name)
            threshold = int(st[at.ZONES + number * at.ZONE_STRIDE + at.ZONE_THRESHOLD_AWAKE])
            pages = [(zone.free, threshold * machine.nr_cpus)]
            for row in snapshot.buddyinfo.zones if snapshot.buddyinfo else ():
                pages += [(row.free_pages, 0)] * ((row.node, row.zone) == name)
            reserved = -1  # free pages on HIGHATOMIC lists
            for row in snapshot.pagetypeinfo.free_lists if snapshot.pagetypeinfo else ():
                if (row.node, row.zone, row.migratetype) == (*name, "HighAtomic"):
                    reserved = sum(count << order for order, count in enumerate(row.buddies))
            known = ((begun, read, pages), reserved, zone.boost or 0)
            reads.setdefault(number, []).append(known)
            for pageset in zone.pagesets:
                if pageset.cpu < machine.nr_cpus:
                    words = (number, pageset.cpu, pageset.count, pageset.high, 0)
                    rows.append((begun, rec.SNAPSHOT, *words))
                    rows.append((read, rec.SNAPSHOT_END, *words))
    for number, known in reads.items():
        of_zone = (steps[steps["zone"] == number] for steps in (moves, isolated))
        agreed = agreed_free_pages(_free_pages_moved(*of_zone, st), [free for free, _, _ in known])
        for (free, reserved, boost), pages_then in zip(known, agreed, strict=True):
            rows.append((free[0], rec.FREE_READ, number, 0, reserved, pages_then, boost))
    names = ("row", "operation", "zone", "cpu", "objects", "pages", "asked")
    columns = np.array(rows, np.int64).reshape(-1, len(names)).T
    return _steps(len(rows), **dict(zip(names, columns, strict=True)))


def _free_pages_moved(moves: np.ndarray, isolated: np.ndarray, st: np.ndarray) -> np.ndarray:
    """By how many pages each of a zone's moves changes its free pages, as (row, pages)."""
    operation = moves["operation"]
    order = moves["order"].astype(np.int64)
    listed = order <= st[at.POLICY_COSTLY_ORDER]
    listed |= (order == st[at.HUGE_ORDER]) & (st[at.THP_LISTS] != 0)
    past_lists = ~listed | (moves["fate"] == rec.REMOVE)
    past_lists |= moves["flags"] & (rec.NESTED | rec.DIRECT) != 0
    gained = (operation == rec.DRAIN) | ((operation == rec.PUSH) & past_lists)
    change = (gained.astype(np.int64) - (operation == rec.REMOVE)) << order
    rows = np.concatenate([moves["row"], isolated["row"]]).astype(np.int64)
    pages = np.concatenate([change, -isolated["pages"].astype(np.int64)])
    by_row = np.argsort(rows, kind="stable")
    return np.column_stack([rows[by_row], pages[by_row]])


def agreed_free_pages(moved: np.ndarray, reads: list[FreeRead]) -> list[int]:
    """The zone's free pages when each snapshot begins."""
    counted = np.concatenate([[0], np.cumsum(moved[:, 1])])
    bounds = []
    starts = []
    for begun, read, figures in reads:
        first, last = np.searchsorted(moved[:, 0], [begun, read])
        window = counted[first : last + 1]
        least, most = int(window.min()), int(window.max())
        starts.append(int(counted[first]))
        low = max(pages - lag - most for pages, lag in figures)
        bounds.append((low, min(pages + lag - least for pages, lag in figures)))
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


def with_notes(state: State) -> np.ndarray:
    """A state's words with room for notes and repair counts behind them.

    Nothing is known at first: in the words lists overflow early, in the notes late. The limits of a
    machine that no snapshot describes stay unknown.
    """
    machine, st = state.machine, state.st.copy()
    for number, zone in enumerate(machine.zones):
        region = st[at.ZONES + number * at.ZONE_STRIDE :]
        region[at.ZONE_BELOW_HIGH] = st[at.RULE_BELOW_HIGH_TESTED]
        region[at.ZONE_RECLAIM_ACTIVE] = 1
        if zone.managed and not st[at.COUNTS_BY_CPU]:
            # Pages that a CPU may hold back from what watermark tests see (S1.10).
            asleep, awake = counter_thresholds(zone, machine.nr_cpus)
            drifts = machine.nr_cpus * asleep > zone.low - zone.min
            region[[at.ZONE_THRESHOLD, at.ZONE_THRESHOLD_ASLEEP]] = asleep
            region[at.ZONE_THRESHOLD_AWAKE] = awake if drifts else asleep
    scale = int(st[at.POLICY_PCP_BATCH_SCALE_MAX])
    count = len(machine.zones) * machine.nr_cpus
    notes = np.zeros((count, rec.NOTE_STRIDE), np.int64)
    lists = notes[:, rec.NOTE_WORDS :].reshape(count, -1, at.LIST_WORDS)
    lists[:, :, [at.HEAD, at.TAIL]] = -1
    sets = st[st[at.PCP_BASE] :][: count * at.PCP_STRIDE].reshape(count, at.PCP_STRIDE)
    for word in (rec.NOTE_HIGH, rec.NOTE_SLACK, rec.NOTE_REMAINDER):
        notes[:, word] = sets[:, at.PCP_HIGH_MAX]
    notes[:, rec.NOTE_ALLOC_FACTOR] = scale
    notes[:, rec.NOTE_UNSURE] = np.repeat([not z.pagesets for z in machine.zones], machine.nr_cpus)
    sets[:, at.PCP_HIGH] = sets[:, at.PCP_HIGH_MIN]
    sets[:, at.PCP_COUNT] += sets[:, at.PCP_HIGH_MAX]
    sets[:, at.PCP_ALLOC_FACTOR] = 0
    sets[:, at.PCP_FREE_COUNT] = sets[:, at.PCP_BATCH] << scale
    sets[:, at.PCP_PREV_FREE_HIGH_ORDER] = 1
    zones = np.full((len(machine.zones), rec.ZONE_NOTES), -1, np.int64)
    zones[:, rec.ZONE_NOTE_BELOW_HIGH :] = 0
    return np.concatenate([st, notes.ravel(), zones.ravel(), np.zeros(rec.REPAIRS, np.int64)])


def tracked(state: State, st: np.ndarray) -> np.ndarray:
    """`TRACK` records of a start image: no event tells the place of what it holds."""
    track = np.zeros(len(state.pages), rec.TRACK)
    track["mark"][state.pages["where"] == at.BUDDY] = rec.SINCE_START
    for number in range(len(state.machine.zones) * state.machine.nr_cpus):
        first = int(st[at.PCP_BASE]) + number * at.PCP_STRIDE + at.PCP_LISTS
        for lst in range(first, first + at.PCP_LISTS_MAX * at.LIST_WORDS, at.LIST_WORDS):
            pfns = state.list_pages(st[lst : lst + at.LIST_WORDS])
            track["mark"][pfns], track["fate"][pfns] = -lst, rec.POP
    return track


def true_start(
    machine: Machine,
    steps: np.ndarray,
    first: np.ndarray,
    page_flags: np.ndarray | None,
    counts: StartCounts | None = None,
    other_types: np.ndarray | None = None,
) -> StartImage:
    """A start image by look-ahead: what a page's first event says of it is what it was.

    A page first taken from the buddy was there; one first allocated was on the list it was
    allocated from, one first drained on the list it was drained from; one first freed was
    allocated. Untouched pages are free if page flags say so and, where these are too old, the start
    snapshot counts as many; what was free when flags were read and is in use by now moves if its
    block is Movable. Blocks are of the type that their first event shows, others Movable.
    """
    moves = steps[(steps["operation"] >= rec.POP) & (steps["operation"] <= rec.DRAIN)]
    words = np.zeros(len(first), np.uint64)
    if page_flags is not None:
        known = min(len(page_flags), len(words))
        words[:known] = page_flags[:known]
    free = (words & flags.BUDDY) != 0
    free[first != rec.NOTHING] = False
    free[first == rec.REMOVE] = True
    types = _block_types(machine, moves, other_types)
    heads = _first_moves(moves, first)
    live = heads[heads["operation"] == rec.PUSH]
    # On lists: pages popped first, then pages drained, the last one drained first.
    eligible = heads[(heads["order"] <= 3) | (heads["order"] == machine.pageblock_order)]
    drained = eligible[eligible["operation"] == rec.DRAIN][::-1]
    both = np.concatenate([eligible[eligible["operation"] == rec.POP], drained])
    listed = np.zeros(len(both), LISTED)
    for name in ("pfn", "zone", "order", "cpu"):
        listed[name] = both[name]
    kind = both["migratetype"]
    listed["migratetype"] = np.where(kind < at.PCP_TYPES, kind, at.MOVABLE)
    lines: list[str] = []
    if counts is not None:
        on_lists = pages_on_lists(machine, listed)
        lines = drop_uncounted(machine, counts, on_lists, first == rec.REMOVE, free, types)
    of_block = np.repeat(types, 1 << machine.pageblock_order)[: len(words)]
    taken_since = ((words & flags.BUDDY) != 0) & ~free & (of_block == at.MOVABLE)
    return StartImage(
        free=free,
        movable=(((words & MIGRATABLE) != 0) | taken_since) & ~free,
        block_types=types,
        listed=listed,
        pcp_high=np.zeros((len(machine.zones), machine.nr_cpus), np.int64),
        allocated_pfn=live["pfn"].astype(np.int32),
        allocated_order=live["order"].astype(np.int8),
        origin=tuple(lines),
    )


def drop_uncounted(
    machine: Machine,
    counts: StartCounts,
    listed_pages: np.ndarray,
    known: np.ndarray,
    free: np.ndarray,
    block_types: np.ndarray,
) -> list[str]:
    """Leave out, zone by zone, what flags show free beyond what the counts leave room for.

    Only in zones with more free pages than counted (by the share TOO_OLD). Free buddies that events
    show count first; of the others, as many stay of each order and type as the counts have more,
    those at the end of the zone first, where the kernel hands memory out last.
    """
    lines: list[str] = []
    if counts.free_buddies is None:
        return lines
    sure = buddy_table(machine, known, block_types)
    geometry = machine.pageblock_order, machine.max_order
    pfns, orders = maximal_buddies(free & ~known, block_types, *geometry)
    for index, zone in enumerate(machine.zones):
        if not zone.managed:
            continue
        wanted, _ = wanted_buddies(machine, counts, index, int(listed_pages[index]))
        counted = int((wanted.sum(axis=1) << np.arange(at.ORDERS)).sum())
        if int(free[zone.start_pfn : zone.end_pfn].sum()) <= counted * (1 + TOO_OLD):
            continue
        room = np.maximum(wanted - sure[index], 0)
        dropped = 0
        inside = (pfns >= zone.start_pfn) & (pfns < zone.end_pfn)
        buddies = zip(pfns[inside].tolist(), orders[inside].tolist(), strict=True)
        for pfn, order in reversed(list(buddies)):
            cell = order, int(block_types[pfn >> machine.pageblock_order])
            if room[cell] > 0:
                room[cell] -= 1
            else:
                free[pfn : pfn + (1 << order)] = False
                dropped += 1 << order
        lines.append(
            f"{machine.zone_title(index)}: {dropped} pages that page flags show free and no event "
            "touches are left out: the flags are older than the start snapshot, which has no room "
            "for them"
        )
    return lines


def pages_on_lists(machine: Machine, listed: np.ndarray) -> np.ndarray:
    """int64 by zone: pages on per-CPU lists, of `LISTED` records."""
    sizes = np.int64(1) << listed["order"].astype(np.int64)
    count = np.bincount(listed["zone"], weights=sizes, minlength=len(machine.zones))
    return count.astype(np.int64)


def _first_moves(moves: np.ndarray, first: np.ndarray) -> np.ndarray:
    """The first move of each page, unless an earlier one moved a frame of it as part of another."""
    _, heads = np.unique(moves["pfn"], return_index=True)
    heads = np.sort(heads)

    def by_order(rows: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Some of the rows, and each one's page frames."""
        for order in np.unique(moves["order"][rows]):
            chosen = rows[moves["order"][rows] == order]
            frames = moves["pfn"][chosen].astype(np.int64)[:, None] + np.arange(1 << int(order))
            yield chosen, frames

    touched_by = np.full(len(first), len(moves), np.int64)
    for rows, frames in by_order(np.arange(len(moves))):
        np.minimum.at(touched_by, frames.ravel(), np.repeat(rows, frames.shape[1]))
    whole = [
        rows[(touched_by[frames] == rows[:, None]).all(axis=1)] for rows, frames in by_order(heads)
    ]
    return moves[np.sort(np.concatenate([*whole, heads[:0]]))]


def _block_types(machine: Machine, moves: np.ndarray, other_types: np.ndarray | None) -> np.ndarray:
    """int8 per pageblock. What leaves a block tells its type; a free, the list of its page."""
    order = machine.pageblock_order
    types = np.full(-(-machine.end_pfn >> order), -1, np.int8)
    for zone in machine.zones:
        if zone.managed:
            types[zone.start_pfn >> order : -(-zone.end_pfn >> order)] = at.MOVABLE
    if other_types is not None:
        types[:] = other_types
    is_push = moves["operation"] == rec.PUSH
    shows = (moves["operation"] == rec.REMOVE) | (moves["operation"] == rec.DRAIN)
    shows |= is_push & (moves["fate"] == rec.POP)
    elsewhere = (moves["flags"] & rec.FALLBACK != 0) | is_push
    shown = np.where(elsewhere, moves["found_type"], moves["migratetype"])[shows]
    blocks, index = np.unique(moves["pfn"][shows] >> order, return_index=True)
    known = shown[index] >= 0
    types[blocks[known]] = shown[index][known]
    return types
