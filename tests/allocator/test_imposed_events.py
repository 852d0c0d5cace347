"""Events of runs that are no predictions: a zone, a boost and drains as recorded."""

from __future__ import annotations

import numpy as np
import pytest

from pagealloc_model.allocator import layout as at
from pagealloc_model.allocator.events import advance
from pagealloc_model.recording.machine import Machine, Zone
from tests.allocator.small_state import Small

DMA32, NORMAL = 0, 1


def two_zones() -> Machine:
    """A machine of two CPUs, and zones of 4 blocks each."""
    pages = 4 * 512
    marks = {"min": 0, "low": 0, "high": 0}
    sizes = {"spanned": pages, "present": pages, "managed": pages, **marks}
    return Machine(
        zones=(
            Zone(name="DMA32", start_pfn=0, **sizes),
            Zone(name="Normal", start_pfn=pages, **sizes),
        ),
        nr_cpus=2,
    )


def small_with_a_listed_page() -> Small:
    small = Small("7.2", machine=two_zones())
    small.put_allocated(0, 3, movable=True)
    small.free(3)
    assert small.pageset[at.PCP_COUNT] == 1
    return small


def replayed(small: Small, operation: int, **fields: int) -> np.ndarray:
    """Places after one event."""
    events = np.zeros(1, at.EVENT)
    events["operation"] = operation
    for name, value in fields.items():
        events[name] = value
    places = np.full(1, -1, np.int32)
    assert advance(small.state.arrays(places), events, 0, 1, -1) == 1
    return places


@pytest.mark.parametrize("operation", [at.ALLOC_IN_ZONE, at.HIDDEN_ALLOC_IN_ZONE])
def test_only_the_imposed_zone_serves(operation: int) -> None:
    """Normal comes first and has pages; DMA32 has none left after two huge pages."""
    small = Small("7.2", machine=two_zones())
    small.put_free(9, 512, 1024, 2560, 3072)
    request = {"order": 9, "migratetype": at.MOVABLE, "zone": NORMAL}
    assert [replayed(small, operation, offset=DMA32, **request)[0] for _ in range(2)] == [512, 1024]
    assert replayed(small, operation, offset=DMA32, **request)[0] == -1
    assert small.state.st[at.ONLY_ZONE] == 0
    assert replayed(small, at.ALLOC, **request)[0] == 2560


def test_a_boost_is_set() -> None:
    small = small_with_a_listed_page()
    replayed(small, at.SET_BOOST, zone=NORMAL, offset=512)
    assert small.state.zone_region(NORMAL)[at.ZONE_BOOST] == 512
    assert small.state.zone_region(DMA32)[at.ZONE_BOOST] == 0


def test_a_drain_empties_one_cpus_lists_of_one_zone() -> None:
    small = small_with_a_listed_page()
    replayed(small, at.DRAIN_ZONE, zone=DMA32, offset=1, cpu=0)
    replayed(small, at.DRAIN_ZONE, zone=NORMAL, offset=0, cpu=0)
    assert small.pageset[at.PCP_COUNT] == 1
    replayed(small, at.DRAIN_ZONE, zone=DMA32, offset=0, cpu=1)
    assert small.pageset[at.PCP_COUNT] == 0


@pytest.mark.parametrize(("recorded", "listed"), [(0, 0), (1, 1)])
def test_the_model_drains_nothing_where_drains_are_recorded(recorded: int, listed: int) -> None:
    small = small_with_a_listed_page()
    small.state.st[at.DRAINS_RECORDED] = recorded
    replayed(small, at.DRAIN_ALL)
    assert small.pageset[at.PCP_COUNT] == listed


@pytest.mark.parametrize("order", [8, 9, 10])
def test_memory_that_comes_is_last_on_its_list(order: int) -> None:
    small = Small("7.2", machine=two_zones())
    small.put_free(order, 0)
    replayed(small, at.GROW, zone=DMA32, offset=1024, order=order)
    assert small.list(order, at.MOVABLE) == [0, 1024]


def test_a_block_is_released_when_the_kernel_released_one_and_only_then() -> None:
    """Two blocks are reserved, each with a free page; a failure that reclaimed releases none."""
    small = Small("7.2", machine=two_zones())
    for block in (4, 5):
        small.tag(block, at.HIGHATOMIC)
        small.put_free(3, 512 * block, migratetype=at.HIGHATOMIC)
    small.state.zone_region(NORMAL)[at.ZONE_RESERVED_HIGHATOMIC] = 2 * 512
    small.state.st[at.RELEASES_RECORDED] = 1
    request = {"migratetype": at.MOVABLE, "zone": NORMAL}
    reclaimed = (1 << at.RECLAIM_SHIFT) | at.GFP_DIRECT_RECLAIM
    replayed(small, at.RECORDED_FAILURE, bits=reclaimed, **request)
    assert [small.block_type(block) for block in (4, 5)] == [at.HIGHATOMIC] * 2
    replayed(small, at.RELEASE_BLOCK, **request)
    assert sorted(small.block_type(block) for block in (4, 5)) == [at.MOVABLE, at.HIGHATOMIC]
    assert small.state.st[at.RELEASES_RECORDED] == 1
