"""Refills of owned lists by hand (S12.3): recover, claim, chunk, classic."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.oracle import Bits, Oracle, OraclePolicy
from tests.oracle.machine import Work
from tests.oracle.ownership import PhaseCount
from tests.oracle.ownership_bench import (
    MOVABLE,
    ORDER,
    PAGES,
    ROOMY,
    TIGHT,
    UNMOVABLE,
    counts,
    in_zone,
    lists_of,
    on_list,
    owners,
    owning,
    put_back,
    recorded,
    small_machine,
    take,
)
from tests.oracle.pcp import SplittingLayout
from tests.oracle.pcp_bench import holds
from tests.oracle.request import Attempt, Mark, Request
from tests.oracle.scenarios import WITH_CMA


def test_lists_of_all_orders_and_types() -> None:
    """No list is shared by two types, and there is none above a block's order."""
    layout = SplittingLayout(costly_order=3, huge_order=9, block_order=9)
    assert layout.nr_lists == 30
    assert layout.index(9, 0) == 27
    assert layout.index(9, 2) == 29
    assert layout.order(17) == 5
    assert [order for order in range(11) if layout.holds(order)] == [0, 1, 2, 3, 9]
    assert not SplittingLayout(costly_order=5, huge_order=9, block_order=4).holds(5)


def test_a_refill_claims_a_whole_block() -> None:
    """4 pages are wanted; the block's 16 fit under high 64, and the CPU owns it."""
    target = owning()
    assert take(target) == [0]
    assert owners(target) == {0: 0}
    assert holds(target) == [("refill", "", 1)]
    assert counts(target).phases[1] == PhaseCount(refills=1, objects=1, pages=16)
    assert counts(target).claimed == 1
    target.check()


def test_the_block_is_split_on_the_lists() -> None:
    """Upper halves go in front of their lists; the zone's hold has no part in it."""
    target = owning()
    take(target)
    assert [on_list(target, order) for order in range(5)] == [[1], [2], [4], [8], []]
    assert lists_of(target).mergeable == {1, 2, 4, 8}
    assert lists_of(target).pcp.count == 15
    assert counts(target).splits == 4
    assert target.work[0] == Work()


def test_one_refill_hands_out_a_block_in_order() -> None:
    target = owning()
    assert take(target, PAGES) == list(range(PAGES))
    assert holds(target) == [("refill", "", 1)]
    assert take(target) == [2 * PAGES]


def test_a_larger_request_takes_the_smallest_page_that_suffices() -> None:
    target = owning()
    take(target)
    assert take(target, order=1) == [2]
    assert take(target, order=1) == [4], "of the order-2 page; its upper half stays"
    assert on_list(target, 1) == [6]


def test_a_block_that_does_not_fit_is_cut_in_the_zone() -> None:
    """High is 8. 4 pages are wanted: an order-2 chunk of block 0, that nobody owns."""
    target = owning(TIGHT)
    assert take(target) == [0]
    assert owners(target) == {}
    assert counts(target).phases[2] == PhaseCount(refills=1, objects=1, pages=4)
    assert (in_zone(target, 2), in_zone(target, 3)) == ([4], [8])
    assert lists_of(target).mergeable == set()
    assert target.work[0] == Work(splits=2)
    target.check()


@pytest.mark.parametrize(("fit_test", "claimed"), [("high", 0), ("high_max", 1), ("always", 1)])
def test_fit_test(fit_test: str, claimed: int) -> None:
    """High is raised from 8 to 12 by the refill; it may grow to 32."""
    policy = OraclePolicy(pcp_batch=4, pcp_high_min=8, pcp_high_max=32)
    target = owning(policy, fit_test=fit_test)
    take(target)
    assert counts(target).claimed == claimed


@pytest.mark.parametrize(("high", "claimed"), [(15, 0), (16, 1)])
def test_a_block_may_fill_the_lists_up(high: int, claimed: int) -> None:
    target = owning(OraclePolicy(pcp_batch=4, pcp_high_min=high, pcp_high_max=high))
    take(target)
    assert counts(target).claimed == claimed


