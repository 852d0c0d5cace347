"""The start image: pages conserved, totals, block counts and per-CPU counts of the snapshot met."""

import shutil
from pathlib import Path

import numpy as np
import pytest

import pagealloc_model as pm
from pagealloc_model.allocator import layout as at
from pagealloc_model.allocator.invariants import broken_invariants
from pagealloc_model.allocator.state import StartImage, State, maximal_buddies
from pagealloc_model.measured.rules import recorded_rules
from pagealloc_model.policy.policy import Assumptions
from pagealloc_model.predicted.prepared import Prepared, prepare
from pagealloc_model.predicted.start.evidence import StartCounts, start_counts
from pagealloc_model.predicted.start.image import start_state
from pagealloc_model.predicted.start.placement import wanted_buddies
from pagealloc_model.recording.proc import pages as flags
from pagealloc_model.recording.recorded_machine import recorded_policy, start_snapshots
from pagealloc_model.recording.recording import Recording
from tests.small_recordings import (
    AFTER_NS,
    BLOCK,
    DMA32,
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


def test_what_was_taken_since_flags_were_read_moves_if_its_block_is_movable(
    tmp_path: Path,
) -> None:
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
