"""The high-order atomic reserve by hand (S7)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.oracle import Bits, Migratetype, Oracle, OracleMachine, OraclePolicy
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
ROOMY = 52000
"""Managed pages for a cap of 2 blocks: roundup(520, 512) = 1024."""

SMALL = OraclePolicy(pcp_batch=4, pcp_high_min=32, pcp_high_max=32)


def pressed(
    rules: str = "6.12", policy: OraclePolicy = SMALL, managed: int = ROOMY, blocks: int = 8
) -> Oracle:
    """A zone between its min and low watermarks, so that atomics take the slow path."""
    pages = blocks * BLOCK
    target = oracle(
        one_zone(blocks, managed=managed, min=100, low=pages + 1, high=pages + 2), rules, policy
    )
    put_free_memory(target, 0)
    return target


def reserved(target: Oracle) -> int:
    return target.dump()["zones"][0]["reserved_highatomic"]


@pytest.mark.parametrize(
    ("managed", "percent", "cap"),
    [
        (243282, 1, 2560),
        (765882, 1, 7680),
        (51199, 1, 0),
        (51200, 1, 512),
        (51300, 1, 1024),
        (2654208, 2, 53248),
        (2654208, 0, 0),
    ],
)
def test_cap_arithmetic(managed: int, percent: int, cap: int) -> None:
    """S7.2: the recorded 4 GiB machine fills 5 and 15 blocks."""
    machine = one_zone(1, managed=managed)
    target = oracle(machine, "6.12", OraclePolicy(highatomic_reserve_percent=percent))
    assert target.zones[0].reserve.cap == cap


@pytest.mark.parametrize(("rules", "served"), [("7.2", False), ("7.3", True)])
def test_first_attempts_use_the_reserve_by_version(rules: str, served: bool) -> None:
    """S2.5, S7.3: free memory of the request's own type abounds."""
    target = oracle(one_zone(8, managed=ROOMY), rules, SMALL)
    put_free_blocks(target, 2, 1, HIGHATOMIC)
    put_free_blocks(target, 4, 3, UNMOVABLE)
    assert target.alloc(0, 4, UNMOVABLE, 0, ATOMIC) is not None
    assert (target.dump()["zones"][0]["free_highatomic"] < BLOCK) == served


@pytest.mark.parametrize("only", [False, True])
def test_first_attempts_may_make_the_reserve_grow(only: bool) -> None:
    """S7.1: unless only the MIN mark counts."""
    policy = replace(SMALL, highatomic_fastpath=True, highatomic_slowpath_only=only)
    target = oracle(one_zone(8, managed=ROOMY), "7.2", policy)
    put_free_memory(target, 0)
    assert target.alloc(0, 4, UNMOVABLE, 0, ATOMIC) is not None
    assert (reserved(target) == 0) == only


@pytest.mark.parametrize("rules", ["6.12", "7.3"])
def test_fast_path_atomics_reserve_nothing(rules: str) -> None:
    """S7.1: a block is reserved in the slow path only."""
    target = oracle(one_zone(8, managed=ROOMY), rules, SMALL)
    put_free_memory(target, 0)
    assert target.alloc(0, 4, UNMOVABLE, 0, ATOMIC) is not None
    assert reserved(target) == 0


def test_a_slow_path_atomic_reserves_its_block() -> None:
    """S7.2: the claimed block's free pages move to HIGHATOMIC; one reserve hold of one block."""
    target = pressed()
    pfn = target.alloc(0, 4, UNMOVABLE, 0, ATOMIC)
    assert pfn == 0
    assert reserved(target) == BLOCK
    assert target.dump()["blocks"][0] == HIGHATOMIC
    assert target.dump()["zones"][0]["free_highatomic"] == BLOCK - 16
    assert target.events[-1] == ("hold", "reserve", "", 1)
    target.check()


def test_the_next_atomic_is_served_from_the_reserve() -> None:
    """S7.3: the reserve comes first; its block is not mergeable and reserves nothing more."""
    target = pressed()
    target.alloc(0, 4, UNMOVABLE, 0, ATOMIC)
    target.events.clear()
    assert target.alloc(0, 4, UNMOVABLE, 0, ATOMIC) == 16
    assert target.events == [
        ("zone_locked", 16, 4, HIGHATOMIC),
        ("hold", "buddy_alloc", "", 1),
        ("hold", "reserve", "", 0),
    ]
    assert reserved(target) == BLOCK


