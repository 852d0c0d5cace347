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
from tests.oracle.random_scenarios import random_lockless_scenario
from tests.oracle.scenarios import KERNEL, asked, events_named, one_zone, oracle, zone

ORDER = 4  # pageblock order of the examples
PAGES = 1 << ORDER  # pages in a block
BLOCKS = 8  # blocks in the zone

UNMOVABLE, MOVABLE = Migratetype.UNMOVABLE, Migratetype.MOVABLE

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


def take(target: Oracle, count: int = 1, migratetype: int = MOVABLE) -> list[int | None]:
    """Allocate on CPU 0; the pages got."""
    request = asked(0, 0, migratetype, 0, KERNEL)
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


def using(*freed: int, policy: OraclePolicy = ROOMY, **options: object) -> Oracle:
    """CPU 0 has used a block of its own wholly, then freed some pages."""
    target = owning(policy, **options)
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


TIGHT = OraclePolicy(pcp_batch=4, pcp_high_min=8, pcp_high_max=8)
"""Lists are drained from 8 pages on, by at least 4."""


@pytest.mark.parametrize("remote_free", ["spin", "trylock"])
@pytest.mark.parametrize(
    ("remote_overflow", "left"), [("freer", [0, 1]), ("owner", [8, 1])], ids=["freer", "owner"]
)
def test_who_frees_drains_the_owners_lists_or_leaves_that_to_it(
    remote_free: str, remote_overflow: str, left: list[int]
) -> None:
    """The eighth page makes 8 of a block's 16, which merge; the ninth comes from the owner.

    Freed by the other CPU, the 8 go at once as one; else the owner's page has all merge and go.
    """
    target = using(
        policy=TIGHT,
        fit_test="always",
        remote_free=remote_free,
        remote_overflow=remote_overflow,
    )
    counted = []
    for pfn in range(8):
        target.free(1, pfn, 0)
    counted.append(target.zones[0].pcp[0].count)
    target.free(0, 9, 0)
    counted.append(target.zones[0].pcp[0].count)
    assert counted == left
    assert holds(target) == [("drain", "commit", 1)]
    assert counts(target, cpu=1).remote_frees == 8


@pytest.mark.parametrize(("remote_counts", "expected"), [(True, (1, True)), (False, (0, False))])
def test_remote_frees_change_the_owners_habits_or_not(
    remote_counts: bool, expected: tuple[int, bool]
) -> None:
    """An order-1 free is one of 2 pages; the owner's allocation halves what was counted."""
    target = using(remote_counts=remote_counts)
    target.free(1, 2, 1)
    take(target)
    pcp = target.zones[0].pcp[0]
    assert (pcp.free_count, pcp.prev_free_high_order) == expected


def lockless(target: Oracle, cpu: int = 0) -> list[int]:
    """Pages that wait for a CPU to absorb them, newest first."""
    return [pfn for pfn, _ in lists_of(target, cpu).lockless]


def freed_without_lock(*freed: int, **options: object) -> Oracle:
    """CPU 0 uses a block of its own; CPU 1 has freed some of its pages without a lock."""
    target = using(remote_free="lockless", **options)
    for pfn in freed:
        target.free(1, pfn, 0)
    return target


def test_a_lockless_free_changes_nothing_but_the_lockless_list() -> None:
    """24 of 32 pages come back to lists of at most 8: no drain, no tuning, no lock, no visit."""
    target = using(policy=TIGHT, fit_test="always", remote_free="lockless")
    take(target, PAGES)
    before = target.dump()["pcp_state"]
    freed = [*range(16), *range(32, 40)]
    for pfn in freed:
        target.free(1, pfn, 0)
    target.tick(0)
    target.drain_all(by=1)
    assert target.dump()["pcp_state"] == before
    assert lockless(target) == freed[::-1]
    assert counts(target, cpu=1) == OwnershipCount(remote_frees=24)
    assert holds(target) == [("refill", "", 1)], "that of the second block"


def test_an_allocation_absorbs_the_newest_page_first() -> None:
    """So the page that was freed first is handed out first."""
    target = freed_without_lock(5, 3, 9)
    assert lockless(target) == [9, 3, 5]
    assert take(target) == [5]
    assert (on_list(target, 0), lockless(target)) == ([3, 9], [])
    assert counts(target).lock_acquisitions == PAGES + 1
    assert (counts(target).lock_handovers, counts(target, cpu=1).lock_acquisitions) == (0, 0)


def test_a_free_of_the_owners_absorbs_only_if_it_drains() -> None:
    """The eighth page of the owner's has 4 drained, which are the 8 that have merged."""
    target = freed_without_lock(15, 14, policy=TIGHT, fit_test="always")
    for pfn in range(7):
        target.free(0, pfn, 0)
    assert lockless(target) == [14, 15]
    target.free(0, 7, 0)
    assert (on_list(target, 1), lockless(target)) == ([14], [])
    assert holds(target) == [("drain", "commit", 1)]


def test_what_a_tick_drains_is_fixed_before_it_absorbs() -> None:
    """6 pages, 4 may stay: the 2 oldest go, however many wait."""
    policy = replace(ROOMY, pcp_high_min=4)
    target = freed_without_lock(13, 15, policy=policy, fit_test="high_max")
    for pfn in range(0, 12, 2):
        target.free(0, pfn, 0)
    target.set_pcp_high(0, 0, 4)
    target.tick(0)
    assert on_list(target, 0) == [13, 15, 10, 8, 6, 4]
    assert lockless(target) == []


