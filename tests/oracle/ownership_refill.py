"""Refills of owned lists in phases, and the zone that has such lists (S12.3-S12.6)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tests.oracle.buddy import Buddy
from tests.oracle.fallback import Fallback
from tests.oracle.machine import Migratetype, is_drawn
from tests.oracle.ownership import MergingLists, OwnedPageblocks, OwnershipCounters
from tests.oracle.pcp import ZoneFlags
from tests.oracle.request import Attempt, Request
from tests.oracle.rules import OracleOwnership
from tests.oracle.zone import Setting, Zone

RECOVER, CLAIM, CHUNK, CLASSIC = range(4)


@dataclass
class Refill:
    """One refill under way.

    Attributes:
        lists: where its pages go.
        order: of the request.
        migratetype: of the request.
        attempt: flags of the request.
        wanted: base pages to fetch.
        got: base pages fetched.
        objects: pages of any order fetched.
    """

    lists: MergingLists
    order: int
    migratetype: int
    attempt: Attempt
    wanted: int
    got: int = 0
    objects: int = 0

    @property
    def missing(self) -> int:
        """No kernel function: return the base pages still to fetch."""
        return self.wanted - self.got


class PhasedRefill:
    """Fetches pages from a zone under one hold of its lock; every phase tops up the last."""

    def __init__(
        self,
        zone: int,
        buddy: Buddy,
        fallback: Fallback,
        flags: ZoneFlags,
        blocks: OwnedPageblocks,
        options: OracleOwnership,
        counters: OwnershipCounters,
    ) -> None:
        self.zone = zone
        self.buddy = buddy
        self.fallback = fallback
        self.flags = flags
        self.blocks = blocks
        self.options = options
        self.counters = counters

    def run(self, refill: Refill) -> int:
        """rmqueue_bulk(): go through all phases while pages are missing; returns the objects."""
        is_cma_first = self.options.cma_first and refill.attempt.cma and self.buddy.is_mostly_cma
        if not is_cma_first:
            self._take_phase(RECOVER, refill, self._recover(refill))
            self._take_phase(CLAIM, refill, self._claim(refill))
            self._take_phase(CHUNK, refill, self._chunks(refill))
        self._take_phase(CLASSIC, refill, self._classic(refill))
        return refill.objects

    def _take_phase(
        self, phase: int, refill: Refill, found: Iterator[tuple[int, int, bool]]
    ) -> None:
        """No kernel function: list what a phase finds: first page, order, whether it merges."""
        count = self.counters.of(self.zone).phases[phase]
        objects = refill.objects
        for pfn, order, is_mergeable in found:
            refill.lists.push_tail(pfn, order, refill.migratetype, mark=is_mergeable)
            refill.got += 1 << order
            refill.objects += 1
            count.objects += 1
            count.pages += 1 << order
        count.refills += refill.objects > objects

    def _recover(self, refill: Refill) -> Iterator[tuple[int, int, bool]]:
        """No kernel function: do phase 0, free fragments of the type's recorded blocks in turn."""
        if not self.options.recovers:
            return
        limit = self.options.recover_limit or None
        for number in self._recorded_to_look_at(refill)[:limit]:
            if refill.missing <= 0:
                return
            self.counters.of(self.zone).recorded_looks += 1
            start = number << self.blocks.order
            if self.blocks.type_of(start) == refill.migratetype:
                yield from self._recover_block(start)

    def _recorded_to_look_at(self, refill: Refill) -> list[int]:
        """No kernel function: return recorded blocks, perhaps of the type, oldest first."""
        recorded = self.blocks.recorded(self.zone, refill.lists.cpu)
        if self.options.recorded_lists == "one":
            return recorded
        return [
            number
            for number in recorded
            if self.blocks.type_of(number << self.blocks.order) == refill.migratetype
        ]

    def _recover_block(self, start: int) -> Iterator[tuple[int, int, bool]]:
        """No kernel function: take the free buddies of a block."""
        self.buddy.scan(range(start, start + self.blocks.pages))
        for pfn in self.buddy.free_in_block(start):
            order = self.buddy.order_at(pfn)
            self._take(pfn, order)
            yield pfn, order, True
        self.blocks.unrecord(self.blocks.number(start))
        self.counters.of(self.zone).recovered += 1

    def _claim(self, refill: Refill) -> Iterator[tuple[int, int, bool]]:
        """No kernel function: do phase 1, own whole free blocks of the type as long as they fit."""
        block_order = self.blocks.order
        while refill.missing > 0 and self._may_claim(refill):
            pfn = self._smallest(block_order, refill.migratetype)
            if pfn is None:
                return
            self._take(pfn, block_order)
            self.blocks.own(pfn, self.zone, refill.lists.cpu)
            yield pfn, block_order, True

    def _may_claim(self, refill: Refill) -> bool:
        """No kernel function: return whether a refill may take whole blocks."""
        options = self.options
        has_type = options.owning_types == "all" or refill.migratetype == Migratetype.MOVABLE
        is_pressed = self.flags.below_high or self.flags.reclaim_active
        return (
            options.claims_blocks
            and has_type
            and refill.order <= options.claims_up_to_order
            and (options.pressure_claims or not is_pressed)
            and self._fits(refill)
        )

    def _fits(self, refill: Refill) -> bool:
        """No kernel function: return whether a block fits the lists beside what was fetched."""
        pcp = refill.lists.pcp
        if self.options.fit_test == "always":
            return True
        limit = pcp.high if self.options.fit_test == "high" else pcp.high_max
        return pcp.count + self.blocks.pages <= limit

    def _chunks(self, refill: Refill) -> Iterator[tuple[int, int, bool]]:
        """No kernel function: do phase 2, buddies of the type smaller than a block."""
        while refill.missing > 0:
            if self.options.chunk_search == "largest":
                found = self._largest_chunk(refill)
            else:
                found = self._smallest_chunk(refill)
            if found is None:
                return
            pfn, order = found
            self._take(pfn, order)
            yield pfn, order, False

    def _largest_chunk(self, refill: Refill) -> tuple[int, int] | None:
        """No kernel function: return the largest buddy missing, or a larger one cut to that."""
        needed = refill.missing.bit_length() - 1
        fit = max(refill.order, min(self.blocks.order - 1, needed))
        for order in range(fit, refill.order - 1, -1):
            pfn = self.buddy.head(order, refill.migratetype)
            if pfn is not None:
                return pfn, order
        pfn = self._smallest(fit + 1, refill.migratetype)
        return None if pfn is None else (pfn, fit)

    def _smallest_chunk(self, refill: Refill) -> tuple[int, int] | None:
        """No kernel function: return the smallest sufficient buddy, whole unless a block."""
        pfn = self._smallest(refill.order, refill.migratetype)
        if pfn is None:
            return None
        largest = max(refill.order, self.blocks.order - 1)
        return pfn, min(self.buddy.order_at(pfn), largest)

    def _classic(self, refill: Refill) -> Iterator[tuple[int, int, bool]]:
        """No kernel function: do phase 3, pages of the order by mainline's rule."""
        wanted = -(-refill.missing >> refill.order)
        pages = self.fallback.take_many(wanted, refill.order, refill.migratetype, refill.attempt)
        for pfn in pages:
            yield pfn, refill.order, False

    def _smallest(self, order: int, migratetype: int) -> int | None:
        """Part of __rmqueue_smallest(): return the head of the type's smallest sufficient buddy."""
        heads = (
            self.buddy.head(each, migratetype) for each in range(order, self.buddy.max_order + 1)
        )
        return next((pfn for pfn in heads if pfn is not None), None)

    def _take(self, pfn: int, order: int) -> None:
        """page_del_and_expand(): take the low end of a free buddy off its list."""
        buddy = self.buddy.at(pfn)
        assert buddy is not None
        self.buddy.take(pfn, order)
        self.buddy.events.zone_locked(pfn, order, buddy.migratetype)


