"""6.1's fallback rule by hand (S6.5)."""

from __future__ import annotations

import pytest

from tests.oracle import Bits, Migratetype, Oracle, OracleMachine, OraclePolicy
from tests.oracle.scenarios import (
    BLOCK,
    KERNEL,
    events_named,
    one_zone,
    oracle,
    put_free_blocks,
    zone,
)

UNMOVABLE, MOVABLE, RECLAIMABLE = (
    Migratetype.UNMOVABLE,
    Migratetype.MOVABLE,
    Migratetype.RECLAIMABLE,
)
HIGHATOMIC = Migratetype.HIGHATOMIC

NO_LISTS = OraclePolicy(costly_order=0, pcp_batch=1, pcp_high_min=4)
"""Only single pages have per-CPU lists; they are refilled one by one."""


def empty(blocks: int = 4, policy: OraclePolicy = NO_LISTS, **changes: object) -> Oracle:
    return oracle(one_zone(blocks, **changes), "6.1", policy)


def put_block(
    target: Oracle, block: int, migratetype: int, free: dict[int, int], movable: int = 0
) -> None:
    """A block with free buddies (offset: order) and pages in use, the first of them movable."""
    start = block * BLOCK
    target.set_block_type(block, migratetype)
    used = set(range(start, start + BLOCK))
    for offset, order in free.items():
        target.put_free(start + offset, order, migratetype)
        used -= set(range(start + offset, start + offset + (1 << order)))
    for number, page in enumerate(sorted(used)):
        target.put_allocated(page, 0, movable=number < movable)


def take(target: Oracle, migratetype: int, order: int, bits: int = KERNEL) -> int | None:
    return target.alloc(0, order, migratetype, len(target.zones) - 1, bits)


def listed(target: Oracle, order: int, migratetype: int) -> list[int]:
    return list(target.zones[0].buddy.lists[order, migratetype])


def tag(target: Oracle, block: int) -> int:
    return target.dump()["blocks"][block]


def test_a_whole_free_block_is_claimed_and_then_split() -> None:
    """The buddy goes to the own list, its block is tagged, smallest fit takes it from there."""
    target = empty()
    put_free_blocks(target, 0, 2)
    assert take(target, UNMOVABLE, 1) == 0
    assert target.events == [
        ("extfrag", 0, 1, 9, UNMOVABLE, MOVABLE, True),
        ("zone_locked", 0, 1, UNMOVABLE),
        ("hold", "buddy_alloc", "", 1),
    ]
    assert (tag(target, 0), tag(target, 1)) == (UNMOVABLE, MOVABLE)
    assert listed(target, 8, UNMOVABLE) == [256]
    target.check()


def test_an_order_10_buddy_brings_both_blocks() -> None:
    target = empty()
    target.put_free(0, 10, MOVABLE)
    take(target, UNMOVABLE, 1)
    assert (tag(target, 0), tag(target, 1)) == (UNMOVABLE, UNMOVABLE)


def test_the_largest_buddy_beats_the_preferred_type() -> None:
    """A RECLAIMABLE order 5 comes before a MOVABLE order 4, and at one order RECLAIMABLE wins."""
    target = empty()
    put_block(target, 0, RECLAIMABLE, {0: 4})
    put_block(target, 1, MOVABLE, {0: 5})
    put_block(target, 2, RECLAIMABLE, {32: 5})
    assert take(target, UNMOVABLE, 4) == 2 * BLOCK + 32


def test_a_suitable_block_is_moved_and_tagged() -> None:
    """64 + 2 free, 446 in use and not movable: 66 + 446 >= 256. Smallest fit takes the pair."""
    target = empty()
    put_block(target, 0, MOVABLE, {0: 1, 64: 6})
    assert take(target, UNMOVABLE, 1) == 0
    assert target.events[:2] == [
        ("extfrag", 64, 1, 6, UNMOVABLE, MOVABLE, True),
        ("zone_locked", 0, 1, UNMOVABLE),
    ]
    assert tag(target, 0) == UNMOVABLE
    assert listed(target, 6, UNMOVABLE) == [64]
    target.check()


