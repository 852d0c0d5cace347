"""Drains of owned lists by hand (S12.5): merging, order, fragments; and when ownership ends."""

from __future__ import annotations

import pytest

from tests.oracle import Migratetype, Oracle, OraclePolicy
from tests.oracle.ownership_bench import (
    PAGES,
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
    take,
)
from tests.oracle.pcp_bench import holds
from tests.oracle.scenarios import events_named

ISOLATE = 4


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
    target.check()


def test_a_merged_pair_goes_behind_the_others() -> None:
    """The walk begins at the head: 13, 12, 5, 4."""
    target = using(4, 5, 12, 13)
    target.free(0, 0, 1)
    lists_of(target).merge_all()
    assert on_list(target, 1) == [0, 12, 4]
    assert counts(target).merge_looks == 2 + 3


def test_pages_on_lists_of_two_types_do_not_merge() -> None:
    target = using(0)
    target.zones[0].buddy.move_freepages_block(0, UNMOVABLE)
    target.free(0, 1, 0)
    lists_of(target).merge_all()
    assert (on_list(target, 0), on_list(target, 0, migratetype=UNMOVABLE)) == ([0], [1])
    assert lists_of(target).mergeable == {0, 1}


def test_pages_of_a_block_given_up_do_not_merge() -> None:
    target = using(0, 1)
    target.blocks.set_type(0, Migratetype.HIGHATOMIC)
    lists_of(target).merge_all()
    assert on_list(target, 0) == [1, 0]


def test_plain_pages_do_not_merge() -> None:
    target = using(0, 1, policy=TIGHT, count=4)
    lists_of(target).merge_all()
    assert on_list(target, 0) == [1, 0]
    assert counts(target).merges == 0


def test_an_owners_own_plain_pages_do_not_merge() -> None:
    """4 pages of its block come back as a chunk: page 1 stays plain, page 0 is freed anew."""
    target = using(0, 1, 2, 3, recovers=False, free=(0,))
    target.drain_all()
    assert take(target) == [0]
    target.free(0, 0, 0)
    merges = counts(target).merges
    lists_of(target).merge_all()
    assert on_list(target, 0) == [0, 1]
    assert lists_of(target).mergeable == {0}
    assert counts(target).merges == merges


@pytest.mark.parametrize(
    ("drain_from", "drained"),
    [("largest", [(0, 1), (4, 0), (8, 0)]), ("freed_list", [(4, 0), (8, 0), (10, 0), (12, 0)])],
)
def test_what_is_drained_first(drain_from: str, drained: list[tuple[int, int]]) -> None:
    """4 of 8 pages: the pair and the two coldest, or the freed page's list from its tail."""
    target = using(
        0, 1, 4, 8, 10, 12, 14, 6, policy=TIGHT, fit_test="always", drain_from=drain_from
    )
    assert [event[1:3] for event in events_named(target, "drain")] == drained
    target.check()


def test_the_last_object_may_overshoot() -> None:
    """4 pages are to go; the 8 have merged into one."""
    target = using(*range(8), policy=TIGHT, fit_test="always")
    assert [event[1:3] for event in events_named(target, "drain")] == [(0, 3)]
    assert lists_of(target).pcp.count == 0


def test_chunks_follow_one_merge_pass() -> None:
    """7.2 (S4.7): of 17 pages, 8 go in chunks of 4; page 1 and page 0 have merged before."""
    policy = OraclePolicy(pcp_batch=4, pcp_high_min=32, pcp_high_max=32)
    evens = (*range(0, PAGES, 2), *range(2 * PAGES, 3 * PAGES, 2))
    target = using(*evens, policy=policy, count=2 * PAGES, rules="7.2")
    pcp = lists_of(target).pcp
    pcp.high_min = pcp.high_max = 12
    target.free(0, 1, 0)
    assert holds(target) == [("drain", "commit", 3), ("drain", "commit", 4)]
    assert counts(target).merge_looks == 16 + 1


