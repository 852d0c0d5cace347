"""The model's own reclaim and compaction beside the kernel's, counter by counter (T11, T12.4)."""

from __future__ import annotations

import pandas as pd

from pagealloc_model.base.errors import UsageError
from pagealloc_model.measured.measured import Measured
from pagealloc_model.predicted.replay import Replay


def pressure_counters(replay: Replay, measured: Measured) -> pd.DataFrame:
    """Change of each counter that both sides have, between the recording's vmstat snapshots.

    Args:
        replay: an elastic one.
        measured: of a recording that covers the same time, usually the same one.

    Returns:
        Columns name, measured, predicted; Int64.

    Raises:
        UsageError: a literal replay, or fewer than two snapshots with vmstat in its time.
    """
    if replay.assumptions.reclaim != "elastic":
        raise UsageError("a literal replay has no reclaim of its own; use reclaim='elastic'")
    predicted = replay.vmstat.pivot(index="time_ns", columns="name", values="value")
    recorded = measured.vmstat.pivot(index="time_ns", columns="name", values="value")
    inside = recorded.index[recorded.index.isin(predicted.index)]
    if len(inside) < 2:
        raise UsageError(f"{replay.name}: fewer than two snapshots of vmstat to compare with")
    names = [name for name in replay.vmstat["name"].unique() if name in recorded.columns]
    first, last = inside[0], inside[-1]
    return pd.DataFrame(
        {
            "name": names,
            "measured": (recorded.loc[last, names] - recorded.loc[first, names]).to_numpy(),
            "predicted": (predicted.loc[last, names] - predicted.loc[first, names]).to_numpy(),
        }
    ).astype({"measured": "Int64", "predicted": "Int64"})
