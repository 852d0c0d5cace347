"""What requests of each order asked for and got, as far as a replay can know."""

from __future__ import annotations

import pandas as pd

from pagealloc_model.show.figures.drawing import Drawing, FigureFunction
from pagealloc_model.show.figures.lanes import Tables, count_trace, lanes
from pagealloc_model.show.figures.panel_grid import PanelGrid, missing_words

RATES = ("succeeded", "failed", "stalled")


@FigureFunction
def outcomes(measured: Tables, predicted: Tables, order: int) -> Drawing:
    """Requests of one order: asked, succeeded, failed, stalled; NA values leave their reason.

    Args:
        measured: `outcomes` table or tables by label.
        predicted: the same from replays.
        order: of the requests; 9 is a transparent huge page on x86-64.
    """
    drawn = lanes(measured, predicted)
    grid = PanelGrid(
        [""],
        title=f"Outcome of order-{order} requests",
        x_title="",
        y_title="requests",
        x_axis={"type": "category"},
        y_axis={"rangemode": "tozero"},
    )
    absent = {}
    for lane in drawn:
        counts, reason = _counts(lane.table, order)
        if reason:
            absent[lane.label] = reason
        grid.add(count_trace(lane, counts, "outcomes"), 0)
    if absent:
        grid.write_below(missing_words(absent))
    return grid.drawing()


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