def test_always_fits_under_any_limit() -> None:
    target = owning(TIGHT, fit_test="always")
    take(target)
    assert owners(target) == {0: 0}


def test_claims_go_on_while_pages_are_missing() -> None:
    """32 pages are wanted: two blocks of 16."""
    policy = OraclePolicy(pcp_batch=32, pcp_high_min=64, pcp_high_max=64)
    target = owning(policy)
    take(target)
    assert owners(target) == {0: 0, 2: 0}
    assert on_list(target, 4) == [32], "behind the first, which was cut"


def test_the_largest_order_that_claims() -> None:
    target = owning(claims_up_to_order=1)
    take(target, order=1)
    assert owners(target) == {0: 0}


@pytest.mark.parametrize(
    "options",
    [{"claims_blocks": False}, {"owning_types": "movable"}, {"claims_up_to_order": 0}],
)
def test_claims_may_be_limited(options: dict[str, object]) -> None:
    """To nothing, to MOVABLE requests, or to small orders; the others get chunks."""
    target = owning(migratetype=UNMOVABLE, **options)
    take(target, order=1, migratetype=UNMOVABLE)
    assert owners(target) == {}
    assert counts(target).phases[2].refills == 1


@pytest.mark.parametrize("flag", ["below_high", "reclaim_active"])
@pytest.mark.parametrize(("pressure_claims", "claimed"), [(True, 1), (False, 0)])
def test_claims_under_pressure(flag: str, pressure_claims: bool, claimed: int) -> None:
    target = owning(pressure_claims=pressure_claims)
    setattr(target.zones[0].flags, flag, True)
    take(target)
    assert counts(target).claimed == claimed


def fragmented(**options: object) -> Oracle:
    """CPU 0 used all of block 0; pages 3, 8 and 9 went back to the zone."""
    target = owning(**options)
    take(target, PAGES)
    for pfn in (3, 8, 9):
        target.free(0, pfn, 0)
    target.drain_all()
    target.events.clear()
    target.work.clear()
    return target


def test_fragments_are_recovered() -> None:
    """Ascending, to the tails of their lists; the block is looked through once."""
    target = fragmented()
    assert recorded(target) == [0]
    assert take(target) == [3]
    assert on_list(target, 1) == [8]
    assert recorded(target) == []
    assert owners(target) == {0: 0, 2: 0}, "3 of 4 pages: another block is claimed"
    assert target.work[0].scanned == 15, "13 pages, and two buddies"
    assert counts(target).phases[0] == PhaseCount(refills=1, objects=2, pages=3)
    assert (counts(target).recovered, counts(target).recorded_looks) == (1, 1)
    assert 8 in lists_of(target).mergeable
    target.check()


def test_enough_recovered_ends_the_search() -> None:
    """Of two recorded blocks the older yields the 4 pages wanted; the other stays recorded."""
    target = owning()
    take(target, 2 * PAGES)
    for pfn in (0, 2, 4, 6, 32, 34):
        target.free(0, pfn, 0)
    target.drain_all()
    assert recorded(target) == [0, 2], "the coldest page goes first"
    assert take(target) == [0]
    assert recorded(target) == [2]
    assert counts(target).recorded_looks == 1


@pytest.mark.parametrize(("lists", "looks"), [("one", 1), ("per_type", 0)])
def test_blocks_of_other_types_are_passed_over(lists: str, looks: int) -> None:
    target = fragmented(recorded_lists=lists)
    take(target, migratetype=UNMOVABLE)
    assert counts(target).recorded_looks == looks
    assert counts(target).recovered == 0


def test_no_recovery() -> None:
    target = fragmented(recovers=False)
    take(target)
    assert recorded(target) == [0]
    assert counts(target).phases[0] == PhaseCount()


def test_recovery_looks_at_so_many_blocks_at_most() -> None:
    """The one looked at is of another type by now."""
    target = owning(recover_limit=1)
    take(target, 2 * PAGES)
    target.free(0, 0, 0)
    target.free(0, 32, 0)
    target.drain_all()
    target.zones[0].buddy.move_freepages_block(0, UNMOVABLE)
    take(target)
    assert recorded(target) == [0, 2]
    assert counts(target).recorded_looks == 1


