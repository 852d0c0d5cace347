"""Sites of zone->lock (S11.1): where the kernel takes it, by name, for every room.

The table lies here, in the first room that needs it: the log's codes are the model's own, and the
recorded side, the predicted side and numbers/ name the same sites.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from pagealloc_model.allocator import layout as at
from pagealloc_model.recording.trace.columns import Event

EMPTY_REFILL, EMPTY_BUDDY_ALLOC = at.SITES, at.SITES + 1
"""Codes beside the log's: of holds that found no page."""


@dataclass(frozen=True, kw_only=True)
class Site:
    """One site.

    Attributes:
        name: in every table.
        causes: by code, why it was taken; {} of a site that the model does not perform.
        colour: in figures.
        event: what shows a hold; None where only kprobes or lock events do.
        measured: a recording can show holds of it.
        moves: it moves pages between free lists and others.
        left_out: why the model has none.
    """

    name: str
    causes: Mapping[int, str] = field(default_factory=dict)
    colour: str = ""
    event: Event | None = None
    measured: bool = False
    moves: bool = False
    left_out: str = ""


_MOVES = {"moves": True, "measured": True}
_DRAINS = {
    at.SITE_DRAIN_COMMIT: "commit",
    at.SITE_DRAIN_DECAY: "decay",
    at.SITE_DRAIN_ALL: "drain_all",
}
SITES = (
    Site(
        name="refill",
        causes={at.SITE_REFILL: ""},
        colour="#0072B2",
        event=Event.ZONE_LOCKED,
        **_MOVES,
    ),
    Site(name="drain", causes=_DRAINS, colour="#D55E00", event=Event.PCPU_DRAIN, **_MOVES),
    Site(name="buddy_alloc", causes={at.SITE_BUDDY_ALLOC: ""}, colour="#009E73", **_MOVES),
    Site(name="direct_free", causes={at.SITE_DIRECT_FREE: ""}, colour="#8A6D00", **_MOVES),
    Site(name="reserve", causes={at.SITE_RESERVE: ""}, colour="#A0487E"),
    Site(name="unreserve", causes={at.SITE_UNRESERVE: ""}, colour="#595959"),
    Site(name="boost_reset", causes={at.SITE_BOOST_RESET: ""}, colour="#B00020"),
    Site(name="empty_refill", causes={EMPTY_REFILL: ""}, colour="#3E83A8", measured=True),
    Site(name="empty_buddy_alloc", causes={EMPTY_BUDDY_ALLOC: ""}, colour="#5B8C5A"),
    Site(
        name="compaction_scan",
        left_out="compaction is replayed by what it took and freed, not by how it searched",
    ),
    Site(name="page_reporting", left_out="a balloon that reports free pages leaves no event"),
    Site(
        name="proc_readers",
        left_out="who reads buddyinfo, zoneinfo or pagetypeinfo is in no recording",
    ),
    Site(name="watermark_update", left_out="sysctls are not changed during a replay"),
    Site(name="growth", left_out="memory that a zone gets is put into its lists without a hold"),
    Site(
        name="isolation",
        left_out="contiguous ranges, hotplug and memory failure are not replayed",
    ),
)
PERFORMED = tuple(site.name for site in SITES if site.causes)
"""Sites that the model has."""
MOVING = tuple(site.name for site in SITES if site.moves)
EMPTY_SITES = ("empty_refill", "empty_buddy_alloc")
"""Attempts that found no page."""
BY_NAME = {site.name: site for site in SITES}
MEASURED = tuple(site.name for site in SITES if site.measured)
CAUSES = ("", *_DRAINS.values())
_BY_CODE = sorted((code, site.name, cause) for site in SITES for code, cause in site.causes.items())
NAMES, CAUSES_BY_CODE = np.array([row[1:] for row in _BY_CODE], object).T
"""Site and cause of each code, shape (codes,)."""
