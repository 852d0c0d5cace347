"""Marks on a map, all of a kind in one outline: a page draws one path, and no node for each mark.

Marks are polygons in the map's own coordinates. They are as large as points of `SIZE` pixels where
a panel has the size that it has on a wide page, and grow with the map where that is zoomed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pagealloc_model.show.figures.lanes import Trace

SIZE = 5
PANEL_SIZE = 350, 220
"""Pixels that a panel is wide and high on a wide page."""
PIXEL = 2 / SIZE
"""In units of half a mark's size."""

Point = tuple[float, float]
LINES: dict[str, tuple[tuple[Point, Point], ...]] = {
    "line-ne": (((-1, 1), (1, -1)),),
    "line-ns": (((0, -1), (0, 1)),),
    "cross-thin": (((-1, 0), (1, 0)), ((0, -1), (0, 1))),
    "x-thin": (((-1, -1), (1, 1)), ((-1, 1), (1, -1))),
}
"""Marks of lines a pixel wide: their ends, to the right and down, by half the mark's size."""
AREAS: dict[str, tuple[Point, ...]] = {
    "diamond": ((0, -1), (1, 0), (0, 1), (-1, 0)),
    "square": ((-1, -1), (1, -1), (1, 1), (-1, 1)),
    "triangle-down": ((-1, -1), (1, -1), (0, 1)),
}
"""Marks with something inside: their corners."""
GAP = (np.nan, np.nan)


@dataclass(frozen=True, kw_only=True)
class MarkSize:
    """Half a mark's size on a map, in the units of the map's axes."""

    right: float
    down: float

    @staticmethod
    def on(x_range: Sequence[float], y_range: Sequence[float]) -> MarkSize:
        """Return the size on a map whose axes reach so far."""
        (wide, high), (left, right), (top, bottom) = PANEL_SIZE, x_range, y_range
        return MarkSize(
            right=SIZE / 2 * abs(right - left) / wide, down=SIZE / 2 * abs(bottom - top) / high
        )


def marks_trace(
    x: np.ndarray, y: np.ndarray, symbol: str, size: MarkSize, colour: str, *, wider: float = 0
) -> Trace:
    """Return one outline with a mark at every place.

    Args:
        x: of the marks' middles, shape (marks,).
        y: the same, downwards.
        symbol: one of `LINES` or `AREAS`.
        size: of each.
        colour: of all.
        wider: by so many pixels on each side, for an edge below marks that have something inside.
    """
    points = outline(symbol, wider)
    return {
        "type": "scatter",
        "mode": "none",
        "fill": "toself",
        "fillcolor": colour,
        "x": (x[:, None] + size.right * points[:, 0]).ravel(),
        "y": (y[:, None] + size.down * points[:, 1]).ravel(),
        "hoverinfo": "skip",
    }


def outline(symbol: str, wider: float = 0) -> np.ndarray:
    """Return the corners of a mark around its middle, shape (points, 2), gaps behind its parts."""
    if symbol in AREAS:
        corners = np.array(AREAS[symbol]) * (1 + wider * PIXEL)
        return np.array([*corners, corners[0], GAP])
    parts: list[Point] = []
    for ends in LINES[symbol]:
        begin, end = np.array(ends, float)
        along = (end - begin) / np.hypot(*(end - begin))
        side = PIXEL / 2 * np.array([-along[1], along[0]])
        corners = [begin + side, end + side, end - side, begin - side, begin + side]
        parts += [*map(tuple, corners), GAP]
    return np.array(parts)
