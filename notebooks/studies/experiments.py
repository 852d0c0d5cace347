"""Predict a finished experiment anew with this version of the model, and ship the tables.

Usage: python notebooks/studies/experiments.py PLAN DIR

PLAN is the name of a shipped plan, and DIR where `pagealloc experiment` left its runs. Nothing is
run; every recording in DIR is measured, and those of the sides that others are predicted from are
replayed. The tables go to data/experiments/PLAN; `make readme` writes documentation from them.
"""

from __future__ import annotations

import sys
import textwrap
import time
from collections.abc import Iterator
from typing import Any

import pandas as pd

import pagealloc_model as pm
from pagealloc_model.show.post.tables import MARKS
from pagealloc_model.studies.experiments.experiment import (
    MATRIX,
    MODES,
    measurable_effects,
    score_table,
    scores_by_setting,
    ship_experiment,
    shipped_experiment,
    shipped_experiments,
    wrong_predictions,
)

WIDTH = 100
SCORES = ("effects", "within", "direction", "wrong", "not predicted", "quiet")


def main(plan: str, directory: str) -> None:
    """Predict, print the table and ship it."""
    began = time.monotonic()
    result = pm.experiment(plan, directory, make=False)
    print(result.to_text())
    print(f"{ship_experiment(result)}: {len(result.runs)} runs, {time.monotonic() - began:.0f} s")


def score_lines() -> Iterator[str]:
    """A markdown table of how often predictions were right: of the matrix, and of all others."""
    others = [name for name in shipped_experiments() if name != MATRIX]
    parts = {MATRIX: [MATRIX], f"{len(others)} others": others}
    scores = []
    for words, names in parts.items():
        score = score_table(pd.concat([shipped_experiment(name).changes for name in names]))
        scores.append(score.assign(of=words + ", " + score["model"]))
    yield from _score_lines(pd.concat(scores))


def result_lines() -> Iterator[str]:
    """Markdown tables of the shipped experiments: scores by setting, effects, the wrong ones."""
    results = {name: shipped_experiment(name) for name in shipped_experiments()}
    yield f"| plan | setting | model | {' | '.join(SCORES)} |"
    yield f"|---|---|---|{'--:|' * len(SCORES)}"
    for name, result in results.items():
        by_setting = scores_by_setting(result.changes)
        for row in by_setting[by_setting["model"].isin(MODES)].itertuples():
            yield f"| {name} | {row.axis} | {row.model} | {' | '.join(_score_cells(row))} |"
    yield ""
    heads = ("plan", "setting", "quantity", "before", "change", "change_low", "change_high", *MODES)
    yield f"| {' | '.join(heads)} |"
    yield f"|---|---|---|--:|--:|--:|--:|{'--:|' * len(MODES)}"
    for name, result in results.items():
        for row in measurable_effects(result.changes).to_dict("records"):
            predicted = [f"{_short(row[mode])} {MARKS[row[f'{mode} verdict']]}" for mode in MODES]
            numbers = [_short(row[each]) for each in ("before", "change", "low", "high")]
            cells = [*numbers, *(each.strip() for each in predicted)]
            yield f"| {name} | {row['axis']} | {row['metric']} | {' | '.join(cells)} |"
    yield ""
    yield "| plan | setting | quantity | cause of what the elastic replay has wrong |"
    yield "|---|---|---|---|"
    for name in results:
        for row in wrong_predictions(name).itertuples():
            yield f"| {name} | {row.axis} | {row.metric} | {row.cause} |"


def causes_text(name: str) -> str:
    """What an experiment's elastic replays have wrong, and why: a paragraph each."""
    paragraphs = [
        f"{row.axis}, {row.metric}: {row.cause}." for row in wrong_predictions(name).itertuples()
    ]
    return "\n\n".join(textwrap.fill(each, WIDTH, break_on_hyphens=False) for each in paragraphs)


def _score_lines(scores: pd.DataFrame) -> Iterator[str]:
    yield f"| | {' | '.join(SCORES)} |"
    yield f"|---|{'--:|' * len(SCORES)}"
    for row in scores.itertuples():
        yield f"| {row.of} | {' | '.join(_score_cells(row))} |"


def _score_cells(row: Any) -> list[str]:
    of = row.measurable
    return [
        str(of),
        _share(row.predicted, of),
        _share(row.predicted + row.right, of),
        _share(row.wrong, of),
        _share(row.not_predicted, of),
        _share(row.quiet_inside, row.quiet),
    ]


def _share(part: int, whole: int) -> str:
    return f"{part} ({100 * part / whole:.0f} %)" if whole else "NA"


def _short(value: float) -> str:
    if pd.isna(value):
        return "NA"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


if __name__ == "__main__":
    main(*sys.argv[1:])
