"""Fixed colours and marks: a migratetype or an order looks the same in every figure.

The hues of the migratetypes are the Okabe-Ito set, which stays distinct under the common colour
blindnesses; order colours run from dark to light, so that they also rank in a grey print. All
stand out from white by 3 to 1 or more, as WCAG 2 AA asks of graphics.
"""

from __future__ import annotations

MIGRATETYPES: tuple[str, ...] = (
    "Unmovable",
    "Movable",
    "Reclaimable",
    "HighAtomic",
    "CMA",
    "Isolate",
)

MIGRATETYPE_COLOURS: dict[str, str] = {
    "Unmovable": "#D55E00",
    "Movable": "#0072B2",
    "Reclaimable": "#009E73",
    "HighAtomic": "#A0487E",
    "CMA": "#8A6D00",
    "Isolate": "#595959",
}

ORDER_COLOURS: tuple[str, ...] = (
    "#00204D",
    "#002B66",
    "#08366F",
    "#27426D",
    "#3B4C6C",
    "#4C576C",
    "#5B626E",
    "#696D71",
    "#72726D",
    "#7A7769",
    "#827C64",
    "#8B8260",
    "#94875C",
    "#9C8C58",
)

SITE_COLOURS: dict[str, str] = {
    "refill": "#0072B2",
    "drain": "#D55E00",
    "buddy_alloc": "#009E73",
    "direct_free": "#8A6D00",
    "reserve": "#A0487E",
    "unreserve": "#595959",
    "boost_reset": "#B00020",
    "empty_refill": "#3E83A8",
    "empty_buddy_alloc": "#5B8C5A",
}

PREDICTION_COLOURS: tuple[str, ...] = ("#0072B2", "#D55E00", "#009E73", "#A0487E")
"""Colours of predictions where one panel shows several and no other key needs colour."""

PREDICTION_DASHES: tuple[str, ...] = ("solid", "dash", "dot", "dashdot")
"""Line patterns of the first, second, ... prediction in a figure."""

PREDICTION_PATTERNS: tuple[str, ...] = ("", "/", ".", "x")
"""Fill patterns of their bars."""

MEASUREMENT_SYMBOLS: tuple[str, ...] = ("circle-open", "diamond-open", "square-open", "cross-open")
"""Marks of the first, second, ... recording in a figure."""

INK = "#222222"
GRID = "#D9D9D9"
MODEBAR = {"color": "#595959", "activecolor": INK, "bgcolor": "rgba(255,255,255,0.85)"}
"""Plotly's own buttons, which are too faint by default."""


def migratetype_colour(migratetype: str) -> str:
    """Colour of a migratetype as /proc/pagetypeinfo spells it."""
    return MIGRATETYPE_COLOURS.get(migratetype, INK)


def order_colour(order: int) -> str:
    """Colour of a buddy order; orders above 13 share the last one."""
    return ORDER_COLOURS[min(order, len(ORDER_COLOURS) - 1)]


def site_colour(site: str) -> str:
    """Colour of a zone->lock site (S11.1)."""
    return SITE_COLOURS.get(site, INK)
