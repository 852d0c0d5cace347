"""A small zone whose blocks CPUs may own, for the tests: 16 pages to a block."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tests.oracle import Migratetype, Oracle, OraclePolicy
from tests.oracle.machine import OracleMachine
from tests.oracle.ownership import MergingLists, OwnedPageblocks, OwnershipCount
from tests.oracle.ownership_refill import OwningZone
from tests.oracle.rules import OracleOwnership
from tests.oracle.scenarios import KERNEL, one_zone, oracle

ORDER = 4
"""Pageblock order of the examples."""

PAGES = 1 << ORDER
"""Pages in a block."""

BLOCKS = 8
"""Blocks in the zone."""

UNMOVABLE, MOVABLE = Migratetype.UNMOVABLE, Migratetype.MOVABLE

ROOMY = OraclePolicy(pcp_batch=4, pcp_high_min=64, pcp_high_max=64)
"""Lists that hold four blocks; refills fetch 4 pages or 2 larger objects."""

TIGHT = OraclePolicy(pcp_batch=4, pcp_high_min=8, pcp_high_max=8)
"""Lists too short for a block."""


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
    policy = replace(policy, ownership=OracleOwnership(**options))  # type: ignore[arg-type]
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
    pfns = [target.alloc(cpu, order, migratetype, 0, KERNEL) for _ in range(count)]
    return [pfn for pfn in pfns if pfn is not None]


def put_back(target: Oracle, pfn: int, order: int, migratetype: int = MOVABLE) -> None:
    """Lay out pages in use as a free buddy instead."""
    target.allocated.remove(pfn, order)
    target.put_free(pfn, order, migratetype)
    target.placed_pages -= 1 << order


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
    pcp = lists_of(target, cpu).pcp
    return list(pcp.lists[pcp.layout.index(order, migratetype)])


def in_zone(target: Oracle, order: int, migratetype: int = MOVABLE) -> list[int]:
    """Free buddies of an order in the zone, head first."""
    return list(target.zones[0].buddy.lists[order, migratetype])


def owners(target: Oracle) -> dict[int, int]:
    """Owner of every owned block."""
    assert isinstance(target.blocks, OwnedPageblocks)
    return {number: block.cpu for number, block in target.blocks.owned().items()}


def recorded(target: Oracle, cpu: int = 0) -> list[int]:
    """Blocks recorded by a CPU, oldest first."""
    assert isinstance(target.blocks, OwnedPageblocks)
    return target.blocks.recorded(0, cpu)
