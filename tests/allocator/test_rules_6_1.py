"""What only kernel 6.1 does, in cases worked out by hand from S3 to S7 and S13."""

from __future__ import annotations

import pytest

from pagealloc_model.allocator import layout as at
from pagealloc_model.allocator.invariants import broken_invariants
from pagealloc_model.policy.policy import Policy
from tests.allocator.small_state import BLOCK, KERNEL, Small, one_zone

UNMOVABLE, MOVABLE, HIGHATOMIC, ISOLATE = at.UNMOVABLE, at.MOVABLE, at.HIGHATOMIC, 4
LOCKED, DRAINED, EXTFRAG = at.LOG_ZONE_LOCKED, at.LOG_PCPU_DRAIN, at.LOG_EXTFRAG
HIGH_ATOMIC = at.GFP_HIGH | at.GFP_KSWAPD_RECLAIM

SINGLY = Policy(pcp_batch=1, pcp_high_min=4)
"""Refills bring one page of order 0."""


def old(blocks: int = 8, policy: Policy = SINGLY, **fields: int) -> Small:
    return Small("6.1", one_zone(blocks, **fields), policy)


def test_the_largest_buddys_block_moves_though_it_keeps_its_type() -> None:
    """S6.5, T6: 12 of 512 pages are free, none of the others is compatible."""
    small = old()
    small.put_free(0, 1, 3, 5, 7)
    small.put_free(3, 16)
    small.put_allocated(0, *range(24, BLOCK), movable=True)
    assert small.alloc(0, UNMOVABLE) == 1
    assert small.removals == [
        (EXTFRAG, 16, 0, UNMOVABLE, 3, MOVABLE, 0),
        (LOCKED, 1, 0, UNMOVABLE),
    ]
    assert (small.list(0, UNMOVABLE), small.list(3, UNMOVABLE)) == ([3, 5, 7], [16])
    assert small.list(0, MOVABLE) == []
    assert small.block_type(0) == MOVABLE
    assert small.zone[at.ZONE_FREE] == 11
    assert broken_invariants(small.state) == []


def test_a_block_free_or_compatible_by_half_is_retagged() -> None:
    small = old()
    small.put_free(8, 0)
    small.put_allocated(0, *range(256, BLOCK), movable=True)
    assert small.alloc(0, UNMOVABLE) == 0
    assert small.block_type(0) == UNMOVABLE
    assert small.removals[0] == (EXTFRAG, 0, 0, UNMOVABLE, 8, MOVABLE, 1)


def test_movable_requests_take_the_smallest_where_the_largest_is_small() -> None:
    small = old()
    for block in (0, 1):
        small.tag(block, UNMOVABLE)
    small.put_free(3, 16)
    small.put_free(1, BLOCK, BLOCK + 8)
    assert small.alloc(0, MOVABLE) == BLOCK
    assert small.removals[0] == (EXTFRAG, BLOCK, 0, MOVABLE, 1, UNMOVABLE, 0)
    assert (small.list(0, MOVABLE), small.list(1, UNMOVABLE)) == ([BLOCK + 1], [BLOCK + 8])


def test_nofragment_leaves_parts_of_blocks_alone() -> None:
    """S2.7: the preferred zone is Normal; the second refill ends with the whole block's end."""
    small = old(policy=Policy(pcp_batch=511))
    small.zone[at.ZONE_AVOIDS_FRAGMENTATION] = 1
    small.put_free(3, 16)
    small.put_free(9, BLOCK)
    for pfn in range(BLOCK, 2 * BLOCK):
        assert small.alloc(0, UNMOVABLE) == pfn
    assert small.list(3, MOVABLE) == [16]
    assert small.alloc(0, UNMOVABLE) == 16


def test_ownership_is_told_by_the_blocks_type_even_if_nothing_was_retagged() -> None:
    """T6: an UNMOVABLE block's page on a MOVABLE list goes back to an UNMOVABLE request."""
    small = old()
    small.tag(0, UNMOVABLE)
    small.put_free(0, 9, migratetype=MOVABLE)
    assert small.alloc(0, UNMOVABLE) == 9
    assert small.removals[0] == (EXTFRAG, 9, 0, UNMOVABLE, 0, MOVABLE, 1)


def test_of_a_reserved_block_only_the_buddy_found_moves() -> None:
    small = old()
    small.tag(0, HIGHATOMIC)
    small.put_free(4, 16, 48, migratetype=MOVABLE)
    small.put_free(0, 1)
    small.zone[at.ZONE_RESERVED_HIGHATOMIC] = BLOCK
    small.zone[at.ZONE_HIGH] = 1000
    assert small.alloc(0, UNMOVABLE) == 16
    assert (small.list(4, MOVABLE), small.list(0, HIGHATOMIC)) == ([48], [1])
    assert small.block_type(0) == HIGHATOMIC
    assert small.zone[at.ZONE_BOOST] == 0


