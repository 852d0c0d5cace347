"""Free pages of old page flags that no event touches: as many as the start snapshot counts.

Flags are read seconds before the first event. Where memory has been allocated since, they show
pages as free that no event of the recording tells to be in use.
"""

from __future__ import annotations

import numpy as np

from pagealloc_model.allocator.initial import maximal_buddies
from pagealloc_model.machine import Machine
from pagealloc_model.old_flags import TOO_OLD, buddy_table, misplaced
from pagealloc_model.start_counts import StartCounts
from pagealloc_model.zone_placement import wanted_buddies


def drop_uncounted(
    machine: Machine,
    counts: StartCounts,
    listed_pages: np.ndarray,
    known: np.ndarray,
    free: np.ndarray,
    block_types: np.ndarray,
) -> list[str]:
    """Leave out, zone by zone, what flags show free beyond what the counts leave room for.

    Only in zones whose flags are too old (see `old_flags`). Free buddies that events show count
    first; of the others, as many stay of each order and type as the counts have more, those at the
    end of the zone first, where the kernel hands memory out last.

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
    shares = misplaced(machine, counts, listed_pages, free, block_types)
    shown = free & ~known
    sure = buddy_table(machine, known, block_types)
    pfns, orders = maximal_buddies(shown, block_types, machine.pageblock_order, machine.max_order)
    types = block_types[pfns >> machine.pageblock_order].astype(np.int64)
    for index in np.flatnonzero(shares > TOO_OLD).tolist():
        zone = machine.zones[index]
        wanted, _ = wanted_buddies(machine, counts, index, int(listed_pages[index]))
        room = np.maximum(wanted - sure[index], 0)
        dropped = 0
        for place in range(len(pfns) - 1, -1, -1):
            pfn, order, migratetype = int(pfns[place]), int(orders[place]), int(types[place])
            if not zone.start_pfn <= pfn < zone.end_pfn:
                continue
            if migratetype >= 0 and room[order, migratetype] > 0:
                room[order, migratetype] -= 1
            else:
                free[pfn : pfn + (1 << order)] = False
                dropped += 1 << order
        lines.append(
            f"{machine.zone_title(index)}: {dropped} pages that page flags show free and no event "
            "touches are left out: the flags are older than the start snapshot, which has no room "
            "for them"
        )
    return lines
