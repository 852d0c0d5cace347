"""What requests of each order asked for and got, as far as a replay can know."""

from __future__ import annotations

import pandas as pd
import plotly.graph_objects as go

from pagealloc_model.figures.panels import Tables, count_trace, lanes, note_missing, panel_grid

RATES = ("succeeded", "failed", "stalled")


def outcomes(measured: Tables, predicted: Tables, order: int) -> go.Figure:
    """Requests of one order: asked, succeeded, failed, stalled; NA values leave their reason.

    Args:
        measured: `outcomes` table or tables by label.
        predicted: the same from replays.
        order: of the requests; 9 is a transparent huge page on x86-64.
    """
    drawn = lanes(measured, predicted)
    figure = panel_grid(
        [""],
        title=f"Outcome of order-{order} requests",
        x_title="",
        y_title="requests",
        columns=1,
    )
    absent = {}
    for lane in drawn:
        counts, reason = _counts(lane.table, order)
        if reason:
            absent[lane.label] = reason
        figure.add_trace(count_trace(lane, counts, "outcomes"))
    note_missing(figure, 0, absent)
    figure.update_xaxes(type="category")
    figure.update_yaxes(rangemode="tozero")
    return figure


def _counts(table: pd.DataFrame, order: int) -> tuple[pd.Series, str]:
    """Known counts of one order, and why others are NA ("" if none is)."""
    names = ["asked", *RATES]
    rows = table[table["order"] == order] if len(table) else table
    if rows.empty:
        return pd.Series(dtype=float), "not available: no such request"
    known = [name for name in names if rows[name].notna().all()]
    reason = ""
    if len(known) < len(names) and "reason" in rows:
        missing = ", ".join(name for name in names if name not in known)
        reasons = [str(each) for each in rows["reason"].dropna().unique() if str(each)]
        reason = f"{missing} not available: {'; '.join(reasons)}"
    return rows[known].astype(float).sum(), reason