@pytest.mark.parametrize(("fragments", "queued"), [("tail", [112, 3]), ("as_usual", [3, 112])])
def test_where_fragments_queue(fragments: str, queued: list[int]) -> None:
    target = using(3, fragments=fragments)
    put_back(target, 112, 0)
    target.drain_all()
    assert in_zone(target, 0) == queued


def test_pages_of_other_blocks_queue_as_ever() -> None:
    target = using(3, policy=TIGHT)
    put_back(target, 112, 0)
    target.drain_all()
    assert in_zone(target, 0) == [3, 112]


def test_a_block_is_recorded_once() -> None:
    target = using(3, 35, 5, count=2 * PAGES)
    target.drain_all()
    assert recorded(target) == [0, 2]
    assert counts(target).recorded == 2
    target.check()


def test_a_fragment_is_recorded_by_the_owner_whoever_drains_it() -> None:
    target = using(routes_frees=False)
    target.free(1, 3, 0)
    target.drain_all(by=2)
    assert (recorded(target, cpu=0), recorded(target, cpu=1)) == ([0], [])
    assert counts(target, cpu=2).recorded == 1


def test_ownership_may_end_with_the_first_page_drained() -> None:
    target = using(3, ownership_ends="drained")
    target.drain_all()
    assert (owners(target), recorded(target)) == ({}, [])


def test_recorded_blocks_may_be_limited() -> None:
    target = using(3, 35, count=2 * PAGES, recorded_cap=1)
    target.drain_all()
    assert recorded(target) == [0]
    assert owners(target) == {0: 0}, "block 2 found no place"


def test_ownership_ends_when_the_zone_holds_the_whole_block() -> None:
    target = using(*range(8))
    target.drain_all()
    assert recorded(target) == [0]
    for pfn in range(8, PAGES):
        target.free(0, pfn, 0)
    target.drain_all()
    assert (owners(target), recorded(target)) == ({}, [])
    target.check()


@pytest.mark.parametrize("migratetype", [Migratetype.HIGHATOMIC, ISOLATE])
def test_only_ordinary_blocks_are_owned(migratetype: int) -> None:
    target = using()
    target.set_block_type(0, migratetype)
    assert owners(target) == {}


@pytest.mark.parametrize(("type_change", "left"), [("keep", {0: 0}), ("end", {})])
def test_a_change_between_ordinary_types(type_change: str, left: dict[int, int]) -> None:
    target = using(type_change=type_change)
    target.set_block_type(0, Migratetype.MOVABLE)
    assert owners(target) == {0: 0}, "no change"
    target.set_block_type(0, UNMOVABLE)
    assert owners(target) == left


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


@pytest.mark.parametrize(("full_drain", "left"), [("keep", [0]), ("end", [])])
def test_full_drains_may_end_the_ownership_of_recorded_blocks(
    full_drain: str, left: list[int]
) -> None:
    target = using(3, count=2 * PAGES, full_drain=full_drain)
    target.drain_all()
    assert recorded(target) == left
    assert list(owners(target)) == [*left, 2]


@pytest.mark.parametrize(("offline_owner", "left"), [("end", {}), ("keep", {0: 0})])
def test_a_dead_cpu(offline_owner: str, left: dict[int, int]) -> None:
    """Its lists are emptied. If its blocks stay its own, frees into them are the freer's."""
    target = using(3, offline_owner=offline_owner)
    target.kill_cpu(0, by=1)
    assert holds(target) == [("drain", "drain_all", 1)]
    assert owners(target) == left
    target.free(1, 5, 0)
    assert on_list(target, 0, cpu=1) == [5]
    assert lists_of(target, cpu=1).mergeable == set()
    target.revive_cpu(0)
    target.free(1, 7, 0)
    assert on_list(target, 0, cpu=0) == ([7] if left else [])
    target.check()
