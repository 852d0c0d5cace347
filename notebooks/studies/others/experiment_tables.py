"""Predict the shipped experiments anew with this version of the model, and ship the tables.

Usage: python notebooks/studies/others/experiment_tables.py DIR [PLAN ...]   (make experiments)

DIR has a folder for each plan, where `pagealloc experiment PLAN -o DIR/PLAN` left its runs; without
names all shipped experiments are gone through, and those whose recordings are not there are named
and keep their tables. Nothing is run; every recording is measured, and those of the sides that
others are predicted from are replayed. The tables go to data/experiments/PLAN; `make experiments`
writes documentation from them.
"""

from __future__ import annotations

import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
from pagealloc_model.notebooks.studies.others.error_lines import apart, markdown

import pagealloc_model as pm
from pagealloc_model.base.text import rounded
from pagealloc_model.guests.experiment import (
    CHANGES_FILE,
    MEASURED_FILE,
    RUNS_FILE,
    ExperimentResult,
)
from pagealloc_model.guests.plan import find_plan, pairs_of, read_plan, sides_of
from pagealloc_model.guests.runs import FAILED
from pagealloc_model.guests.score import (
    ELASTIC,
    FEWEST,
    MODES,
    NULL,
    score_table,
    slope_table,
)
from pagealloc_model.numbers.statistics import EFFECTS, WRONG
from pagealloc_model.recording.recording import shipped_recordings_directory
from pagealloc_model.show.post.tables import MARKS

WIDTH = 100
FOLDER = "experiments"
CAUSES_FILE = "causes.csv"
UNEXPLAINED = "unexplained"
MATRIX = "matrix"
HUGE_PAGES = "/sys/kernel/mm/transparent_hugepage/"
BLIND = "native_pairs"
ANEW = (MATRIX, "two_nodes", "folio_sizes")
"""A plan whose runs were looked at only once the model was fixed; plans in guests run anew."""
SCORES = ("effects", "within", "direction", "wrong", "not predicted", "quiet", "holds")


def main(directory: str, *plans: str) -> None:
    """Predict each plan, print its table and ship it; name those that cannot be predicted anew."""
    for plan in plans or shipped_experiments():
        began, runs = time.monotonic(), Path(directory) / plan
        if why := why_not_anew(plan, runs):
            print(f"{plan}: not predicted anew: {why}")
            continue
        result = pm.experiment(plan, runs, make=False)
        print(result.to_text())
        print(
            f"{ship_experiment(result)}: {len(result.runs)} runs, {time.monotonic() - began:.0f} s"
        )


def why_not_anew(plan: str, directory: Path) -> str:
    """Why the finished runs of a shipped experiment cannot be predicted anew, "" if they can.

    A run whose recording was deleted after it was measured may be of a side that no other is
    predicted from.
    """
    shipped = shipped_experiment(plan)
    begun = {pair.before.letter for pair in pairs_of(shipped.plan, shipped.sides) if pair.modelled}
    missing = []
    for run in shipped.runs[shipped.runs["status"] != FAILED].itertuples():
        own = directory / run.path
        is_measured = (own.parent / MEASURED_FILE).exists() and run.side not in begun
        if not (own.exists() or is_measured):
            missing.append(f"{run.side}{run.repeat}")
    if not missing:
        return ""
    total = len(shipped.runs)
    return f"{directory} lacks recordings of {len(missing)} of {total} runs ({missing[0]}, ...)"


def _folder() -> Path:
    data = shipped_recordings_directory()
    if data is None:
        raise pm.UsageError("the package was installed without data; use a checkout")
    return data / FOLDER


def _table(file: Path, *texts: str) -> pd.DataFrame:
    """A table with columns of texts, of which none is NaN."""
    table = pd.read_csv(file, dtype=dict.fromkeys(texts, str))
    return table.assign(**table[list(texts)].fillna(""))


def shipped_experiments() -> list[str]:
    """Names of the experiments that come with the package, each that of its plan."""
    return sorted(file.parent.name for file in _folder().glob(f"*/{CHANGES_FILE}"))


def shipped_experiment(name: str = MATRIX) -> ExperimentResult:
    """An experiment that comes with the package; its recordings are not all there."""
    known = shipped_experiments()
    if name not in known:
        raise pm.UsageError(
            f"no shipped experiment {name!r}; there are {', '.join(known) or 'none'}"
        )
    plan, folder = read_plan(find_plan(name)), _folder() / name
    runs = _table(folder / RUNS_FILE, "status", "path", "error", "console")
    changes = _table(folder / CHANGES_FILE, "unit", "note")
    return ExperimentResult(plan=plan, sides=sides_of(plan), runs=runs, changes=changes)


