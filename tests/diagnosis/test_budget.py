"""The error budget: what remains of errors when the recording's own truth is imposed."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import pagealloc_model as pm
from pagealloc_model.allocator import layout as at
from pagealloc_model.base.errors import UsageError
from pagealloc_model.cli import main
from pagealloc_model.diagnosis.budget import (
    ALL,
    FREE,
    METRICS,
    NO_COMPACTION,
    RETRY_NS,
    TRUTHS,
    Budget,
    imposed,
    with_true_start,
    without_compaction,
)
from pagealloc_model.measured.stream import allocator_stream
from pagealloc_model.measured.transactions import zone_drains
from pagealloc_model.numbers.loss_windows import loss_windows
from pagealloc_model.policy.assumptions import Assumptions
from pagealloc_model.predicted.demand.reclaim import direct_reclaims
from pagealloc_model.predicted.prepared import Prepared, prepare
from pagealloc_model.predicted.replay import Replay, replay, replay_imposed
from pagealloc_model.recording.recording import Recording
from pagealloc_model.recording.zone_map import ZoneMap
from tests.numbers.test_loss_windows import with_losses
from tests.small_recordings import LITERAL, shipped_recording

BY_NAME = {truth.name: truth for truth in TRUTHS}
PRESSED = (pytest.param("highatomic_gate3", marks=pytest.mark.long), "highatomic_stock")


@pytest.fixture(scope="module", params=PRESSED)
def pressed(request: pytest.FixtureRequest) -> tuple[Recording, pm.Validation, Budget]:
    bundle = shipped_recording(request.param)
    validation = pm.validate(bundle, assumptions=LITERAL)
    return bundle, validation, validation.budget()


def ready(bundle: Recording, free: Replay) -> Prepared:
    return prepare(bundle, free.rules, free.assumptions, free.seed)


def test_runs_that_saw_the_answer_are_marked(
    pressed: tuple[Recording, pm.Validation, Budget],
) -> None:
    _, _, budget = pressed
    marked = {run.run for run in budget.runs if run.imposed}
    assert {*BY_NAME, ALL} <= marked
    assert not marked & {FREE, NO_COMPACTION}
    by_row = budget.errors.groupby("run")["imposed"].agg(["min", "max"])
    assert {name for name, row in by_row.iterrows() if row["max"]} == marked
    assert (by_row["min"] == by_row["max"]).all()
    described = json.loads(json.dumps(budget.to_dict()))
    assert {run["run"] for run in described["runs"] if run["imposed"]} == marked
    assert all(isinstance(row["imposed"], bool) for row in described["errors"])


def test_with_its_zone_imposed_each_request_is_served_there(
    pressed: tuple[Recording, pm.Validation, Budget],
) -> None:
    _, validation, budget = pressed
    errors = budget.errors[budget.errors["metric"] == "placement_zone"].set_index("run")["error"]
    assert errors[FREE] < -0.001
    assert abs(errors["zone"]) < 0.001
    assert abs(errors[ALL]) < 0.001
    assert not validation.replay.imposed


def test_with_drains_imposed_whole_lists_are_drained_as_recorded() -> None:
    bundle = shipped_recording("highatomic_gate3")
    free = replay(bundle, assumptions=LITERAL)
    again = replay_imposed(
        bundle,
        imposed(bundle, ready(bundle, free), (BY_NAME["drains"],)),
        rules=free.rules,
        assumptions=free.assumptions,
    )
    zoneinfo = next(snapshot.zoneinfo for snapshot in bundle.snapshots if snapshot.zoneinfo)
    stream = allocator_stream(bundle.trace, with_probes=True)
    recorded, _ = zone_drains(stream, ZoneMap.of(zoneinfo))
    events = again.demand.events
    assert np.count_nonzero(events["operation"] == at.DRAIN_ZONE) == len(recorded.time_ns) > 0
    drained = again.transactions_full.query("cause == 'drain_all'")
    assert set(drained["time_ns"]) <= set(recorded.time_ns.tolist())
    assert again.imposed == ("drains",) and again.provenance["imposed"] == ["drains"]


def test_with_reclaims_timed_those_served_late_were_in_vain() -> None:
    """Of the last ones for a request; what the demand tells of the others stays."""
    bundle = shipped_recording("highatomic_stock")
    trace, prepared = bundle.trace, ready(bundle, replay(bundle, assumptions=LITERAL))
    reclaims = direct_reclaims(trace)
    assert reclaims is not None
    events = BY_NAME["vain"].put(bundle, prepared).demand.events
    times = events["time_ns"][events["operation"] == at.RECLAIM_IN_VAIN]
    is_last = np.append(reclaims.row[1:] != reclaims.row[:-1], True)
    late = trace.time_ns[reclaims.row] - reclaims.end_ns > RETRY_NS
    wanted = reclaims.end_ns[np.where(is_last, late, reclaims.in_vain)]
    assert np.array_equal(np.sort(times), np.sort(wanted))
    assert 0 < (is_last & late).sum() < is_last.sum()
    assert not (events["operation"] == at.RECLAIM_BEGIN).any()
    assert not (events["bits"] & at.REQUEST_RECLAIMED).any()


def test_boosts_are_the_snapshots_at_their_instants() -> None:
    bundle = shipped_recording("highatomic_stock")
    free = replay(bundle, assumptions=LITERAL)
    events = imposed(bundle, ready(bundle, free), (BY_NAME["boosts"],)).prepared.demand.events
    boosts = events[events["operation"] == at.SET_BOOST]
    later = [state for state in bundle.dated_snapshots if state.time_ns >= free.demand.first_ns]
    assert set(boosts["time_ns"].tolist()) == {snapshot.time_ns for snapshot in later}
    wanted = [zone.boost for snapshot in later for zone in snapshot.zoneinfo.zones]  # type: ignore[union-attr]
    assert sorted(boosts["offset"].tolist()) == sorted(wanted)
    assert max(wanted) > 0


def test_the_true_start_holds_as_many_pages_as_flowed() -> None:
    """Zones begin with the pages that the start snapshot and the events up to it tell."""
    bundle = shipped_recording("highatomic_gate3")
    prepared = ready(bundle, replay(bundle, assumptions=LITERAL))
    alone = with_true_start(bundle, prepared).image
    in_zones = BY_NAME["zone"].put(bundle, prepared)
    assert np.array_equal(with_true_start(bundle, in_zones).image.free, alone.free)
    for zone in (zone for zone in prepared.machine.zones if zone.managed):
        own = slice(zone.start_pfn, zone.end_pfn)
        calibrated = int(prepared.image.free[own].sum())
        assert abs(int(alone.free[own].sum()) - calibrated) < 0.02 * zone.managed


def test_without_compaction_nothing_is_isolated_or_captured() -> None:
    bundle = shipped_recording("highatomic_gate3")
    prepared = ready(bundle, replay(bundle, assumptions=LITERAL))
    left = set(without_compaction(prepared).demand.events["operation"].tolist())
    assert not left & {at.ISOLATE_FREE, at.CAPTURE}
    assert {at.ISOLATE_FREE} < set(prepared.demand.events["operation"].tolist())


def test_shares_add_up(pressed: tuple[Recording, pm.Validation, Budget]) -> None:
    _, _, budget = pressed
    shares = budget.shares
    assert list(shares["metric"]) == [name for name in METRICS if name in set(shares["metric"])]
    np.testing.assert_allclose(shares["models"] + shares["missing"], shares["error"])
    assert set(budget.record) == set(shares["most_by"]) - {""}


def test_the_command_writes_the_figure(
    pressed: tuple[Recording, pm.Validation, Budget],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    bundle, validation, budget = pressed
    monkeypatch.setattr("pagealloc_model.cli.validation.opened", lambda path: bundle)
    monkeypatch.setattr(pm, "validate", lambda *_, **__: validation)
    monkeypatch.setattr(type(validation), "budget", lambda *_: budget)
    there = tmp_path / "there"
    assert main(["validate", "it", "--budget", "-o", str(there)]) == 0
    names = {f"error_budget.{kind}" for kind in ("csv", "png", "svg", "pdf")}
    assert {file.name for file in there.iterdir()} == names
    printed = capsys.readouterr().out
    assert all(str(there / name) in printed for name in names)
    assert "error" in (there / "error_budget.svg").read_text(encoding="utf-8")
    written = pd.read_csv(there / "error_budget.csv")
    assert list(written["run"]) == list(budget.errors["run"])


def test_the_command_wants_a_budget_and_a_new_directory(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["validate", "xfree", "-o", str(tmp_path / "there")]) == 2
    assert "ask for it with --budget" in capsys.readouterr().err
    (tmp_path / "mine").write_text("kept")
    assert main(["validate", "xfree", "--budget", "-o", str(tmp_path)]) == 2
    assert "exists and is not empty" in capsys.readouterr().err
    assert [file.name for file in tmp_path.iterdir()] == ["mine"]


def test_what_a_recording_lacks_is_a_row() -> None:
    budget = pm.validate(shipped_recording("xfree")).budget()
    assert set(budget.absent) >= {"drains"}
    assert "not in this recording: no pa:drain_zone" in budget.to_text()
    assert "drains" not in set(budget.errors["run"])


def test_an_elastic_replay_has_no_budget() -> None:
    bundle, elastic = shipped_recording("highatomic_gate3"), Assumptions(reclaim="elastic")
    with pytest.raises(UsageError, match="of a literal replay by the model"):
        pm.validate(bundle, assumptions=elastic).budget()
    free = replay(bundle, assumptions=LITERAL)
    in_zones = imposed(bundle, ready(bundle, free), (BY_NAME["zone"],))
    with pytest.raises(UsageError, match="only a literal replay"):
        replay_imposed(bundle, in_zones, rules=free.rules, assumptions=elastic)


def test_losses_are_met_by_windows() -> None:
    bundle = with_losses((2.0, 2.4))
    assert all(not window.unusable for window in loss_windows(bundle))
    budget = pm.validate(bundle, assumptions=LITERAL).budget()
    windows = budget.errors[budget.errors["run"] == "windows"]
    assert len(windows) and not windows["imposed"].any()
    assert budget.shares["windows"].notna().any()
