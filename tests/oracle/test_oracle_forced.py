"""Requests served whatever the watermarks say, by hand: the zone nearest to its mark comes first.

Margins are free pages less what the MIN mark asks for, as in S3.3's comparison. The zone that a
walk over the zonelist would have come to first is Normal.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.oracle import Bits, Migratetype, Oracle, OracleAssumptions, OracleMachine, OraclePolicy
from tests.oracle.scenarios import (
    ATOMIC,
    BLOCK,
    WITH_CMA,
    events_named,
    oracle,
    put_free_blocks,
    two_nodes,
    zone,
)

UNMOVABLE, MOVABLE, HIGHATOMIC = (
    Migratetype.UNMOVABLE,
    Migratetype.MOVABLE,
    Migratetype.HIGHATOMIC,
)
CMA = 4

DMA32, NORMAL = 0, 1
"""Zones, and types of zones."""

PLAIN = Bits.NOMEMALLOC
"""Neither reclaim nor reserves: the margin has no discounts."""

SINGLE = OraclePolicy(pcp_batch=1, pcp_high_min=0, pcp_high_max=0)
"""Per-CPU lists that hold nothing back."""

LAGGED = OracleAssumptions(counters="lagged")


def marks(minimum: int) -> dict[str, int]:
    """All three marks in one place."""
    return {"min": minimum, "low": minimum, "high": minimum}


def two_zones(normal: dict[str, object], dma32: dict[str, object]) -> OracleMachine:
    """Four blocks each, both kinds of changes as in `zone`."""
    return OracleMachine(
        zones=(zone("DMA32", 0, 4, **dma32), zone("Normal", 4, 4, **normal)),
        nr_cpus=1,
        migratetypes=WITH_CMA,
    )


def put_singles(target: Oracle, block: int, count: int, migratetype: int = MOVABLE) -> None:
    """So many free order-0 buddies in a block of their type, each in its own pair."""
    target.set_block_type(block, migratetype)
    for index in range(count):
        target.put_free(block * BLOCK + 2 * index, 0, migratetype)


def pressed(
    normal_free: int,
    dma32_free: int,
    *,
    normal: dict[str, object],
    dma32: dict[str, object],
    rules: str = "6.12",
    assumptions: OracleAssumptions | None = None,
) -> Oracle:
    """Two zones with so many single MOVABLE pages free."""
    target = oracle(two_zones(normal, dma32), rules, SINGLE, assumptions)
    put_singles(target, 0, dma32_free)
    put_singles(target, 4, normal_free)
    return target


def server(
    target: Oracle, *, order: int = 0, migratetype: int = UNMOVABLE, bits: int = PLAIN
) -> int | None:
    """Zone that serves a request which may use both, in the end without watermarks."""
    pfn = target.alloc(0, order, migratetype, NORMAL, bits)
    if pfn is None:
        return None
    assert target.forced == 1
    target.check()
    return target.zone_of(pfn).index


def test_the_zone_that_lacks_least_serves() -> None:
    """Normal lacks 90 pages, DMA32 30."""
    assert server(pressed(10, 20, normal=marks(100), dma32=marks(50))) == DMA32


def test_the_preferred_zone_serves_where_it_lacks_least() -> None:
    """Normal lacks 30 pages, DMA32 90, though more are free there."""
    assert server(pressed(10, 20, normal=marks(40), dma32=marks(110))) == NORMAL


def test_of_equals_the_preferred_zone_serves() -> None:
    """Both lack 90 pages; with one page fewer Normal lacks 91."""
    assert server(pressed(10, 20, normal=marks(100), dma32=marks(110))) == NORMAL
    assert server(pressed(9, 20, normal=marks(100), dma32=marks(110))) == DMA32


@pytest.mark.parametrize(("kept", "served_by"), [(59, DMA32), (60, NORMAL)])
def test_the_lowmem_reserve_counts(kept: int, served_by: int) -> None:
    """Normal lacks 90 pages, DMA32 30 and what it keeps from requests that may use Normal."""
    dma32 = marks(50) | {"lowmem_reserve": (0, kept)}
    assert server(pressed(10, 20, normal=marks(100), dma32=dma32)) == served_by


def test_the_boost_counts() -> None:
    """Normal lacks 10 pages and a boost of 71, DMA32 80."""
    normal = marks(100) | {"boost": 71}
    assert server(pressed(90, 20, normal=normal, dma32=marks(100))) == DMA32


def test_the_boost_counts_for_urgent_single_pages_too() -> None:
    """Normal has 10 of 75 (37.5 % of 100 + 100), DMA32 20 of 84 (of 224): it lacks one less.

    Without the boost, as the watermark test tries last, Normal would have 10 of 38.
    """
    normal = marks(100) | {"boost": 100}
    assert server(pressed(10, 20, normal=normal, dma32=marks(224)), bits=ATOMIC) == DMA32


def test_discounts_are_of_the_mark_alone() -> None:
    """Plain: Normal lacks 990 pages, DMA32 20 - 400 - 300. Atomic: 10 - 375, 20 - 150 - 300."""
    dma32 = marks(400) | {"lowmem_reserve": (0, 300)}
    for bits, served_by in ((PLAIN, DMA32), (ATOMIC, NORMAL)):
        target = pressed(10, 20, normal=marks(1000), dma32=dma32)
        assert server(target, bits=bits) == served_by


def test_the_low_and_high_marks_do_not_count() -> None:
    """Normal lacks 90 pages at MIN and DMA32 80, but 1980 at the others."""
    dma32 = {"min": 100, "low": 2000, "high": 2000}
    assert server(pressed(10, 20, normal=marks(100), dma32=dma32)) == DMA32


@pytest.mark.parametrize(("migratetype", "served_by"), [(UNMOVABLE, DMA32), (MOVABLE, NORMAL)])
def test_cma_pages_count_for_who_may_use_them(migratetype: int, served_by: int) -> None:
    """Normal has 10 pages and 40 in CMA: it lacks 90 or 50; DMA32 lacks 80."""
    target = pressed(10, 20, normal=marks(100), dma32=marks(100))
    put_singles(target, 5, 40, CMA)
    assert server(target, migratetype=migratetype) == served_by


@pytest.mark.parametrize(("bits", "served_by"), [(PLAIN, DMA32), (Bits.NONE, NORMAL)])
def test_free_reserved_pages_count_for_who_may_use_reserves(bits: int, served_by: int) -> None:
    """Normal has 10 pages and 40 in the reserve: it lacks 90, to who cannot reclaim 50."""
    target = pressed(10, 20, normal=marks(100), dma32=marks(100))
    put_singles(target, 5, 40, HIGHATOMIC)
    assert server(target, bits=bits) == served_by


@pytest.mark.parametrize(("rules", "served_by"), [("6.1", DMA32), ("6.12", NORMAL)])
def test_6_1_counts_reserved_pages_in_use_as_well(rules: str, served_by: int) -> None:
    """Normal has 50 pages, none in its reserve: it lacks 50, or 50 and a block; DMA32 80."""
    target = pressed(50, 20, normal=marks(100), dma32=marks(100), rules=rules)
    target.set_block_type(5, HIGHATOMIC)
    assert server(target) == served_by


def test_the_margin_is_that_of_counters_as_cpus_read_them() -> None:
    """Normal lacks 70 pages but seems to lack 90, and DMA32 lacks 80."""
    target = pressed(30, 20, normal=marks(100), dma32=marks(100), assumptions=LAGGED)
    target.settle_counters()
    target.zones[NORMAL].counters.free.shared = 10
    pfn = target.alloc(0, 0, UNMOVABLE, NORMAL, PLAIN)
    assert pfn is not None
    assert target.zone_of(pfn).index == DMA32


def test_without_a_page_in_the_nearest_zone_the_walk_follows() -> None:
    """DMA32 has 485 pages to spare, but no buddy of 16; Normal lacks 999, and has one."""
    target = pressed(0, 500, normal=marks(1000), dma32={})
    target.put_free(4 * BLOCK, 4, MOVABLE)
    assert server(target, order=4, migratetype=MOVABLE) == NORMAL
    assert events_named(target, "hold") == [
        ("hold", "buddy_alloc", "", 0),
        ("hold", "buddy_alloc", "", 1),
    ]


def test_the_walk_comes_to_the_nearest_zone_again() -> None:
    """Normal is nearest and first in the list: it is tried twice, then DMA32 serves."""
    target = pressed(500, 0, normal={}, dma32=marks(1000))
    target.put_free(0, 4, MOVABLE)
    assert server(target, order=4, migratetype=MOVABLE) == DMA32
    assert events_named(target, "hold") == [
        ("hold", "buddy_alloc", "", 0),
        ("hold", "buddy_alloc", "", 0),
        ("hold", "buddy_alloc", "", 1),
    ]


def test_nothing_anywhere_fails() -> None:
    target = pressed(10, 20, normal=marks(100), dma32=marks(50))
    assert server(target, order=4) is None
    assert (target.forced, target.failed) == (0, 1)


def test_only_recorded_successes_are_forced() -> None:
    target = pressed(10, 20, normal=marks(100), dma32=marks(50))
    assert target.alloc(0, 0, UNMOVABLE, NORMAL, PLAIN, recorded_success=False) is None
    assert events_named(target, "hold") == []


def test_an_atomic_high_order_success_reserves_in_the_nearest_zone() -> None:
    """512 pages in each, 15 of them not counted: Normal lacks 1500 - 497, DMA32 1125 - 497."""
    roomy = {"managed": 100 * BLOCK}
    target = oracle(two_zones(marks(4000) | roomy, marks(3000) | roomy), "6.12", SINGLE)
    put_free_blocks(target, 0, 1)
    put_free_blocks(target, 4, 1)
    assert server(target, order=4, bits=ATOMIC) == DMA32
    assert target.dump()["blocks"][0] == HIGHATOMIC
    assert target.zones[DMA32].reserve.reserved == BLOCK


@pytest.mark.parametrize("defrag_mode", [False, True])
def test_another_node_serves_where_it_lacks_least(defrag_mode: bool) -> None:
    """Neither distance nor kswapd at work there counts: both lack 90 pages, then the local 91."""
    policy = replace(SINGLE, defrag_mode=defrag_mode)
    plain = two_nodes()
    zones = tuple(replace(each, **marks(100)) for each in plain.zones)
    for local_free, served_by in ((10, 1), (9, 3)):
        target = oracle(replace(plain, zones=zones), "7.2", policy)
        put_singles(target, 4, local_free, UNMOVABLE)
        put_singles(target, 8, 10, UNMOVABLE)
        target.kswapd[1].wake(0, NORMAL)
        assert target.kswapd[1].active
        assert server(target) == served_by