def ship_experiment(result: ExperimentResult) -> Path:
    """Put an experiment's tables in the place of those that ship; returns where."""
    folder = _folder() / result.plan.name
    folder.mkdir(parents=True, exist_ok=True)
    names = result.runs["side"] + result.runs["repeat"].astype(str)
    runs = result.runs.assign(path="runs/" + names + "/recording")
    runs.to_csv(folder / RUNS_FILE, index=False)
    result.changes.to_csv(folder / CHANGES_FILE, index=False, float_format="%.6g")
    return folder


def scores_by_setting(changes: pd.DataFrame) -> pd.DataFrame:
    """`score_table` for each setting, in the column axis."""
    parts = [
        score_table(own).assign(axis=axis) for axis, own in changes.groupby("axis", sort=False)
    ]
    table = pd.concat(parts, ignore_index=True)
    return table[["axis", *(name for name in table if name != "axis")]]


def measurable_effects(changes: pd.DataFrame) -> pd.DataFrame:
    """Quantities that a setting measurably changed, a row each.

    Returns:
        axis, metric, unit, before, change, low, high; and for each mode of reclaim MODE, with the
        predicted change, and "MODE verdict".
    """
    rows = changes[changes["verdict"].isin(EFFECTS)]
    by_mode = {
        mode: rows[rows["mode"] == mode].set_index(["pair", "axis", "metric", "unit"])
        for mode in MODES
        if (rows["mode"] == mode).any()
    }
    table = by_mode[MODES[0]][["before", "change", "low", "high"]]
    for mode, own in by_mode.items():
        table = table.assign(**{mode: own["predicted"], f"{mode} verdict": own["verdict"]})
    return table.reset_index().drop(columns="pair")


def wrong_predictions(name: str = MATRIX, mode: str = "elastic") -> pd.DataFrame:
    """Wrong predictions of a shipped experiment under a mode of reclaim."""
    changes = shipped_experiment(name).changes
    wrong = changes[(changes["verdict"] == WRONG) & (changes["mode"] == mode)]
    shown = wrong[["axis", "metric", "change", "low", "high", "predicted"]]
    file = _folder() / name / CAUSES_FILE
    keys = ["axis", "metric"]
    causes = pd.read_csv(file) if file.exists() else pd.DataFrame(columns=[*keys, "cause"])
    table = shown.merge(causes, how="left", on=keys)
    return table.assign(cause=table["cause"].fillna(UNEXPLAINED))


def score_lines() -> Iterator[str]:
    """A markdown table of how often predictions were right: of the matrix, and of all others.

    Elastic replays, which the commands take under pressure, beside the model that nothing changes.
    """
    others = [name for name in shipped_experiments() if name != MATRIX]
    parts = {MATRIX: [MATRIX], f"{len(others)} others": others}
    rows = []
    for words, names in parts.items():
        changes = pd.concat([shipped_experiment(name).changes for name in names])
        for row in score_table(changes).itertuples():
            if row.model in (ELASTIC, NULL):
                size = f"{row.right_size} of {row.sized}" if row.sized else "NA"
                rows.append([f"{words}, {row.model}", *_score_cells(row), size])
    return markdown(["", *SCORES, "right size"], rows)


def sentence_lines() -> Iterator[str]:
    """How often a predicted change was right: unseen on a machine and in guests, and in others."""
    others = [name for name in shipped_experiments() if name not in (*ANEW, BLIND)]
    scores = [
        {
            row.model: _score_cells(row)
            for row in score_table(
                pd.concat([shipped_experiment(name).changes for name in names])
            ).itertuples()
        }
        for names in ([BLIND], ANEW, others)
    ]
    blind, guests, seen = (score[ELASTIC] for score in scores)
    null = scores[0][NULL]
    sentence = (
        "**How often is a predicted change right?** On a machine whose runs were looked at only "
        f"once the model was fixed, settings changed {blind[0]} quantities measurably. {blind[2]} "
        f"of the predictions have the right direction, {blind[1]} lie within the 95 % interval of "
        f'the measured change; "nothing changes" has {null[2]} and {null[1]}. Of the quantities '
        f'that did not change {blind[5]} were predicted not to ("nothing changes": {null[5]}). '
        f"In {len(ANEW)} experiments in guests, run anew and replayed from their own state, "
        f"these are {guests[2]}, {guests[1]} and {guests[5]}; in {len(others)} "
        "whose results were known when kswapd's pace and the order of reclaim came into the "
        f"model, {seen[2]}, {seen[1]} and {seen[5]} ([more](#how-wrong-is-it))."
    ).replace(" %", "\N{NO-BREAK SPACE}%")
    for line in textwrap.wrap(sentence, 140, break_on_hyphens=False):
        yield line.replace("\N{NO-BREAK SPACE}", " ")


