"""Per-CPU lists over time."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from pagealloc_model.show.figures.drawing import Drawing, FigureFunction
from pagealloc_model.show.figures.lanes import Lane, Tables, lanes
from pagealloc_model.show.figures.palette import INK, PREDICTION_COLOURS
from pagealloc_model.show.figures.small_multiples import (
    in_zone,
    small_multiples,
    with_table,
    zone_words,
)

CPU_PANELS = 8
"""Per-CPU panels up to this many; on larger machines the CPUs of a zone are added up."""


@FigureFunction
def pcp_counts(measured: Tables, predicted: Tables, zone: str | None = None) -> Drawing:
    """Pages on per-CPU lists (`pcp->count`) over time, per zone and CPU (S4.1).

    Machines with more than `CPU_PANELS` lists get one panel per zone with all CPUs added up.

    Args:
        measured: `pcp` table or tables by label.
        predicted: the same from replays.
        zone: such as "Normal"; None shows every zone that ever held a page.
    """
    drawn = [_with_list_names(lane) for lane in in_zone(lanes(measured, predicted), zone)]
    names = _lists_in_use(drawn)
    if len(names) > CPU_PANELS:
        drawn = [
            with_table(lane, lane.table.assign(list_name=_all_cpus(lane.table))) for lane in drawn
        ]
        names = _lists_in_use(drawn)
    colours = {name: PREDICTION_COLOURS[i % 4] for i, name in enumerate(names)}
    return small_multiples(
        drawn,
        keys=names,
        key_column="list_name",
        value="count",
        panel_title=str,
        colour=lambda name: colours.get(name, INK),
        title=f"Pages on per-CPU lists (pcp->count), {zone_words(zone)}",
        y_title="pages (4 KiB)",
        columns=2,
    ).drawing()


def _with_list_names(lane: Lane) -> Lane:
    table = lane.table
    if table.empty:
        return lane
    names = _zone_names(table) + ", CPU " + table["cpu"].astype(str)
    return with_table(lane, table.assign(list_name=names))


def _all_cpus(table: pd.DataFrame) -> pd.Series:
    return _zone_names(table) + ", all CPUs"


def _zone_names(table: pd.DataFrame) -> pd.Series:
    """Zone of each row, its node added where there are several."""
    names = table["zone"].astype(str)
    if table["node"].nunique() > 1:
        names = "node " + table["node"].astype(str) + ", " + names
    return names


def _lists_in_use(drawn: Sequence[Lane]) -> list[str]:
    """Per-CPU lists that ever held a page, by zone and CPU."""
    first_seen: dict[str, tuple[str, int]] = {}
    for lane in drawn:
        if "list_name" not in lane.table:
            continue
        names = lane.table["list_name"][lane.table["count"].fillna(0) > 0].drop_duplicates()
        held = lane.table.loc[names.index]
        for name, zone, cpu in zip(names, held["zone"], held["cpu"], strict=True):
            first_seen.setdefault(str(name), (str(zone), int(cpu)))
    return sorted(first_seen, key=lambda name: first_seen[name])
