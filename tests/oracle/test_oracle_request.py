"""Watermarks, zone order, the slow path and kswapd by hand (S2, S3, S10)."""

from __future__ import annotations

import pytest

from tests.oracle import Bits, Migratetype, Oracle, OracleMachine, OraclePolicy
from tests.oracle.request import PLAIN, Attempt, Mark, Request, fast_attempt, gfp_to_alloc_flags
from tests.oracle.scenarios import (
    ATOMIC,
    BLOCK,
    KERNEL,
    one_zone,
    oracle,
    put_free_blocks,
    put_free_memory,
    zone,
)

MOVABLE, HIGHATOMIC = 1, 3
SMALL = OraclePolicy(pcp_batch=4, pcp_high_min=32, pcp_high_max=32)


def request(order: int, bits: int) -> Request:
    return Request(cpu=0, order=order, migratetype=0, highest_zone=0, bits=Bits(bits))


def free_zone(free_pages: int, **marks: int) -> Oracle:
    """One zone with so many order-0 buddies free, each in its own pair."""
    target = oracle(one_zone(4, **marks), "6.12", SMALL)
    for index in range(free_pages):
        target.put_free(2 * index, 0, MOVABLE)
    return target


@pytest.mark.parametrize(
    ("order", "bits", "flags"),
    [
        (0, KERNEL, {"kswapd"}),
        (0, ATOMIC, {"kswapd", "min_reserve", "non_block"}),
        (2, ATOMIC, {"kswapd", "min_reserve", "non_block", "highatomic"}),
        (2, Bits.KSWAPD, {"kswapd", "non_block"}),
        (3, ATOMIC | Bits.NOMEMALLOC, {"kswapd", "min_reserve"}),
        (2, KERNEL | Bits.HIGH, {"kswapd", "min_reserve"}),
        (9, Bits.NOMEMALLOC, set()),
    ],
)
def test_slow_path_flags(order: int, bits: int, flags: set[str]) -> None:
    """S2.6."""
    expected = Attempt(mark=Mark.MIN, **dict.fromkeys(flags, True))
    assert gfp_to_alloc_flags(request(order, bits), defrag_mode=False) == expected


def test_fast_path_flags() -> None:
    """S2.5: no reserve up to 7.2, whatever the request says."""
    attempt = fast_attempt(request(3, ATOMIC), avoids_fragmenting=True, uses_reserve=False)
    assert attempt == Attempt(mark=Mark.LOW, kswapd=True, nofragment=True)


@pytest.mark.parametrize(
    ("order", "bits", "uses_reserve"),
    [
        (1, ATOMIC, True),
        (0, ATOMIC, False),
        (3, ATOMIC | Bits.NOMEMALLOC, False),
        (3, Bits.KSWAPD, False),
        (3, KERNEL | Bits.HIGH, False),
    ],
)
def test_the_reserve_at_the_first_attempt(order: int, bits: int, uses_reserve: bool) -> None:
    """S2.5: HIGHATOMIC alone, for whom the slow path would set it."""
    attempt = fast_attempt(request(order, bits), avoids_fragmenting=False, uses_reserve=True)
    assert attempt.highatomic == uses_reserve
    assert not attempt.min_reserve
    assert not attempt.non_block
    assert attempt.mark is Mark.LOW


def test_free_pages_must_exceed_mark_and_reserve() -> None:
    """S3.3: 101 free pages at mark 100."""
    marks = free_zone(101).zones[0].watermarks
    assert marks.ok(0, 100, 0, PLAIN)
    assert not marks.ok(0, 101, 0, PLAIN)
    assert not marks.ok(1, 0, 0, PLAIN), "no buddy of order 1"
    marks = free_zone(101, lowmem_reserve=(0, 50)).zones[0].watermarks  # type: ignore[arg-type]
    assert marks.ok(0, 50, 1, PLAIN)
    assert not marks.ok(0, 51, 1, PLAIN)


