"""A comparison's charts as text, each with what the model leaves out of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from pagealloc_model.base.text.charts import ASCII, Glyphs, bar_chart, histogram, time_series

if TYPE_CHECKING:
    from pagealloc_model.predicted.replay import Replay
    from pagealloc_model.verdict.comparison import Comparison

SERIES = ("base", "patch")
SITES = ("refill", "drain", "buddy_alloc", "direct_free")
EMPTY_SITES = ("empty_refill", "empty_buddy_alloc")
"""Attempts that found no page; drawn where there are any."""

LOCK_LEFT_OUT = (
    "trylocks of per-CPU lists that fail (S4.10); waiting for zone->lock does not change what is "
    "asked for and freed"
)
PAGES_LEFT_OUT = (
    "reclaim and compaction under another policy: they free what they freed in the recording; "
    "pages that change hands without an event (T9)"
)


@dataclass(frozen=True, kw_only=True)
class Chart:
    """A chart and its caveat.

    Attributes:
        text: at most 72 columns.
        left_out: what is not modelled in what it shows.
    """

    text: str
    left_out: str


def predicted_charts(comparison: Comparison, *, glyphs: Glyphs = ASCII) -> list[Chart]:
    """zone->lock by site, sizes of refills and drains, and the quantity that changes most.

    Args:
        comparison: base and patch.
        glyphs: characters to draw with.
    """
    replays = (comparison.base, comparison.patch)
    charts = [Chart(text=_by_site(comparison.rows, glyphs), left_out=LOCK_LEFT_OUT)]
    for site in ("refill", "drain"):
        counts = _sizes(replays, site)
        if counts:
            title = f"{site}s by number of pages moved under one zone->lock hold"
            drawn = histogram(title, counts, SERIES, glyphs=glyphs)
            charts.append(Chart(text=drawn, left_out=LOCK_LEFT_OUT))
    over_time = _most_changed(replays)
    if over_time is not None:
        title, seconds, series = over_time
        drawn = time_series(title, seconds, series, glyphs=glyphs)
        charts.append(Chart(text=drawn, left_out=PAGES_LEFT_OUT))
    return charts


def _by_site(rows: pd.DataFrame, glyphs: Glyphs) -> str:
    """Acquisitions of zone->lock by site, as the comparison's table has them."""
    found = rows.set_index("metric")
    bars = {
        site: found.loc[f"{site}_transactions", ["base", "patch"]]
        for site in (*SITES, *EMPTY_SITES)
    }
    values = {
        site: [float(value) for value in pair]
        for site, pair in bars.items()
        if site in SITES or pair.any()
    }
    return bar_chart("zone->lock acquisitions by site", values, SERIES, glyphs=glyphs)


def _sizes(replays: tuple[Replay, Replay], site: str) -> dict[int, list[float]]:
    """Lower end of a bin -> transactions of that many pages, under base and patch."""
    binned = []
    for replay in replays:
        full = replay.transactions_full
        pages = full.loc[(full["site"] == site) & (full["pages"] > 0), "pages"].to_numpy(np.int64)
        low = np.int64(1) << np.floor(np.log2(pages)).astype(np.int64)
        binned.append(pd.Series(1.0, index=low).groupby(level=0).sum())
    seen = sorted({int(low) for counts in binned for low in counts.index})
    if not seen:
        return {}
    every = [1 << power for power in range(seen[0].bit_length() - 1, seen[-1].bit_length())]
    return {low: [float(counts.get(low, 0.0)) for counts in binned] for low in every}


OverTime = tuple[str, np.ndarray, dict[str, np.ndarray]]


def _most_changed(replays: tuple[Replay, Replay]) -> OverTime | None:
    """Of the quantities over time, the one whose curves lie farthest apart; None if none differ."""
    best, farthest = None, 0.0
    for title, base, patch in _quantities(*replays):
        scale = float(np.abs(base.to_numpy()).mean() + np.abs(patch.to_numpy()).mean())
        apart = float(np.abs(patch.to_numpy() - base.to_numpy()).mean()) / (scale or 1.0)
        if apart > farthest:
            seconds = (base.index.to_numpy() - base.index[0]) / 1e9
            series = {"base": base.to_numpy(), "patch": patch.to_numpy()}
            best, farthest = (title, seconds, series), apart
    return best


def _quantities(base: Replay, patch: Replay) -> list[tuple[str, pd.Series, pd.Series]]:
    order = base.machine.pageblock_order
    makers = {
        "pages on per-CPU lists (pcp->count), all zones": lambda each: _sum(each.pcp, "count"),
        "free pages in buddies of whole pageblocks, all zones": lambda each: _sum(
            each.free_pages[each.free_pages["order"] >= order], "pages"
        ),
        "free pages on movable lists, all zones": lambda each: _sum(
            each.free_pages[each.free_pages["migratetype"] == "Movable"], "pages"
        ),
        "HighAtomic pageblocks, all zones": lambda each: _sum(
            each.pageblocks[each.pageblocks["migratetype"] == "HighAtomic"], "blocks"
        ),
    }
    return [(title, make(base), make(patch)) for title, make in makers.items()]


def _sum(table: pd.DataFrame, value: str) -> pd.Series:
    return table.groupby("time_ns")[value].sum().astype(float)
