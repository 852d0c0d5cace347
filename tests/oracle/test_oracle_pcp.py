"""Per-CPU lists by hand (S4): refill sizes and limits."""

from __future__ import annotations

import pytest

from tests.oracle import Bits, Migratetype, OraclePolicy
from tests.oracle.pcp import PcpLayout
from tests.oracle.pcp_bench import FIXED, MOVABLE, TUNED, holds, page_set, ready, take
from tests.oracle.scenarios import (
    BLOCK,
    events_named,
    one_zone,
    oracle,
    put_free_blocks,
    put_free_memory,
)


def test_lists_by_order_and_type() -> None:
    """S1.9."""
    layout = PcpLayout(costly_order=3, huge_order=9)
    assert layout.nr_lists == 14
    assert layout.index(0, 0) == 0
    assert layout.index(3, 2) == 11
    assert [layout.index(9, migratetype) for migratetype in range(3)] == [12, 13, 12]
    assert [layout.order(index) for index in (0, 2, 3, 11, 12, 13)] == [0, 0, 1, 3, 9, 9]
    assert [order for order in range(11) if layout.holds(order)] == [0, 1, 2, 3, 9]
    assert not PcpLayout(costly_order=3, huge_order=None).holds(9)


def test_refills_hand_out_ascending_pages() -> None:
    target = ready()
    assert take(target, 12) == list(range(12))
    target.check()


def test_refill_size_doubles_while_nothing_is_freed() -> None:
    """S4.4 with batch 4, S 5: 4, 8, 16, ... until the room below high limits it.

    high grows by each refill's batch << alloc_factor from 32: 36, 44, 60, 92, 156; the room is
    high - count - batch with count 0: 32, 40, 56, 88, 152 - never the limit here.
    """
    target = ready()
    take(target, 4 + 8 + 16 + 32 + 64 + 1)
    assert holds(target) == [("refill", "", size) for size in (4, 8, 16, 32, 64, 128)]
    assert page_set(target).high == 256
    assert page_set(target).alloc_factor == 5
    assert page_set(target).count == 127


def test_refill_is_limited_by_the_room_below_high() -> None:
    """S4.4: fixed high 32, batch 4: room 32 - 0 - 4 = 28; 32 pages are asked, 28 come."""
    target = ready(FIXED)
    take(target, 4 + 8 + 16 + 1)
    assert holds(target) == [("refill", "", size) for size in (4, 8, 16, 28)]
    assert page_set(target).alloc_factor == 3
    assert page_set(target).high == 32


def test_refill_room_counts_pages_on_other_lists() -> None:
    """S4.4: 20 pages listed elsewhere leave max(32 - 20 - 4, 4) = 8."""
    target = ready(FIXED)
    page_set(target).count = 20
    page_set(target).alloc_factor = 5
    assert page_set(target).nr_pcp_alloc(0) == 8
    assert page_set(target).alloc_factor == 5


@pytest.mark.parametrize(("order", "objects"), [(1, 2), (2, 2), (3, 2), (9, 2)])
def test_high_order_refills_fetch_at_least_two(order: int, objects: int) -> None:
    """S4.4: batch 4 >> order, but no less than 2."""
    target = ready(blocks=16)
    take(target, 1, order)
    assert holds(target) == [("refill", "", objects)]
    assert page_set(target).count == (objects - 1) << order
    assert page_set(target).alloc_factor == 0


def test_refill_size_with_real_numbers() -> None:
    """Batch 63: order 3 fetches 7 objects, order 0 at factor 5 2016 pages if high allows."""
    policy = OraclePolicy(pcp_batch=63, pcp_high_min=8168, pcp_high_max=165888)
    pcp = page_set(ready(policy))
    assert [pcp.nr_pcp_alloc(order) for order in (1, 2, 3, 9)] == [31, 15, 7, 2]
    assert pcp.high == 8168 + 4 * 63
    assert [pcp.nr_pcp_alloc(0) for _ in range(7)] == [63, 126, 252, 504, 1008, 2016, 2016]


