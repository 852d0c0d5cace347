"""Allocated pages under pressure: pieces of objects, LRU lists, slabs, draws, refaults (S10)."""

from __future__ import annotations

import numpy as np

from pagealloc_model.allocator import layout as at
from pagealloc_model.allocator import pressure_layout as pr
from pagealloc_model.allocator.layout import zone_at
from pagealloc_model.allocator.lists import list_add, list_del
from pagealloc_model.allocator.page_free import __free_frozen_pages
from pagealloc_model.allocator.pressure_layout import (
    node_pressure_at,
    value_of,
    word_at,
    zone_pressure_at,
)
from pagealloc_model.base.jit import entry, inner


@inner
def page_zone(m: at.Arrays, pfn: int) -> int:
    """page_zone(): return the zone that a page lies in."""
    return int(m.blocks[pfn >> m.st[at.PAGEBLOCK_ORDER]]["zone"]) - 1


@inner
def update_lru_size(m: at.Arrays, node: int, zone: int, lst: int, change: int) -> None:
    """update_lru_size(): count pages that joined a list or left it, by offsets of the words."""
    m.st[node + pr.NODE_PAGES + lst] += change
    m.st[zone + pr.ZONE_PAGES + lst] += change


@inner
def lruvec_add_folio(m: at.Arrays, pfn: int, lst: int) -> None:
    """lruvec_add_folio(): put an allocated folio at a list's head."""
    zone = page_zone(m, pfn)
    node_words = node_pressure_at(m, m.st[zone_at(zone) + at.ZONE_NODE])
    zone_words = zone_pressure_at(m, zone)
    m.folios[pfn]["place"] = lst + 1
    list_add(m.pages, m.st, node_words + pr.NODE_LISTS + lst * at.LIST_WORDS, pfn)
    update_lru_size(m, node_words, zone_words, lst, 1 << int(m.pages[pfn]["order"]))


@inner
def lruvec_del_folio(m: at.Arrays, pfn: int) -> int:
    """lruvec_del_folio(): take a folio off its list, if it is on one; returns the list, or -1."""
    lst = int(m.folios[pfn]["place"]) - 1
    if lst < 0:
        return -1
    zone = page_zone(m, pfn)
    node_words = node_pressure_at(m, m.st[zone_at(zone) + at.ZONE_NODE])
    zone_words = zone_pressure_at(m, zone)
    m.folios[pfn]["place"] = 0
    list_del(m.pages, m.st, node_words + pr.NODE_LISTS + lst * at.LIST_WORDS, pfn)
    update_lru_size(m, node_words, zone_words, lst, -(1 << int(m.pages[pfn]["order"])))
    return lst


@inner
def lru_move(m: at.Arrays, pfn: int, lst: int) -> None:
    """Move a folio from its list to the head of another, or of the same."""
    lruvec_del_folio(m, pfn)
    lruvec_add_folio(m, pfn, lst)


@inner
def zone_reclaimable_pages(m: at.Arrays, zone: int) -> int:
    """zone_reclaimable_pages(): return what reclaim could free, or free pages if none (S8.3)."""
    words = zone_pressure_at(m, zone) + pr.ZONE_PAGES
    size = m.st[words + pr.INACTIVE_FILE] + m.st[words + pr.ACTIVE_FILE]
    if value_of(m, pr.ANON_SCAN_PERCENT) > 0:
        size += m.st[words + pr.INACTIVE_ANON] + m.st[words + pr.ACTIVE_ANON]
    if size == 0 and m.st[at.RULE_FREE_COUNTS_AS_RECLAIMABLE]:  # up to 6.18
        return m.st[zone_at(zone) + at.ZONE_FREE]
    return size


REFERENCED, DIRTY, MIGRATES, CONTENDS, SURVIVES = 1, 2, 3, 4, 5
_MASK = (1 << 31) - 1


@inner
def mixed(value: int) -> int:
    """Return a well mixed number of 31 bits, by two rounds in 62 bits."""
    value &= _MASK
    for _ in range(2):
        value ^= value >> 16
        value = (value * 0x45D9F3B) & _MASK
    return value ^ (value >> 16)


@inner
def draw(m: at.Arrays, key: int, purpose: int, number: int) -> int:
    """Return a number below 1000 for a question of a purpose about a key."""
    return mixed(mixed(mixed(value_of(m, pr.SEED) + key) + purpose) + number) % 1000


@inner
def key_of(m: at.Arrays, pfn: int) -> int:
    """Return what draws about a folio go by: its object, or its page."""
    number = int(m.folios[pfn]["object"])
    return number if number > 0 else -1 - pfn


@inner
def run_of(m: at.Arrays, pfn: int) -> int:
    """Part of do_fault_around(): return what pages that are mapped together draw by (S10.5)."""
    number = int(m.folios[pfn]["object"])
    return number >> pr.RUN_SHIFT if number > 0 else -1 - (pfn >> pr.RUN_SHIFT)


