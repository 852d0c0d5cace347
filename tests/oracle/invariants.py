"""What must hold between any two operations."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.oracle.machine import Migratetype, is_mergeable
from tests.oracle.ownership_invariants import check_ownership
from tests.oracle.sizing import LARGEST_STAT_THRESHOLD

if TYPE_CHECKING:
    from tests.oracle.oracle_state import OracleState
    from tests.oracle.zone import Zone


def check(oracle: OracleState) -> None:
    """Raise AssertionError with a sentence on the first thing that is wrong."""
    for zone in oracle.zones:
        _check_free_lists(zone)
        _check_counts(zone)
        _check_merged(zone)
    _check_reserves(oracle)
    _check_places(oracle)
    check_ownership(oracle)


def _check_free_lists(zone: Zone) -> None:
    for (order, migratetype), pages in zone.buddy.lists.items():
        for pfn in pages:
            last = pfn + (1 << order) - 1
            assert pfn % (1 << order) == 0, f"free buddy {pfn} is not aligned to order {order}"
            assert zone.spec.spans(pfn), f"free buddy {pfn} lies outside its zone"
            assert zone.spec.spans(last), f"free buddy {pfn} reaches out of its zone"
            for page in range(pfn, last + 1, zone.blocks.pages):
                found = zone.blocks.type_of(page)
                assert _may_list(zone, found, migratetype), (
                    f"page {page} in a block of type {found} is on a list of type {migratetype}"
                )


def _may_list(zone: Zone, block_type: int, list_type: int) -> bool:
    """Whether free pages of such a block may be on such a list; loose lists swap some types."""
    if zone.rules.free_lists_match_blocks:
        return block_type == list_type
    swapped = all(each <= Migratetype.HIGHATOMIC for each in (block_type, list_type))
    return swapped or block_type == list_type


def _check_counts(zone: Zone) -> None:
    free = sum(
        len(pages) << order
        for (order, migratetype), pages in zone.buddy.lists.items()
        if not zone.machine.is_isolate(migratetype)
    )
    highatomic = _free_of_type(zone, Migratetype.HIGHATOMIC)
    cma = _free_of_type(zone, zone.machine.cma)
    counters = zone.counters
    counted = counters.free.total
    assert counted == free, f"zone {zone.index} counts {counted} free pages"
    assert counters.highatomic == highatomic, f"zone {zone.index}: free highatomic pages"
    assert counters.cma.total == cma, f"zone {zone.index}: free CMA pages"
    for kept in (*counters.free.pending, *counters.cma.pending):
        assert abs(kept) <= LARGEST_STAT_THRESHOLD, f"a CPU keeps back {kept} pages"
    for cpu, pcp in enumerate(zone.pcp):
        listed = sum(len(pages) << pcp.layout.order(index) for index, pages in enumerate(pcp.lists))
        assert pcp.count == listed, f"zone {zone.index} cpu {cpu} counts {pcp.count}, has {listed}"


def _free_of_type(zone: Zone, wanted: int | None) -> int:
    return sum(
        len(pages) << order
        for (order, migratetype), pages in zone.buddy.lists.items()
        if migratetype == wanted
    )


def _check_merged(zone: Zone) -> None:
    """No two free buddies lie side by side that a free would have merged (S5.3, S5.4).

    Blocks that the reserve gave back whole stand beside free neighbours until one is used, and so
    do loose lists' blocks whose tag has changed.
    """
    returned = zone.reserve.returned_whole
    checked = zone.buddy.max_order
    if not zone.rules.free_lists_match_blocks:
        checked = min(checked, zone.blocks.order)
    for (order, migratetype), pages in zone.buddy.lists.items():
        for pfn in pages if order < checked else ():
            neighbour = pfn ^ (1 << order)
            buddy = zone.buddy.at(neighbour)
            if buddy is None or buddy.order != order or {pfn, neighbour} & returned:
                continue
            mergeable = is_mergeable(buddy.migratetype) and is_mergeable(migratetype)
            kept_apart = buddy.migratetype != migratetype and not mergeable
            assert kept_apart and order >= zone.blocks.order, (
                f"free buddies {pfn} and {neighbour} of order {order} are not merged"
            )


def _check_reserves(oracle: OracleState) -> None:
    """Loose lists lose HIGHATOMIC tags to fallbacks that the reserve is not told of."""
    reserved = sum(zone.reserve.reserved for zone in oracle.zones)
    types = oracle.blocks.as_dict().values()
    tagged = sum(each == Migratetype.HIGHATOMIC for each in types) * oracle.blocks.pages
    agrees = reserved == tagged if oracle.rules.free_lists_match_blocks else reserved >= tagged
    assert agrees, f"{reserved} pages reserved, {tagged} in HIGHATOMIC blocks"


def _check_places(oracle: OracleState) -> None:
    """Every page laid out at the start is in exactly one place."""
    owner = dict.fromkeys(oracle.allocated.pages(), "allocated")
    for zone in oracle.zones:
        for (order, migratetype), pages in zone.buddy.lists.items():
            for pfn in pages:
                _own(owner, pfn, order, f"free list {order}/{migratetype}")
        for cpu, pcp in enumerate(zone.pcp):
            for index, pages in enumerate(pcp.lists):
                for pfn in pages:
                    _own(owner, pfn, pcp.layout.order(index), f"list {index} of cpu {cpu}")
    assert len(owner) == oracle.placed_pages, (
        f"{len(owner)} pages are somewhere, {oracle.placed_pages} were laid out"
    )


def _own(owner: dict[int, str], pfn: int, order: int, place: str) -> None:
    for page in range(pfn, pfn + (1 << order)):
        assert page not in owner, f"page {page} is on {place} and also {owner[page]}"
        owner[page] = place
