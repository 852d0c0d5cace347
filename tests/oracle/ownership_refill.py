"""Refills of owned lists in phases, and the zone that has such lists (S12.3-S12.6)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from tests.oracle.fallback import Fallback
from tests.oracle.machine import PCP_TYPES, Migratetype
from tests.oracle.ownership import MergingLists, OwnedPageblocks
from tests.oracle.request import Attempt, Request
from tests.oracle.zone import Zone

if TYPE_CHECKING:
    from tests.oracle.page_alloc import Allocator

Fetched = Iterator[tuple[int, int, bool]]  # first page, order, and whether it may merge


class Refill:
    """Fetches pages from a zone under one hold of its lock; every phase tops up the last."""

    def __init__(
        self, zone: OwningZone, lists: MergingLists, request: Request, attempt: Attempt
    ) -> None:
        self.zone = zone
        self.buddy, self.blocks, self.options = zone.buddy, zone.owned_blocks, zone.options
        self.counts = zone.ownership_counters.of(zone.index)
        self.lists = lists
        self.request = request
        self.order, self.migratetype = request.order, request.migratetype
        self.attempt = attempt
        self.missing = lists.pcp.nr_pcp_alloc(self.order) << self.order  # base pages still to fetch
        self.objects = 0  # pages of any order fetched

    def run(self) -> int:
        """rmqueue_bulk(): go through all phases while pages are missing; returns the objects."""
        phases = [self._recover(), self._claim(), self._chunks()]
        if self.options.cma_first and self.attempt.cma and self.buddy.is_mostly_cma:
            phases = [iter(())] * 3
        for phase, count in zip([*phases, self._classic()], self.counts.phases, strict=True):
            before = self.objects
            for pfn, order, is_mergeable in phase:
                self.lists.pcp.list_of(order, self.migratetype).push_tail(pfn)
                if is_mergeable:
                    self.lists.mergeable.add(pfn)
                self.missing -= 1 << order
                self.objects += 1
                count.objects += 1
                count.pages += 1 << order
            count.refills += self.objects > before
        return self.objects

    def _recover(self) -> Fetched:
        """Do phase 0: free fragments of the type's recorded blocks in turn, oldest first."""
        recorded, types = (
            list(self.blocks.recorded[self.zone.index, self.lists.cpu]),
            self.blocks.types,
        )
        if self.options.recorded_lists == "per_type":
            recorded = [number for number in recorded if types[number] == self.migratetype]
        for number in recorded[: self.options.recover_limit or None]:
            if self.missing <= 0 or not self.options.recovers:
                return
            self.counts.recorded_looks += 1
            if types[number] != self.migratetype:
                continue
            block = self.blocks.around(number << self.blocks.order)
            self.buddy.scan(block)
            for pfn in self.buddy.free_in(block):
                yield *self._take(pfn, self.buddy.at(pfn).order), True
            self.blocks.unrecord(number)
            self.counts.recovered += 1

    def _claim(self) -> Fetched:
        """Do phase 1: own whole free blocks of the type as long as they fit."""
        while self.missing > 0 and self._may_claim():
            pfn = self._smallest(self.blocks.order)
            if pfn is None:
                return
            self._take(pfn, self.blocks.order)
            self.blocks.own(pfn, self.zone.index, self.lists.cpu)
            yield pfn, self.blocks.order, True

    def _may_claim(self) -> bool:
        """Whether the refill may take whole blocks, and one fits beside what was fetched."""
        options, flags, pcp = self.options, self.zone.flags, self.lists.pcp
        limit = pcp.high if options.fit_test == "high" else pcp.high_max
        is_pressed = flags.below_high or flags.reclaim_active
        return (
            options.claims_blocks
            and (options.owning_types == "all" or self.request.is_movable)
            and self.order <= options.claims_up_to_order
            and (options.pressure_claims or not is_pressed)
            and (options.fit_test == "always" or pcp.count + self.blocks.pages <= limit)
        )

    def _chunks(self) -> Fetched:
        """Do phase 2: buddies of the type smaller than a block.

        The largest missing, or a larger one cut to that; or the smallest sufficient, whole unless
        a block.
        """
        below = max(self.order, self.blocks.order - 1)
        while self.missing > 0:
            if self.options.chunk_search == "largest":
                order = max(self.order, min(below, self.missing.bit_length() - 1))
                heads = {
                    size: self.buddy.head(size, self.migratetype)
                    for size in range(order, self.order - 1, -1)
                }
                whole = next((size for size, pfn in heads.items() if pfn is not None), None)
                pfn = self._smallest(order + 1) if whole is None else heads[whole]
                order = order if whole is None else whole
            else:
                pfn = self._smallest(self.order)
                order = below if pfn is None else min(self.buddy.at(pfn).order, below)
            if pfn is None:
                return
            yield *self._take(pfn, order), False

    def _classic(self) -> Fetched:
        """Do phase 3: pages of the order by mainline's rule."""
        wanted, fallback = -(-self.missing >> self.order), self.zone.fallback
        for pfn in fallback.take_many(wanted, self.order, self.migratetype, self.attempt):
            yield pfn, self.order, False

    def _smallest(self, order: int) -> int | None:
        """Part of __rmqueue_smallest(): return the head of the type's smallest sufficient buddy."""
        heads = (
            self.buddy.head(current, self.migratetype)
            for current in range(order, self.buddy.max_order + 1)
        )
        return next((pfn for pfn in heads if pfn is not None), None)

    def _take(self, pfn: int, order: int) -> tuple[int, int]:
        """page_del_and_expand(): take the low end of a free buddy off its list; returns it."""
        migratetype = self.buddy.at(pfn).migratetype
        self.buddy.take(pfn, order)
        self.zone.events.note("zone_locked", pfn, order, migratetype)
        return pfn, order


