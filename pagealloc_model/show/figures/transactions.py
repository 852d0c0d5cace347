"""Transactions under zone->lock: how many, and how large (S11.1)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import pandas as pd

from pagealloc_model.show.figures.drawing import Drawing, FigureFunction
from pagealloc_model.show.figures.lanes import Lane, Tables, count_trace, lanes
from pagealloc_model.show.figures.palette import site_colour
from pagealloc_model.show.figures.panel_grid import PanelGrid
from pagealloc_model.show.figures.small_multiples import (
    common_origin,
    in_zone,
    reason_of,
    small_multiples,
    with_table,
    zone_words,
)

LONE_BIN_NS = 1_000_000_000
"""Width assumed of a table that has no two bins to tell it from."""

SITES = (
    *("refill", "drain", "buddy_alloc", "direct_free", "reserve", "unreserve", "boost_reset"),
    *("empty_refill", "empty_buddy_alloc"),
)


@FigureFunction
def transaction_rates(measured: Tables, predicted: Tables, zone: str | None = None) -> Drawing:
    """zone->lock acquisitions per second by site over time (S11.1).

    All tables are brought to the widest of their bins.

    Args:
        measured: `lock` table or tables by label.
        predicted: the same from replays.
        zone: such as "Normal"; None adds up all zones.
    """
    drawn = in_zone(lanes(measured, predicted), zone)
    tables = [lane.table for lane in drawn if not lane.table.empty]
    width_ns = max((bin_width_ns(each) or LONE_BIN_NS for each in tables), default=LONE_BIN_NS)
    origin = common_origin(drawn)
    drawn = [with_table(lane, rates(lane.table, width_ns, origin)) for lane in drawn]
    return small_multiples(
        drawn,
        keys=_sites_seen(drawn),
        key_column="site",
        value="per_second",
        panel_title=str,
        colour=site_colour,
        title=f"zone->lock acquisitions by site, {zone_words(zone)}",
        y_title="acquisitions/s",
    ).drawing()


@FigureFunction
def transaction_sizes(measured: Tables, predicted: Tables, zone: str | None = None) -> Drawing:
    """How many refills and drains moved how many objects under one zone->lock hold (S4.4, S4.7).

    Sizes are binned by powers of two; the counts' axis is logarithmic where there are many.

    Args:
        measured: `transactions` table or tables by label.
        predicted: the same from replays.
        zone: such as "Normal"; None adds up all zones.
    """
    drawn = in_zone(lanes(measured, predicted), zone)
    sites = ("refill", "drain")
    grid = PanelGrid(
        sites,
        title=f"Transaction sizes under zone->lock, {zone_words(zone)}",
        x_title="objects per transaction (n up to 2n - 1)",
        y_title="transactions",
        columns=2,
        x_axis={"type": "category"},
    )
    for panel, site in enumerate(sites):
        histograms = {lane.key: _binned_sizes(lane.table, site) for lane in drawn}
        bins = _all_bins(histograms.values())
        grid.count_along(
            "y", panel, max((each.max() for each in histograms.values() if len(each)), default=0)
        )
        absent = {}
        for lane in drawn:
            if histograms[lane.key].empty:
                absent[lane.label] = reason_of(lane)
            counts = histograms[lane.key].reindex(bins).rename(str)
            grid.add(count_trace(lane, counts, site, in_legend=panel == 0), panel)
        grid.note_missing(panel, absent)
    return grid.drawing()


def _binned_sizes(table: pd.DataFrame, site: str) -> pd.Series:
    """Transactions by the largest power of two not above their size."""
    if table.empty:
        return pd.Series(dtype=float)
    sizes = table["objects"].to_numpy(float, na_value=np.nan)
    counts = table["transactions"].to_numpy(float, na_value=np.nan)
    shown = (table["site"] == site).to_numpy() & (sizes > 0) & ~np.isnan(counts)
    bins, places = np.unique(np.floor(np.log2(sizes[shown])).astype(np.int64), return_inverse=True)
    sums = np.bincount(places, counts[shown], minlength=len(bins))
    return pd.Series(sums.astype(float), index=np.int64(1) << bins)


def _all_bins(histograms: Iterable[pd.Series]) -> list[int]:
    """Every power of two up to the largest bin of any histogram."""
    largest = max((int(each.index.max()) for each in histograms if len(each)), default=0)
    return [1 << power for power in range(largest.bit_length())]


def _sites_seen(drawn: Sequence[Lane]) -> list[str]:
    """Sites that ever took the lock."""
    seen = set()
    for lane in drawn:
        if "per_second" in lane.table:
            seen |= set(lane.table.loc[lane.table["per_second"] > 0, "site"])
    return [site for site in SITES if site in seen]


def bin_width_ns(table: pd.DataFrame) -> int:
    """Width of a table's bins, the smallest distance between two; 0 if there are not two."""
    if table.empty:
        return 0
    starts = np.unique(table["time_ns"].to_numpy())
    return int(np.diff(starts).min()) if len(starts) > 1 else 0


def rates(table: pd.DataFrame, width_ns: int, origin_ns: int) -> pd.DataFrame:
    """Acquisitions per second by site and bin; a bin without rows saw none."""
    if table.empty:
        return table
    since_ns = table["time_s"] * 1e9 if "time_s" in table else table["time_ns"] - origin_ns
    bins = (since_ns // width_ns).astype("int64")
    first = int(bins.min())
    rows, sites = pd.factorize(table["site"])
    width, length = width_ns / 1e9, int(bins.max()) + 1 - first
    taken = table["acquisitions"].to_numpy(float, na_value=0.0)
    cells = rows * length + bins.to_numpy() - first
    counts = np.bincount(cells, np.nan_to_num(taken), minlength=len(sites) * length)
    return pd.DataFrame(
        {
            "site": np.repeat(np.asarray(sites, object), length),
            "per_second": counts / width,
            "time_s": np.tile(first + np.arange(length), len(sites)) * width,
        }
    )
