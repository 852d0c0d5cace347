"""`experiment`: run every side of a plan, and hold what was predicted beside it."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from pagealloc_model.base import progress_bar
from pagealloc_model.base.errors import PageallocError, RecordingError, UsageError
from pagealloc_model.base.files import written_whole
from pagealloc_model.base.progress_bar import Report, unreported
from pagealloc_model.base.text import WIDTH, count_of, paragraph
from pagealloc_model.base.version import __version__
from pagealloc_model.guests.guest import Runner
from pagealloc_model.guests.plan import (
    KERNEL,
    Pair,
    Plan,
    Side,
    find_plan,
    pairs_of,
    read_plan,
    side_lines,
    sides_of,
)
from pagealloc_model.guests.runs import (
    DONE,
    FAILED,
    Run,
    kept_runs,
    make_runs,
    measured_runs,
)
from pagealloc_model.guests.score import MODES, score_table, slope_table
from pagealloc_model.numbers import statistics
from pagealloc_model.numbers.progress import MISSED, TOLD_FROM
from pagealloc_model.numbers.vocabulary import ALLOCSTALL, RUN_UNITS, TIMES
from pagealloc_model.numbers.whole_run import (
    BESIDE,
    beside,
    predicted_numbers,
    recorded_numbers,
    set_by_policy,
)
from pagealloc_model.policy.policy import Assumptions, Policy
from pagealloc_model.predicted.prepared import forget_prepared
from pagealloc_model.predicted.replay import replay
from pagealloc_model.recording.recorded_machine import recorded_machine
from pagealloc_model.recording.recording import Recording
from pagealloc_model.sweeps.records import (
    Record,
    load_record,
    recording_digest,
    result_key,
    store_record,
)

if TYPE_CHECKING:
    import plotly.graph_objects as go

    from pagealloc_model.show.post.message import Message

RUNS_FILE, CHANGES_FILE, TABLE_FILE, POST_FILE = "runs.csv", "changes.csv", "table.txt", "post.txt"
MEASURED_FILE = "measured.json"
"""Beside a run's recording: what was measured in it, for when the recording is deleted."""


def measured_values(
    run: Run, directory: Path, recording: Recording | None = None
) -> Mapping[str, float]:
    """Values measured in a run by name (`RUN_UNITS`), now or before its recording was deleted.

    They are kept in a directory; `recording` is the run's, where it is open.
    """
    file = Path(run.path).parent / MEASURED_FILE
    if run.status == DONE and file.exists() and not Path(run.path).exists():
        return json.loads(file.read_text())
    recording = recording or run.open()
    values, error = _kept_values(recording, directory, {"what": "measured"}, recorded_numbers)
    if error:
        what = f"run {run.name} cannot be measured: {error}"
        raise RecordingError(run.path, what, todo="remove it, and it is made again")
    if run.status == DONE:
        file.write_text(json.dumps(values))
    return values


def predicted_values(
    recording: Recording, directory: Path, mode: str, policy: Policy, rules: str = ""
) -> tuple[Mapping[str, float], str]:
    """Values of a replay by name, or why it was refused.

    Args:
        recording: an opened recording.
        directory: where values are kept.
        mode: of reclaim, one of `MODES`.
        policy: to replay under.
        rules: the same; "" for those that fit the recording.
    """

    def replayed(recording: Recording) -> Mapping[str, float]:
        predicted = replay(
            recording,
            policy,
            rules=rules or None,
            assumptions=Assumptions(reclaim=mode),
            progress=unreported,
        )
        return predicted_numbers(recording, predicted)

    parts = {"what": mode, "policy": policy.given(), "rules": rules}
    return _kept_values(recording, directory, parts, replayed)


def _kept_values(
    recording: Recording,
    directory: Path,
    parts: Mapping[str, object],
    make: Callable[[Recording], Mapping[str, float]],
) -> tuple[Mapping[str, float], str]:
    """Values and the error in place of them, made once for each of what they depend on."""
    key = result_key({"experiment": 7, "recording": recording_digest(recording), **parts})
    record = load_record(directory, key)
    if record is None:
        try:
            record = Record(key=key, metrics=dict(make(recording)))
        except PageallocError as error:
            record = Record(key=key, error=str(error))
        store_record(directory, record)
    return record.metrics, record.error


def _changes_beside(
    metric: str,
    measured: Mapping[str, Mapping[str, float]],
    sides: Sequence[Sequence[Run]],
    predicted: Sequence[tuple[Mapping[str, float], str]],
) -> dict[str, float]:
    """Measured and predicted changes of what stands beside a state's mean."""
    columns = {}
    for what in BESIDE:
        name = beside(what, metric)
        before, after = (
            np.array([measured[run.name].get(name, np.nan) for run in side]).mean()
            for side in sides
        )
        expected = [change[name] for change, _ in predicted if name in change]
        columns[f"{what}_change"] = float(after - before)
        columns[f"{what}_predicted"] = float(np.mean(expected)) if expected else np.nan
    return columns


