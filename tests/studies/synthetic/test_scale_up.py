"""Recordings as larger machines."""

from __future__ import annotations

import numpy as np
import pytest

import pagealloc_model as pm
from pagealloc_model.allocator import layout as at
from pagealloc_model.base.errors import UsageError
from pagealloc_model.studies.synthetic.scale_up import most_in_use
from tests.small_recordings import shipped_recording


@pytest.fixture(scope="module")
def recording() -> pm.Recording:
    return shipped_recording("kbuild")


@pytest.fixture(scope="module")
def doubled(recording: pm.Recording) -> pm.synthetic.Demand:
    return pm.synthetic.scaled_up(recording, 4, gib=32)


def test_copies_have_cpus_and_objects_of_their_own(doubled: pm.synthetic.Demand) -> None:
    events = doubled.events
    moved = events[np.isin(events["operation"], (at.ALLOC, at.FREE))]
    first, second = moved[moved["cpu"] < 2], moved[moved["cpu"] >= 2]
    assert len(first) == len(second) > 0
    assert not set(first["object"]) & set(second["object"])
    assert (np.diff(events["time_ns"]) >= 0).all()
    assert doubled.machine.nr_cpus == 4


def test_a_machine_of_another_size_serves_all_requests(doubled: pm.synthetic.Demand) -> None:
    """Zones of the larger machine stand for those that the recorded machine had."""
    assert int(doubled.events["zone"].max()) < len(doubled.machine.zone_types)
    assert pm.synthetic.run(doubled, rules="6.18").failed == 0


def test_everything_freed_was_allocated(doubled: pm.synthetic.Demand) -> None:
    events = doubled.events
    given = events[np.isin(events["operation"], (at.ALLOC, at.HIDDEN_ALLOC))]
    freed = events[events["operation"] == at.FREE]
    assert set(freed["object"]) <= set(given["object"])
    assert len(np.unique(given["object"])) == len(given)


def test_one_copy_asks_for_what_was_recorded(recording: pm.Recording) -> None:
    """The same requests and frees, and nothing served late or not at all."""
    same = pm.synthetic.scaled_up(recording, 2)
    recorded = pm.replay(recording).demand.events
    for operation in (at.ALLOC, at.FREE):
        count = (same.events["operation"] == operation).sum()
        assert count == (recorded["operation"] == operation).sum()
    run = pm.synthetic.run(same, rules="6.18")
    assert run.failed == 0


def test_free_memory_is_noted_once_at_an_instant(recording: pm.Recording) -> None:
    samples = pm.synthetic.run(pm.synthetic.scaled_up(recording, 2), rules="6.18").samples
    assert (np.diff(samples.time_ns) > 0).all()
    assert len(samples.free_buddies) == len(samples.time_ns)


def test_a_seed_gives_the_same_shifts(
    recording: pm.Recording, doubled: pm.synthetic.Demand
) -> None:
    again = pm.synthetic.scaled_up(recording, 4, gib=32)
    assert np.array_equal(doubled.events, again.events)
    assert not np.array_equal(
        doubled.events, pm.synthetic.scaled_up(recording, 4, gib=32, seed=1).events
    )


def test_streams_that_were_not_recorded_are_refused(recording: pm.Recording) -> None:
    with pytest.raises(UsageError, match="has CPUs 0 to 1"):
        pm.synthetic.scaled_up(recording, 4, cpus=(5,))


def test_a_machine_too_small_is_refused_with_the_size_needed(recording: pm.Recording) -> None:
    with pytest.raises(UsageError, match=r"give it .* GiB"):
        pm.synthetic.scaled_up(recording, 32, gib=0.5)


def test_most_in_use_counts_pages_not_events() -> None:
    events = np.zeros(3, at.EVENT)
    events["time_ns"] = (3, 1, 2)
    events["operation"] = (at.FREE, at.ALLOC, at.ALLOC)
    events["order"] = (3, 3, 0)
    events = events[np.argsort(events["time_ns"])]
    assert most_in_use([events]) == most_in_use([events[:1], events[1:]]) == 9
