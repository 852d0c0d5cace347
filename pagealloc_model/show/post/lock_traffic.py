"""Traffic at zone->lock, measured and predicted, and what it costs in time, as plain text."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pandas as pd

from pagealloc_model.base.text.counts import count_of
from pagealloc_model.base.text.layout import WIDTH, Row, number, paragraph, percent, text_table
from pagealloc_model.policy.lock_costs import SPREAD

if TYPE_CHECKING:
    from pagealloc_model.predicted.lock_times import LockTimes
    from pagealloc_model.verdict.locks import LockComparison

TARGET = 0.05
"""Error up to which a count by site is as good as asked for."""

JUDGED = ("acquisitions", "pages_per_acquisition")
QUANTITIES = (*JUDGED, "contended")
LONGEST_HOLD = "longest hold, "


def traffic_table(comparison: LockComparison, *, width: int = WIDTH) -> str:
    """Every site's counts, and which of them are off by more than `TARGET`."""
    by_site = comparison.by_site.set_index("site")
    rows = [
        Row(
            heading=quantity.replace("_", " "),
            label=str(site),
            cells=(
                number(by_site.loc[site, f"{quantity}_measured"]),
                number(by_site.loc[site, f"{quantity}_predicted"]),
                percent(by_site.loc[site, f"{quantity}_error"]),
            ),
        )
        for quantity in QUANTITIES
        for site in by_site.index
        if quantity == "acquisitions" or _is_known(by_site, site, quantity)
    ]
    header = Row(heading="quantity", label="site", cells=("measured", "predicted", "error"))
    missed = ", ".join(misses(by_site))
    within = f"Off by more than {TARGET:.0%}: {missed or 'nothing'}."
    return f"{text_table(header, rows, width=width)}\n\n{paragraph(within, width=width)}\n"


def _is_known(by_site: pd.DataFrame, site: str, quantity: str) -> bool:
    sides = by_site.loc[site, [f"{quantity}_measured", f"{quantity}_predicted"]]
    return not bool(sides.isna().all())


def misses(by_site: pd.DataFrame) -> Iterator[str]:
    """Counts that are off by more than `TARGET`, in words.

    Args:
        by_site: `LockComparison.by_site`, indexed by site.
    """
    for quantity in JUDGED:
        for site, error in by_site[f"{quantity}_error"].items():
            if not pd.isna(error) and abs(float(error)) > TARGET:
                yield f"{quantity.replace('_', ' ')} of {site} ({percent(error)})"


def longest_hold_table(times: LockTimes, *, width: int = WIDTH) -> str:
    """The longest hold of each caller in pages, and in time for costs that are tenfold apart."""
    rows = [
        Row(
            heading="longest hold",
            label=" ".join(word for word in (row.site, row.cause) if word),
            cells=(
                number(row.pages),
                *(number(row.hold_ns / 1e3 * factor) for factor in (1 / SPREAD, 1, SPREAD)),
            ),
        )
        for row in times.longest_holds().itertuples()
    ]
    header = Row(heading="caller", label="cause", cells=("pages", "us, low", "us", "us, high"))
    return f"{text_table(header, rows, width=width)}\n"


def spread_table(spread: pd.DataFrame, *, width: int = WIDTH) -> str:
    """What else is valued in time, for costs that are tenfold apart.

    Args:
        spread: of `with_spread`.
        width: characters per line at most.
    """
    rows = [
        Row(
            heading="in time",
            label=str(row.result),
            cells=(number(row.low), number(row.value), number(row.high)),
        )
        for row in spread.itertuples()
        if not str(row.result).startswith(LONGEST_HOLD)
    ]
    header = Row(heading="what", label="unit", cells=("low", "value", "high"))
    return f"{text_table(header, rows, width=width)}\n"


def trylock_line(times: LockTimes) -> str:
    """What trylocks of lists that failed came to."""
    sums = times.trylocks.sum()
    return (
        f"Trylocks of lists that failed: {sums['frees']} of frees and {sums['allocations']} of "
        f"allocations, each one page under zone->lock; "
        f"{count_of(sums['drains_cut_short'], 'drain was', 'drains were')} cut short, "
        f"{count_of(sums['pages_left'], 'page')} stayed on a list."
    )
