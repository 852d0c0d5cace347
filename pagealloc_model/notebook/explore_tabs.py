"""The explorer's tabs: what each draws of base, candidate and what was measured."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pagealloc_model.notebook.explore_sides import BASE, CANDIDATE, Sides
from pagealloc_model.show import figures
from pagealloc_model.show.figures.faceted import Drawing

MOST_ORDERS = 3
"""Orders whose outcomes are drawn, the largest asked for."""


@dataclass(frozen=True, kw_only=True)
class Tab:
    """One view.

    Attributes:
        name: names it in calls.
        label: the button's words.
        tooltip: what it shows.
        draw: from both sides to drawings, to stand below each other. What never moves under a
            candidate stands apart from what does, so that it is not drawn again.
    """

    name: str
    label: str
    tooltip: str
    draw: Callable[[Sides], tuple[Drawing, ...]]


def _fragmentation(sides: Sides) -> tuple[Drawing, ...]:
    over_time = [
        figures.free_pages_by_order.drawing(
            sides.recorded("free_pages"), sides.predicted("free_pages")
        ),
        figures.free_pages_by_migratetype.drawing(
            sides.recorded("free_pages"), sides.predicted("free_pages")
        ),
    ]
    taken = figures.fallbacks.drawing(sides.recorded("fallbacks"), sides.predicted("fallbacks"))
    return _linked([*over_time, taken], over_time)


def _pageblocks(sides: Sides) -> tuple[Drawing, ...]:
    maps = {
        "before": sides.before(),
        BASE: sides.blocks(sides.base),
        CANDIDATE: sides.blocks(sides.candidate),
    }
    types = frozenset(maps[CANDIDATE]["migratetype"].unique())
    return (
        sides.kept(
            ("pageblocks", types),
            lambda: figures.pageblock_map.drawing(maps, (BASE, CANDIDATE), ("before", BASE)),
        ),
        figures.pageblock_map.drawing(maps, (BASE, CANDIDATE), (CANDIDATE,)),
    )


def _pcp(sides: Sides) -> tuple[Drawing, ...]:
    counts = figures.pcp_counts.drawing(sides.recorded("pcp"), sides.predicted("pcp"))
    sizes = figures.transaction_sizes.drawing(
        sides.recorded("transactions"), sides.predicted("transactions")
    )
    return _linked([counts, sizes], [counts])


def _locks(sides: Sides) -> tuple[Drawing, ...]:
    rates = figures.transaction_rates.drawing(sides.recorded("lock"), sides.predicted("lock"))
    times = {
        BASE: sides.acquisitions(sides.base),
        CANDIDATE: sides.acquisitions(sides.candidate),
    }
    return _linked([rates, figures.lock_times.drawing(times)], [rates])


def _outcomes(sides: Sides) -> tuple[Drawing, ...]:
    asked = sides.base.outcomes["order"].unique()
    parts = [
        figures.outcomes.drawing(
            sides.recorded("outcomes"), sides.predicted("outcomes"), int(order)
        )
        for order in sorted(asked)[-MOST_ORDERS:]
    ]
    return (figures.stacked.drawing(parts),)


def _linked(parts: Sequence[Drawing], over_time: Sequence[Drawing]) -> tuple[Drawing, ...]:
    """Figures below each other; those over time, which come first, zoom together."""
    whole = figures.stacked.drawing(parts)
    linked = sum(name.startswith("xaxis") for each in over_time for name in each.layout)
    for axis in range(2, linked + 1):
        whole.layout[f"xaxis{axis}"]["matches"] = "x"
    return (whole,)


TABS = (
    Tab(
        name="fragmentation",
        label="Fragmentation",
        tooltip="free pages by order and migratetype, fallbacks",
        draw=_fragmentation,
    ),
    Tab(
        name="pageblocks",
        label="Pageblocks",
        tooltip="a map of every pageblock by type and occupancy: before, after, difference",
        draw=_pageblocks,
    ),
    Tab(
        name="pcp",
        label="PCP",
        tooltip="per-CPU lists: their lengths, sizes of refills and drains",
        draw=_pcp,
    ),
    Tab(
        name="locks",
        label="Locks",
        tooltip="zone->lock: acquisitions, holds and waits",
        draw=_locks,
    ),
    Tab(
        name="outcomes",
        label="Outcomes",
        tooltip="what requests of each order asked for and got",
        draw=_outcomes,
    ),
)
