"""Share of intervals of predicted changes that hold the change that was measured.

    python notebooks/studies/others/interval_coverage.py [DIR...] [--pair A B BACK FORTH]...

DIR is one of `pagealloc experiment`: runs/A1, runs/A2, ... of each side, each with its recording
and the settings it ran under. Side A is the base. A pair is two recordings of one run each, the
policy that turns the first into the second, and the one that turns it back: it is taken both ways.
Every base recording is replayed under its own policy and under the other side's, over some seeds;
nothing of the other side's runs is read for it. The measured change is, as the interval is, one on
the scale of the quantity: the mean over one side's runs beside the mean over the other's, totals a
second. Beside it stands a null model: an interval of the same width around no change.
"""

from __future__ import annotations

import argparse
import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from pagealloc_model.notebooks.studies.others.error_lines import table_lines

import pagealloc_model as pm
from pagealloc_model.numbers.comparison import BELIEVED, Change, half_width, model_errors, repeated
from pagealloc_model.numbers.statistics import SHARE, scaled
from pagealloc_model.numbers.values import Quantity
from pagealloc_model.policy.policy import policy_settings

SEEDS = 5
ELASTIC_ONLY = (
    *("compaction_proactiveness", "extfrag_threshold", "thp_defrag", "defrag_mode"),
    *("min_free_kbytes", "watermark_scale_factor", "watermark_boost_factor"),
)
PAIRS = (
    ("matrix_A1", "matrix_C1", "min_free_kbytes=16384", "min_free_kbytes=2048"),
    ("batched72", "unbatched72", "pcp_free_batched=false", "pcp_free_batched=true"),
    (
        *("highatomic_stock", "highatomic_gate3"),
        *("highatomic_gate_order=3", "highatomic_gate_order=0"),
    ),
    ("batched72", "defrag72", "defrag_mode=1", "defrag_mode=0"),
)
"""Recordings of guests that differ in one setting, each a single run."""
KINDS = {
    "sum": "totals",
    "mean": "free memory and lists",
    "ratio": "sizes",
    "most": "sizes",
    "quantile": "sizes",
    "count": "fallbacks",
    "last": "reserved blocks",
}


@dataclass(frozen=True, kw_only=True)
class Side:
    """One policy and its runs.

    Attributes:
        runs: recordings.
        policy: that turns the other side into this one.
    """

    runs: Sequence[pm.Recording]
    policy: pm.Policy


def kind_of(quantity: Quantity) -> str:
    """The sort of a quantity, in words."""
    return "shares" if quantity.unit == SHARE else KINDS[quantity.how]


def measured_values(
    recording: pm.Recording,
    assumptions: pm.Assumptions,
    quantities: Mapping[tuple[str, str], Quantity],
    seconds: float,
) -> dict[tuple[str, str], float]:
    """Each quantity as a recording shows it, on its scale; totals in so many seconds."""
    rules = pm.replay(recording, assumptions=assumptions).rules
    values = {}
    for key, error in model_errors(recording, rules, assumptions).by_row.items():
        one = quantities.get(key)
        if one is not None:
            share = seconds / seconds_of(recording) if one.how in ("sum", "count") else 1.0
            values[key] = float(scaled(error.measured * share, one.unit))
    return values


def seconds_of(recording: pm.Recording) -> float:
    """The length of a recording."""
    begin, end = recording.trace.demand_span_ns
    return (end - begin) / 1e9


