"""Owned pageblocks: counts, locks of lists, owners of blocks, lists that merge (S11.3, S12)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field

from tests.oracle.buddy import Pageblocks, PageList
from tests.oracle.machine import PCP_TYPES, OracleMachine, is_mergeable
from tests.oracle.pcp import PerCpuPages
from tests.oracle.rules import OracleOwnership, OraclePolicy
from tests.oracle.vmstat import ThisCpu

PHASES = 4
"""A refill's phases: recover, claim, chunk, classic (S12.3)."""

FOLIO_BATCH = 31
"""Frees that may share one hold of a pcp->lock (S4.11)."""


@dataclass
class PhaseCount:
    """One phase of refills: how many got something by it, and what."""

    refills: int = 0
    objects: int = 0
    pages: int = 0


@dataclass
class OwnershipCount:
    """What one CPU did in one zone.

    Attributes:
        phases: by phase of refills.
        claimed: blocks that became owned.
        recorded: blocks put on a recorded list.
        recovered: blocks taken off one by a refill.
        ended: ownerships ended.
        remote_frees: frees routed to another CPU's lists.
        busy_frees: those that found them locked.
        lock_acquisitions: of pcp->lock, to allocate or to free.
        lock_drain_holds: of pcp->lock, to drain only.
        lock_handovers: of both, those after another CPU's.
        splits: pages cut in two on the lists.
        merges: pairs joined on the lists.
        merge_looks: entries looked at to find pairs.
        recorded_looks: recorded blocks looked at by refills.
    """

    phases: tuple[PhaseCount, ...] = field(
        default_factory=lambda: tuple(PhaseCount() for _ in range(PHASES))
    )
    claimed: int = 0
    recorded: int = 0
    recovered: int = 0
    ended: int = 0
    remote_frees: int = 0
    busy_frees: int = 0
    lock_acquisitions: int = 0
    lock_drain_holds: int = 0
    lock_handovers: int = 0
    splits: int = 0
    merges: int = 0
    merge_looks: int = 0
    recorded_looks: int = 0


class OwnershipCounters:
    """Counts by zone and by the CPU that acts, whoever's lists it acts on."""

    def __init__(self, this_cpu: ThisCpu) -> None:
        self._this_cpu = this_cpu
        self._counts: defaultdict[tuple[int, int], OwnershipCount] = defaultdict(OwnershipCount)

    def of(self, zone: int) -> OwnershipCount:
        """No kernel function: return the acting CPU's counts in a zone."""
        return self._counts[zone, self._this_cpu.number]

    @property
    def remote_frees(self) -> int:
        """No kernel function: return the frees to other CPUs' lists, of all CPUs and zones."""
        return sum(each.remote_frees for each in self._counts.values())

    def clear(self) -> None:
        """No kernel function: count from 0."""
        self._counts.clear()

    def at(self, zone: int, cpu: int) -> OwnershipCount:
        """No kernel function: return a CPU's counts in a zone."""
        return self._counts[zone, cpu]


@dataclass
class _FreeRun:
    """Consecutive frees of a folio batch that keep one pcp->lock."""

    zone: int
    owner: int
    length: int


