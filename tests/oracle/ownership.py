"""Owned pageblocks: counts, locks of lists, owners of blocks, lists that merge (S11.3, S12)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field

from pagealloc_model.policy.ownership_options import OwnershipOptions
from tests.oracle.buddy import Pageblocks, PageList
from tests.oracle.machine import PCP_TYPES, OracleMachine, is_mergeable
from tests.oracle.pcp import PerCpuPages
from tests.oracle.vmstat import ThisCpu

PHASES = 4  # a refill's phases: recover, claim, chunk, classic (S12.3)
FOLIO_BATCH = 31  # frees that may share one hold of a pcp->lock (S4.11)
PageSet = tuple[int, int]  # index of a zone and CPU: whose lists they are


@dataclass
class PhaseCount:
    """One phase of refills: how many got something by it, and what."""

    refills: int = 0
    objects: int = 0
    pages: int = 0


@dataclass
class OwnershipCount:
    """Counts of what one CPU did in one zone."""

    phases: tuple[PhaseCount, ...] = field(
        default_factory=lambda: tuple(PhaseCount() for _ in range(PHASES))
    )
    claimed: int = 0  # blocks that became owned
    recorded: int = 0  # blocks put on a recorded list
    recovered: int = 0  # blocks taken off one by a refill
    ended: int = 0  # ownerships ended
    remote_frees: int = 0  # frees routed to another CPU's lists
    lock_acquisitions: int = 0  # of pcp->lock, to allocate or to free
    lock_drain_holds: int = 0  # of pcp->lock, to drain only
    lock_handovers: int = 0  # of both, those after another CPU's
    splits: int = 0  # pages cut in two on the lists
    merges: int = 0  # pairs joined on the lists
    merge_looks: int = 0  # entries looked at to find pairs
    recorded_looks: int = 0  # recorded blocks looked at by refills


class OwnershipCounters:
    """Counts by zone and by the CPU that acts, whoever's lists it acts on."""

    def __init__(self, this_cpu: ThisCpu) -> None:
        self._this_cpu = this_cpu
        self._counts: defaultdict[PageSet, OwnershipCount] = defaultdict(OwnershipCount)

    def of(self, zone: int) -> OwnershipCount:
        return self._counts[zone, self._this_cpu.number]

    def clear(self) -> None:
        self._counts.clear()

    def at(self, zone: int, cpu: int) -> OwnershipCount:
        return self._counts[zone, cpu]


class ListLocks:
    """pcp->lock of every page set: how often it is taken, and when it changes hands.

    By CPU it holds: the last frees of a folio batch that keep one lock, and how many they are; the
    lock kept for interrupts into a refill or drain; the page set that the last free drained.
    """

    def __init__(self, this_cpu: ThisCpu, counters: OwnershipCounters) -> None:
        self._this_cpu = this_cpu
        self._counters = counters
        self.forget()

    def forget(self) -> None:
        self._holders: dict[PageSet, int] = {}
        self._runs: dict[int, tuple[PageSet, int]] = {}
        self._kept: dict[int, PageSet] = {}
        self._drained: dict[int, PageSet] = {}
        self._interrupted: PageSet | None = None

    def take(self, zone: int, owner: int) -> None:
        """pcp_spin_trylock(): take the lock of a CPU's lists, to allocate or to free."""
        self._counters.of(zone).lock_acquisitions += 1
        self._hand_over(zone, owner)

    def take_to_drain(self, zone: int, owner: int) -> None:
        """Take the lock for a drain's chunk that does nothing else."""
        self._counters.of(zone).lock_drain_holds += 1
        self._hand_over(zone, owner)

    def take_to_free(self, zone: int, owner: int, *, batched: bool) -> None:
        """Part of free_unref_folios(): take the lock for a free, or keep the last's (S4.11)."""
        cpu = self._this_cpu.number
        if self._interrupted:
            self.take(zone, owner)
            return
        page_set, length = self._runs.pop(cpu, (None, 0))
        if not batched or page_set != (zone, owner) or length == FOLIO_BATCH:
            self.take(zone, owner)
            length = 0
        if batched:
            self._runs[cpu] = (zone, owner), length + 1

    def _hand_over(self, zone: int, owner: int) -> None:
        taker = self._this_cpu.number
        last = self._holders.get((zone, owner), taker)
        self._holders[zone, owner] = taker
        self._counters.of(zone).lock_handovers += last != taker

    def is_held(self, zone: int, owner: int) -> bool:
        """pcp_spin_trylock(): return whether it fails, as what is interrupted holds the lock."""
        return self._interrupted == (zone, owner)

    def keep(self, zone: int, owner: int) -> None:
        """Keep a lock for interrupts into the CPU's refill or drain (S4.10)."""
        self._kept[self._this_cpu.number] = (zone, owner)

    def note_drain(self, zone: int, owner: int) -> None:
        self._drained[self._this_cpu.number] = (zone, owner)

    def keep_drained(self) -> None:
        """Keep the lock of what the acting CPU's last free drained, if any.

        A folio batch is over. What is kept already stays so.
        """
        cpu = self._this_cpu.number
        self._runs.pop(cpu, None)
        drained = self._drained.get(cpu)
        if drained and cpu not in self._kept:
            self.keep(*drained)

    def begin(self, cpu: int, *, batched: bool = False, interrupts: bool = False) -> None:
        """Begin an event of a CPU; it ends, goes on with or interrupts a batch.

        The lock that what is interrupted holds stays held: a batch's, a refill's or a drain's
        (S4.10).
        """
        if interrupts:
            page_set, _ = self._runs.get(cpu, (None, 0))
            self._interrupted = self._kept.get(cpu) or page_set
            return
        run = self._runs.get(cpu)
        self.end_run(cpu)
        if batched and run:
            self._runs[cpu] = run

    def end_run(self, cpu: int) -> None:
        """End what a CPU did under a list's lock, as it does something else."""
        for held in (self._runs, self._kept, self._drained):
            held.pop(cpu, None)
        self._interrupted = None


