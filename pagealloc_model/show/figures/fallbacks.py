"""Fallbacks between migratetypes (S6)."""

from __future__ import annotations

import pandas as pd

from pagealloc_model.show.figures.drawing import Drawing, FigureFunction
from pagealloc_model.show.figures.lanes import Tables, count_trace, lanes
from pagealloc_model.show.figures.panel_grid import (
    FOOTER_HEIGHT,
    HEADER_HEIGHT,
    PanelGrid,
    missing_words,
)
from pagealloc_model.show.figures.small_multiples import reason_of

CATEGORY_HEIGHT = 26
MARGIN = {"l": 70, "r": 20, "t": HEADER_HEIGHT, "b": FOOTER_HEIGHT}
ROOM_FOR_WORDS = 0.3
"""Share of the width left of the bars, for "Unmovable claims a part-used block of Movable"; a
margin would be lost where figures are stacked."""

NOTHING_HEIGHT = 24
KIND_WORDS = {
    "claim_block": "claims a whole block of",
    "claim": "claims a part-used block of",
    "steal": "steals from",
}


@FigureFunction
def fallbacks(measured: Tables, predicted: Tables) -> Drawing:
    """Allocations served from another migratetype, by pair of types and by kind (S6.2 to S6.4).

    The counts' axis is logarithmic where there are many: some kinds are thousands of times as
    frequent as others. Where none happened, one line says so.

    Args:
        measured: `fallbacks` table or tables by label.
        predicted: the same from replays.
    """
    drawn = lanes(measured, predicted)
    counts = {lane.key: _counts(lane.table) for lane in drawn}
    names = sorted(set().union(*(series.index for series in counts.values())), reverse=True)
    grid = PanelGrid(
        [""],
        title="Fallbacks by kind",
        x_title="events",
        y_title="",
        y_axis={"showticklabels": bool(names)},
    )
    grid.set_axis("x", 0, {"domain": [ROOM_FOR_WORDS, 1]})
    grid.count_along("x", 0, max((each.max() for each in counts.values() if len(each)), default=0))
    absent = {}
    for lane in drawn:
        if lane.table.empty and lane.table.attrs.get("reason"):
            absent[lane.label] = reason_of(lane)
            continue
        values = counts[lane.key].reindex(names, fill_value=0.0)
        grid.add(count_trace(lane, values, "fallbacks", horizontal=True), 0)
    if not names:
        return _nothing(grid, missing_words(absent) or "none happened")
    grid.note_missing(0, absent)
    height = HEADER_HEIGHT + FOOTER_HEIGHT + CATEGORY_HEIGHT * max(len(names), 3)
    return grid.drawing(height=height, margin=MARGIN, barmode="group", bargap=0.35)


def _nothing(grid: PanelGrid, words: str) -> Drawing:
    """The title and a line instead of empty axes."""
    for letter in "xy":
        grid.set_axis(letter, 0, {"visible": False, "fixedrange": True})
    grid.note_missing(0, {"fallbacks": words})
    return grid.drawing(height=HEADER_HEIGHT + FOOTER_HEIGHT + NOTHING_HEIGHT, margin=MARGIN)


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
