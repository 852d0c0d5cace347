"""A literal replay's oracle: requests, frees, and what else a recording tells (S10.4)."""

from __future__ import annotations

from typing import Any

from tests.oracle.buddy import AllocatedPages
from tests.oracle.machine import Migratetype, OracleMachine
from tests.oracle.page_alloc import Allocator
from tests.oracle.request import gfp_to_alloc_flags
from tests.oracle.rules import OracleAssumptions, OraclePolicy, OracleRules
from tests.oracle.zone import Zone


class FreeScanner:
    """Takes free pages as one scan after the other; a buddy is dealt out before the next is taken.

    Nothing that it does is counted as work under zone->lock.
    """

    def __init__(self, allocated: AllocatedPages) -> None:
        self._allocated = allocated
        self._held: list[int] = []

    def next_piece(self, zone: Zone, order: int, wanted: int) -> int | None:
        """fast_isolate_freepages(): return the next piece of a scan, from movable blocks.

        The scan has yet to take so many pages, this piece included. None if no such block has a
        free buddy for it.
        """
        if len(self._held) < 1 << order:
            self._hold(zone, order, wanted, movable_types(zone.machine))
        return self._deal_out(zone, order) if len(self._held) >= 1 << order else None

    def gather(self, zone: Zone, count: int) -> tuple[tuple[int, int], ...]:
        """isolate_freepages(): return single pages, of movable blocks first, and fewer at need."""
        others = [Migratetype.RECLAIMABLE, Migratetype.UNMOVABLE]
        pages: list[tuple[int, int]] = []
        while len(pages) < count:
            if not self._held:
                self._hold(zone, 0, count - len(pages), [*movable_types(zone.machine), *others])
            if not self._held:
                break
            pages.append((self._deal_out(zone, 0), 0))
        return tuple(pages)

    def _deal_out(self, zone: Zone, order: int) -> int:
        """Part of fast_isolate_freepages(): take the first pages of what is held."""
        pfn = self._held[0]
        del self._held[: 1 << order]
        self._allocated.add(pfn, order, movable=True)
        zone.note_taken(pfn, order)
        return pfn

    def _hold(self, zone: Zone, order: int, wanted: int, types: list[int]) -> None:
        """Part of fast_isolate_freepages(): hold a free buddy, the largest that a scan may take."""
        for migratetype in types:
            for size in range(zone.machine.pageblock_order - 1, -1, -1):
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


def movable_types(machine: OracleMachine) -> list[int]:
    """No kernel function: return the types of blocks that compaction's targets lie in."""
    return [each for each in (Migratetype.MOVABLE, machine.cma) if each is not None]


def take_uncounted(zone: Zone, order: int, migratetype: int) -> int | None:
    """__rmqueue_smallest(): return the smallest fit of one type (S5.1), without event or work."""
    splits = zone.events.work.splits
    pfn = zone.buddy.smallest_fit(order, migratetype)
    if pfn is not None:
        zone.buddy.take(pfn, order)
        zone.events.work.splits = splits
    return pfn