@dataclass
class Owned:
    """An owned block."""

    zone: int  # index of the zone it lies in
    cpu: int  # its owner
    recorded: bool = False  # it is on the recorded list of its owner's page set


class OwnedPageblocks(Pageblocks):
    """Types and owners; what happens to blocks ends their ownership by itself.

    Attributes:
        recorded: blocks recorded by each page set, by number, oldest first.
    """

    def __init__(
        self, machine: OracleMachine, options: OwnershipOptions, counters: OwnershipCounters
    ) -> None:
        super().__init__(machine)
        self.options = options
        self._counters = counters
        self.owned: dict[int, Owned] = {}  # owned blocks by number
        self.recorded: defaultdict[PageSet, PageList] = defaultdict(PageList)

    def owner_of(self, pfn: int) -> int | None:
        """The CPU that owns the block of a page, if one does."""
        block = self.owned.get(self.number(pfn))
        return None if block is None else block.cpu

    def own(self, pfn: int, zone: int, cpu: int) -> None:
        """Make a CPU the owner of a block (S12.3, phase 1)."""
        self.owned[self.number(pfn)] = Owned(zone, cpu)
        self._counters.of(zone).claimed += 1

    def unrecord(self, number: int) -> None:
        """Note that a block's fragments are back on its owner's lists."""
        block = self.owned[number]
        block.recorded = False
        self.recorded[block.zone, block.cpu].remove(number)

    def note_drained(self, pfn: int) -> None:
        """Note that an owned block's page went from a list to the zone."""
        number = self.number(pfn)
        block = self.owned.get(number)
        if block is None or block.recorded:
            return
        recorded = self.recorded[block.zone, block.cpu]
        is_full = 0 < self.options.recorded_cap <= len(recorded)
        if is_full or self.options.ownership_ends == "drained":
            self.end(number)
            return
        block.recorded = True
        recorded.push_tail(number)
        self._counters.of(block.zone).recorded += 1

    def note_free_buddy(self, pfn: int, order: int) -> None:
        """Take the owners of whole free blocks (S12.2)."""
        for start in range(pfn, pfn + (1 << order), self.pages):
            self.end(self.number(start))

    def set_type(self, block: int, migratetype: int) -> None:
        """set_pageblock_migratetype(): retag one block; only types 0 to 2 may be owned."""
        has_changed = self.types[block] != migratetype
        super().set_type(block, migratetype)
        ends = has_changed and self.options.type_change == "end"
        if ends or not is_mergeable(migratetype):
            self.end(block)

    def end(self, number: int) -> None:
        """Take a block's owner, if it had one."""
        block = self.owned.get(number)
        if block is None:
            return
        if block.recorded:
            self.unrecord(number)
        del self.owned[number]
        self._counters.of(block.zone).ended += 1

    def end_recorded(self, zone: int, cpu: int) -> None:
        """Take the owner of all blocks recorded by a page set."""
        for number in list(self.recorded[zone, cpu]):
            self.end(number)

    def end_all(self, zone: int, cpu: int) -> None:
        """Take the owner of all blocks that a CPU owns in a zone."""
        for number, block in list(self.owned.items()):
            if (block.zone, block.cpu) == (zone, cpu):
                self.end(number)


