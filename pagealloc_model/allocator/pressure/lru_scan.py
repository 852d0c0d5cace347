"""What a scan of the LRU lists does to their pages (S10.5)."""

from __future__ import annotations

from pagealloc_model.allocator.core import layout as at
from pagealloc_model.allocator.core import pressure_layout as pr
from pagealloc_model.allocator.core.offsets import zone_at
from pagealloc_model.allocator.pressure.draws import is_dirty, is_referenced
from pagealloc_model.allocator.pressure.folios import (
    free_at_once,
    free_waiting,
    queue_free,
    queue_free_first,
)
from pagealloc_model.allocator.pressure.lru import (
    lru_move,
    lruvec_add_folio,
    lruvec_del_folio,
    page_zone,
)
from pagealloc_model.allocator.pressure.pressure_offsets import (
    node_pressure_at,
    value_of,
    word_at,
    zone_pressure_at,
)
from pagealloc_model.allocator.pressure.refaults import (
    workingset_age_nonresident,
    workingset_eviction,
)
from pagealloc_model.base.jit import inner

SKIPPED_MOST = pr.CLUSTER << 10
"""Folios in too high zones that one scan passes over, where that is capped."""


@inner
def int_sqrt(value: int) -> int:
    """int_sqrt(): return the integer square root of a small number."""
    root = 0
    while (root + 1) * (root + 1) <= value:
        root += 1
    return root


@inner
def node_lru_pages(m: at.MachineArrays, node: int, lst: int) -> int:
    """Part of lruvec_page_state(): return the pages on one of a node's lists."""
    return m.st[node_pressure_at(m, node) + pr.NODE_PAGES + lst]


@inner
def lruvec_lru_size(m: at.MachineArrays, node: int, lst: int, highest_type: int) -> int:
    """lruvec_lru_size(): return the pages on a node's list in zones up to a type."""
    first = node * m.st[at.ZONE_TYPES]
    pages = 0
    for zone in range(first, first + highest_type + 1):
        pages += m.st[zone_pressure_at(m, zone) + pr.ZONE_PAGES + lst]
    return pages


@inner
def inactive_is_low(m: at.MachineArrays, node: int, inactive: int) -> bool:
    """inactive_is_low(): return whether an inactive list is short beside its active one."""
    pages = node_lru_pages(m, node, inactive)
    active = node_lru_pages(m, node, inactive + 1)
    return pages * max(1, int_sqrt(10 * ((pages + active) >> 18))) < active


@inner
def is_skipped(m: at.MachineArrays, pfn: int, highest_type: int, skipped: int) -> bool:
    """Part of isolate_lru_folios(): return whether a scan passes over a folio.

    Its zone is too high. Newer kernels take even those after many in a row.
    """
    if m.st[zone_at(page_zone(m, pfn)) + at.ZONE_TYPE] <= highest_type:
        return False
    return not m.st[at.RULE_LRU_SKIPS_CAPPED] or skipped < SKIPPED_MOST


@inner
def shrink_active_list(
    m: at.MachineArrays, node: int, inactive: int, budget: int, highest_type: int
) -> None:
    """shrink_active_list(): move pages from an active list's tail to its inactive one.

    It looks at `budget` pages; those in too high zones go to the active list's head and do not
    count.
    """
    words = node_pressure_at(m, node) + pr.NODE_LISTS + (inactive + 1) * at.LIST_WORDS
    entries = m.st[words + at.ENTRIES]
    moved = 0
    skipped = 0
    while moved < budget and entries > 0:
        entries -= 1
        pfn = m.st[words + at.TAIL]
        if is_skipped(m, pfn, highest_type, skipped):
            skipped += 1
            lru_move(m, pfn, inactive + 1)
        else:
            moved += 1 << int(m.pages[pfn]["order"])
            lru_move(m, pfn, inactive)
    m.st[word_at(m, pr.PGDEACTIVATE)] += moved


