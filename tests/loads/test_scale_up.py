"""Recordings as larger machines: made part by part as in memory, in order, again and again."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import pagealloc_model as pm
from pagealloc_model.allocator import layout as at
from pagealloc_model.allocator import pressure_layout as pr
from pagealloc_model.base.errors import PolicyError, UsageError
from pagealloc_model.loads import scale_up
from tests.allocator.invariants import broken_invariants
from tests.small_recordings import shipped_recording


@pytest.fixture(scope="module")
def recording() -> pm.Recording:
    return shipped_recording("kbuild")


@pytest.fixture(scope="module")
def thrice(recording: pm.Recording) -> pm.synthetic.Demand:
    return pm.synthetic.scaled_up(recording, 4, gib=32, rounds=3)


@pytest.mark.parametrize("part_events", [20_000, 1 << 20])
def test_a_stream_replays_as_its_events_in_memory(
    recording: pm.Recording, monkeypatch: pytest.MonkeyPatch, part_events: int
) -> None:
    whole = pm.synthetic.run(pm.synthetic.scaled_up(recording, 4), rules="6.18")
    monkeypatch.setattr(scale_up, "PART_EVENTS", part_events)
    stream = pm.synthetic.scaled_up(recording, 4)
    run = pm.synthetic.run(stream, rules="6.18", keep_holds=False)
    assert run.events == stream.count == len(whole.demand.events)
    longest = max(map(len, stream.parts()))
    assert longest < max(2 * part_events, len(recording.trace))
    for name in ("pages", "blocks", "st"):
        assert np.array_equal(getattr(run.final, name), getattr(whole.final, name)), name
    assert np.array_equal(run.samples.time_ns, whole.samples.time_ns)
    assert np.array_equal(run.samples.free_buddies, whole.samples.free_buddies)
    sizes = ["node", "zone", "cpu", "site", "cause", "objects"]
    counted = whole.transactions_full.groupby(sizes).size().rename("transactions").reset_index()
    pd.testing.assert_frame_equal(run.transactions, counted)


@pytest.mark.parametrize("policy", [None, pm.Policy(pageblock_ownership="pcp_buddy")])
def test_set_up_is_not_counted(recording: pm.Recording, policy: pm.Policy | None) -> None:
    """Neither in the holds nor in the counters."""
    demand = pm.synthetic.scaled_up(recording, 4, gib=32)
    ((begin, end),) = demand.set_up
    assert begin < end
    run = pm.synthetic.run(demand, policy, rules="6.18")
    holds = run.log[run.log["kind"] < at.SITES]
    assert holds["time_ns"].min() >= end
    assert run.final.sites()[..., at.SITE_ACQUISITIONS].sum() == len(holds)


@pytest.fixture(scope="module")
def pressed() -> pm.Recording:
    return shipped_recording("mixed_6.1")


def test_an_elastic_stream_replays_as_its_events_in_memory(
    pressed: pm.Recording, monkeypatch: pytest.MonkeyPatch
) -> None:
    nr_cpus = 2 * pressed.trace.nr_cpus
    assumptions = pm.Assumptions(reclaim="elastic")
    scenario = pm.synthetic.scaled_up(pressed, nr_cpus, gib=3, reclaim="elastic")
    whole = pm.synthetic.run(scenario, rules="6.1", assumptions=assumptions)
    monkeypatch.setattr(scale_up, "PART_EVENTS", 5_000)
    stream = pm.synthetic.scaled_up(pressed, nr_cpus, gib=3, reclaim="elastic")
    assert len(list(stream.parts())) > 20
    run = pm.synthetic.run(stream, rules="6.1", assumptions=assumptions)
    for name in ("pages", "blocks", "st", "folios"):
        assert np.array_equal(getattr(run.final, name), getattr(whole.final, name)), name
    assert run.divergence["dropped_frees"] > 0
    assert run.final.pressure_words(0, pr.SCALARS)[pr.PGSTEAL_KSWAPD] > 0


def test_an_elastic_stream_ends_each_round_as_it_began(pressed: pm.Recording) -> None:
    """The model frees what recorded reclaim did, or the end of the round does."""
    stream = pm.synthetic.scaled_up(
        pressed, 2 * pressed.trace.nr_cpus, gib=3, rounds=3, reclaim="elastic"
    )
    assumptions = pm.Assumptions(reclaim="elastic")
    run = pm.synthetic.run(stream, rules="6.1", assumptions=assumptions)
    assert run.events == stream.count
    assert broken_invariants(run.final) == []
    assert run.failed == run.orphan_frees == 0
    assert run.divergence["freed_by_model"] > 0
    events = np.concatenate(list(stream.parts()))
    by_reclaim = events["bits"] & np.uint32(pr.FREED_BY_RECLAIM) == pr.FREED_BY_RECLAIM
    alive = alive_after(events[(events["operation"] != at.FREE) | ~by_reclaim])
    assert alive.min() == 0


def test_parts_do_not_change_the_events(
    recording: pm.Recording, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = pm.synthetic.scaled_up(recording, 6)
    monkeypatch.setattr(scale_up, "PART_EVENTS", 10_007)
    assert np.array_equal(whole.events, pm.synthetic.scaled_up(recording, 6).events)


def test_a_round_ends_as_it_began(thrice: pm.synthetic.Demand) -> None:
    """Nothing is freed that does not live, nothing allocated that does; rounds do the same."""
    events = np.concatenate(list(thrice.parts()))
    assert len(events) == thrice.count
    assert (np.diff(events["time_ns"]) >= 0).all()
    assert int(events["object"].max()) < thrice.objects
    assert alive_after(events).min() == 0


def alive_after(events: np.ndarray) -> np.ndarray:
    """Pages of each event's object that live after it, by object; none lives twice."""
    events = events[events["object"] >= 0]
    pages = np.int64(1) << events["order"].astype(np.int64)
    signed = np.where(events["operation"] == at.FREE, -pages, pages)
    by_object = np.argsort(events["object"], kind="stable")
    levels = np.cumsum(signed[by_object])
    begins = np.flatnonzero(np.diff(events["object"][by_object], prepend=-1))
    before = np.repeat((levels - signed[by_object])[begins], np.diff([*begins, len(levels)]))
    alive = levels - before
    is_allocation = events["operation"][by_object] != at.FREE
    assert (alive[is_allocation] == pages[by_object][is_allocation]).all()
    return alive


