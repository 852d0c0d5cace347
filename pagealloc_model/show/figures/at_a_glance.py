"""What happens in a recording, in a handful of panels; those where nothing does are one line."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from pagealloc_model.show.figures.drawing import Drawing, FigureFunction
from pagealloc_model.show.figures.lanes import Lane, line_trace
from pagealloc_model.show.figures.palette import INK, PREDICTION_COLOURS
from pagealloc_model.show.figures.panel_grid import PanelGrid
from pagealloc_model.show.figures.small_multiples import TIME_AXIS, reason_of
from pagealloc_model.show.figures.transactions import bin_width_ns, rates

COLUMNS = 3
RATE_PARTS = 40
"""Rates are means over this part of the time, or over the tables' own bins if those are wider."""

CUT_BELOW = 0.5
"""Where all values are above this share of the largest, the axis does not begin at zero."""

ROOM = 0.08
"""Above and below what an axis shows, as a share of it."""

CUT = " (axis cut)"


@dataclass(frozen=True, kw_only=True)
class _Panel:
    """A quantity.

    Attributes:
        words: its title, with the unit.
        by_lane: seconds and values by lane; a lane that has none is missing.
    """

    words: str
    by_lane: Mapping[str, tuple[np.ndarray, np.ndarray]]

    @property
    def moves(self) -> bool:
        """Whether any lane's value changes, or lanes differ."""
        values = np.concatenate([values for _, values in self.by_lane.values()])
        return bool(len(values)) and float(values.min()) != float(values.max())


@FigureFunction
def at_a_glance(measured: Any, predicted: Any) -> Drawing:
    """Free memory, per-CPU lists, holds of zone->lock, boosts and pageblocks over time.

    Marks are measured, lines predicted. An axis that does not begin at zero says so.

    Args:
        measured: what has the tables `free_pages`, `pcp`, `lock`, `boosts` and `pageblocks`.
        predicted: the same of a replay, or of several by label.
    """
    sources = dict(predicted) if isinstance(predicted, Mapping) else {"predicted": predicted}
    lanes = [Lane(label="measured", table=measured.lock, measured=True, rank=0)]
    lanes += [
        Lane(
            label=label,
            table=each.lock,
            measured=False,
            rank=rank,
            colour=PREDICTION_COLOURS[rank % len(PREDICTION_COLOURS)],
        )
        for rank, (label, each) in enumerate(sources.items())
    ]
    lanes[0] = replace(lanes[0], colour=INK)
    tables = dict(zip((lane.key for lane in lanes), (measured, *sources.values()), strict=True))
    origin = min(int(each.free_pages["time_ns"].min()) for each in sources.values())
    panels = list(_panels(tables, origin))
    shown = [panel for panel in panels if panel.moves]
    quiet = [panel.words for panel in panels if not panel.moves]
    return _drawn(shown, quiet, lanes)


def _drawn(shown: Sequence[_Panel], quiet: Sequence[str], lanes: Sequence[Lane]) -> Drawing:
    spans = [_axis(panel) for panel in shown]
    titles = [panel.words + (CUT if axis else "") for panel, axis in zip(shown, spans, strict=True)]
    grid = PanelGrid(
        titles,
        title="What happens, and what the model predicts of it",
        x_title=TIME_AXIS,
        y_title="",
        columns=COLUMNS,
        y_axis={"rangemode": "tozero"},
    )
    grid.add_legend(lanes)
    for number, (panel, axis) in enumerate(zip(shown, spans, strict=True)):
        absent = {}
        for lane in lanes:
            if lane.key in panel.by_lane:
                seconds, values = panel.by_lane[lane.key]
                grid.add(line_trace(lane, seconds, values, panel.words, INK), number)
            else:
                absent[lane.label] = reason_of(lane)
        grid.note_missing(number, absent)
        if axis:
            grid.cut_axis(number, axis)
    if quiet:
        grid.write_below(f"Nothing changes in: {'; '.join(quiet)}.")
    return grid.drawing()


def _axis(panel: _Panel) -> tuple[float, float] | None:
    """Where an axis begins and ends that does not begin at zero, None for one that does."""
    values = np.concatenate([values for _, values in panel.by_lane.values()])
    low, high = float(values.min()), float(values.max())
    if low < CUT_BELOW * high:
        return None
    room = ROOM * (high - low)
    return low - room, high + room


def _panels(tables: Mapping[str, Any], origin: int) -> Iterator[_Panel]:
    yield from _by_key(tables, "free_pages", "zone", "pages", "free pages, {}", origin)
    yield from _by_key(tables, "pcp", "zone", "count", "pages on per-CPU lists, {}", origin)
    locks = {key: each.lock for key, each in tables.items()}
    ends = [int(each.free_pages["time_ns"].max()) for each in tables.values()]
    width = max(
        (max(ends) - origin) // RATE_PARTS, *(bin_width_ns(each) for each in locks.values())
    )
    found = {key: rates(table, width, origin) for key, table in locks.items()}
    held = {
        key: _summed(table, "time_s", "per_second") for key, table in found.items() if len(table)
    }
    if held:
        yield _Panel(words="holds of zone->lock per second", by_lane=held)
    yield from _by_key(tables, "boosts", "zone", "pages", "watermark boost (pages), {}", origin)
    yield from _by_key(tables, "pageblocks", "migratetype", "blocks", "pageblocks: {}", origin)


def _by_key(
    tables: Mapping[str, Any], name: str, key: str, value: str, words: str, origin: int
) -> Iterator[_Panel]:
    """A panel for each key of a table that ever holds anything, summed over all else."""
    every = {lane: getattr(each, name) for lane, each in tables.items()}
    found = [
        each.loc[each[value].fillna(0) > 0, key] for each in every.values() if key in each.columns
    ]
    for wanted in dict.fromkeys(pd.concat(found)) if found else ():
        by_lane = {}
        for lane, table in every.items():
            mine = table[table[key] == wanted] if key in table.columns else table
            if len(mine):
                seconds = (mine["time_ns"] - origin) / 1e9
                by_lane[lane] = _summed(mine.assign(time_s=seconds), "time_s", value)
        yield _Panel(words=words.format(wanted), by_lane=by_lane)


def _summed(table: pd.DataFrame, time: str, value: str) -> tuple[np.ndarray, np.ndarray]:
    sums = table.groupby(time)[value].sum(min_count=1).dropna()
    return sums.index.to_numpy(float), sums.to_numpy(float)
