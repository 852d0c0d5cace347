"""Claims, steals and boosts by hand (S6, S1.7)."""

from __future__ import annotations

from tests.oracle import Bits, Migratetype, Oracle, OracleMachine, OraclePolicy
from tests.oracle.scenarios import (
    BLOCK,
    KERNEL,
    events_named,
    one_zone,
    oracle,
    put_free_blocks,
    put_free_memory,
    zone,
)

UNMOVABLE, MOVABLE, RECLAIMABLE = 0, 1, 2

SMALL = OraclePolicy(pcp_batch=4, pcp_high_min=32, pcp_high_max=32)


def take(target: Oracle, migratetype: int, order: int = 4, bits: int = KERNEL) -> int | None:
    """One page past the per-CPU lists."""
    return target.alloc(0, order, migratetype, len(target.zones) - 1, bits)


def block_types(target: Oracle) -> dict[int, int]:
    return target.dump()["blocks"]


def put_block(target: Oracle, block: int, migratetype: int, free_order: int, movable: int) -> None:
    """A block with one free buddy at its start, then pages in use, the first `movable` movable."""
    start = block * BLOCK
    target.set_block_type(block, migratetype)
    target.put_free(start, free_order, migratetype)
    for page in range(1 << free_order, BLOCK):
        target.put_allocated(start + page, 0, movable=page < (1 << free_order) + movable)


def test_a_whole_block_is_claimed_first() -> None:
    """S6.3: the largest buddy, retagged; no zone_locked event, one extfrag with ownership."""
    target = oracle(one_zone(4))
    put_free_blocks(target, 0, 2)
    assert take(target, UNMOVABLE) == 0
    assert block_types(target) == {0: UNMOVABLE, 1: MOVABLE, 2: MOVABLE, 3: MOVABLE}
    assert target.events == [
        ("extfrag", 0, 4, 9, UNMOVABLE, MOVABLE, True),
        ("hold", "buddy_alloc", "", 1),
    ]
    target.check()


def test_an_order_10_buddy_is_claimed_with_both_blocks() -> None:
    target = oracle(one_zone(2))
    put_free_memory(target, 0)
    assert take(target, UNMOVABLE) == 0
    assert block_types(target) == {0: UNMOVABLE, 1: UNMOVABLE}
    target.check()


def test_the_first_type_of_the_table_wins_at_equal_order() -> None:
    """S6.1: UNMOVABLE falls back to RECLAIMABLE before MOVABLE."""
    target = oracle(one_zone(4))
    put_free_blocks(target, 0, 1, MOVABLE)
    put_free_blocks(target, 1, 1, RECLAIMABLE)
    assert take(target, UNMOVABLE) == BLOCK


def test_size_beats_type_preference() -> None:
    target = oracle(one_zone(4))
    put_free_blocks(target, 0, 1, MOVABLE)
    put_block(target, 1, RECLAIMABLE, 8, 0)
    assert take(target, UNMOVABLE) == 0


def test_half_a_free_block_is_claimed() -> None:
    """S6.3: 256 free pages of 512 suffice; the page then comes by smallest fit."""
    target = oracle(one_zone(4))
    put_block(target, 0, RECLAIMABLE, 8, 0)
    assert take(target, UNMOVABLE) == 0
    assert block_types(target)[0] == UNMOVABLE
    assert target.events == [
        ("zone_locked", 0, 4, UNMOVABLE),
        ("extfrag", 0, 4, 8, UNMOVABLE, RECLAIMABLE, True),
        ("hold", "buddy_alloc", "", 1),
    ]
    target.check()


def test_less_than_half_is_stolen_from() -> None:
    """S6.4: the rest of the split buddy stays RECLAIMABLE."""
    target = oracle(one_zone(4))
    put_block(target, 0, RECLAIMABLE, 7, 0)
    assert take(target, UNMOVABLE) == 0
    assert block_types(target)[0] == RECLAIMABLE
    assert target.events[0] == ("extfrag", 0, 4, 7, UNMOVABLE, RECLAIMABLE, False)
    assert list(target.zones[0].buddy.lists[6, RECLAIMABLE]) == [64]
    target.check()


def test_pages_akin_to_the_request_count_as_suitable() -> None:
    """S6.3: 128 free pages, and 128 more that suit.

    For MOVABLE those are the movable ones; for UNMOVABLE in a MOVABLE block the others.
    """
    for movable, requester, claimed in (
        (128, MOVABLE, True),
        (127, MOVABLE, False),
        (256, UNMOVABLE, True),
        (257, UNMOVABLE, False),
    ):
        target = oracle(one_zone(4))
        source = UNMOVABLE if requester == MOVABLE else MOVABLE
        put_block(target, 0, source, 7, movable)
        take(target, requester)
        assert (block_types(target)[0] == requester) is claimed
        target.check()


def test_movable_requests_do_not_claim_for_small_buddies() -> None:
    """S6.3: below order 4 (9 // 2) a MOVABLE request steals at once and boosts nothing."""
    target = oracle(one_zone(4, high=1000), "6.12", SMALL)
    put_block(target, 0, UNMOVABLE, 3, 504)
    assert take(target, MOVABLE, order=3) == 0
    assert target.dump()["zones"][0]["boost"] == 0
    assert block_types(target)[0] == UNMOVABLE