def test_an_unsuitable_block_is_moved_too_but_keeps_its_tag() -> None:
    """64 + 2 free and 400 movable: 66 + 46 < 256; no ownership, yet the pages change lists."""
    target = empty()
    put_block(target, 0, MOVABLE, {0: 1, 64: 6}, movable=400)
    assert take(target, UNMOVABLE, 1) == 0
    assert events_named(target, "extfrag") == [("extfrag", 64, 1, 6, UNMOVABLE, MOVABLE, False)]
    assert tag(target, 0) == MOVABLE
    assert listed(target, 6, UNMOVABLE) == [64]
    target.check()


@pytest.mark.parametrize(("movable", "owned"), [(192, True), (191, False)])
def test_half_a_block_is_enough(movable: int, owned: bool) -> None:
    """MOVABLE into UNMOVABLE: 64 free + 192 movable = 256."""
    target = empty()
    put_block(target, 0, UNMOVABLE, {0: 6}, movable=movable)
    take(target, MOVABLE, 4)
    assert tag(target, 0) == (MOVABLE if owned else UNMOVABLE)


def test_nothing_is_alike_between_unmovable_and_reclaimable() -> None:
    """Free pages alone count, 128 of them."""
    target = empty()
    put_block(target, 0, RECLAIMABLE, {0: 7})
    take(target, UNMOVABLE, 4)
    assert tag(target, 0) == RECLAIMABLE


def test_moved_pages_are_listed_ascending_behind_what_is_there() -> None:
    target = empty()
    put_block(target, 0, MOVABLE, {8: 1, 32: 3, 64: 6, 128: 1})
    target.put_free(BLOCK, 0, UNMOVABLE)
    assert take(target, UNMOVABLE, 1) == 8
    assert listed(target, 1, UNMOVABLE) == [128]
    assert listed(target, 3, UNMOVABLE) == [32]


def test_movable_requests_take_the_smallest_of_small_buddies() -> None:
    """Nothing of order 4 is left: the order-1 buddy moves alone and splits on the own list."""
    target = empty()
    put_block(target, 0, UNMOVABLE, {0: 3, 16: 1})
    put_block(target, 1, MOVABLE, {})
    assert take(target, MOVABLE, 0) == 16
    assert target.events[:2] == [
        ("extfrag", 16, 0, 1, MOVABLE, UNMOVABLE, False),
        ("zone_locked", 16, 0, MOVABLE),
    ]
    assert listed(target, 0, MOVABLE) == [17]
    assert (tag(target, 0), listed(target, 3, UNMOVABLE)) == (UNMOVABLE, [0])
    target.check()


def test_movable_requests_take_the_largest_from_order_4_on() -> None:
    target = empty()
    put_block(target, 0, UNMOVABLE, {0: 4, 16: 1})
    assert take(target, MOVABLE, 0) == 16
    assert events_named(target, "extfrag") == [("extfrag", 0, 0, 4, MOVABLE, UNMOVABLE, False)]
    assert listed(target, 4, MOVABLE) == [0]


def test_a_movable_request_of_the_largest_small_order_moves_the_buddy_alone() -> None:
    """Order 3 is both largest and smallest; the block's other pages stay."""
    target = empty()
    put_block(target, 0, UNMOVABLE, {0: 3, 16: 1})
    assert take(target, MOVABLE, 3) == 0
    assert listed(target, 1, UNMOVABLE) == [16]


def test_small_unmovable_requests_move_whole_blocks() -> None:
    """Worthwhile for UNMOVABLE and RECLAIMABLE at any order."""
    target = empty()
    put_block(target, 0, MOVABLE, {0: 2, 16: 1}, movable=508)
    assert take(target, RECLAIMABLE, 0) == 16
    assert listed(target, 2, RECLAIMABLE) == [0]


def test_a_reserved_block_keeps_its_tag_and_its_other_pages() -> None:
    """Two pages left on the MOVABLE list: one moves, without a boost."""
    target = empty(high=1000)
    target.set_block_type(0, HIGHATOMIC)
    target.put_free(0, 6, MOVABLE)
    target.put_free(128, 5, MOVABLE)
    assert take(target, UNMOVABLE, 1) == 0
    assert events_named(target, "extfrag") == [("extfrag", 0, 1, 6, UNMOVABLE, MOVABLE, False)]
    assert (tag(target, 0), listed(target, 5, MOVABLE)) == (HIGHATOMIC, [128])
    assert target.zones[0].watermarks.boost == 0


