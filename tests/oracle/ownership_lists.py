"""One CPU's lists of one zone where pages split and merge on them (S12.1, S12.3, S12.5)."""

from __future__ import annotations

from collections.abc import Callable

from tests.oracle.machine import PCP_TYPES
from tests.oracle.ownership import OwnedPageblocks
from tests.oracle.ownership_counters import OwnershipCounters
from tests.oracle.pcp import PerCpuPages


class MergingLists:
    """Pages of every order up to a block's; those that may merge carry a mark.

    Attributes:
        cpu: whose lists these are.
        pcp: the lists, and how many pages they may hold.
        mergeable: first pages of the listed pages that carry the mark.
    """

    def __init__(
        self,
        zone: int,
        cpu: int,
        pcp: PerCpuPages,
        blocks: OwnedPageblocks,
        counters: OwnershipCounters,
    ) -> None:
        self.zone = zone
        self.cpu = cpu
        self.pcp = pcp
        self.mergeable: set[int] = set()
        self._blocks = blocks
        self._counters = counters

    def smallest(self, order: int, migratetype: int) -> int | None:
        """No kernel function: return the smallest sufficient order of the type, or None."""
        for current in range(order, self._blocks.order + 1):
            if self.pcp.lists[self.pcp.layout.index(current, migratetype)]:
                return current
        return None

    def take(self, order: int, migratetype: int) -> tuple[int, bool] | None:
        """No kernel function: take the head of the smallest sufficient page.

        It is split to size; the rest stays listed.

        Returns:
            The page and whether it carried the mark.
        """
        current = self.smallest(order, migratetype)
        if current is None:
            return None
        pfn = self.pcp.pop_head(self.pcp.layout.index(current, migratetype))
        is_marked = pfn in self.mergeable
        self.mergeable.discard(pfn)
        while current > order:
            current -= 1
            self._counters.of(self.zone).splits += 1
            self._push_head(pfn + (1 << current), current, migratetype, mark=is_marked)
        return pfn, is_marked

    def push_tail(self, pfn: int, order: int, migratetype: int, *, mark: bool) -> None:
        """No kernel function: put a page behind all others of its order and type."""
        self.pcp.push_tail(self.pcp.layout.index(order, migratetype), pfn)
        if mark:
            self.mergeable.add(pfn)

    def merge_all(self) -> None:
        """No kernel function: join buddies, smallest first.

        A pair goes behind the pages of its new order.
        """
        for order in range(self._blocks.order):
            for migratetype in range(PCP_TYPES):
                self._merge_list(order, migratetype)

    def merge_upward(self, pfn: int, order: int, migratetype: int) -> None:
        """No kernel function: join one page with its buddy, and so on.

        The result stays in front. The page is looked at if it may merge at all, and so is what
        becomes of it.
        """
        if pfn not in self.mergeable:
            return
        self._counters.of(self.zone).merge_looks += 1
        while self._may_merge(pfn, order, migratetype):
            self._unlink_pair(pfn, order, migratetype)
            pfn &= ~(1 << order)
            order += 1
            self._push_head(pfn, order, migratetype, mark=True)
            self._counters.of(self.zone).merge_looks += 1

    def drain_from_largest(self, budget: int, free: Callable[[int, int], None]) -> int:
        """Part of free_pcppages_bulk(): hand over the largest pages first.

        It takes each list's coldest first; the last may overshoot.

        Args:
            budget: base pages.
            free: takes each page and its order.

        Returns:
            Objects handed over.
        """
        budget = min(budget, self.pcp.count)
        objects = 0
        while budget > 0:
            order, index = self._largest()
            pfn = self.pcp.pop_tail(index)
            self.mergeable.discard(pfn)
            free(pfn, order)
            budget -= 1 << order
            objects += 1
        return objects

    def drain_from_list(self, budget: int, first: int, free: Callable[[int, int], None]) -> int:
        """Part of free_pcppages_bulk(): hand over list after list as ever.

        Arguments and result are as of `free_pcppages_bulk`.
        """

        def free_unmarked(pfn: int, order: int) -> None:
            self.mergeable.discard(pfn)
            free(pfn, order)

        return self.pcp.free_pcppages_bulk(budget, first, free_unmarked)

    def _largest(self) -> tuple[int, int]:
        """No kernel function: return order and index of the list to drain.

        Some list has pages.
        """
        layout = self.pcp.layout
        return next(
            (order, layout.index(order, migratetype))
            for order in range(self._blocks.order, -1, -1)
            for migratetype in range(PCP_TYPES)
            if self.pcp.lists[layout.index(order, migratetype)]
        )

    def _merge_list(self, order: int, migratetype: int) -> None:
        """No kernel function: join the pairs of one list as it is now."""
        pages = self.pcp.lists[self.pcp.layout.index(order, migratetype)]
        for pfn in list(pages):
            if pfn not in pages:
                continue
            self._counters.of(self.zone).merge_looks += 1
            if self._may_merge(pfn, order, migratetype):
                self._unlink_pair(pfn, order, migratetype)
                self.push_tail(pfn & ~(1 << order), order + 1, migratetype, mark=True)

    def _may_merge(self, pfn: int, order: int, migratetype: int) -> bool:
        """No kernel function: return whether both halves are here and may merge.

        They are of one type, marked, and their block is this CPU's still.
        """
        pages = self.pcp.lists[self.pcp.layout.index(order, migratetype)]
        pair = {pfn, pfn ^ (1 << order)}
        return (
            order < self._blocks.order
            and all(each in pages for each in pair)
            and pair <= self.mergeable
            and self._blocks.owner_of(pfn) == self.cpu
        )

    def _unlink_pair(self, pfn: int, order: int, migratetype: int) -> None:
        """No kernel function: take two buddies off their list."""
        for each in (pfn, pfn ^ (1 << order)):
            self.pcp.remove(self.pcp.layout.index(order, migratetype), each)
            self.mergeable.discard(each)
        self._counters.of(self.zone).merges += 1

    def _push_head(self, pfn: int, order: int, migratetype: int, *, mark: bool) -> None:
        """No kernel function: put a page in front of all others of its order and type."""
        self.pcp.push_head(self.pcp.layout.index(order, migratetype), pfn)
        if mark:
            self.mergeable.add(pfn)