def test_high_below_batch_means_one_page_at_a_time() -> None:
    target = ready(OraclePolicy(pcp_batch=4, pcp_high_min=0, pcp_high_max=0))
    pfn = take(target, 1)[0]
    assert holds(target) == [("refill", "", 1)]
    target.free(0, pfn, 0)
    assert holds(target)[1:] == [("drain", "commit", 1)]
    assert page_set(target).count == 0


def test_high_does_not_grow_below_the_high_watermark() -> None:
    """S3.1, S4.4: the failed high check sets BELOW_HIGH, and refills leave high alone."""
    machine = one_zone(8, low=100, high=10_000)
    target = oracle(machine, "6.12", TUNED)
    put_free_memory(target, 0)
    take(target, 1)
    assert target.dump()["zones"][0]["below_high"]
    assert page_set(target).high == 32


def test_allocating_halves_free_count() -> None:
    target = ready()
    page_set(target).free_count = 9
    take(target, 1)
    assert page_set(target).free_count == 4


def test_frees_stay_listed_until_the_limit() -> None:
    """S4.6, fixed high 32: pages 1..31 stay; the 32nd drains clamp(free_count 32, 4, 28)."""
    target = ready(FIXED)
    pfns = take(target, 64)
    target.drain_all()
    target.events.clear()
    for pfn in pfns[:31]:
        target.free(0, pfn, 0)
    assert target.events == []
    target.free(0, pfns[31], 0)
    assert holds(target) == [("drain", "commit", 28)]
    drained = [event[1] for event in events_named(target, "drain")]
    assert drained == pfns[:28], "the coldest go first: the tail of the list"
    assert list(page_set(target).lists[1]) == [pfns[31], pfns[30], pfns[29], pfns[28]]
    target.check()


def test_high_is_raised_for_long_runs_of_frees() -> None:
    """S4.6: at the limit with free_count + batch over high, high grows, the old one is used."""
    target = ready()
    pfns = take(target, 128)
    target.drain_all()
    page_set(target).high = 32
    page_set(target).free_count = 40
    for pfn in pfns[:31]:
        target.free(0, pfn, 0)
    target.events.clear()
    target.free(0, pfns[31], 0)
    assert page_set(target).free_count == 72
    assert page_set(target).high == 72 + 4
    assert holds(target) == [("drain", "commit", 28)], "clamp(72, 4, 32 - 4)"


def test_free_count_is_capped_before_the_last_addition() -> None:
    """S4.6, S4.7: batch << S is 128; a huge page may still add 512 to 127."""
    target = ready(OraclePolicy(pcp_batch=4, pcp_high_min=4000, pcp_high_max=5000))
    pfn = take(target, 1, 9)[0]
    page_set(target).free_count = 127
    target.free(0, pfn, 9)
    assert page_set(target).free_count == 127 + 512
    target.free(0, take(target, 1)[0], 0)
    assert page_set(target).free_count == (127 + 512) // 2


def test_reclaim_limits_the_lists() -> None:
    """S4.6: under RECLAIM_ACTIVE the limit is min(4 * batch, high) and high falls."""
    target = ready()
    pfns = take(target, 64)
    target.drain_all()
    target.zones[0].flags.reclaim_active = True
    page_set(target).high = 200
    page_set(target).free_count = 0
    for pfn in pfns[:15]:
        target.free(0, pfn, 0)
    assert page_set(target).high == 200 - 4 * 4 - sum(range(5, 16))
    target.events.clear()
    target.free(0, pfns[15], 0)
    assert holds(target) == [("drain", "commit", 12)], "clamp(16, 4, 16 - 4)"


def test_below_high_drains_at_once() -> None:
    """S4.6: under BELOW_HIGH the limit is max(count, high_min), so high_min pages start a drain."""
    target = ready()
    pfns = take(target, 64)
    target.drain_all()
    target.zones[0].flags.below_high = True
    page_set(target).high = 200
    page_set(target).free_count = 0
    target.events.clear()
    for pfn in pfns[:32]:
        target.free(0, pfn, 0)
    assert holds(target) == [("drain", "commit", 28)], "clamp(32, 4, 32 - 4)"
    assert not target.zones[0].flags.below_high, "the high watermark of 0 holds"


