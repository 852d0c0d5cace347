"""Pages of files that are used: what reclaim took must be read again (S10.7)."""

from __future__ import annotations

from pagealloc_model.allocator.core import layout as at
from pagealloc_model.allocator.core import pressure_layout as pr
from pagealloc_model.allocator.core.offsets import zone_at
from pagealloc_model.allocator.pressure.folios import remove_piece
from pagealloc_model.allocator.pressure.lru import lru_move, page_zone
from pagealloc_model.allocator.pressure.pressure_offsets import (
    node_pressure_at,
    value_of,
    word_at,
)
from pagealloc_model.base.jit import inner

AGES = 1 << 30
"""Ages are counted modulo this, divided by the number of nodes."""


@inner
def node_of(m: at.MachineArrays, pfn: int) -> int:
    """No kernel function: return the node that a page lies in."""
    return m.st[zone_at(page_zone(m, pfn)) + at.ZONE_NODE]


@inner
def node_words(m: at.MachineArrays, pfn: int) -> int:
    """No kernel function: return the offset of the words of the node that a page lies in."""
    return node_pressure_at(m, node_of(m, pfn))


@inner
def pack_shadow(m: at.MachineArrays, pfn: int) -> int:
    """pack_shadow(): return the place of an object that reclaim took: node and age, below LOST."""
    node = node_of(m, pfn)
    ages = AGES // m.st[at.NR_NODES]
    age = m.st[node_pressure_at(m, node) + pr.NODE_AGE] % ages
    return pr.LOST - 1 - (node * ages + age)


@inner
def workingset_age_nonresident(m: at.MachineArrays, pfn: int) -> None:
    """workingset_age_nonresident(): count the pages of a folio evicted or activated."""
    m.st[node_words(m, pfn) + pr.NODE_AGE] += 1 << int(m.pages[pfn]["order"])


@inner
def workingset_eviction(m: at.MachineArrays, pfn: int) -> None:
    """workingset_eviction(): take a folio that reclaim frees out of its object.

    An object of a file that has no piece left remembers its node, and that node's age before this.
    """
    number = int(m.folios[pfn]["object"]) - 1
    shadow = pack_shadow(m, pfn)
    workingset_age_nonresident(m, pfn)
    remove_piece(m, pfn)
    if number >= 0 and m.places[number] == pr.LOST and int(m.folios[pfn]["kind"]) == pr.FILE:
        m.places[number] = shadow


@inner
def folio_mark_accessed(m: at.MachineArrays, pfn: int) -> None:
    """folio_mark_accessed(): note a use; the second one moves an inactive folio to the active list.

    S10.7.
    """
    lst = int(m.folios[pfn]["place"]) - 1
    if not m.folios[pfn]["referenced"]:
        m.folios[pfn]["referenced"] = 1
    elif lst == pr.INACTIVE_FILE:
        m.folios[pfn]["referenced"] = 0
        lru_move(m, pfn, pr.ACTIVE_FILE)
        m.st[word_at(m, pr.PGACTIVATE)] += 1 << int(m.pages[pfn]["order"])
        workingset_age_nonresident(m, pfn)


@inner
def workingset_test_recent(m: at.MachineArrays, place: int) -> bool:
    """workingset_test_recent(): return whether a page read again would have stayed in more memory.

    That is, whether of the node that it was taken from no more pages were evicted or activated
    since than are active.
    """
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
def workingset_refault(m: at.MachineArrays, pfn: int, place: int) -> None:
    """workingset_refault(): count a page that was read again; a recent one becomes active.

    Args:
        m: the machine.
        pfn: the page, on its inactive list.
        place: of its object, as reclaim left it.
    """
    size = 1 << int(m.pages[pfn]["order"])
    m.st[word_at(m, pr.WORKINGSET_REFAULT_FILE)] += size
    if int(m.folios[pfn]["place"]) - 1 != pr.INACTIVE_FILE or not workingset_test_recent(m, place):
        return
    lru_move(m, pfn, pr.ACTIVE_FILE)
    m.st[word_at(m, pr.WORKINGSET_ACTIVATE_FILE)] += size
    workingset_age_nonresident(m, pfn)


@inner
def is_read_again(m: at.MachineArrays, number: int, order: int, recorded: bool) -> bool:
    """No kernel function: take up a use of a file's pages; return whether they must be read.

    `recorded`: the recording shows them read then.
    """
    place = int(m.places[number])
    if place >= 0:
        folio_mark_accessed(m, place)
        m.st[word_at(m, pr.SPARED_READS)] += recorded << order
        return False
    missing = place < pr.LOST or place == -1
    m.st[word_at(m, pr.ADDED_READS)] += (missing and not recorded) << order
    return missing
