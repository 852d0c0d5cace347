"""Transactions under zone->lock: how many, and how large (S11.1)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from pagealloc_model.figures.palette import site_colour
from pagealloc_model.figures.panels import (
    Lane,
    Tables,
    cell_of,
    count_trace,
    lanes,
    note_missing,
    panel_grid,
)
from pagealloc_model.figures.small_multiples import (
    in_zone,
    keys_seen,
    reason_of,
    small_multiples,
    with_table,
    zone_words,
)

SITES = ("refill", "drain", "buddy_alloc", "direct_free", "reserve", "unreserve")


def transaction_rates(measured: Tables, predicted: Tables, zone: str | None = None) -> go.Figure:
    """zone->lock acquisitions per second by site over time (S11.1).

    Args:
        measured: `lock` table or tables by label.
        predicted: the same from replays.
        zone: such as "Normal"; None adds up all zones.
    """
    drawn = [_as_rates(lane) for lane in in_zone(lanes(measured, predicted), zone)]
    return small_multiples(
        drawn,
        keys=_sites_seen(drawn),
        key_column="site",
        value="per_second",
        panel_title=str,
        colour=site_colour,
        title=f"zone->lock acquisitions by site, {zone_words(zone)}",
        y_title="acquisitions/s",
    )


def transaction_sizes(measured: Tables, predicted: Tables, zone: str | None = None) -> go.Figure:
    """How many refills and drains moved how many objects under one zone->lock hold (S4.4, S4.7).

    Sizes are binned by powers of two; the counts' axis is logarithmic.

    Args:
        measured: `transactions` table or tables by label.
        predicted: the same from replays.
        zone: such as "Normal"; None adds up all zones.
    """
    drawn = in_zone(lanes(measured, predicted), zone)
    sites = ("refill", "drain")
    figure = panel_grid(
        sites,
        title=f"Transaction sizes under zone->lock, {zone_words(zone)}",
        x_title="objects per transaction",
        y_title="transactions",
        columns=2,
    )
    for panel, site in enumerate(sites):
        counts = {lane.key: _binned_sizes(lane.table, site) for lane in drawn}
        bins = _all_bins(counts.values())
        absent = {}
        for lane in drawn:
            if counts[lane.key].empty:
                absent[lane.label] = reason_of(lane)
            trace = count_trace(lane, counts[lane.key].reindex(bins), site, in_legend=panel == 0)
            trace.x = [_bin_words(lower) for lower in bins]
            figure.add_trace(trace, **cell_of(figure, panel))
        note_missing(figure, panel, absent)
    figure.update_xaxes(type="category")
    figure.update_yaxes(type="log", exponentformat="power", dtick=1)
    return figure


def _binned_sizes(table: pd.DataFrame, site: str) -> pd.Series:
    """Transactions by the largest power of two not above their size."""
    if table.empty:
        return pd.Series(dtype=float)
    rows = table[(table["site"] == site) & (table["objects"] > 0) & table["transactions"].notna()]
    sizes = rows["objects"].to_numpy(dtype=np.int64)
    lower = np.int64(1) << np.floor(np.log2(sizes)).astype(np.int64)
    return rows["transactions"].astype(float).groupby(lower).sum()


def _all_bins(histograms: Iterable[pd.Series]) -> list[int]:
    """Every power of two up to the largest bin of any histogram."""
    largest = max((int(each.index.max()) for each in histograms if len(each)), default=0)
    return [1 << power for power in range(largest.bit_length())]


def _bin_words(lower: int) -> str:
    return "1" if lower == 1 else f"{lower}-{2 * lower - 1}"


def _sites_seen(drawn: Sequence[Lane]) -> list[str]:
    seen = set(keys_seen(drawn, "site"))
    return [site for site in SITES if site in seen]


def _as_rates(lane: Lane) -> Lane:
    """Acquisitions per bin to acquisitions per second; bins are as wide as their spacing."""
    table = lane.table
    if table.empty:
        return lane
    starts = pd.Series(table["time_ns"].unique()).sort_values()
    width_s = starts.diff().median() / 1e9 if len(starts) > 1 else 1.0
    return with_table(lane, table.assign(per_second=table["acquisitions"] / width_s))
