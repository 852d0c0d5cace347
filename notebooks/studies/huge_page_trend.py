"""Huge pages served run by run, posted and predicted."""

from __future__ import annotations

import numpy as np
import pandas as pd

from pagealloc_model.show.figures.faceted import (
    PREDICTION_COLOURS,
    Drawing,
    FigureFunction,
    Lane,
    PanelGrid,
    line_trace,
)

SIDES = (("base", "vanilla"), ("patch", "defrag_mode"))


@FigureFunction
def huge_page_trend(shares: pd.DataFrame, *, patch: str = "defrag_mode") -> Drawing:
    """One line a side over runs in a row: marks for what was posted, lines for the model.

    Args:
        shares: indexed by step; base, patch, posted_base, posted_patch, shares from 0 to 1.
        patch: what the model ran under where the post has defrag_mode.
    """
    grid = PanelGrid(
        [""],
        title="Huge pages served of those asked for",
        x_title="run",
        y_title="huge pages served (%)",
        y_axis={"range": [0, 105]},
    )
    runs = np.asarray(shares.index, float)
    for rank, (side, words) in enumerate(SIDES):
        colour = PREDICTION_COLOURS[rank]
        for column, label, measured in (
            (f"posted_{side}", f"posted, {words}", True),
            (side, f"model, {patch if side == 'patch' else words}", False),
        ):
            lane = Lane(label=label, table=shares, measured=measured, rank=rank, colour=colour)
            values = 100 * shares[column].to_numpy(float)
            grid.add(line_trace(lane, runs, values, column, colour) | {"showlegend": True}, 0)
    return grid.drawing()
