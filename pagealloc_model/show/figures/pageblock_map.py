"""A map of every pageblock: hue and mark by migratetype, strong where used, faint where free."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import pandas as pd

from pagealloc_model.show.figures.faceted import (
    FOOTER_HEIGHT,
    INK,
    MIGRATETYPE_COLOURS,
    MIGRATETYPES,
    Drawing,
    FigureFunction,
    PanelGrid,
    Trace,
)

SIZE = 5
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

LEVELS = 5
"""Shades of a type, from all free to none free."""
TITLES_HEIGHT = 65
MARKS: dict[str, tuple[str, str]] = {
    "Unmovable": ("line-ne", "/"),
    "Reclaimable": ("cross-thin", "+"),
    "HighAtomic": ("diamond", "\u25c7"),
    "CMA": ("line-ns", "|"),
    "Isolate": ("square", "\u25a1"),
}
"""Symbol and word of the mark on blocks of a type: a grey print has no hues. Blocks without one are
Movable."""
MARK_EVERY = 4
"""In a run of blocks of one type the first is marked and each so many behind it: more would hide
the map."""
CHANGE_COLOURS = ("#7F3B08", "#F7F7F7", "#2D004B")
"""Brown for fewer free pages, violet for more; told apart by all common kinds of sight."""
PAGE_KIB = 4


@FigureFunction
def pageblock_map(
    maps: Mapping[str, pd.DataFrame],
    difference: tuple[str, str],
    labels: Sequence[str] | None = None,
) -> Drawing:
    """One panel per map, and one with the difference between two of them.

    Args:
        maps: `pageblock_map` tables of one machine, by label.
        difference: labels; the last panel shows the second minus the first.
        labels: maps to draw, None: all. The difference is drawn where its second map is.
    """
    labels = list(maps) if labels is None else list(labels)
    first, second = difference
    has_difference = second in labels
    titles = [*labels, *([f"difference: {second} minus {first}"] if has_difference else [])]
    lines = _lines(maps[first])
    is_first = labels[0] == next(iter(maps))
    rows = -(-len(titles) // 2)
    grid = PanelGrid(
        titles,
        "Pageblocks by type and occupancy, before and at the end" if is_first else "",
        "MiB from the start of the line",
        "physical address (GiB)",
        columns=2,
        x_axis={"showgrid": False, "range": lines.x_range},
        y_axis={"showgrid": False, "range": lines.y_range, **lines.addresses()},
    )
    seen = {name for table in maps.values() for name in table["migratetype"].unique()}
    shown = [name for name in MIGRATETYPES if name in seen]
    colours = [shade(name, level) for name in shown for level in range(LEVELS)]
    edges = (np.arange(len(colours) + 1) / len(colours)).tolist()
    steps = zip(colours, edges[:-1], edges[1:], strict=True)
    scale = [[edge, colour] for colour, *ends in steps for edge in ends]
    hover = "%{text}, %{customdata[0]} pages free, %{customdata[1]} on per-CPU lists"
    hover += "<br>at %{customdata[2]:.3f} GiB<extra></extra>"
    look = {"zmin": -0.5, "zmax": len(colours) - 0.5, "colorscale": scale, "hovertemplate": hover}
    bar: dict[str, Any] = {}
    if is_first:
        words = [" ".join([*MARKS.get(name, ("", ""))[1:], name]).strip() for name in shown]
        middles = [LEVELS * index + (LEVELS - 1) / 2 for index in range(len(shown))]
        place = (0.75, 0.5) if rows > 1 else (0.5, 1)
        bar = _scale_bar("faint: free, strong: used", middles, words, *place)
    for panel, label in enumerate(labels):
        table = maps[label]
        used = 1 - (table["free_pages"] + table["pcp_pages"]) / table["pages"]
        level = np.minimum((used * LEVELS).astype(int), LEVELS - 1)
        kind = pd.Categorical(table["migratetype"], categories=shown).codes
        lines = _lines(table)
        cells = lines.heatmap(kind * LEVELS + level, [table["free_pages"], table["pcp_pages"]])
        cells |= {"text": lines.arranged(np.array(shown)[kind], ""), "meta": f"map/{label}"}
        has_bar = panel == 0 and is_first
        legend = {"name": label, "showscale": has_bar, "colorbar": bar if has_bar else {}}
        grid.add(cells | look | legend, panel)
        for name in shown:
            if name in MARKS:
                # the first block of each run, and every MARK_EVERYth behind it
                is_of_type = (table["migratetype"] == name).to_numpy()
                number = np.arange(len(table))
                starts = is_of_type & ~np.concatenate([[False], is_of_type[:-1]])
                begun = np.maximum.accumulate(np.where(starts, number, 0))
                is_marked = is_of_type & ((number - begun) % MARK_EVERY == 0)
                for trace in _edged(
                    table, is_marked, MARKS[name][0], f"marks/{label}/{name}", name
                ):
                    grid.add(trace, panel)
    if has_difference:
        for trace in _difference(maps[first], maps[second], rows):
            grid.add(trace, len(labels))
    top = TITLES_HEIGHT if is_first else 30
    margin = {"l": 70, "r": 170, "t": top, "b": FOOTER_HEIGHT}
    height = top + FOOTER_HEIGHT + 270 * rows
    return grid.drawing(height=height, margin=margin, showlegend=False)


def _scale_bar(title: str, at: Any, words: Any, middle: float, length: float) -> dict[str, Any]:
    """A bar that explains colours, with words at values, beside a part of the figure."""
    heading = {"text": title, "side": "right", "font": {"size": 11}}
    place = {"title": heading, "y": middle, "len": length, "thickness": 12}
    return place | {"tickvals": at, "ticktext": words}


def _difference(before: pd.DataFrame, after: pd.DataFrame, rows: int) -> Iterator[Trace]:
    """The change of each block's free pages, marks where there are fewer, or another type."""
    change = after["free_pages"] - before["free_pages"]
    whole = int(after["pages"].iloc[0])
    shares = (-1.0, -0.5, 0.0, 0.5, 1.0)
    words = [f"{share:+g}" if share else "0" for share in shares]
    place = (0.2, 0.4) if rows > 1 else (0.5, 1)
    title = "\u25bd fewer, more free (share); \u2715 type differs"
    colours = [[share / 2, colour] for share, colour in enumerate(CHANGE_COLOURS)]
    look = {"zmin": -whole, "zmax": whole, "colorscale": colours}
    look["colorbar"] = _scale_bar(title, [share * whole for share in shares], words, *place)
    hover = "%{z:+d} pages free<br>at %{customdata[0]:.3f} GiB<extra></extra>"
    named = {"meta": "map/change", "name": "change", "hovertemplate": hover}
    yield _lines(after).heatmap(change, []) | named | look
    # both ends of the scale are dark: blocks are marked that lost a tenth of their pages or more
    is_fewer = (change / after["pages"] <= -0.1).to_numpy()
    yield from _edged(after, is_fewer, "triangle-down", "map/fewer", "fewer free")
    changed = (before["migratetype"] != after["migratetype"]).to_numpy()
    pairs = before["migratetype"][changed] + " / " + after["migratetype"][changed]
    text = list(np.repeat(pairs.to_numpy(object), len(outline("x-thin"))))
    hovers = {"hoverinfo": "text", "hoveron": "points", "hovertemplate": "%{text}<extra></extra>"}
    marks = _marked(after, changed, "x-thin", INK)
    yield marks | {"text": text, "meta": "map/types", "name": "another type"} | hovers


