"""What must hold of owned blocks between any two operations (S12.2)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.oracle.machine import is_mergeable
from tests.oracle.ownership import OwnedPageblocks
from tests.oracle.ownership_lists import MergingLists
from tests.oracle.ownership_zone import OwningZone

if TYPE_CHECKING:
    from tests.oracle.oracle_state import OracleState


def check_ownership(oracle: OracleState) -> None:
    """Raise AssertionError with a sentence on the first thing that is wrong."""
    blocks = oracle.blocks
    if not isinstance(blocks, OwnedPageblocks):
        return
    _check_owners(oracle, blocks)
    for zone in oracle.zones:
        assert isinstance(zone, OwningZone)
        _check_whole_buddies(zone, blocks)
        for lists in zone.lists:
            _check_recorded(zone, lists.cpu, blocks)
            _check_marks(lists, blocks)


def _check_owners(oracle: OracleState, blocks: OwnedPageblocks) -> None:
    for number, block in blocks.owned().items():
        assert 0 <= block.cpu < oracle.machine.nr_cpus, f"block {number} belongs to {block.cpu}"
        migratetype = blocks.type_of(number << blocks.order)
        assert is_mergeable(migratetype), f"block {number} of type {migratetype} is owned"
        zone = oracle.zone_of(number << blocks.order).index
        assert zone == block.zone, f"block {number} lies in zone {zone}, not {block.zone}"
        is_listed = number in blocks.recorded(block.zone, block.cpu)
        assert is_listed == block.recorded, f"block {number} is recorded: {block.recorded}"


def _check_recorded(zone: OwningZone, cpu: int, blocks: OwnedPageblocks) -> None:
    owned = blocks.owned()
    for number in blocks.recorded(zone.index, cpu):
        assert number in owned, f"block {number} is recorded, not owned"
        block = owned[number]
        assert (block.zone, block.cpu) == (zone.index, cpu), (
            f"block {number} of cpu {block.cpu} is recorded by cpu {cpu}"
        )


def _check_whole_buddies(zone: OwningZone, blocks: OwnedPageblocks) -> None:
    for (order, _), pages in zone.buddy.lists.items():
        for pfn in pages if order >= blocks.order else ():
            for start in range(pfn, pfn + (1 << order), blocks.pages):
                owner = blocks.owner_of(start)
                assert owner is None, f"the free block of page {start} belongs to cpu {owner}"


def _check_marks(lists: MergingLists, blocks: OwnedPageblocks) -> None:
    listed = {pfn for pages in lists.pcp.lists for pfn in pages}
    assert lists.mergeable <= listed, f"cpu {lists.cpu} has marks on pages that are not listed"
    for pfn in lists.mergeable:
        owner = blocks.owner_of(pfn)
        assert owner in (None, lists.cpu), (
            f"page {pfn} of cpu {owner}'s block is mergeable on a list of cpu {lists.cpu}"
        )
