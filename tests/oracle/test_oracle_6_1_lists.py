"""S4 and S5 in 6.1: page sets with a fixed limit, and free lists apart from block types."""

from __future__ import annotations

import pytest

from tests.oracle import Migratetype, Oracle, OraclePolicy
from tests.oracle.pcp import FixedPerCpuPages
from tests.oracle.pcp_bench import holds, page_set, ready, take
from tests.oracle.scenarios import BLOCK, KERNEL, events_named, one_zone, oracle, put_free_blocks

UNMOVABLE, MOVABLE = Migratetype.UNMOVABLE, Migratetype.MOVABLE
HIGHATOMIC = Migratetype.HIGHATOMIC
ISOLATE = 4

SMALL = OraclePolicy(pcp_batch=4, pcp_high_min=32, pcp_high_max=256)
"""A limit of 32; the bound above it means nothing in 6.1."""


def fixed(target: Oracle) -> FixedPerCpuPages:
    found = page_set(target)
    assert isinstance(found, FixedPerCpuPages)
    return found


def in_use(policy: OraclePolicy = SMALL) -> Oracle:
    """Block 0 MOVABLE and in use, free memory elsewhere, empty lists."""
    target = oracle(one_zone(4), "6.1", policy)
    target.put_allocated(0, 9, movable=True)
    put_free_blocks(target, 1, 3)
    return target


def test_limit_is_the_lower_bound_and_stays() -> None:
    """S4.3."""
    target = ready(SMALL, "6.1")
    for pfn in take(target, 100):
        target.free(0, pfn, 0)
    target.tick(0)
    assert (fixed(target).high, fixed(target).high_max) == (32, 32)
    fixed(target).high = 50
    take(target, 100)
    assert fixed(target).high == 50


@pytest.mark.parametrize(("order", "objects"), [(0, 4), (1, 2), (2, 2), (3, 2), (9, 2)])
def test_refill_is_one_batch(order: int, objects: int) -> None:
    """S4.4: 4 pages, or two objects; nothing grows with time."""
    target = ready(SMALL, "6.1", blocks=16)
    take(target, 3 * objects, order)
    assert holds(target) == [("refill", "", objects)] * 3


def test_refill_of_a_batch_of_one() -> None:
    target = ready(OraclePolicy(pcp_batch=1, pcp_high_min=4), "6.1")
    take(target, 2, order=3)
    assert holds(target) == [("refill", "", 1)] * 2


def test_drains_double_until_the_limit_less_a_batch() -> None:
    """S4.6: batch 4, limit 32: 4, 8, 16, then 28 for good; free_factor stops at 3."""
    target = in_use()
    for pfn in range(120):
        target.free(0, pfn, 0)
    drained = [objects for _, _, objects in holds(target)]
    assert drained == [4, 8, 16, 28, 28, 28]
    assert fixed(target).free_factor == 3


def test_free_factor_stops_at_the_scale() -> None:
    policy = OraclePolicy(pcp_batch=4, pcp_high_min=400, pcp_batch_scale_max=2)
    target = in_use(policy)
    for pfn in range(BLOCK):
        target.free(0, pfn, 0)
    assert [objects for _, _, objects in holds(target)][:4] == [4, 8, 16, 16]
    assert fixed(target).free_factor == 2


def test_free_factor_stops_where_its_drain_is_the_most_allowed() -> None:
    """S4.6: batch 4, limit 12: the second drain wants 8 and may have 8."""
    target = in_use(OraclePolicy(pcp_batch=4, pcp_high_min=12))
    for pfn in range(36):
        target.free(0, pfn, 0)
    assert [objects for _, _, objects in holds(target)] == [4, 8, 8, 8]
    assert fixed(target).free_factor == 1


def test_allocations_halve_the_free_factor() -> None:
    """S4.5; also those that find the list filled."""
    target = in_use()
    for pfn in range(150):
        target.free(0, pfn, 0)
    take(target, 1)
    assert fixed(target).free_factor == 1
    take(target, 1)
    assert fixed(target).free_factor == 0


