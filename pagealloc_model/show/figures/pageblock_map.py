"""A map of every pageblock: hue and mark by migratetype, strong where used, faint where free."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import pandas as pd

from pagealloc_model.show.figures.faceted import (
    FOOTER_HEIGHT,
    INK,
    MIGRATETYPES,
    Drawing,
    FigureFunction,
    PanelGrid,
    Trace,
    migratetype_colour,
)

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


LEVELS = 5
"""Shades of a type, from all free to none free."""

PANEL_HEIGHT = 270
TITLE = "Pageblocks by type and occupancy, before and at the end"
TITLES_HEIGHT = 65
PANEL_TITLE_HEIGHT = 30
"""Above a panel of a figure without a title."""
MARGIN = {"l": 70, "r": 170, "t": TITLES_HEIGHT, "b": FOOTER_HEIGHT}
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
CHANGE_SCALE = [[at / 2, colour] for at, colour in enumerate(CHANGE_COLOURS)]
"""Brown for fewer free pages, violet for more; told apart by all common kinds of sight."""

SHARES = (-1.0, -0.5, 0.0, 0.5, 1.0)
"""Of a block's pages, beside the scale of changes."""

PAGE_KIB = 4
FEWER, FEWER_FROM = "\u25bd", 0.1
"""Mark of blocks with fewer free pages, and the share of a block from which on it is drawn."""
OTHER_TYPE = "\u2715"
"""Word for the mark of blocks whose type differs."""
TITLE_OF_BAR: dict[str, Any] = {"side": "right", "font": {"size": 11}}
TICKS = 6
"""Addresses on a map's y axis, about."""


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
        title=TITLE if is_first else "",
        x_title="MiB from the start of the line",
        y_title="physical address (GiB)",
        columns=2,
        x_axis={"showgrid": False, "range": lines.x_range},
        y_axis={"showgrid": False, "range": lines.y_range, **lines.addresses()},
    )
    seen = {name for table in maps.values() for name in table["migratetype"].unique()}
    shown = [name for name in MIGRATETYPES if name in seen]
    for panel, label in enumerate(labels):
        bar = _type_bar(shown, rows) if panel == 0 and is_first else None
        grid.add(_type_trace(maps[label], label, shown, bar), panel)
        for name in shown:
            if name in MARKS:
                for trace in _marks(maps[label], label, name):
                    grid.add(trace, panel)
    if has_difference:
        before, after = maps[first], maps[second]
        grid.add(_change_trace(before, after, rows), len(labels))
        for trace in _fewer_free(before, after):
            grid.add(trace, len(labels))
        grid.add(_type_changes(before, after), len(labels))
    top = TITLES_HEIGHT if is_first else PANEL_TITLE_HEIGHT
    height = top + FOOTER_HEIGHT + PANEL_HEIGHT * rows
    return grid.drawing(height=height, margin=MARGIN | {"t": top}, showlegend=False)


def _type_trace(
    table: pd.DataFrame, label: str, shown: list[str], bar: dict[str, Any] | None
) -> Trace:
    used = 1 - (table["free_pages"] + table["pcp_pages"]) / table["pages"]
    level = np.minimum((used * LEVELS).astype(int), LEVELS - 1)
    kind = pd.Categorical(table["migratetype"], categories=shown).codes
    lines = _lines(table)
    trace = lines.heatmap(kind * LEVELS + level, [table["free_pages"], table["pcp_pages"]])
    steps = len(shown) * LEVELS
    return trace | {
        "text": lines.arranged(np.array(shown)[kind], ""),
        "meta": f"map/{label}",
        "name": label,
        "zmin": -0.5,
        "zmax": steps - 0.5,
        "colorscale": _type_scale(shown),
        "showscale": bar is not None,
        "colorbar": bar or {},
        "hovertemplate": "%{text}, %{customdata[0]} pages free, %{customdata[1]} on per-CPU lists"
        "<br>at %{customdata[2]:.3f} GiB<extra></extra>",
    }


def _marks(table: pd.DataFrame, label: str, name: str) -> Iterator[Trace]:
    """Marks on the blocks of a type, few where they follow each other."""
    symbol, _ = MARKS[name]
    is_marked = _thinned((table["migratetype"] == name).to_numpy())
    yield from _edged(table, is_marked, symbol, f"marks/{label}/{name}", name)


def _edged(
    table: pd.DataFrame, is_marked: np.ndarray, symbol: str, meta: str, name: str
) -> Iterator[Trace]:
    """Marks, and before those that are white inside their edges."""
    if symbol in AREAS:
        yield _marked(table, is_marked, symbol, is_edge=True) | {
            "meta": f"{meta}/edge",
            "name": name,
        }
    yield _marked(table, is_marked, symbol) | {"meta": meta, "name": name}


def _thinned(is_of_type: np.ndarray) -> np.ndarray:
    """The first block of each run, and every `MARK_EVERY`th behind it."""
    number = np.arange(len(is_of_type))
    starts = is_of_type & ~np.concatenate([[False], is_of_type[:-1]])
    begun = np.maximum.accumulate(np.where(starts, number, 0)) if len(number) else number
    return is_of_type & ((number - begun) % MARK_EVERY == 0)


def _fewer_free(before: pd.DataFrame, after: pd.DataFrame) -> Iterator[Trace]:
    """A mark on every block with fewer free pages: both ends of the scale are dark."""
    is_marked = (_change(before, after) <= -FEWER_FROM).to_numpy()
    yield from _edged(after, is_marked, "triangle-down", "map/fewer", "fewer free")