def test_the_cap_stops_growth_before_the_lock_is_taken() -> None:
    target = pressed(managed=51200)
    target.alloc(0, 4, UNMOVABLE, 0, ATOMIC)
    assert reserved(target) == BLOCK == target.zones[0].reserve.cap
    for _ in range(31):
        target.alloc(0, 4, UNMOVABLE, 0, ATOMIC)
    target.events.clear()
    assert target.alloc(0, 4, UNMOVABLE, 0, ATOMIC) is not None
    assert ("hold", "reserve", "", 0) not in target.events
    assert reserved(target) == BLOCK


@pytest.mark.parametrize(
    ("gate", "order", "reserves"),
    [(0, 1, True), (3, 3, False), (3, 4, True), (10, 9, False)],
)
def test_gate(gate: int, order: int, reserves: bool) -> None:
    """S7.6: requests up to the gate's order create no reserve."""
    policy = OraclePolicy(highatomic_gate_order=gate, pcp_batch=4, pcp_high_min=32, pcp_high_max=32)
    target = pressed(policy=policy)
    assert target.alloc(0, order, UNMOVABLE, 0, ATOMIC) is not None
    assert (reserved(target) > 0) is reserves


@pytest.mark.parametrize("bits", [Bits.KSWAPD, Bits.HIGH | Bits.NOMEMALLOC, KERNEL | Bits.HIGH])
def test_requests_without_the_right_reserve_nothing(bits: int) -> None:
    """S2.6: not blocking, HIGH, and no NOMEMALLOC are all needed."""
    target = pressed()
    assert target.alloc(0, 4, UNMOVABLE, 0, bits) is not None
    assert reserved(target) == 0


def test_order_0_atomics_reserve_nothing() -> None:
    target = pressed()
    assert target.alloc(0, 0, UNMOVABLE, 0, ATOMIC) is not None
    assert reserved(target) == 0


def test_requests_served_by_a_list_reserve_before_7_2() -> None:
    """S7.1: 6.12 refills 2 objects of order 1 and reserves; the sibling stays listed."""
    target = pressed("6.12")
    assert target.alloc(0, 1, UNMOVABLE, 0, ATOMIC) == 0
    assert reserved(target) == BLOCK
    assert list(target.zones[0].pcp[0].lists[3]) == [2]
    assert target.alloc(0, 1, UNMOVABLE, 0, ATOMIC) == 2
    assert reserved(target) == BLOCK, "the sibling's block is reserved already"
    target.check()


def test_7_2_sends_atomics_past_an_empty_list() -> None:
    """S4.4, S7.1: no refill, yet high grows by the sizing; the buddy serves, then reserves."""
    policy = OraclePolicy(pcp_batch=4, pcp_high_min=32, pcp_high_max=64)
    target = pressed("7.2", policy)
    target.zones[0].flags.below_high = True
    assert target.alloc(0, 1, UNMOVABLE, 0, ATOMIC) == 0
    assert [event[1] for event in events_named(target, "hold")] == ["buddy_alloc", "reserve"]
    assert reserved(target) == BLOCK
    assert target.dump()["pcp_state"][0, 0]["high"] == 32, "BELOW_HIGH: clamped, not grown"


def test_7_2_still_uses_what_a_list_holds_without_reserving() -> None:
    target = pressed("7.2")
    target.alloc(0, 1, UNMOVABLE, 0, KERNEL)
    assert len(target.zones[0].pcp[0].lists[3]) == 1
    assert target.alloc(0, 1, UNMOVABLE, 0, ATOMIC) is not None
    assert reserved(target) == 0


def test_whole_block_requests_retag_without_moving() -> None:
    """S7.2 for orders of a block and more."""
    target = pressed()
    assert target.alloc(0, 10, UNMOVABLE, 0, ATOMIC) == 0
    assert reserved(target) == 2 * BLOCK
    assert target.dump()["zones"][0]["free_highatomic"] == 0
    assert target.events[-1] == ("hold", "reserve", "", 2)
    target.check()