class ListLocks:
    """pcp->lock of every page set: how often it is taken, and when it changes hands."""

    def __init__(self, this_cpu: ThisCpu, counters: OwnershipCounters) -> None:
        self._this_cpu = this_cpu
        self._counters = counters
        self._holders: dict[tuple[int, int], int] = {}
        self._runs: dict[int, _FreeRun] = {}
        self._kept: dict[int, tuple[int, int]] = {}
        self._drained: dict[int, tuple[int, int]] = {}
        self._interrupted: tuple[int, int] | None = None

    def take(self, zone: int, owner: int) -> None:
        """pcp_spin_trylock(): take the lock of a CPU's lists, to allocate or to free."""
        self._counters.of(zone).lock_acquisitions += 1
        self._hand_over(zone, owner)

    def take_to_drain(self, zone: int, owner: int) -> None:
        """No kernel function: take the lock for a drain's chunk that does nothing else."""
        self._counters.of(zone).lock_drain_holds += 1
        self._hand_over(zone, owner)

    def take_to_free(self, zone: int, owner: int, *, batched: bool) -> None:
        """Part of free_unref_folios(): take the lock for a free, or keep the last's (S4.11)."""
        cpu = self._this_cpu.number
        if self._interrupted:
            self.take(zone, owner)
            return
        run = self._runs.pop(cpu, None)
        if batched and run and (run.zone, run.owner) == (zone, owner) and run.length < FOLIO_BATCH:
            run.length += 1
        else:
            self.take(zone, owner)
            run = _FreeRun(zone, owner, 1)
        if batched:
            self._runs[cpu] = run

    def _hand_over(self, zone: int, owner: int) -> None:
        """No kernel function: count an acquisition and who had the lock before."""
        taker = self._this_cpu.number
        last = self._holders.get((zone, owner), taker)
        self._holders[zone, owner] = taker
        self._counters.of(zone).lock_handovers += last != taker

    def forget(self) -> None:
        """No kernel function: forget who had the locks."""
        self._holders.clear()
        self._runs.clear()
        self._kept.clear()
        self._drained.clear()
        self._interrupted = None

    def is_held(self, zone: int, owner: int) -> bool:
        """pcp_spin_trylock(): return whether it fails, as what is interrupted holds the lock."""
        return self._interrupted == (zone, owner)

    def keep(self, zone: int, owner: int) -> None:
        """No kernel function: keep a lock for interrupts into the CPU's refill or drain (S4.10)."""
        self._kept[self._this_cpu.number] = (zone, owner)

    def note_drain(self, zone: int, owner: int) -> None:
        """No kernel function: note that the acting CPU's free drains a list."""
        self._drained[self._this_cpu.number] = (zone, owner)

    def keep_drained(self) -> None:
        """No kernel function: keep the lock of what the acting CPU's last free drained, if any.

        A folio batch is over. What is kept already stays so.
        """
        cpu = self._this_cpu.number
        self._runs.pop(cpu, None)
        drained = self._drained.get(cpu)
        if drained and cpu not in self._kept:
            self.keep(*drained)

    def begin(self, cpu: int, *, batched: bool = False, interrupts: bool = False) -> None:
        """No kernel function: begin an event of a CPU; it ends, goes on with or interrupts a batch.

        The lock that what is interrupted holds stays held: a batch's, a refill's or a drain's
        (S4.10).
        """
        if not (batched or interrupts):
            self.end_run(cpu)
        if not interrupts:
            self._kept.pop(cpu, None)
            self._drained.pop(cpu, None)
        self._interrupted = self._held_by(cpu) if interrupts else None

    def end_run(self, cpu: int) -> None:
        """No kernel function: end what a CPU did under a list's lock, as it does something else."""
        self._runs.pop(cpu, None)
        self._kept.pop(cpu, None)
        self._drained.pop(cpu, None)
        self._interrupted = None

    def _held_by(self, cpu: int) -> tuple[int, int] | None:
        """No kernel function: return the zone and owner of the list that a CPU keeps locked."""
        run = self._runs.get(cpu)
        return self._kept.get(cpu) or ((run.zone, run.owner) if run else None)


@dataclass
class Owned:
    """An owned block.

    Attributes:
        zone: index of the zone it lies in.
        cpu: its owner.
        recorded: it is on the recorded list of its owner's page set.
    """

    zone: int
    cpu: int
    recorded: bool = False


