"""A recording of a machine with two nodes, from state files to errors."""

from __future__ import annotations

from pathlib import Path

import pytest

import pagealloc_model as pm
from pagealloc_model.base.errors import PageallocError
from pagealloc_model.policy.policy import Assumptions, Policy
from pagealloc_model.recording.machine import Machine
from pagealloc_model.recording.recorded_machine import (
    missing_topology,
    recorded_machine,
    with_topology,
)
from pagealloc_model.recording.recording import Recording, open_recording
from tests.allocator.invariants import broken_invariants
from tests.small_recordings import (
    EVENTS_BEGIN_NS,
    NORMAL,
    NORMAL_1,
    TWO_NODES,
    TimedEvents,
    start_free,
    write_recording,
    write_snapshot,
)

PAGES = 300
BATCH = 15  # pcp->batch in the state files


def events_of_two_nodes() -> TimedEvents:
    """CPU 0 takes pages of node 0, CPU 1 pages of node 1 and frees half of those of node 0."""
    events = TimedEvents()
    for index in range(PAGES):
        gfp, movable = ("GFP_HIGHUSER_MOVABLE", 1) if index % 3 else ("GFP_KERNEL", 0)
        events.on(cpu=0).alloc(NORMAL.first_free + index, gfp=gfp, migratetype=movable)
        events.on(cpu=1).alloc(NORMAL_1.first_free + index, gfp=gfp, migratetype=movable)
        if index % 2:
            events.on(cpu=1).free(NORMAL.first_free + index)
    events.wait(6_000_000)
    events.alloc(NORMAL_1.first_free + PAGES)
    return events


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Recording:
    directory = tmp_path_factory.mktemp("nodes") / "two"
    write_recording(
        directory,
        events_of_two_nodes(),
        zones=TWO_NODES,
        cpu_nodes=[0, 1],
        node_distances=[[10, 21], [21, 10]],
    )
    free = start_free(TWO_NODES)
    free[NORMAL.first_free : NORMAL.first_free + PAGES] = False
    free[NORMAL_1.first_free : NORMAL_1.first_free + PAGES] = False
    for seconds, listed in ((1, 60), (5, 30)):
        time_ns = EVENTS_BEGIN_NS + seconds * 1_000_000_000
        write_snapshot(directory, time_ns, free, {"Normal": listed}, zones=TWO_NODES)
    return open_recording(directory)


def test_zones_of_all_nodes_make_the_machine(recording: Recording) -> None:
    machine = recorded_machine(recording)
    assert machine.nodes == (0, 1)
    assert machine.zone_types == ("DMA32", "Normal", "Movable")
    assert machine.cpu_node_indices == (0, 1)
    assert machine.distance(0, 1) == 21
    assert machine.zone_index(1, "Normal") == 4
    assert machine.zones[4].start_pfn == NORMAL_1.start_pfn
    assert missing_topology(machine) == ()


def test_requests_are_served_by_the_node_of_their_cpu(recording: Recording) -> None:
    replay = pm.replay(recording)
    assert replay.final is not None
    assert broken_invariants(replay.final) == []
    refills = replay.transactions_full.query("site == 'refill'")
    assert set(zip(refills["node"], refills["cpu"], strict=True)) == {(0, 0), (1, 1)}
    assert set(refills["zone"]) == {"Normal"}
    assert replay.divergence["forced"] == replay.divergence["failed"] == 0


def test_lists_of_the_other_node_expire(recording: Recording) -> None:
    """A batch after three quiet ticks, each drain starting the count again."""
    replay = pm.replay(recording)
    drains = replay.transactions_full.query("cause == 'decay' and node == 0 and cpu == 1")
    assert len(drains) == 2
    assert set(drains["zone"]) == {"Normal"}
    assert set(drains["pages"]) == {BATCH}
    assert drains["time_ns"].diff().iloc[-1] == 3 * Assumptions().decay_period_ns


def test_scopes_name_the_node(recording: Recording) -> None:
    validation = pm.validate(recording)
    scopes = set(validation.errors["scope"])
    assert {"node=0,zone=Normal", "node=1,zone=Normal"} <= scopes
    assert "node=0,zone=Normal,cpu=1" in scopes
    assert not any(scope.startswith("zone=") for scope in scopes)
    assert set(validation.snapshots["scope"]) >= {"node=0,zone=Normal", "node=1,zone=Normal"}
    assert not any("cpu_nodes" in note for note in validation.notes)
    compared = pm.compare(validation.replay, pm.replay(recording, Policy(pcp_batch=7)))
    assert "node=1,zone=Normal" in set(compared.rows["scope"])


def test_a_recording_without_topology_says_so(tmp_path: Path) -> None:
    recording = open_recording(
        write_recording(tmp_path / "two", events_of_two_nodes(), zones=TWO_NODES)
    )
    notes = pm.validate(recording).notes
    assert any("cpu_nodes" in note and "on node 0" in note for note in notes)
    assert any("node_distances" in note for note in notes)
    nodes = pm.replay(recording).transactions_full.query("site == 'refill'")["node"]
    assert set(nodes) == {0}


@pytest.mark.parametrize(
    "meta",
    [
        {"cpu_nodes": "01"},
        {"cpu_nodes": ["0", "1"]},
        {"cpu_nodes": [0, 7]},
        {"cpu_nodes": [0]},
        {"node_distances": 10},
        {"node_distances": [[10, 20]]},
    ],
)
def test_a_strange_topology_is_refused(recording: Recording, meta: dict[str, object]) -> None:
    with pytest.raises(PageallocError, match=r"cpu_nodes|distances"):
        with_topology(recorded_machine(recording), meta, Path("meta.json"))


def test_one_node_needs_no_topology(recording: Recording) -> None:
    machine = recorded_machine(recording)
    alone = Machine(zones=machine.zones[:3], nr_cpus=2)
    meta = {"cpu_nodes": [0, 0, 0], "node_distances": [[10]]}
    assert with_topology(alone, meta, Path("meta.json")) is alone
    assert missing_topology(alone) == ()