def test_blocks_across_the_zone_edge_are_not_reserved() -> None:
    edge = zone("DMA", 0, 2, start_pfn=1, spanned=2 * BLOCK - 1, managed=ROOMY, low=9999, high=9999)
    target = oracle(OracleMachine(zones=(edge,), nr_cpus=1), "6.12", SMALL)
    target.put_free(256, 8, MOVABLE)
    assert target.alloc(0, 4, MOVABLE, 0, ATOMIC) == 256
    assert target.events[-1] == ("hold", "reserve", "", 0)
    assert reserved(target) == 0


def test_non_blocking_requests_may_fall_back_on_the_reserve() -> None:
    """S7.3: an order-0 atomic takes from it last; an ordinary request not at all."""
    target = oracle(one_zone(8, low=9999, high=9999), "6.12", SMALL)
    put_free_blocks(target, 0, 1, HIGHATOMIC)
    assert target.alloc(0, 0, UNMOVABLE, 0, KERNEL, recorded_success=False) is None
    target.events.clear()
    assert target.alloc(0, 0, UNMOVABLE, 0, ATOMIC) == 0
    assert target.events == [
        ("hold", "refill", "", 0),
        ("zone_locked", 0, 0, HIGHATOMIC),
        ("hold", "buddy_alloc", "", 1),
    ]


def test_unreserve_keeps_one_block() -> None:
    target = oracle(one_zone(4, managed=ROOMY))
    put_free_blocks(target, 0, 1, HIGHATOMIC)
    assert not target.zones[0].reserve.unreserve(MOVABLE)
    assert target.events == []


def test_unreserve_starts_with_the_smallest_free_buddy() -> None:
    """S7.4: the fragmented block goes first, to the requester's type; one block per call."""
    target = oracle(one_zone(4, managed=ROOMY))
    put_free_blocks(target, 0, 1, HIGHATOMIC)
    target.set_block_type(1, HIGHATOMIC)
    target.put_free(BLOCK + 8, 3, HIGHATOMIC)
    target.put_free(BLOCK + 2, 1, HIGHATOMIC)
    assert target.zones[0].reserve.unreserve(UNMOVABLE)
    assert target.dump()["blocks"] == {0: HIGHATOMIC, 1: UNMOVABLE, 2: MOVABLE, 3: MOVABLE}
    assert list(target.zones[0].buddy.lists[3, UNMOVABLE]) == [BLOCK + 8]
    assert reserved(target) == BLOCK
    assert target.events == [("hold", "unreserve", "", 1)]
    target.check()


def test_unreserve_of_a_whole_block_does_not_merge() -> None:
    """S7.4, S5.3: merging is the free path's work."""
    target = oracle(one_zone(4, managed=ROOMY))
    put_free_blocks(target, 1, 1, MOVABLE)
    put_free_blocks(target, 0, 1, HIGHATOMIC)
    put_free_blocks(target, 3, 1, HIGHATOMIC)
    assert target.zones[0].reserve.unreserve(MOVABLE)
    assert list(target.zones[0].buddy.lists[9, MOVABLE]) == [BLOCK, 0]
    target.check()


def test_unreserve_of_two_blocks_at_once() -> None:
    target = oracle(one_zone(4, managed=ROOMY))
    target.set_block_type(0, HIGHATOMIC)
    target.set_block_type(1, HIGHATOMIC)
    target.put_free(0, 10, HIGHATOMIC)
    assert target.zones[0].reserve.unreserve(MOVABLE)
    assert reserved(target) == 0
    assert target.events == [("hold", "unreserve", "", 2)]
    target.check()


def test_blocks_without_a_free_page_are_never_given_back() -> None:
    target = oracle(one_zone(4, managed=ROOMY))
    target.set_block_type(0, HIGHATOMIC)
    target.set_block_type(1, HIGHATOMIC)
    assert not target.zones[0].reserve.unreserve(MOVABLE)
    assert target.events == [("hold", "unreserve", "", 0)]
    assert reserved(target) == 2 * BLOCK


def test_freed_reserve_pages_serve_others_from_the_movable_list() -> None:
    """S7.1, S4.6."""
    target = pressed()
    pfn = target.alloc(0, 1, UNMOVABLE, 0, ATOMIC)
    assert pfn is not None
    assert target.blocks.type_of(pfn) == Migratetype.HIGHATOMIC
    target.free(0, pfn, 1)
    assert target.alloc(0, 1, MOVABLE, 0, KERNEL) == pfn
