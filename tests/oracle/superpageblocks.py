"""Superpageblocks of one zone: free lists in two parts, searches by class (S14).

Whether a range is tainted is asked of its blocks whenever it matters; nothing is counted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain

from tests.oracle.buddy import Buddy, Pageblocks, PageList
from tests.oracle.fallback import FALLBACKS, Fallback, should_try_claim_block
from tests.oracle.machine import EventLog, Migratetype, OracleMachine, OracleZone
from tests.oracle.request import Attempt
from tests.oracle.vmstat import FreeCounters

TAINTING = (Migratetype.UNMOVABLE, Migratetype.RECLAIMABLE, Migratetype.HIGHATOMIC)
"""Types of blocks that taint their superpageblock (S14.1)."""

FEW = 8
"""Superpageblocks of a zone up to which fragments are not claimed under NOFRAGMENT (S14.4)."""


class PartedList(PageList):
    """A free list whose pages in clean superpageblocks come before all others (S14.2).

    Attributes:
        clean: the first part.
        tainted: the second.
    """

    def __init__(self, is_tainted: Callable[[int], bool]) -> None:
        super().__init__()
        self.clean = PageList()
        self.tainted = PageList()
        self._is_tainted = is_tainted

    def __iter__(self) -> Iterator[int]:
        return chain(self.clean, self.tainted)

    def __len__(self) -> int:
        return len(self.clean) + len(self.tainted)

    def __contains__(self, pfn: int) -> bool:
        return pfn in self.clean or pfn in self.tainted

    @property
    def head(self) -> int:
        """No kernel function: return the first page, a clean one if there is any."""
        return (self.clean or self.tainted).head

    @property
    def tail(self) -> int:
        """No kernel function: return the last page, a tainted one if there is any."""
        return (self.tainted or self.clean).tail

    def push_head(self, pfn: int) -> None:
        """list_add(): put a page first in its part."""
        self._part_of(pfn).push_head(pfn)

    def push_tail(self, pfn: int) -> None:
        """list_add_tail(): put a page last in its part."""
        self._part_of(pfn).push_tail(pfn)

    def remove(self, pfn: int) -> None:
        """list_del(): take a page from whichever part it is in."""
        (self.clean if pfn in self.clean else self.tainted).remove(pfn)

    def move_freelist_tail(self, pfn: int) -> None:
        """move_freelist_tail(): do nothing; the parts stay as they are (S14.2)."""

    def move_freelist_head(self, pfn: int) -> None:
        """move_freelist_head(): do nothing; the parts stay as they are (S14.2)."""

    def _part_of(self, pfn: int) -> PageList:
        """No kernel function: return the part that a page is listed in."""
        return self.tainted if self._is_tainted(pfn) else self.clean


class SuperpageblockBuddy(Buddy):
    """A zone's buddy with lists in two parts.

    Attributes:
        order: of a superpageblock.
    """

    def __init__(
        self,
        zone: OracleZone,
        machine: OracleMachine,
        blocks: Pageblocks,
        events: EventLog,
        counters: FreeCounters,
        order: int,
    ) -> None:
        super().__init__(zone, machine, blocks, events, counters)
        self.order = order
        self.parts = {key: PartedList(self.is_tainted) for key in self.lists}
        self.lists = dict(self.parts)
        blocks.watchers.append(self._note_retyped)

    @property
    def count(self) -> int:
        """No kernel function: return how many superpageblocks the zone has a page of."""
        if not self.zone.spanned:
            return 0
        return ((self.zone.end_pfn - 1) >> self.order) - (self.zone.start_pfn >> self.order) + 1

    def is_tainted(self, pfn: int) -> bool:
        """No kernel function: return whether a page's superpageblock is tainted (S14.1)."""
        return any(
            self.blocks.type_of(first) in TAINTING
            for first in self._pages_of(pfn)[:: self.blocks.pages]
        )

    def part(self, order: int, migratetype: int, *, tainted: bool) -> PageList:
        """No kernel function: look at one part of a list (S14.6)."""
        self.probes += 1
        parted = self.parts[order, migratetype]
        return parted.tainted if tainted else parted.clean

    def smallest_fit(self, order: int, migratetype: int) -> int | None:
        """Part of __rmqueue_smallest(): return the buddy to cut from, class by class (S14.3)."""
        for tainted in (True,) if migratetype in TAINTING else (False, True):
            for current in range(order, self.max_order + 1):
                part = self.part(current, migratetype, tainted=tainted)
                if part:
                    return part.head
        return None

    def _pages_of(self, pfn: int) -> range:
        """No kernel function: return a superpageblock's pages, outer blocks of the zone whole."""
        first = pfn >> self.order << self.order
        start = max(first, self.blocks.start(self.zone.start_pfn))
        return range(start, min(first + (1 << self.order), self.zone.end_pfn))

    def _note_retyped(self, block: int, before: int, after: int) -> None:
        """No kernel function: move free buddies if a superpageblock changes class (S14.2)."""
        pfn = block << self.blocks.order
        pages = self._pages_of(pfn) if self.zone.spanned else range(0)
        if pfn not in pages or (before in TAINTING) == (after in TAINTING):
            return
        others = (each for each in pages[:: self.blocks.pages] if each != pfn)
        if any(self.blocks.type_of(each) in TAINTING for each in others):
            return
        for each in pages:
            buddy = self.at(each)
            if buddy is not None:
                free_list = self.lists[buddy.order, buddy.migratetype]
                free_list.remove(each)
                free_list.push_tail(each)