class Oracle(Allocator):
    """An allocator that is replayed literally.

    A trace decides which requests succeed; reclaim's frees, and what compaction takes, come from
    the trace (S10.4).

    Attributes:
        recorded_failures: requests that the recording saw fail.
        hidden: requests that no event shows.
        orphan_frees: frees of pages that are not in use here.
    """

    def __init__(
        self,
        machine: OracleMachine,
        rules: OracleRules,
        policy: OraclePolicy,
        assumptions: OracleAssumptions | None = None,
    ) -> None:
        super().__init__(machine, rules, policy, assumptions)
        self._free_scanner = FreeScanner(self.allocated)
        self.recorded_failures = 0
        self.hidden = 0
        self.orphan_frees = 0

    def alloc_hidden(
        self,
        cpu: int,
        order: int,
        migratetype: int,
        highest_zone: int,
        bits: int,
        *,
        only_zone: int | None = None,
    ) -> tuple[tuple[int, int], ...]:
        """No kernel function: serve a request that no event shows, but a later free (T10.2).

        Arguments and result are those of `alloc_as_recorded`.
        """
        self.hidden += 1
        return self.alloc_as_recorded(
            cpu, order, migratetype, highest_zone, bits, only_zone=only_zone
        )

    def fail_as_recorded(
        self,
        cpu: int,
        order: int,
        migratetype: int,
        highest_zone: int,
        bits: int,
        *,
        reclaimed: int = 0,
    ) -> None:
        """No kernel function: take up a request that failed in the recording (S10.4).

        It is not tried. Arguments are those of `alloc`.
        """
        self.recorded_failures += 1
        request = self._request(cpu, order, migratetype, highest_zone, bits, reclaimed)
        zonelist = self._zonelist(request)
        attempt = self._first_attempt(request, zonelist)
        for zone in zonelist:
            zone.note_below_high(request, attempt)
        if gfp_to_alloc_flags(request, defrag_mode=self.policy.defrag_mode).kswapd:
            self._wake_all_kswapds(request, zonelist)
        if request.reclaim:
            self._make_room(request, zonelist)

    def free_nothing(self, cpu: int, *, batched: bool = False) -> None:
        """No kernel function: take up a free of pages that are not in use here (T10.2)."""
        self._this_cpu.number = cpu
        self._list_locks.begin(cpu, batched=batched)
        self.orphan_frees += 1

    def begin_request(
        self, cpu: int, order: int, migratetype: int, highest_zone: int, bits: int
    ) -> None:
        """No kernel function: let interrupts come into a request's refill, if it has one (S4.10).

        It refills now; the request itself comes later. Arguments are those of `alloc`.
        """
        request = self._request(cpu, order, migratetype, highest_zone, bits, 0)
        is_listed = self.zones[0].pcp[cpu].layout.holds(order)
        if self.policy.ownership is not None or not is_listed:
            return
        zonelist = self._zonelist(request)
        self._walk.begin_request(request, self._first_attempt(request, zonelist), zonelist)

    def hold_drained(self, cpu: int) -> None:
        """No kernel function: let interrupts come into the drain of a CPU's last free (S4.10).

        It is the CPU's last event that was no interrupt's. It may have drained nothing, or it was
        none; then they find no list locked.
        """
        self._this_cpu.number = cpu
        self._list_locks.keep_drained()

    def isolate(
        self, cpu: int, zone: int, orders: tuple[int, ...], *, wanted: int | None = None
    ) -> tuple[tuple[tuple[int, int], ...], ...]:
        """fast_isolate_freepages(): let a scan of recorded compaction take free pages (S10.4).

        Args:
            cpu: CPU that compacts.
            zone: by index.
            orders: of the pieces, descending.
            wanted: pages that the scan has yet to take; those of the pieces unless given.

        Returns:
            The pages of each piece: one buddy, or single pages in the order they were taken.
        """
        self._this_cpu.number = cpu
        self._list_locks.end_run(cpu)
        left = sum(1 << order for order in orders) if wanted is None else wanted
        pieces = []
        for order in orders:
            pfn = self._free_scanner.next_piece(self.zones[zone], order, left)
            left -= 1 << order
            pieces.append(self._gather(zone, order) if pfn is None else ((pfn, order),))
        return tuple(pieces)

    def _gather(self, zone: int, order: int) -> tuple[tuple[int, int], ...]:
        """Part of isolate_freepages(): return single pages in place of a buddy, and count that."""
        pages = self._free_scanner.gather(self.zones[zone], 1 << order)
        self.in_base_pages += order > 0
        self.failed += len(pages) < 1 << order
        return pages

    def capture(
        self, cpu: int, zone: int, order: int, migratetype: int
    ) -> tuple[tuple[int, int], ...]:
        """compaction_capture(): serve a request past the lists, whole or in single pages (S9.7).

        Arguments and result are those of `alloc_as_recorded`, for one zone.
        """
        self._this_cpu.number = cpu
        self._list_locks.end_run(cpu)
        pfn = take_uncounted(self.zones[zone], order, migratetype)
        if pfn is not None:
            self.allocated.add(pfn, order, movable=migratetype == Migratetype.MOVABLE)
            self.zones[zone].note_taken(pfn, order)
            return ((pfn, order),)
        return self._gather(zone, order)

    def begin_reclaim(
        self, number: int, cpu: int, order: int, migratetype: int, highest_zone: int, bits: int
    ) -> None:
        """No kernel function: begin a recorded direct reclaim for a request.

        Arguments are as of `alloc`. Its number is free for others once the request has been served.
        """
        request = self._request(cpu, order, migratetype, highest_zone, bits, number)
        attempt = gfp_to_alloc_flags(request, defrag_mode=self.policy.defrag_mode)
        margins = [zone.margin(request, attempt) for zone in self._zonelist(request)]
        self._reclaim_margins[number] = min(0, max(margins, default=0))

    def reclaim_in_vain(
        self, cpu: int, order: int, migratetype: int, highest_zone: int, bits: int
    ) -> None:
        """__alloc_pages_direct_reclaim(): end a recorded direct reclaim that another followed.

        Arguments are as of `alloc`.
        """
        request = self._request(cpu, order, migratetype, highest_zone, bits, 0)
        self._make_room(request, self._zonelist(request))

    def drain_local(self, zone: int, cpu: int) -> None:
        """drain_local_pages(): empty the lists of the CPU that compacts a zone (S9.3).

        Where the recording tells of drains, it alone has them.
        """
        self._this_cpu.number = cpu
        self._list_locks.end_run(cpu)
        if not self.assumptions.drains_recorded:
            self.zones[zone].drain_all(cpu)

    def start_kswapd(self, node: int, highest_zone: int, cpu: int = 0) -> None:
        """No kernel function: begin a recorded run, for zones up to a type (S10.2).

        It begins on a CPU, whose folio batch is over.
        """
        self._list_locks.end_run(cpu)
        self.kswapd[node].start(highest_zone)

    def stop_kswapd(self, node: int, cpu: int = 0) -> None:
        """No kernel function: end a recorded run, on a CPU."""
        self._list_locks.end_run(cpu)
        self.kswapd[node].stop()

    def tick_as_recorded(self, cpu: int) -> None:
        """refresh_cpu_vm_stats(): run the CPU's vmstat worker when the recording says so (S4.8).

        It is a task: a folio batch of the CPU has let go of its lock before (T10.5). An assumed
        tick may fall into a batch, and in the kernel would come after it.
        """
        self._list_locks.end_run(cpu)
        self.tick(cpu)

    def set_boost(self, zone: int, pages: int, cpu: int = 0) -> None:
        """No kernel function: set a zone's boost to what a task on a CPU found (S1.7)."""
        self._list_locks.end_run(cpu)
        self.zones[zone].watermarks.boost = pages

    def drain_zone(self, zone: int, cpu: int, by: int) -> None:
        """drain_pages_zone(): let a CPU empty another's lists of a zone, as recorded (S4.9)."""
        self._this_cpu.number = by
        self._list_locks.end_run(by)
        self.zones[zone].drain_all(cpu)

    def dump(self) -> dict[str, Any]:
        """No kernel function: return the comparable state, see `dump_state`.

        What was told is counted in a part `told`.
        """
        told = {
            "recorded_failures": self.recorded_failures,
            "hidden": self.hidden,
            "orphan_frees": self.orphan_frees,
        }
        return {**super().dump(), "told": told}
