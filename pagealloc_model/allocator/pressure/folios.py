"""Objects as pieces that can be split, moved and reclaimed one by one (T10.1)."""

from __future__ import annotations

from pagealloc_model.allocator.core import layout as at
from pagealloc_model.allocator.core import pressure_layout as pr
from pagealloc_model.allocator.core.page_free import __free_frozen_pages
from pagealloc_model.allocator.pressure.lru import lruvec_add_folio, lruvec_del_folio
from pagealloc_model.allocator.pressure.pressure_offsets import word_at
from pagealloc_model.allocator.pressure.slab_list import join_slabs, leave_slabs
from pagealloc_model.base.jit import inner


@inner
def describe(m: at.MachineArrays, pfn: int, number: int, offset: int, kind: int) -> None:
    """No kernel function: note whose piece a page just allocated is.

    It goes on the list of its class: an LRU list, or that of slabs that shrinkers can empty.
    """
    m.folios[pfn]["object"] = number + 1
    m.folios[pfn]["offset"] = offset
    m.folios[pfn]["kind"] = kind
    m.folios[pfn]["place"] = 0
    m.folios[pfn]["scans"] = 0
    m.folios[pfn]["writes"] = 0
    m.folios[pfn]["referenced"] = 0
    m.folios[pfn]["slab"] = 0
    if kind >= pr.ANON and int(m.pages[pfn]["tag"]) == 1:
        lruvec_add_folio(m, pfn, 2 * (kind - pr.ANON))
    elif kind == pr.RECLAIMABLE:
        join_slabs(m, pfn)


@inner
def add_piece(m: at.MachineArrays, pfn: int, number: int) -> None:
    """No kernel function: make a described page the first piece of its object."""
    m.folios[pfn]["sibling"] = m.places[number] + 1 if m.places[number] >= 0 else 0
    m.places[number] = pfn


@inner
def remove_piece(m: at.MachineArrays, pfn: int) -> None:
    """No kernel function: take a piece out of its object; an object without pieces is LOST."""
    number = int(m.folios[pfn]["object"]) - 1
    if number < 0:
        return
    following = int(m.folios[pfn]["sibling"]) - 1
    current = int(m.places[number])
    if current == pfn:
        m.places[number] = following if following >= 0 else pr.LOST
        return
    while int(m.folios[current]["sibling"]) - 1 != pfn:
        current = int(m.folios[current]["sibling"]) - 1
    m.folios[current]["sibling"] = following + 1


@inner
def copy_description(m: at.MachineArrays, old: int, new: int) -> None:
    """No kernel function: describe a page on no LRU list as another is described."""
    m.folios[new]["object"] = m.folios[old]["object"]
    m.folios[new]["offset"] = m.folios[old]["offset"]
    m.folios[new]["sibling"] = m.folios[old]["sibling"]
    m.folios[new]["kind"] = m.folios[old]["kind"]
    m.folios[new]["scans"] = m.folios[old]["scans"]
    m.folios[new]["writes"] = m.folios[old]["writes"]
    m.folios[new]["referenced"] = m.folios[old]["referenced"]
    m.folios[new]["place"] = 0
    m.folios[new]["slab"] = 0


@inner
def replace_piece(m: at.MachineArrays, old: int, new: int) -> None:
    """No kernel function: let another page take a piece's place in its object."""
    number = int(m.folios[old]["object"]) - 1
    copy_description(m, old, new)
    if number < 0:
        return
    current = int(m.places[number])
    if current == old:
        m.places[number] = new
        return
    while int(m.folios[current]["sibling"]) - 1 != old:
        current = int(m.folios[current]["sibling"]) - 1
    m.folios[current]["sibling"] = new + 1


@inner
def halve(m: at.MachineArrays, pfn: int) -> None:
    """No kernel function: cut a piece in two.

    Both halves stay on its LRU list, the upper one at the head. A slab leaves the list of slabs.
    """
    leave_slabs(m, pfn)
    lst = lruvec_del_folio(m, pfn)
    order = int(m.pages[pfn]["order"]) - 1
    upper = pfn + (1 << order)
    m.pages[pfn]["order"] = order
    m.pages[upper]["order"] = order
    m.pages[upper]["where"] = at.ALLOCATED
    m.pages[upper]["tag"] = m.pages[pfn]["tag"]
    m.pages[upper]["flags"] = m.pages[pfn]["flags"]
    copy_description(m, pfn, upper)
    m.folios[upper]["offset"] = int(m.folios[pfn]["offset"]) + (1 << order)
    m.folios[pfn]["sibling"] = upper + 1
    if lst >= 0:
        lruvec_add_folio(m, pfn, lst)
        lruvec_add_folio(m, upper, lst)


