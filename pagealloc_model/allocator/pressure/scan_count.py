"""How far reclaim looks into each LRU list (S10.6)."""

from __future__ import annotations

from pagealloc_model.allocator.core import layout as at
from pagealloc_model.allocator.core import pressure_layout as pr
from pagealloc_model.allocator.core.counters import seen_free
from pagealloc_model.allocator.core.offsets import zone_at
from pagealloc_model.allocator.core.watermark import wmark_pages
from pagealloc_model.allocator.pressure.lru_scan import (
    inactive_is_low,
    lruvec_lru_size,
    node_lru_pages,
)
from pagealloc_model.allocator.pressure.pressure_offsets import value_of
from pagealloc_model.base.jit import inner

MOST_SWAPPINESS = 200
BY_SIZE, BY_SWAPPINESS, ONLY_ANON, ONLY_FILE = range(4)


@inner
def sc_swappiness(m: at.MachineArrays) -> int:
    """sc_swappiness(): return the setting that scans `anon_scan_percent` of file's share."""
    percent = value_of(m, pr.ANON_SCAN_PERCENT)
    return MOST_SWAPPINESS * percent // (100 + percent)


@inner
def prepare_scan_control(m: at.MachineArrays, node: int, sc: int) -> None:
    """prepare_scan_control(): decide which active lists may shrink and which lists lead."""
    priority = m.st[sc + pr.SC_PRIORITY]
    bits = 0
    if m.st[sc + pr.SC_FORCE_DEACTIVATE] or inactive_is_low(m, node, pr.INACTIVE_ANON):
        bits |= pr.DEACTIVATE_ANON
    if m.st[sc + pr.SC_FORCE_DEACTIVATE] or inactive_is_low(m, node, pr.INACTIVE_FILE):
        bits |= pr.DEACTIVATE_FILE
    m.st[sc + pr.SC_MAY_DEACTIVATE] = bits
    inactive = node_lru_pages(m, node, pr.INACTIVE_FILE)
    m.st[sc + pr.SC_CACHE_TRIM] = (
        inactive >> priority > 0
        and not bits & pr.DEACTIVATE_FILE
        and not m.st[sc + pr.SC_NO_CACHE_TRIM]
    )
    file = inactive + node_lru_pages(m, node, pr.ACTIVE_FILE)
    marks = 0
    first = node * m.st[at.ZONE_TYPES]
    for zone in range(first, first + m.st[at.ZONE_TYPES]):
        if m.st[zone_at(zone) + at.ZONE_MANAGED] > 0:
            marks += wmark_pages(m, zone, at.WMARK_HIGH)
        file += seen_free(m, zone)
    m.st[sc + pr.SC_FILE_IS_TINY] = (
        file <= marks
        and not bits & pr.DEACTIVATE_ANON
        and node_lru_pages(m, node, pr.INACTIVE_ANON) >> priority > 0
    )


@inner
def scan_balance(m: at.MachineArrays, sc: int) -> int:
    """Part of get_scan_count(): return how a scan divides between ANON's lists and FILE's."""
    if not m.st[sc + pr.SC_MAY_SWAP] or value_of(m, pr.ANON_SCAN_PERCENT) == 0:
        return ONLY_FILE
    if m.st[sc + pr.SC_PRIORITY] == 0 and sc_swappiness(m) > 0:
        return BY_SIZE
    if m.st[sc + pr.SC_FILE_IS_TINY]:
        return ONLY_ANON
    if m.st[sc + pr.SC_CACHE_TRIM]:
        return ONLY_FILE
    return BY_SWAPPINESS


@inner
def get_scan_count(m: at.MachineArrays, node: int, sc: int) -> None:
    """get_scan_count(): set how many pages a scan looks at on each list."""
    balance = scan_balance(m, sc)
    swappiness = sc_swappiness(m)
    for lst in range(pr.LRU_LISTS):
        is_file = lst >= pr.INACTIVE_FILE
        pages = lruvec_lru_size(m, node, lst, m.st[sc + pr.SC_HIGHEST])
        pages >>= m.st[sc + pr.SC_PRIORITY]
        if balance == BY_SWAPPINESS:
            share = MOST_SWAPPINESS - swappiness if is_file else swappiness
            pages = pages * share // MOST_SWAPPINESS
        elif balance != BY_SIZE and is_file != (balance == ONLY_FILE):
            pages = 0
        m.st[sc + pr.SC_LEFT + lst] = pages
        m.st[sc + pr.SC_TARGETS + lst] = pages