def changes_table(
    pairs: Sequence[Pair], runs: Sequence[Run], directory: Path, report: Report | None = None
) -> tuple[pd.DataFrame, Mapping[str, Mapping[str, float]]]:
    """Measured and predicted changes of every pair, quantity and mode; measured values by run.

    The predicted change is that between two replays of one recording of the earlier side, under
    the later side's policy and under its own, averaged over that side's recordings. Nothing of the
    later side is read for it. What the later side's policy sets by itself has no row.

    Returns:
        pair, axis, metric, unit, mode; runs_before, runs_after; before, after: measured means;
        change with low and high; predicted with predicted_lowest and predicted_highest; verdict;
        inside: the prediction lies in the interval; modelled; note: why there is no prediction;
        median_change, median_predicted: the same changes of a state's median over the run, and
        pressed_change, pressed_predicted: of its mean over the quarter of places with the fewest
        free pages; NaN of what is no state. Then the values.
    """
    usable = [run for run in runs if run.status != FAILED]
    measured: dict[str, Mapping[str, float]] = {}
    predicted: dict[tuple[str, str, str], tuple[dict[str, float], str]] = {}
    for place, run in enumerate(usable):
        begun = [pair for pair in pairs if pair.before.letter == run.side and pair.modelled]
        recording = run.open() if begun else None
        measured[run.name] = measured_values(run, directory, recording)
        for mode, pair in itertools.product(MODES if recording else (), begun):
            own, refused = predicted_values(recording, directory, mode, Policy())
            other, why = predicted_values(recording, directory, mode, pair.policy, pair.rules)
            change = {name: other[name] - own[name] for name in own if name in other}
            predicted[pair.title, mode, run.name] = change, refused or why
        if recording:
            forget_prepared(recording)
        if report is not None:
            report((place + 1) / len(usable))
    unchanged = dict.fromkeys(RUN_UNITS, 0.0), ""
    rows: list[dict[str, object]] = []
    for pair in pairs:
        before, after = (
            [run for run in usable if run.side == side.letter] for side in (pair.before, pair.after)
        )
        if not before or not after:
            continue
        if pair.axis != KERNEL and Path(after[0].path).exists():
            check_same_machine(before[0].open(), after[0].open())
        for mode in MODES:
            changes = [predicted.get((pair.title, mode, run.name), unchanged) for run in before]
            note = next((refused for _, refused in changes if refused), "")
            for metric, unit in RUN_UNITS.items():
                if metric in set_by_policy(pair.policy):
                    continue
                sides = [
                    [measured[run.name].get(metric, np.nan) for run in own]
                    for own in (before, after)
                ]
                low, high = statistics.change_interval(*sides)
                means = [float(pd.Series(own, dtype=float).mean()) for own in sides]
                known = [change[metric] for change, _ in changes if metric in change]
                known = [value for value in known if not np.isnan(value)]
                mean = float(np.mean(known)) if known else float("nan")
                rows.append(
                    {
                        "pair": pair.title,
                        "axis": pair.axis,
                        "metric": metric,
                        "unit": unit,
                        "mode": mode,
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
                        "verdict": statistics.verdict(mean, low, high),
                        "inside": bool(low <= mean <= high),
                        "modelled": pair.modelled,
                        "note": note,
                        **_changes_beside(metric, measured, (before, after), changes),
                    }
                )
    table = pd.DataFrame(rows)
    if table.empty:
        return table, measured
    # rows of quantities that were measured, and that are not 0 everywhere
    moved = (table[["before", "after", "predicted"]].fillna(0.0) != 0).any(axis=1)
    telling = table["change"].notna() & moved
    by_quantity = telling.groupby([table["pair"], table["metric"]]).transform("any")
    return table[by_quantity].reset_index(drop=True), measured