def test_a_block_that_the_zones_end_cuts_gives_one_buddy() -> None:
    """The kernel moves nothing beyond the zone, and then the buddy alone."""
    small = old(2, spanned=2 * BLOCK - 8)
    small.put_free(4, BLOCK, BLOCK + 32)
    assert small.alloc(0, UNMOVABLE) == BLOCK
    assert small.list(4, MOVABLE) == [BLOCK + 32]


def test_a_block_that_the_zone_begins_in_gives_what_follows_the_buddy() -> None:
    small = old(2, start_pfn=8, spanned=2 * BLOCK - 8)
    small.put_free(4, 64, 32, 96)
    assert small.alloc(0, UNMOVABLE) == 64
    assert (small.list(4, MOVABLE), small.list(4, UNMOVABLE)) == ([32], [96])


def test_pages_return_with_the_type_they_had_when_freed() -> None:
    """S4.6, S5.6: a block reserved meanwhile gets its pages back as MOVABLE ones."""
    small = old(policy=Policy(pcp_batch=1, pcp_high_min=2))
    small.put_allocated(0, 8, 10)
    small.free(8)
    small.tag(0, HIGHATOMIC)
    small.free(10)
    assert small.removals == [(DRAINED, 8, 0, MOVABLE)]
    assert small.list(0, MOVABLE) == [8]


def test_types_are_looked_up_in_a_zone_with_an_isolated_block() -> None:
    small = old(policy=Policy(pcp_batch=1, pcp_high_min=2))
    small.put_allocated(0, 8, 10)
    small.free(8)
    small.tag(0, HIGHATOMIC)
    small.tag(3, ISOLATE)
    small.free(10)
    assert small.removals == [(DRAINED, 8, 0, HIGHATOMIC)]


def test_merging_counts_the_reserves_pages_and_retags_nothing() -> None:
    small = old()
    small.put_free(4, 16, migratetype=HIGHATOMIC)
    small.put_allocated(4, 0)
    small.free(0, 4)
    assert small.list(5, MOVABLE) == [0]
    assert small.zone[at.ZONE_FREE_HIGHATOMIC] == 0
    small.tag(2, UNMOVABLE)
    small.put_free(9, 2 * BLOCK)
    for pfn in (3 * BLOCK, 3 * BLOCK + 256):
        small.put_allocated(8, pfn)
        small.free(pfn, 8)
    assert small.list(10, MOVABLE) == [2 * BLOCK]
    assert small.block_type(2) == UNMOVABLE


def test_a_page_above_block_order_is_freed_in_one_piece() -> None:
    small = old()
    small.tag(1, HIGHATOMIC)
    small.put_allocated(10, 0)
    small.free(0, 10)
    assert small.list(10, MOVABLE) == [0]
    assert (small.block_type(0), small.block_type(1)) == (MOVABLE, HIGHATOMIC)


def test_drains_double_while_pages_are_freed_in_a_row() -> None:
    """S4.6: 2, 4 and 8 pages; 2 << 2 is no longer below high - batch, so it stays at that."""
    small = old(policy=Policy(pcp_batch=2, pcp_high_min=10))
    small.put_allocated(0, *range(0, 200, 2))
    drained = []
    for pfn in range(0, 200, 2):
        small.free(pfn)
        drained += small.drains
    assert drained[:5] == [2, 4, 8, 8, 8]
    assert small.pageset[at.PCP_FREE_FACTOR] == 2


def test_a_high_order_page_freed_in_a_row_of_frees_empties_the_lists() -> None:
    small = old(policy=Policy(pcp_batch=2, pcp_high_min=10))
    small.put_allocated(0, *range(0, 40, 2))
    small.put_allocated(1, 64, 72)
    small.free(64, 1)
    assert small.drains == []
    for pfn in range(0, 18, 2):
        small.free(pfn)
    assert small.pageset[at.PCP_FREE_FACTOR] == 1
    count = int(small.pageset[at.PCP_COUNT])
    small.free(72, 1)
    assert small.drains == [count + 2]
    assert small.pageset[at.PCP_COUNT] == 0


