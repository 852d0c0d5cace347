"""Objects as pieces that can be split, moved and reclaimed one by one (T10.1)."""

from __future__ import annotations

import numpy as np

from pagealloc_model.allocator.core import layout as at
from pagealloc_model.allocator.core import pressure_layout as pr
from pagealloc_model.allocator.pressure.lru import lru_add, lru_remove
from pagealloc_model.allocator.pressure.pressure_offsets import word_at
from pagealloc_model.base.jit import inner


@inner
def describe(
    pages: np.ndarray,
    blocks: np.ndarray,
    st: np.ndarray,
    folios: np.ndarray,
    pfn: int,
    number: int,
    offset: int,
    kind: int,
) -> None:
    """Note whose piece a page just allocated is, and put it on the LRU list of its class."""
    folios[pfn]["object"] = number + 1
    folios[pfn]["offset"] = offset
    folios[pfn]["kind"] = kind
    folios[pfn]["place"] = 0
    folios[pfn]["scans"] = 0
    folios[pfn]["writes"] = 0
    folios[pfn]["moves"] = 0
    if kind >= pr.ANON and int(pages[pfn]["tag"]) == 1:
        lru_add(pages, blocks, st, folios, pfn, 2 * (kind - pr.ANON))


@inner
def add_piece(folios: np.ndarray, places: np.ndarray, pfn: int, number: int) -> None:
    """Make a described page the first piece of its object."""
    folios[pfn]["sibling"] = places[number] + 1 if places[number] >= 0 else 0
    places[number] = pfn


@inner
def remove_piece(folios: np.ndarray, places: np.ndarray, pfn: int) -> None:
    """Take a piece out of its object; an object without pieces is LOST."""
    number = int(folios[pfn]["object"]) - 1
    if number < 0:
        return
    following = int(folios[pfn]["sibling"]) - 1
    current = int(places[number])
    if current == pfn:
        places[number] = following if following >= 0 else pr.LOST
        return
    while int(folios[current]["sibling"]) - 1 != pfn:
        current = int(folios[current]["sibling"]) - 1
    folios[current]["sibling"] = following + 1


@inner
def copy_description(folios: np.ndarray, old: int, new: int) -> None:
    """Describe a page on no LRU list as another is described."""
    folios[new]["object"] = folios[old]["object"]
    folios[new]["offset"] = folios[old]["offset"]
    folios[new]["sibling"] = folios[old]["sibling"]
    folios[new]["kind"] = folios[old]["kind"]
    folios[new]["scans"] = folios[old]["scans"]
    folios[new]["writes"] = folios[old]["writes"]
    folios[new]["moves"] = folios[old]["moves"]
    folios[new]["place"] = 0


@inner
def replace_piece(folios: np.ndarray, places: np.ndarray, old: int, new: int) -> None:
    """Let another page take a piece's place in its object."""
    number = int(folios[old]["object"]) - 1
    copy_description(folios, old, new)
    if number < 0:
        return
    current = int(places[number])
    if current == old:
        places[number] = new
        return
    while int(folios[current]["sibling"]) - 1 != old:
        current = int(folios[current]["sibling"]) - 1
    folios[current]["sibling"] = new + 1


@inner
def halve(
    pages: np.ndarray, blocks: np.ndarray, st: np.ndarray, folios: np.ndarray, pfn: int
) -> None:
    """Cut a piece in two; both halves stay on its LRU list, the upper one at the head."""
    lst = lru_remove(pages, blocks, st, folios, pfn)
    order = int(pages[pfn]["order"]) - 1
    upper = pfn + (1 << order)
    pages[pfn]["order"] = order
    pages[upper]["order"] = order
    pages[upper]["where"] = at.ALLOCATED
    pages[upper]["tag"] = pages[pfn]["tag"]
    copy_description(folios, pfn, upper)
    folios[upper]["offset"] = int(folios[pfn]["offset"]) + (1 << order)
    folios[pfn]["sibling"] = upper + 1
    if lst >= 0:
        lru_add(pages, blocks, st, folios, pfn, lst)
        lru_add(pages, blocks, st, folios, upper, lst)


@inner
def queue_free(
    pages: np.ndarray, blocks: np.ndarray, st: np.ndarray, folios: np.ndarray, pfn: int
) -> None:
    """Put a folio, taken out of its object, behind those waiting to be freed."""
    lru_remove(pages, blocks, st, folios, pfn)
    folios[pfn]["object"] = 0
    folios[pfn]["sibling"] = 0
    pages[pfn]["next"] = -1
    tail = st[word_at(st, pr.QUEUE_TAIL)]
    if tail >= 0:
        pages[tail]["next"] = pfn
    else:
        st[word_at(st, pr.QUEUE_HEAD)] = pfn
    st[word_at(st, pr.QUEUE_TAIL)] = pfn


@inner
def piece_in(pages: np.ndarray, folios: np.ndarray, place: int, offset: int, end: int) -> int:
    """The first piece of an object, newest first, that overlaps a range of it; -1 if none does."""
    while place >= 0:
        first = int(folios[place]["offset"])
        if first < end and first + (1 << int(pages[place]["order"])) > offset:
            return place
        place = int(folios[place]["sibling"]) - 1
    return -1


@inner
def queue_range(
    pages: np.ndarray,
    blocks: np.ndarray,
    st: np.ndarray,
    folios: np.ndarray,
    places: np.ndarray,
    number: int,
    offset: int,
    order: int,
) -> int:
    """Queue what an object has left of a range for freeing; returns the pages it lacks."""
    end = offset + (1 << order)
    missing = 1 << order
    piece = piece_in(pages, folios, int(places[number]), offset, end)
    while piece >= 0:
        first = int(folios[piece]["offset"])
        size = 1 << int(pages[piece]["order"])
        if first < offset or first + size > end:
            halve(pages, blocks, st, folios, piece)
        else:
            missing -= size
            remove_piece(folios, places, piece)
            queue_free(pages, blocks, st, folios, piece)
        piece = piece_in(pages, folios, int(places[number]), offset, end)
    return missing