class MergingLists:
    """Pages of every order up to a block's; those that may merge carry a mark."""

    def __init__(
        self,
        zone: int,
        cpu: int,
        pcp: PerCpuPages,
        blocks: OwnedPageblocks,
        counters: OwnershipCounters,
    ) -> None:
        self.zone = zone
        self.cpu = cpu  # whose lists these are
        self.pcp = pcp  # the lists, and how many pages they may hold
        self.mergeable: set[int] = set()  # first pages of the listed pages that carry the mark
        # (first page, order) of what others freed without the lock, newest first; on no list yet
        self.lockless: list[tuple[int, int]] = []
        self._blocks = blocks
        self._counters = counters

    def smallest(self, order: int, migratetype: int) -> int | None:
        for current in range(order, self._blocks.order + 1):
            if self.pcp.list_of(current, migratetype):
                return current
        return None

    def take(self, order: int, migratetype: int) -> tuple[int, bool] | None:
        """Take the head of the smallest sufficient page, split to size; the rest stays listed."""
        current = self.smallest(order, migratetype)
        if current is None:
            return None
        pfn = self.pcp.list_of(current, migratetype).pop_head()
        is_marked = pfn in self.mergeable
        self.mergeable.discard(pfn)
        while current > order:
            current -= 1
            self._counters.of(self.zone).splits += 1
            upper = pfn + (1 << current)
            self.pcp.list_of(current, migratetype).push_head(upper)
            if is_marked:
                self.mergeable.add(upper)
        return pfn, is_marked

    def merge_all(self) -> None:
        """Join buddies, smallest first; a pair goes to the tail."""
        for order in range(self._blocks.order):
            for migratetype in range(PCP_TYPES):
                pages = self.pcp.list_of(order, migratetype)
                for pfn in list(pages):
                    if pfn in pages:
                        self._counters.of(self.zone).merge_looks += 1
                        if self._joins(pfn, order, migratetype):
                            pair = pfn & ~(1 << order)
                            self.pcp.list_of(order + 1, migratetype).push_tail(pair)

    def merge_upward(self, pfn: int, order: int, migratetype: int) -> None:
        """Join one page with its buddy, and so on.

        The result stays in front. The page is looked at if it may merge at all, and so is what
        becomes of it.
        """
        if pfn not in self.mergeable:
            return
        self._counters.of(self.zone).merge_looks += 1
        while self._joins(pfn, order, migratetype):
            pfn &= ~(1 << order)
            order += 1
            self.pcp.list_of(order, migratetype).push_head(pfn)
            self._counters.of(self.zone).merge_looks += 1

    def drain(
        self, budget: int, first: int, free: Callable[[int, int], None], *, largest: bool
    ) -> int:
        """free_pcppages_bulk(): hand over the largest pages first, or list after list.

        Of a list the coldest go first; the last may overshoot.
        """

        def free_unmarked(pfn: int, order: int) -> None:
            self.mergeable.discard(pfn)
            free(pfn, order)

        if not largest:
            return self.pcp.free_pcppages_bulk(budget, first, free_unmarked)
        budget = min(budget, self.pcp.count)
        objects = 0
        while budget > 0:
            order, pages = next(
                (order, pages)
                for order in range(self._blocks.order, -1, -1)
                for migratetype in range(PCP_TYPES)
                if (pages := self.pcp.list_of(order, migratetype))
            )
            free_unmarked(pages.pop_tail(), order)
            budget -= 1 << order
            objects += 1
        return objects

    def _joins(self, pfn: int, order: int, migratetype: int) -> bool:
        """Take a page and its buddy off their list, and mark the pair.

        That is if both are here, marked, of a block owned. Returns whether they are.
        """
        pages = self.pcp.list_of(order, migratetype)
        pair = {pfn, pfn ^ (1 << order)}
        is_pair = order < self._blocks.order and all(page in pages for page in pair)
        if not (is_pair and pair <= self.mergeable and self._blocks.owner_of(pfn) == self.cpu):
            return False
        for page in pair:
            pages.remove(page)
        self.mergeable -= pair
        self.mergeable.add(pfn & ~(1 << order))
        self._counters.of(self.zone).merges += 1
        return True
