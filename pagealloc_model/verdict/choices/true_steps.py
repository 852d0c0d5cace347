"""What stands beside a trace's moves when choices are judged: snapshots, reclaim, notes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from pagealloc_model.allocator.choices import recorded_steps as rec
from pagealloc_model.allocator.choices import true_state as true
from pagealloc_model.allocator.core import layout as at
from pagealloc_model.allocator.core.state import counter_thresholds
from pagealloc_model.predicted.demand.recorded_reclaim import kswapd_runs
from pagealloc_model.verdict.choices.true_free import FreeRead, agreed_free_pages, free_pages_moved

if TYPE_CHECKING:
    from pagealloc_model.allocator.core.state import State
    from pagealloc_model.recording.machine import Machine
    from pagealloc_model.recording.proc.zoneinfo import ZoneInfoZone
    from pagealloc_model.recording.recording import Recording
    from pagealloc_model.recording.snapshot import Snapshot
    from pagealloc_model.recording.trace.columns import Trace

_ISOLATIONS = (
    "compaction:mm_compaction_isolate_freepages",
    "compaction:mm_compaction_fast_isolate_freepages",
)

SNAPSHOT_NS = 300_000_000
"""Time within which a snapshot, once begun, has read zoneinfo."""


def in_time_order(moves: np.ndarray, others: list[np.ndarray], unseen: np.ndarray) -> np.ndarray:
    """All steps: those of no row of the trace before, unseen pushes after the row they name."""
    beside = np.concatenate(others)
    keys = [beside["row"] * 4, moves["row"] * 4 + 1, unseen["row"] * 4 + 2]
    steps = np.concatenate([beside, moves, unseen])
    return steps[np.argsort(np.concatenate(keys), kind="stable")]


def with_notes(state: State) -> np.ndarray:
    """A state's words with room for notes and repair counts behind them."""
    pagesets = len(state.machine.zones) * state.machine.nr_cpus
    notes = np.zeros((pagesets, true.NOTE_STRIDE), np.int64)
    lists = notes[:, true.NOTE_WORDS :].reshape(pagesets, -1, at.LIST_WORDS)
    lists[:, :, [at.HEAD, at.TAIL]] = -1
    st = state.st.copy()
    _spread_worlds(state.machine, st, notes)
    zones = np.full((len(state.machine.zones), true.ZONE_NOTES), -1, np.int64)
    zones[:, true.ZONE_NOTE_BELOW_HIGH :] = 0
    return np.concatenate([st, notes.ravel(), zones.ravel(), np.zeros(true.REPAIRS, np.int64)])