class OwningZone(Zone):
    """What ownership changes in a zone.

    Attributes:
        lists: each CPU's lists, with what splits and merges on them.
    """

    fallback: Fallback

    def __init__(self, index: int, oracle: Allocator) -> None:
        super().__init__(index, oracle)
        self.options = oracle.policy.ownership
        self.owned_blocks: OwnedPageblocks = oracle.blocks
        self.ownership_counters = oracle.ownership_counters
        self.dead_cpus = oracle.dead_cpus
        self.lists = [
            MergingLists(index, cpu, pcp, self.owned_blocks, self.ownership_counters)
            for cpu, pcp in enumerate(self.pcp)
        ]
        self._handed_out_mergeable: set[int] = set()

    def tick(self, cpu: int) -> None:
        """Part of refresh_cpu_vm_stats(): visit the zone; recorded blocks may be given up."""
        if self.options.ownership_ends == "aged":
            self.owned_blocks.end_recorded(self.index, cpu)
        super().tick(cpu)

    def drain_all(self, cpu: int, *, is_visited: bool = True) -> None:
        """drain_pages_zone(): empty one CPU's lists, perhaps giving up fragmented blocks."""
        if is_visited:
            self._absorb(cpu)
        super().drain_all(cpu, is_visited=is_visited)
        if self.options.full_drain == "end":
            self.owned_blocks.end_recorded(self.index, cpu)

    def bury(self, cpu: int) -> None:
        """Leave a dead CPU's blocks without an owner, or one that answers."""
        if self.options.offline_owner == "end":
            self.owned_blocks.end_all(self.index, cpu)

    def note_taken(self, pfn: int, order: int, *, is_mergeable: bool = False) -> None:
        """Note a page that is handed out; one that compaction took is plain (S12.8)."""
        pages = range(pfn, pfn + (1 << order))
        if is_mergeable:
            self._handed_out_mergeable.update(pages)
        else:
            self._handed_out_mergeable.difference_update(pages)

    def _rmqueue_pcplist(self, request: Request, attempt: Attempt) -> int | None:
        """rmqueue_pcplist(): take a page of the CPU's lists, split if need be (S12.3)."""
        lists = self.lists[request.cpu]
        self.list_locks.take(self.index, request.cpu)
        lists.pcp.note_allocation()
        self._absorb(request.cpu)
        if lists.smallest(request.order, request.migratetype) is None:
            refill = Refill(self, lists, request, attempt)
            if not attempt.highatomic or self.rules.highatomic_refills_pcp:
                self.events.hold("refill", "", refill.run(), self.index)
        taken = lists.take(request.order, request.migratetype)
        if taken is None:
            return None
        pfn, is_mergeable = taken
        self.note_taken(pfn, request.order, is_mergeable=is_mergeable)
        return pfn

    def _rmqueue_buddy(self, request: Request, attempt: Attempt) -> int | None:
        """rmqueue_buddy(): take a page from the buddy and note it."""
        pfn = super()._rmqueue_buddy(request, attempt)
        if pfn is not None:
            self.note_taken(pfn, request.order)
        return pfn

    def _free_frozen_page_commit(
        self, cpu: int, pfn: int, order: int, migratetype: int, *, batched: bool
    ) -> None:
        """free_frozen_page_commit(): list a page with its block's owner, if possible (S12.1).

        What overflows is drained (S4.6, S12.6). Without a lock a page waits for its owner (S12.8).
        """
        target = self._target(cpu, pfn)
        lists, is_remote = self.lists[target], target != cpu
        self.ownership_counters.of(self.index).remote_frees += is_remote
        if is_remote and self.options.remote_free == "lockless":
            lists.lockless.insert(0, (pfn, order))
            return
        self.list_locks.take_to_free(self.index, target, batched=batched)
        index = lists.pcp.layout.index(order, migratetype)
        to_free = lists.pcp.note_free(
            index,
            pfn,
            counts=not is_remote or self.options.remote_counts,
            may_drain=not is_remote or self.options.remote_overflow == "freer",
        )
        self._note_pushed(target, pfn, order, migratetype)
        if to_free is not None:
            self._drain_overflow(target, to_free, index)

    def _absorb(self, cpu: int) -> None:
        """Move all of a CPU's lockless list to the heads of its lists, the newest page first.

        Its block's type and owner at this time decide where a page goes and if it may merge; of
        types without a list it goes to MOVABLE, as a freed page does (S4.6).
        """
        lists = self.lists[cpu]
        for pfn, order in lists.lockless:
            migratetype = self.blocks.type_of(pfn)
            if migratetype >= PCP_TYPES:
                migratetype = Migratetype.MOVABLE
            lists.pcp.list_of(order, migratetype).push_head(pfn)
            self._note_pushed(cpu, pfn, order, migratetype)
        lists.lockless.clear()

    def _note_pushed(self, cpu: int, pfn: int, order: int, migratetype: int) -> None:
        """Mark a page that was put on a CPU's list if that owns its block; perhaps merge it."""
        lists = self.lists[cpu]
        if self.owned_blocks.owner_of(pfn) == cpu:
            lists.mergeable.add(pfn)
        if self.options.merges_at == "free":
            lists.merge_upward(pfn, order, migratetype)

    def _target(self, cpu: int, pfn: int) -> int:
        """The CPU whose lists a page freed by a CPU belongs on."""
        owner = self.owned_blocks.owner_of(pfn)
        if owner is None or not self.options.routes_frees or owner in self.dead_cpus:
            return cpu
        if self.options.plain_frees == "local" and pfn not in self._handed_out_mergeable:
            return cpu
        return owner

    def _is_locked(self, cpu: int) -> bool:
        """pcp_spin_trylock(): return False; interrupts that find a lock are left out (S4.10)."""
        return False

    def _begin_drain(self, cpu: int) -> None:
        """Begin a drain whose number is fixed: absorb, then merge what may (S12.8)."""
        self._absorb(cpu)
        if self.options.merges_at == "drain":
            self.lists[cpu].merge_all()

    def _free_pcppages_bulk(self, cpu: int, budget: int, first: int, cause: str) -> None:
        """free_pcppages_bulk(): return pages to the buddy in one hold (S12.5)."""
        largest = self.options.drain_from == "largest"
        objects = self.lists[cpu].drain(budget, first, self._free_drained, largest=largest)
        self.events.hold("drain", cause, objects, self.index)

    def _free_drained(self, pfn: int, order: int, *, to_tail: bool = False) -> None:
        """Part of free_pcppages_bulk(): free one drained page (S12.5).

        Fragments of owned blocks queue last, and their blocks are recorded.
        """
        is_fragment = self.owned_blocks.owner_of(pfn) is not None and order < self.blocks.order
        super()._free_drained(pfn, order, to_tail=is_fragment and self.options.fragments == "tail")
        self.owned_blocks.note_drained(pfn)
