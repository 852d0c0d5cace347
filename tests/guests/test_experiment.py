"""Whole experiments: runs, predictions, tables, the command, and those that ship."""

from __future__ import annotations

import math
import shutil
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
from pagealloc_model.notebooks.studies.others import experiment_tables as shipped
from pagealloc_model.notebooks.studies.others.experiment_tables import (
    CAUSES_FILE,
    FOLDER,
    UNEXPLAINED,
    measurable_effects,
    score_lines,
    scores_by_setting,
    ship_experiment,
    shipped_experiment,
    shipped_experiments,
    wrong_predictions,
)

import pagealloc_model as pm
from pagealloc_model.base.errors import UsageError
from pagealloc_model.guests import experiment as changes_module
from pagealloc_model.guests.experiment import ExperimentResult, experiment
from pagealloc_model.guests.guest import Boot, Cancel
from pagealloc_model.guests.inside import RECORDING
from pagealloc_model.guests.plan import PLANS
from pagealloc_model.guests.runs import RUN_FILE
from pagealloc_model.guests.score import MODES, each_pair_once, score_table
from pagealloc_model.numbers.statistics import (
    EFFECTS,
    NO_EFFECT,
    NOT_PREDICTED,
    RIGHT,
    TOO_FEW,
    WITHIN,
    WRONG,
)
from pagealloc_model.numbers.whole_run import BESIDE
from pagealloc_model.predicted import replay as replay_module
from tests.guests.small_plan import MORE_USED, PLAN, FakeGuests, write_plan, write_run
from tests.small_recordings import write_recording

FRACTION = "vm.percpu_pagelist_high_fraction"
SHIPPED = """
[workload]
command = "as recorded"
[[vary]]
setting = "vm.highatomic_gate_order"
values = [0, 3]
"""