def test_ownership_may_be_older_than_the_fallback() -> None:
    """A MOVABLE block's page on the UNMOVABLE list comes home: the event says owned."""
    target = empty()
    put_block(target, 0, MOVABLE, {})
    target.allocated.remove(0, 0)
    target.placed_pages -= 1
    target.put_free(0, 0, UNMOVABLE)
    assert take(target, MOVABLE, 0) == 0
    assert events_named(target, "extfrag") == [("extfrag", 0, 0, 0, MOVABLE, UNMOVABLE, True)]


@pytest.mark.parametrize("outside", ["before", "behind"])
def test_blocks_that_cross_the_zones_edge(outside: str) -> None:
    """Reaching behind the zone a block cannot move; before it, only what precedes the page stays.

    The zone has 384 pages of one block; the free buddies are an order 4, 5 and 4 in this order.
    """
    start = 128 if outside == "before" else 0
    spec = zone("DMA32", 0, 1, start_pfn=start, spanned=384, present=384, managed=BLOCK * 4)
    target = oracle(OracleMachine(zones=(spec,), nr_cpus=1), "6.1", NO_LISTS)
    for pfn, order in ((128, 4), (192, 5), (256, 4)):
        target.put_free(pfn, order, MOVABLE)
    take(target, UNMOVABLE, 0)
    if outside == "behind":
        assert events_named(target, "zone_locked") == [("zone_locked", 192, 0, UNMOVABLE)]
        assert listed(target, 4, MOVABLE) == [128, 256]
    else:
        assert events_named(target, "zone_locked") == [("zone_locked", 256, 0, UNMOVABLE)]
        assert listed(target, 4, MOVABLE) == [128]
        assert listed(target, 5, UNMOVABLE) == [192]


@pytest.mark.parametrize(("bits", "woken"), [(KERNEL, True), (Bits.DIRECT_RECLAIM, False)])
def test_every_fallback_below_block_size_boosts(bits: int, woken: bool) -> None:
    """Also the single buddy of a small movable fallback; cap 1.5 * 1000."""
    target = empty(high=1000)
    target.zones[0].watermarks.boost = 1200
    put_block(target, 0, UNMOVABLE, {0: 3, 16: 1})
    assert take(target, MOVABLE, 0, bits) is not None
    assert target.zones[0].watermarks.boost == 1500
    assert target.kswapd[0].active == woken
    assert not target.zones[0].fallback.boosted


def test_block_sized_fallbacks_do_not_boost() -> None:
    target = empty(high=1000)
    put_free_blocks(target, 0, 4)
    take(target, UNMOVABLE, 0)
    assert target.zones[0].watermarks.boost == 0


def test_whoever_comes_next_acts_on_the_boosted_flag() -> None:
    """S3.2: in 6.1 also a request that may not wake kswapd; later ones leave it alone."""
    for rules, active in (("6.1", True), ("6.12", False)):
        target = oracle(one_zone(4, high=1000, boost=100), rules, NO_LISTS)
        put_free_blocks(target, 0, 4)
        target.zones[0].fallback.boosted = True
        target.alloc(0, 0, MOVABLE, 0, Bits.DIRECT_RECLAIM)
        assert (target.kswapd[0].active, target.zones[0].fallback.boosted) == (active, not active)


def test_each_page_of_a_refill_starts_afresh() -> None:
    """S6.5: the first fallback moves order 1, split for two; the third page falls back again."""
    target = empty(policy=OraclePolicy(pcp_batch=4, pcp_high_min=32))
    put_block(target, 0, UNMOVABLE, {0: 1, 16: 1})
    take(target, MOVABLE, 0)
    assert [event[0] for event in target.events] == [
        *("extfrag", "zone_locked", "zone_locked"),
        *("extfrag", "zone_locked", "zone_locked"),
        "hold",
    ]
    assert target.dump()["pcp"][0, 0, MOVABLE] == [1, 16, 17]


def test_nofragment_takes_whole_blocks_only_until_it_is_dropped() -> None:
    """S3.1: the zone is Normal; first nothing, then the part of a block."""
    spec = zone("Normal", 0, 4)
    target = oracle(OracleMachine(zones=(spec,), nr_cpus=1), "6.1", NO_LISTS)
    put_block(target, 0, MOVABLE, {0: 6})
    assert take(target, UNMOVABLE, 1) == 0
    assert [event[0] for event in target.events] == ["hold", "extfrag", "zone_locked", "hold"]
