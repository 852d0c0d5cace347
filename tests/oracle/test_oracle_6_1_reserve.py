"""6.1's high-order atomic reserve and watermark test by hand (S3.3, S7)."""

from __future__ import annotations

import pytest

from tests.oracle import Bits, Oracle, OracleMachine, OraclePolicy
from tests.oracle.request import PLAIN, Mark, Request, gfp_to_alloc_flags
from tests.oracle.scenarios import (
    ATOMIC,
    BLOCK,
    KERNEL,
    events_named,
    one_zone,
    oracle,
    put_free_blocks,
    put_free_memory,
    zone,
)

UNMOVABLE, MOVABLE, HIGHATOMIC = 0, 1, 3
SMALL = OraclePolicy(pcp_batch=4, pcp_high_min=32)
ATOMIC_6_1 = ATOMIC | Bits.ATOMIC


def pressed(blocks: int = 4, *, managed: int = 60_000, **changes: object) -> Oracle:
    """A zone between its min and low watermarks, so that atomics take the slow path."""
    pages = blocks * BLOCK
    marks = {"min": 100, "low": pages + 1, "high": pages + 2}
    machine = one_zone(blocks, managed=managed, **{**marks, **changes})
    target = oracle(machine, "6.1", SMALL)
    put_free_memory(target, 0)
    return target


def atomic(target: Oracle, order: int = 4) -> int | None:
    return target.alloc(0, order, UNMOVABLE, 0, ATOMIC_6_1)


def reserved(target: Oracle) -> int:
    return target.dump()["zones"][0]["reserved_highatomic"]


def tags(target: Oracle) -> list[int]:
    return list(target.dump()["blocks"].values())


@pytest.mark.parametrize(
    ("managed", "percent", "cap"),
    [(2048, 1, 532), (51200, 1, 1024), (51299, 1, 1024), (51300, 1, 1025), (51200, 3, 2048)],
)
def test_the_cap_is_the_share_and_a_block(managed: int, percent: int, cap: int) -> None:
    """S7.2: in small zones too."""
    policy = OraclePolicy(highatomic_reserve_percent=percent)
    target = oracle(one_zone(4, managed=managed), "6.1", policy)
    assert target.zones[0].reserve.cap == cap


def test_blocks_are_added_while_below_the_cap() -> None:
    """600 + 512: 1024 are still below, so a third block comes."""
    target = pressed(8)
    for block in range(4):
        target.alloc(0, 9, UNMOVABLE, 0, ATOMIC_6_1)
        assert reserved(target) == min(block + 1, 3) * BLOCK


def test_an_order_10_request_sets_its_first_block_aside() -> None:
    """S7.2: one block, one block's pages."""
    target = pressed()
    assert atomic(target, order=10) == 0
    assert (reserved(target), tags(target)) == (BLOCK, [HIGHATOMIC, UNMOVABLE, MOVABLE, MOVABLE])
    assert target.events[-1] == ("hold", "reserve", "", 1)
    target.check()


def test_pages_from_per_cpu_lists_reserve_too() -> None:
    """S7.1: the block's free pages move; the siblings stay listed and carry UNMOVABLE."""
    target = pressed()
    assert atomic(target, order=1) == 0
    assert (reserved(target), tags(target)[0]) == (BLOCK, HIGHATOMIC)
    assert target.dump()["pcp_types"][0, 0, 3] == [UNMOVABLE]
    target.check()


def test_a_block_across_the_zones_end_is_tagged_though_nothing_moves() -> None:
    """S7.2, S7.4: its pages stay on their lists; giving it back moves nothing either."""
    spec = zone("DMA32", 0, 1, spanned=384, present=384, managed=60_000, min=50, low=400, high=400)
    target = oracle(OracleMachine(zones=(spec,), nr_cpus=1), "6.1", SMALL)
    target.put_free(0, 8, UNMOVABLE)
    target.put_free(256, 7, UNMOVABLE)
    atomic(target)
    assert (reserved(target), tags(target)) == (BLOCK, [HIGHATOMIC])
    assert list(target.zones[0].buddy.lists[8, UNMOVABLE]) == [0]


