"""What stands beside a trace's moves when choices are judged: snapshots, reclaim, notes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from pagealloc_model.allocator.choices import recorded_steps as rec
from pagealloc_model.allocator.choices import true_state as true
from pagealloc_model.allocator.core import layout as at
from pagealloc_model.predicted.demand.recorded_reclaim import kswapd_runs

if TYPE_CHECKING:
    from pagealloc_model.allocator.core.state import State
    from pagealloc_model.recording.machine import Machine
    from pagealloc_model.recording.recording import Bundle
    from pagealloc_model.recording.trace.columns import Trace

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
    zones[:, [true.ZONE_NOTE_BELOW_HIGH, true.ZONE_NOTE_RECLAIM_ACTIVE]] = 0
    return np.concatenate([st, notes.ravel(), zones.ravel(), np.zeros(true.REPAIRS, np.int64)])


def _spread_worlds(machine: Machine, st: np.ndarray, notes: np.ndarray) -> None:
    """Nothing is known at first: in `st` the words make lists overflow early, in `notes` late.

    The limits of a machine that no snapshot describes stay unknown.
    """
    for zone in range(len(machine.zones)):
        region = at.ZONES + zone * at.ZONE_STRIDE
        st[region + at.ZONE_BELOW_HIGH] = st[at.RULE_BELOW_HIGH_TESTED]
        st[region + at.ZONE_RECLAIM_ACTIVE] = 1
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


def snapshot_steps(recording: Bundle, machine: Machine) -> np.ndarray:
    """Steps for every pageset and zone of the snapshots taken while events were recorded."""
    trace = recording.trace
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
            rows.append((begun, rec.FREE_READ, number, 0, 0, zone.free))
            for pageset in zone.pagesets:
                if pageset.cpu < machine.nr_cpus:
                    words = (number, pageset.cpu, pageset.count, pageset.high)
                    rows.append((begun, rec.SNAPSHOT, *words))
                    rows.append((read, rec.SNAPSHOT_END, *words))
    steps = np.zeros(len(rows), rec.STEP)
    names = ("row", "operation", "zone", "cpu", "objects", "pages")
    columns = np.array(rows, np.int64).reshape(-1, len(names)).T
    for name, column in zip(names, columns, strict=True):
        steps[name] = column
    return steps


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