@pytest.mark.parametrize(("rules", "threshold"), [("6.12", 4), ("6.18", 20), ("7.2", 20)])
def test_runs_of_high_order_frees_flush(rules: str, threshold: int) -> None:
    """S4.6: from batch (+ half of high_min 32) freed pages on, if the free before was high-order.

    free_count is 2 per order-1 free, tested before its addition.
    """
    target = ready(rules=rules)
    pfns = take(target, 40, 1)
    target.drain_all()
    page_set(target).free_count = 0
    target.events.clear()
    frees = threshold // 2
    for pfn in pfns[:frees]:
        target.free(0, pfn, 1)
    assert target.events == []
    target.free(0, pfns[frees], 1)
    chunks = events_named(target, "hold")
    assert sum(chunk[3] for chunk in chunks) == frees + 1  # type: ignore[misc]
    assert page_set(target).count == 0
    assert page_set(target).high == 32


def test_an_order_0_free_ends_the_run() -> None:
    target = ready()
    page_set(target).free_count = 100
    page_set(target).prev_free_high_order = True
    single = take(target, 1)[0]
    target.free(0, single, 0)
    assert not page_set(target).prev_free_high_order
    pairs = take(target, 1, 1)
    page_set(target).free_count = 100
    target.free(0, pairs[0], 1)
    assert page_set(target).prev_free_high_order
    assert page_set(target).count > 0, "not flushed: the free before was of order 0"


def test_freed_pages_are_listed_by_their_block_now() -> None:
    """S4.6: HIGHATOMIC counts as MOVABLE; the drain looks the block up again."""
    target = oracle(one_zone(8), "6.12", TUNED)
    target.set_block_type(0, Migratetype.HIGHATOMIC)
    target.set_block_type(1, Migratetype.RECLAIMABLE)
    target.put_allocated(0, 0, movable=False)
    target.put_allocated(BLOCK, 0, movable=False)
    target.free(0, 0, 0)
    target.free(0, BLOCK, 0)
    assert list(page_set(target).lists[MOVABLE]) == [0]
    assert list(page_set(target).lists[Migratetype.RECLAIMABLE]) == [BLOCK]
    target.drain_all()
    assert events_named(target, "drain") == [("drain", 0, 0, 3), ("drain", BLOCK, 0, 2)]
    target.check()


def test_orders_without_a_list_go_to_the_buddy() -> None:
    target = ready()
    pfn = take(target, 1, 5)[0]
    target.free(0, pfn, 5)
    assert holds(target) == [("buddy_alloc", "", 1), ("direct_free", "", 1)]
    assert page_set(target).count == 0


def test_costly_order_moves_the_huge_page_lists() -> None:
    policy = OraclePolicy(costly_order=1, pcp_batch=4, pcp_high_min=2048, pcp_high_max=4096)
    target = ready(policy)
    take(target, 1, 9)
    assert len(page_set(target).lists) == 8
    assert len(page_set(target).lists[7]) == 1
    take(target, 1, 2)
    assert holds(target)[-1] == ("buddy_alloc", "", 1)


def test_an_empty_zone_costs_two_holds() -> None:
    """S3.2: the refill finds nothing, and neither does the buddy path."""
    target = oracle(one_zone(2), "6.12", TUNED)
    target.put_allocated(0, 0, movable=True)
    assert target.alloc(0, 0, MOVABLE, 0, Bits.MEMALLOC) is None
    assert target.dump()["divergence"] == {"forced": 0, "in_base_pages": 0, "failed": 1}
    assert holds(target) == [("refill", "", 0), ("buddy_alloc", "", 0)]


def test_two_blocks_refill_across() -> None:
    """A refill goes on with the next buddy of its type."""
    target = oracle(one_zone(4), "6.12", FIXED)
    put_free_blocks(target, 2, 1)
    target.put_free(0, 1, MOVABLE)
    assert take(target, 4) == [0, 1, 1024, 1025]