def test_giving_back_goes_on_until_pages_move() -> None:
    """S7.4: the edge block's order-3 page is tagged in vain, the order-4 page's block moves."""
    spec = zone(
        "DMA32", 0, 3, spanned=3 * BLOCK - 128, present=1408, managed=60_000, min=0, low=0, high=0
    )
    target = oracle(OracleMachine(zones=(spec,), nr_cpus=1), "6.1", SMALL)
    for block, pfn, order in ((2, 2 * BLOCK, 3), (1, BLOCK, 4), (0, 0, 5)):
        target.set_block_type(block, HIGHATOMIC)
        target.put_free(pfn, order, HIGHATOMIC)
    assert target.zones[0].reserve.unreserve(MOVABLE)
    assert tags(target) == [HIGHATOMIC, MOVABLE, MOVABLE]
    assert reserved(target) == BLOCK
    assert list(target.zones[0].buddy.lists[3, HIGHATOMIC]) == [2 * BLOCK]
    assert target.events == [("hold", "unreserve", "", 2)]


def test_a_page_whose_block_left_the_reserve_costs_it_nothing() -> None:
    target = pressed()
    target.set_block_type(0, HIGHATOMIC)
    target.set_block_type(1, HIGHATOMIC)
    target.zones[0].buddy.take(2 * BLOCK, 9)
    target.put_free(2 * BLOCK, 2, HIGHATOMIC)
    assert target.zones[0].reserve.unreserve(MOVABLE)
    assert reserved(target) == 2 * BLOCK
    assert list(target.zones[0].buddy.lists[2, MOVABLE]) == [2 * BLOCK]


def test_an_order_10_buddy_gives_back_its_first_block_only() -> None:
    target = oracle(one_zone(4), "6.1", SMALL)
    for block in (0, 1, 2):
        target.set_block_type(block, HIGHATOMIC)
    target.put_free(0, 10, HIGHATOMIC)
    assert target.zones[0].reserve.unreserve(UNMOVABLE)
    assert (reserved(target), tags(target)) == (2 * BLOCK, [0, HIGHATOMIC, HIGHATOMIC, MOVABLE])
    assert list(target.zones[0].buddy.lists[10, UNMOVABLE]) == [0]


def test_the_whole_reserve_is_subtracted() -> None:
    """S3.3: 1024 free; 512 reserved, of which nothing is free."""
    target = oracle(one_zone(4), "6.1", SMALL)
    target.set_block_type(0, HIGHATOMIC)
    put_free_blocks(target, 1, 2)
    watermarks = target.zones[0].watermarks
    assert watermarks.ok(0, 511, 0, PLAIN)
    assert not watermarks.ok(0, 512, 0, PLAIN)
    urgent = gfp_to_alloc_flags(_request(ATOMIC), defrag_mode=False)
    assert watermarks.ok(0, 1024, 0, urgent)


def _request(bits: int) -> Request:
    return Request(cpu=0, order=0, migratetype=0, highest_zone=0, bits=Bits(bits))


@pytest.mark.parametrize(
    ("rules", "bits", "ignored"),
    [
        ("6.1", ATOMIC_6_1, True),
        ("6.1", ATOMIC, False),
        ("6.1", Bits.ATOMIC, True),
        ("6.1", ATOMIC_6_1 | Bits.DIRECT_RECLAIM, False),
        ("6.1", KERNEL | Bits.HIGH, False),
        ("6.12", ATOMIC, True),
        ("6.12", KERNEL | Bits.ATOMIC, False),
    ],
)
def test_who_may_ignore_the_boost(rules: str, bits: int, ignored: bool) -> None:
    """S3.3: min 100, boost 1000, 150 free: enough only for those the boost does not concern."""
    target = oracle(one_zone(4, min=100, low=200, high=300, boost=1000), rules, SMALL)
    for index in range(150):
        target.put_free(2 * index, 0, MOVABLE)
    attempt = gfp_to_alloc_flags(_request(bits), defrag_mode=False)
    assert target.zones[0].watermarks.zone_watermark_fast(0, Mark.MIN, 0, attempt) == ignored


def test_the_reserve_serves_atomics_first_and_others_last() -> None:
    """S7.3: events name the HIGHATOMIC list."""
    target = pressed()
    first = atomic(target)
    second = atomic(target)
    assert (first, second) == (0, 16)
    assert events_named(target, "zone_locked")[-1] == ("zone_locked", 16, 4, HIGHATOMIC)
