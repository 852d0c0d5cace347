"""A map of every pageblock: hue by migratetype, dark where used, light where free."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from pagealloc_model.figures.lanes import Trace
from pagealloc_model.figures.palette import INK, MIGRATETYPES, migratetype_colour
from pagealloc_model.figures.panel_grid import FOOTER_HEIGHT, HEADER_HEIGHT, PanelGrid

LEVELS = 5
"""Shades of a type, from all free to none free."""

PANEL_HEIGHT = 270
MARGIN = {"l": 70, "r": 150, "t": HEADER_HEIGHT, "b": FOOTER_HEIGHT}
CHANGE_SCALE = [[0.0, "#7F3B08"], [0.5, "#F7F7F7"], [1.0, "#2D004B"]]
"""Brown for fewer free pages, violet for more; told apart by all common kinds of sight."""

PAGE_KIB = 4


def pageblock_map(maps: Mapping[str, pd.DataFrame], difference: tuple[str, str]) -> go.Figure:
    """One panel per map, and one with the difference between two of them.

    Args:
        maps: `pageblock_map` tables of one machine, by label.
        difference: labels; the last panel shows the second minus the first.
    """
    labels = list(maps)
    first, second = difference
    titles = [*labels, f"difference: {second} minus {first}"]
    grid = PanelGrid(
        titles,
        title="Pageblocks by type and occupancy, before and at the end",
        x_title="MiB from the start of the line",
        y_title="physical address (GiB)",
        columns=2,
        x_axis={"showgrid": False},
        y_axis={"autorange": "reversed", "showgrid": False},
    )
    seen = {name for table in maps.values() for name in table["migratetype"].unique()}
    shown = [name for name in MIGRATETYPES if name in seen]
    for panel, label in enumerate(labels):
        grid.add(_type_trace(maps[label], label, shown, in_legend=panel == 0), panel)
    before, after = maps[first], maps[second]
    grid.add(_change_trace(before, after), len(labels))
    grid.add(_type_changes(before, after), len(labels))
    rows = -(-len(titles) // 2)
    height = HEADER_HEIGHT + FOOTER_HEIGHT + PANEL_HEIGHT * rows
    return grid.figure(height=height, margin=MARGIN, showlegend=False)


def _type_trace(table: pd.DataFrame, label: str, shown: list[str], *, in_legend: bool) -> Trace:
    used = 1 - (table["free_pages"] + table["pcp_pages"]) / table["pages"]
    level = np.minimum((used * LEVELS).astype(int), LEVELS - 1)
    kind = table["migratetype"].map({name: index for index, name in enumerate(shown)})
    lines = _Lines(table)
    trace = lines.heatmap(kind * LEVELS + level, [table["free_pages"], table["pcp_pages"]])
    steps = len(shown) * LEVELS
    return trace | {
        "text": lines.arranged(table["migratetype"].to_numpy(str), ""),
        "meta": f"map/{label}",
        "name": label,
        "zmin": -0.5,
        "zmax": steps - 0.5,
        "colorscale": _type_scale(shown),
        "showscale": in_legend,
        "colorbar": _type_bar(shown),
        "hovertemplate": "%{text}, %{customdata[0]} pages free, %{customdata[1]} on per-CPU lists"
        "<br>%{y:.3f} GiB + %{x} MiB<extra></extra>",
    }


def _change_trace(before: pd.DataFrame, after: pd.DataFrame) -> Trace:
    change = (after["free_pages"] - before["free_pages"]) / after["pages"]
    lines = _Lines(after)
    return lines.heatmap(change, [after["free_pages"] - before["free_pages"]]) | {
        "meta": "map/change",
        "name": "change",
        "zmin": -1.0,
        "zmax": 1.0,
        "colorscale": CHANGE_SCALE,
        "colorbar": {
            "title": {"text": "more free (share of block)", "side": "right", "font": {"size": 11}},
            "y": 0.2,
            "len": 0.4,
            "thickness": 12,
        },
        "hovertemplate": "%{customdata[0]:+d} pages free<br>%{y:.3f} GiB + %{x} MiB<extra></extra>",
    }


def _type_changes(before: pd.DataFrame, after: pd.DataFrame) -> Trace:
    """Marks on the blocks whose type differs."""
    lines = _Lines(after)
    changed = (before["migratetype"] != after["migratetype"]).to_numpy()
    pairs = before["migratetype"][changed] + " / " + after["migratetype"][changed]
    return {
        "type": "scatter",
        "mode": "markers",
        "x": lines.x[lines.column[changed]],
        "y": lines.y[lines.row[changed]],
        "text": list(pairs),
        "marker": {"symbol": "x-thin", "size": 6, "line": {"width": 1, "color": INK}},
        "meta": "map/types",
        "name": "another type",
        "hovertemplate": "%{text}<extra></extra>",
    }


class _Lines:
    """Where each block lies: lines of equal length, by address; holes are left empty."""

    def __init__(self, table: pd.DataFrame) -> None:
        pages = int(table["pages"].iloc[0])
        block = table["pfn"].to_numpy() // pages
        length = 1 << max(4, round(np.log2(max(2 * len(table), 1)) / 2))
        lines, self.row = np.unique(block // length, return_inverse=True)
        self.column = block % length
        mib = pages * PAGE_KIB / 1024
        self.x = np.arange(length) * mib
        self.y = lines * length * mib / 1024

    def arranged(self, values: Any, empty: Any) -> np.ndarray:
        """Values by line and column."""
        values = np.asarray(values)
        kind = values.dtype if values.dtype.kind == "U" else float
        grid = np.full((len(self.y), len(self.x)), empty, kind)
        grid[self.row, self.column] = values
        return grid

    def heatmap(self, values: Any, told: list[Any]) -> Trace:
        """A trace with a cell per block, and numbers to tell about each."""
        return {
            "type": "heatmap",
            "x": self.x,
            "y": self.y,
            "z": self.arranged(values, np.nan),
            "customdata": np.stack([self.arranged(each, np.nan) for each in told], axis=-1),
            "hoverongaps": False,
        }


def _type_scale(shown: list[str]) -> list[list[Any]]:
    """Steps of colour: the shades of each type."""
    colours = [shade(name, level) for name in shown for level in range(LEVELS)]
    steps = len(colours)
    return [
        [edge, colour]
        for index, colour in enumerate(colours)
        for edge in (index / steps, (index + 1) / steps)
    ]


def _type_bar(shown: list[str]) -> dict[str, Any]:
    return {
        "title": {"text": "light: free, dark: used", "side": "right", "font": {"size": 11}},
        "tickvals": [LEVELS * index + (LEVELS - 1) / 2 for index in range(len(shown))],
        "ticktext": shown,
        "y": 0.75,
        "len": 0.5,
        "thickness": 12,
    }


def shade(migratetype: str, level: int) -> str:
    """A type's colour, mixed with white for blocks that are largely free.

    Args:
        migratetype: as /proc/pagetypeinfo spells it.
        level: 0 for free to LEVELS - 1 for used.
    """
    colour = migratetype_colour(migratetype)
    weight = 0.15 + 0.85 * level / (LEVELS - 1)
    parts = [int(colour[at : at + 2], 16) for at in (1, 3, 5)]
    return "#" + "".join(f"{round(255 + (part - 255) * weight):02X}" for part in parts)