@inner
def leave_lists(m: at.MachineArrays, pfn: int) -> None:
    """No kernel function: take a folio that is about to be freed off the list of its class.

    It has been taken out of its object.
    """
    lruvec_del_folio(m, pfn)
    leave_slabs(m, pfn)
    m.folios[pfn]["object"] = 0
    m.folios[pfn]["sibling"] = 0
    m.pages[pfn]["next"] = -1


@inner
def queue_free(m: at.MachineArrays, pfn: int) -> None:
    """No kernel function: put a folio behind those that wait to be freed.

    It has been taken out of its object.
    """
    leave_lists(m, pfn)
    tail = m.st[word_at(m, pr.QUEUE_TAIL)]
    if tail >= 0:
        m.pages[tail]["next"] = pfn
    else:
        m.st[word_at(m, pr.QUEUE_HEAD)] = pfn
    m.st[word_at(m, pr.QUEUE_TAIL)] = pfn


@inner
def queue_free_first(m: at.MachineArrays, pfn: int) -> None:
    """No kernel function: put a folio before those that wait to be freed.

    It has been taken out of its object.
    """
    leave_lists(m, pfn)
    head = word_at(m, pr.QUEUE_HEAD)
    m.pages[pfn]["next"] = m.st[head]
    if m.st[head] < 0:
        m.st[word_at(m, pr.QUEUE_TAIL)] = pfn
    m.st[head] = pfn


@inner
def free_at_once(m: at.MachineArrays, pfn: int) -> None:
    """No kernel function: free a folio on the CPU at work while others wait for that.

    It has been taken out of its object.
    """
    leave_lists(m, pfn)
    __free_frozen_pages(m, m.st[at.EVENT_CPU], pfn, int(m.pages[pfn]["order"]), False)


@inner
def free_waiting(m: at.MachineArrays) -> None:
    """free_unref_folios(): free the folios that wait, on the CPU at work."""
    head = word_at(m, pr.QUEUE_HEAD)
    pfn = m.st[head]
    m.st[head] = -1
    m.st[word_at(m, pr.QUEUE_TAIL)] = -1
    while pfn >= 0:
        following = int(m.pages[pfn]["next"])
        order = int(m.pages[pfn]["order"])
        __free_frozen_pages(m, m.st[at.EVENT_CPU], pfn, order, False)
        pfn = following


@inner
def is_piece(m: at.MachineArrays, pfn: int, offset: int, order: int) -> bool:
    """No kernel function: return whether a piece is a range of its object, no more and no less."""
    return int(m.folios[pfn]["offset"]) == offset and int(m.pages[pfn]["order"]) == order


@inner
def free_piece(m: at.MachineArrays, pfn: int, order: int) -> None:
    """No kernel function: free a piece on the CPU at work, while no other folio waits for that."""
    remove_piece(m, pfn)
    leave_lists(m, pfn)
    __free_frozen_pages(m, m.st[at.EVENT_CPU], pfn, order, False)


@inner
def piece_in(m: at.MachineArrays, place: int, offset: int, end: int) -> int:
    """No kernel function: return the newest piece of an object in a range of it, or -1."""
    while place >= 0:
        first = int(m.folios[place]["offset"])
        if first < end and first + (1 << int(m.pages[place]["order"])) > offset:
            return place
        place = int(m.folios[place]["sibling"]) - 1
    return -1


@inner
def queue_range(m: at.MachineArrays, number: int, offset: int, order: int) -> int:
    """No kernel function: queue what an object has left of a range for freeing.

    Returns how many pages it lacks.
    """
    end = offset + (1 << order)
    missing = 1 << order
    piece = piece_in(m, int(m.places[number]), offset, end)
    while piece >= 0:
        first = int(m.folios[piece]["offset"])
        size = 1 << int(m.pages[piece]["order"])
        if first < offset or first + size > end:
            halve(m, piece)
        else:
            missing -= size
            remove_piece(m, piece)
            queue_free(m, piece)
        piece = piece_in(m, int(m.places[number]), offset, end)
    return missing
