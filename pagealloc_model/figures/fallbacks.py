"""Fallbacks between migratetypes (S6)."""

from __future__ import annotations

import pandas as pd
import plotly.graph_objects as go

from pagealloc_model.figures.panels import Tables, count_trace, lanes, note_missing, panel_grid
from pagealloc_model.figures.small_multiples import reason_of

KIND_WORDS = {
    "claim_block": "claims a whole block of",
    "claim": "claims a part-used block of",
    "steal": "steals from",
}


def fallbacks(measured: Tables, predicted: Tables) -> go.Figure:
    """Allocations served from another migratetype, by pair of types and by kind (S6.2 to S6.4).

    Args:
        measured: `fallbacks` table or tables by label.
        predicted: the same from replays.
    """
    drawn = lanes(measured, predicted)
    counts = {lane.key: _counts(lane.table) for lane in drawn}
    names = sorted(set().union(*(series.index for series in counts.values())), reverse=True)
    figure = panel_grid([""], title="Fallbacks by kind", x_title="events", y_title="", columns=1)
    absent = {}
    for lane in drawn:
        if lane.table.empty and lane.table.attrs.get("reason"):
            absent[lane.label] = reason_of(lane)
            continue
        values = counts[lane.key].reindex(names, fill_value=0.0)
        figure.add_trace(count_trace(lane, values, "fallbacks", horizontal=True))
    if not names:
        absent = absent or {"all": "none happened"}
    note_missing(figure, 0, absent)
    figure.update_xaxes(rangemode="tozero")
    figure.update_yaxes(showticklabels=bool(names))
    figure.update_layout(
        height=190 + 26 * max(len(names), 3), barmode="group", margin={"l": 300}, bargap=0.35
    )
    return figure


def _counts(table: pd.DataFrame) -> pd.Series:
    """Events by "Unmovable steals from Movable"."""
    if table.empty:
        return pd.Series(dtype=float)
    kinds = table["kind"].map(lambda kind: KIND_WORDS.get(kind, str(kind)))
    names = (
        table["alloc_migratetype"].astype(str)
        + " "
        + kinds
        + " "
        + table["fallback_migratetype"].astype(str)
    )
    return table["count"].astype(float).groupby(names).sum()
