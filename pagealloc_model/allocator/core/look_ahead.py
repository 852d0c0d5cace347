"""Pages that events to come will free are asked for early: memory is slower than the kernels."""

from __future__ import annotations

import numpy as np

from pagealloc_model.allocator.core import layout as at
from pagealloc_model.allocator.core.prefetch import prefetch
from pagealloc_model.base.jit import hot

AHEAD = 16
"""Events between asking for a page and its free. Memory answers in less time than they take."""


@hot
def place_ahead(m: at.MachineArrays, events: np.ndarray, position: int, high: int) -> int:
    """No kernel function: return where the object of an event to come lives now, or less than 0.

    Nothing is decided by it: until then the object may have moved.
    """
    if position + AHEAD >= high:
        return -1
    number = int(events[position + AHEAD]["object"])
    return int(m.places[number]) if number >= 0 else -1


@hot
def look_ahead(m: at.MachineArrays, events: np.ndarray, position: int, high: int) -> int:
    """No kernel function: ask for the record of a page that an event to come will free.

    Also for two that its way to the zone reads, which may lie in other cache lines: its buddy's,
    and that of the buddy of both. Where the object of an event twice as far lives is asked for by
    itself: objects are freed in any order. Returns the page. Where there is none the first page's
    is asked for, since looking up an address of no memory takes long.
    """
    prefetch(m.places, int(events[min(position + 2 * AHEAD, high - 1)]["object"]))
    place = place_ahead(m, events, position, high)
    page = max(place, 0)
    prefetch(m.pages, page)
    prefetch(m.pages, page ^ 1)
    prefetch(m.pages, (page & ~1) ^ 2)
    return place
