"""CMA blocks by hand: who gets their pages, who counts them (S3.3, S4.6, S5.4, S6.2)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.oracle import Bits, Migratetype, Oracle, OraclePolicy
from tests.oracle.request import PLAIN, Attempt, Mark
from tests.oracle.scenarios import (
    BLOCK,
    KERNEL,
    WITH_CMA,
    events_named,
    one_zone,
    oracle,
    put_free_blocks,
)

UNMOVABLE, MOVABLE, HIGHATOMIC = (
    Migratetype.UNMOVABLE,
    Migratetype.MOVABLE,
    Migratetype.HIGHATOMIC,
)
CMA, ISOLATE = 4, 5

SMALL = OraclePolicy(pcp_batch=4, pcp_high_min=32, pcp_high_max=32)
"""Refills of four pages."""

ALLOWED = Attempt(mark=Mark.LOW, cma=True)
"""A MOVABLE request's."""


def cma_zone(blocks: int = 4, *, rules: str = "6.12", **marks: int) -> Oracle:
    """A zone on a machine with CMA, no page laid out."""
    machine = replace(one_zone(blocks, **marks), migratetypes=WITH_CMA)
    return oracle(machine, rules, SMALL)


def cpu_list(target: Oracle) -> list[int]:
    """The MOVABLE order-0 list."""
    return list(target.dump()["pcp"][0, 0, MOVABLE])


@pytest.mark.parametrize("rules", ["6.1", "6.12"])
def test_movable_requests_come_from_cma_while_most_free_memory_is_there(rules: str) -> None:
    """S6.2: 16 of 28 pages, 15 of 27, 14 of 26, 13 of 25 are more than half.

    6.1 counts the free pages that a refill took at its end: 16 of 28, 15 of 28, but 14 of 28.
    """
    target = cma_zone(rules=rules)
    target.set_block_type(0, CMA)
    target.put_free(0, 4, CMA)
    target.put_free(BLOCK, 3, MOVABLE)
    target.put_free(BLOCK + 8, 2, MOVABLE)
    assert target.alloc(0, 0, MOVABLE, 0, KERNEL) == 0
    types = [event[3] for event in events_named(target, "zone_locked")]
    assert types == ([CMA, CMA, MOVABLE, MOVABLE] if rules == "6.1" else [CMA] * 4)


def test_exactly_half_is_not_more_than_half() -> None:
    """S6.2: 3 of 7 rounds down to 3, 4 of 7 does not; 4 of 8 is half."""
    for others, first in ((3, 0), (4, BLOCK)):
        target = cma_zone()
        target.set_block_type(0, CMA)
        target.put_free(0, 2, CMA)
        for page in range(others):
            target.put_free(BLOCK + 2 * page, 0, MOVABLE)
        assert target.alloc(0, 0, MOVABLE, 0, KERNEL) == first


def test_others_get_no_cma_page() -> None:
    """S6.2: an UNMOVABLE request takes the movable block, and fails when that is gone."""
    target = cma_zone()
    put_free_blocks(target, 1, 2, CMA)
    put_free_blocks(target, 3, 1, MOVABLE)
    assert target.alloc(0, 9, UNMOVABLE, 0, KERNEL) == 3 * BLOCK
    assert target.alloc(0, 0, UNMOVABLE, 0, KERNEL) is None
    target.check()


def test_cma_comes_before_other_types_are_claimed() -> None:
    """S6.2: no MOVABLE page; CMA holds less than half, and still comes before UNMOVABLE."""
    target = cma_zone()
    target.set_block_type(0, CMA)
    target.put_free(0, 1, CMA)
    put_free_blocks(target, 1, 1, UNMOVABLE)
    assert target.alloc(0, 0, MOVABLE, 0, KERNEL) == 0
    assert [event[0] for event in target.events] == [
        "zone_locked",
        "zone_locked",
        "extfrag",
        "zone_locked",
        "hold",
    ]
    assert cpu_list(target) == [1, BLOCK, BLOCK + 1]


def test_a_refill_that_went_on_to_cma_looks_at_its_own_type_no_more() -> None:
    """S6.2: the mode persists; pages of the own type are found again by the next refill.

    One MOVABLE page, then CMA; the claim that follows goes back to the own type.
    """
    target = cma_zone()
    target.set_block_type(0, CMA)
    target.put_free(0, 0, CMA)
    target.put_free(2, 0, CMA)
    target.put_free(BLOCK, 0, MOVABLE)
    put_free_blocks(target, 2, 2, UNMOVABLE)
    assert target.alloc(0, 0, MOVABLE, 0, KERNEL) == BLOCK
    assert cpu_list(target) == [0, 2, 2 * BLOCK]