class SuperpageblockFallback(Fallback):
    """Fallbacks of kernel memory look in tainted superpageblocks first (S14.4, S14.5)."""

    buddy: SuperpageblockBuddy

    def _rmqueue_claim(self, order: int, migratetype: int, attempt: Attempt) -> int | None:
        """__rmqueue_claim(): claim in tainted superpageblocks, then in clean ones (S14.4)."""
        if migratetype == Migratetype.MOVABLE:
            return super()._rmqueue_claim(order, migratetype, attempt)
        for tainted in (True, False):
            pfn = self._claim_in(order, migratetype, attempt, tainted=tainted)
            if pfn is not None:
                return pfn
        return None

    def _claim_in(
        self, order: int, migratetype: int, attempt: Attempt, *, tainted: bool
    ) -> int | None:
        """Part of __rmqueue_claim(): claim from buddies of one class, the largest first."""
        lowest = order
        if attempt.nofragment and not (tainted and self.buddy.count > FEW):
            lowest = max(order, self.buddy.blocks.order)
        for current in range(self.buddy.max_order, lowest - 1, -1):
            assert should_try_claim_block(self.buddy, current, migratetype)
            found = self._found(current, migratetype, tainted=tainted)
            if found is None:
                continue
            pfn, fallback = found
            if current >= self.buddy.blocks.order:
                self.buddy.take_as(pfn, order, migratetype)
                taken: int | None = pfn
            else:
                taken = self._claim_fragment(
                    pfn, order, migratetype, fallback, attempt, whatever=tainted
                )
            if taken is not None:
                self.buddy.events.extfrag(taken, order, current, migratetype, fallback, True)
                return taken
        return None

    def _claim_fragment(
        self,
        pfn: int,
        order: int,
        migratetype: int,
        fallback: int,
        attempt: Attempt,
        *,
        whatever: bool,
    ) -> int | None:
        """try_to_claim_block(): claim a buddy's block, whatever is in it or if it suits."""
        if self.watermarks.boost_watermark() and attempt.kswapd:
            self.boosted = True
        if not self.buddy.zone_holds_block(pfn):
            return None
        suitable = self._suitable_pages(pfn, migratetype, fallback)
        if not whatever and suitable < self.buddy.blocks.pages // 2:
            return None
        self.buddy.move_freepages_block(pfn, migratetype)
        return self.buddy.rmqueue_smallest(order, migratetype)

    def _rmqueue_steal(self, order: int, migratetype: int) -> int | None:
        """__rmqueue_steal(): steal in tainted superpageblocks, then in clean ones (S14.5)."""
        if migratetype == Migratetype.MOVABLE:
            return super()._rmqueue_steal(order, migratetype)
        for tainted in (True, False):
            for current in range(order, self.buddy.max_order + 1):
                found = self._found(current, migratetype, tainted=tainted)
                if found is not None:
                    pfn, fallback = found
                    self.buddy.take(pfn, order)
                    self.buddy.events.extfrag(pfn, order, current, migratetype, fallback, False)
                    return pfn
        return None

    def _found(self, order: int, migratetype: int, *, tainted: bool) -> tuple[int, int] | None:
        """find_suitable_fallback(): return a buddy of one class and its type, or None."""
        for fallback in FALLBACKS[migratetype]:
            part = self.buddy.part(order, fallback, tainted=tainted)
            if part:
                return part.head, fallback
        return None
