"""What a recorded compaction run takes from a zone's free lists, and what it captures (S10.4)."""

from __future__ import annotations

from tests.oracle.allocated import AllocatedPages
from tests.oracle.machine import Migratetype
from tests.oracle.zone import Zone


class FreeScanner:
    """Takes free pages as one scan after the other; a buddy is dealt out before the next is taken.

    Nothing that it does is counted as work under zone->lock.
    """

    def __init__(self, allocated: AllocatedPages) -> None:
        self._allocated = allocated
        self._held: list[int] = []

    def next_piece(self, zone: Zone, order: int, wanted: int) -> int | None:
        """fast_isolate_freepages(): return the next piece of a scan.

        The scan has yet to take so many pages, this piece included.
        """
        if len(self._held) < 1 << order:
            self._hold(zone, order, wanted)
        if not self._held:
            return None
        pfn = self._held[0]
        del self._held[: 1 << order]
        self._allocated.add(pfn, order, movable=True)
        zone.note_taken(pfn, order)
        return pfn

    def _hold(self, zone: Zone, order: int, wanted: int) -> None:
        """Part of fast_isolate_freepages(): hold a free buddy, the largest that a scan may take."""
        machine = zone.machine
        types = [Migratetype.MOVABLE, machine.cma, Migratetype.RECLAIMABLE, Migratetype.UNMOVABLE]
        for migratetype in (each for each in types if each is not None):
            for size in range(machine.pageblock_order - 1, -1, -1):
                fits = order == size or (order < size and 1 << size <= wanted)
                if fits and not zone.buddy.is_empty(size, migratetype):
                    pfn = zone.buddy.lists[size, migratetype].tail
                    zone.buddy.take(pfn, size)
                    self._held = list(range(pfn, pfn + (1 << size)))
                    return
            found = take_uncounted(zone, order, migratetype)
            if found is not None:
                self._held = list(range(found, found + (1 << order)))
                return


def take_uncounted(zone: Zone, order: int, migratetype: int) -> int | None:
    """__rmqueue_smallest(): return the smallest fit of one type (S5.1), without event or work."""
    splits = zone.events.work.splits
    pfn = zone.buddy.smallest_fit(order, migratetype)
    if pfn is not None:
        zone.buddy.take(pfn, order)
        zone.events.work.splits = splits
    return pfn