@pytest.mark.parametrize(
    ("flags", "needed"),
    [
        (set(), 1000),
        ({"non_block"}, 1000),
        ({"min_reserve"}, 500),
        ({"min_reserve", "non_block"}, 375),
        ({"min_reserve", "non_block", "oom"}, 188),
    ],
)
def test_discounts(flags: set[str], needed: int) -> None:
    """S3.3: 37.5 % of min for GFP_ATOMIC; NON_BLOCK alone gives nothing."""
    target = free_zone(1)
    attempt = Attempt(mark=Mark.MIN, **dict.fromkeys(flags, True))
    target.zones[0].counters.free.shared = needed
    assert not target.zones[0].watermarks.ok(0, 1000, 0, attempt)
    target.zones[0].counters.free.shared = needed + 1
    assert target.zones[0].watermarks.ok(0, 1000, 0, attempt)


def test_a_high_order_counts_but_its_last_page() -> None:
    """S3.3: order 3 subtracts 7 of 8 pages."""
    target = oracle(one_zone(4))
    target.put_free(0, 3, MOVABLE)
    marks = target.zones[0].watermarks
    assert marks.ok(3, 0, 0, PLAIN)
    assert not marks.ok(3, 1, 0, PLAIN)


def test_hoarded_blocks_satisfy_no_ordinary_check() -> None:
    """S3.3: free HIGHATOMIC pages are neither counted nor suitable, unless by right."""
    target = oracle(one_zone(4))
    put_free_blocks(target, 0, 1, HIGHATOMIC)
    put_free_blocks(target, 1, 1, MOVABLE)
    target.alloc(0, 0, MOVABLE, 0, KERNEL)
    marks = target.zones[0].watermarks
    free_elsewhere = target.zones[0].counters.free.total - BLOCK
    assert marks.ok(0, free_elsewhere - 1, 0, PLAIN)
    assert not marks.ok(0, free_elsewhere, 0, PLAIN)
    assert not marks.ok(9, 0, 0, PLAIN)
    assert not marks.ok(9, 0, 0, Attempt(mark=Mark.MIN, min_reserve=True))
    assert marks.ok(9, 0, 0, Attempt(mark=Mark.MIN, highatomic=True))


def test_the_boost_is_ignored_for_urgent_single_pages() -> None:
    """S3.3: also when the HIGH mark is tested."""
    target = free_zone(600, min=1000, low=1200, high=1400, boost=512)
    marks = target.zones[0].watermarks
    urgent = Attempt(mark=Mark.MIN, min_reserve=True)
    assert marks.zone_watermark_fast(0, Mark.HIGH, 0, urgent)
    assert not marks.zone_watermark_fast(0, Mark.HIGH, 0, Attempt(mark=Mark.LOW, min_reserve=True))
    marks.boost = 0
    assert not marks.zone_watermark_fast(0, Mark.HIGH, 0, urgent)


def two_zones(**normal: int) -> OracleMachine:
    return OracleMachine(zones=(zone("DMA32", 0, 4), zone("Normal", 4, 4, **normal)), nr_cpus=1)


def test_the_highest_allowed_zone_comes_first() -> None:
    target = oracle(two_zones(), "6.12", SMALL)
    put_free_memory(target, 0)
    put_free_memory(target, 1)
    assert target.alloc(0, 4, MOVABLE, 1, KERNEL) == 4 * BLOCK
    assert target.alloc(0, 4, MOVABLE, 0, KERNEL) == 0


def test_a_zone_below_low_is_passed_over() -> None:
    target = oracle(two_zones(low=4 * BLOCK, high=4 * BLOCK), "6.12", SMALL)
    put_free_memory(target, 0)
    put_free_memory(target, 1)
    assert target.alloc(0, 4, MOVABLE, 1, KERNEL) == 0
    state = target.dump()["zones"]
    assert state[1]["below_high"]
    assert not state[0]["below_high"]
    assert not target.kswapd[0].active, "the fast path wakes nobody"


def test_a_failed_high_check_of_any_order_sets_below_high() -> None:
    """S3.1: no order-9 buddy anywhere, though plenty is free."""
    target = oracle(one_zone(4), "6.12", SMALL)
    for block in range(4):
        target.put_free(block * BLOCK, 8, MOVABLE)
    assert target.alloc(0, 9, MOVABLE, 0, Bits.NONE, recorded_success=False) is None
    assert target.dump()["zones"][0]["below_high"]