class OwningZone(Zone):
    """What ownership changes in a zone.

    Attributes:
        lists: each CPU's lists, with what splits and merges on them.
    """

    def __init__(
        self, index: int, setting: Setting, blocks: OwnedPageblocks, options: OracleOwnership
    ) -> None:
        """The zone under the policy's options.

        Raises:
            ValueError: the rules let a block's free pages be on lists of another type.
        """
        super().__init__(index, setting)
        if not isinstance(self.fallback, Fallback):
            raise ValueError("pageblocks are owned only where free lists match block types")
        self.options = options
        self.owned_blocks = blocks
        self.ownership_counters = setting.ownership_counters
        self.dead_cpus = setting.dead_cpus
        self.lists = [
            MergingLists(index, cpu, pcp, blocks, setting.ownership_counters)
            for cpu, pcp in enumerate(self.pcp)
        ]
        self._phases = PhasedRefill(
            index,
            self.buddy,
            self.fallback,
            self.flags,
            blocks,
            options,
            setting.ownership_counters,
        )
        self._handed_out_mergeable: set[int] = set()

    def tick(self, cpu: int) -> None:
        """Part of refresh_cpu_vm_stats(): visit the zone; recorded blocks may be given up."""
        if self.options.ownership_ends == "aged":
            self.owned_blocks.end_recorded(self.index, cpu)
        super().tick(cpu)

    def drain_all(self, cpu: int) -> None:
        """drain_pages_zone(): empty one CPU's lists, perhaps giving up fragmented blocks."""
        super().drain_all(cpu)
        if self.options.full_drain == "end":
            self.owned_blocks.end_recorded(self.index, cpu)

    def bury(self, cpu: int) -> None:
        """No kernel function: leave a dead CPU's blocks without an owner, or one that answers."""
        if self.options.offline_owner == "end":
            self.owned_blocks.end_all(self.index, cpu)

    def _rmqueue_pcplist(self, request: Request, attempt: Attempt) -> int | None:
        """rmqueue_pcplist(): take a page of the CPU's lists, split if need be (S12.3)."""
        lists = self.lists[request.cpu]
        self.list_locks.take(self.index, request.cpu)
        lists.pcp.note_allocation()
        if lists.smallest(request.order, request.migratetype) is None:
            self._fetch(lists, request, attempt)
        taken = lists.take(request.order, request.migratetype)
        if taken is None:
            return None
        pfn, is_mergeable = taken
        self._note_handed_out(pfn, request.order, is_mergeable=is_mergeable)
        return pfn

    def _rmqueue_buddy(self, request: Request, attempt: Attempt) -> int | None:
        """rmqueue_buddy(): take a page from the buddy and note it."""
        pfn = super()._rmqueue_buddy(request, attempt)
        if pfn is not None:
            self._note_handed_out(pfn, request.order, is_mergeable=False)
        return pfn

    def _fetch(self, lists: MergingLists, request: Request, attempt: Attempt) -> None:
        """rmqueue_bulk(): refill under one hold of the zone's lock (S12.3)."""
        wanted = lists.pcp.nr_pcp_alloc(request.order) << request.order
        if attempt.highatomic and not self.rules.highatomic_refills_pcp:
            return
        refill = Refill(lists, request.order, request.migratetype, attempt, wanted)
        self.events.hold("refill", "", self._phases.run(refill))

    def note_taken(self, pfn: int, order: int) -> None:
        """No kernel function: note a page that compaction took, which is plain (S12.8)."""
        self._note_handed_out(pfn, order, is_mergeable=False)

    def _note_handed_out(self, pfn: int, order: int, *, is_mergeable: bool) -> None:
        """No kernel function: note a page that is handed out."""
        pages = range(pfn, pfn + (1 << order))
        if is_mergeable:
            self._handed_out_mergeable.update(pages)
        else:
            self._handed_out_mergeable.difference_update(pages)

    def _free_frozen_page_commit(
        self, cpu: int, pfn: int, order: int, migratetype: int, *, batched: bool
    ) -> None:
        """free_frozen_page_commit(): list a page with its block's owner, if possible (S12.1)."""
        target = self._target(cpu, pfn)
        if target != cpu and self._finds_busy():
            if self.options.remote_busy == "zone":
                self.buddy.free_one_page(pfn, order)
                return
            if self.options.remote_busy == "local":
                target = cpu
        self.list_locks.take_to_free(self.index, target, batched=batched)
        self._list_freed(self.lists[target], pfn, order, migratetype, is_remote=target != cpu)

    def _target(self, cpu: int, pfn: int) -> int:
        """No kernel function: return the CPU whose lists a page freed by a CPU belongs on."""
        owner = self.owned_blocks.owner_of(pfn)
        if owner is None or not self.options.routes_frees or owner in self.dead_cpus:
            return cpu
        if self.options.plain_frees == "local" and pfn not in self._handed_out_mergeable:
            return cpu
        return owner

    def _finds_busy(self) -> bool:
        """No kernel function: return whether a remote free finds the owner's lists locked."""
        number = self.ownership_counters.remote_frees
        counts = self.ownership_counters.of(self.index)
        counts.remote_frees += 1
        is_busy = is_drawn(number, self.options.remote_busy_per_1000)
        counts.busy_frees += is_busy
        return is_busy

    def _list_freed(
        self, lists: MergingLists, pfn: int, order: int, migratetype: int, *, is_remote: bool
    ) -> None:
        """free_frozen_page_commit(): list a freed page, drain what overflows (S4.6, S12.6)."""
        index = lists.pcp.layout.index(order, migratetype)
        to_free = lists.pcp.note_free(
            index,
            pfn,
            counts=not is_remote or self.options.remote_counts,
            may_drain=not is_remote or self.options.remote_overflow == "freer",
        )
        if self.owned_blocks.owner_of(pfn) == lists.cpu:
            lists.mergeable.add(pfn)
        if self.options.merges_at == "free":
            lists.merge_upward(pfn, order, migratetype)
        if to_free is not None:
            self._drain_overflow(lists.cpu, to_free, index)

    def _is_locked(self, cpu: int) -> bool:
        """pcp_spin_trylock(): return False; interrupts that find a lock are left out (S4.10)."""
        return False

    def _begin_drain(self, cpu: int) -> None:
        """No kernel function: merge what is listed before a drain."""
        if self.options.merges_at == "drain":
            self.lists[cpu].merge_all()

    def _free_pcppages_bulk(self, cpu: int, budget: int, first: int, cause: str) -> None:
        """free_pcppages_bulk(): return pages to the buddy in one hold (S12.5)."""
        lists = self.lists[cpu]
        if self.options.drain_from == "largest":
            objects = lists.drain_from_largest(budget, self._free_drained)
        else:
            objects = lists.drain_from_list(budget, first, self._free_drained)
        self.events.hold("drain", cause, objects)

    def _free_drained(self, pfn: int, order: int) -> None:
        """Part of free_pcppages_bulk(): free one drained page (S12.5).

        Fragments of owned blocks queue last, and their blocks are recorded.
        """
        migratetype = self._drained_type(pfn)
        is_fragment = self.owned_blocks.owner_of(pfn) is not None and order < self.blocks.order
        queues_last = is_fragment and self.options.fragments == "tail"
        self.buddy.free(pfn, order, migratetype, to_tail=queues_last)
        self.events.drain(pfn, order, migratetype)
        self.owned_blocks.note_drained(pfn)


def new_zone(index: int, setting: Setting) -> Zone:
    """No kernel function: return a zone as the policy has it, with owned blocks or without."""
    options = setting.policy.ownership
    if options is None or not isinstance(setting.blocks, OwnedPageblocks):
        return Zone(index, setting)
    return OwningZone(index, setting, setting.blocks, options)
