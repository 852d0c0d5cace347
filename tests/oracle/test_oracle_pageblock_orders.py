"""Pageblocks of other sizes than a huge page's, by hand (S1.2, S1.9, S6.3, S7.2)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.oracle import Migratetype, Oracle, OraclePolicy
from tests.oracle.scenarios import ATOMIC, KERNEL, events_named, one_zone, oracle

UNMOVABLE, MOVABLE, HIGHATOMIC = (
    Migratetype.UNMOVABLE,
    Migratetype.MOVABLE,
    Migratetype.HIGHATOMIC,
)

ORDER = 7
SIZE = 1 << ORDER

SMALL = OraclePolicy(pcp_batch=1, pcp_high_min=0, pcp_high_max=0, watermark_boost_factor=0)


def small_blocks(rules: str = "6.12", **marks: int) -> Oracle:
    """2048 pages in 16 blocks of 128."""
    return oracle(replace(one_zone(4, **marks), pageblock_order=ORDER), rules, SMALL)


@pytest.mark.parametrize(("rules", "listed", "other"), [("6.1", 7, 9), ("6.12", 9, 7)])
def test_which_huge_pages_have_lists(rules: str, listed: int, other: int) -> None:
    """S1.9: 6.1's are as large as a pageblock, later ones as a huge page table entry's page."""
    layout = small_blocks(rules).zones[0].pcp[0].layout
    assert layout.holds(listed)
    assert not layout.holds(other)
    assert layout.order(layout.index(listed, MOVABLE)) == listed


@pytest.mark.parametrize(("order", "owned"), [(3, True), (2, False)])
def test_movable_requests_claim_from_half_the_blocks_order_up(order: int, owned: bool) -> None:
    """S6.3: 7 // 2; the block is movable but for its type, so only the order decides."""
    target = small_blocks()
    target.set_block_type(0, UNMOVABLE)
    target.put_free(0, order, UNMOVABLE)
    for pfn in range(1 << order, SIZE):
        target.put_allocated(pfn, 0, movable=True)
    assert target.alloc(0, 0, MOVABLE, 0, KERNEL) == 0
    assert [event[-1] for event in events_named(target, "extfrag")] == [owned]


@pytest.mark.parametrize(("unmovable", "owned"), [(48, True), (47, False)])
def test_half_of_the_block_must_suit(unmovable: int, owned: bool) -> None:
    """S6.3: 16 pages free, and 48 of 128 alike make half."""
    target = small_blocks()
    target.put_free(0, 4, MOVABLE)
    for pfn in range(16, SIZE):
        target.put_allocated(pfn, 0, movable=pfn >= 16 + unmovable)
    assert target.alloc(0, 0, UNMOVABLE, 0, KERNEL) == 0
    assert [event[-1] for event in events_named(target, "extfrag")] == [owned]


def test_a_whole_block_is_claimed_from_the_blocks_order_up() -> None:
    """S6.3: an order-8 buddy is two blocks; both change type."""
    target = small_blocks()
    target.put_free(0, 8, MOVABLE)
    assert target.alloc(0, 0, UNMOVABLE, 0, KERNEL) == 0
    types = target.dump()["blocks"]
    assert [types[block] for block in range(3)] == [UNMOVABLE, UNMOVABLE, MOVABLE]
    target.check()


def test_the_reserve_grows_by_a_block() -> None:
    """S7.2: 1 % of 20000 pages is a block and more, so two may be set aside."""
    target = small_blocks(managed=20_000, low=4096, high=4096)
    target.put_free(0, ORDER, MOVABLE)
    assert target.alloc(0, 4, MOVABLE, 0, ATOMIC) == 0
    assert target.dump()["zones"][0]["reserved_highatomic"] == SIZE
    assert target.dump()["blocks"][0] == HIGHATOMIC
    assert target.zones[0].reserve.cap == 2 * SIZE


def test_frees_of_several_blocks_take_each_blocks_type() -> None:
    """S5.4: an order-8 page past the per-CPU lists."""
    target = small_blocks()
    target.put_allocated(0, 8, movable=True)
    target.set_block_type(1, HIGHATOMIC)
    target.free(0, 0, 8)
    lists = target.zones[0].buddy.lists
    assert list(lists[ORDER, MOVABLE]) == [0]
    assert list(lists[ORDER, HIGHATOMIC]) == [SIZE]
    target.check()
