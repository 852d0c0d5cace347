"""Sites of zone->lock as tables name them (S11.1); an attempt that found no page stands apart.

A refill finds nothing where the zone passed its watermark and yet has no page of the order and
type, or too little for it; the request then asks the zone's buddy, which finds nothing either, and
goes on to the next zone. Under pressure most attempts on a zone end so. The kernel takes zone->lock
for each of them, so they are part of every time at the lock; but they move nothing, leave no event,
and would make a count of refills mean something else than the recording's.
"""

from __future__ import annotations

import numpy as np

from pagealloc_model.allocator.core import layout as at

EMPTY_REFILL, EMPTY_BUDDY_ALLOC = at.SITES, at.SITES + 1
SITE_NAMES = {
    at.SITE_REFILL: ("refill", ""),
    at.SITE_DRAIN_COMMIT: ("drain", "commit"),
    at.SITE_DRAIN_DECAY: ("drain", "decay"),
    at.SITE_DRAIN_ALL: ("drain", "drain_all"),
    at.SITE_BUDDY_ALLOC: ("buddy_alloc", ""),
    at.SITE_DIRECT_FREE: ("direct_free", ""),
    at.SITE_RESERVE: ("reserve", ""),
    at.SITE_UNRESERVE: ("unreserve", ""),
    at.SITE_BOOST_RESET: ("boost_reset", ""),
    EMPTY_REFILL: ("empty_refill", ""),
    EMPTY_BUDDY_ALLOC: ("empty_buddy_alloc", ""),
}
"""Site and cause of each of `named_sites`."""
EMPTY_SITES = (SITE_NAMES[EMPTY_REFILL][0], SITE_NAMES[EMPTY_BUDDY_ALLOC][0])
_OBJECTS = 6


def named_sites(log: np.ndarray) -> np.ndarray:
    """Return the site of each hold, a key of `SITE_NAMES`.

    Args:
        log: int64, shape (rows, LOG_COLUMNS), without rows of pages.
    """
    site = log[:, 0]
    found_nothing = log[:, _OBJECTS] == 0
    site = np.where(found_nothing & (site == at.SITE_REFILL), EMPTY_REFILL, site)
    return np.where(found_nothing & (site == at.SITE_BUDDY_ALLOC), EMPTY_BUDDY_ALLOC, site)