def chunks(chunk_search: str) -> list[list[int]]:
    """Lists by order after a request, where buddies of orders 1 and 3 are free."""
    target = owning(TIGHT, free=(), chunk_search=chunk_search)
    put_back(target, 0, 1)
    put_back(target, 8, 3)
    take(target)
    target.check()
    return [on_list(target, each) for each in range(4)]


def test_largest_chunks_first() -> None:
    """4 pages wanted: nothing of order 2, so the order-1 buddy, then 2 pages of the larger one."""
    assert chunks("largest") == [[1], [8], [], []]


def test_smallest_chunks_first() -> None:
    """4 pages wanted: the order-1 buddy whole, then the order-3 buddy whole."""
    assert chunks("smallest") == [[1], [], [], [8]]


def test_a_block_is_cut_to_its_half_for_the_smallest_chunk() -> None:
    target = owning(TIGHT, chunk_search="smallest")
    take(target)
    assert in_zone(target, 3) == [8]
    assert counts(target).phases[2].pages == 8


def test_a_chunk_is_never_a_block() -> None:
    """32 pages are wanted, and come in halves of blocks."""
    policy = OraclePolicy(pcp_batch=32, pcp_high_min=64, pcp_high_max=64)
    target = owning(policy, claims_blocks=False)
    take(target)
    assert counts(target).phases[2] == PhaseCount(refills=1, objects=4, pages=32)
    assert on_list(target, 3) == [8, 32, 40]


@pytest.mark.parametrize("chunk_search", ["largest", "smallest"])
def test_unless_a_whole_block_is_asked_for(chunk_search: str) -> None:
    policy = replace(ROOMY, costly_order=4)
    target = owning(policy, claims_blocks=False, chunk_search=chunk_search)
    assert take(target, order=4) == [0]
    assert counts(target).phases[2] == PhaseCount(refills=1, objects=2, pages=32)


def test_other_types_come_last_and_page_by_page() -> None:
    """No UNMOVABLE page is free: all 4 come by mainline's rule, of a MOVABLE block claimed."""
    target = owning(TIGHT)
    assert take(target, migratetype=UNMOVABLE) == [0]
    assert counts(target).phases[3] == PhaseCount(refills=1, objects=4, pages=4)
    assert on_list(target, 0, migratetype=UNMOVABLE) == [1, 2, 3]
    assert lists_of(target).mergeable == set()


def test_what_the_own_type_lacks_other_types_top_up() -> None:
    """One order-0 page is there; the 3 missing come page by page."""
    target = owning(free=(4,), claims_blocks=False)
    target.set_block_type(0, UNMOVABLE)
    put_back(target, 5, 0, UNMOVABLE)
    assert take(target, migratetype=UNMOVABLE) == [5]
    assert counts(target).phases[2] == PhaseCount(refills=1, objects=1, pages=1)
    assert counts(target).phases[3] == PhaseCount(refills=1, objects=3, pages=3)


@pytest.mark.parametrize(("cma_first", "phase"), [(False, 1), (True, 3)])
def test_cma_may_come_before_all_phases(cma_first: bool, phase: int) -> None:
    """Most of free memory is in CMA blocks, which movable requests may use."""
    target = owning(machine=small_machine(migratetypes=WITH_CMA), free=(0,), cma_first=cma_first)
    for block in (2, 4):
        target.set_block_type(block, 4)
        put_back(target, block * PAGES, ORDER, 4)
    take(target)
    assert [each.refills for each in counts(target).phases] == [
        int(each == phase) for each in range(4)
    ]


def test_requests_for_the_reserve_do_not_refill() -> None:
    """7.2 (S4.4): the lists stay empty, and the page is the buddy's."""
    target = owning(rules="7.2")
    request = Request(cpu=0, order=1, migratetype=MOVABLE, highest_zone=0, bits=Bits.HIGH)
    assert target.zones[0].take(request, Attempt(mark=Mark.MIN, highatomic=True)) == 0
    assert holds(target) == [("buddy_alloc", "", 1)]
    assert lists_of(target).pcp.count == 0