def check_same_machine(off: Recording, on: Recording) -> None:
    """Refuse two recordings of different machines."""
    machines = [recorded_machine(recording) for recording in (off, on)]
    sizes = [
        (machine.nr_cpus, [(zone.name, zone.present) for zone in machine.zones])
        for machine in machines
    ]
    if sizes[0] != sizes[1]:
        raise RecordingError(
            on.name,
            f"is of another machine than {off.name}, so the two are no pair",
            todo="give two recordings of one machine and workload",
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class ExperimentResult:
    """Runs of a plan, and what came of the predictions.

    Attributes:
        sides: kernels and values, by letter.
        runs: side, repeat, status, path, seconds, error and console, one row a run; `TIMES` and
            `ALLOCSTALL` of `numbers.vocabulary`, as far as some run measured them; likewise the
            share of "missed instants" of its reader.
        changes: one row for each pair, quantity and mode of reclaim; see `changes_table`.
    """

    plan: Plan
    sides: tuple[Side, ...]
    runs: pd.DataFrame
    changes: pd.DataFrame

    def _repr_html_(self) -> str:
        from pagealloc_model.show.html.results import experiment_html

        return experiment_html(self)

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(self.to_text())

    @cached_property
    def score(self) -> pd.DataFrame:
        """Predictions that were right, beside the model that nothing changes."""
        return score_table(self.changes)

    @cached_property
    def slopes(self) -> pd.DataFrame:
        """Size of measured changes by that of predicted ones, by quantity, of elastic replays."""
        return slope_table(self.changes)

    @property
    def failed(self) -> pd.DataFrame:
        """The runs that left no recording."""
        return self.runs[self.runs["status"] == FAILED]

    @property
    def irregular(self) -> tuple[str, ...]:
        """A line on runs whose reader missed a fifth of its instants or more; none without."""
        runs = self.runs[self.runs[MISSED] >= TOLD_FROM] if MISSED in self.runs else self.failed[:0]
        if runs.empty:
            return ()
        named = ", ".join(f"{row.side}{row.repeat}" for row in runs.itertuples())
        share = f"{runs[MISSED].min():.0%} to {runs[MISSED].max():.0%}"
        return (
            f"Readers of state files missed {share} of their instants in {named}: what is said of "
            "free pages, blocks and lists there rests on few instants.",
        )

    def to_pandas(self) -> pd.DataFrame:
        """A copy of the table of changes."""
        return self.changes.copy()

    def to_text(self, width: int = WIDTH) -> str:
        """The table of changes and the score, as text for a mail."""
        from pagealloc_model.show.post.tables import experiment_table

        table = experiment_table(self.changes, self.score, width=width)
        return "\n\n".join([table, *(paragraph(line, width=width) for line in self.irregular)])

    def figure(self) -> go.Figure:
        """Predicted against measured change, a point a quantity, both in widths of the interval."""
        from pagealloc_model.show.figures import predicted_changes

        return predicted_changes(self.changes)

    def message(self) -> Message:
        """The whole as a message for a mailing list."""
        from pagealloc_model.show.post.tables import experiment_message

        plan, guest = self.plan, self.plan.guest
        counts = self.runs[self.runs["status"] != FAILED].groupby("side").size()
        runs = ", ".join(f"{letter} {count}" for letter, count in counts.items()) or "none"
        lines = side_lines(self.sides)
        lines.append(f"Runs by side: {runs}. Workload: {plan.workload.name} (seed {plan.seed}).")
        if plan.kernels:
            lines.append(f"Guests of {guest.memory} and {count_of(guest.cpus, 'CPU')}.")
        lines += self.irregular
        lines.append(f"Made with pagealloc_model {__version__}.")
        results = self.changes, self.failed, self.score
        return experiment_message(plan.name, lines, *results)


def experiment(
    plan: Plan | str | Path,
    directory: str | Path,
    *,
    measured: Mapping[str, Sequence[str | Path]] | None = None,
    make: bool = True,
    runner: Runner | None = None,
    progress: Callable[[float], None] | None = None,
) -> ExperimentResult:
    """Run every side of a plan, and hold each prediction against what was measured.

    A run that is in the directory already is not made again, unless it failed or something that
    it was made from differs. Runs that fail are rows of the result with the console's last lines.

    Args:
        plan: or its TOML file, or the name of a shipped one.
        directory: for runs and results; it is made.
        measured: recordings that take the place of a side's guests, by the side's letter: A is the
            side with every first value, then B, C, ... in the plan's order.
        make: False makes no runs, but takes all finished ones that are in the directory.
        runner: boots guests; None does it with virtme-ng.
        progress: called with the share done, 0 to 1; None shows a bar where one is seen.

    Raises:
        PlanError: the plan cannot be used.
        UsageError: something that runs need is missing, or `measured` names no side.
        RecordingError: a recording cannot be read, or two of a pair are of different machines.
    """
    plan = plan if isinstance(plan, Plan) else read_plan(find_plan(plan))
    directory = Path(directory).absolute()
    sides = sides_of(plan)
    runs = measured_runs(sides, measured or {})
    to_run = [side for side in sides if side.letter not in (measured or {})]
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"{directory}: cannot be made ({error.strerror})") from None
    if to_run and not make:
        runs += kept_runs(to_run, directory)
    elif to_run:
        part, total = progress_bar.part_of(progress, 0.0, 0.8), len(to_run) * plan.repeats
        with progress_bar.progress(f"running {plan.name}", total, "runs", part) as report:
            runs += make_runs(plan, to_run, directory, runner, report)
    part = progress_bar.part_of(progress, 0.8, 1.0)
    with progress_bar.progress(f"predicting {plan.name}", len(runs), "runs", part) as report:
        changes, values = changes_table(pairs_of(plan, sides), runs, directory / "values", report)
    choices = {side.letter: side.choices for side in sides}
    rows = pd.DataFrame([{**asdict(run), **choices[run.side]} for run in runs])
    for name in (*TIMES, ALLOCSTALL, MISSED):
        column = [values.get(run.name, {}).get(name, np.nan) for run in runs]
        if not np.isnan(column).all():
            rows[name] = column
    result = ExperimentResult(
        plan=plan, sides=sides, runs=rows.drop(columns="identity"), changes=changes
    )
    texts = {RUNS_FILE: result.runs.to_csv(index=False)}
    if not changes.empty:
        texts[CHANGES_FILE] = changes.to_csv(index=False)
        texts[TABLE_FILE] = result.to_text()
        texts[POST_FILE] = result.message().to_text()
    for name, text in texts.items():
        with written_whole(directory / name) as partial:
            partial.write_text(text, encoding="utf-8")
    return result
