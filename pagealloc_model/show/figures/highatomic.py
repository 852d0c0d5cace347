"""The highatomic reserve over time (S7), with the figures posted with the proposal."""

from __future__ import annotations

from dataclasses import replace

import pandas as pd

from pagealloc_model.show.figures.drawing import Drawing, FigureFunction
from pagealloc_model.show.figures.lanes import Lane, Tables, lanes
from pagealloc_model.show.figures.palette import INK, PREDICTION_COLOURS
from pagealloc_model.show.figures.small_multiples import keys_seen, small_multiples, with_table

ALL_ZONES = "all zones"
POSTED_QUANTITY = "HighAtomic pageblocks per host"


@FigureFunction
def highatomic_blocks(
    measured: Tables, predicted: Tables, posted: pd.DataFrame | None = None
) -> Drawing:
    """HighAtomic pageblocks at every snapshot, one panel per zone and one for their sum.

    Tables of different recordings need `time_s`: see `since_start`.

    Args:
        measured: `pageblocks` table or tables by label (one per recording).
        predicted: the same from replays (one per policy).
        posted: the posted figures (`posted_figures`); written below the panels, since they come
            from machines of another size.
    """
    drawn = [_reserve_by_zone(lane) for lane in lanes(measured, predicted)]
    zones = [zone for zone in keys_seen(drawn, "zone") if zone != ALL_ZONES and _used(drawn, zone)]
    grid = small_multiples(
        drawn,
        keys=[*zones, ALL_ZONES],
        key_column="zone",
        value="blocks",
        panel_title=lambda zone: zone if zone == ALL_ZONES else f"zone {zone}",
        colour=lambda _: INK,
        title="HighAtomic pageblocks",
        y_title="pageblocks",
    )
    if posted is not None:
        grid.write_below(_posted_words(posted))
    return grid.drawing()


def _reserve_by_zone(lane: Lane) -> Lane:
    """The lane's HighAtomic rows and their sum over zones, coloured by policy."""
    colour = INK if lane.measured else PREDICTION_COLOURS[lane.rank % len(PREDICTION_COLOURS)]
    table = lane.table
    if len(table):
        reserve = table[table["migratetype"] == "HighAtomic"]
        table = pd.concat([reserve, reserve.assign(zone=ALL_ZONES)])
    return replace(with_table(lane, table), colour=colour)


def _used(drawn: list[Lane], zone: str) -> bool:
    """Whether any lane ever held a reserve in this zone."""
    return any(
        (lane.table.loc[lane.table["zone"] == zone, "blocks"].fillna(0) > 0).any()
        for lane in drawn
        if len(lane.table)
    )


def _posted_words(posted: pd.DataFrame) -> str:
    rows = posted[posted["quantity"] == POSTED_QUANTITY]
    values = "; ".join(f"{row.variant}: {row.value}" for row in rows.itertuples())
    machines = ", ".join(rows["machine"].unique())
    return f"posted with the proposal for other machines ({machines}): {values}"
