"""Frees into owned blocks by hand (S12.1, S12.6): whose lists they reach, and what follows."""

from __future__ import annotations

import pytest

from tests.oracle.machine import is_drawn
from tests.oracle.ownership_bench import (
    PAGES,
    TIGHT,
    counts,
    in_zone,
    lists_of,
    on_list,
    owning,
    recorded,
    take,
)
from tests.oracle.pcp_bench import holds


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
    target.check()


def test_a_page_of_an_unowned_block_stays_with_the_freer() -> None:
    target = owning(TIGHT)
    take(target, PAGES)
    target.free(1, 3, 0)
    assert on_list(target, 0, cpu=1) == [3]
    assert lists_of(target, cpu=1).mergeable == set()


def test_frees_need_not_be_routed() -> None:
    """Then pages merge on their owner's lists only where the owner frees them."""
    target = owning(routes_frees=False)
    take(target, PAGES)
    target.free(1, 3, 0)
    target.free(0, 5, 0)
    assert on_list(target, 0, cpu=1) == [3]
    assert lists_of(target, cpu=1).mergeable == set()
    assert lists_of(target).mergeable == {5}


@pytest.mark.parametrize(
    ("plain_frees", "local", "owners"), [("owner", [], [0]), ("local", [0], [])]
)
def test_plain_pages_of_an_owned_block(
    plain_frees: str, local: list[int], owners: list[int]
) -> None:
    """CPU 0's block has 4 free pages in the zone, which CPU 1 gets as a chunk."""
    target = owning(free=(0,), plain_frees=plain_frees)
    take(target, PAGES)
    for pfn in range(4):
        target.free(0, pfn, 0)
    target.drain_all()
    assert take(target, cpu=1) == [0]
    target.free(1, 0, 0)
    assert [pfn for pfn in on_list(target, 0, cpu=1) if pfn == 0] == local
    assert on_list(target, 0, cpu=0) == owners
    target.free(1, 8, 0)
    assert on_list(target, 0, cpu=0) == [8, *owners], "handed out as mergeable"
    target.check()


@pytest.mark.parametrize(
    ("remote_busy", "zone", "local", "owners"),
    [("zone", [3], [], []), ("local", [], [3], []), ("spin", [], [], [3])],
)
def test_the_owners_lists_may_be_locked(
    remote_busy: str, zone: list[int], local: list[int], owners: list[int]
) -> None:
    target = owning(remote_busy=remote_busy, remote_busy_per_1000=1000)
    take(target, PAGES)
    target.events.clear()
    target.free(1, 3, 0)
    assert in_zone(target, 0) == zone
    assert on_list(target, 0, cpu=1) == local
    assert on_list(target, 0, cpu=0) == owners
    assert holds(target) == ([("direct_free", "", 1)] if zone else [])
    assert (counts(target, cpu=1).remote_frees, counts(target, cpu=1).busy_frees) == (1, 1)
    assert lists_of(target, cpu=1).mergeable == set()
    assert recorded(target) == []
    target.check()


def test_draws() -> None:
    """Numbers 0, 1 and 2 give words 0, 2654435761 and 1013904226, of 4294967296: 0, 618, 236."""
    assert [is_drawn(number, 237) for number in range(3)] == [True, False, True]
    assert [is_drawn(number, 236) for number in range(3)] == [True, False, False]
    assert not is_drawn(0, 0)
    assert 290 <= sum(is_drawn(number, 300) for number in range(1000)) <= 310


@pytest.mark.parametrize(("remote_counts", "found"), [(True, (0, 2, True)), (False, (1, 0, False))])
def test_remote_frees_may_not_count(remote_counts: bool, found: tuple[int, int, bool]) -> None:
    target = owning(remote_counts=remote_counts)
    take(target, PAGES)
    target.free(1, 4, 1)
    pcp = lists_of(target).pcp
    assert (pcp.alloc_factor, pcp.free_count, pcp.prev_free_high_order) == found
    assert pcp.count == 2


@pytest.mark.parametrize(("remote_counts", "left"), [(True, 0), (False, 6)])
def test_remote_frees_that_do_not_count_never_flush(remote_counts: bool, left: int) -> None:
    """S4.6: a run of high-order frees from a batch of 4 on, if the list holds as much."""
    target = owning(remote_counts=remote_counts)
    take(target, PAGES)
    target.free(0, 0, 1)
    target.free(0, 4, 1)
    target.free(1, 8, 1)
    assert lists_of(target).pcp.count == left


@pytest.mark.parametrize(("remote_overflow", "drained"), [("freer", 4), ("owner", 0)])
def test_who_drains_what_remote_frees_push_over_the_limit(
    remote_overflow: str, drained: int
) -> None:
    """High is 8; the eighth page overflows, and 4 are drained: now, or with the owner's next."""
    target = owning(TIGHT, fit_test="always", remote_overflow=remote_overflow)
    take(target, PAGES)
    target.events.clear()
    for pfn in range(0, PAGES, 2):
        target.free(1, pfn, 0)
    assert lists_of(target).pcp.count == 8 - drained
    assert holds(target) == [("drain", "commit", 4)] * (drained > 0)
    if not drained:
        target.free(0, 1, 0)
        assert holds(target)[0][:2] == ("drain", "commit")
    target.check()


def test_pages_may_merge_when_they_are_freed() -> None:
    """The pair, and the pair of pairs, come in front; the page and both are looked at."""
    target = owning(merges_at="free")
    take(target, PAGES)
    target.free(0, 6, 1)
    target.free(0, 0, 0)
    target.free(1, 1, 0)
    assert (on_list(target, 0), on_list(target, 1)) == ([], [0, 6])
    assert (counts(target, cpu=1).merge_looks, counts(target, cpu=1).merges) == (2, 1)
    target.free(0, 2, 1)
    assert (on_list(target, 1), on_list(target, 2)) == ([6], [0])
    looks = counts(target).merge_looks
    target.drain_all()
    assert counts(target).merge_looks == looks, "not looked at again"
    target.check()


def test_pages_merge_no_sooner_than_needed() -> None:
    target = owning()
    take(target, PAGES)
    target.free(0, 0, 0)
    target.free(0, 1, 0)
    assert on_list(target, 0) == [1, 0]
    assert counts(target).merge_looks == 0