@inner
def is_referenced(m: at.Arrays, pfn: int) -> bool:
    """Part of folio_check_references(): draw; returns whether a scan finds a folio in use."""
    share = pr.FILE_REFERENCED if int(m.folios[pfn]["kind"]) == pr.FILE else pr.ANON_REFERENCED
    number = int(m.folios[pfn]["scans"])
    m.folios[pfn]["scans"] = (number + 1) & 255
    return draw(m, run_of(m, pfn), REFERENCED, number) < value_of(m, share)


@inner
def is_dirty(m: at.Arrays, pfn: int) -> bool:
    """Part of folio_check_dirty_writeback(): draw; returns whether a file's page is dirty."""
    if int(m.folios[pfn]["kind"]) != pr.FILE:
        return False
    number = int(m.folios[pfn]["writes"])
    m.folios[pfn]["writes"] = (number + 1) & 255
    return draw(m, key_of(m, pfn), DIRTY, number) < value_of(m, pr.FILE_DIRTY)


@inner
def migration_fails(m: at.Arrays, pfn: int) -> bool:
    """Part of migrate_pages(): draw, once for each folio, whether it cannot be moved (S10.5)."""
    is_file = int(m.folios[pfn]["kind"]) == pr.FILE
    share = pr.FILE_MIGRATION_FAILS if is_file else pr.ANON_MIGRATION_FAILS
    return draw(m, key_of(m, pfn), MIGRATES, int(m.folios[pfn]["offset"])) < value_of(m, share)


@inner
def slab_survives(m: at.Arrays, pfn: int) -> bool:
    """Draw, once for each slab, whether it keeps an object for good (S10.8)."""
    number = int(m.folios[pfn]["offset"])
    return draw(m, key_of(m, pfn), SURVIVES, number) < value_of(m, pr.SLAB_SURVIVORS)


@inner
def slab_words(m: at.Arrays, pfn: int) -> int:
    """Return the offset of the words of the node that a slab lies in."""
    return node_pressure_at(m, m.st[zone_at(page_zone(m, pfn)) + at.ZONE_NODE])


@inner
def leave_slabs(m: at.Arrays, pfn: int) -> None:
    """Take a slab off its list, if it is on it, with what objects it has."""
    objects = int(m.folios[pfn]["slab"])
    if objects == 0:
        return
    words = slab_words(m, pfn)
    m.folios[pfn]["slab"] = 0
    m.st[words + pr.SLAB_FREEABLE] -= objects
    list_del(m.pages, m.st, words + pr.SLAB_LIST, pfn)


@entry
def place_on_lists(m: at.Arrays, pfns: np.ndarray, lists: np.ndarray) -> None:
    """Push allocated pages on their LRU lists' heads, in the order given.

    Args:
        m: the machine; classes of folios are written.
        pfns: int32, first pages of allocations.
        lists: int8, their lists.
    """
    for index in range(len(pfns)):
        pfn = int(pfns[index])
        lst = int(lists[index])
        m.folios[pfn]["kind"] = pr.ANON + lst // 2
        lruvec_add_folio(m, pfn, lst)


@inner
def describe(m: at.Arrays, pfn: int, number: int, offset: int, kind: int) -> None:
    """Note whose piece a new page is; it goes on the list of its class."""
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
        words = slab_words(m, pfn)
        objects = value_of(m, pr.SLAB_OBJECTS) - slab_survives(m, pfn)
        m.folios[pfn]["slab"] = objects
        m.st[words + pr.SLAB_FREEABLE] += objects
        list_add(m.pages, m.st, words + pr.SLAB_LIST, pfn)


@inner
def add_piece(m: at.Arrays, pfn: int, number: int) -> None:
    """Make a described page the first piece of its object."""
    m.folios[pfn]["sibling"] = m.places[number] + 1 if m.places[number] >= 0 else 0
    m.places[number] = pfn


@inner
def remove_piece(m: at.Arrays, pfn: int) -> None:
    """Take a piece out of its object; an object without pieces is LOST."""
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
def copy_description(m: at.Arrays, old: int, new: int) -> None:
    """Describe a page on no LRU list as another is described."""
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
def replace_piece(m: at.Arrays, old: int, new: int) -> None:
    """Let another page take a piece's place in its object."""
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
def halve(m: at.Arrays, pfn: int) -> None:
    """Cut a piece in two."""
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
def leave_lists(m: at.Arrays, pfn: int) -> None:
    """Take a folio, out of its object already, off the list of its class."""
    lruvec_del_folio(m, pfn)
    leave_slabs(m, pfn)
    m.folios[pfn]["object"] = 0
    m.folios[pfn]["sibling"] = 0
    m.pages[pfn]["next"] = -1


