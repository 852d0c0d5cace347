"""Owned pageblocks by hand (S12): no kernel has them, so no kernel can judge them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from pagealloc_model.policy.ownership_options import OwnershipOptions
from tests.oracle import Migratetype, Oracle, OraclePolicy
from tests.oracle.machine import OracleMachine, is_drawn
from tests.oracle.ownership import MergingLists, OwnedPageblocks, OwnershipCount, PhaseCount
from tests.oracle.ownership_refill import OwningZone
from tests.oracle.scenarios import KERNEL, asked, events_named, one_zone, oracle

ORDER = 4  # pageblock order of the examples
PAGES = 1 << ORDER  # pages in a block
BLOCKS = 8  # blocks in the zone

UNMOVABLE, MOVABLE = Migratetype.UNMOVABLE, Migratetype.MOVABLE

ROOMY = OraclePolicy(pcp_batch=4, pcp_high_min=64, pcp_high_max=64)
"""Lists that hold four blocks; refills fetch 4 pages or 2 larger objects."""

TIGHT = OraclePolicy(pcp_batch=4, pcp_high_min=8, pcp_high_max=8)  # lists too short for a block


def small_machine(**changes: object) -> OracleMachine:
    """Three CPUs and one zone of 8 blocks of 16 pages, far above its marks."""
    pages = BLOCKS * PAGES
    plain = one_zone(nr_cpus=3, spanned=pages, present=pages, managed=pages)
    return replace(plain, pageblock_order=ORDER, thp=False, **changes)


def owning(
    policy: OraclePolicy = ROOMY,
    *,
    machine: OracleMachine | None = None,
    free: Sequence[int] = (0, 2, 4, 6),
    migratetype: int = MOVABLE,
    rules: str = "6.12",
    **options: object,
) -> Oracle:
    """An oracle with one type of blocks, some of which are free, the rest in use."""
    policy = replace(policy, ownership=OwnershipOptions(**options))
    target = oracle(machine or small_machine(), rules, policy)
    for block in range(BLOCKS):
        target.set_block_type(block, migratetype)
        if block in free:
            target.put_free(block * PAGES, ORDER, migratetype)
        else:
            target.put_allocated(block * PAGES, ORDER, movable=True)
    return target


def take(
    target: Oracle, count: int = 1, order: int = 0, cpu: int = 0, migratetype: int = MOVABLE
) -> list[int]:
    """Allocate on a CPU; the pages got."""
    request = asked(cpu, order, migratetype, 0, KERNEL)
    pfns = [target.alloc(request) for _ in range(count)]
    return [pfn for pfn in pfns if pfn is not None]


def put_back(target: Oracle, pfn: int, order: int, migratetype: int = MOVABLE) -> None:
    """Lay out pages in use as a free buddy instead."""
    target.allocated.remove(pfn, order)
    target.put_free(pfn, order, migratetype)


def counts(target: Oracle, cpu: int = 0) -> OwnershipCount:
    """What a CPU did in the only zone."""
    return target.ownership_counters.at(0, cpu)


def lists_of(target: Oracle, cpu: int = 0) -> MergingLists:
    """The only zone's lists of a CPU."""
    zone = target.zones[0]
    assert isinstance(zone, OwningZone)
    return zone.lists[cpu]


def on_list(target: Oracle, order: int, cpu: int = 0, migratetype: int = MOVABLE) -> list[int]:
    """Pages of an order on a CPU's list, head first."""
    return list(lists_of(target, cpu).pcp.list_of(order, migratetype))


def in_zone(target: Oracle, order: int, migratetype: int = MOVABLE) -> list[int]:
    """Free buddies of an order in the zone, head first."""
    return list(target.zones[0].buddy.lists[order, migratetype])


def owners(target: Oracle) -> dict[int, int]:
    """Owner of every owned block."""
    assert isinstance(target.blocks, OwnedPageblocks)
    return {number: block.cpu for number, block in target.blocks.owned.items()}


def holds(target: Oracle) -> list[tuple[object, ...]]:
    """(site, cause, objects) of every hold so far."""
    return [event[1:] for event in events_named(target, "hold")]