def test_steals_take_the_smallest_buddy_and_persist_in_a_refill() -> None:
    """S6.2, S6.4: four pages one by one, an extfrag event each, from the smallest up."""
    target = oracle(one_zone(4), "6.12", SMALL)
    target.set_block_type(0, UNMOVABLE)
    target.set_block_type(1, UNMOVABLE)
    target.put_free(BLOCK, 3, UNMOVABLE)
    target.put_free(2, 1, UNMOVABLE)
    for page in range(4, BLOCK):
        target.put_allocated(page, 0, movable=False)
    assert take(target, MOVABLE, order=0) == 2
    assert events_named(target, "extfrag") == [
        ("extfrag", 2, 0, 1, MOVABLE, UNMOVABLE, False),
        ("extfrag", 3, 0, 0, MOVABLE, UNMOVABLE, False),
        ("extfrag", 512, 0, 3, MOVABLE, UNMOVABLE, False),
        ("extfrag", 513, 0, 0, MOVABLE, UNMOVABLE, False),
    ]
    target.check()


def test_after_a_claim_the_refill_uses_the_claimed_block() -> None:
    """S6.2: one claim, then smallest fit for the rest of the refill."""
    target = oracle(one_zone(4), "6.12", SMALL)
    put_free_blocks(target, 0, 1)
    assert take(target, UNMOVABLE, order=0) == 0
    assert [event[0] for event in target.events] == ["extfrag"] + ["zone_locked"] * 3 + ["hold"]
    assert list(target.zones[0].pcp[0].lists[UNMOVABLE]) == [1, 2, 3]


def test_boost_grows_by_a_block_up_to_its_cap() -> None:
    """S1.7: high 500 -> cap max(512, 750); failed claims boost too, once per order tried."""
    target = oracle(one_zone(4, high=500))
    put_block(target, 0, MOVABLE, 5, BLOCK - 32)
    put_block(target, 1, MOVABLE, 6, BLOCK - 64)
    assert take(target, UNMOVABLE) == 0, "stolen from the smallest"
    assert target.dump()["zones"][0]["boost"] == 750
    assert target.kswapd[0].active, "S3.2: the boosted flag wakes kswapd and is cleared"
    assert not target.dump()["zones"][0]["boosted"]


def test_no_boost_in_small_zones_or_when_disabled() -> None:
    """S1.7: fewer than four blocks, or factor 0."""
    for blocks, factor in ((3, 15000), (4, 0)):
        policy = OraclePolicy(watermark_boost_factor=factor)
        target = oracle(one_zone(blocks, high=500), "6.12", policy)
        put_block(target, 0, MOVABLE, 7, 0)
        take(target, UNMOVABLE)
        assert target.dump()["zones"][0]["boost"] == 0
        assert block_types(target)[0] == UNMOVABLE


def test_only_requests_that_may_wake_kswapd_do() -> None:
    target = oracle(one_zone(4, high=500))
    put_block(target, 0, MOVABLE, 7, 0)
    take(target, UNMOVABLE, bits=Bits.DIRECT_RECLAIM)
    assert target.dump()["zones"][0]["boost"] == 512
    assert not target.kswapd[0].active


def test_blocks_across_the_zone_edge_are_never_claimed() -> None:
    """S6.3: the zone starts at page 1, as ZONE_DMA does; the claim fails after boosting."""
    edge = zone("DMA", 0, 4, start_pfn=1, spanned=4 * BLOCK - 1, high=100)
    target = oracle(OracleMachine(zones=(edge,), nr_cpus=1))
    target.put_free(256, 8, MOVABLE)
    assert take(target, UNMOVABLE) == 256
    assert block_types(target)[0] == MOVABLE
    assert target.dump()["zones"][0]["boost"] == 512
    assert target.events[0] == ("extfrag", 256, 4, 8, UNMOVABLE, MOVABLE, False)
    target.check()


def nofragment_machine() -> OracleMachine:
    return OracleMachine(zones=(zone("DMA32", 0, 4), zone("Normal", 4, 4)), nr_cpus=1)


def test_normal_zone_requests_prefer_a_lower_zone_to_fragmenting() -> None:
    """S2.7, S3.1: under NOFRAGMENT only whole blocks are claimed, zone by zone."""
    target = oracle(nofragment_machine())
    put_block(target, 4, MOVABLE, 8, 0)
    put_free_blocks(target, 0, 1)
    assert take(target, UNMOVABLE) == 0
    assert block_types(target)[0] == UNMOVABLE
    assert block_types(target)[4] == MOVABLE


def test_the_second_walk_fragments() -> None:
    target = oracle(nofragment_machine())
    put_block(target, 4, MOVABLE, 8, 0)
    put_block(target, 0, MOVABLE, 7, 0)
    assert take(target, UNMOVABLE) == 4 * BLOCK
    assert block_types(target)[4] == UNMOVABLE


def test_requests_for_lower_zones_fragment_at_once() -> None:
    target = oracle(nofragment_machine())
    put_block(target, 0, MOVABLE, 8, 0)
    assert target.alloc(0, 4, UNMOVABLE, 0, KERNEL) == 0
    assert [event[1] for event in events_named(target, "hold")] == ["buddy_alloc"]


def test_highatomic_blocks_are_no_fallback_source() -> None:
    target = oracle(one_zone(4))
    put_free_blocks(target, 0, 1, Migratetype.HIGHATOMIC)
    assert take(target, UNMOVABLE) is None