def large_lines() -> Iterator[str]:
    """A markdown table of large effects, quiet quantities, intervals that hold, and sizes."""
    names = shipped_experiments()
    parts = {MATRIX: [MATRIX], f"{len(names) - 1} others": [n for n in names if n != MATRIX]}
    rows = []
    for words, own in (parts | {"all": names}).items():
        score = score_table(pd.concat([shipped_experiment(name).changes for name in own]))
        for row in score[score["model"].isin((ELASTIC, NULL))].itertuples():
            large = (row.large_predicted, row.large_direction)
            shares = [_share(part, row.large) for part in large]
            quiet = _share(row.quiet_inside, row.quiet), row.quiet_not_predicted
            size = f"{row.right_size} of {row.sized}" if row.sized else "NA"
            cells = [*shares, *quiet, _share(row.hold, row.judged), size]
            rows.append([f"{words}, {row.model}", row.large, *cells])
    head = ["", "large", "within", "direction", "quiet", "quiet, not predicted"]
    return markdown([*head, "holds", "right size"], rows)


def slope_lines() -> Iterator[str]:
    """A markdown table: size of measured changes by predicted ones, by quantity, all plans.

    Beside each slope the setting with the most weight in it, and the slope without that one.
    """
    changes = pd.concat([shipped_experiment(name).changes for name in shipped_experiments()])
    table = slope_table(changes)
    rows = (
        [
            *(row["metric"], row["rows"]),
            *(f"{row[name]:.2f}" for name in ("slope", "low", "high")),
            *(row["hold"], row["heaviest"].removeprefix(HUGE_PAGES)),
            *(f"{100 * row['weight']:.0f} %", f"{row['without']:.2f}"),
        ]
        for row in table.dropna(subset=["slope"]).to_dict("records")
        if row["rows"] >= FEWEST
    )
    head = ["quantity", "rows", "slope", "slope_low", "slope_high", "holds"]
    return markdown(
        [*head, "heaviest", "weight", "without"], ([str(cell) for cell in row] for row in rows)
    )


def result_lines() -> Iterator[str]:
    """Markdown tables of the shipped experiments: scores by setting, effects, the wrong ones."""
    results = {name: shipped_experiment(name) for name in shipped_experiments()}
    scores, effects, wrong = [], [], []
    for name, result in results.items():
        by_setting = scores_by_setting(result.changes)
        for row in by_setting[by_setting["model"].isin(MODES[:2])].itertuples():
            scores.append([name, row.axis, row.model, *_score_cells(row)])
        for row in measurable_effects(result.changes).to_dict("records"):
            numbers = [rounded(row[column]) for column in ("before", "change", "low", "high")]
            for mode in MODES[:2]:
                numbers.append(f"{rounded(row[mode])} {MARKS[row[f'{mode} verdict']]}".strip())
            effects.append([name, row["axis"], row["metric"], *numbers])
        for row in wrong_predictions(name).itertuples():
            wrong.append([name, row.axis, row.metric, row.cause])
    plan = ("plan", "setting")
    changed = ("quantity", "before", "change", "change_low", "change_high")
    cause = "cause of what the elastic replay has wrong"
    return apart(
        markdown([*plan, "model", *SCORES], scores, words=3),
        markdown([*plan, *changed, *MODES[:2]], effects, words=3),
        markdown([*plan, "quantity", cause], wrong, words=4),
    )


def causes_text(name: str) -> str:
    """Errors of an experiment's elastic replays, and their causes: a paragraph each."""
    paragraphs = [
        f"{row.axis}, {row.metric}: {row.cause}." for row in wrong_predictions(name).itertuples()
    ]
    return "\n\n".join(textwrap.fill(text, WIDTH, break_on_hyphens=False) for text in paragraphs)


def _score_cells(row: Any) -> list[str]:
    of = row.measurable
    return [
        str(of),
        _share(row.predicted, of),
        _share(row.predicted + row.right, of),
        _share(row.wrong, of),
        _share(row.not_predicted, of),
        _share(row.quiet_inside, row.quiet),
        _share(row.hold, row.judged),
    ]


def _share(part: int, whole: int) -> str:
    return f"{part} ({100 * part / whole:.0f} %)" if whole else "NA"


if __name__ == "__main__":
    main(*sys.argv[1:])