def test_lists_are_short_while_reclaim_runs() -> None:
    small = old(policy=Policy(pcp_batch=2, pcp_high_min=100))
    small.zone[at.ZONE_RECLAIM_ACTIVE] = 1
    small.put_allocated(0, *range(0, 40, 2))
    for pfn in range(0, 14, 2):
        small.free(pfn)
    assert small.pageset[at.PCP_COUNT] == 7
    small.free(14)
    assert small.drains == [2]


def test_refills_stay_at_a_batch_and_nothing_decays() -> None:
    small = old(policy=Policy(pcp_batch=4, pcp_high_min=40))
    small.put_free(9, 0)
    for _ in range(13):
        small.alloc(0, MOVABLE)
    assert small.pageset[at.PCP_COUNT] == 3
    assert small.pageset[at.PCP_HIGH] == 40
    small.tick()
    assert small.pageset[at.PCP_COUNT] == 3
    assert small.pageset[at.PCP_HIGH] == 40


def reserving(policy: Policy = SINGLY, **fields: int) -> Small:
    """Two blocks of which a request at the min mark gets pages by the slow path only."""
    small = old(2, policy, min=100, low=2000, high=2000, **fields)
    small.put_free(9, 0, BLOCK)
    return small


def test_a_small_zone_reserves_a_block_and_tests_subtract_all_of_it() -> None:
    """S7.2: the cap is 1% of managed plus a block. S3.3: of 1020 free pages 512 count as none."""
    small = reserving()
    assert small.alloc(2, MOVABLE, HIGH_ATOMIC) == 0
    assert small.block_type(0) == HIGHATOMIC
    assert small.zone[at.ZONE_RESERVED_HIGHATOMIC] == BLOCK
    small.zone[at.ZONE_MIN] = 507
    assert small.alloc(0, MOVABLE, KERNEL) == BLOCK
    assert small.state.st[at.COUNT_FORCED] == 0
    assert small.alloc(0, MOVABLE, KERNEL) == BLOCK + 1
    assert small.state.st[at.COUNT_FORCED] == 1


def test_one_block_is_reserved_however_large_the_page() -> None:
    small = old(4, min=100, low=3000, high=3000)
    small.put_free(10, 0, 2 * BLOCK)
    assert small.alloc(10, MOVABLE, HIGH_ATOMIC) == 0
    assert [small.block_type(block) for block in range(3)] == [HIGHATOMIC, MOVABLE, MOVABLE]
    assert small.zone[at.ZONE_RESERVED_HIGHATOMIC] == BLOCK


def test_a_block_handed_back_leaves_the_reserve_only_if_still_tagged() -> None:
    """S7.4: a page of a block that is MOVABLE again came to the reserve's list by an old type."""
    small = old(4, min=2000, low=2000, high=2000)
    small.tag(1, HIGHATOMIC)
    small.put_free(0, 8, migratetype=HIGHATOMIC)
    small.put_free(1, BLOCK)
    small.zone[at.ZONE_RESERVED_HIGHATOMIC] = 2 * BLOCK
    small.alloc(0, UNMOVABLE, KERNEL)
    assert small.zone[at.ZONE_RESERVED_HIGHATOMIC] == 2 * BLOCK
    assert small.block_type(0) == UNMOVABLE
    small.alloc(0, UNMOVABLE, KERNEL)
    assert small.zone[at.ZONE_RESERVED_HIGHATOMIC] == BLOCK
    assert small.block_type(1) == UNMOVABLE


@pytest.mark.parametrize(
    ("bits", "forced"),
    [(0, 1), (at.GFP_ATOMIC, 0), (at.GFP_ATOMIC | at.GFP_DIRECT_RECLAIM, 1)],
)
def test_the_boost_is_dropped_for_requests_with_the_atomic_bit(bits: int, forced: int) -> None:
    small = old(4, min=100, low=4000, high=4000)
    small.put_free(8, 0)
    small.zone[at.ZONE_BOOST] = 1000
    small.alloc(0, MOVABLE, HIGH_ATOMIC | bits)
    assert small.state.st[at.COUNT_FORCED] == forced


def test_a_boosted_zone_wakes_kswapd_whoever_asks() -> None:
    small = old()
    small.put_free(9, 0)
    small.zone[[at.ZONE_BOOSTED, at.ZONE_BOOST]] = 1, 10
    small.alloc(0, MOVABLE, at.GFP_DIRECT_RECLAIM)
    assert small.zone[at.ZONE_BOOSTED] == 0
    assert small.state.st[at.COUNT_KSWAPD_WAKES] == 1


def test_no_zone_is_noted_as_below_high() -> None:
    small = old(2, high=2000)
    small.put_free(9, 0)
    small.alloc(0, MOVABLE, KERNEL)
    assert small.zone[at.ZONE_BELOW_HIGH] == 0
