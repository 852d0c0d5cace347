"""How often the printed interval of a change holds the change that was measured.

    python notebooks/studies/interval_coverage.py DIR... [--pair A B FIELD=VALUE]... [--json FILE]

DIR is one of `pagealloc experiment`: runs/A1, runs/A2, ... of each side, each with its recording
and the settings it ran under. Side A is the base. For every other side, every run of A is replayed
under its own policy and under the side's, as `pagealloc compare` does; nothing of the side's runs
is read for it. The truth is the mean of the side's runs less the mean of A's. A pair is two
recordings of one run each, so that its truth has the spread of a single run. Beside it stands a
null model: an interval of the same width around 0.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import pandas as pd

import pagealloc_model as pm
from pagealloc_model.base.errors import PageallocError
from pagealloc_model.policy.policy import policy_settings
from pagealloc_model.verdict.comparison import (
    BELIEVED,
    FAILS_NULL,
    SAME,
    WITHIN_ERROR,
    model_errors,
)

TOLD = (*BELIEVED, WITHIN_ERROR)
ELASTIC_ONLY = ("compaction_proactiveness", "extfrag_threshold", "thp_defrag", "defrag_mode")


@dataclass(frozen=True)
class Held:
    """One row of one comparison against what was measured.

    Attributes:
        comparison: what was changed, on which recording.
        metric: of the row.
        scope: of the row.
        verdict: that was printed.
        change: predicted.
        low: lower end of the interval.
        high: upper end.
        truth: measured change.
    """

    comparison: str
    metric: str
    scope: str
    verdict: str
    change: float
    low: float
    high: float
    truth: float

    @property
    def is_held(self) -> bool:
        """Whether the interval has the truth in it."""
        return self.low <= self.truth <= self.high

    @property
    def null_is_held(self) -> bool:
        """Whether one of the same width around 0 has."""
        return abs(self.truth) <= (self.high - self.low) / 2


def measured_values(recording: pm.Recording, elastic: bool) -> dict[tuple[str, str], float]:
    """What a recording shows of each row, as validation has it."""
    assumptions = pm.Assumptions(reclaim="elastic") if elastic else None
    rules = pm.replay(recording, assumptions=assumptions).rules
    errors = model_errors(recording, rules, assumptions)
    return {key: each.measured for key, each in errors.by_row.items()}


def held_rows(
    name: str, base: list[pm.Recording], patch: list[pm.Recording], policy: pm.Policy
) -> Iterator[Held]:
    """Every row of the comparisons on each base recording."""
    elastic = any(getattr(policy, field, None) is not None for field in ELASTIC_ONLY)
    assumptions = pm.Assumptions(reclaim="elastic") if elastic else None
    before, after = (
        pd.DataFrame([measured_values(each, elastic) for each in side]).mean()
        for side in (base, patch)
    )
    truth = after - before
    for recording in base:
        sides = [pm.replay(recording, each, assumptions=assumptions) for each in (None, policy)]
        for row in pm.compare(*sides).judged.itertuples():
            key = (row.metric, row.scope)
            if key in truth and np.isfinite(truth[key]) and np.isfinite(row.low):
                yield Held(
                    comparison=name,
                    metric=row.metric,
                    scope=row.scope,
                    verdict=row.verdict,
                    change=row.patch - row.base,
                    low=row.low,
                    high=row.high,
                    truth=float(truth[key]),
                )


def experiment(directory: Path) -> Iterator[tuple[str, list[Path], list[Path], pm.Policy]]:
    """Each side of an experiment against its side A."""
    sides: dict[str, list[Path]] = defaultdict(list)
    settings: dict[str, dict[str, str]] = {}
    for order in sorted(directory.glob("runs/*/order.json")):
        side = order.parent.name[0]
        if (order.parent / "recording" / "meta.json").exists():
            sides[side].append(order.parent / "recording")
            settings[side] = json.loads(order.read_text())["settings"]
    for side in sorted(set(sides) - {"A"}):
        changed = {k: v for k, v in settings[side].items() if settings["A"].get(k) != v}
        words = [f"{_field(name)}={value}" for name, value in changed.items()]
        if all(_field(name) in policy_settings() for name in changed):
            name = f"{directory.name}: {', '.join(words)}"
            yield name, sides["A"], sides[side], pm.Policy.parse(words)


def _field(name: str) -> str:
    last = name.replace("vm.", "").rpartition("/")[2]
    return f"thp_{last}" if "transparent_hugepage" in name else last


def table(rows: list[Held]) -> str:
    """Share of intervals that hold the truth, by comparison and verdict, as Markdown."""
    lines = [
        "| comparison | rows | held | around 0 | told | sign right | same: held | null: held |",
        "|---|---:|---:|---:|---:|---:|---:|---:|",
    ]
    names = dict.fromkeys(each.comparison for each in rows)
    for name in [*names, "all"]:
        mine = [each for each in rows if name in ("all", each.comparison)]
        told = [each for each in mine if each.verdict in TOLD]
        said = [each for each in told if each.verdict in BELIEVED]
        right = [each for each in said if np.sign(each.change) == np.sign(each.truth)]
        same = [each for each in mine if each.verdict == SAME]
        failed = [each for each in mine if each.verdict == FAILS_NULL]
        cells = [
            str(len(told)),
            _share([each.is_held for each in told]),
            _share([each.null_is_held for each in told]),
            str(len(said)),
            f"{len(right)}",
            _share([each.is_held for each in same]),
            _share([each.is_held for each in failed]),
        ]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _share(held: list[bool]) -> str:
    return f"{np.mean(held):.0%}" if held else "-"


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("directories", nargs="*", type=Path)
    parser.add_argument("--pair", nargs=3, action="append", default=[])
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    wanted = [
        (f"{Path(a).name}: {words}", [Path(a)], [Path(b)], pm.Policy.parse(words.split(",")))
        for a, b, words in options.pair
    ]
    for directory in options.directories:
        wanted += experiment(directory)
    rows: list[Held] = []
    for name, base, patch, policy in wanted:
        try:
            opened = [[pm.open(path) for path in side] for side in (base, patch)]
            rows += held_rows(name, *opened, policy)
            print(name, len(rows), file=sys.stderr, flush=True)
        except PageallocError as error:
            print(f"{name}: {error}", file=sys.stderr)
    print(table(rows))
    if options.json:
        options.json.write_text(json.dumps([asdict(each) for each in rows]))


if __name__ == "__main__":
    main()
