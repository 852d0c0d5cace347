"""Figures over time: a panel per key, a trace per measured or predicted lane in each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from pagealloc_model.show.figures.lanes import Lane, line_trace
from pagealloc_model.show.figures.panel_grid import PanelGrid

TIME_AXIS = "time since first event (s)"
NOTHING_MEASURED = "not available: the recording has no rows for this"
NOTHING_PREDICTED = "not available: the replay has no rows for this"


def since_start(table: pd.DataFrame, start_ns: int) -> pd.DataFrame:
    """A copy with `time_s`, seconds since `start_ns`; needed to overlay two recordings.

    Args:
        table: any table with `time_ns`.
        start_ns: the recording's start, on the same clock.
    """
    return table.assign(time_s=(table["time_ns"] - start_ns) / 1e9)


def small_multiples(
    drawn: Sequence[Lane],
    *,
    keys: Sequence[Any],
    key_column: str,
    value: str,
    panel_title: Callable[[Any], str],
    colour: Callable[[Any], str],
    title: str,
    y_title: str,
    columns: int = 3,
) -> PanelGrid:
    """One panel per key, one trace per lane in each; a lane without values leaves a note.

    Panels in which nothing happens are one line below.

    Args:
        drawn: lanes with `time_ns` (or `time_s`), the key column and the value column.
        keys: panels in order.
        key_column: column whose value picks the panel.
        value: column to draw, summed over whatever else the table distinguishes.
        panel_title: words for a key.
        colour: colour of a key's panel.
        title: of the figure.
        y_title: quantity and unit.
        columns: panels per row at most.
    """
    origin = common_origin(drawn)
    series = {lane.key: _series_by_key(lane.table, key_column, value, origin) for lane in drawn}
    panels = {key: [mine[key][1] for mine in series.values() if key in mine] for key in keys}
    still = [key for key in keys if _is_still(panels[key])]
    shown = [key for key in keys if key not in still] or list(keys)
    grid = PanelGrid(
        [panel_title(key) for key in shown],
        title=title,
        x_title=TIME_AXIS,
        y_title=y_title,
        columns=columns,
        y_axis={"rangemode": "tozero"},
    )
    grid.add_legend(drawn)
    for panel, key in enumerate(shown or [None]):
        absent = {}
        for lane in drawn:
            if key not in series[lane.key]:
                absent[lane.label] = reason_of(lane)
                continue
            x, y = series[lane.key][key]
            grid.add(line_trace(lane, x, y, str(key), colour(key)), panel)
        grid.note_missing(panel, absent)
    if len(shown) < len(keys):
        levels = ", ".join(f"{panel_title(key)} ({panels[key][0][0]:,.10g})" for key in still)
        grid.write_below(f"Not drawn, the same in all lanes at all times: {levels}.")
    return grid


def _is_still(lines: Sequence[np.ndarray]) -> bool:
    """Whether all lines of a panel have one value throughout."""
    return bool(lines) and np.ptp(np.concatenate(lines)) == 0


def _series_by_key(
    table: pd.DataFrame, key_column: str, value: str, origin: int
) -> dict[Any, tuple[np.ndarray, np.ndarray]]:
    """Seconds and the sum of `value` at each, for every key that has any known value."""
    if table.empty or value not in table:
        return {}
    values = table[value].to_numpy(float, na_value=np.nan)
    clock = "time_s" if "time_s" in table else "time_ns"
    rows, keys = pd.factorize(table[key_column])
    known = ~np.isnan(values) & (rows >= 0)
    columns, instants = pd.factorize(table[clock].to_numpy(), sort=True)
    seconds = instants if clock == "time_s" else (instants - origin) / 1e9
    cells = (rows * len(instants) + columns)[known]
    shape = (len(keys), len(instants))
    size = len(keys) * len(instants)
    sums = np.bincount(cells, values[known], minlength=size).reshape(shape)
    is_there = np.bincount(cells, minlength=size).reshape(shape) > 0
    return {
        key: (seconds[is_there[row]], sums[row][is_there[row]])
        for row, key in enumerate(keys)
        if is_there[row].any()
    }


def common_origin(drawn: Sequence[Lane]) -> int:
    """First instant of a prediction, or of any lane without one, in ns; 0 if all have `time_s`."""
    timed = [lane for lane in drawn if len(lane.table) and "time_s" not in lane.table]
    predicted = [lane for lane in timed if not lane.measured]
    return min((int(lane.table["time_ns"].min()) for lane in predicted or timed), default=0)


def reason_of(lane: Lane) -> str:
    """Why a lane has no value: its table's own `attrs["reason"]`, or that there are no rows."""
    stated = lane.table.attrs.get("reason", "")
    return stated or (NOTHING_MEASURED if lane.measured else NOTHING_PREDICTED)


def in_zone(drawn: Sequence[Lane], zone: str | None) -> list[Lane]:
    """The lanes with only one zone's rows; None keeps all."""
    if zone is None:
        return list(drawn)
    return [with_table(lane, _rows_of(lane.table, zone)) for lane in drawn]


def _rows_of(table: pd.DataFrame, zone: str) -> pd.DataFrame:
    return table[table["zone"] == zone] if "zone" in table else table


def with_table(lane: Lane, table: pd.DataFrame) -> Lane:
    """The lane with another table, which keeps the reason of the first."""
    table.attrs.update(lane.table.attrs)
    return replace(lane, table=table)


def keys_seen(drawn: Sequence[Lane], column: str) -> list[Any]:
    """All values of a column in any lane, sorted."""
    seen = {key for lane in drawn if column in lane.table for key in lane.table[column].unique()}
    return sorted(seen)


def zone_words(zone: str | None) -> str:
    """The zone as titles name it."""
    return f"zone {zone}" if zone else "all zones"
