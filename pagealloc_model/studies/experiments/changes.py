"""Measured and predicted changes of an experiment, side by side, and what to think of them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np
import pandas as pd

from pagealloc_model.base.errors import PageallocError, RecordingError
from pagealloc_model.base.progress_bar import Report, unreported
from pagealloc_model.measured.costs import at_recorded_cost
from pagealloc_model.policy.policy import Assumptions, Policy
from pagealloc_model.predicted.demand.elastic import with_recorded_survivors
from pagealloc_model.predicted.prepared import forget_prepared
from pagealloc_model.predicted.replay import replay
from pagealloc_model.recording.recorded_machine import recorded_machine, start_snapshots
from pagealloc_model.recording.recording import Recording
from pagealloc_model.studies.experiments.runs import DONE, FAILED, Run
from pagealloc_model.studies.experiments.settings import KERNEL
from pagealloc_model.studies.experiments.sides import Pair
from pagealloc_model.studies.sweeps.fingerprint import recording_digest, result_key
from pagealloc_model.verdict.quantities import (
    WHOLE_UNITS,
    predicted_quantities,
    recorded_quantities,
)
from pagealloc_model.verdict.statistics import (
    EFFECTS,
    NO_EFFECT,
    NOT_PREDICTED,
    RIGHT,
    WITHIN,
    WRONG,
    change_interval,
    verdict,
)

MODES = ("literal", "elastic")
NULL = "no change"
MEASURED_FILE = "measured.json"
"""Beside a run's recording: what was measured in it, for when the recording is deleted."""


@dataclass(frozen=True)
class Values:
    """What is known of one run, measured or replayed.

    Attributes:
        quantities: by name, see `WHOLE_UNITS`.
        refused: why there are none, "" if there are.
    """

    quantities: Mapping[str, float]
    refused: str = ""

    def difference(self, other: Values) -> Values:
        """The other's quantities less these."""
        mine, theirs = self.quantities, other.quantities
        return Values(
            {name: theirs[name] - mine[name] for name in mine if name in theirs},
            self.refused or other.refused,
        )


