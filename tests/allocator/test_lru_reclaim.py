"""LRU lists, what reclaim takes off them, and kswapd in model time (S10), on small states."""

from __future__ import annotations

import pytest

from pagealloc_model.allocator import layout as at
from pagealloc_model.allocator import pressure_layout as pr
from pagealloc_model.allocator.invariants import broken_invariants
from pagealloc_model.policy.assumptions import ElasticAssumptions
from tests.allocator.elastic_state import BLOCK, CALM, KERNEL, Pressed, bits_of, pressed_zone

MOVABLE, UNMOVABLE = at.MOVABLE, at.UNMOVABLE
SECOND = 1_000_000_000


def lru_pages(pressed: Pressed) -> list[int]:
    """Pages on each of the node's lists."""
    return pressed.node[pr.NODE_PAGES : pr.NODE_PAGES + pr.LRU_LISTS].tolist()


def nearly_full(elastic: ElasticAssumptions = CALM, *, kind: int = pr.FILE) -> Pressed:
    """A zone of four blocks, three of them full of LRU pages, the fourth cut into single pages."""
    pressed = Pressed(machine=pressed_zone(4, 64), elastic=elastic)
    pressed.put_allocated(0, *range(3 * BLOCK), kind=kind)
    pressed.put_allocated(0, *range(3 * BLOCK, 4 * BLOCK - 20))
    pressed.put_free(0, *range(4 * BLOCK - 20, 4 * BLOCK, 2))
    pressed.put_allocated(0, *range(4 * BLOCK - 19, 4 * BLOCK, 2))
    return pressed


def test_pages_join_the_list_of_their_class_and_leave_it() -> None:
    pressed = Pressed(machine=pressed_zone(4, 0))
    pressed.put_free(9, 0)
    file = pressed.alloc(0, MOVABLE, bits_of(pr.FILE))
    anon = pressed.alloc(2, MOVABLE, bits_of(pr.ANON))
    kernel = pressed.alloc(0, UNMOVABLE, bits_of(pr.KERNEL))
    assert lru_pages(pressed) == [4, 0, 1, 0]
    pressed.free(anon, 2)
    assert lru_pages(pressed) == [0, 0, 1, 0]
    pressed.free(file)
    pressed.free(kernel)
    assert lru_pages(pressed) == [0, 0, 0, 0]
    assert broken_invariants(pressed.state) == []


def test_direct_reclaim_takes_the_oldest_pages() -> None:
    pressed = nearly_full()
    number = pressed.alloc(0, UNMOVABLE)
    assert pressed.places[number] >= 0
    freed = pressed.count("pgsteal_direct")
    assert pr.CLUSTER <= freed < 2 * pr.CLUSTER
    assert (pressed.places[:freed] < pr.LOST).all()
    assert (pressed.places[freed : 3 * BLOCK] >= 0).all()
    assert pressed.word(pr.ALLOCSTALL) == 1
    assert broken_invariants(pressed.state) == []


def test_a_recorded_free_of_a_reclaimed_page_is_counted_not_done() -> None:
    pressed = nearly_full()
    pressed.alloc(0, UNMOVABLE)
    free = pressed.state.zone_region(0)[at.ZONE_FREE]
    pressed.free(0)
    assert pressed.word(pr.FREED_BY_MODEL) == 1
    assert pressed.state.zone_region(0)[at.ZONE_FREE] == free


def test_frees_by_recorded_reclaim_are_dropped() -> None:
    pressed = nearly_full()
    pressed.free(5, bits=pr.FREED_BY_RECLAIM)
    assert pressed.word(pr.DROPPED_FREES) == 1
    assert pressed.places[5] == 5


@pytest.mark.parametrize(
    ("share", "lists"),
    [("file_referenced_per_mille", "pgactivate"), ("file_dirty_per_mille", "")],
)
def test_pages_in_use_or_dirty_are_not_freed(share: str, lists: str) -> None:
    pressed = nearly_full(ElasticAssumptions(**{share: 1000}))
    pressed.alloc(0, UNMOVABLE)
    assert pressed.count("pgscan_direct") > 0
    assert pressed.count("pgsteal_direct") == 0
    assert sum(lru_pages(pressed)) == 3 * BLOCK
    if lists:
        assert pressed.count(lists) > 0


