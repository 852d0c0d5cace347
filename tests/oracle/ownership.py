"""Who owns which pageblock, and which owned blocks have fragments in the zone (S12.2)."""

from __future__ import annotations

from dataclasses import dataclass

from tests.oracle.machine import OracleMachine, is_mergeable
from tests.oracle.ownership_counters import OwnershipCounters
from tests.oracle.ownership_options import OracleOwnership
from tests.oracle.page_list import PageList
from tests.oracle.pageblocks import Pageblocks
from tests.oracle.rules import OraclePolicy


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
        """No kernel function: return the blocks recorded by a page set, oldest first.

        They are numbers.
        """
        return list(self._recorded_list(zone, cpu))

    def own(self, pfn: int, zone: int, cpu: int) -> None:
        """No kernel function: make a CPU the owner of a block (S12.3, phase 1)."""
        self._owned[self.number(pfn)] = Owned(zone, cpu)
        self._counters.of(zone).claimed += 1

    def unrecord(self, number: int) -> None:
        """No kernel function: note that a block's fragments are back.

        They are on its owner's lists.
        """
        block = self._owned[number]
        block.recorded = False
        self._recorded_list(block.zone, block.cpu).remove(number)

    def note_drained(self, pfn: int) -> None:
        """No kernel function: note that a page went from a list to the zone.

        If its block is owned, it has a fragment there.
        """
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
        """set_pageblock_migratetype(): retag one block.

        Only types 0 to 2 may be owned.
        """
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
