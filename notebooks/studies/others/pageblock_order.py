"""Kernels with other pageblocks, predicted from each other, and by min_free_kbytes alone.

Usage: python notebooks/studies/others/pageblock_order.py DIR [before]

DIR is where `pagealloc experiment pageblock_order` left its runs, of which none is made here. With
`before` only those of the first side are read, and data/experiments/pageblock_order/predicted.csv
is written; without it, what all sides give: changes.csv, runs.csv and scores.csv (by pair).
"""

from __future__ import annotations

import sys
from pathlib import Path

import pandas as pd
from pagealloc_model.notebooks.studies.others.experiment_tables import ship_experiment

import pagealloc_model as pm
from pagealloc_model.guests.experiment import MODES, predicted_values, score_table
from pagealloc_model.guests.plan import find_plan, pairs_of, read_plan, sides_of
from pagealloc_model.guests.runs import kept_runs
from pagealloc_model.numbers.statistics import verdict
from pagealloc_model.recording.machine import min_free_kbytes_at_boot
from pagealloc_model.recording.recorded_machine import recorded_machine
from pagealloc_model.recording.recording import shipped_recordings_directory

NAME = "pageblock_order"
PLAN = read_plan(find_plan(NAME))
ELASTIC = MODES[1]
ALONE = "min_free_kbytes alone"
SCORES_FILE, PREDICTED_FILE = "scores.csv", "predicted.csv"


def main(directory: str, what: str = "") -> None:
    """Predict, print the scores and ship the tables."""
    data, runs = shipped_recordings_directory(), Path(directory)
    if data is None:
        raise pm.UsageError("the package was installed without data; use a checkout")
    folder = data / "experiments" / NAME
    predicted = predicted_changes(runs, 1 if what else len(PLAN.kernels))
    if what:
        predicted.to_csv(folder / PREDICTED_FILE, index=False, float_format="%.6g")
        return
    result = pm.experiment(PLAN, runs, make=False)
    ship_experiment(result)
    scores = scores_by_pair(with_alone(result.changes, predicted))
    scores.to_csv(folder / SCORES_FILE, index=False)
    print(scores.to_string(index=False))


def predicted_changes(directory: Path, first: int) -> pd.DataFrame:
    """Changes that recordings of the first sides predict of each other one; no other run is read.

    Returns:
        pair, model (a mode of reclaim or `ALONE`), metric, predicted: a mean over recordings.
    """
    sides, rows = sides_of(PLAN), []
    for run in kept_runs(sides[:first], directory):
        recording = run.open()
        machine = recorded_machine(recording)
        for pair in pairs_of(PLAN, sides):
            order = pair.policy.pageblock_order
            if pair.before.letter != run.side or order is None:
                continue
            kbytes = min_free_kbytes_at_boot(machine.with_pageblock_order(order))
            alone = pm.Policy(min_free_kbytes=kbytes)
            models = {mode: (mode, pair.policy) for mode in MODES} | {ALONE: (ELASTIC, alone)}
            for model, (mode, policy) in models.items():
                own = predicted_values(recording, directory / "values", mode, pm.Policy())[0]
                other = predicted_values(recording, directory / "values", mode, policy)[0]
                rows += [
                    {"pair": pair.title, "model": model, "metric": name, "predicted": change}
                    for name, change in (
                        (name, other[name] - own[name]) for name in own if name in other
                    )
                ]
    means = pd.DataFrame(rows).groupby(["pair", "model", "metric"], sort=False)["predicted"].mean()
    return means.dropna().reset_index()


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