@inner
def isolate_lru_folios(
    m: at.MachineArrays, node: int, inactive: int, budget: int, highest_type: int
) -> tuple[int, int, int]:
    """isolate_lru_folios(): take pages off an inactive list's tail.

    Those in too high zones go to its head instead and do not count.

    Returns:
        The first page taken, linked to the others by `next`, -1 for none; pages taken; pages looked
        at.
    """
    words = node_pressure_at(m, node) + pr.NODE_LISTS + inactive * at.LIST_WORDS
    entries = m.st[words + at.ENTRIES]
    first = -1
    last = -1
    taken = 0
    looked = 0
    skipped = 0
    while taken < budget and entries > 0:
        entries -= 1
        pfn = m.st[words + at.TAIL]
        looked += 1 << int(m.pages[pfn]["order"])
        if is_skipped(m, pfn, highest_type, skipped):
            skipped += 1
            lru_move(m, pfn, inactive)
        else:
            taken += 1 << int(m.pages[pfn]["order"])
            lruvec_del_folio(m, pfn)
            m.pages[pfn]["next"] = -1
            if last >= 0:
                m.pages[last]["next"] = pfn
            else:
                first = pfn
            last = pfn
    return first, taken, looked


@inner
def free_reclaimed(m: at.MachineArrays, pfn: int, size: int) -> None:
    """Part of shrink_folio_list(): let a folio wait to be freed with its cluster (S10.6).

    Older kernels free the last one taken first, and those of several pages at once.
    """
    if not m.st[at.RULE_RECLAIM_FREES_BACKWARDS]:
        queue_free(m, pfn)
    elif size == 1:
        queue_free_first(m, pfn)
    else:
        free_at_once(m, pfn)


@inner
def shrink_inactive_list(
    m: at.MachineArrays, node: int, inactive: int, budget: int, sc: int
) -> tuple[int, int]:
    """shrink_inactive_list(): look at pages from an inactive list's tail; free what may go.

    It looks at `budget` pages of zones that the scan is for. A page in use becomes active, a dirty
    one goes to the list's head.

    Returns:
        Pages looked at and pages freed.
    """
    pfn, taken, looked = isolate_lru_folios(m, node, inactive, budget, m.st[sc + pr.SC_HIGHEST])
    m.st[sc + pr.SC_SCANNED] += taken
    freed = 0
    while pfn >= 0:
        following = int(m.pages[pfn]["next"])
        size = 1 << int(m.pages[pfn]["order"])
        if is_referenced(m, pfn):
            lruvec_add_folio(m, pfn, inactive + 1)
            m.st[word_at(m, pr.PGACTIVATE)] += size
            workingset_age_nonresident(m, pfn)
        elif is_dirty(m, pfn):
            lruvec_add_folio(m, pfn, inactive)
        else:
            workingset_eviction(m, pfn)
            free_reclaimed(m, pfn, size)
            freed += size
        pfn = following
    free_waiting(m)
    return looked, freed


@inner
def reclaim_cost(m: at.MachineArrays, node: int, scanned: int, freed: int, is_kswapd: int) -> int:
    """No kernel function: return the time that a scan of a node takes, ns."""
    each = value_of(m, pr.RECLAIM_FREE_NS)
    if is_kswapd:
        each = m.st[node_pressure_at(m, node) + pr.KSWAPD_FREE_NS]
    return max(scanned * value_of(m, pr.RECLAIM_SCAN_NS) + freed * each, 1000)


@inner
def zone_reclaimable_pages(m: at.MachineArrays, zone: int) -> int:
    """zone_reclaimable_pages(): return the pages of a zone that reclaim could free (S8.3).

    Older kernels count its free pages where there are none.
    """
    words = zone_pressure_at(m, zone) + pr.ZONE_PAGES
    size = m.st[words + pr.INACTIVE_FILE] + m.st[words + pr.ACTIVE_FILE]
    if value_of(m, pr.ANON_SCAN_PERCENT) > 0:
        size += m.st[words + pr.INACTIVE_ANON] + m.st[words + pr.ACTIVE_ANON]
    if size == 0 and m.st[at.RULE_FREE_COUNTS_AS_RECLAIMABLE]:
        return m.st[zone_at(zone) + at.ZONE_FREE]
    return size