def test_forced_and_failed_are_counted_for_recorded_successes_only() -> None:
    target = free_zone(10, min=1000, low=1000, high=1000)
    assert target.alloc(0, 0, MOVABLE, 0, KERNEL, recorded_success=False) is None
    assert target.dump()["divergence"] == {"forced": 0, "in_base_pages": 0, "failed": 0}
    assert target.alloc(0, 0, MOVABLE, 0, KERNEL) == 0
    assert target.alloc(0, 3, MOVABLE, 0, KERNEL) is None
    assert target.dump()["divergence"] == {"forced": 1, "in_base_pages": 0, "failed": 1}


def test_reclaim_drains_all_lists() -> None:
    """S8.2: pages on another CPU's list come back and serve the request."""
    target = oracle(one_zone(4, nr_cpus=2), "6.12", SMALL)
    for pfn in range(4):
        target.put_pcp(0, 1, MOVABLE, pfn)
    assert target.alloc(0, 2, MOVABLE, 0, KERNEL) == 0
    assert target.dump()["divergence"] == {"forced": 0, "in_base_pages": 0, "failed": 0}
    assert ("hold", "drain", "drain_all", 4) in target.events


def test_requests_that_cannot_reclaim_drain_nothing() -> None:
    target = oracle(one_zone(4, nr_cpus=2), "6.12", SMALL)
    target.put_pcp(0, 1, MOVABLE, 0)
    assert target.alloc(0, 0, MOVABLE, 0, ATOMIC) is None
    assert len(target.zones[0].pcp[1].lists[MOVABLE]) == 1


def test_reclaim_gives_a_reserved_block_back() -> None:
    """S7.4: one block of two, before the lists are drained."""
    target = oracle(one_zone(4), "6.12", SMALL)
    put_free_blocks(target, 0, 2, HIGHATOMIC)
    assert target.alloc(0, 4, MOVABLE, 0, KERNEL) == 0
    assert target.dump()["blocks"][1] == HIGHATOMIC
    assert target.dump()["zones"][0]["reserved_highatomic"] == BLOCK


def test_kswapd_wakes_below_low_and_sleeps_above_high() -> None:
    """S10: RECLAIM_ACTIVE from the failed fast path until a free lifts the zone above high."""
    target = free_zone(60, min=10, low=60, high=64)
    pfns = [target.alloc(0, 0, MOVABLE, 0, KERNEL) for _ in range(4)]
    assert target.dump()["zones"][0]["reclaim_active"]
    for page in range(2000, 2032):
        target.put_allocated(page, 0, movable=True)
    for page in range(2000, 2007):
        target.free(0, page, 0)
    assert target.kswapd[0].active
    for page in range(2007, 2032):
        target.free(0, page, 0)
    assert not target.kswapd[0].active
    assert not target.dump()["zones"][0]["reclaim_active"]
    assert None not in pfns
    target.check()


def test_kswapd_takes_back_the_boost_it_saw() -> None:
    """S1.7: what was added during the run stays."""
    target = free_zone(300, boost=256)
    target.kswapd[0].wake(0, 0)
    assert target.kswapd[0].active
    target.zones[0].watermarks.boost += 30
    target.kswapd[0].note_free()
    assert not target.kswapd[0].active
    assert target.dump()["zones"][0]["boost"] == 30


def test_a_balanced_node_without_boost_is_left_alone() -> None:
    target = free_zone(10)
    target.kswapd[0].wake(0, 0)
    assert not target.kswapd[0].active
    target.kswapd[0].wake(5, 0)
    assert target.kswapd[0].active, "no buddy of order 5"


def test_defrag_mode_steals_only_when_all_else_failed() -> None:
    """S8.6: the reclaim step drains the lists first; then NOFRAGMENT goes."""
    policy = OraclePolicy(defrag_mode=True, pcp_batch=4, pcp_high_min=32, pcp_high_max=32)
    target = oracle(one_zone(4, nr_cpus=2), "7.2", policy)
    target.set_block_type(0, Migratetype.UNMOVABLE)
    target.put_free(0, 4, Migratetype.UNMOVABLE)
    target.put_pcp(0, 1, MOVABLE, BLOCK)
    assert target.alloc(0, 4, MOVABLE, 0, KERNEL) == 0
    assert ("hold", "drain", "drain_all", 1) in target.events
    assert target.dump()["divergence"] == {"forced": 0, "in_base_pages": 0, "failed": 0}
