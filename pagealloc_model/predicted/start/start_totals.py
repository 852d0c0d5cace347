"""Free pages of the start image brought to the snapshot's totals, where page flags are older."""

from __future__ import annotations

import numpy as np

from pagealloc_model.allocator.core import layout as at
from pagealloc_model.allocator.core.initial import maximal_buddies
from pagealloc_model.predicted.start.start_counts import StartCounts
from pagealloc_model.predicted.start.zone_placement import wanted_buddies
from pagealloc_model.recording.machine import Machine, Zone


def meet_free_totals(
    machine: Machine,
    counts: StartCounts,
    free: np.ndarray,
    touched: np.ndarray,
    spare: list[np.ndarray],
    on_lists: np.ndarray,
    block_types: np.ndarray,
) -> list[str]:
    """Move untouched pages in or out of the buddy until each zone's total fits; say how much.

    Buddies are taken from the lists of which the image has more than the snapshot, small ones
    first, then where that is not enough large ones; pages are added where kpageflags shows no
    flag, hence no known user, then where it shows page cache or anonymous memory.

    Args:
        machine: zones.
        counts: what to meet.
        free: bool per page frame, changed in place.
        touched: bool per page frame: its state is settled.
        spare: bool per page frame each: pages that may be added, the first first.
        on_lists: int64, shape (zones,): pages on per-CPU lists.
        block_types: int8 per pageblock.
    """
    lines = []
    for index, zone in enumerate(machine.zones):
        if not zone.managed:
            continue
        span = slice(zone.start_pfn, zone.end_pfn)
        wanted = int(counts.free_pages[index]) - int(on_lists[index])
        found = int(free[span].sum())
        if found > wanted:
            table = None
            if counts.free_buddies is not None:
                table, _ = wanted_buddies(machine, counts, index, int(on_lists[index]))
            _take_buddies(machine, free, touched, zone, found - wanted, block_types, table)
        elif found < wanted:
            for kind in spare:
                missing = wanted - int(free[span].sum())
                pages = np.flatnonzero(kind[span] & ~free[span])[:missing] + zone.start_pfn
                free[pages] = True
        placed = int(free[span].sum())
        lines.append(
            f"{machine.zone_title(index)}: {placed} pages free in the buddy, {on_lists[index]} "
            f"on per-CPU lists; the start snapshot asks for {wanted} in the buddy, page flags and "
            f"first touches alone gave {found}"
        )
    return lines


def _take_buddies(
    machine: Machine,
    free: np.ndarray,
    touched: np.ndarray,
    zone: Zone,
    surplus: int,
    block_types: np.ndarray,
    wanted: np.ndarray | None,
) -> None:
    """Mark about `surplus` untouched free pages of a zone allocated.

    First whole buddies of which a list has more than the snapshot's table (of one that was
    touched elsewhere, the rest of it), then the largest ones, as a few of them hardly change the
    distribution, then single pages.
    """
    span = _whole_buddies(machine, zone)
    types = block_types[
        span.start >> machine.pageblock_order : span.stop >> machine.pageblock_order
    ]
    pfns, orders = maximal_buddies(free[span], types, machine.pageblock_order, machine.max_order)
    touches = np.flatnonzero(touched[span])
    ends = pfns + (1 << orders.astype(np.int64))
    used = np.searchsorted(touches, ends) - np.searchsorted(touches, pfns)
    pfns += span.start
    inside = (pfns >= zone.start_pfn) & (pfns < zone.end_pfn)
    pfns, orders, used = pfns[inside], orders[inside].astype(np.int64), used[inside]
    types = block_types[pfns >> machine.pageblock_order]
    by_use = np.argsort(used, kind="stable")
    for order in range(machine.max_order + 1) if wanted is not None else ():
        for migratetype in range(at.PCP_TYPES):
            alike = by_use[(orders[by_use] == order) & (types[by_use] == migratetype)]
            room = max(len(alike) - int(wanted[order, migratetype]), 0)
            surplus -= _clear(free, touched, pfns[alike[:room]], order, surplus)
    for order in range(machine.max_order, -1, -1):
        unused = (orders == order) & (used == 0) & free[pfns] & (types < at.PCP_TYPES)
        whole = pfns[unused][: surplus >> order]
        surplus -= _clear(free, touched, whole, order, surplus)
    span = slice(zone.start_pfn, zone.end_pfn)
    single = np.flatnonzero(free[span] & ~touched[span]) + zone.start_pfn
    single = single[block_types[single >> machine.pageblock_order] < at.PCP_TYPES]
    free[single[:surplus]] = False


def _whole_buddies(machine: Machine, zone: Zone) -> slice:
    """The page frames of a zone, and those that share a largest buddy with them."""
    size = 1 << max(machine.max_order, machine.pageblock_order)
    return slice(zone.start_pfn // size * size, -(-zone.end_pfn // size) * size)


def _clear(
    free: np.ndarray, touched: np.ndarray, firsts: np.ndarray, order: int, limit: int
) -> int:
    """Mark untouched pages of buddies allocated, up to a limit; returns how many."""
    span = (firsts.astype(np.int64)[:, None] + np.arange(1 << order)).ravel()
    span = span[~touched[span]][:limit]
    free[span] = False
    return len(span)