def _edged(
    table: pd.DataFrame, is_marked: np.ndarray, symbol: str, meta: str, name: str
) -> Iterator[Trace]:
    """Marks; white ones, which have something inside, show on any shade by an edge below them."""
    if symbol in AREAS:
        edge = _marked(table, is_marked, symbol, INK, wider=1)
        yield edge | {"meta": f"{meta}/edge", "name": name}
    colour = "white" if symbol in AREAS else INK
    yield _marked(table, is_marked, symbol, colour) | {"meta": meta, "name": name}


def _marked(
    table: pd.DataFrame, is_marked: np.ndarray, symbol: str, colour: str, *, wider: float = 0
) -> Trace:
    """One outline with a mark on each of some blocks, wider by so many pixels on each side."""
    lines, points = _lines(table), outline(symbol, wider)
    (left, right), (top, bottom) = lines.x_range, lines.y_range
    # a panel has 350 by 220 pixels on a wide page
    across = SIZE / 2 * abs(right - left) / 350 * points[:, 0]
    down = SIZE / 2 * abs(bottom - top) / 220 * points[:, 1]
    x = (lines.x[lines.column[is_marked]][:, None] + across).ravel()
    y = (lines.row[is_marked][:, None] + down).ravel()
    look = {"mode": "none", "fill": "toself", "fillcolor": colour, "hoverinfo": "skip"}
    return {"type": "scatter", "x": x, "y": y} | look