def recorded(target: Oracle, cpu: int = 0) -> list[int]:
    """Blocks recorded by a CPU, oldest first."""
    assert isinstance(target.blocks, OwnedPageblocks)
    return list(target.blocks.recorded[0, cpu])


def test_a_page_goes_back_to_its_blocks_owner() -> None:
    target = owning()
    take(target, PAGES)
    target.free(1, 3, 0)
    assert (on_list(target, 0, cpu=0), on_list(target, 0, cpu=1)) == ([3], [])
    assert lists_of(target).mergeable == {3}
    assert counts(target, cpu=1).remote_frees == 1
    target.free(0, 5, 0)
    assert on_list(target, 0) == [5, 3], "in front"
    assert counts(target).remote_frees == 0


def test_draws() -> None:
    """Numbers 0, 1 and 2 give words 0, 2654435761 and 1013904226, of 4294967296: 0, 618, 236."""
    assert [is_drawn(number, 237) for number in range(3)] == [True, False, True]
    assert [is_drawn(number, 236) for number in range(3)] == [True, False, False]
    assert not is_drawn(0, 0)
    assert 290 <= sum(is_drawn(number, 300) for number in range(1000)) <= 310


def using(*freed: int, count: int = PAGES, **options: object) -> Oracle:
    """CPU 0 has used blocks of its own wholly, then freed some pages."""
    target = owning(**options)
    take(target, count)
    target.events.clear()
    for pfn in freed:
        target.free(0, pfn, 0)
    return target


def test_a_block_reunites_on_its_owners_lists() -> None:
    """16 pages, freed by two CPUs, go back as one: 8 + 4 + 2 + 1 merges, each on one look."""
    target = using()
    for pfn in range(PAGES):
        target.free(pfn % 2, pfn, 0)
    target.drain_all()
    assert holds(target) == [("drain", "drain_all", 1)]
    assert in_zone(target, 4) == [0, 32, 64, 96], "whole, so not last"
    assert (counts(target).merges, counts(target).merge_looks) == (15, 15)
    assert owners(target) == {}
    assert counts(target).ended == 1
    assert counts(target).recorded == 0


def test_recorded_blocks_may_age() -> None:
    """The owner's tick gives up what was recorded before it; what it drains itself lives on."""
    policy = OraclePolicy(pcp_batch=4, pcp_high_min=2, pcp_high_max=64)
    target = using(3, policy=policy, count=2 * PAGES, fit_test="always", ownership_ends="aged")
    target.drain_all()
    lists_of(target).pcp.high = 64
    for pfn in (32, 34, 36):
        target.free(0, pfn, 0)
    target.tick(1)
    assert recorded(target) == [0]
    lists_of(target).pcp.high = 2
    target.tick(0)
    assert recorded(target) == [2]
    assert owners(target) == {2: 0}


def test_a_refill_claims_a_whole_block() -> None:
    """4 pages are wanted; the block's 16 fit under high 64, and the CPU owns it."""
    target = owning()
    assert take(target) == [0]
    assert owners(target) == {0: 0}
    assert holds(target) == [("refill", "", 1)]
    assert counts(target).phases[1] == PhaseCount(refills=1, objects=1, pages=16)
    assert counts(target).claimed == 1


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


def chunks(chunk_search: str) -> list[list[int]]:
    """Lists by order after a request, where buddies of orders 1 and 3 are free."""
    target = owning(TIGHT, free=(), chunk_search=chunk_search)
    put_back(target, 0, 1)
    put_back(target, 8, 3)
    take(target)
    return [on_list(target, each) for each in range(4)]


def test_largest_chunks_first() -> None:
    """4 pages wanted: nothing of order 2, so the order-1 buddy, then 2 pages of the larger one."""
    assert chunks("largest") == [[1], [8], [], []]


def test_smallest_chunks_first() -> None:
    """4 pages wanted: the order-1 buddy whole, then the order-3 buddy whole."""
    assert chunks("smallest") == [[1], [], [], [8]]
