"""Superpageblocks of one zone: free lists in two parts, searches by class (S14).

Whether a range is tainted is asked of its blocks whenever it matters; nothing is counted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain
from typing import TYPE_CHECKING

from tests.oracle.buddy import Buddy, PageList
from tests.oracle.fallback import FALLBACKS, Fallback, Found, Search
from tests.oracle.machine import Migratetype
from tests.oracle.request import Attempt

if TYPE_CHECKING:
    from tests.oracle.zone import Zone

TAINTING = (Migratetype.UNMOVABLE, Migratetype.RECLAIMABLE, Migratetype.HIGHATOMIC)
"""Types of blocks that taint their superpageblock (S14.1)."""

FEW = 8  # superpageblocks of a zone up to which fragments are not claimed under NOFRAGMENT (S14.4)


class PartedList(PageList):
    """A free list whose pages in clean superpageblocks come before all others (S14.2)."""

    def __init__(self, is_tainted: Callable[[int], bool]) -> None:
        super().__init__()
        self.clean = PageList()  # the first part
        self.tainted = PageList()  # the second
        self._is_tainted = is_tainted

    def __iter__(self) -> Iterator[int]:
        return chain(self.clean, self.tainted)

    def __len__(self) -> int:
        return len(self.clean) + len(self.tainted)

    def __contains__(self, pfn: int) -> bool:
        return pfn in self.clean or pfn in self.tainted

    @property
    def head(self) -> int:
        return (self.clean or self.tainted).head

    @property
    def tail(self) -> int:
        return (self.tainted or self.clean).tail

    def push_head(self, pfn: int) -> None:
        """list_add(): put a page first in its part."""
        (self.tainted if self._is_tainted(pfn) else self.clean).push_head(pfn)

    def push_tail(self, pfn: int) -> None:
        """list_add_tail(): put a page last in its part."""
        (self.tainted if self._is_tainted(pfn) else self.clean).push_tail(pfn)

    def remove(self, pfn: int) -> None:
        """list_del(): take a page from whichever part it is in."""
        (self.clean if pfn in self.clean else self.tainted).remove(pfn)

    def move_freelist_tail(self, pfn: int) -> None:
        """move_freelist_tail(): do nothing; the parts stay as they are (S14.2)."""

    def move_freelist_head(self, pfn: int) -> None:
        """move_freelist_head(): do nothing; the parts stay as they are (S14.2)."""


class SuperpageblockBuddy(Buddy):
    """A zone's buddy with lists in two parts."""

    lists: dict[tuple[int, int], PartedList]

    def __init__(self, zone: Zone) -> None:
        super().__init__(zone)
        self.order = zone.policy.superpageblock_order  # of a superpageblock
        self.lists = {key: PartedList(self.is_tainted) for key in self.lists}
        self.blocks.watchers.append(self._note_retyped)

    @property
    def count(self) -> int:
        """Superpageblocks that the zone has a page of."""
        spec = self.zone.spec
        return ((spec.end_pfn - 1) >> self.order) - (spec.start_pfn >> self.order) + 1

    def is_tainted(self, pfn: int) -> bool:
        """Whether a page's superpageblock is tainted (S14.1)."""
        return any(
            self.blocks.type_of(first) in TAINTING
            for first in self._pages_of(pfn)[:: self.blocks.pages]
        )

    def part(self, order: int, migratetype: int, *, tainted: bool) -> PageList:
        """Look at one part of a list (S14.6)."""
        self.probes += 1
        parted = self.lists[order, migratetype]
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
        """A superpageblock's pages, outer blocks of the zone whole."""
        first = pfn >> self.order << self.order
        start = max(first, self.blocks.start(self.zone.spec.start_pfn))
        return range(start, min(first + (1 << self.order), self.zone.spec.end_pfn))

    def _note_retyped(self, block: int, before: int, after: int) -> None:
        """Move free buddies if a superpageblock changes class (S14.2)."""
        pfn = block << self.blocks.order
        pages = self._pages_of(pfn) if self.zone.spec.spanned else range(0)
        if pfn not in pages or (before in TAINTING) == (after in TAINTING):
            return
        others = (first for first in pages[:: self.blocks.pages] if first != pfn)
        if any(self.blocks.type_of(first) in TAINTING for first in others):
            return
        for page in self.free_in(pages):
            free_list = self.lists[self.at(page)]
            free_list.remove(page)
            free_list.push_tail(page)


class SuperpageblockFallback(Fallback):
    """Fallbacks of kernel memory look in tainted superpageblocks first (S14.4, S14.5)."""

    buddy: SuperpageblockBuddy

    def _rmqueue_claim(self, order: int, migratetype: int, attempt: Attempt) -> int | None:
        """__rmqueue_claim(): claim in tainted superpageblocks, then in clean ones (S14.4)."""
        if migratetype == Migratetype.MOVABLE:
            return super()._rmqueue_claim(order, migratetype, attempt)
        for tainted in (True, False):
            lowest = order
            if attempt.nofragment and not (tainted and self.buddy.count > FEW):
                lowest = max(order, self.buddy.blocks.order)
            search = self._search_of(migratetype, tainted=tainted)
            pfn = self._claim(search, lowest, order, migratetype, attempt, whatever=tainted)
            if pfn is not None:
                return pfn
        return None

    def _rmqueue_steal(self, order: int, migratetype: int) -> int | None:
        """__rmqueue_steal(): steal in tainted superpageblocks, then in clean ones (S14.5)."""
        if migratetype == Migratetype.MOVABLE:
            return super()._rmqueue_steal(order, migratetype)
        for tainted in (True, False):
            pfn = self._steal(self._search_of(migratetype, tainted=tainted), order, migratetype)
            if pfn is not None:
                return pfn
        return None

    def _search_of(self, migratetype: int, *, tainted: bool) -> Search:
        """find_suitable_fallback(): return a search for a buddy of one class."""

        def found(order: int) -> Found | None:
            for fallback in FALLBACKS[migratetype]:
                part = self.buddy.part(order, fallback, tainted=tainted)
                if part:
                    return part.head, fallback
            return None

        return found
