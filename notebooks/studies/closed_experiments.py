"""Score closed-loop predictions beside open ones on the shipped experiments with recordings here.

Usage: python notebooks/studies/closed_experiments.py [NAME ...]

With names of recordings: run time, stalls and memory pressure of their closed replays under the
recorded policy, beside the recorded ones.
Changes were measured in whole runs; what ships of a run is its beginning. So a prediction is the
relative change that a replay of the beginning shows, of what the whole runs of that side measured.
`make readme` keeps the table as data/tables/closed_experiments.csv.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import pandas as pd
from pagealloc_model.notebooks.studies.others.experiment_tables import shipped_experiment

import pagealloc_model as pm
from pagealloc_model.guests.experiment import predicted_values
from pagealloc_model.guests.plan import pairs_of, sides_of
from pagealloc_model.numbers.quantities import TIMES, recorded_quantities
from pagealloc_model.numbers.statistics import EFFECTS, NO_EFFECT, RIGHT, WITHIN, verdict

RECORDINGS = {"matrix": {"A": "matrix_A1"}, "two_nodes": {"A": "two_nodes_A1"}}
"""Beginnings of runs that ship, by experiment and side."""
MODES = ("elastic", "closed")
NULL = "no change"
COUNTED = ("compact_daemon_wake", "allocstall", "pgsteal_direct", "fallbacks")
"""Counts that a replay under the recorded policy has beside the recorded ones."""


def relative_predictions(name: str) -> pd.DataFrame:
    """pair, metric, mode, predicted: changes of whole runs, as beginnings say."""
    result = shipped_experiment(name)
    rows = []
    with tempfile.TemporaryDirectory() as cache:
        for pair in pairs_of(result.plan, sides_of(result.plan)):
            recording = RECORDINGS[name].get(pair.before.letter)
            if recording is None:
                continue
            opened = pm.open(recording)
            for mode in MODES:
                own, _ = predicted_values(opened, Path(cache), mode, pm.Policy())
                other, _ = predicted_values(opened, Path(cache), mode, pair.policy, pair.rules)
                for metric, base in own.items():
                    share = other[metric] / base - 1 if base else float("nan")
                    share = 0.0 if other[metric] == base else share
                    rows.append((pair.title, metric, mode, share))
    return pd.DataFrame(rows, columns=["pair", "metric", "mode", "share"])


def judged(name: str) -> pd.DataFrame:
    """Measured changes of an experiment with both modes' predictions and the null model's."""
    changes = shipped_experiment(name).changes
    first = changes[changes["mode"] == changes["mode"].iloc[0]].drop(columns=["mode", "predicted"])
    shares = relative_predictions(name)
    null = shares[shares["mode"] == MODES[0]].assign(mode=NULL, share=0.0)
    table = first.merge(pd.concat([shares, null]), on=["pair", "metric"])
    table["predicted"] = table["before"] * table["share"]
    rows = zip(table["predicted"], table["low"], table["high"], strict=True)
    table["verdict"] = [verdict(*row) for row in rows]
    table["inside"] = table["predicted"].between(table["low"], table["high"])
    return table.assign(plan=name)


def score(table: pd.DataFrame) -> pd.DataFrame:
    """By plan and mode: effects, within, direction, quiet; NaN predictions are neither."""
    rows = []
    for (plan, mode), own in table.groupby(["plan", "mode"], sort=False):
        effects = own["verdict"].isin(EFFECTS)
        quiet = (own["verdict"] == NO_EFFECT) & own["predicted"].notna()
        counts = {
            "effects": int(effects.sum()),
            "within": int((own["verdict"] == WITHIN).sum()),
            "direction": int(own["verdict"].isin([WITHIN, RIGHT]).sum()),
            "quiet": int(quiet.sum()),
            "quiet_inside": int((quiet & own["inside"]).sum()),
        }
        rows.append({"plan": plan, "mode": mode, **counts})
    return pd.DataFrame(rows)


def counts(name: str) -> pd.DataFrame:
    """Counts of the recorded policy's replays beside the recorded ones, by recording and mode."""
    rows = []
    with tempfile.TemporaryDirectory() as cache:
        for recording in RECORDINGS[name].values():
            opened = pm.open(recording)
            real = recorded_quantities(opened)
            for mode in MODES:
                own, _ = predicted_values(opened, Path(cache), mode, pm.Policy())
                for metric in COUNTED:
                    rows.append((name, mode, metric, real[metric], own[metric]))
    return pd.DataFrame(rows, columns=["plan", "mode", "metric", "recorded", "predicted"])


def own_times(names: Sequence[str]) -> pd.DataFrame:
    """recording, metric, recorded, closed (s), share: times under the recorded policy."""
    rows = []
    with tempfile.TemporaryDirectory() as cache:
        for name in names:
            opened = pm.open(name)
            real = recorded_quantities(opened)
            own, _ = predicted_values(opened, Path(cache), MODES[-1], pm.Policy())
            rows += [(opened.name, metric, real[metric], own[metric]) for metric in TIMES]
    table = pd.DataFrame(rows, columns=["recording", "metric", "recorded", MODES[-1]])
    return table.assign(share=table[MODES[-1]] / table["recorded"].where(table["recorded"] > 0))


def scored() -> pd.DataFrame:
    """A row for each plan and mode: the score, and counts of replays beside the recorded ones."""
    scores = score(pd.concat([judged(name) for name in RECORDINGS]))
    wide = pd.concat([counts(name) for name in RECORDINGS]).pivot_table(
        index=["plan", "mode"], columns="metric", sort=False
    )
    wide.columns = [f"{metric}_{which}" for which, metric in wide.columns]
    return scores.merge(wide.reset_index(), on=["plan", "mode"], how="left")


if __name__ == "__main__":
    print((own_times(sys.argv[1:]) if sys.argv[1:] else scored()).to_string(index=False))
