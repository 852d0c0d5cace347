"""How long zone->lock is held and waited for: distributions by site (S11)."""

from __future__ import annotations

import numpy as np
import pandas as pd

from pagealloc_model.show.figures.drawing import Drawing, FigureFunction
from pagealloc_model.show.figures.lanes import Lane, Tables, count_trace, lanes
from pagealloc_model.show.figures.panel_grid import PanelGrid

SMALLEST_NS = 64
STEP_POWERS = 4
"""Bins are shown in groups of so many: up to 1 us, to 16 us, to 262 us."""
LABEL_EVERY = 2
"""Bins from one label to the next: so they stand upright in a panel of half a page."""
UNITS = (("s", 1e9), ("ms", 1e6), ("us", 1e3), ("ns", 1.0))
PANELS = (
    ("refills, held", "refill", "hold_ns"),
    ("drains, held", "drain", "hold_ns"),
    ("refills, waited for", "refill", "wait_ns"),
    ("drains, waited for", "drain", "wait_ns"),
)
EMPTY_REFILL = "empty_refill"
EMPTY_PANELS = (
    ("empty refills, held", EMPTY_REFILL, "hold_ns"),
    ("empty refills, waited for", EMPTY_REFILL, "wait_ns"),
)
"""Refills that found no page; drawn where there are any."""


def _in_words(time_ns: int) -> str:
    """A time to two digits, short enough to stand below a bar."""
    unit, size = next((unit, size) for unit, size in UNITS if time_ns >= 0.99 * size)
    return f"{float(f'{time_ns / size:.2g}'):g}{unit}"


WORDS = [_in_words(SMALLEST_NS << power) for power in range(32)]
"""Of all bins, up to minutes; bins are drawn at their numbers, so that more move in place."""
HOVER = "%{customdata}: %{y}<extra>%{fullData.name}</extra>"


@FigureFunction
def lock_times(predicted: Tables) -> Drawing:
    """How many refills and drains held, and waited for, zone->lock for how long.

    Times are binned by powers of two; who did not wait is left out. The counts' axis is
    logarithmic where there are many.

    Args:
        predicted: acquisitions with `site`, `hold_ns` and `wait_ns`, or such tables by label.
    """
    drawn = lanes(None, predicted)
    panels = PANELS
    if any((lane.table["site"] == EMPTY_REFILL).any() for lane in drawn):
        panels += EMPTY_PANELS
    grid = PanelGrid(
        [title for title, _, _ in panels],
        title="zone->lock: time held and time waited for",
        x_title="time (from t up to 2t)",
        y_title="acquisitions",
        columns=2,
        x_axis={
            "tickvals": list(range(0, len(WORDS), LABEL_EVERY)),
            "ticktext": WORDS[::LABEL_EVERY],
            "tickangle": 0,
        },
    )
    for panel, (_, site, column) in enumerate(panels):
        counts = {lane.key: _binned(lane, site, column) for lane in drawn}
        bins = _all_bins(list(counts.values()))
        grid.count_along(
            "y", panel, max((each.max() for each in counts.values() if len(each)), default=0)
        )
        absent = {lane.label: "none" for lane in drawn if counts[lane.key].empty}
        for lane in drawn:
            shown = counts[lane.key].reindex(bins)
            shown.index = range(len(bins))
            trace = count_trace(lane, shown, f"{site}/{column}", in_legend=panel == 0)
            grid.add(trace | {"customdata": WORDS, "hovertemplate": HOVER}, panel)
        grid.note_missing(panel, absent)
    return grid.drawing()


def _binned(lane: Lane, site: str, column: str) -> pd.Series:
    """Acquisitions by the largest power of two (ns) not above their time."""
    times = lane.table[column].to_numpy()
    times = times[(lane.table["site"] == site).to_numpy() & (times > 0)]
    powers = np.floor(np.log2(np.maximum(times.astype(np.int64), SMALLEST_NS))).astype(np.int64)
    bins, counts = np.unique(powers, return_counts=True)
    return pd.Series(counts.astype(float), index=np.int64(1) << bins)


def _all_bins(counts: list[pd.Series]) -> list[int]:
    """Every power of two from `SMALLEST_NS` to the largest bin of any histogram.

    The end is rounded up to steps of `STEP_POWERS`, so that another policy seldom has another.
    """
    seen = [int(each).bit_length() - 1 for count in counts for each in count.index]
    if not seen:
        return []
    begin = SMALLEST_NS.bit_length() - 1
    end = -(-(max(seen) + 1 - begin) // STEP_POWERS) * STEP_POWERS + begin
    return [1 << power for power in range(begin, end)]