class OwnedPageblocks(Pageblocks):
    """Types and owners; what happens to blocks ends their ownership by itself.

    Attributes:
        options: when ownership ends, and how many blocks may be recorded.
    """

    def __init__(
        self, machine: OracleMachine, options: OracleOwnership, counters: OwnershipCounters
    ) -> None:
        super().__init__(machine)
        self.options = options
        self._counters = counters
        self._owned: dict[int, Owned] = {}
        self._recorded: dict[tuple[int, int], PageList] = {}

    def owned(self) -> dict[int, Owned]:
        """No kernel function: return the owned blocks by number."""
        return dict(self._owned)

    def owner_of(self, pfn: int) -> int | None:
        """No kernel function: return the CPU that owns the block of a page, if one does."""
        block = self._owned.get(self.number(pfn))
        return None if block is None else block.cpu

    def recorded(self, zone: int, cpu: int) -> list[int]:
        """No kernel function: return the blocks recorded by a page set, by number, oldest first."""
        return list(self._recorded_list(zone, cpu))

    def own(self, pfn: int, zone: int, cpu: int) -> None:
        """No kernel function: make a CPU the owner of a block (S12.3, phase 1)."""
        self._owned[self.number(pfn)] = Owned(zone, cpu)
        self._counters.of(zone).claimed += 1

    def unrecord(self, number: int) -> None:
        """No kernel function: note that a block's fragments are back on its owner's lists."""
        block = self._owned[number]
        block.recorded = False
        self._recorded_list(block.zone, block.cpu).remove(number)

    def note_drained(self, pfn: int) -> None:
        """No kernel function: note that an owned block's page went from a list to the zone."""
        number = self.number(pfn)
        block = self._owned.get(number)
        if block is None or block.recorded:
            return
        recorded = self._recorded_list(block.zone, block.cpu)
        is_full = 0 < self.options.recorded_cap <= len(recorded)
        if is_full or self.options.ownership_ends == "drained":
            self.end(number)
            return
        block.recorded = True
        recorded.push_tail(number)
        self._counters.of(block.zone).recorded += 1

    def note_free_buddy(self, pfn: int, order: int) -> None:
        """No kernel function: take the owners of whole free blocks (S12.2)."""
        for start in range(pfn, pfn + (1 << order), self.pages):
            self.end(self.number(start))

    def set_type(self, block: int, migratetype: int) -> None:
        """set_pageblock_migratetype(): retag one block; only types 0 to 2 may be owned."""
        has_changed = self._types[block] != migratetype
        super().set_type(block, migratetype)
        ends = has_changed and self.options.type_change == "end"
        if ends or not is_mergeable(migratetype):
            self.end(block)

    def end(self, number: int) -> None:
        """No kernel function: take a block's owner, if it had one."""
        block = self._owned.get(number)
        if block is None:
            return
        if block.recorded:
            self.unrecord(number)
        del self._owned[number]
        self._counters.of(block.zone).ended += 1

    def end_recorded(self, zone: int, cpu: int) -> None:
        """No kernel function: take the owner of all blocks recorded by a page set."""
        for number in self.recorded(zone, cpu):
            self.end(number)

    def end_all(self, zone: int, cpu: int) -> None:
        """No kernel function: take the owner of all blocks that a CPU owns in a zone."""
        for number, block in self.owned().items():
            if (block.zone, block.cpu) == (zone, cpu):
                self.end(number)

    def _recorded_list(self, zone: int, cpu: int) -> PageList:
        """No kernel function: return the recorded blocks of a page set."""
        return self._recorded.setdefault((zone, cpu), PageList())


def new_blocks(
    machine: OracleMachine, policy: OraclePolicy, counters: OwnershipCounters
) -> Pageblocks:
    """No kernel function: return blocks as the policy has them, with owners or without."""
    if policy.ownership is None:
        return Pageblocks(machine)
    return OwnedPageblocks(machine, policy.ownership, counters)


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
        """No kernel function: join buddies, smallest first; a pair goes to the tail."""
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
        """Part of free_pcppages_bulk(): hand over list after list, as `free_pcppages_bulk` does."""

        def free_unmarked(pfn: int, order: int) -> None:
            self.mergeable.discard(pfn)
            free(pfn, order)

        return self.pcp.free_pcppages_bulk(budget, first, free_unmarked)

    def _largest(self) -> tuple[int, int]:
        """No kernel function: return order and index of the list to drain; one has pages."""
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
        """No kernel function: return whether both halves are here, marked, of a block owned."""
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