def test_cma_pages_are_not_free_to_others() -> None:
    """S3.3: a free CMA block neither counts nor suits without permission."""
    target = cma_zone()
    put_free_blocks(target, 0, 1, CMA)
    target.set_block_type(1, MOVABLE)
    target.put_free(BLOCK, 3, MOVABLE)
    marks = target.zones[0].watermarks
    assert marks.ok(0, BLOCK + 7, 0, ALLOWED)
    assert not marks.ok(0, BLOCK + 8, 0, ALLOWED)
    assert marks.ok(0, 7, 0, PLAIN)
    assert not marks.ok(0, 8, 0, PLAIN)
    assert marks.ok(9, 0, 0, ALLOWED)
    assert not marks.ok(4, 0, 0, replace(PLAIN, min_reserve=True))


def test_the_shortcut_leaves_cma_out_too() -> None:
    """S3.3: order 0 with the boost in the way."""
    target = cma_zone(low=8)
    put_free_blocks(target, 0, 1, CMA)
    target.put_free(BLOCK, 3, MOVABLE)
    marks = target.zones[0].watermarks
    assert not marks.zone_watermark_fast(0, Mark.LOW, 0, replace(ALLOWED, cma=False))
    assert marks.zone_watermark_fast(0, Mark.LOW, 0, ALLOWED)


def test_kswapd_does_not_count_cma() -> None:
    """S10.2: free CMA memory balances no node."""
    target = cma_zone(high=16)
    put_free_blocks(target, 0, 1, CMA)
    target.kswapd[0].wake(0, 0)
    assert target.kswapd[0].active


def test_slow_and_memalloc_requests_keep_the_permission() -> None:
    """S2.6: below all marks only CMA is free; it serves MOVABLE requests alone."""
    for migratetype, expected in ((MOVABLE, 0), (UNMOVABLE, None)):
        target = cma_zone(min=4 * BLOCK, low=4 * BLOCK, high=4 * BLOCK)
        put_free_blocks(target, 0, 1, CMA)
        assert target.alloc(0, 0, migratetype, 0, Bits.MEMALLOC) == expected
        assert target.forced == 0


def test_freed_cma_pages_serve_movable_requests_from_the_list() -> None:
    """S4.6: they wait on the MOVABLE list and return to CMA's when drained."""
    target = cma_zone()
    put_free_blocks(target, 1, 1)
    target.set_block_type(0, CMA)
    target.put_allocated(0, 1, movable=True)
    target.free(0, 0, 0)
    target.free(0, 1, 0)
    assert cpu_list(target) == [1, 0]
    assert target.alloc(0, 0, MOVABLE, 0, KERNEL) == 1
    target.drain_all()
    assert ("drain", 0, 0, CMA) in target.events
    assert list(target.zones[0].buddy.lists[0, CMA]) == [0]
    assert target.dump_counters()["counters"][0]["free_cma"] == 1


def test_cma_blocks_merge_only_with_their_like() -> None:
    """S5.4: from block size on; and no fallback claims, no reserve takes them."""
    target = cma_zone()
    put_free_blocks(target, 1, 2, CMA)
    for block, migratetype in ((0, MOVABLE), (3, CMA)):
        target.set_block_type(block, migratetype)
        target.put_allocated(block * BLOCK, 9, movable=True)
        target.allocated.remove(block * BLOCK, 9)
        target.zones[0].buddy.free_one_page(block * BLOCK, 9)
    lists = target.zones[0].buddy.lists
    assert list(lists[9, MOVABLE]) == [0]
    assert list(lists[9, CMA]) == [BLOCK]
    assert list(lists[10, CMA]) == [2 * BLOCK]
    target.check()


def test_a_cma_block_is_not_reserved() -> None:
    """S7.2: whatever made the request."""
    target = cma_zone(managed=60_000)
    target.set_block_type(0, CMA)
    target.zones[0].reserve.reserve(0, 3)
    assert target.dump()["blocks"][0] == CMA
    assert target.zones[0].reserve.reserved == 0


def test_isolated_pages_are_free_to_nobody() -> None:
    """S5.3: listed but not counted, not merged with their neighbours, not handed out."""
    target = cma_zone()
    target.set_block_type(1, ISOLATE)
    target.put_allocated(BLOCK, 9, movable=True)
    put_free_blocks(target, 0, 1, MOVABLE)
    target.free(0, BLOCK, 9)
    target.check()
    assert list(target.zones[0].buddy.lists[9, ISOLATE]) == [BLOCK]
    assert target.dump()["zones"][0]["nr_free"] == BLOCK
    assert target.alloc(0, 9, MOVABLE, 0, KERNEL) == 0
    assert target.alloc(0, 0, MOVABLE, 0, KERNEL) is None