def test_high_order_free_after_a_drain_flushes_everything() -> None:
    """S4.6: free_factor > 0 and order 1 to 3, however few are listed; the factor itself stays."""
    target = in_use()
    for pfn in range(32):
        target.free(0, pfn, 0)
    assert (fixed(target).free_factor, fixed(target).count) == (1, 28)
    target.free(0, 40, 1)
    assert holds(target)[-1] == ("drain", "commit", 29)
    assert (fixed(target).free_factor, fixed(target).count) == (1, 0)


def test_high_order_free_without_a_drain_stays() -> None:
    target = in_use()
    target.free(0, 40, 2)
    assert fixed(target).count == 4


def test_huge_page_is_no_high_order_flush() -> None:
    target = in_use(OraclePolicy(pcp_batch=4, pcp_high_min=600))
    fixed(target).free_factor = 2
    for pfn in range(4):
        target.free(0, pfn, 0)
    pfn = target.zones[0].buddy.rmqueue_smallest(9, MOVABLE)
    target.allocated.add(pfn, 9, movable=True)
    target.free(0, pfn, 9)
    assert fixed(target).count == BLOCK + 4


def test_limit_while_kswapd_runs() -> None:
    """S4.6: min(4 * batch, high) = 16, and 16 - 4 = 12 the most to drain."""
    target = in_use()
    target.zones[0].flags.reclaim_active = True
    for pfn in range(32):
        target.free(0, pfn, 0)
    assert holds(target) == [("drain", "commit", objects) for objects in (4, 8, 12)]


@pytest.mark.parametrize(("high", "drained"), [(0, 1), (3, 1), (4, 0), (5, 1)])
def test_limits_too_low_for_a_batch(high: int, drained: int) -> None:
    """S4.6: below a batch one page; else batch is more than the limit less a batch allows."""
    target = in_use()
    fixed(target).high = high
    for pfn in range(max(high, 1)):
        target.free(0, pfn, 0)
    assert holds(target) == [("drain", "commit", drained)]


def test_a_tick_drains_nothing() -> None:
    target = in_use()
    for pfn in range(20):
        target.free(0, pfn, 0)
    target.events.clear()
    target.tick(0)
    assert (target.events, fixed(target).count) == ([], 20)


def test_drain_all_goes_by_scaled_batches() -> None:
    """S4.9: rounds of 4 << 2."""
    policy = OraclePolicy(pcp_batch=4, pcp_high_min=100, pcp_batch_scale_max=2)
    target = in_use(policy)
    for pfn in range(40):
        target.free(0, pfn, 0)
    target.drain_all()
    assert [objects for _, _, objects in holds(target)] == [16, 16, 8]


def test_no_zone_is_noted_below_its_high_watermark() -> None:
    """S3.1: a request may pass the low mark alone, and nothing is remembered."""
    target = oracle(one_zone(4, low=10, high=4 * BLOCK), "6.1", SMALL)
    put_free_blocks(target, 0, 4)
    take(target, 1)
    assert not target.dump()["zones"][0]["below_high"]


def test_a_drained_page_keeps_the_type_it_was_freed_with() -> None:
    """S5.6: freed from a MOVABLE block that is HIGHATOMIC by the time of the drain."""
    target = in_use()
    target.free(0, 1, 0)
    target.set_block_type(0, HIGHATOMIC)
    target.drain_all()
    assert events_named(target, "drain") == [("drain", 1, 0, MOVABLE)]
    assert list(target.zones[0].buddy.lists[0, MOVABLE]) == [1]
    target.check()


