"""Numbers of a whole run, measured and predicted, as experiments compare runs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from pagealloc_model.measured.measured import Measured, measure
from pagealloc_model.measured.memory_stalls import (
    CAUSES,
    SPANS,
    MemoryStalls,
    once,
    recorded_memory_stalls,
)
from pagealloc_model.numbers import vocabulary as voc
from pagealloc_model.numbers.progress import MISSED, at_progress, missed_instants, served_at
from pagealloc_model.numbers.values import (
    Holds,
    States,
    Window,
    Zones,
    counter_changes,
    was_recorded,
)
from pagealloc_model.policy.policy import Policy
from pagealloc_model.predicted.replay import Replay
from pagealloc_model.recording.machine import PMD_ORDER
from pagealloc_model.recording.recorded_machine import recorded_machine
from pagealloc_model.recording.trace import tracepoints as tp

if TYPE_CHECKING:
    from pagealloc_model.recording.recording import Recording


def memory_pressure(
    stalls: pd.DataFrame, work: pd.DataFrame, nr_cpus: int, beside: pd.DataFrame | None = None
) -> dict[str, float]:
    """Memory pressure in s as /proc/pressure/memory totals it, as far as stalls make it (S10.11).

    Every CPU counts as busy all the time. `beside` is when who stalls had others run on its CPU;
    None where nobody knows: then who is in a stall counts as running, so that "full" is "some".
    """
    columns = ["cpu", "begin_ns", "ns"]
    stalled = pd.concat([stalls[columns], work[columns]])
    signed = []
    for table in (stalled, stalled[:0] if beside is None else beside):
        cpu, begin, ns = (table[name].to_numpy(np.int64) for name in columns)
        _, (_, first, last) = once(cpu, begin, ns)
        signed.append((last - first) / (1e9 * nr_cpus))
    some, others = signed
    return {"some": float(some.sum()), "full": float(np.concatenate([some, -others]).sum())}


def recorded_pressure(recording: Recording) -> dict[str, float]:
    """Memory stall in s by "some" and "full" while events came, as the kernel totals it (T12.11).

    Between the last snapshot before the first event and the first after the last, as far as there
    are such. {} where fewer than two snapshots have it.
    """
    known = [(state.time_ns, state.pressure) for state in recording.snapshots if state.pressure]
    if len(known) < 2:
        return {}
    return {
        name: _while_events_came(recording, [(at, totals[name] / 1e6) for at, totals in known])
        for name in known[0][1]
        if all(name in totals for _, totals in known)
    }


def _while_events_came(recording: Recording, known: Sequence[tuple[int, float]]) -> float:
    """Growth of a total, of which the times and values are given; NaN for fewer than two."""
    if len(known) < 2:
        return float("nan")
    first, last = recording.trace.demand_span_ns
    before = [value for time_ns, value in known if time_ns <= first][-1:] or [known[0][1]]
    after = [value for time_ns, value in known if time_ns >= last][:1] or [known[-1][1]]
    return after[0] - before[0]


def recorded_numbers(recording: Recording) -> dict[str, float]:
    """The numbers of `RUN_UNITS` as they were measured; NaN where nothing recorded shows one.

    With medians and states under pressure (`BESIDE`), and the share of instants that the reader
    missed (`progress.MISSED`).

    Raises:
        RecordingError: a file of the recording cannot be read.
    """
    measured = measure(recording)
    window = recording.trace.demand_span_ns
    machine = recorded_machine(recording)
    states = States.of_measured(measured, machine)
    times = np.unique(measured.vmstat["time_ns"].to_numpy(np.int64))
    before = times[times <= window[0]].max(initial=np.iinfo(np.int64).min)
    after = times[times >= window[1]].min(initial=np.iinfo(np.int64).max)
    order = machine.pageblock_order
    numbers = _whole_numbers(measured, states, order, window, served_at(recording))
    recorded = recorded_memory_stalls(recording.trace)
    numbers |= _times(recorded, machine.nr_cpus, (window[1] - window[0]) / 1e9)
    there = {*recording.trace.tables, *(recording.meta.get("perf") or ())}
    unseen = [cause for cause in CAUSES if not there.intersection(SPANS[cause])]
    numbers |= dict.fromkeys([f"{cause} time" for cause in unseen], float("nan"))
    totals = recorded_pressure(recording)
    for scope, name in voc.PRESSURE.items():
        if unseen or (scope == "full" and recorded[2] is None):
            numbers[name] = float("nan")
        numbers[name] = totals.get(scope, numbers[name])
    numbers |= voc.of_run(voc.CHANGES, counter_changes(measured.vmstat, (before, after)))
    numbers[MISSED] = missed_instants(recording)
    missing = (row.run for row in voc.RUNS if row.event and not was_recorded(recording, row.event))
    return numbers | dict.fromkeys(missing, float("nan"))


BESIDE = MEDIAN, PRESSED = "median", "pressed"
"""What a state has beside its mean over places: `beside` names it."""
PRESSED_SHARE = 0.25
"""Share of places, those with the fewest free pages, over which `PRESSED` is the mean."""
BY_USES = ("pgactivate", "workingset_refault_file", "workingset_activate_file")
"""Counters of second uses of files' pages, which only filemap events show (S10.7)."""


