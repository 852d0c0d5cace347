"""The score by which compaction begins by itself, over time, with the reserve and without it."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd

from pagealloc_model.show.figures.faceted import INK, Drawing, FigureFunction, PanelGrid

COUNTED, NOT_COUNTED = "#0072B2", "#D55E00"
LINES = (
    ("score", "score: free reserved blocks count as whole", COUNTED, "solid"),
    ("score_without_reserve", "the same with the reserve left out", NOT_COUNTED, "dash"),
)


@FigureFunction
def score_over_time(tables: Mapping[str, pd.DataFrame], *, threshold: int = 90) -> Drawing:
    """A panel a host: the score as the kernel takes it, the same without the reserve, the mark.

    Args:
        tables: by title; columns second, score, score_without_reserve (percent).
        threshold: above it proactive compaction begins (S9.6); 90 at proactiveness 20.
    """
    grid = PanelGrid(
        [*tables],
        title=f"Proactive compaction begins above {threshold}: does the reserve hold it back?",
        x_title="s",
        y_title="free memory in small pieces (%)",
        columns=2,
        y_axis={"range": [0, 105]},
    )
    for panel, table in enumerate(tables.values()):
        seconds = table["second"].to_numpy(float)
        mark = {"color": INK, "width": 1, "dash": "dot"}
        edges = [float(seconds.min()), float(seconds.max())]
        grid.add(
            {
                "type": "scatter",
                "mode": "lines",
                "x": edges,
                "y": [threshold, threshold],
                "line": mark,
                "name": f"begins above {threshold}",
                "showlegend": panel == 0,
                "legendgroup": "threshold",
            },
            panel,
        )
        for column, words, colour, dash in LINES:
            grid.add(
                {
                    "type": "scatter",
                    "mode": "lines",
                    "x": seconds,
                    "y": table[column].to_numpy(float),
                    "line": {"color": colour, "width": 2, "dash": dash},
                    "name": words,
                    "legendgroup": column,
                    "showlegend": panel == 0,
                },
                panel,
            )
    return grid.drawing()