@pytest.mark.parametrize("percent", [0, 100])
def test_anonymous_pages_need_swap(percent: int) -> None:
    swap = ElasticAssumptions(anon_referenced_per_mille=0, anon_scan_percent=percent)
    pressed = nearly_full(swap, kind=pr.ANON)
    pressed.alloc(0, UNMOVABLE)
    assert (pressed.count("pgsteal_direct") > 0) == (percent > 0)
    assert pressed.count("oom_kill") == (percent == 0)


def test_kswapd_reclaims_up_to_the_high_mark_then_sleeps() -> None:
    pressed = nearly_full()
    high = int(pressed.state.zone_region(0)[at.ZONE_HIGH])
    pressed.alloc(0, MOVABLE, bits_of(pr.FILE, at.GFP_KSWAPD_RECLAIM))
    assert pressed.node[pr.KSWAPD_WOKEN] == 1
    pressed.let_pass(SECOND)
    assert pressed.node[pr.KSWAPD_PHASE] == pr.ASLEEP
    assert pressed.state.zone_region(0)[at.ZONE_RECLAIM_ACTIVE] == 0
    assert pressed.state.zone_region(0)[at.ZONE_FREE] > high
    assert 0 < pressed.count("pgsteal_kswapd") <= high + pr.CLUSTER
    assert pressed.count("pageoutrun") == 1
    assert broken_invariants(pressed.state) == []


def test_kswapd_takes_the_time_that_its_pages_cost() -> None:
    slow = ElasticAssumptions(
        file_referenced_per_mille=0, file_dirty_per_mille=0, kswapd_free_ns=1_000_000
    )
    pressed = nearly_full(slow)
    pressed.alloc(0, MOVABLE, bits_of(pr.FILE, at.GFP_KSWAPD_RECLAIM))
    pressed.let_pass(slow.kswapd_wake_ns + 40_000_000)
    done = pressed.count("pgsteal_kswapd")
    assert pr.CLUSTER <= done <= 2 * pr.CLUSTER
    pressed.let_pass(SECOND)
    assert pressed.count("pgsteal_kswapd") > done


def test_a_balanced_node_does_not_wake_kswapd() -> None:
    pressed = Pressed(machine=pressed_zone(4, 64))
    pressed.put_free(9, 0, BLOCK)
    pressed.alloc(0, MOVABLE, bits_of(pr.FILE))
    assert pressed.node[pr.KSWAPD_PHASE] == pr.ASLEEP


def test_a_boost_is_worked_off_and_taken_back() -> None:
    pressed = Pressed(machine=pressed_zone(66, 64))
    pressed.put_free(9, 0)
    pressed.put_allocated(8, *range(2 * BLOCK, 66 * BLOCK, 256), kind=pr.FILE)
    region = pressed.state.zone_region(0)
    region[at.ZONE_BOOST], region[at.ZONE_BOOSTED] = 200, 1
    pressed.alloc(0, MOVABLE, bits_of(pr.FILE))
    pressed.let_pass(SECOND)
    assert region[at.ZONE_BOOST] == 0
    assert pressed.count("pgsteal_kswapd") == 256


def test_a_node_without_reclaimable_pages_becomes_hopeless() -> None:
    pressed = nearly_full(kind=pr.KERNEL)
    pressed.alloc(0, MOVABLE, bits_of(pr.FILE, at.GFP_KSWAPD_RECLAIM))
    pressed.let_pass(10 * SECOND)
    assert pressed.node[pr.KSWAPD_FAILURES] == pr.RETRIES_MAX
    assert pressed.node[pr.KSWAPD_PHASE] == pr.ASLEEP
    runs = pressed.count("pageoutrun")
    pressed.alloc(0, MOVABLE, bits_of(pr.FILE, at.GFP_KSWAPD_RECLAIM))
    pressed.let_pass(SECOND)
    assert pressed.count("pageoutrun") == runs


def test_active_pages_age_where_the_inactive_list_is_short() -> None:
    pressed = Pressed(machine=pressed_zone(4, 64), elastic=CALM)
    pressed.put_allocated(0, *range(3 * BLOCK), kind=pr.FILE, active=True)
    pressed.put_allocated(0, *range(3 * BLOCK, 4 * BLOCK - 2))
    pressed.put_free(0, 4 * BLOCK - 1)
    number = pressed.alloc(0, UNMOVABLE, KERNEL)
    assert pressed.places[number] >= 0
    assert pressed.count("pgdeactivate") > 0
    assert pressed.count("pgsteal_direct") > 0
