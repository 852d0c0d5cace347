"""The start image: pages conserved, totals, block counts and per-CPU counts of the snapshot met."""

from __future__ import annotations

import gzip
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import pagealloc_model as pm
from pagealloc_model.allocator import layout as at
from pagealloc_model.allocator.state import StartImage, State, maximal_buddies
from pagealloc_model.base.errors import PageallocError
from pagealloc_model.measured.measured import snapshot_tables
from pagealloc_model.measured.rules import recorded_rules
from pagealloc_model.policy.policy import Assumptions
from pagealloc_model.predicted.prepared import Prepared, prepare
from pagealloc_model.predicted.start.evidence import StartCounts, start_counts
from pagealloc_model.predicted.start.image import start_state
from pagealloc_model.predicted.start.placement import wanted_buddies
from pagealloc_model.recording.proc import pages as flags
from pagealloc_model.recording.recorded_machine import recorded_policy, start_snapshots
from pagealloc_model.recording.recording import Recording
from pagealloc_model.recording.trace.columns import Event
from tests.allocator.invariants import broken_invariants
from tests.small_recordings import (
    AFTER_NS,
    BEFORE_NS,
    BLOCK,
    DMA32,
    END_PFN,
    NORMAL,
    TYPES,
    ZONES,
    TimedEvents,
    buddies_of,
    shipped_recording,
    start_free,
    write_recording,
    write_snapshot,
)

BLOCK_ORDER = 9
SHIPPED = ("kbuild", "xfree", "highatomic_stock", "highatomic_gate3")


def prepared_of(recording: Recording, seed: int = 0) -> Prepared:
    return prepare(recording, recorded_rules(recording).rules, Assumptions(), seed)


def begun(recording: Recording, seed: int = 0) -> State:
    prepared = prepared_of(recording, seed)
    return start_state(
        prepared.machine,
        prepared.demand,
        prepared.image,
        recorded_rules(recording).rules,
        recorded_policy(recording),
        Assumptions(),
    )


def counts_of(recording: Recording, prepared: Prepared) -> StartCounts:
    early, snapshot = start_snapshots(recording)
    return start_counts(prepared.machine, snapshot, recording.trace, early)


def listed_pages(image: StartImage, zone: int) -> int:
    mine = image.listed[image.listed["zone"] == zone]
    return int((1 << mine["order"].astype(np.int64)).sum())


@pytest.fixture(scope="module", params=SHIPPED)
def recording(request: pytest.FixtureRequest) -> Recording:
    return shipped_recording(request.param)


def test_the_state_is_sound(recording: Recording) -> None:
    assert broken_invariants(begun(recording)) == []


def test_no_page_is_in_two_places(recording: Recording) -> None:
    prepared = prepared_of(recording)
    image = prepared.image
    uses = image.free.astype(np.int8) + image.movable
    for record in image.listed:
        first = int(record["pfn"])
        uses[first : first + (1 << int(record["order"]))] += 1
    assert uses.max() == 1
    for pfn, order in zip(image.allocated_pfn, image.allocated_order, strict=True):
        assert not image.free[int(pfn) : int(pfn) + (1 << int(order))].any()


def test_listed_pages_lie_in_blocks_of_a_zone_and_name_a_list(recording: Recording) -> None:
    prepared = prepared_of(recording)
    listed = prepared.image.listed
    types = prepared.image.block_types[listed["pfn"] >> prepared.machine.pageblock_order]
    assert (types >= 0).all()
    assert np.isin(listed["migratetype"], (0, 1, 2)).all()


def test_free_totals_meet_the_start_snapshot(recording: Recording) -> None:
    prepared = prepared_of(recording)
    counts = counts_of(recording, prepared)
    for index, zone in enumerate(prepared.machine.zones):
        if zone.managed:
            free = int(prepared.image.free[zone.start_pfn : zone.end_pfn].sum())
            found = free + listed_pages(prepared.image, index)
            assert found == int(counts.free_pages[index])


def test_block_counts_by_type_are_those_of_pagetypeinfo(recording: Recording) -> None:
    counts = counts_of(recording, prepared_of(recording))
    assert counts.blocks is not None
    assert begun(recording).block_counts().tolist() == counts.blocks.tolist()