class KnownValues:
    """Values of runs, measured and replayed, kept as files so that none is made twice.

    Args:
        directory: for the files.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._open: tuple[str, Recording, str] | None = None

    def measured(self, run: Run) -> Values:
        """What was measured in a run, now or before its recording was deleted.

        Raises:
            RecordingError: its recording cannot be read.
        """
        file = Path(run.path).parent / MEASURED_FILE
        if run.status == DONE and file.exists() and not Path(run.path).exists():
            return Values(json.loads(file.read_text()))
        values = self._kept(run, {"what": "measured"}, recorded_quantities)
        if values.refused:
            what = f"run {run.name} cannot be measured: {values.refused}"
            raise RecordingError(run.path, what, todo="remove it, and it is made again")
        if run.status == DONE:
            file.write_text(json.dumps(dict(values.quantities)))
        return values

    def predicted(self, run: Run, mode: str, policy: Policy, rules: str) -> Values:
        """What a replay of a run has, or why it was refused."""
        what = {"what": mode, "policy": policy.given(), "rules": rules}

        def made(recording: Recording) -> Mapping[str, float]:
            assumptions = Assumptions()
            if mode == "elastic":
                assumptions = at_recorded_cost(recording.trace, start_snapshots(recording)[1])
                assumptions = with_recorded_survivors(assumptions, recording)
                own = replace(assumptions.elastic, kswapd_as_recorded=True, lru_as_recorded=True)
                assumptions = replace(assumptions, elastic=own)
            predicted = replay(
                recording,
                policy,
                rules=rules or None,
                assumptions=assumptions,
                progress=unreported,
            )
            return predicted_quantities(recording, predicted)

        return self._kept(run, what, made)

    def forget(self) -> None:
        """Let go of the recording that was opened last."""
        if self._open is not None:
            forget_prepared(self._open[1])
        self._open = None

    def _kept(
        self,
        run: Run,
        what: Mapping[str, object],
        make: Callable[[Recording], Mapping[str, float]],
    ) -> Values:
        recording, digest = self._opened(run)
        key = result_key({"experiment": 1, "recording": digest, **what})
        file = self._directory / f"{key}.json"
        if file.exists():
            return Values(**json.loads(file.read_text()))
        try:
            values = Values(dict(make(recording)))
        except PageallocError as error:
            values = Values({}, str(error))
        self._directory.mkdir(parents=True, exist_ok=True)
        partial = file.with_suffix(".partial")
        partial.write_text(json.dumps(asdict(values)))
        partial.rename(file)
        return values

    def _opened(self, run: Run) -> tuple[Recording, str]:
        if self._open is None or self._open[0] != run.path:
            self.forget()
            recording = run.open()
            self._open = (run.path, recording, recording_digest(recording))
        return self._open[1], self._open[2]


def check_same_machine(off: Recording, on: Recording) -> None:
    """Refuse two recordings of different machines.

    Raises:
        RecordingError: they differ in CPUs or memory.
    """
    machines = [recorded_machine(recording) for recording in (off, on)]
    memory = [[(zone.name, zone.present) for zone in each.zones] for each in machines]
    if machines[0].nr_cpus != machines[1].nr_cpus or memory[0] != memory[1]:
        raise RecordingError(
            on.name,
            f"is of another machine than {off.name}, so the two are no pair",
            todo="give two recordings of one machine and workload",
        )


def changes_table(
    pairs: Sequence[Pair], runs: Sequence[Run], known: KnownValues, report: Report | None = None
) -> pd.DataFrame:
    """What was measured and predicted of every pair, quantity and mode of reclaim.

    The predicted change is that between two replays of one recording of the earlier side, under
    the later side's policy and under its own, averaged over that side's recordings. Nothing of the
    later side is read for it.

    Args:
        pairs: sides that differ in one setting.
        runs: of all sides; failed ones are left out.
        known: values made before.
        report: told the share done.

    Returns:
        pair, axis, metric, unit, mode; runs_before, runs_after; before, after: measured means;
        change with low and high; predicted with predicted_lowest and predicted_highest; modelled;
        verdict; inside: the prediction lies in the interval; note: why there is no prediction.

    Raises:
        RecordingError: a recording cannot be read, or those of a pair are of different machines.
    """
    usable = [run for run in runs if run.status != FAILED]
    measured: dict[str, Values] = {}
    predicted: dict[tuple[str, str, str], Values] = {}
    for place, run in enumerate(usable):
        measured[run.name] = known.measured(run)
        mine = [pair for pair in pairs if pair.before.letter == run.side and pair.modelled]
        for mode in MODES if mine else ():
            own = known.predicted(run, mode, Policy(), "")
            for pair in mine:
                other = known.predicted(run, mode, pair.policy, pair.rules)
                predicted[pair.title, mode, run.name] = own.difference(other)
        if report is not None:
            report((place + 1) / len(usable))
    known.forget()
    rows: list[dict[str, object]] = []
    for pair in pairs:
        before, after = (
            [run for run in usable if run.side == side.letter] for side in (pair.before, pair.after)
        )
        if not before or not after:
            continue
        if pair.axis != KERNEL and Path(after[0].path).exists():
            check_same_machine(before[0].open(), after[0].open())
        sides = [[measured[run.name] for run in each] for each in (before, after)]
        for mode in MODES:
            changes = [predicted.get((pair.title, mode, run.name), _UNCHANGED) for run in before]
            rows += _pair_rows(pair, mode, sides, changes)
    table = pd.DataFrame(rows)
    return table if table.empty else table[_tells(table)].reset_index(drop=True)


_UNCHANGED = Values(dict.fromkeys(WHOLE_UNITS, 0.0))
"""What is predicted where nothing stands for a setting."""


def _pair_rows(
    pair: Pair, mode: str, sides: Sequence[Sequence[Values]], changes: Sequence[Values]
) -> Iterator[dict[str, object]]:
    for metric, unit in WHOLE_UNITS.items():
        before, after = (_each(values, metric) for values in sides)
        yield {
            "pair": pair.title,
            "axis": pair.axis,
            "metric": metric,
            "unit": unit,
            "mode": mode,
            **_measured_and_predicted(before, after, _each(changes, metric)),
            "modelled": pair.modelled,
            "note": next((each.refused for each in changes if each.refused), ""),
        }


def _each(values: Sequence[Values], metric: str) -> list[float]:
    return [each.quantities.get(metric, float("nan")) for each in values]


def _measured_and_predicted(
    before: Sequence[float], after: Sequence[float], predicted: Sequence[float]
) -> dict[str, object]:
    low, high = change_interval(before, after)
    known = [value for value in predicted if not np.isnan(value)]
    mean = float(np.mean(known)) if known else float("nan")
    means = [float(pd.Series(each, dtype=float).mean()) for each in (before, after)]
    return {
        "runs_before": len(before),
        "runs_after": len(after),
        "before": means[0],
        "after": means[1],
        "change": means[1] - means[0],
        "low": low,
        "high": high,
        "predicted": mean,
        "predicted_lowest": min(known, default=float("nan")),
        "predicted_highest": max(known, default=float("nan")),
        "verdict": verdict(mean, low, high),
        "inside": bool(low <= mean <= high),
    }


def _tells(table: pd.DataFrame) -> pd.Series:
    """Rows of quantities that were measured, and that are not 0 everywhere."""
    moved = (table[["before", "after", "predicted"]].fillna(0.0) != 0).any(axis=1)
    kept = table["change"].notna() & moved
    return kept.groupby([table["pair"], table["metric"]]).transform("any")


def score_table(changes: pd.DataFrame) -> pd.DataFrame:
    """How often predictions were right, by mode of reclaim, beside the model that nothing changes.

    Args:
        changes: as `changes_table` returns it.

    Returns:
        model; measurable: quantities of pairs with a measurable effect; predicted, right, wrong and
        not_predicted among them; quiet: predicted ones without; quiet_inside: of these, predictions
        within the interval.
    """
    rows = [_score(mode, changes[changes["mode"] == mode]) for mode in MODES]
    null = changes[changes["mode"] == MODES[0]].assign(predicted=0.0)
    verdicts = [verdict(0.0, row.low, row.high) for row in null.itertuples()]
    inside = (null["low"] <= 0) & (null["high"] >= 0)
    rows.append(_score(NULL, null.assign(verdict=verdicts, inside=inside)))
    return pd.DataFrame(rows)


def _score(model: str, rows: pd.DataFrame) -> dict[str, object]:
    counts = rows["verdict"].value_counts()
    quiet = (rows["verdict"] == NO_EFFECT) & rows["predicted"].notna()
    return {
        "model": model,
        "measurable": int(rows["verdict"].isin(EFFECTS).sum()),
        "predicted": int(counts.get(WITHIN, 0)),
        "right": int(counts.get(RIGHT, 0)),
        "wrong": int(counts.get(WRONG, 0)),
        "not_predicted": int(counts.get(NOT_PREDICTED, 0)),
        "quiet": int(quiet.sum()),
        "quiet_inside": int((rows["inside"] & quiet).sum()),
    }
