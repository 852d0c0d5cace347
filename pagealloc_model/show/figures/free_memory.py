"""Free memory by order and migratetype, and pageblocks by migratetype, over time."""

from __future__ import annotations

from collections.abc import Sequence

from pagealloc_model.show.figures.drawing import Drawing, FigureFunction
from pagealloc_model.show.figures.lanes import Lane, Tables, lanes
from pagealloc_model.show.figures.palette import MIGRATETYPES, migratetype_colour, order_colour
from pagealloc_model.show.figures.small_multiples import (
    in_zone,
    keys_seen,
    small_multiples,
    zone_words,
)

PAGES = "free pages (4 KiB)"


@FigureFunction
def free_pages_by_order(measured: Tables, predicted: Tables, zone: str | None = None) -> Drawing:
    """Free pages in buddies of each order over time, one panel per order (S5).

    Args:
        measured: `free_pages` table or tables by label.
        predicted: the same from replays.
        zone: such as "Normal"; None adds up all zones.
    """
    drawn = in_zone(lanes(measured, predicted), zone)
    orders = keys_seen(drawn, "order")
    return small_multiples(
        drawn,
        keys=orders,
        key_column="order",
        value="pages",
        panel_title=lambda order: f"order {order}",
        colour=order_colour,
        title=f"Free pages by order, {zone_words(zone)}",
        y_title=PAGES,
        columns=4,
    ).drawing()


@FigureFunction
def free_pages_by_migratetype(
    measured: Tables, predicted: Tables, zone: str | None = None
) -> Drawing:
    """Free pages on the lists of each migratetype over time (S1.3).

    Args:
        measured: `free_pages` table or tables by label.
        predicted: the same from replays.
        zone: such as "Normal"; None adds up all zones.
    """
    drawn = in_zone(lanes(measured, predicted), zone)
    return small_multiples(
        drawn,
        keys=_migratetypes_seen(drawn, "pages"),
        key_column="migratetype",
        value="pages",
        panel_title=str,
        colour=migratetype_colour,
        title=f"Free pages by migratetype, {zone_words(zone)}",
        y_title=PAGES,
        columns=4,
    ).drawing()


@FigureFunction
def pageblocks_by_type(measured: Tables, predicted: Tables, zone: str | None = None) -> Drawing:
    """Pageblocks of each migratetype over time, as /proc/pagetypeinfo counts them.

    Args:
        measured: `pageblocks` table or tables by label.
        predicted: the same from replays.
        zone: such as "Normal"; None adds up all zones.
    """
    drawn = in_zone(lanes(measured, predicted), zone)
    return small_multiples(
        drawn,
        keys=_migratetypes_seen(drawn, "blocks"),
        key_column="migratetype",
        value="blocks",
        panel_title=str,
        colour=migratetype_colour,
        title=f"Pageblocks by migratetype, {zone_words(zone)}",
        y_title="pageblocks",
        columns=4,
    ).drawing()


def _migratetypes_seen(drawn: Sequence[Lane], value: str) -> list[str]:
    """Migratetypes that ever hold anything, in the kernel's order."""
    seen = set()
    for lane in drawn:
        if "migratetype" in lane.table:
            held = lane.table["migratetype"][lane.table[value].fillna(0) > 0]
            seen |= set(held.unique())
    return [name for name in MIGRATETYPES if name in seen]
