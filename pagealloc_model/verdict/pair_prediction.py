"""What a policy changed between two recordings, beside its prediction from the first of them.

Two recordings are two runs: they differ without any policy. A quantity says something about the
policy only where the two differ by more than twice the spread of runs of one policy. With one
recording of each, that spread is taken from parts of them: the standard deviation over the thirds
of each, and, where there are two more recordings that differ in a policy without a bearing on it,
between those. Thirds of a run share its start, so that runs may well differ by more. Of what only
grows, thirds say nothing: without further recordings it has no spread, and counts if it differs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from pagealloc_model.base.errors import RecordingError
from pagealloc_model.measured.measured import measure
from pagealloc_model.predicted.replay import Replay, replay
from pagealloc_model.recording.recorded_machine import recorded_machine
from pagealloc_model.verdict.quantities import ADDED, FILL, PART_UNITS, Window, part_quantities
from pagealloc_model.verdict.statistics import NO_EFFECT

if TYPE_CHECKING:
    from pagealloc_model.policy.policy import Assumptions, Policy
    from pagealloc_model.recording.recording import Recording

EXTFRAG = "kmem:mm_page_alloc_extfrag"
PARTS = 3


def pair_prediction(
    off: Recording,
    on: Recording,
    policy: Policy,
    assumptions: Assumptions,
    alike: tuple[Recording, ...] = (),
) -> pd.DataFrame:
    """Every quantity: recorded off and on, their spread, and "on" as predicted from "off".

    Args:
        off: a recording without the policy; all that the prediction sees.
        on: one with it.
        policy: what differs.
        assumptions: of the replay.
        alike: further recordings of the workload that differ in nothing of interest.

    Returns:
        Columns quantity, unit, off, on, spread, verdict ("counts" or "no measurable effect"),
        predicted, of "on"; null, of the model that says nothing changes; unchanged, what the model
        has for "off" itself. A time to fill of infinity is never.

    Raises:
        RecordingError: the two are of different machines, or fallbacks were not recorded.
        PageallocError: a recording cannot be read or replayed.
    """
    check_same_machine(off, on)
    sides = [_recorded(recording) for recording in (off, on)]
    spreads = [side.iloc[1:].drop(columns=[ADDED, FILL]).std(ddof=1) for side in sides]
    if len(alike) > 1:
        wholes = pd.DataFrame([_recorded(recording).iloc[0] for recording in alike])
        spreads.append(wholes.drop(columns=FILL).std(ddof=1))
    spread = pd.DataFrame(spreads).max().reindex(list(PART_UNITS))
    span = off.trace.demand_span_ns
    same, changed = (
        _predicted(replay(off, each, assumptions=assumptions), span) for each in (None, policy)
    )
    recorded_off, recorded_on = (side.iloc[0] for side in sides)
    differ = (recorded_on - recorded_off).abs() > 2 * spread.fillna(0.0)
    differ[FILL] = np.isinf(recorded_off[FILL]) != np.isinf(recorded_on[FILL])
    names = list(PART_UNITS)
    return pd.DataFrame(
        {
            "quantity": names,
            "unit": list(PART_UNITS.values()),
            "off": recorded_off[names].to_numpy(),
            "on": recorded_on[names].to_numpy(),
            "spread": spread[names].to_numpy(),
            "verdict": np.where(differ[names], "counts", NO_EFFECT),
            "predicted": changed[names].to_numpy(),
            "null": recorded_off[names].to_numpy(),
            "unchanged": same[names].to_numpy(),
        }
    )


def check_same_machine(off: Recording, on: Recording) -> None:
    """Refuse two recordings of different machines.

    Raises:
        RecordingError: they differ in CPUs or memory.
    """
    machines = [recorded_machine(recording) for recording in (off, on)]
    memory = [[(zone.name, zone.present) for zone in each.zones] for each in machines]
    if machines[0].nr_cpus != machines[1].nr_cpus or memory[0] != memory[1]:
        raise RecordingError(
            on.name,
            f"is of another machine than {off.name}, so the two are no pair",
            todo="give two recordings of one machine and workload",
        )


def _recorded(recording: Recording) -> pd.DataFrame:
    """Quantities of the whole recording, in the first row, and of each of its parts."""
    measured = measure(recording)
    first, last = recording.trace.demand_span_ns
    edges = np.linspace(first, last, PARTS + 1).astype(np.int64)
    windows = [(first, last), *zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True)]
    block_order = next(
        each.pagetypeinfo.pageblock_order for each in recording.snapshots if each.pagetypeinfo
    )
    if EXTFRAG not in recording.trace.tables:
        raise RecordingError(
            recording.name,
            f"a pair's fallbacks are compared by {EXTFRAG}, which was not recorded",
            todo="give a recording with it",
        )
    times = np.asarray(recording.trace.tables[EXTFRAG]["time_ns"], np.int64)
    rows = []
    for low, high in windows:
        events = int(((times >= low) & (times <= high)).sum())
        rows.append(part_quantities(measured, (low, high), events, block_order))
    return pd.DataFrame(rows)


def _predicted(predicted: Replay, window: Window) -> pd.Series:
    events = int(predicted.fallbacks["count"].sum())
    order = predicted.machine.pageblock_order
    return pd.Series(part_quantities(predicted, window, events, order))