def _spread_worlds(machine: Machine, st: np.ndarray, notes: np.ndarray) -> None:
    """Nothing is known at first: in `st` the words make lists overflow early, in `notes` late.

    The limits of a machine that no snapshot describes stay unknown.
    """
    for zone in range(len(machine.zones)):
        region = at.ZONES + zone * at.ZONE_STRIDE
        st[region + at.ZONE_BELOW_HIGH] = st[at.RULE_BELOW_HIGH_TESTED]
        st[region + at.ZONE_RECLAIM_ACTIVE] = 1
        _let_counters_lag(machine, st, zone)
    scale = int(st[at.POLICY_PCP_BATCH_SCALE_MAX])
    for number, note in enumerate(notes):
        pcp = int(st[at.PCP_BASE]) + number * at.PCP_STRIDE
        note[true.NOTE_HIGH] = st[pcp + at.PCP_HIGH_MAX]
        note[true.NOTE_ALLOC_FACTOR] = scale
        note[true.NOTE_SLACK] = note[true.NOTE_REMAINDER] = st[pcp + at.PCP_HIGH_MAX]
        note[true.NOTE_UNSURE] = not machine.zones[number // machine.nr_cpus].pagesets
        st[pcp + at.PCP_HIGH] = st[pcp + at.PCP_HIGH_MIN]
        st[pcp + at.PCP_COUNT] += st[pcp + at.PCP_HIGH_MAX]
        st[pcp + at.PCP_ALLOC_FACTOR] = 0
        st[pcp + at.PCP_FREE_COUNT] = st[pcp + at.PCP_BATCH] << scale
        st[pcp + at.PCP_PREV_FREE_HIGH_ORDER] = 1


def _let_counters_lag(machine: Machine, st: np.ndarray, zone: int) -> None:
    """How many pages a CPU may hold back from what watermark tests see (S1.10)."""
    if st[at.COUNTS_BY_CPU] or not machine.zones[zone].managed:
        return
    region = at.ZONES + zone * at.ZONE_STRIDE
    asleep, awake = counter_thresholds(machine.zones[zone], machine.nr_cpus)
    drifts = machine.nr_cpus * asleep > machine.zones[zone].low - machine.zones[zone].min
    st[region + at.ZONE_THRESHOLD] = st[region + at.ZONE_THRESHOLD_ASLEEP] = asleep
    st[region + at.ZONE_THRESHOLD_AWAKE] = awake if drifts else asleep


def tracked(state: State, st: np.ndarray) -> np.ndarray:
    """`TRACK` records of a start image: no event tells the place of what it holds."""
    track = np.zeros(len(state.pages), true.TRACK)
    track["mark"][state.pages["where"] == at.BUDDY] = true.SINCE_START
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
    """Steps for every pageset and zone of the snapshots taken while events were recorded.

    Args:
        recording: the recording.
        machine: its zones and CPUs.
        moves: from `recorded_moves`.
        isolated: from `isolation_steps`.
        st: a state's words.
    """
    trace = recording.trace
    reads: dict[int, list[tuple[FreeRead, int, int]]] = {}
    rows: list[tuple[int, ...]] = []
    times = [snapshot.time_ns for snapshot in recording.snapshots]
    for snapshot, following in zip(recording.snapshots, [*times, np.inf][1:], strict=True):
        begun = int(np.searchsorted(trace.time_ns, snapshot.time_ns))
        end_ns = min(snapshot.time_ns + SNAPSHOT_NS, following)
        read = int(np.searchsorted(trace.time_ns, end_ns))
        if snapshot.zoneinfo is None or begun == 0 or begun == len(trace):
            continue
        for zone in snapshot.zoneinfo.zones:
            number = machine.zone_index(zone.node, zone.name)
            if number < 0 or not machine.zones[number].managed:
                continue
            reserved = _free_reserved(snapshot, zone.node, zone.name)
            region = at.ZONES + number * at.ZONE_STRIDE
            lag = int(st[region + at.ZONE_THRESHOLD_AWAKE]) * machine.nr_cpus
            free = FreeRead(begun=begun, read=read, pages=_free(snapshot, zone, lag))
            reads.setdefault(number, []).append((free, reserved, zone.boost or 0))
            for pageset in zone.pagesets:
                if pageset.cpu < machine.nr_cpus:
                    words = (number, pageset.cpu, pageset.count, pageset.high, 0)
                    rows.append((begun, rec.SNAPSHOT, *words))
                    rows.append((read, rec.SNAPSHOT_END, *words))
    for number, known in reads.items():
        moved = free_pages_moved(
            moves[moves["zone"] == number], isolated[isolated["zone"] == number], st
        )
        agreed = agreed_free_pages(moved, [free for free, _, _ in known])
        for (free, reserved, boost), pages in zip(known, agreed, strict=True):
            rows.append((free.begun, rec.FREE_READ, number, 0, reserved, pages, boost))
    steps = np.zeros(len(rows), rec.STEP)
    names = ("row", "operation", "zone", "cpu", "objects", "pages", "asked")
    columns = np.array(rows, np.int64).reshape(-1, len(names)).T
    for name, column in zip(names, columns, strict=True):
        steps[name] = column
    return steps


def _free(snapshot: Snapshot, zone: ZoneInfoZone, lag: int) -> tuple[tuple[int, int], ...]:
    """A zone's free pages, and how far off, by every file of a snapshot that names them."""
    counter = (zone.free, lag)
    if snapshot.buddyinfo is None:
        return (counter,)
    name = (zone.node, zone.name)
    same = [row for row in snapshot.buddyinfo.zones if (row.node, row.zone) == name]
    return (counter, *((row.free_pages, 0) for row in same))


def _free_reserved(snapshot: Snapshot, node: int, zone: str) -> int:
    """Free pages on a zone's HIGHATOMIC lists, -1 if the snapshot does not tell."""
    if snapshot.pagetypeinfo is None:
        return -1
    free = -1
    for row in snapshot.pagetypeinfo.free_lists:
        if (row.node, row.zone, row.migratetype) == (node, zone, "HighAtomic"):
            free = sum(count << order for order, count in enumerate(row.buddies))
    return free


def isolation_steps(trace: Trace, machine: Machine, moves: np.ndarray) -> np.ndarray:
    """Steps for free pages that left the buddy without an event of their own (S9.3, S9.7, T7).

    Compaction isolates pages as targets, and captures those that it was asked for: an allocation
    of such an order whose pages nothing took from the buddy before is a capture.

    Args:
        trace: the recording's events.
        machine: its zones.
        moves: from `recorded_moves`.
    """
    parts = []
    for name in _ISOLATIONS:
        table = trace.tables.get(name)
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
    captures = moves[_captures(moves, machine.pageblock_order)].copy()
    captures["pages"] = np.int32(1) << captures["order"].astype(np.int32)
    parts.append(captures)
    found = np.concatenate(parts)
    found["operation"] = rec.ISOLATED
    return found[np.argsort(found["row"], kind="stable")]


def _captures(moves: np.ndarray, pageblock_order: int) -> np.ndarray:
    """Numbers of the allocations of whole blocks whose first page was last returned, not taken."""
    operation = moves["operation"]
    whole = moves["order"] >= pageblock_order
    heads = np.unique(moves["pfn"][whole & (operation == rec.POP)])
    of_heads = np.flatnonzero(
        (operation >= rec.POP) & (operation <= rec.DRAIN) & np.isin(moves["pfn"], heads)
    )
    of_heads = of_heads[np.lexsort((of_heads, moves["pfn"][of_heads]))]
    pops = np.flatnonzero(whole[of_heads[1:]] & (operation[of_heads[1:]] == rec.POP)) + 1
    before, after = of_heads[pops - 1], of_heads[pops]
    same = moves["pfn"][before] == moves["pfn"][after]
    listed = (operation[before] == rec.REMOVE) | (operation[before] == rec.PUSH)
    listed &= moves["order"][before] == moves["order"][after]
    return after[same & ~listed]


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
