"""One figure for a mail or a talk: what a patch changes, and how right the model is there."""

from __future__ import annotations

import numpy as np
import pandas as pd

from pagealloc_model.show.figures.drawing import Drawing, FigureFunction
from pagealloc_model.show.figures.how_right import FEW as LEAST
from pagealloc_model.show.figures.how_right import (
    add_large_numbers,
    decades_axis,
    predicted_over_measured,
)
from pagealloc_model.show.figures.lanes import Trace
from pagealloc_model.show.figures.palette import INK
from pagealloc_model.show.figures.panel_grid import PanelGrid
from pagealloc_model.verdict.comparison import BELIEVED, WITHIN_ERROR

MOST_ROWS = 12
LARGEST = 10.0
"""Axes end at this factor, either way; what lies beyond stands at the edge."""

REACH = 1.05
"""Decades on either side of no change, a little more than `LARGEST`."""

TICKS = (0.1, 0.2, 0.5, 1, 2, 5, 10)
HEIGHTENED = 160
LEFT = 260
"""Pixels: more height than panels have by themselves, and room for names on the left."""

DOUBTFUL = (WITHIN_ERROR,)
FEW = 20
"""Of a base below this, a ratio says nothing."""


@FigureFunction
def talk_figure(
    rows: pd.DataFrame, errors: pd.DataFrame, snapshots: pd.DataFrame, title: str, caption: str
) -> Drawing:
    """Left, patch over base with the interval of each ratio; right, predicted over measured.

    Marks tell what colours would, so that it reads in grey. Rows that nothing recorded checks, that
    failed their null model, or whose base is below `FEW` are left out.

    Args:
        rows: judged rows of a comparison.
        errors: of a validation of the same recording.
        snapshots: of the same.
        title: one line.
        caption: what it is, on what, how far to be believed, how to make it again.
    """
    grid = PanelGrid(
        [
            f"patch over base (cut at {1 / LARGEST:g} and {LARGEST:g})",
            "the model on this recording (logarithmic axes)",
        ],
        title=title,
        x_title="",
        y_title="",
        columns=2,
    )
    shown = shown_rows(rows)
    grid.add(_no_change(shown), 0)
    for words, verdicts, mark in (
        ("changed by more than the model's error", BELIEVED, "circle"),
        ("within the model's error", DOUBTFUL, "circle-open"),
    ):
        mine = shown[shown["verdict"].isin(verdicts)]
        if len(mine):
            grid.add(_ratios(mine, words, mark), 0)
    if not len(shown):
        grid.note_missing(0, {"no row": "can be judged"})
    points = predicted_over_measured(errors, snapshots)
    large = points[points[["measured", "predicted"]].min(axis=1) >= LEAST]
    ends = add_large_numbers(grid, 1, large, set())
    grid.write_below(caption)
    drawing = grid.drawing()
    layout = drawing.layout
    layout["height"] += HEIGHTENED
    layout["margin"] |= {"l": LEFT}
    layout["xaxis"] |= {
        "type": "log",
        "range": [-REACH, REACH],
        "tickvals": list(TICKS),
        "ticktext": [f"{each:g}" for each in TICKS],
        "title": {"text": "patch / base, predicted"},
    }
    layout["yaxis"] |= {
        "type": "category",
        "categoryorder": "array",
        "categoryarray": list(shown["name"])[::-1],
        "range": [-0.5, max(len(shown), 1) - 0.5],
    }
    layout["xaxis2"] |= decades_axis(ends) | {"title": {"text": "measured"}}
    layout["yaxis2"] |= decades_axis(ends) | {"title": {"text": "predicted"}}
    return drawing


def shown_rows(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the judged rows that are drawn, believed ones first, with name, ratio, low and high.

    Args:
        rows: of a comparison.
    """
    judged = rows[rows["verdict"].isin([*BELIEVED, *DOUBTFUL]) & (rows["base"] >= FEW)]
    judged = judged[judged["patch"].notna()]
    is_doubtful = judged["verdict"].isin(DOUBTFUL)
    judged = pd.concat([judged[~is_doubtful], judged[is_doubtful]]).head(MOST_ROWS)
    base = judged["base"]
    scopes = ["" if scope == "all" else f", {scope}" for scope in judged["scope"]]
    return judged.assign(
        name=[f"{metric}{scope}" for metric, scope in zip(judged["metric"], scopes, strict=True)],
        ratio=(judged["patch"] / base).clip(1 / LARGEST, LARGEST),
        from_ratio=((base + judged["low"]) / base).clip(1 / LARGEST, LARGEST),
        to_ratio=((base + judged["high"]) / base).clip(1 / LARGEST, LARGEST),
    )


def _no_change(shown: pd.DataFrame) -> Trace:
    names = list(shown["name"]) or [""]
    return {
        "type": "scatter",
        "mode": "lines",
        "x": np.ones(len(names)),
        "y": names,
        "line": {"width": 1, "color": INK},
        "hoverinfo": "skip",
        "showlegend": False,
        "meta": "no change",
    }


def _ratios(rows: pd.DataFrame, words: str, mark: str) -> Trace:
    ratio = rows["ratio"].to_numpy(float)
    return {
        "type": "scatter",
        "mode": "markers",
        "x": ratio,
        "y": list(rows["name"]),
        "error_x": {
            "type": "data",
            "symmetric": False,
            "array": rows["to_ratio"].to_numpy(float) - ratio,
            "arrayminus": ratio - rows["from_ratio"].to_numpy(float),
            "color": INK,
            "thickness": 1,
            "width": 3,
        },
        "name": words,
        "cliponaxis": False,
        "marker": {"symbol": mark, "size": 9, "color": INK, "line": {"width": 1.5}},
        "meta": words,
    }
