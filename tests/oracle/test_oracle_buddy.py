"""Buddy core by hand (S5)."""

from __future__ import annotations

from tests.oracle import Migratetype, Oracle
from tests.oracle.scenarios import (
    BLOCK,
    KERNEL,
    events_named,
    one_zone,
    oracle,
    put_free_blocks,
    put_free_memory,
)

MOVABLE = Migratetype.MOVABLE


def free_list(target: Oracle, order: int, migratetype: int = MOVABLE) -> list[int]:
    return list(target.zones[0].buddy.lists[order, migratetype])


def test_split_keeps_the_low_half() -> None:
    """S5.1, S5.2: order 4 from an order-9 buddy leaves one buddy of each order 4 to 8."""
    target = oracle(one_zone(1))
    put_free_blocks(target, 0, 1)
    assert target.alloc(0, 4, MOVABLE, 0, KERNEL) == 0
    assert {order: free_list(target, order) for order in range(4, 10)} == {
        4: [16],
        5: [32],
        6: [64],
        7: [128],
        8: [256],
        9: [],
    }
    assert target.events == [("zone_locked", 0, 4, MOVABLE), ("hold", "buddy_alloc", "", 1)]


def test_smallest_fit_takes_the_head() -> None:
    target = oracle(one_zone(2))
    for pfn in (64, 0, 128):
        target.put_free(pfn, 5, MOVABLE)
    target.put_free(512, 6, MOVABLE)
    assert [target.alloc(0, 5, MOVABLE, 0, KERNEL) for _ in range(4)] == [64, 0, 128, 512]
    assert free_list(target, 5) == [544]


def test_free_merges_up_to_the_largest_order() -> None:
    target = oracle(one_zone(2))
    put_free_memory(target, 0)
    assert free_list(target, 10) == [0]
    pfns = [target.alloc(0, 4, MOVABLE, 0, KERNEL) for _ in range(64)]
    assert pfns == list(range(0, 1024, 16))
    for pfn in reversed(pfns):
        assert pfn is not None
        target.free(0, pfn, 4)
        target.check()
    assert free_list(target, 10) == [0]


def test_insert_goes_to_the_tail_if_the_next_order_up_could_merge() -> None:
    """S5.3: 0 goes to the tail since 32..63 is free at the order above; 128 goes to the head."""
    target = oracle(one_zone(1))
    target.put_free(32, 5, MOVABLE)
    target.put_free(256, 4, MOVABLE)
    target.put_allocated(0, 5, movable=True)
    target.put_allocated(128, 4, movable=True)
    target.free(0, 0, 4)
    assert free_list(target, 4) == [256, 0]
    target.free(0, 128, 4)
    assert free_list(target, 4) == [128, 256, 0]
    target.check()


def test_order_9_pages_go_to_the_head_whatever_lies_above() -> None:
    """S5.3: the tail rule holds below order 9 only."""
    target = oracle(one_zone(6))
    target.put_free(1024, 10, MOVABLE)
    target.put_free(2560, 9, MOVABLE)
    target.put_allocated(0, 10, movable=True)
    target.zones[0].buddy.free(0, 9, MOVABLE)
    assert free_list(target, 9) == [0, 2560]


def test_highatomic_blocks_do_not_merge_with_others() -> None:
    """S5.4 at pageblock order; two of the same type do merge."""
    target = oracle(one_zone(4))
    target.set_block_type(0, Migratetype.HIGHATOMIC)
    target.put_free(0, 9, Migratetype.HIGHATOMIC)
    target.put_allocated(BLOCK, 9, movable=True)
    target.allocated.remove(BLOCK, 9)
    target.zones[0].buddy.free_one_page(BLOCK, 9)
    target.check()
    assert free_list(target, 9, MOVABLE) == [BLOCK]
    assert free_list(target, 9, Migratetype.HIGHATOMIC) == [0]

    target.set_block_type(2, Migratetype.HIGHATOMIC)
    target.set_block_type(3, Migratetype.HIGHATOMIC)
    target.put_free(2 * BLOCK, 9, Migratetype.HIGHATOMIC)
    target.put_allocated(3 * BLOCK, 9, movable=True)
    target.allocated.remove(3 * BLOCK, 9)
    target.zones[0].buddy.free_one_page(3 * BLOCK, 9)
    target.check()
    assert free_list(target, 10, Migratetype.HIGHATOMIC) == [2 * BLOCK]
    assert target.zones[0].counters.highatomic == 3 * BLOCK


def test_a_mergeable_neighbour_is_retagged() -> None:
    """S5.3: the freed page's type wins over the neighbour's."""
    target = oracle(one_zone(2))
    target.set_block_type(0, Migratetype.RECLAIMABLE)
    target.put_free(0, 9, Migratetype.RECLAIMABLE)
    target.put_allocated(BLOCK, 9, movable=True)
    target.allocated.remove(BLOCK, 9)
    target.zones[0].buddy.free_one_page(BLOCK, 9)
    target.check()
    assert free_list(target, 10) == [0]
    assert target.dump()["blocks"] == {0: MOVABLE, 1: MOVABLE}


def test_a_direct_free_above_block_order_goes_block_by_block() -> None:
    """S5.4: each block with its own type; both are mergeable here, so the second one's wins."""
    target = oracle(one_zone(2))
    target.set_block_type(1, Migratetype.UNMOVABLE)
    target.put_allocated(0, 10, movable=False)
    target.free(0, 0, 10)
    target.check()
    assert free_list(target, 10, Migratetype.UNMOVABLE) == [0]
    assert target.events == [("hold", "direct_free", "", 1)]


def test_isolated_pages_are_not_counted_free() -> None:
    target = oracle(one_zone(2))
    isolate = target.machine.migratetypes.index("Isolate")
    target.set_block_type(0, isolate)
    target.put_allocated(0, 0, movable=True)
    target.free(0, 0, 0)
    target.check()
    assert target.zones[0].counters.free.total == 0
    assert free_list(target, 0, isolate) == [0]
    assert events_named(target, "hold") == [("hold", "direct_free", "", 1)]
