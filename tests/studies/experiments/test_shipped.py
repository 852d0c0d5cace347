"""The experiments that ship: read back as they were written, with a cause or "unexplained"."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest
from pagealloc_model.notebooks.studies import experiments as shipped
from pagealloc_model.notebooks.studies.experiments import (
    CAUSES_FILE,
    FOLDER,
    UNEXPLAINED,
    measurable_effects,
    scores_by_setting,
    ship_experiment,
    shipped_experiment,
    shipped_experiments,
    wrong_predictions,
)

from pagealloc_model.base.errors import UsageError
from pagealloc_model.studies.experiments.experiment import ExperimentResult, experiment
from pagealloc_model.studies.experiments.plan import PLANS
from pagealloc_model.studies.experiments.runs import RUN_FILE
from pagealloc_model.verdict.statistics import EFFECTS, WRONG
from tests.studies.experiments.small_plan import FakeGuests, write_plan

NAMES = ("A1", "B1", "A2", "B2")
REPEATS = 2


@pytest.fixture
def made(tmp_path: Path) -> ExperimentResult:
    return experiment(write_plan(tmp_path), tmp_path / "out", runner=FakeGuests())


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A data directory of our own, in which the small plan ships."""
    monkeypatch.setattr(shipped, "shipped_recordings_directory", lambda: tmp_path / "data")
    monkeypatch.setattr(shipped, "find_plan", lambda name: tmp_path / f"{name}.toml")
    return tmp_path / "data"


def test_what_ships_is_read_back(made: ExperimentResult, data: Path) -> None:
    assert ship_experiment(made) == data / FOLDER / "plan"
    assert shipped_experiments() == ["plan"]
    back = shipped_experiment("plan")
    pd.testing.assert_frame_equal(back.score, made.score)
    assert back.runs["path"].tolist() == [f"runs/{name}/recording" for name in NAMES]
    assert back.to_text() == made.to_text()
    assert [side.letter for side in back.sides] == ["A", "B"]


def test_wrong_ones_have_a_cause_or_say_that_they_have_none(
    made: ExperimentResult, data: Path
) -> None:
    changes = made.changes.copy()
    known, unknown = changes["metric"].unique()[:2]
    chosen = (changes["mode"] == "elastic") & changes["metric"].isin([known, unknown])
    changes.loc[chosen, "verdict"] = WRONG
    vars(made)["changes"] = changes
    folder = ship_experiment(made)
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
        assert len(effects) == result.changes["verdict"].isin(EFFECTS).sum() / 2
        totals = scores_by_setting(result.changes).groupby("model")["measurable"].sum()
        assert set(totals) == {len(effects)}


def test_finished_runs_are_predicted_without_being_made(
    made: ExperimentResult, tmp_path: Path
) -> None:
    plan, out = tmp_path / "plan.toml", tmp_path / "out"
    (tmp_path / "bzImage").write_bytes(b"another kernel, so these runs would be made again")
    (out / "runs/B2" / RUN_FILE).unlink()
    kept = experiment(plan, out, make=False)
    assert kept.runs.groupby("side").size().to_dict() == {"A": REPEATS, "B": 1}
    with pytest.raises(UsageError, match="has no finished run of this plan; leave --no-runs out"):
        experiment(plan, tmp_path / "nowhere", make=False)
