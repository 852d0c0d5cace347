"""Profiles: whose samples are under zone->lock, and what they do to fitted costs."""

from __future__ import annotations

from pathlib import Path

import pytest

from pagealloc_model.base.errors import RecordingError
from pagealloc_model.measured.costs import fit_lock_costs
from pagealloc_model.recording.lock_profile import LockProfile, read_lock_profile, site_of
from pagealloc_model.recording.record.perf import folded_chains
from pagealloc_model.recording.trace.columns import Event
from tests.small_recordings import shipped_recording

META = {"event": "cpu-clock", "sample_ns": 1000, "seconds": 2.0, "repeats_command": True}


@pytest.mark.parametrize(
    ("chain", "by_clock", "site"),
    [
        ("__rmqueue_smallest rmqueue_bulk __rmqueue_pcplist", False, "refill"),
        ("_raw_spin_unlock_irqrestore __rmqueue_pcplist get_page_from_freelist", True, "refill"),
        ("_raw_spin_unlock_irqrestore __rmqueue_pcplist get_page_from_freelist", False, ""),
        ("__list_del_entry_valid __rmqueue_pcplist get_page_from_freelist", True, ""),
        ("__free_one_page.part.0 free_pcppages_bulk.isra.0 x", False, "drain"),
        ("native_queued_spin_lock_slowpath _raw_spin_lock_irqsave free_pcppages_bulk", False, ""),
        ("_raw_spin_unlock_irqrestore", True, ""),
        ("clear_page_erms get_page_from_freelist", True, ""),
    ],
)
def test_a_sample_is_under_the_lock_by_its_chain(chain: str, by_clock: bool, site: str) -> None:
    """The third: a counter's sample there is of the unlocking alone; the sixth: it waits."""
    assert site_of(chain.split(), by_clock=by_clock) == site


def test_chains_are_read_from_perf_script() -> None:
    lines = [
        "cpu-clock: \n", "\tffff81 inner\n", "\tffff82 outer\n", "\n",
        "cpu-clock: \n", "\n",
        "cpu-clock: \n", "\tffff81 inner\n", "\tffff82 outer\n",
    ]  # fmt: skip
    event, chains = folded_chains(lines)
    assert event == "cpu-clock"
    assert chains == {("inner", "outer"): 2, ("[user]",): 1}


def test_a_profile_is_read_from_its_file(tmp_path: Path) -> None:
    file = tmp_path / "profile.folded"
    file.write_text("a;free_frozen_page_commit;_raw_spin_unlock_irqrestore 7\n[user] 9\n")
    profile = read_lock_profile(file, META)
    assert profile.samples == {"drain": 7}
    assert profile.held_ns("drain") == 7000
    file.write_text("no count\n")
    with pytest.raises(RecordingError, match="line 1"):
        read_lock_profile(file, META)
    with pytest.raises(RecordingError, match="does not describe"):
        read_lock_profile(file, {})


def test_objects_cost_what_the_profile_leaves_for_them() -> None:
    """Refills took 200 ns an object, drains 300, in all: parts that were fitted are taken off."""
    trace = shipped_recording("xfree").trace
    refilled = int((trace.percpu_refill[trace.event == Event.ZONE_LOCKED] == 1).sum())
    drained = trace.count(Event.PCPU_DRAIN)
    before = fit_lock_costs(trace, "xfree")
    samples = {"refill": 200 * refilled // 1000, "drain": 300 * drained // 1000}
    profile = LockProfile(samples=samples, sample_ns=1000, seconds=1.0, repeats_command=True)
    costs = fit_lock_costs(trace, "xfree", profile)
    assert costs.object.origin == costs.insert.origin == "apportioned from the profile of xfree"
    assert 200 - 2 * costs.split.ns < costs.object.ns < 200
    assert 0 < costs.insert.ns < 300 - costs.object.ns
    assert costs.object.low_ns < costs.object.ns < costs.object.high_ns
    traced = [cost.object.ns + cost.event.ns for cost in (before, costs)]
    assert traced[0] == pytest.approx(traced[1])
    few = LockProfile(samples={"drain": 5}, sample_ns=1, seconds=1.0, repeats_command=True)
    assert fit_lock_costs(trace, "xfree", few).insert == before.insert