def test_replayed_per_cpu_counts_come_near_the_start_snapshot(recording: Recording) -> None:
    """Within a fifth of what is on all lists, or a few batches."""
    _, snapshot = start_snapshots(recording)
    table = pm.replay(recording).pcp
    table = table[table["time_ns"] == snapshot.time_ns].set_index(["zone", "cpu"])["count"]
    assert snapshot.zoneinfo is not None
    real = {
        (zone.name, pageset.cpu): pageset.count
        for zone in snapshot.zoneinfo.zones
        if zone.managed
        for pageset in zone.pagesets
    }
    total = sum(real.values())
    for key, count in real.items():
        assert abs(int(table[key]) - count) <= max(total // 5, 400)


def assert_every_count_is_met(
    recording: Recording, prepared: Prepared, counts: StartCounts
) -> None:
    """Free buddies by zone, order and type; blocks by type; pages on every CPU's lists.

    Between the first event and the snapshot only large Movable buddies change.
    """
    state = begun(recording)
    found = state.free_buddies()
    assert counts.free_buddies is not None and counts.blocks is not None
    for index, zone in enumerate(prepared.machine.zones):
        if not zone.managed:
            continue
        listed = int(state.pcp_words(at.PCP_COUNT, 1)[index].sum())
        wanted, _ = wanted_buddies(prepared.machine, counts, index, listed)
        assert found[index].tolist() == wanted.tolist()
        others = [kind for kind in range(at.MIGRATETYPES) if kind != at.MOVABLE]
        assert (wanted[:, others] == counts.free_buddies[index][:, others]).all()
    assert state.block_counts().tolist() == counts.blocks.tolist()


@pytest.mark.parametrize("name", ["kbuild", "xfree"])
def test_first_touches_are_obeyed(name: str) -> None:
    prepared = prepared_of(shipped_recording(name))
    objects = prepared.demand.objects[prepared.demand.fresh]
    on_a_list = np.zeros(len(prepared.image.free), bool)
    for record in prepared.image.listed:
        first = int(record["pfn"])
        on_a_list[first : first + (1 << int(record["order"]))] = True
    available = prepared.image.free | on_a_list
    for order in np.unique(objects["order"]):
        first = objects["pfn"][objects["order"] == order].astype(np.int64)
        assert available[(first[:, None] + np.arange(1 << int(order))).ravel()].all()


def test_no_huge_page_lies_where_the_first_one_taken_came_from_the_buddy() -> None:
    """A refill finds the list empty (T10.6); flags are shown by the recording."""
    recording = shipped_recording("cma_area_A1")
    prepared = prepared_of(recording)
    first = prepared.demand.first_allocations
    first = first[first["order"] == prepared.machine.pageblock_order]
    pfn = prepared.demand.objects["pfn"][first["object"]]
    was_free = recording.flags_at_start[pfn] & np.uint64(1 << 10) != 0
    zones = prepared.machine.zones_of_pages(pfn)
    sets, row = np.unique(np.stack([zones, first["cpu"]]), axis=1, return_index=True)
    empty = set(map(tuple, sets.T[was_free[row]].tolist()))
    listed = prepared.image.listed
    huge = listed[listed["order"] == prepared.machine.pageblock_order]
    huge = huge[~np.isin(huge["pfn"], pfn)]  # those that no event names
    assert empty
    assert not empty & set(zip(huge["zone"].tolist(), huge["cpu"].tolist(), strict=True))


@pytest.mark.parametrize("name", ["highatomic_stock", "highatomic_gate3"])
def test_huge_pages_that_no_counted_buddy_accounts_for_lay_on_lists(name: str) -> None:
    """The kernel took them from no buddy: their first event is the allocation (T10.6)."""
    recording = shipped_recording(name)
    prepared, trace = prepared_of(recording), recording.trace
    listed = prepared.image.listed
    first = prepared.demand.first_allocations
    named = prepared.demand.objects["pfn"][first["object"][first["order"] == BLOCK_ORDER]]
    huge = listed["pfn"][(listed["order"] == BLOCK_ORDER) & np.isin(listed["pfn"], named)]
    assert len(huge)
    for pfn in huge.tolist():
        own = np.flatnonzero((trace.pfn == pfn) & (trace.order == BLOCK_ORDER))
        assert trace.event[own[0]] == Event.ALLOC


def test_seeds_change_only_what_nothing_settles() -> None:
    recording = shipped_recording("highatomic_gate3")
    one, other = prepared_of(recording, 0).image, prepared_of(recording, 1).image
    assert one.free.sum() == other.free.sum()
    assert np.array_equal(one.allocated_pfn, other.allocated_pfn)
    again = prepared_of(pm.open(recording.path), 1).image
    assert np.array_equal(other.free, again.free)
    assert np.array_equal(other.listed, again.listed)
    assert np.array_equal(other.block_types, again.block_types)


def test_a_small_machine_is_met_exactly(tmp_path: Path) -> None:
    state = begun(pm.open(write_recording(tmp_path / "small")))
    found = state.free_buddies()
    for index, zone in enumerate(ZONES):
        movable = found[index, : len(buddies_of(start_free(), zone)), at.MOVABLE]
        assert movable.tolist() == buddies_of(start_free(), zone)
        assert found[index].sum() == movable.sum()
        assert state.block_counts()[index, :2].tolist() == [1, zone.pages // BLOCK - 1]


def test_pages_on_lists_are_taken_from_those_without_flags(tmp_path: Path) -> None:
    path = write_recording(tmp_path / "listed", snapshots=False)
    write_snapshot(path, 1, start_free(), {"Normal": 30})
    recording = pm.open(path)
    state = begun(recording)
    assert broken_invariants(state) == []
    counts = state.pcp_words(at.PCP_COUNT, 1)[:, :, 0]
    assert counts[1].tolist() == [30, 30]
    assert counts[0].tolist() == [0, 0]


def test_events_before_the_start_snapshot_are_taken_back(tmp_path: Path) -> None:
    events = TimedEvents()
    for index in range(20):
        events.alloc(NORMAL.first_free + index)
    events.free(NORMAL.start_pfn + 5, order=0)
    events.wait(1000)
    events.free(NORMAL.first_free)
    path = write_recording(tmp_path / "moved", events)
    free = start_free()
    free[NORMAL.first_free : NORMAL.first_free + 20] = False
    free[NORMAL.start_pfn + 5] = True
    write_snapshot(path, AFTER_NS, free)
    recording = pm.open(path)
    machine = prepared_of(recording).machine
    counts = start_counts(machine, start_snapshots(recording)[1], recording.trace)
    assert counts.free_pages[1] == NORMAL.pages - BLOCK
    assert counts.free_pages[0] == DMA32.pages - BLOCK


@pytest.mark.parametrize("name", ["kbuild", "highatomic_gate3"])
def test_without_kpageflags_free_pages_meet_the_snapshot_all_the_same(
    tmp_path: Path, name: str
) -> None:
    path = shutil.copytree(shipped_recording(name).path, tmp_path / name)
    (path / "kpageflags.u64.gz").unlink()
    recording = pm.open(path)
    prepared = prepared_of(recording)
    counts = counts_of(recording, prepared)
    for index, zone in enumerate(prepared.machine.zones):
        if zone.managed:
            free = int(prepared.image.free[zone.start_pfn : zone.end_pfn].sum())
            total = free + listed_pages(prepared.image, index)
            assert total == counts.free_pages[index]
    assert_every_count_is_met(recording, prepared, counts)
    replay = pm.replay(recording)
    assert any("no kpageflags" in line for line in replay.start_state)
    assert sum("all met" in line for line in replay.start_state) == sum(
        zone.managed > 0 for zone in prepared.machine.zones
    )
    assert replay.final is not None and broken_invariants(replay.final) == []


def test_zones_with_old_flags_are_placed_by_their_counts() -> None:
    recording = shipped_recording("highatomic_stock")
    prepared = prepared_of(recording)
    counts = counts_of(recording, prepared)
    assert_every_count_is_met(recording, prepared, counts)
    assert sum("too old" in line for line in prepared.image.origin) == 2


def test_without_pagetypeinfo_every_block_is_movable(tmp_path: Path) -> None:
    path = write_recording(tmp_path / "untyped")
    for file in path.glob("snapshots/*/pagetypeinfo"):
        file.unlink()
    state = begun(pm.open(path))
    assert broken_invariants(state) == []
    assert state.block_counts()[:2, TYPES.index("Movable")].tolist() == [8, 16]


def test_maximal_buddies_are_those_that_merging_leaves() -> None:
    free = np.ones(4 << 9, bool)
    free[5] = False
    types = np.array([1, 1, 1, 3], np.int8)
    pfns, orders = maximal_buddies(free, types, 9, 10)
    found = list(zip(pfns.tolist(), orders.tolist(), strict=True))
    assert found == [
        (0, 2),
        (4, 0),
        (6, 1),
        (8, 3),
        (16, 4),
        (32, 5),
        (64, 6),
        (128, 7),
        (256, 8),
        (512, 9),
        (1024, 9),
        (1536, 9),
    ]


def test_what_was_taken_since_flags_were_read_moves_if_its_block_is_movable(tmp_path: Path) -> None:
    """A page that flags show free and that is freed first was in use: movable, or not, by block."""
    taken = NORMAL.first_free + 3
    events = TimedEvents()
    events.free(taken)
    recording = pm.open(write_recording(tmp_path / "recording", events))
    assert recording.kpageflags is not None
    assert int(recording.kpageflags[taken]) & flags.BUDDY
    image = prepared_of(recording).image
    assert int(image.block_types[taken >> 9]) == at.MOVABLE
    assert not image.free[taken]
    assert image.movable[taken]


# What page flags, owners and first touches say of the start, on machines made in code


HUGE_BLOCK = NORMAL.start_pfn + 6 * BLOCK
KERNEL_BLOCK = NORMAL.start_pfn
USER_BLOCK = NORMAL.start_pfn + 9 * BLOCK


def image_of(path: Path) -> StartImage:
    recording = pm.open(path)
    return prepare(recording, recorded_rules(recording).rules, Assumptions(), 0).image


def sound(recording: Recording) -> bool:
    rules = recorded_rules(recording).rules
    made = prepare(recording, rules, Assumptions(), 0)
    state = start_state(
        made.machine, made.demand, made.image, rules, recorded_policy(recording), Assumptions()
    )
    return broken_invariants(state) == []


def events_far_from_the_start() -> TimedEvents:
    events = TimedEvents()
    events.alloc(NORMAL.start_pfn + 15 * BLOCK + 7, gfp="GFP_HIGHUSER_MOVABLE", migratetype=1)
    return events


def write_flags(path: Path, words: np.ndarray) -> None:
    content = words.astype("<u8").tobytes()
    (path / "kpageflags.u64.gz").write_bytes(gzip.compress(content, 1))


def with_unflagged(path: Path, listed: int) -> Path:
    """A recording in which some pages show no flag, with so many pages on each CPU's lists.

    A huge page's block and, beside slab pages, a kernel's block are bare, and so are runs of 8, 2
    and 1 pages among user pages.
    """
    write_recording(path, events_far_from_the_start(), snapshots=False)
    free = start_free()
    words = np.where(free, flags.BUDDY, flags.PGTABLE).astype(np.uint64)
    words[KERNEL_BLOCK : KERNEL_BLOCK + BLOCK] = 0
    words[KERNEL_BLOCK + BLOCK : KERNEL_BLOCK + 2 * BLOCK] = flags.SLAB
    words[HUGE_BLOCK : HUGE_BLOCK + BLOCK] = 0
    words[USER_BLOCK : USER_BLOCK + BLOCK] = flags.LRU
    for first, pages in ((8, 8), (32, 2), (77, 1)):
        words[USER_BLOCK + first : USER_BLOCK + first + pages] = 0
    write_flags(path, words)
    free[KERNEL_BLOCK + BLOCK : KERNEL_BLOCK + 2 * BLOCK] = False
    free[HUGE_BLOCK : HUGE_BLOCK + BLOCK] = False
    free[USER_BLOCK : USER_BLOCK + BLOCK] = False
    write_snapshot(path, BEFORE_NS, free, {"Normal": listed})
    return path


def test_an_unflagged_block_among_user_blocks_is_a_freed_huge_page(tmp_path: Path) -> None:
    path = with_unflagged(tmp_path / "huge", listed=BLOCK + 20)
    listed = image_of(path).listed
    whole = listed[listed["order"] == 9]
    assert whole["pfn"].tolist() == [HUGE_BLOCK]
    assert whole["migratetype"].tolist() == [at.MOVABLE]
    assert sound(pm.open(path))


def test_unflagged_runs_among_user_pages_are_on_lists_of_their_order(tmp_path: Path) -> None:
    listed = image_of(with_unflagged(tmp_path / "runs", listed=40)).listed
    mine = listed[(listed["pfn"] >= USER_BLOCK) & (listed["pfn"] < USER_BLOCK + BLOCK)]
    assert {(int(each["pfn"]) - USER_BLOCK, int(each["order"])) for each in mine} == {
        (8, 3), (32, 1), (77, 0),
    }  # fmt: skip
    assert (mine["migratetype"] == at.MOVABLE).all()


def test_lists_hold_as_much_as_the_snapshot_says(tmp_path: Path) -> None:
    for listed in (3, 40, BLOCK + 20):
        image = image_of(with_unflagged(tmp_path / str(listed), listed))
        normal = image.listed[image.listed["zone"] == 1]
        sizes = 1 << normal["order"].astype(np.int64)
        assert np.bincount(normal["cpu"], sizes).tolist() == [listed, listed]


def test_origin_says_how_many_pages_are_guessed(tmp_path: Path) -> None:
    origin = image_of(with_unflagged(tmp_path / "said", listed=40)).origin
    assert any("0 are known by the CPU that takes them first, 11 by their flags" in line
               and "69 are guessed" in line for line in origin)  # fmt: skip


def owner_text(pfn: int, order: int, kind: str, block: str, comm: str = "make") -> str:
    return (
        f"Page allocated via order {order}, mask 0xcc0(GFP_KERNEL), pid 9, tgid 9 ({comm}), "
        f"ts 100 ns\nPFN {pfn:#x} type {kind} Block {pfn >> 9} type {block} Flags 0x0()\n\n"
    )


def write_owners(path: Path) -> None:
    """The first block of each zone is the kernel's, and one odd block has a few user pages."""
    blocks = "".join(
        owner_text(first + index, 0, "Unmovable", "Unmovable")
        for first in (0, NORMAL.start_pfn)
        for index in range(BLOCK)
    )
    odd = owner_text(HUGE_BLOCK + 4, 2, "Movable", "Reclaimable")
    odd += owner_text(USER_BLOCK + 8, 3, "Unmovable", "Movable")
    (path / "page_owner.txt").write_text(blocks + odd)


def with_owners(path: Path, *, page_flags: bool) -> Path:
    write_recording(path, events_far_from_the_start(), snapshots=False, page_flags=page_flags)
    free = start_free()
    free[HUGE_BLOCK + 4 : HUGE_BLOCK + 8] = False
    free[USER_BLOCK + 8 : USER_BLOCK + 16] = False
    if page_flags:
        write_flags(path, np.where(free, flags.BUDDY, 0))
    write_owners(path)
    directory = write_snapshot(path, BEFORE_NS, free)
    table = directory / "pagetypeinfo"
    table.write_text(table.read_text().replace("Normal 1 15 0 0 0", "Normal 1 14 1 0 0"))
    return path


def test_owners_name_block_types_orders_and_movability(tmp_path: Path) -> None:
    for page_flags in (True, False):
        path = with_owners(tmp_path / str(page_flags), page_flags=page_flags)
        image = image_of(path)
        types = image.block_types
        assert types[HUGE_BLOCK >> 9] == at.RECLAIMABLE
        assert (types == at.RECLAIMABLE).sum() == 1
        assert types[USER_BLOCK >> 9] == at.MOVABLE
        assert types[[0, NORMAL.start_pfn >> 9]].tolist() == [at.UNMOVABLE] * 2
        orders = dict(zip(image.allocated_pfn.tolist(), image.allocated_order, strict=True))
        assert (orders[HUGE_BLOCK + 4], orders[USER_BLOCK + 8]) == (2, 3)
        assert image.movable[HUGE_BLOCK + 4 : HUGE_BLOCK + 8].all()
        assert not image.movable[USER_BLOCK + 8 : USER_BLOCK + 16].any()
        assert not image.free[USER_BLOCK + 8 : USER_BLOCK + 16].any()
        assert sound(pm.open(path))
        assert any("orders and movability of 1,026 allocations" in line for line in image.origin)
        assert any("4 of 24 have their recorded type" in line for line in image.origin)


def test_an_owned_page_is_on_no_list(tmp_path: Path) -> None:
    path = with_owners(tmp_path / "owned", page_flags=True)
    (path / "page_owner.txt").rename(path / "kept")
    guess = image_of(path).listed
    assert not len(guess)
    for directory in (path / "snapshots").iterdir():
        text = (directory / "zoneinfo").read_text()
        (directory / "zoneinfo").write_text(text.replace("count: 0", "count: 12"))
    without = image_of(path).listed
    assert np.isin(without["pfn"], np.arange(NORMAL.start_pfn, NORMAL.start_pfn + BLOCK)).any()
    (path / "kept").rename(path / "page_owner.txt")
    owned = np.zeros(END_PFN, bool)
    owned[:BLOCK] = owned[NORMAL.start_pfn : NORMAL.start_pfn + BLOCK] = True
    owned[HUGE_BLOCK + 4 : HUGE_BLOCK + 8] = owned[USER_BLOCK + 8 : USER_BLOCK + 16] = True
    known = image_of(path).listed
    assert not owned[known["pfn"]].any()
    for listed in (known, without):
        assert (1 << listed["order"].astype(np.int64)).sum() == 4 * 12


def first_touches(rest: int) -> TimedEvents:
    """CPU 0 takes 3 pages that nobody had, then `rest` pages that were in the buddy."""
    events = TimedEvents()
    for index in range(3):
        events.on(cpu=0).alloc(NORMAL.start_pfn + index, migratetype=1)
    for index in range(rest):
        events.on(cpu=0).alloc(NORMAL.first_free + index, migratetype=1)
    events.wait(100)
    events.on(cpu=1).alloc(NORMAL.first_free + 4000, migratetype=0)
    return events


def test_first_touches_name_pages_and_what_a_refill_left(tmp_path: Path) -> None:
    path = write_recording(tmp_path / "rest", first_touches(5), snapshots=False)
    words = np.where(start_free(), flags.BUDDY, flags.PGTABLE)
    words[NORMAL.start_pfn : NORMAL.start_pfn + 3] = 0
    write_flags(path, words)
    write_snapshot(path, BEFORE_NS, start_free(), {"Normal": 23})
    write_snapshot(path, 1_000_000_000 + 50, start_free(), {"Normal": 23})
    listed = image_of(path).listed
    mine = listed[(listed["zone"] == 1) & (listed["cpu"] == 0)]
    assert mine["pfn"][:3].tolist() == [NORMAL.start_pfn + index for index in range(3)]
    assert (mine["migratetype"][:3] == at.MOVABLE).all()
    assert (mine["migratetype"] == at.MOVABLE).sum() > 3


# Small guests that ship: what only they hold, and what of it is predicted


CMA = "CMA"


def shipped(name: str) -> Recording:
    try:
        return pm.open(name)
    except PageallocError as error:
        pytest.skip(str(error))


def free_cma(table: pd.DataFrame) -> pd.Series:
    own = table[table["migratetype"] == CMA]
    return own.groupby("time_ns")["pages"].sum()


def test_free_pages_of_a_cma_area_are_predicted_better_than_that_none_changes() -> None:
    recording = shipped("cma_area_A1")
    measured = free_cma(snapshot_tables(recording.snapshots)["free_pages"])
    predicted = free_cma(pm.replay(recording).free_pages)
    begin, later = measured.iloc[0], measured.iloc[1:]
    nearest = [int(np.abs(predicted.index - time).argmin()) for time in later.index]
    off = np.abs(predicted.iloc[nearest].to_numpy() - later.to_numpy()).mean()
    assert off < 0.75 * np.abs(later - begin).mean()


def test_a_recording_swaps() -> None:
    recording = shipped("zram_swap_A1")
    first, *_, last = (each.vmstat.values for each in recording.snapshots if each.vmstat)
    for counter in ("pswpin", "pswpout"):
        assert last[counter] > first[counter] + 1000, counter