def test_a_full_drain_takes_what_waits() -> None:
    """One page on the list, its buddy on the lockless list: they go as one."""
    target = freed_without_lock(9)
    target.free(0, 8, 0)
    target.drain_all(by=1)
    assert holds(target) == [("drain", "drain_all", 1)]
    assert (target.zones[0].pcp[0].count, lockless(target)) == (0, [])


def test_a_dead_cpus_lockless_list_is_drained() -> None:
    """Though it counts no page; the block is whole again."""
    target = freed_without_lock(*range(PAGES))
    target.kill_cpu(0, by=1)
    assert holds(target) == [("drain", "drain_all", 1)]
    assert 0 in target.zones[0].buddy.lists[ORDER, MOVABLE]
    assert lockless(target) == []


@pytest.mark.parametrize("zones", [(0,), (0, 1)])
def test_a_full_drain_visits_cpus_that_have_pages_in_any_zone(zones: tuple[int, ...]) -> None:
    """S4.9: a page on the CPU's list of another zone is enough for this zone's lockless list."""
    pages = BLOCKS * PAGES
    sizes = {"spanned": pages, "present": pages, "managed": pages}
    lower = zone("DMA32", 0, 0, **sizes)
    machine = replace(
        small_machine(), zones=(lower, replace(lower, name="Movable", start_pfn=pages))
    )
    policy = replace(ROOMY, ownership=OwnershipOptions(remote_free="lockless"))
    target = oracle(machine, "6.12", policy)
    target.put_free(0, ORDER, MOVABLE)
    target.put_allocated(pages, 0, movable=True)
    take(target, PAGES)
    target.free(1, 3, 0)
    if 1 in zones:
        target.free(0, pages, 0)
    target.drain_all(by=1)
    assert lockless(target) == ([] if 1 in zones else [3])


@pytest.mark.parametrize("is_owned", [True, False])
def test_absorbed_pages_are_plain_if_their_block_has_lost_its_owner(is_owned: bool) -> None:
    target = freed_without_lock(3, 5)
    if not is_owned:
        target.blocks.end(0)
    assert take(target) == [3]
    assert (5 in lists_of(target).mergeable) == is_owned


@pytest.mark.parametrize(
    ("now", "listed"),
    [(UNMOVABLE, UNMOVABLE), (MOVABLE, MOVABLE), (Migratetype.HIGHATOMIC, MOVABLE)],
)
def test_absorbed_pages_are_listed_by_their_blocks_type_now(now: int, listed: int) -> None:
    """A type without a list: MOVABLE, as for a free (S4.6)."""
    target = freed_without_lock(3, 5)
    target.set_block_type(0, now)
    assert take(target, migratetype=listed) == [3]
    assert list(lists_of(target).pcp.list_of(0, listed)) == [5]


@pytest.mark.parametrize(("merges_at", "merges"), [("free", 1), ("drain", 0)])
def test_absorbed_pages_merge_where_frees_do(merges_at: str, merges: int) -> None:
    """2 and 3 become a page of order 1, which the allocation splits."""
    target = freed_without_lock(2, 3, merges_at=merges_at)
    assert take(target) == [2]
    assert on_list(target, 0) == [3]
    assert (counts(target).merges, counts(target).splits - (PAGES - 1)) == (merges, merges)


@pytest.mark.parametrize(("remote_free", "taken"), [("spin", 3), ("trylock", 3), ("lockless", 1)])
def test_a_lockless_free_leaves_a_folio_batch_its_lock(remote_free: str, taken: int) -> None:
    """S4.11: two pages to the CPU's own lists, between them one to another's."""
    target = using(remote_free=remote_free)
    for pfn in (PAGES, 3, PAGES + 1):
        target.free(1, pfn, 0, batched=True)
    assert counts(target, cpu=1).lock_acquisitions == taken


def pages_held(target: Oracle) -> list[int]:
    """Every page as often as it is somewhere: in use, in the buddy, on a list, or lockless."""
    state = target.dump()
    held = [(pfn, 0) for pfn in target.allocated.movable]
    held += [(pfn, order) for (_, order, _), pfns in state["free"].items() for pfn in pfns]
    held += [page for pages in state["lockless"].values() for page in pages]
    for (zone_index, cpu, index), pfns in state["pcp"].items():
        order = target.zones[zone_index].pcp[cpu].layout.order(index)
        held += [(pfn, order) for pfn in pfns]
    return sorted(page for pfn, order in held for page in range(pfn, pfn + (1 << order)))


def test_every_page_is_somewhere_once() -> None:
    """Over random steps, in which pages come to wait on lockless lists, and leave them."""
    seen: set[bool] = set()
    for number in range(4):
        scenario = random_lockless_scenario(number)
        target = scenario.started()
        expected = pages_held(target)
        assert len(set(expected)) == len(expected)
        for step, _ in enumerate(scenario.run(target)):
            if step % 20 == 0:
                assert pages_held(target) == expected
                seen.add(any(target.dump()["lockless"].values()))
    assert seen == {False, True}
