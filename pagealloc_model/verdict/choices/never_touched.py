"""Free pages of old page flags that no event touches: as many as the start snapshot counts.

Flags are read seconds before the first event. Where memory has been allocated since, they show
pages as free that no event of the recording tells to be in use.
"""

from __future__ import annotations

import numpy as np

from pagealloc_model.allocator.core import layout as at
from pagealloc_model.allocator.core.initial import maximal_buddies
from pagealloc_model.predicted.start.old_flags import TOO_OLD, buddy_table
from pagealloc_model.predicted.start.start_counts import StartCounts
from pagealloc_model.predicted.start.zone_placement import wanted_buddies
from pagealloc_model.recording.machine import Machine


def drop_uncounted(
    machine: Machine,
    counts: StartCounts,
    listed_pages: np.ndarray,
    known: np.ndarray,
    free: np.ndarray,
    block_types: np.ndarray,
) -> list[str]:
    """Leave out, zone by zone, what flags show free beyond what the counts leave room for.

    Only in zones that would have more free pages than counted (by the share TOO_OLD of
    `old_flags`). Free buddies that events show count first; of the others, as many stay of each
    order and type as the counts have more, those at the end of the zone first, where the kernel
    hands memory out last. A block without events is taken for Movable here as elsewhere.

    Args:
        machine: zones and geometry.
        counts: what the start snapshot counts; without its pagetypeinfo nothing is done.
        listed_pages: int64, shape (zones,): pages on per-CPU lists.
        known: bool per page frame: free at the start by an event.
        free: bool per page frame: by an event or by flags; changed in place.
        block_types: int8 per pageblock.

    Returns:
        One line for each zone with pages left out.
    """
    lines: list[str] = []
    if counts.free_buddies is None:
        return lines
    sure = buddy_table(machine, known, block_types)
    pfns, orders = maximal_buddies(
        free & ~known, block_types, machine.pageblock_order, machine.max_order
    )
    for index, zone in enumerate(machine.zones):
        if not zone.managed:
            continue
        wanted, _ = wanted_buddies(machine, counts, index, int(listed_pages[index]))
        counted = int((wanted.sum(axis=1) << np.arange(at.ORDERS)).sum())
        if int(free[zone.start_pfn : zone.end_pfn].sum()) <= counted * (1 + TOO_OLD):
            continue
        room = np.maximum(wanted - sure[index], 0)
        dropped = 0
        mine = np.flatnonzero((pfns >= zone.start_pfn) & (pfns < zone.end_pfn))
        for place in mine[::-1].tolist():
            pfn, order = int(pfns[place]), int(orders[place])
            cell = order, int(block_types[pfn >> machine.pageblock_order])
            if room[cell] > 0:
                room[cell] -= 1
            else:
                free[pfn : pfn + (1 << order)] = False
                dropped += 1 << order
        lines.append(
            f"{machine.zone_title(index)}: {dropped} pages that page flags show free and no event "
            "touches are left out: the flags are older than the start snapshot, which has no room "
            "for them"
        )
    return lines
