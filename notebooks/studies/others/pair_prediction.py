"""Changes by a policy between two recordings, beside its prediction from the first of them.

Two recordings are two runs: they differ without any policy. A quantity says something about the
policy only where the two differ by more than twice the spread of runs of one policy. With one
recording of each, that spread is taken from parts of them: the standard deviation over the thirds
of each, and, where there are two more recordings that differ in a policy without a bearing on it,
between those. Thirds of a run share its start, so that runs may well differ by more. Of what only
grows, thirds say nothing: without further recordings it has no spread, and counts if it differs.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

import pagealloc_model as pm
from pagealloc_model.guests.experiment import check_same_machine
from pagealloc_model.measured.measured import Measured
from pagealloc_model.numbers.statistics import NO_EFFECT
from pagealloc_model.numbers.values import (
    TYPES,
    States,
    Window,
    Zones,
    blocks_from,
    counter_changes,
)
from pagealloc_model.numbers.vocabulary import ADDED, CHANGES, STATES, of_run
from pagealloc_model.recording.machine import Machine
from pagealloc_model.recording.recorded_machine import recorded_machine

NEVER = float("inf")
FILL = "time to fill"
PART_UNITS = {
    ADDED: "blocks",
    FILL: "s",
    "wholly free HighAtomic blocks": "blocks",
    "HighAtomic pages in partly used blocks": "pages",
    **{f"free {name} pages": "pages" for name in TYPES},
    "THP success": "share",
    "extfrag events": "per s",
}
"""Quantities of any part of a recording, with units."""
EXTFRAG = "kmem:mm_page_alloc_extfrag"
PARTS = 3


def pair_prediction(
    off: pm.Recording,
    on: pm.Recording,
    policy: pm.Policy,
    assumptions: pm.Assumptions,
    alike: tuple[pm.Recording, ...] = (),
) -> pd.DataFrame:
    """Every quantity: recorded off and on, their spread, and "on" as predicted from "off"."""
    check_same_machine(off, on)
    sides = [_recorded(recording) for recording in (off, on)]
    spreads = [side.iloc[1:].drop(columns=[ADDED, FILL]).std(ddof=1) for side in sides]
    if len(alike) > 1:
        wholes = pd.DataFrame([_recorded(recording).iloc[0] for recording in alike])
        spreads.append(wholes.drop(columns=FILL).std(ddof=1))
    spread = pd.DataFrame(spreads).max().reindex(list(PART_UNITS))
    span = off.trace.demand_span_ns
    same, changed = (
        _predicted(pm.replay(off, side, assumptions=assumptions), span) for side in (None, policy)
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


def _recorded(recording: pm.Recording) -> pd.DataFrame:
    """Quantities of the whole recording, in the first row, and of each of its parts."""
    measured = recording.measure()
    first, last = recording.trace.demand_span_ns
    edges = np.linspace(first, last, PARTS + 1).astype(np.int64)
    windows = [(first, last), *zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True)]
    machine = recorded_machine(recording)
    if EXTFRAG not in recording.trace.tables:
        raise pm.RecordingError(
            recording.name,
            f"a pair's fallbacks are compared by {EXTFRAG}, which was not recorded",
            todo="give a recording with it",
        )
    times = np.asarray(recording.trace.tables[EXTFRAG]["time_ns"], np.int64)
    rows = []
    for low, high in windows:
        events = int(((times >= low) & (times <= high)).sum())
        rows.append(part_quantities(measured, machine, (low, high), events))
    return pd.DataFrame(rows)


def _predicted(predicted: pm.Replay, window: Window) -> pd.Series:
    events = int(predicted.fallbacks["count"].sum())
    return pd.Series(part_quantities(predicted, predicted.machine, window, events))


def part_quantities(
    tables: Measured | pm.Replay, machine: Machine, window: Window, extfrag: int
) -> dict[str, float]:
    """The quantities of `PART_UNITS`."""
    low, high = window
    states = (
        States.of_replay(tables)
        if isinstance(tables, pm.Replay)
        else States.of_measured(tables, machine)
    )
    inside = states.within(window)
    reserve = inside.free[:, :, :, TYPES.index("HighAtomic")].sum(axis=1)
    last = reserve[~np.isnan(reserve.sum(axis=1))][-1]
    whole_pages = float(last[machine.pageblock_order :].sum())
    zones = Zones(states=inside, block_order=machine.pageblock_order, run=(states, window))
    numbers = of_run(STATES, zones) | of_run(CHANGES, counter_changes(tables.vmstat, window))
    numbers |= {
        FILL: time_to_fill(blocks_from(states, "HighAtomic", window), low),
        "wholly free HighAtomic blocks": whole_pages / (1 << machine.pageblock_order),
        "HighAtomic pages in partly used blocks": float(last.sum()) - whole_pages,
        "extfrag events": extfrag / ((high - low) / 1e9),
    }
    return {name: numbers[name] for name in PART_UNITS}


def time_to_fill(blocks: pd.Series, start_ns: int) -> float:
    """Seconds until the reserve has the most blocks that it gets; infinite if it never grows."""
    most = blocks.max()
    if most <= blocks.iloc[0]:
        return NEVER
    return float(blocks.index[blocks == most][0] - start_ns) / 1e9
