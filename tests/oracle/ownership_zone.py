"""A zone whose pageblocks CPUs own: frees go to the owner, and buddies meet on its lists (S12)."""

from __future__ import annotations

from tests.oracle.fallback import Fallback
from tests.oracle.ownership import OwnedPageblocks
from tests.oracle.ownership_draws import is_drawn
from tests.oracle.ownership_lists import MergingLists
from tests.oracle.ownership_options import OracleOwnership
from tests.oracle.ownership_refill import PhasedRefill, Refill
from tests.oracle.request import Attempt, Request
from tests.oracle.zone import Setting, Zone


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
        """Part of refresh_cpu_vm_stats(): visit the zone with the vmstat worker.

        Blocks recorded before it may be given up.
        """
        if self.options.ownership_ends == "aged":
            self.owned_blocks.end_recorded(self.index, cpu)
        super().tick(cpu)

    def drain_all(self, cpu: int) -> None:
        """drain_pages_zone(): empty one CPU's lists.

        It may give up the blocks that have fragments in the zone.
        """
        super().drain_all(cpu)
        if self.options.full_drain == "end":
            self.owned_blocks.end_recorded(self.index, cpu)

    def bury(self, cpu: int) -> None:
        """No kernel function: leave a dead CPU's blocks without an owner.

        Or with none that answers.
        """
        if self.options.offline_owner == "end":
            self.owned_blocks.end_all(self.index, cpu)

    def _rmqueue_pcplist(self, request: Request, attempt: Attempt) -> int | None:
        """rmqueue_pcplist(): take a page of the CPU's lists (S12.3).

        It is split from a larger one if need be.
        """
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
        """free_frozen_page_commit(): list a freed page with its block's owner (S12.1).

        It does if the owner's lists are to be had.
        """
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
        """No kernel function: return the CPU whose lists a freed page belongs on.

        The page is freed by a CPU.
        """
        owner = self.owned_blocks.owner_of(pfn)
        if owner is None or not self.options.routes_frees or owner in self.dead_cpus:
            return cpu
        if self.options.plain_frees == "local" and pfn not in self._handed_out_mergeable:
            return cpu
        return owner

    def _finds_busy(self) -> bool:
        """No kernel function: return whether a remote free finds the lists locked.

        They are the owner's; one free of so many does.
        """
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
