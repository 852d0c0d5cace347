"""Changes by defrag_mode, as registered in data/rounds/registered.toml, beside the posted rows.

`python notebooks/studies/defrag_mode/registered_rounds.py` prints the verdicts; with `write`
it makes the runs anew (a quarter of an hour of CPU) and puts them into data/rounds/registered.csv.
With `rules` or `fixes` in place of nothing, or behind `write`, it does so for the trees between in
data/rounds/rules.toml, and those without the fixes of 2026 in data/rounds/fixes.toml.
"""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from pagealloc_model.notebooks.studies.defrag_mode.defrag_hosts import relative_interval
from pagealloc_model.notebooks.studies.defrag_mode.repeated_rounds import repeated_rounds
from pagealloc_model.notebooks.studies.defrag_mode.round_trend import series
from pagealloc_model.notebooks.studies.others.shipped_data import shipped_data

import pagealloc_model as pm
from pagealloc_model.numbers.statistics import change_interval
from pagealloc_model.show.post.comparison_message import posted_figures

POSTED_STEPS = ("vanilla", "watermarks in whole blocks")
"""Of `series`: no patch, and all five without the fixes that came later."""
LAST = 5
"""Rounds at the end whose share served is compared."""
SIDES = ("vanilla", "defrag_mode")
PLANS = ("registered", "rules", "fixes")
_CASE = ["recording", "tree", "faults", "survivors"]


def registered(plan: str = "registered") -> dict[str, Any]:
    """A plan that was written down: one of `PLANS`, all but the last before the first run."""
    return tomllib.loads((_folder() / f"{plan}.toml").read_text())


def sides(tree: str, faults: str) -> dict[str, pm.Policy]:
    """The two policies of a tree: the posted steps, or the mode as the kernel has it."""
    setting = pm.Policy(thp_defrag=faults)
    if tree.startswith("posted"):
        steps = series(setting)
        return dict(zip(SIDES, map(steps.__getitem__, POSTED_STEPS), strict=True))
    return {
        "vanilla": setting.changed_by(pm.Policy(defrag_mode=False)),
        "defrag_mode": setting.changed_by(pm.Policy(defrag_mode=True)),
    }


def run(plan_name: str = "registered") -> pd.DataFrame:
    """Every run of a plan: one row a case, seed and side, with the sums of all rounds.

    Returns:
        recording, tree, faults, survivors, seed, side; the registered counters; served_last, the
        share of the huge pages asked for in the last `LAST` rounds that was served.
    """
    plan, counters, rows = registered(plan_name), list(registered()["rows"]), []
    for name in plan["recordings"]:
        recording = pm.open(name)
        for tree, rules in plan["trees"].items():
            for faults in plan["faults"]:
                for side, policy in sides(tree, faults).items():
                    for survivors in plan["survivors"]:
                        for seed in plan["seeds"]:
                            rounds = repeated_rounds(
                                recording,
                                policy,
                                rounds=plan["rounds"],
                                survivors=survivors,
                                rules=rules,
                                seed=seed,
                            ).rounds
                            last = rounds.tail(LAST)
                            case = (name, tree, faults, survivors, seed, side)
                            rows.append(
                                dict(zip([*_CASE, "seed", "side"], case, strict=True))
                                | rounds[counters].sum().to_dict()
                                | {"served_last": last.huge_served.sum() / last.huge_asked.sum()}
                            )
    return pd.DataFrame(rows)


def judged(runs: pd.DataFrame) -> pd.DataFrame:
    """Every registered row of every case, predicted beside posted."""
    plan, rows = registered(), []
    figures = posted_figures("defrag_mode_series").pivot(
        index="quantity", columns="variant", values="low"
    )
    for case, own in runs.groupby(_CASE, sort=False):
        seeds = own.pivot(index="seed", columns="side", values=list(plan["rows"]))
        for counter, quantity in plan["rows"].items():
            posted = figures.loc[quantity, "patched"] / figures.loc[quantity, "unpatched"] - 1
            base, mode = (seeds[counter, side].to_numpy(float) for side in SIDES)
            change = mode.mean() / base.mean() - 1 if base.mean() else np.nan
            low, high = relative_interval(base, mode)
            known = not np.isnan(change)
            rows.append(
                {
                    **dict(zip(_CASE, case, strict=True)),
                    "row": quantity,
                    "posted": posted,
                    "change": change,
                    "change_low": low,
                    "change_high": high,
                    "sign": bool(min(low * posted, high * posted) > 0) if known else pd.NA,
                    "nearer": bool(abs(change - posted) < abs(posted)) if known else pd.NA,
                }
            )
    return pd.DataFrame(rows).astype({"sign": "boolean", "nearer": "boolean"})


def shares(runs: pd.DataFrame) -> pd.DataFrame:
    """Share of huge pages served in the last rounds, percent, by case.

    Returns:
        recording, tree, faults, survivors; vanilla and defrag_mode, means over seeds; difference
        in points with low and high; more: the whole interval lies above 0.
    """
    rows = []
    for case, own in runs.groupby(_CASE, sort=False):
        vanilla, mode = (100 * own.loc[own["side"] == side, "served_last"] for side in SIDES)
        low, high = change_interval(list(vanilla), list(mode))
        rows.append(
            {
                **dict(zip(_CASE, case, strict=True)),
                "vanilla": vanilla.mean(),
                "defrag_mode": mode.mean(),
                "difference": mode.mean() - vanilla.mean(),
                "low": low,
                "high": high,
                "more": bool(low > 0),
            }
        )
    return pd.DataFrame(rows)


def counts(rows: pd.DataFrame) -> pd.DataFrame:
    """Rows with the posted sign and rows nearer than no change, by case."""
    table = rows.groupby(_CASE, sort=False).agg(
        rows=("sign", "size"),
        counted=("sign", "count"),
        sign=("sign", "sum"),
        nearer=("nearer", "sum"),
    )
    return table.reset_index()


def shipped(plan: str = "registered") -> pd.DataFrame:
    """The runs of a plan in data/rounds."""
    return pd.read_csv(_folder() / f"{plan}.csv")


def main(arguments: list[str]) -> None:
    """Print the verdicts; make the runs anew if asked to."""
    writes = arguments[:1] == ["write"]
    name, *more = arguments[writes:] or PLANS[:1]
    if more or name not in PLANS:
        raise pm.UsageError(f"{' '.join(arguments)}: write [write] {'|'.join(PLANS)}")
    if writes:
        run(name).to_csv(_folder() / f"{name}.csv", index=False, float_format="%.6g")
    runs = shipped(name)
    rows = judged(runs)
    print(f"claim: {registered(name)['claim']}\n")
    print(counts(rows).to_string(index=False), end="\n\n")
    print(shares(runs).to_string(index=False, float_format="%.1f"), end="\n\n")
    first = rows[(rows["faults"] == "always") & (rows["survivors"] == "stay")]
    print(first.to_string(index=False, float_format="%.2f"))


def _folder() -> Path:
    return shipped_data("what was registered") / "rounds"


if __name__ == "__main__":
    main(sys.argv[1:])