def _marked(
    table: pd.DataFrame, is_marked: np.ndarray, symbol: str, *, is_edge: bool = False
) -> Trace:
    """Marks on some blocks, or the edges below them: white marks show on any shade with one."""
    lines = _lines(table)
    x, y = lines.x[lines.column[is_marked]], lines.row[is_marked]
    size = MarkSize.on(lines.x_range, lines.y_range)
    if is_edge:
        return marks_trace(x, y, symbol, size, INK, wider=1)
    return marks_trace(x, y, symbol, size, "white" if symbol in AREAS else INK)


def _change(before: pd.DataFrame, after: pd.DataFrame) -> pd.Series:
    return (after["free_pages"] - before["free_pages"]) / after["pages"]


def _change_trace(before: pd.DataFrame, after: pd.DataFrame, rows: int) -> Trace:
    lines = _lines(after)
    whole = int(after["pages"].iloc[0])
    return lines.heatmap(after["free_pages"] - before["free_pages"], []) | {
        "meta": "map/change",
        "name": "change",
        "zmin": -whole,
        "zmax": whole,
        "colorscale": CHANGE_SCALE,
        "colorbar": {
            "title": {
                "text": f"{FEWER} fewer, more free (share); {OTHER_TYPE} type differs",
                **TITLE_OF_BAR,
            },
            "y": 0.2 if rows > 1 else 0.5,
            "len": 0.4 if rows > 1 else 1,
            "thickness": 12,
            "tickvals": [share * whole for share in SHARES],
            "ticktext": [f"{share:+g}" if share else "0" for share in SHARES],
        },
        "hovertemplate": "%{z:+d} pages free<br>at %{customdata[0]:.3f} GiB<extra></extra>",
    }


def _type_changes(before: pd.DataFrame, after: pd.DataFrame) -> Trace:
    """Marks on the blocks whose type differs."""
    changed = (before["migratetype"] != after["migratetype"]).to_numpy()
    pairs = before["migratetype"][changed] + " / " + after["migratetype"][changed]
    return _marked(after, changed, "x-thin") | {
        "text": list(np.repeat(pairs.to_numpy(object), len(outline("x-thin")))),
        "meta": "map/types",
        "name": "another type",
        "hoverinfo": "text",
        "hoveron": "points",
        "hovertemplate": "%{text}<extra></extra>",
    }


class _Lines:
    """Where each block lies: lines of equal length, by address; one empty line for every hole.

    Attributes:
        row, column: of each block.
        x: MiB from the start of a line, by column.
        x_range, y_range: of axes that show all blocks and no more.
    """

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
        every = max(1, -(-len(self._row_of) // TICKS))
        shown = [at for at in range(0, len(self._row_of), every) if _far(at, behind_hole, every)]
        picked = sorted([*shown, *behind_hole.tolist()])
        return {
            "tickvals": self._row_of[picked].tolist(),
            "ticktext": [f"{self._begins_gib[at]:.3g}" for at in picked],
        }

    def arranged(self, values: Any, empty: Any) -> np.ndarray:
        """Values by line and column."""
        values = np.asarray(values)
        kind = values.dtype if values.dtype.kind == "U" else float
        grid = np.full((self._row_of[-1] + 1, self._length), empty, kind)
        grid[self.row, self.column] = values
        return grid

    def heatmap(self, values: Any, told: list[Any]) -> Trace:
        """A trace with a cell per block, and numbers to tell about each, its address the last."""
        told = [*told, self._gib]
        return {
            "type": "heatmap",
            "x": self.x,
            "y": np.arange(self._row_of[-1] + 1),
            "z": self.arranged(values, np.nan),
            "customdata": np.stack([self.arranged(each, np.nan) for each in told], axis=-1),
            "hoverongaps": False,
        }


def _lines(table: pd.DataFrame) -> _Lines:
    """The lines of a map; all maps of a machine have the same."""
    return _lines_of(table["pfn"].to_numpy().tobytes(), int(table["pages"].iloc[0]))


@lru_cache(maxsize=4)
def _lines_of(pfn: bytes, pages: int) -> _Lines:
    return _Lines(np.frombuffer(pfn, np.int64), pages)


def _far(at: int, others: np.ndarray, distance: int) -> bool:
    """Whether no other line is close enough for two labels to touch."""
    return not len(others) or int(np.abs(others - at).min()) * 2 > distance


def _type_scale(shown: list[str]) -> list[list[Any]]:
    """Steps of colour: the shades of each type."""
    colours = [shade(name, level) for name in shown for level in range(LEVELS)]
    steps = len(colours)
    return [
        [edge, colour]
        for index, colour in enumerate(colours)
        for edge in (index / steps, (index + 1) / steps)
    ]


def _type_bar(shown: list[str], rows: int) -> dict[str, Any]:
    return {
        "title": {"text": "faint: free, strong: used", **TITLE_OF_BAR},
        "tickvals": [LEVELS * index + (LEVELS - 1) / 2 for index in range(len(shown))],
        "ticktext": [" ".join([*MARKS.get(name, ("", ""))[1:], name]).strip() for name in shown],
        "y": 0.75 if rows > 1 else 0.5,
        "len": 0.5 if rows > 1 else 1,
        "thickness": 12,
    }


def shade(migratetype: str, level: int, ground: str = "#FFFFFF") -> str:
    """A type's colour, mixed with the page's ground for blocks that are largely free.

    Args:
        migratetype: as /proc/pagetypeinfo spells it.
        level: 0 for free to LEVELS - 1 for used.
        ground: colour of the page.
    """
    weight = 0.15 + 0.85 * level / (LEVELS - 1)
    parts = zip(_parts(migratetype_colour(migratetype)), _parts(ground), strict=True)
    return "#" + "".join(f"{round(end + (part - end) * weight):02X}" for part, end in parts)


def _parts(colour: str) -> list[int]:
    """Red, green and blue, 0 to 255."""
    return [int(colour[at : at + 2], 16) for at in (1, 3, 5)]
