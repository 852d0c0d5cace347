"""What remains of each error when the recording's own truth is imposed, as bars."""

from __future__ import annotations

import pandas as pd
import plotly.graph_objects as go

from pagealloc_model.show.figures.palette import INK, PREDICTION_COLOURS
from pagealloc_model.show.figures.panel_grid import PanelGrid


def error_budget(errors: pd.DataFrame, recording: str) -> go.Figure:
    """Return a figure with a panel for each metric and scope, and a bar for each run.

    Bars of imposed runs are hatched and named with a star: they are no predictions. Errors stand
    without sign.

    Args:
        errors: metric, scope, run, imposed, error: of `verdict.budget`.
        recording: its name.
    """
    rows = list(errors.groupby(["metric", "scope"], sort=False))
    grid = PanelGrid(
        [f"{metric}, {scope}" for (metric, scope), _ in rows],
        title=f"Error budget of {recording}: runs with * (hatched) are imposed, no predictions",
        x_title="error, absolute",
        y_title="",
        x_axis={"rangemode": "tozero"},
        y_axis={"type": "category", "autorange": "reversed", "automargin": True},
    )
    for panel, (_, mine) in enumerate(rows):
        shown = mine[mine["error"].notna()]
        if not len(shown):
            grid.note_missing(panel, {"error": "not known"})
            continue
        names = [
            f"{run}*" if is_imposed else run
            for run, is_imposed in zip(shown["run"], shown["imposed"], strict=True)
        ]
        grid.add(
            {
                "type": "bar",
                "orientation": "h",
                "y": names,
                "x": list(shown["error"].astype(float).abs()),
                "marker": {
                    "color": PREDICTION_COLOURS[0],
                    "line": {"color": INK, "width": 1},
                    "pattern": {"shape": ["/" if each else "" for each in shown["imposed"]]},
                },
                "name": "error",
                "showlegend": False,
                "meta": "error",
            },
            panel,
        )
    return grid.figure()
