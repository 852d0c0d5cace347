"""Recordings with a policy off and on, and what each predicts for the other policy (T12.4)."""

from __future__ import annotations

from typing import Any

import pandas as pd

import pagealloc_model as pm
from pagealloc_model.measured.measured import Measured
from pagealloc_model.predicted.elastic_values import elastic_values
from pagealloc_model.predicted.prepared import forget_prepared

SPREADS = 2
"""A counter is measurable where the policies differ by more than this many times the spread."""

ORDER = (
    "off",
    "same",
    "on",
    "measurable",
    "from_off_off",
    "from_off_on",
    "from_on_off",
    "from_on_on",
    "verdict",
)


def counters_of_pair(
    off: pm.Recording, on: pm.Recording, same: pm.Recording, field: str
) -> pd.DataFrame:
    """Counters of both recordings, and as predicted from each under both policies.

    Reclaim and compaction cost what they did in the recording.
    """
    columns: dict[str, pd.Series] = {}
    for word, recording in (("off", off), ("on", on)):
        measured, own = recording.measure(), recorded_costs(recording)
        for side in (False, True):
            policy = pm.Policy.from_settings({field: side})
            predicted = pm.replay(recording, policy, assumptions=own)
            counts = pressure_counters(predicted, measured).set_index("name")
            columns[word] = counts["measured"]
            columns[f"from_{word}_{'on' if side else 'off'}"] = counts["predicted"]
        forget_prepared(recording)
    columns["same"] = _changes(same.measure()).reindex(columns["off"].index)
    table = pd.DataFrame(columns).astype("Int64")
    spread = (table["off"] - table["same"]).abs()
    table["measurable"] = (table["off"] - table["on"]).abs() > SPREADS * spread
    table["verdict"] = [_verdict(row) for row in table.itertuples()]
    return table[[*ORDER]].reset_index()


def recorded_costs(recording: pm.Recording) -> pm.Assumptions:
    """Elastic reclaim at the recording's own costs, pages in use as at its start."""
    return elastic_values(recording).costs_alone


def _verdict(row: Any) -> str:
    if pd.isna(row.measurable):
        return "not recorded"
    predicted = _change(row.from_off_off, row.from_off_on)
    if not row.measurable:
        return f"no measurable effect, predicted {predicted}"
    return f"measured {_change(row.off, row.on)}, predicted {predicted}"


def _change(off: int, on: int) -> str:
    """Relative to the first, or what is added to none."""
    return f"{(on - off) / off:+,.0%}" if off else f"{on - off:+,}"


def _changes(measured: Measured) -> pd.Series:
    """Change of each counter between the first and the last snapshot."""
    values = measured.vmstat.sort_values("time_ns").groupby("name")["value"]
    return values.last() - values.first()


def pressure_counters(replay: pm.Replay, measured: Measured) -> pd.DataFrame:
    """Change of each counter that both sides have, between the recording's vmstat snapshots."""
    if replay.assumptions.reclaim != "elastic":
        raise pm.UsageError("a literal replay has no reclaim of its own; use reclaim='elastic'")
    predicted = replay.vmstat.pivot(index="time_ns", columns="name", values="value")
    recorded = measured.vmstat.pivot(index="time_ns", columns="name", values="value")
    inside = recorded.index[recorded.index.isin(predicted.index)]
    if len(inside) < 2:
        raise pm.UsageError(f"{replay.name}: fewer than two snapshots of vmstat to compare with")
    names = [name for name in replay.vmstat["name"].unique() if name in recorded.columns]
    first, last = inside[0], inside[-1]
    return pd.DataFrame(
        {
            "name": names,
            "measured": (recorded.loc[last, names] - recorded.loc[first, names]).to_numpy(),
            "predicted": (predicted.loc[last, names] - predicted.loc[first, names]).to_numpy(),
        }
    ).astype({"measured": "Int64", "predicted": "Int64"})