def test_a_page_freed_from_the_reserve_returns_to_it() -> None:
    """S4.6, S5.6: listed as MOVABLE, drained as HIGHATOMIC though its block is MOVABLE again."""
    target = in_use()
    target.set_block_type(0, HIGHATOMIC)
    target.free(0, 1, 0)
    assert target.dump()["pcp"][0, 0, MOVABLE] == [1]
    assert target.dump()["pcp_types"][0, 0, MOVABLE] == [HIGHATOMIC]
    target.set_block_type(0, MOVABLE)
    target.drain_all()
    assert list(target.zones[0].buddy.lists[0, HIGHATOMIC]) == [1]


def test_a_refilled_page_keeps_its_lists_type() -> None:
    """S5.6: four pages of an UNMOVABLE list whose block is MOVABLE."""
    target = oracle(one_zone(4), "6.1", SMALL)
    target.put_free(0, 2, UNMOVABLE)
    target.alloc(0, 0, UNMOVABLE, 0, KERNEL)
    assert target.dump()["pcp_types"][0, 0, UNMOVABLE] == [UNMOVABLE] * 3
    target.drain_all()
    assert events_named(target, "drain") == [("drain", pfn, 0, UNMOVABLE) for pfn in (3, 2, 1)]


def test_isolation_in_the_zone_makes_drains_look_at_blocks() -> None:
    """S5.6: any ISOLATE block of the zone will do."""
    target = in_use()
    target.free(0, 1, 0)
    target.set_block_type(0, HIGHATOMIC)
    target.zones[0].buddy.take(3 * BLOCK, 9)
    target.put_allocated(3 * BLOCK, 9, movable=True)
    target.set_block_type(3, ISOLATE)
    target.drain_all()
    assert events_named(target, "drain") == [("drain", 1, 0, HIGHATOMIC)]


def test_merging_retags_nothing() -> None:
    """S5.3: an UNMOVABLE block freed next to a free MOVABLE one."""
    target = oracle(one_zone(2), "6.1", OraclePolicy(costly_order=0))
    put_free_blocks(target, 1, 1)
    target.set_block_type(0, UNMOVABLE)
    target.put_allocated(0, 8, movable=False)
    target.put_free(256, 8, UNMOVABLE)
    target.free(0, 0, 8)
    assert list(target.zones[0].buddy.lists[10, UNMOVABLE]) == [0]
    assert target.dump()["blocks"] == {0: UNMOVABLE, 1: MOVABLE}
    target.check()


def test_lists_of_other_types_merge_below_block_size() -> None:
    """S5.4: an UNMOVABLE page merges with one on the HIGHATOMIC list; the freed type wins."""
    target = oracle(one_zone(2), "6.1")
    target.set_block_type(0, UNMOVABLE)
    target.put_free(16, 4, HIGHATOMIC)
    target.put_allocated(0, 4, movable=False)
    target.free(0, 0, 4)
    assert list(target.zones[0].buddy.lists[5, UNMOVABLE]) == [0]
    assert target.zones[0].counters.highatomic == 0


@pytest.mark.parametrize(("tag", "order"), [(HIGHATOMIC, 9), (MOVABLE, 10)])
def test_the_blocks_tag_decides_merges_from_block_size_on(tag: int, order: int) -> None:
    """S5.4: the neighbour is on the MOVABLE list either way."""
    target = oracle(one_zone(2), "6.1", OraclePolicy())
    target.set_block_type(1, tag)
    target.put_free(BLOCK, 9, MOVABLE)
    target.put_free(256, 8, MOVABLE)
    target.put_allocated(0, 8, movable=True)
    target.free(0, 0, 8)
    assert list(target.zones[0].buddy.lists[order, MOVABLE])[-1 if order == 10 else 0] == 0


def test_a_large_free_is_one_piece_of_the_first_blocks_type() -> None:
    """S5.4."""
    target = oracle(one_zone(2), "6.1")
    target.set_block_type(0, UNMOVABLE)
    target.set_block_type(1, HIGHATOMIC)
    target.put_allocated(0, 10, movable=False)
    target.free(0, 0, 10)
    assert list(target.zones[0].buddy.lists[10, UNMOVABLE]) == [0]
    assert target.events == [("hold", "direct_free", "", 1)]
