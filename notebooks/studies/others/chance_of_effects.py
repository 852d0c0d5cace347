"""Could chance alone have made an experiment's measurable effects? Runs are dealt to sides anew.

Usage: python notebooks/studies/others/chance_of_effects.py PLAN DIR

PLAN is the name of a shipped plan, and DIR where `pagealloc experiment` left its runs. Of each pair
of sides the runs are dealt to the two sides in every possible way, all quantities of a run
together. `effects` is how many quantities seem to change, `dealt` the mean number over all deals,
`as_many` the share of deals with at least as many. For each quantity that seems to change, `p` is
the share of deals in which its change is at least as far from 0 in widths of its interval, and
`p_any` the share in which some quantity's is: one with a large `p_any` is no more than what a
search through so many quantities finds in runs that do not differ.
"""

from __future__ import annotations

import itertools
import sys
from pathlib import Path

import numpy as np
import pandas as pd

from pagealloc_model.guests.experiment import measured_values
from pagealloc_model.guests.plan import find_plan, pairs_of, read_plan, sides_of
from pagealloc_model.guests.runs import FAILED, kept_runs
from pagealloc_model.numbers.statistics import change_interval


def dealt_widths(values: np.ndarray, first: int) -> np.ndarray:
    """Return each quantity's change over its interval's half width, for every deal of the runs."""
    runs = range(len(values))
    rows = []
    for chosen in itertools.combinations(runs, first):
        before = values[list(chosen)]
        after = values[[run for run in runs if run not in chosen]]
        row = []
        for quantity in range(values.shape[1]):
            low, high = change_interval(before[:, quantity], after[:, quantity])
            middle, half = (low + high) / 2, (high - low) / 2
            far = np.inf if middle else 0.0
            row.append(abs(middle) / half if half > 0 else far)
        rows.append(row)
    return np.array(rows)


def chances(plan_name: str, directory: Path) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return a row for each pair, and one for each quantity that seems to change."""
    plan = read_plan(find_plan(plan_name))
    sides = sides_of(plan)
    runs = [run for run in kept_runs(list(sides), directory) if run.status != FAILED]
    measured = {run.name: measured_values(run, directory / "values") for run in runs}
    pair_rows, effect_rows = [], []
    for pair in pairs_of(plan, sides):
        values = [
            [measured[run.name] for run in runs if run.side == side.letter]
            for side in (pair.before, pair.after)
        ]
        if min(map(len, values)) < 2:
            continue
        table = pd.DataFrame(values[0] + values[1])
        table = table.loc[:, table.notna().all() & (table != 0).any()]
        widths = dealt_widths(table.to_numpy(float), len(values[0]))
        effects = (widths > 1).sum(axis=1)
        pair_rows.append(
            {
                "pair": pair.title,
                "deals": len(widths),
                "quantities": widths.shape[1],
                "effects": effects[0],
                "dealt": effects.mean(),
                "as_many": (effects >= effects[0]).mean(),
            }
        )
        for place in np.flatnonzero(widths[0] > 1):
            effect_rows.append(
                {
                    "pair": pair.title,
                    "quantity": table.columns[place],
                    "p": (widths[:, place] >= widths[0, place]).mean(),
                    "p_any": (widths.max(axis=1) >= widths[0, place]).mean(),
                }
            )
    return pd.DataFrame(pair_rows), pd.DataFrame(effect_rows)


if __name__ == "__main__":
    for frame in chances(sys.argv[1], Path(sys.argv[2])):
        print(frame.to_string(index=False, float_format="{:.3f}".format))
