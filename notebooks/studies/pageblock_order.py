"""Kernels with smaller pageblocks: predicted one way and the other, and by min_free_kbytes alone.

Usage: python notebooks/studies/pageblock_order.py DIR [before]

DIR is where `pagealloc experiment pageblock_order` left its runs, of which none is made here. With
`before` only those of the first side are read, and data/experiments/pageblock_order/predicted.csv
is written; without it, the tables of all sides: changes.csv, runs.csv, changes_back.csv (each side
predicted from one with smaller blocks) and scores.csv (by pair and model).
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pandas as pd
from pagealloc_model.notebooks.studies.experiments import ship_experiment

import pagealloc_model as pm
from pagealloc_model.studies.study import (
    MODES,
    ExperimentResult,
    find_plan,
    kept_runs,
    min_free_kbytes_at_boot,
    pairs_of,
    predicted_values,
    read_plan,
    recorded_machine,
    score_table,
    shipped_recordings_directory,
    sides_of,
    verdict,
)

NAME = "pageblock_order"
PLAN = read_plan(find_plan(NAME))
ELASTIC = MODES[1]
ALONE = "min_free_kbytes alone"
SCORES_FILE, PREDICTED_FILE, BACK_FILE = "scores.csv", "predicted.csv", "changes_back.csv"


def main(directory: str, what: str = "") -> None:
    """Predict, print the scores and ship the tables."""
    data, runs = shipped_recordings_directory(), Path(directory)
    if data is None:
        raise pm.UsageError("the package was installed without data; use a checkout")
    folder = data / "experiments" / NAME
    if what:
        predicted_changes(runs).to_csv(folder / PREDICTED_FILE, index=False, float_format="%.6g")
        return
    result, back = pm.experiment(PLAN, runs, make=False), backwards(runs)
    ship_experiment(result)
    back.changes.to_csv(folder / BACK_FILE, index=False, float_format="%.6g")
    scores = pd.concat(
        [
            scores_by_pair(with_alone(result.changes, predicted_changes(runs))),
            scores_by_pair(back.changes),
        ]
    )
    scores.to_csv(folder / SCORES_FILE, index=False)
    print(scores.to_string(index=False))


def predicted_changes(directory: Path) -> pd.DataFrame:
    """Changes that the first side's recordings predict of each other side; no other run is read.

    Returns:
        pair, model (a mode of reclaim or `ALONE`), metric, predicted: a mean over recordings.
    """
    sides = sides_of(PLAN)
    rows = []
    for run in kept_runs(sides[:1], directory):
        recording = run.open()
        machine = recorded_machine(recording)
        for pair in pairs_of(PLAN, sides):
            if pair.before is not sides[0] or pair.policy.pageblock_order is None:
                continue
            smaller = machine.with_pageblock_order(pair.policy.pageblock_order)
            alone = pm.Policy(min_free_kbytes=min_free_kbytes_at_boot(smaller))
            models = {mode: (mode, pair.policy) for mode in MODES} | {ALONE: (ELASTIC, alone)}
            for model, (mode, policy) in models.items():
                own = predicted_values(recording, directory / "values", mode, pm.Policy())[0]
                other = predicted_values(recording, directory / "values", mode, policy)[0]
                rows += [
                    {"pair": pair.title, "model": model, "metric": name, "predicted": change}
                    for name, change in ((name, other[name] - own[name]) for name in own if name in other)
                ]
    means = pd.DataFrame(rows).groupby(["pair", "model", "metric"], sort=False)["predicted"].mean()
    return means.dropna().reset_index()


def backwards(directory: Path) -> ExperimentResult:
    """The same runs with the sides in the other order: larger blocks from smaller ones."""
    plan = replace(PLAN, kernels=PLAN.kernels[::-1])
    measured = {
        new.letter: [run.path for run in kept_runs([old], directory)]
        for new, old in zip(sides_of(plan), sides_of(PLAN)[::-1], strict=True)
    }
    return pm.experiment(plan, directory / "back", measured=measured)


def with_alone(changes: pd.DataFrame, predicted: pd.DataFrame) -> pd.DataFrame:
    """Changes with rows of one more mode: the setting of `ALONE`, where it was predicted."""
    alone = predicted[predicted["model"] == ALONE].set_index(["pair", "metric"])["predicted"]
    rows = changes[(changes["mode"] == ELASTIC) & changes["pair"].isin(alone.index.levels[0])]
    places = pd.MultiIndex.from_frame(rows[["pair", "metric"]])
    rows = rows.assign(mode=ALONE, predicted=alone.reindex(places).to_numpy())
    rows["verdict"] = [verdict(row.predicted, row.low, row.high) for row in rows.itertuples()]
    rows["inside"] = rows["predicted"].between(rows["low"], rows["high"])
    return pd.concat([changes, rows], ignore_index=True)


def scores_by_pair(changes: pd.DataFrame) -> pd.DataFrame:
    """`score_table` of each pair, with a row for `ALONE` where changes have one."""
    parts = []
    for pair, own in changes.groupby("pair", sort=False):
        score = score_table(own)
        alone = own[own["mode"] == ALONE]
        if len(alone):
            row = score_table(alone.assign(mode=ELASTIC)).query("model == @ELASTIC")
            score = pd.concat([score, row.assign(model=ALONE)])
        parts.append(score.assign(pair=pair))
    table = pd.concat(parts, ignore_index=True)
    return table[["pair", *(name for name in table if name != "pair")]]


if __name__ == "__main__":
    main(*sys.argv[1:])
