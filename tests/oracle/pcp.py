"""One CPU's page lists for one zone: what is listed, and when lists grow and shrink (S4)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tests.oracle.buddy import PageList
from tests.oracle.machine import PCP_TYPES, PMD_ORDER, Migratetype
from tests.oracle.vmstat import clamp, page_set_size

if TYPE_CHECKING:
    from tests.oracle.zone import Zone


@dataclass(frozen=True)
class PcpLayout:
    """Which lists exist (S1.9): index = 3 * order + type, then two for huge pages.

    Lists that pages split on are for all orders up to a block's (S12.3).
    """

    costly_order: int  # largest order of the first kind
    # order of the pages on the two huge-page lists, None without these lists
    huge_order: int | None
    block_order: int | None = None  # of a block, where pages split on the lists

    @property
    def low_order_lists(self) -> int:
        return PCP_TYPES * (self.costly_order + 1)

    @property
    def nr_lists(self) -> int:
        if self.block_order is not None:
            return PCP_TYPES * (self.block_order + 1)
        return self.low_order_lists + (0 if self.huge_order is None else 2)

    def holds(self, order: int) -> bool:
        """pcp_allowed_order(): return whether pages of this order have a list."""
        fits = self.block_order is None or order <= self.block_order
        return fits and (order <= self.costly_order or order == self.huge_order)

    def index(self, order: int, migratetype: int) -> int:
        """order_to_pindex(): return the list of a page."""
        if order > self.costly_order and self.block_order is None:
            return self.low_order_lists + (migratetype == Migratetype.MOVABLE)
        return PCP_TYPES * order + migratetype

    def order(self, index: int) -> int:
        """pindex_to_order(): return the order of the pages on a list."""
        splits = self.block_order is not None
        if self.huge_order is not None and index >= self.low_order_lists and not splits:
            return self.huge_order
        return index // PCP_TYPES


@dataclass
class ZoneFlags:
    """Zone states that steer its page sets."""

    below_high: bool = False  # an allocation found the zone below its high watermark (S3.1)
    reclaim_active: bool = False  # kswapd works on the node (S10.2)


class PerCpuPages:
    """Lists and tuning state of one (CPU, zone) (S4.1).

    Attributes:
        prev_free_high_order: the last free was of an order from 1 to the costly order.
        expire: ticks left until pages of another node's zone are drained; 0: no countdown (S4.8).
    """

    def __init__(self, zone: Zone) -> None:
        self.flags = zone.flags
        self.rules = zone.rules
        block_order = zone.machine.pageblock_order
        huge_order = block_order if zone.rules.huge_lists_hold_blocks else PMD_ORDER
        self.layout = PcpLayout(
            zone.policy.costly_order,
            huge_order if zone.machine.thp else None,
            None if zone.policy.ownership is None else block_order,
        )
        self.lists = [PageList() for _ in range(self.layout.nr_lists)]
        sizes = page_set_size(zone.spec, zone.machine, zone.rules, zone.policy)
        self.high = 0  # tuned limit; starts at 0 and is brought within bounds at its first use
        self.batch, self.high_min, self.high_max = sizes  # pages per transfer, bounds of `high`
        self.alloc_factor = 0  # order-0 refills ask for batch << this
        self.free_count = 0  # pages freed of late; halved by every allocation
        self.prev_free_high_order = False
        self.free_high_batch = zone.machine.free_high_batch  # constant of the CPU (S4.6)
        self.expire = 0
        self.scale_max = zone.policy.pcp_batch_scale_max

    @property
    def count(self) -> int:
        return sum(
            len(pages) << self.layout.order(index)
            for index, pages in enumerate(self.lists)
            if pages
        )

    @property
    def largest_batch(self) -> int:
        """The most pages one transfer is scaled up to."""
        return self.batch << self.scale_max

    def list_of(self, order: int, migratetype: int) -> PageList:
        return self.lists[self.layout.index(order, migratetype)]

    def note_allocation(self) -> None:
        """Part of rmqueue_pcplist(): let every attempt count against recent frees (S4.5)."""
        self.free_count >>= 1

    def nr_pcp_alloc(self, order: int) -> int:
        """nr_pcp_alloc(): tune high and alloc_factor; returns objects for an empty list (S4.4)."""
        high = self._clamped_high()
        if high < self.batch:
            return 1
        size = self.batch if order else self.batch << self.alloc_factor
        if self.high_min != self.high_max and not self.flags.below_high:
            high = self.high = min(high + size, self.high_max)
        if order == 0:
            room = max(high - self.count - self.batch, self.batch)
            if size <= room and self.alloc_factor < self.scale_max:
                self.alloc_factor += 1
            size = min(size, room)
        return max(size >> order, 2) if size > 1 else size

    def note_free(
        self, index: int, pfn: int, *, counts: bool = True, may_drain: bool = True
    ) -> int | None:
        """nr_pcp_high() and nr_pcp_free(): list a freed page and tune (S4.6).

        Another CPU's free may not count for this one's habits, or leave the limit alone (S12.6).
        Returns the pages to drain now, None if below the limit.
        """
        order = self.layout.order(index)
        is_high_order = 1 <= order <= self.layout.costly_order
        self.lists[index].push_head(pfn)
        flush = counts and is_high_order and self._is_high_order_flush()
        if counts:
            self.alloc_factor >>= 1
            self.prev_free_high_order = is_high_order
            if self.free_count < self.largest_batch:
                self.free_count += 1 << order
        if not may_drain:
            return None
        limit = self._nr_pcp_high(flush)
        if self.count < limit:
            return None
        if flush:
            return min(self.count, self.largest_batch)
        if limit < self.batch:
            return 1
        return clamp(self.free_count, self.batch, limit - self.batch)

    def free_pcppages_bulk(self, budget: int, first: int, free: Callable[[int, int], None]) -> int:
        """free_pcppages_bulk(): hand over the coldest pages (S5.6).

        It goes on until the budget is spent. A list is exhausted before the next non-empty one; a
        huge page may overshoot.
        """
        budget = min(budget, self.count)
        objects = 0
        index = first
        while budget > 0:
            if not self.lists[index]:
                index = (index + 1) % self.layout.nr_lists
                continue
            order = self.layout.order(index)
            free(self.lists[index].pop_tail(), order)
            budget -= 1 << order
            objects += 1
        return objects

    def decay_pcp_high(self) -> int:
        """decay_pcp_high(): lower the limit; returns the pages above it (S4.8)."""
        if self.high > self.high_min:
            eighth = self.high >> 3
            self.high = max(self.count - self.largest_batch, self.high - eighth, self.high_min)
        return self.count - self.high

    def _is_high_order_flush(self) -> bool:
        """Part of free_frozen_page_commit(): return whether a high-order free flushes the lists."""
        threshold = self.batch
        if self.rules.high_order_flush_adds_half_high_min:
            threshold += self.high_min // 2
        is_full = not self.free_high_batch or self.count >= self.batch
        return self.free_count >= threshold and self.prev_free_high_order and is_full

    def _nr_pcp_high(self, flush: bool) -> int:
        """nr_pcp_high(): tune `high`; returns the count from which pages are drained (S4.6)."""
        high = self._clamped_high()
        if high == 0:
            return 0
        if flush:
            self.high = max(high - self.largest_batch, self.high_min)
            return 0
        recent = max(self.free_count, self.batch)
        if self.flags.reclaim_active:
            self.high = max(high - recent, self.high_min)
            return min(4 * self.batch, self.high)
        if self.high_min == self.high_max:
            return high
        if self.flags.below_high:
            self.high = max(high - recent, self.high_min)
            return max(self.count, self.high_min)
        needed = self.free_count + self.batch
        if self.count >= high and self.high < needed:
            self.high = clamp(needed, self.high_min, self.high_max)
        return high

    def _clamped_high(self) -> int:
        """Part of nr_pcp_high(): bring `high` within its bounds; returns it."""
        self.high = clamp(self.high, self.high_min, self.high_max)
        return self.high


class FixedPerCpuPages(PerCpuPages):
    """Lists whose limit does not move (6.1, S4.3).

    Attributes:
        free_factor: a drain takes batch << this; grows with drains, halved by allocations.
    """

    def __init__(self, zone: Zone) -> None:
        super().__init__(zone)
        self.high = self.high_min
        self.free_factor = 0

    def note_allocation(self) -> None:
        """Part of rmqueue_pcplist(): let every attempt count against recent drains (S4.5)."""
        self.free_factor >>= 1

    def nr_pcp_alloc(self, order: int) -> int:
        """nr_pcp_alloc(): return the objects of a batch, scaled, for an empty list (S4.4)."""
        return max(self.batch >> order, 2) if self.batch > 1 else self.batch

    def note_free(
        self, index: int, pfn: int, *, counts: bool = True, may_drain: bool = True
    ) -> int | None:
        """nr_pcp_high() and nr_pcp_free(): list a freed page, which alone tells nothing (S4.6).

        The next drain in a row takes more.
        """
        order = self.layout.order(index)
        self.lists[index].push_head(pfn)
        if not may_drain:
            return None
        if self.free_factor > 0 and 1 <= order <= self.layout.costly_order:
            return self.count
        limit = min(4 * self.batch, self.high) if self.flags.reclaim_active else self.high
        if self.count < limit:
            return None
        if limit < self.batch:
            return 1
        most = limit - self.batch
        wanted = self.batch << self.free_factor
        if wanted < most and self.free_factor < self.scale_max:
            self.free_factor += 1
        return clamp(wanted, self.batch, most)

    def decay_pcp_high(self) -> int:
        """decay_pcp_high(): do nothing; time changes nothing."""
        return 0