def held_rows(name: str, base: Side, patch: Side, seeds: int) -> Iterator[dict[str, object]]:
    """A row for each quantity that has an interval and was measured, on each base recording."""
    elastic = any(getattr(patch.policy, field, None) is not None for field in ELASTIC_ONLY)
    assumptions = pm.Assumptions(reclaim="elastic" if elastic else "literal")
    for recording in base.runs:
        comparisons = [
            pm.compare(
                pm.replay(recording, assumptions=assumptions, seed=seed),
                pm.replay(recording, patch.policy, assumptions=assumptions, seed=seed),
            ).validated()
            for seed in range(seeds)
        ]
        runs: dict[tuple[str, str], list[Change]] = defaultdict(list)
        for change in (change for part in comparisons for change in part.changes):
            runs[change.before.metric, change.before.scope].append(change)
        known = {key: own for key, own in runs.items() if len(own) == seeds and own[0].error}
        quantities = {key: own[0].before for key, own in known.items()}
        seconds = seconds_of(recording)
        before, after = (
            pd.DataFrame(
                [measured_values(run, assumptions, quantities, seconds) for run in side.runs]
            ).mean()
            for side in (base, patch)
        )
        verdicts = repeated(comparisons).rows.set_index(["metric", "scope"])["verdict"]
        for key, measured in (after - before).dropna().items():
            half = half_width(known[key])
            predicted = float(np.mean([change.on_scale for change in known[key]]))
            if np.isfinite(half):
                yield {
                    "comparison": name,
                    "quantities": kind_of(quantities[key]),
                    "told": verdicts[key] in BELIEVED,
                    "held": abs(measured - predicted) <= half,
                    "around no change": abs(measured) <= half,
                    "sign": np.sign(measured) == np.sign(predicted),
                }


def sides_of(directory: Path) -> Iterator[tuple[str, Side, Side]]:
    """Each side of an experiment against its side A."""
    runs: dict[str, list[pm.Recording]] = defaultdict(list)
    settings: dict[str, dict[str, str]] = {}
    for order in sorted(directory.glob("runs/*/order.json")):
        side = order.parent.name[0]
        if (order.parent / "recording" / "meta.json").exists():
            runs[side].append(pm.open(order.parent / "recording"))
            settings[side] = json.loads(order.read_text())["settings"]
    for side in sorted(set(runs) - {"A"}):
        changed = {k: v for k, v in settings[side].items() if settings["A"].get(k) != v}
        words = [f"{_field(name)}={value}" for name, value in changed.items()]
        if all(_field(name) in policy_settings() for name in changed):
            policy = pm.Policy.parse(words)
            base = Side(runs=runs["A"], policy=pm.Policy())
            yield f"{directory.name}: {policy}", base, Side(runs=runs[side], policy=policy)


def _field(name: str) -> str:
    last = name.replace("vm.", "").rpartition("/")[2]
    return f"thp_{last}" if "transparent_hugepage" in name else last


def both_ways(first: str, second: str, there: str, back: str) -> Iterator[tuple[str, Side, Side]]:
    """A pair, and the same turned round."""
    sides = [
        Side(runs=[pm.open(name)], policy=pm.Policy.parse(words.split(",")))
        for name, words in ((first, back), (second, there))
    ]
    yield f"{first}: {there}", *sides
    yield f"{second}: {back}", *sides[::-1]


def coverage(
    comparisons: Iterable[tuple[str, Side, Side]], seeds: int = SEEDS
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the share of intervals that hold what was measured, by kind and by comparison."""
    rows = pd.DataFrame([row for case in comparisons for row in held_rows(*case, seeds)])
    return _shares(rows, "quantities"), _shares(rows, "comparison")


def _shares(rows: pd.DataFrame, by: str) -> pd.DataFrame:
    parts = [*rows.groupby(by, sort=False), ("all", rows)]
    return pd.DataFrame(
        {
            by: name,
            "rows": len(part),
            "held": f"{part['held'].mean():.0%}",
            "around no change": f"{part['around no change'].mean():.0%}",
            "told": int(part["told"].sum()),
            "sign right": int((part["told"] & part["sign"]).sum()),
        }
        for name, part in parts
    )


def coverage_lines() -> Iterator[str]:
    """Both tables of the pairs that are recorded."""
    by_kind, by_pair = coverage(case for pair in PAIRS for case in both_ways(*pair))
    yield from table_lines(by_kind)
    yield ""
    yield from table_lines(by_pair)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("directories", nargs="*", type=Path)
    parser.add_argument("--pair", nargs=4, action="append", default=[])
    parser.add_argument("--seeds", type=int, default=SEEDS)
    options = parser.parse_args()
    wanted = [case for pair in options.pair for case in both_ways(*pair)]
    wanted += [case for directory in options.directories for case in sides_of(directory)]
    if not wanted:
        print(*coverage_lines(), sep="\n")
        return
    for table in coverage(wanted, options.seeds):
        print(*table_lines(table), "", sep="\n")


if __name__ == "__main__":
    main()