def outline(symbol: str, wider: float = 0) -> np.ndarray:
    """The corners of a mark around its middle, shape (points, 2), gaps behind its parts."""
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


class _Lines:
    """Each block's place: lines of equal length, by address; one empty line for every hole."""

    def __init__(self, pfn: np.ndarray, pages: int) -> None:
        block = pfn // pages
        self._length = 1 << max(4, round(np.log2(max(2 * len(pfn), 1)) / 2))
        numbers, index = np.unique(block // self._length, return_inverse=True)
        holes = np.concatenate([[0], np.cumsum(np.diff(numbers) > 1)])
        self._row_of = np.arange(len(numbers)) + holes
        self._begins_gib = numbers * self._length * pages * PAGE_KIB / (1 << 20)
        self.row = self._row_of[index]
        self.column = block % self._length
        self._gib = pfn * PAGE_KIB / (1 << 20)
        mib = pages * PAGE_KIB / 1024
        self.x = np.arange(self._length) * mib
        self.x_range = [-mib / 2, self._length * mib - mib / 2]
        self.y_range = [int(self._row_of[-1]) + 0.5, -0.5]

    def addresses(self) -> dict[str, Any]:
        """Ticks of the y axis: some lines' addresses, those behind a hole among them."""
        behind_hole = np.flatnonzero(np.diff(self._row_of) > 1) + 1
        every = max(1, -(-len(self._row_of) // 6))
        shown = np.arange(0, len(self._row_of), every)
        if len(behind_hole):  # so far from those that two labels do not touch
            away = np.abs(shown[:, None] - behind_hole).min(axis=1)
            shown = shown[2 * away > every]
        picked = sorted([*shown.tolist(), *behind_hole.tolist()])
        words = [f"{self._begins_gib[at]:.3g}" for at in picked]
        return {"tickvals": self._row_of[picked].tolist(), "ticktext": words}

    def arranged(self, values: Any, empty: Any) -> np.ndarray:
        """Values by line and column."""
        values = np.asarray(values)
        kind = values.dtype if values.dtype.kind == "U" else float
        grid = np.full((self._row_of[-1] + 1, self._length), empty, kind)
        grid[self.row, self.column] = values
        return grid

    def heatmap(self, values: Any, numbers: list[Any]) -> Trace:
        """A trace with a cell per block, and numbers to say of each, its address the last."""
        layers = [self.arranged(layer, np.nan) for layer in (*numbers, self._gib)]
        cells = {"z": self.arranged(values, np.nan), "customdata": np.stack(layers, axis=-1)}
        places = {"x": self.x, "y": np.arange(self._row_of[-1] + 1)}
        return {"type": "heatmap", "hoverongaps": False} | places | cells


def _lines(table: pd.DataFrame) -> _Lines:
    """The lines of a map; all maps of a machine have the same."""
    return _lines_of(table["pfn"].to_numpy().tobytes(), int(table["pages"].iloc[0]))


@lru_cache(maxsize=4)
def _lines_of(pfn: bytes, pages: int) -> _Lines:
    return _Lines(np.frombuffer(pfn, np.int64), pages)


def shade(migratetype: str, level: int, ground: str = "#FFFFFF") -> str:
    """A type's colour, mixed with the page's ground for blocks that are largely free."""
    weight = 0.15 + 0.85 * level / (LEVELS - 1)
    strong = MIGRATETYPE_COLOURS.get(migratetype, INK)
    pairs = ((int(strong[at : at + 2], 16), int(ground[at : at + 2], 16)) for at in (1, 3, 5))
    return "#" + "".join(f"{round(end + (part - end) * weight):02X}" for part, end in pairs)
