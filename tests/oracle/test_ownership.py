"""Owned pageblocks by hand (S12): no kernel has them, so no kernel can judge them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from pagealloc_model.policy.ownership_options import OwnershipOptions
from tests.oracle import Migratetype, Oracle, OraclePolicy
from tests.oracle.machine import OracleMachine
from tests.oracle.ownership import MergingLists, OwnedPageblocks, OwnershipCount, PhaseCount
from tests.oracle.ownership_refill import OwningZone
from tests.oracle.scenarios import KERNEL, asked, events_named, one_zone, oracle

ORDER = 4  # pageblock order of the examples
PAGES = 1 << ORDER  # pages in a block
BLOCKS = 8  # blocks in the zone

MOVABLE = Migratetype.MOVABLE

ROOMY = OraclePolicy(pcp_batch=4, pcp_high_min=64, pcp_high_max=64)
"""Lists that hold four blocks; refills fetch 4 pages or 2 larger objects."""


def small_machine() -> OracleMachine:
    """Three CPUs and one zone of 8 blocks of 16 pages, far above its marks."""
    pages = BLOCKS * PAGES
    plain = one_zone(nr_cpus=3, spanned=pages, present=pages, managed=pages)
    return replace(plain, pageblock_order=ORDER, thp=False)


def owning(
    policy: OraclePolicy = ROOMY,
    *,
    free: Sequence[int] = (0, 2, 4, 6),
    **options: object,
) -> Oracle:
    """An oracle with one type of blocks, some of which are free, the rest in use."""
    policy = replace(policy, ownership=OwnershipOptions(**options))
    target = oracle(small_machine(), "6.12", policy)
    for block in range(BLOCKS):
        if block in free:
            target.put_free(block * PAGES, ORDER, MOVABLE)
        else:
            target.put_allocated(block * PAGES, ORDER, movable=True)
    return target


def take(target: Oracle, count: int = 1) -> list[int | None]:
    """Allocate on CPU 0; the pages got."""
    request = asked(0, 0, MOVABLE, 0, KERNEL)
    return [target.alloc(request) for _ in range(count)]


def counts(target: Oracle, cpu: int = 0) -> OwnershipCount:
    """What a CPU did in the only zone."""
    return target.ownership_counters.at(0, cpu)


def lists_of(target: Oracle, cpu: int = 0) -> MergingLists:
    """The only zone's lists of a CPU."""
    zone = target.zones[0]
    assert isinstance(zone, OwningZone)
    return zone.lists[cpu]


def on_list(target: Oracle, order: int) -> list[int]:
    """Pages of an order on CPU 0's list, head first."""
    return list(lists_of(target).pcp.list_of(order, MOVABLE))


def owners(target: Oracle) -> dict[int, int]:
    """Owner of every owned block."""
    assert isinstance(target.blocks, OwnedPageblocks)
    return {number: block.cpu for number, block in target.blocks.owned.items()}


def holds(target: Oracle) -> list[tuple[object, ...]]:
    """(site, cause, objects) of every hold so far."""
    return [event[1:] for event in events_named(target, "hold")]


@pytest.mark.parametrize(
    ("chunk_search", "lists"),
    [("largest", [[1], [8], [], []]), ("smallest", [[1], [], [], [8]])],
)
def test_chunks_are_taken_where_blocks_do_not_fit(
    chunk_search: str, lists: list[list[int]]
) -> None:
    """4 pages wanted, of buddies of orders 1 and 3, the larger cut to size or the smaller first."""
    tight = OraclePolicy(pcp_batch=4, pcp_high_min=8, pcp_high_max=8)
    target = owning(tight, free=(), chunk_search=chunk_search)
    for pfn, order in ((0, 1), (8, 3)):
        target.allocated.remove(pfn, order)
        target.put_free(pfn, order, MOVABLE)
    take(target)
    assert [on_list(target, order) for order in range(4)] == lists


def using(*freed: int) -> Oracle:
    """CPU 0 has used a block of its own wholly, then freed some pages."""
    target = owning()
    take(target, PAGES)
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
    whole = list(target.zones[0].buddy.lists[ORDER, MOVABLE])
    assert whole == [0, 32, 64, 96], "whole, so not last"
    assert (counts(target).merges, counts(target).merge_looks) == (15, 15)
    assert owners(target) == {}
    assert counts(target).ended == 1
    assert counts(target).recorded == 0


def test_a_refill_claims_a_whole_block() -> None:
    """4 pages are wanted; the block's 16 fit under high 64, and the CPU owns it."""
    target = owning()
    assert take(target) == [0]
    assert owners(target) == {0: 0}
    assert holds(target) == [("refill", "", 1)]
    assert counts(target).phases[1] == PhaseCount(refills=1, objects=1, pages=16)
    assert counts(target).claimed == 1


def test_fragments_are_recovered() -> None:
    """Ascending, to the tails of their lists; the block is looked through once."""
    target = using(3, 8, 9)
    target.drain_all()
    target.work.clear()
    assert take(target) == [3]
    assert on_list(target, 1) == [8]
    assert owners(target) == {0: 0, 2: 0}, "3 of 4 pages: another block is claimed"
    assert target.work[0].scanned == 15, "13 pages, and two buddies"
    assert counts(target).phases[0] == PhaseCount(refills=1, objects=2, pages=3)
    assert (counts(target).recovered, counts(target).recorded_looks) == (1, 1)
    assert 8 in lists_of(target).mergeable