@inner
def queue_free(m: at.Arrays, pfn: int) -> None:
    """Put a folio, out of its object, behind those waiting to be freed."""
    leave_lists(m, pfn)
    tail = m.st[word_at(m, pr.QUEUE_TAIL)]
    if tail >= 0:
        m.pages[tail]["next"] = pfn
    else:
        m.st[word_at(m, pr.QUEUE_HEAD)] = pfn
    m.st[word_at(m, pr.QUEUE_TAIL)] = pfn


@inner
def free_waiting(m: at.Arrays) -> None:
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
def piece_in(m: at.Arrays, place: int, offset: int, end: int) -> int:
    """Return the newest piece of an object in a range of it, or -1."""
    while place >= 0:
        first = int(m.folios[place]["offset"])
        if first < end and first + (1 << int(m.pages[place]["order"])) > offset:
            return place
        place = int(m.folios[place]["sibling"]) - 1
    return -1


@inner
def queue_range(m: at.Arrays, number: int, offset: int, order: int) -> int:
    """Queue what an object has left of a range; returns the pages it lacks."""
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


AGES = 1 << 30
"""Ages are counted modulo this, divided by the number of nodes."""


@inner
def node_of(m: at.Arrays, pfn: int) -> int:
    """Return the node that a page lies in."""
    return m.st[zone_at(page_zone(m, pfn)) + at.ZONE_NODE]


@inner
def node_words(m: at.Arrays, pfn: int) -> int:
    """Return the offset of the words of the node that a page lies in."""
    return node_pressure_at(m, node_of(m, pfn))


@inner
def pack_shadow(m: at.Arrays, pfn: int) -> int:
    """pack_shadow(): return the place of an object that reclaim took: node and age, below LOST."""
    node = node_of(m, pfn)
    ages = AGES // m.st[at.NR_NODES]
    age = m.st[node_pressure_at(m, node) + pr.NODE_AGE] % ages
    return pr.LOST - 1 - (node * ages + age)


@inner
def workingset_age_nonresident(m: at.Arrays, pfn: int) -> None:
    """workingset_age_nonresident(): count the pages of a folio evicted or activated."""
    m.st[node_words(m, pfn) + pr.NODE_AGE] += 1 << int(m.pages[pfn]["order"])


@inner
def workingset_eviction(m: at.Arrays, pfn: int) -> None:
    """workingset_eviction(): take a folio that reclaim frees out of its object."""
    number = int(m.folios[pfn]["object"]) - 1
    shadow = pack_shadow(m, pfn)
    workingset_age_nonresident(m, pfn)
    remove_piece(m, pfn)
    if number >= 0 and m.places[number] == pr.LOST and int(m.folios[pfn]["kind"]) == pr.FILE:
        m.places[number] = shadow


@inner
def folio_mark_accessed(m: at.Arrays, pfn: int) -> None:
    """folio_mark_accessed(): note a use; the second one moves an inactive folio up (S10.7)."""
    lst = int(m.folios[pfn]["place"]) - 1
    if not m.folios[pfn]["referenced"]:
        m.folios[pfn]["referenced"] = 1
    elif lst == pr.INACTIVE_FILE:
        m.folios[pfn]["referenced"] = 0
        lru_move(m, pfn, pr.ACTIVE_FILE)
        m.st[word_at(m, pr.PGACTIVATE)] += 1 << int(m.pages[pfn]["order"])
        workingset_age_nonresident(m, pfn)


@inner
def workingset_test_recent(m: at.Arrays, place: int) -> bool:
    """workingset_test_recent(): return whether more memory would have kept a page read again."""
    ages = AGES // m.st[at.NR_NODES]
    shadow = pr.LOST - 1 - place
    words = node_pressure_at(m, shadow // ages)
    distance = (m.st[words + pr.NODE_AGE] - shadow % ages) % ages
    pages = words + pr.NODE_PAGES
    size = m.st[pages + pr.ACTIVE_FILE]
    if value_of(m, pr.ANON_SCAN_PERCENT) > 0:
        size += m.st[pages + pr.ACTIVE_ANON] + m.st[pages + pr.INACTIVE_ANON]
    return distance <= size


@inner
def workingset_refault(m: at.Arrays, pfn: int, place: int) -> None:
    """workingset_refault(): count a page that was read again; a recent one becomes active."""
    size = 1 << int(m.pages[pfn]["order"])
    m.st[word_at(m, pr.WORKINGSET_REFAULT_FILE)] += size
    if int(m.folios[pfn]["place"]) - 1 != pr.INACTIVE_FILE or not workingset_test_recent(m, place):
        return
    lru_move(m, pfn, pr.ACTIVE_FILE)
    m.st[word_at(m, pr.WORKINGSET_ACTIVATE_FILE)] += size
    workingset_age_nonresident(m, pfn)