def test_rounds_kept_and_made_anew_are_the_same(
    recording: pm.Recording, thrice: pm.synthetic.Demand, monkeypatch: pytest.MonkeyPatch
) -> None:
    events = np.concatenate(list(thrice.parts()))
    monkeypatch.setattr(scale_up, "KEPT_EVENTS", 0)
    assert np.array_equal(events, np.concatenate(list(thrice.parts())))


def test_no_request_of_a_later_round_fails(thrice: pm.synthetic.Demand) -> None:
    run = pm.synthetic.run(thrice, rules="6.18")
    assert run.failed == run.orphan_frees == run.unlogged == 0
    assert broken_invariants(run.final) == []
    with pytest.raises(pm.Cancelled):
        pm.synthetic.run(thrice, rules="6.18", cancel=lambda: True)
    orders, elastic = pm.Policy(huge_anon_orders=16), pm.Assumptions(reclaim="elastic")
    with pytest.raises(PolicyError, match="only replays of recordings"):
        pm.synthetic.run(thrice, orders, rules="6.18", assumptions=elastic)


@pytest.fixture(scope="module")
def doubled(recording: pm.Recording) -> pm.synthetic.Demand:
    return pm.synthetic.scaled_up(recording, 4, gib=32)


def test_copies_have_cpus_and_objects_of_their_own(
    recording: pm.Recording, doubled: pm.synthetic.Demand
) -> None:
    events = doubled.events
    moved = events[np.isin(events["operation"], (at.ALLOC, at.FREE))]
    first, second = moved[moved["cpu"] < 2], moved[moved["cpu"] >= 2]
    assert len(first) == len(second) > 0
    assert not set(first["object"]) & set(second["object"])
    assert (np.diff(events["time_ns"]) >= 0).all()
    assert doubled.machine.nr_cpus == 4
    assert int(events["zone"].max()) < len(doubled.machine.zone_types)
    assert pm.synthetic.run(doubled, rules="6.18").failed == 0
    again, other = (pm.synthetic.scaled_up(recording, 4, gib=32, seed=seed) for seed in (0, 1))
    assert np.array_equal(events, again.events) and not np.array_equal(events, other.events)


def test_one_copy_asks_for_what_was_recorded(recording: pm.Recording) -> None:
    """The same requests and frees, and nothing served late or not at all."""
    same = pm.synthetic.scaled_up(recording, 2)
    recorded = pm.replay(recording).demand.events
    for operation in (at.ALLOC, at.FREE):
        count = (same.events["operation"] == operation).sum()
        assert count == (recorded["operation"] == operation).sum()
    run = pm.synthetic.run(same, rules="6.18")
    assert run.failed == 0


def test_most_in_use_counts_pages_not_events() -> None:
    events = np.zeros(3, at.EVENT)
    events["time_ns"] = (3, 1, 2)
    events["operation"] = (at.FREE, at.ALLOC, at.ALLOC)
    events["order"] = (3, 3, 0)
    events = events[np.argsort(events["time_ns"])]
    assert scale_up.most_in_use([events]) == scale_up.most_in_use([events[:1], events[1:]]) == 9


@pytest.mark.parametrize(
    ("nr_cpus", "options", "said"),
    [
        (4, {"cpus": (5,)}, "has CPUs 0 to 1"),
        (32, {"gib": 0.5}, r"give it .* GiB"),
        (4, {"rounds": 0}, "0 rounds"),
    ],
)
def test_machines_that_cannot_be_made_are_refused(
    recording: pm.Recording, nr_cpus: int, options: dict[str, object], said: str
) -> None:
    with pytest.raises(UsageError, match=said):
        pm.synthetic.scaled_up(recording, nr_cpus, **options)
