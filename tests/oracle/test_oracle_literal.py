"""What a recording tells besides requests and frees, by hand (S10.4)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.oracle import Bits, Migratetype, Oracle, OracleAssumptions
from tests.oracle.scenarios import (
    BLOCK,
    KERNEL,
    events_named,
    one_zone,
    oracle,
    put_free_blocks,
    put_free_memory,
    two_nodes,
    zone,
)

UNMOVABLE, MOVABLE, HIGHATOMIC = Migratetype.UNMOVABLE, Migratetype.MOVABLE, Migratetype.HIGHATOMIC
DMA32, NORMAL = 0, 1
LISTED = 3
"""A page that some tests free to a list."""


def in_pieces(rules: str = "7.2", assumptions: OracleAssumptions | None = None) -> Oracle:
    """One page of a block in use, one on CPU 0's list, the others free; two reserved blocks."""
    target = oracle(one_zone(8, nr_cpus=2), rules, assumptions=assumptions)
    target.put_allocated(0, 2, movable=True)
    for order in range(2, 9):
        target.put_free(1 << order, order, MOVABLE)
    for block in (5, 7):
        target.set_block_type(block, HIGHATOMIC)
        target.put_free(block * BLOCK, 9, HIGHATOMIC)
    target.free(0, LISTED, 0)
    target.events.clear()
    return target


@pytest.mark.parametrize(("order", "below_high"), [(0, False), (8, False), (9, True)])
def test_a_failure_looks_at_the_high_mark(order: int, below_high: bool) -> None:
    """No free buddy of order 9: that a huge page fails tells on lists of single pages."""
    target = in_pieces()
    target.fail_as_recorded(0, order, MOVABLE, DMA32, Bits.DIRECT_RECLAIM)
    assert target.zones[0].flags.below_high == below_high
    assert target.recorded_failures == 1
    assert not target.events
    target.check()


def test_lists_of_fixed_limits_have_no_use_for_it() -> None:
    target = in_pieces("6.1")
    target.fail_as_recorded(0, 9, MOVABLE, DMA32, Bits.DIRECT_RECLAIM)
    assert not target.zones[0].flags.below_high


@pytest.mark.parametrize(("bits", "wakes"), [(KERNEL, True), (Bits.DIRECT_RECLAIM, False)])
def test_a_failure_wakes_kswapd(bits: Bits, wakes: bool) -> None:
    target = in_pieces()
    target.fail_as_recorded(0, 9, MOVABLE, DMA32, bits)
    assert target.kswapd[0].active == wakes


@pytest.mark.parametrize("reclaimed", [0, 1])
def test_a_failure_made_room_if_reclaim_freed_pages_for_it(reclaimed: int) -> None:
    target = in_pieces()
    target.fail_as_recorded(1, 9, MOVABLE, DMA32, Bits.DIRECT_RECLAIM, reclaimed=reclaimed)
    sites = [event[1:3] for event in events_named(target, "hold")]
    assert sites == [("unreserve", ""), ("drain", "drain_all")] * reclaimed
    assert target.zones[0].pcp[0].count == 1 - reclaimed
    assert target.zones[0].reserve.reserved == (2 - reclaimed) * BLOCK


@pytest.mark.parametrize("recorded", [False, True])
def test_recorded_drains_are_the_only_ones(recorded: bool) -> None:
    target = in_pieces(assumptions=OracleAssumptions(drains_recorded=recorded))
    target.drain_all()
    target.fail_as_recorded(1, 9, MOVABLE, DMA32, Bits.DIRECT_RECLAIM, reclaimed=1)
    assert target.zones[0].pcp[0].count == recorded
    target.drain_zone(DMA32, cpu=1, by=0)
    assert target.zones[0].pcp[0].count == recorded
    target.drain_zone(DMA32, cpu=0, by=1)
    assert target.zones[0].pcp[0].count == 0


def with_two_zones() -> Oracle:
    """DMA32 on one node has free memory, and so have Normal there and Normal on another."""
    target = oracle(two_nodes(), "7.2")
    for index in (0, 1, 3):
        put_free_memory(target, index)
    return target


def served_by(target: Oracle, only_zone: int | None, bits: Bits = KERNEL) -> int:
    """The zone of a page that CPU 0 is given."""
    ((pfn, _),) = target.alloc_as_recorded(0, 0, MOVABLE, NORMAL, bits, only_zone=only_zone)
    return target.zone_of(pfn).index


def test_the_imposed_zone_serves() -> None:
    target = with_two_zones()
    assert [served_by(target, zone) for zone in (None, 0, 1, 3)] == [1, 0, 1, 3]
    assert target.forced == 0


def test_other_zones_are_looked_at() -> None:
    """Normal lacks pages of its high mark, DMA32 serves though it has as few."""
    machine = two_nodes()
    zones = tuple(replace(each, high=each.managed * 2) for each in machine.zones)
    target = oracle(replace(machine, zones=zones), "7.2")
    put_free_memory(target, 0)
    put_free_memory(target, 1)
    assert served_by(target, only_zone=0) == 0
    assert [each.flags.below_high for each in target.zones] == [True, True, False, False]


def test_a_zone_that_the_list_lacks_is_forced() -> None:
    """A caller may ask for another node than its CPU's (alloc_pages_node), and for that only."""
    target = with_two_zones()
    assert served_by(target, 3, KERNEL | Bits.THISNODE) == 3
    assert target.forced == 1


def test_an_imposed_boost_takes_the_place_of_the_last() -> None:
    target = in_pieces()
    for pages in (1024, 512):
        target.set_boost(DMA32, pages)
    assert target.zones[0].watermarks.boost == 512


def test_hidden_requests_are_served_like_others() -> None:
    target = in_pieces()
    assert target.alloc_hidden(0, 0, MOVABLE, DMA32, Bits.NONE) == ((LISTED, 0),)
    assert target.hidden == 1
    target.free_nothing(0)
    assert target.orphan_frees == 1
    target.check()


@pytest.mark.parametrize("order", [8, 9, 10])
def test_memory_that_comes_is_last(order: int) -> None:
    """Orders above a pageblock's are freed block by block, and merge again."""
    blocks = 12
    machine = one_zone(blocks)
    spec = zone("DMA32", 0, blocks, managed=4 * BLOCK)
    target = oracle(replace(machine, zones=(spec,)), "6.12")
    put_free_blocks(target, 1, 1)
    target.put_free(2 * BLOCK, 10, MOVABLE)
    target.put_free(BLOCK // 2, 8, MOVABLE)
    first = 8 * BLOCK
    target.grow(DMA32, first, order)
    assert list(target.zones[0].buddy.lists[order, MOVABLE])[-1] == first
    assert len(target.zones[0].buddy.lists[order, MOVABLE]) == 2
    assert target.zones[0].spec.managed == 4 * BLOCK + (1 << order)
    assert target.zones[0].watermarks.zone.managed == 4 * BLOCK + (1 << order)
    assert not target.events
    target.check()