@pytest.fixture(scope="module")
def where(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("experiment")


@pytest.fixture(scope="module")
def result(where: Path) -> ExperimentResult:
    return pm.experiment(write_plan(where), where / "out", runner=FakeGuests())


def test_measured_changes_are_differences_of_means(result: ExperimentResult) -> None:
    rows = result.changes.query("mode == 'literal'").set_index("metric")
    changes = result.to_pandas()
    assert set(changes["mode"]) == set(MODES)
    assert not changes.duplicated(["pair", "mode", "metric"]).any()
    free = rows.loc["free pages"]
    # none of them is used at the start, all are at the end, and most requests come in between
    assert -MORE_USED < free["change"] == free["after"] - free["before"] < -0.9 * MORE_USED
    assert free["low"] < free["change"] < free["high"]


def test_medians_change_beside_means(result: ExperimentResult) -> None:
    rows = result.changes.query("mode == 'literal'").set_index("metric")
    free = rows.loc["free pages"]
    assert -MORE_USED <= free["median_change"] < free["change"]
    assert free["median_predicted"] == pytest.approx(free["predicted"], abs=20)
    # most is used at the end, where the fewest pages are free
    assert -MORE_USED <= free["pressed_change"] <= free["median_change"]
    assert free["pressed_predicted"] == pytest.approx(free["predicted"], abs=20)
    counted = rows[rows["unit"] != "pages"]
    assert len(counted)
    beside = [f"{what}_{kind}" for what in BESIDE for kind in ("change", "predicted")]
    assert counted[beside].isna().all(axis=None)


def test_runs_whose_reader_missed_a_fifth_are_named(result: ExperimentResult) -> None:
    shares = [0.5, 0.199, 0.2, 0.0]
    named = replace(result, runs=result.runs.assign(**{"missed instants": shares}))
    (line,) = named.irregular
    assert "missed 20% to 50% of their instants in A1, A2:" in line
    assert line.split(":")[0] in " ".join(named.to_text().split())
    assert "of their instants in" in " ".join(named.message().to_text().split())
    few = replace(result, runs=result.runs.assign(**{"missed instants": 0.1}))
    assert few.irregular == ()
    assert (
        replace(result, runs=result.runs.drop(columns="missed instants", errors="ignore")).irregular
        == ()
    )


def test_predictions_are_from_the_earlier_side_alone(where: Path) -> None:
    """Whatever the later side does, what is predicted of it stays the same."""
    sides = {}
    for name, used in (("few", 300), ("many", 900)):
        later = [write_run(where / f"{name}{number}", used + number) for number in (1, 2)]
        runner = FakeGuests()
        result = pm.experiment(
            write_plan(where), where / f"out_{name}", measured={"B": later}, runner=runner
        )
        assert {boot.order.settings[FRACTION] for boot in runner.booted} == {"0"}
        sides[name] = result.changes.set_index(["mode", "metric"])
    both = sides["few"].index.intersection(sides["many"].index)
    assert "free pages" in both.get_level_values("metric")
    columns = ["predicted", "predicted_lowest", "predicted_highest"]
    few, many = (sides[name].loc[both, columns] for name in ("few", "many"))
    pd.testing.assert_frame_equal(few, many)
    assert not sides["few"].loc[both, "after"].equals(sides["many"].loc[both, "after"])


def test_nothing_known_is_made_twice(
    result: ExperimentResult, where: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(*_: object, **__: object) -> None:
        raise AssertionError("made again")

    monkeypatch.setattr(changes_module, "replay", never)
    monkeypatch.setattr(changes_module, "recorded_numbers", never)
    again = pm.experiment(where / "plan.toml", where / "out", runner=never)
    pd.testing.assert_frame_equal(again.changes, result.changes)
    assert replay_module.replay is not never


@pytest.mark.long
def test_recordings_of_a_measured_side_may_be_deleted(
    result: ExperimentResult, where: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    shutil.copytree(where / "out", out)
    for later in ("B1", "B2"):
        shutil.rmtree(out / "runs" / later / "recording")
    shutil.rmtree(out / "values", ignore_errors=True)
    again = pm.experiment(where / "plan.toml", out, make=False)
    pd.testing.assert_frame_equal(again.changes, result.changes)
    shutil.rmtree(out / "runs" / "A1" / "recording")
    with pytest.raises(pm.RecordingError, match="A1"):
        pm.experiment(where / "plan.toml", out, make=False)


def test_files_are_left(result: ExperimentResult, where: Path) -> None:
    out = where / "out"
    runs = pd.read_csv(out / "runs.csv")
    assert runs["status"].tolist() == ["done"] * 4
    assert runs["run time"].between(0, 1).all() and (runs["run time"] > 0).all()
    assert "memory pressure full" not in runs
    assert len(pd.read_csv(out / "changes.csv")) == len(result.changes)
    assert (out / "table.txt").read_text() == result.to_text()
    assert (out / "post.txt").read_text().startswith("Subject: [predicted and measured] plan\n")


def test_what_nothing_stands_for_is_predicted_to_change_nothing(tmp_path: Path) -> None:
    text = PLAN.replace(FRACTION, "vm.page-cluster")
    result = pm.experiment(write_plan(tmp_path, text), tmp_path / "out", runner=FakeGuests())
    assert (result.changes["predicted"] == 0).all()
    assert not result.changes["modelled"].any()
    assert "Nothing in the model stands for this setting" in result.to_text()


def test_a_mode_that_refuses_a_policy_says_why(tmp_path: Path) -> None:
    text = PLAN.replace(FRACTION, "vm.extfrag_threshold")
    result = pm.experiment(write_plan(tmp_path, text), tmp_path / "out", runner=FakeGuests())
    literal = result.changes[result.changes["mode"] == "literal"]
    assert literal["predicted"].isna().all()
    assert literal["note"].str.contains("extfrag_threshold").all()
    assert "Not predicted: " in result.to_text()


def test_failed_runs_are_told_and_left_out(tmp_path: Path) -> None:
    guests = FakeGuests(lambda boot: boot.order.environment["SEED"] == "2")
    result = pm.experiment(write_plan(tmp_path), tmp_path / "out", runner=guests)
    assert result.failed["console"].tolist() == ["Kernel panic\nRebooting"] * 2
    assert set(result.changes["verdict"]) == {TOO_FEW}
    assert "- A2: the guest ended before it was done" in result.message().to_text()


def test_a_recording_that_was_measured_but_cannot_be_read_is_told(tmp_path: Path) -> None:
    recordings = {"A": [write_run(tmp_path / "a", 0)], "B": [write_run(tmp_path / "b", 0)]}
    (tmp_path / "b/perf.data").write_bytes(b"PERFILE2 torn")
    with pytest.raises(pm.RecordingError, match=r"run B1 cannot be measured: .*perf\.data"):
        pm.experiment(write_plan(tmp_path), tmp_path / "out", measured=recordings)


def test_recordings_of_two_machines_are_no_pair(tmp_path: Path) -> None:
    small = write_recording(tmp_path / "small")
    with pytest.raises(pm.RecordingError, match="is of another machine than"):
        pm.experiment(
            write_plan(tmp_path, SHIPPED),
            tmp_path / "out",
            measured={"A": [small], "B": ["highatomic_gate3"]},
        )


def test_times_are_measured_on_both_sides_and_not_predicted(tmp_path: Path) -> None:
    """The later side's runs are twice as long; pressure is what the kernel totals."""
    guests = FakeGuests()

    def run(boot: Boot, folder: Path, cancel: Cancel) -> None:
        guests(boot, folder, cancel)
        later, seed = "8" in boot.order.settings.values(), int(boot.order.environment["SEED"])
        for number, snapshot in enumerate(sorted((folder / RECORDING / "snapshots").iterdir())):
            totals = [number * us * (2 + later) + number * seed for us in (2_000_000, 1_000_000)]
            (snapshot / "pressure_memory").write_text(
                "".join(
                    f"{name} avg10=0.00 avg60=0.00 avg300=0.00 total={total}\n"
                    for name, total in zip(("some", "full"), totals, strict=True)
                )
            )

    result = pm.experiment(write_plan(tmp_path), tmp_path / "out", runner=run)
    rows = result.changes[result.changes["mode"] == "elastic"].set_index("metric")
    for name, before in (("memory pressure", 4.0), ("memory pressure full", 2.0)):
        assert rows.loc[name, "before"] == pytest.approx(before, rel=1e-4)
        assert rows.loc[name, "change"] == pytest.approx(before / 2, rel=1e-4)
        assert math.isnan(rows.loc[name, "predicted"])
        assert rows.loc[name, "verdict"] == NOT_PREDICTED
        assert result.runs[name].max() > 1.4 * result.runs[name].min()


def changed(verdict: str, *, inside: bool, low: float, high: float, mode: str) -> dict[str, object]:
    predicted = float("nan") if verdict == NOT_PREDICTED else 1.0
    return {
        "pair": "A -> B: vm.min_free_kbytes 2048 -> 16384",
        "axis": "vm.min_free_kbytes",
        "metric": "drains",
        "mode": mode,
        "change": (low + high) / 2,
        "verdict": verdict,
        "inside": inside,
        "low": low,
        "high": high,
        "predicted": predicted,
    }


def test_the_score_counts_verdicts_beside_no_change() -> None:
    rows = [
        changed(verdict, inside=inside, low=low, high=high, mode=mode)
        for mode in MODES
        for verdict, inside, low, high in (
            (WITHIN, True, 1.0, 2.0),
            (RIGHT, False, 1.0, 2.0),
            (RIGHT, False, -2.0, -1.0),
            (WRONG, False, 1.0, 2.0),
            (NOT_PREDICTED, False, 1.0, 2.0),
            (NO_EFFECT, True, -1.0, 1.0),
            (NO_EFFECT, False, -1.0, 1.0),
            (TOO_FEW, False, float("nan"), float("nan")),
        )
    ]
    score = score_table(pd.DataFrame(rows)).set_index("model")
    assert score.loc["elastic"].to_dict() == {
        "measurable": 5,
        "predicted": 1,
        "right": 2,
        "wrong": 1,
        "not_predicted": 1,
        "large": 5,
        "large_predicted": 1,
        "large_direction": 3,
        "quiet": 2,
        "quiet_inside": 1,
        "quiet_not_predicted": 0,
        "judged": 7,
        "hold": 2,
        "sized": 0,
        "right_size": 0,
    }
    none = {"predicted": float("nan"), "inside": False}
    without = [row | none for row in rows if row["verdict"] == NO_EFFECT]
    counted = score_table(pd.DataFrame([*rows, *without])).set_index("model").loc["elastic"]
    assert (counted["quiet"], counted["quiet_inside"], counted["judged"]) == (4, 1, 9)
    assert counted["quiet_not_predicted"] == 2
    # between one and two half-widths an effect is not large: its change may have come out so
    near = [row | {"low": 0.5, "high": 3.5} for row in rows if row["verdict"] == RIGHT]
    assert score_table(pd.DataFrame(near))["large"].tolist() == [0, 0, 0]
    null = score.loc["no change"]
    assert (null["measurable"], null["predicted"], null["right"], null["wrong"]) == (5, 0, 0, 5)
    assert (null["quiet"], null["quiet_inside"]) == (2, 2)


def test_a_pair_of_two_directions_counts_once() -> None:
    """Of one plan; pairs of other values, or of another setting, are other pairs."""
    titles = {
        "A -> B: vm.x 1 -> 2": "vm.x",
        "B -> A: vm.x 2 -> 1": "vm.x",
        "A -> B: vm.x 1 -> 3": "vm.x",
        "A -> B: vm.y 1 -> 2": "vm.y",
    }
    rows = pd.DataFrame({"pair": list(titles), "axis": list(titles.values()), "mode": "elastic"})
    kept = each_pair_once(rows)["pair"].tolist()
    assert kept == [title for title in titles if not title.startswith("B")]


NAMES = ("A1", "B1", "A2", "B2")
REPEATS = 2


@pytest.fixture
def fresh(tmp_path: Path) -> ExperimentResult:
    return experiment(write_plan(tmp_path), tmp_path / "out", runner=FakeGuests())


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A data directory of our own, in which the small plan ships."""
    monkeypatch.setattr(shipped, "shipped_recordings_directory", lambda: tmp_path / "data")
    monkeypatch.setattr(shipped, "find_plan", lambda name: tmp_path / f"{name}.toml")
    return tmp_path / "data"


def test_what_ships_is_read_back(fresh: ExperimentResult, data: Path) -> None:
    assert ship_experiment(fresh) == data / FOLDER / "plan"
    assert shipped_experiments() == ["plan"]
    back = shipped_experiment("plan")
    pd.testing.assert_frame_equal(back.score, fresh.score)
    assert back.runs["path"].tolist() == [f"runs/{name}/recording" for name in NAMES]
    assert back.to_text() == fresh.to_text()
    assert [side.letter for side in back.sides] == ["A", "B"]


def test_wrong_ones_have_a_cause_or_say_that_they_have_none(
    fresh: ExperimentResult, data: Path
) -> None:
    changes = fresh.changes.copy()
    known, unknown = changes["metric"].unique()[:2]
    chosen = (changes["mode"] == "elastic") & changes["metric"].isin([known, unknown])
    changes.loc[chosen, "verdict"] = WRONG
    vars(fresh)["changes"] = changes
    folder = ship_experiment(fresh)
    axis = changes["axis"].iloc[0]
    (folder / CAUSES_FILE).write_text(f"axis,metric,cause\n{axis},{known},because\n")
    wrong = wrong_predictions("plan").set_index("metric")["cause"]
    assert (wrong[known], wrong[unknown]) == ("because", UNEXPLAINED)


def test_an_experiment_that_does_not_ship(data: Path) -> None:
    with pytest.raises(UsageError, match="no shipped experiment 'none'; there are none"):
        shipped_experiment("none")


def test_without_data_there_are_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shipped, "shipped_recordings_directory", lambda: None)
    with pytest.raises(UsageError, match="installed without data; use a checkout"):
        shipped_experiments()


def test_those_that_ship_are_of_shipped_plans_and_whole() -> None:
    try:
        names = shipped_experiments()
    except UsageError as error:
        pytest.skip(str(error))
    assert set(names) <= {file.stem for file in PLANS.glob("*.toml")}
    for name in names:
        result = shipped_experiment(name)
        effects = measurable_effects(result.changes)
        modes = result.changes["mode"].nunique()
        assert len(effects) == result.changes["verdict"].isin(EFFECTS).sum() / modes
        totals = scores_by_setting(result.changes).groupby("model")["measurable"].sum()
        assert set(totals) == {len(measurable_effects(each_pair_once(result.changes)))}


def test_finished_runs_are_predicted_without_being_made(
    fresh: ExperimentResult, tmp_path: Path
) -> None:
    plan, out = tmp_path / "plan.toml", tmp_path / "out"
    (tmp_path / "bzImage").write_bytes(b"another kernel, so these runs would be made again")
    (out / "runs/B2" / RUN_FILE).unlink()
    again = experiment(plan, out, make=False)
    assert again.runs.groupby("side").size().to_dict() == {"A": REPEATS, "B": 1}
    with pytest.raises(UsageError, match="has no finished run of this plan; leave --no-runs out"):
        experiment(plan, tmp_path / "nowhere", make=False)


def test_sums_of_experiments_are_of_the_same_ones() -> None:
    effects: dict[str, set[str]] = {}
    for line in [*score_lines()][2:]:
        of, count = line.strip("| ").split(" | ")[:2]
        effects.setdefault(of.split(",")[0], set()).add(count)
    assert [len(counts) for counts in effects.values()] == [1, 1]