def predicted_numbers(recording: Recording, predicted: Replay) -> dict[str, float]:
    """The numbers of `RUN_UNITS` as a replay has them, at the recording's snapshots.

    Those that a recording without filemap events cannot tell are NaN.
    """
    window = recording.trace.demand_span_ns
    instants = [snapshot.time_ns for snapshot in recording.dated_snapshots]
    states, order = States.of_replay(predicted), predicted.machine.counted_order
    read = states.at(np.array([*window, *instants]))
    numbers = _whole_numbers(predicted, states, order, window, served_at(recording), read)
    if tp.FILEMAP_ADD not in recording.trace.tables:
        numbers |= dict.fromkeys(BY_USES, float("nan"))
    return numbers


def beside(what: str, name: str) -> str:
    """Name of the median of a state, or of its mean under pressure."""
    return f"{what} {name}"


def _beside_means(zones: Zones) -> dict[str, float]:
    """Medians of states over their places, and means over those with the fewest free pages."""
    states = voc.states_of_run(zones)
    free = states["free pages"]
    least = np.argsort(free, kind="stable")[: math.ceil(PRESSED_SHARE * len(free))]
    numbers = {}
    for name, own in states.items():
        numbers[beside(MEDIAN, name)] = float(np.median(own)) if len(own) else np.nan
        numbers[beside(PRESSED, name)] = float(own[least].mean()) if len(own) else np.nan
    return numbers


def _times(lost: MemoryStalls, nr_cpus: int, run_s: float) -> dict[str, float]:
    """Run time, stall time by cause and memory pressure, s."""
    stalls, work, beside = lost
    pressure = memory_pressure(stalls, work, nr_cpus, beside)
    by_cause = stalls.groupby("cause")["ns"].sum() / 1e9
    times = {f"{cause} time": float(by_cause.get(cause, 0.0)) for cause in CAUSES}
    return {
        "run time": run_s,
        **times,
        **{voc.PRESSURE[name]: value for name, value in pressure.items()},
    }


def _whole_numbers(
    tables: Measured | Replay,
    states: States,
    block_order: int,
    window: Window,
    served_ns: np.ndarray,
    read: States | None = None,
) -> dict[str, float]:
    """The numbers of `RUN_UNITS`, and beside means of states what `BESIDE` names.

    All are over places of the load's progress (`at_progress`), by the states `read`,
    None for all. Blocks smaller than a huge page are counted as parts of one: kernels with both can
    be compared.
    """
    read = states if read is None else read
    if block_order < PMD_ORDER:
        parts = 2.0 ** (block_order - PMD_ORDER)
        states, read = (replace(each, blocks=each.blocks * parts) for each in (states, read))
        block_order = PMD_ORDER
    alike = at_progress(read, window, served_ns)
    zones = Zones(states=alike, block_order=block_order, run=(states, window))
    requests = {
        (row["class"], row["order"]): row for row in tables.folios.to_dict(orient="records")
    }
    return dict.fromkeys(voc.RUN_UNITS, float("nan")) | {
        **voc.of_run(voc.STATES, zones),
        **_beside_means(zones),
        **voc.of_run(voc.HOLDS, Holds.of_table(tables.transactions_full)),
        **voc.of_run(voc.FALLBACKS, tables.fallbacks),
        **voc.of_run(voc.CHANGES, counter_changes(tables.vmstat, window)),
        **voc.of_run(voc.REQUESTS, requests),
    }


def set_by_policy(policy: Policy) -> frozenset[str]:
    """Names of `RUN_UNITS` that follow from a policy alone: folios that nobody asks for."""
    mask = policy.huge_anon_orders
    off = [at for at in range(1, PMD_ORDER + 1) if mask is not None and not mask >> at & 1]
    names = {f"anon order {at} {what}" for at in off for what in ("asked", "failed", "served")}
    huge = {"THP success", *voc.HUGE} if PMD_ORDER in off else set()
    return frozenset(names | huge)
