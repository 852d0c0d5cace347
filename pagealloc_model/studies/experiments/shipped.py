"""The experiments that come with the package: what was run, what was predicted, what was wrong.

Making one takes hours (`pagealloc experiment`), so notebooks and documentation read these.
"""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from pagealloc_model.base.errors import UsageError
from pagealloc_model.recording.recording import shipped_recordings_directory
from pagealloc_model.studies.experiments.changes import MODES, score_table
from pagealloc_model.studies.experiments.experiment import (
    CHANGES_FILE,
    RUNS_FILE,
    ExperimentResult,
)
from pagealloc_model.studies.experiments.plan import find_plan
from pagealloc_model.studies.experiments.read_plan import read_plan
from pagealloc_model.studies.experiments.sides import sides_of
from pagealloc_model.verdict.statistics import EFFECTS, WRONG

FOLDER = "experiments"
CAUSES_FILE = "causes.csv"
UNEXPLAINED = "unexplained"
MATRIX = "matrix"

_MEASURED = ["before", "change", "low", "high"]


def shipped_experiments() -> list[str]:
    """Names of the experiments that come with the package, each that of its plan.

    Raises:
        UsageError: there is no data directory.
    """
    return sorted(file.parent.name for file in _folder().glob(f"*/{CHANGES_FILE}"))


def shipped_experiment(name: str = MATRIX) -> ExperimentResult:
    """An experiment that comes with the package; its recordings are not all there.

    Args:
        name: of its plan.

    Raises:
        UsageError: no such experiment, or there is no data directory.
    """
    known = shipped_experiments()
    if name not in known:
        raise UsageError(f"no shipped experiment {name!r}; there are {', '.join(known) or 'none'}")
    plan = read_plan(find_plan(name))
    texts = ["status", "path", "error", "console"]
    runs = pd.read_csv(_folder() / name / RUNS_FILE, dtype=dict.fromkeys(texts, str))
    return ExperimentResult(
        plan=plan,
        sides=sides_of(plan),
        runs=runs.assign(**runs[texts].fillna("")),
        changes=read_changes(_folder() / name / CHANGES_FILE),
    )


def ship_experiment(result: ExperimentResult) -> Path:
    """Put an experiment's tables in the place of those that ship; returns where.

    Args:
        result: of a plan that ships.

    Raises:
        UsageError: there is no data directory.
    """
    folder = _folder() / result.plan.name
    folder.mkdir(parents=True, exist_ok=True)
    names = result.runs["side"] + result.runs["repeat"].astype(str)
    runs = result.runs.assign(path="runs/" + names + "/recording")
    runs.to_csv(folder / RUNS_FILE, index=False)
    result.changes.to_csv(folder / CHANGES_FILE, index=False, float_format="%.6g")
    return folder


def read_changes(file: Path) -> pd.DataFrame:
    """The table of changes that an experiment left."""
    texts = ["unit", "note"]
    changes = pd.read_csv(file, dtype=dict.fromkeys(texts, str))
    return changes.assign(**changes[texts].fillna(""))


def scores_by_setting(changes: pd.DataFrame) -> pd.DataFrame:
    """How often predictions of each setting were right.

    Args:
        changes: as `changes_table` returns it.

    Returns:
        axis, model, and the columns of `score_table` after its first.
    """
    parts = [
        score_table(mine).assign(axis=axis) for axis, mine in changes.groupby("axis", sort=False)
    ]
    table = pd.concat(parts, ignore_index=True)
    return table[["axis", *(name for name in table if name != "axis")]]


def measurable_effects(changes: pd.DataFrame) -> pd.DataFrame:
    """Quantities that a setting measurably changed, a row each.

    Args:
        changes: as `changes_table` returns it.

    Returns:
        axis, metric, unit, before, change, low, high; and for each mode of reclaim MODE, with the
        predicted change, and "MODE verdict".
    """
    rows = changes[changes["verdict"].isin(EFFECTS)]
    keys = ["pair", "axis", "metric", "unit"]
    table = rows[rows["mode"] == MODES[0]].set_index(keys)[_MEASURED]
    for mode in MODES:
        mine = rows[rows["mode"] == mode].set_index(keys)
        table = table.assign(**{mode: mine["predicted"], f"{mode} verdict": mine["verdict"]})
    return table.reset_index().drop(columns="pair")


def wrong_predictions(name: str = MATRIX, mode: str = MODES[-1]) -> pd.DataFrame:
    """What a shipped experiment predicted wrong, and why as far as that is known.

    Args:
        name: of the experiment.
        mode: of reclaim.

    Returns:
        axis, metric, change, low, high, predicted, cause: `UNEXPLAINED` where none is known.

    Raises:
        UsageError: no such experiment.
    """
    changes = shipped_experiment(name).changes
    wrong = changes[(changes["verdict"] == WRONG) & (changes["mode"] == mode)]
    shown = wrong[["axis", "metric", "change", "low", "high", "predicted"]]
    file = _folder() / name / CAUSES_FILE
    known = (
        pd.read_csv(file) if file.exists() else pd.DataFrame(columns=["axis", "metric", "cause"])
    )
    found = shown.merge(known, how="left", on=["axis", "metric"])
    return found.assign(cause=found["cause"].fillna(UNEXPLAINED))


def _folder() -> Path:
    data = shipped_recordings_directory()
    if data is None:
        raise UsageError("the package was installed without data; use a checkout")
    return data / FOLDER
