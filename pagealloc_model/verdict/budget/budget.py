"""An error budget: each error again, with the recording's own truth imposed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from pagealloc_model.base.errors import UsageError
from pagealloc_model.base.text.budget_table import budget_table
from pagealloc_model.base.text.layout import WIDTH
from pagealloc_model.predicted.prepared import Imposed, prepare
from pagealloc_model.predicted.replay import Replay, replay
from pagealloc_model.recording.recorded_machine import start_snapshots
from pagealloc_model.verdict.budget.imposed import TRUTHS, imposed, without_compaction
from pagealloc_model.verdict.error_rows import error_rows
from pagealloc_model.verdict.loss_windows import loss_windows, recording_between
from pagealloc_model.verdict.state_errors import Scored, relative

if TYPE_CHECKING:
    from pagealloc_model.verdict.validation import Validation

METRICS = (
    "refill_pages",
    "refill_transactions",
    "drain_pages",
    "drain_transactions",
    "free_pages",
    "order_distribution_tv",
    "highatomic_blocks",
    "extfrag_events",
    "placement_zone",
)
"""Metrics that the budget covers, in its order."""

FREE, NO_COMPACTION, DECIDED, ALL, WINDOWS = "free", "no comp", "own", "all", "windows"
_ISOLATIONS = "compaction:mm_compaction_isolate_freepages"
_WORTH_RECORDING = 0.1
"""Share of an error that one truth must remove before the table asks for it."""


@dataclass(frozen=True, kw_only=True)
class Run:
    """One run of the budget.

    Attributes:
        name: column of the table.
        meaning: what it is, in words.
        truths: names of what is imposed; none for a prediction.
        forced: requests that the run could serve without watermarks only.
    """

    name: str
    meaning: str
    truths: tuple[str, ...] = ()
    forced: int = 0

    @property
    def is_imposed(self) -> bool:
        """Whether it is no prediction."""
        return bool(self.truths)

    def to_dict(self) -> dict[str, object]:
        """Return what JSON says of it."""
        return {
            "run": self.name,
            "meaning": self.meaning,
            "imposed": self.is_imposed,
            "truths": list(self.truths),
            "forced": self.forced,
        }


@dataclass(frozen=True, kw_only=True, eq=False)
class Budget:
    """What remains of each error when the recording's own truth is imposed.

    Attributes:
        recording: its name.
        runs: the free-running one first.
        errors: metric, scope, unit, run, imposed, measured, value, error, null_error; one row for
            each metric, scope and run. `error` is as the error table has it.
        shares: metric, error, models, decided, missing, windows, most_by: mean absolute error over
            scopes; its part that is the model's; of that, what imposing the kernel's decisions
            removes; the part that is missing information; the error in loss-free windows; the one
            truth that removes most, "" for none.
        absent: what cannot be imposed, by name: why, and what to record.
        record: what to record next time, by the names in `most_by`.
    """

    recording: str
    runs: tuple[Run, ...]
    errors: pd.DataFrame
    shares: pd.DataFrame
    absent: dict[str, str]
    record: dict[str, str]

    def to_text(self, *, width: int = WIDTH) -> str:
        """Return the budget as plain text, no line wider than `width`."""
        meanings = {each.name: each.meaning for each in self.runs}
        return budget_table(
            self.errors, self.shares, meanings, self.absent, self.record, width=width
        )

    def to_dict(self) -> dict[str, object]:
        """Return what `pagealloc validate --budget --json` prints as "budget"."""
        return {
            "runs": [each.to_dict() for each in self.runs],
            "errors": _records(self.errors),
            "shares": _records(self.shares),
            "not_in_this_recording": self.absent,
            "record_next_time": self.record,
        }


def error_budget(validation: Validation, windows: Sequence[Validation] | None = None) -> Budget:
    """Replay a validated recording again and again, each time with more of its truth imposed.

    Only the free-running run, and those in loss-free windows, are predictions. The kernel's
    decisions (zone, drains, boosts) are the model's to predict, so an error that they remove is the
    model's; where pages were at the start is information, and so is what compaction took, which
    is demand: without it is a reference.

    Args:
        validation: of a literal replay by the model.
        windows: validations of the recording's loss-free windows; None validates them here.

    Raises:
        UsageError: the validation is of a kernel build or an elastic replay.
        RecordingError: a file of the recording cannot be read.
    """
    free = validation.replay
    if free.kernel or free.assumptions.reclaim == "elastic":
        raise UsageError("a budget is of a literal replay by the model, not of a kernel build")
    recording = validation.recording
    prepared = prepare(recording, free.rules, free.assumptions, free.seed)
    runs = [Run(name=FREE, meaning="the prediction", forced=free.divergence["forced"])]
    tables = [_chosen(validation.errors)]
    absent = {
        each.name: f"{why}; {each.record}" for each in TRUTHS if (why := each.missing(recording))
    }

    def add(name: str, meaning: str, changed: Imposed, truths: tuple[str, ...]) -> None:
        again = replay(
            recording,
            rules=free.rules,
            assumptions=free.assumptions,
            seed=free.seed,
            imposed=changed,
        )
        runs.append(
            Run(name=name, meaning=meaning, truths=truths, forced=again.divergence["forced"])
        )
        tables.append(_chosen(_errors(validation, again)))

    if prepared.demand.isolated_pages or prepared.demand.captured:
        reference = Imposed(names=(NO_COMPACTION,), prepared=without_compaction(prepared))
        add(NO_COMPACTION, "a prediction without what compaction took: a reference", reference, ())
    elif not _was_recorded(validation, _ISOLATIONS):
        absent["compaction"] = f"no {_ISOLATIONS}; compaction:* events (record --events)"
    told = [each for each in TRUTHS if each.name not in absent]
    for truth in told:
        changed = imposed(recording, prepared, (truth,))
        add(truth.name, f"imposed: {truth.meaning}", changed, (truth.name,))
    decided = tuple(each for each in told if each.decided)
    for name, together in ((DECIDED, decided), (ALL, tuple(told))):
        if len(together) < len(told) or name == ALL:
            words = ", ".join(each.name for each in together)
            changed = imposed(recording, prepared, together)
            add(name, f"imposed: {words}", changed, tuple(each.name for each in together))
    if recording.trace.losses.total:
        windows = _validated_windows(validation) if windows is None else windows
        if windows:
            runs.append(Run(name=WINDOWS, meaning="predictions of the loss-free windows alone"))
            tables.append(_over_windows([_chosen(each.errors) for each in windows]))
        else:
            absent["losses"] = "no loss-free window has two snapshots; larger buffers (--buffer)"
    errors = _together(runs, tables)
    shares = _shares(errors, [each.name for each in told])
    named = {each.name: each.record for each in TRUTHS}
    return Budget(
        recording=recording.name,
        runs=tuple(runs),
        errors=errors,
        shares=shares,
        absent=absent,
        record={name: named[name] for name in dict.fromkeys(shares["most_by"]) if name},
    )


def _errors(validation: Validation, again: Replay) -> pd.DataFrame:
    """The error table of another replay of a validated recording."""
    recording = validation.recording
    _, start = start_snapshots(recording)
    last = recording.trace.demand_span_ns[1]
    scored = Scored.of(validation.measured, again, start_ns=start.time_ns, end_ns=last)
    return error_rows(recording, again, validation.measured, scored)


def _chosen(errors: pd.DataFrame) -> pd.DataFrame:
    """The budget's rows of an error table: of the whole machine and of zones."""
    scope = errors["scope"]
    kept = errors["metric"].isin(METRICS) & (scope != "per time bin")
    kept &= ~scope.str.contains("cpu=")
    return errors[kept].reset_index(drop=True)


def _was_recorded(validation: Validation, name: str) -> bool:
    bundle = validation.recording
    return name in bundle.trace.tables or name in (bundle.meta.get("perf") or ())


def _validated_windows(validation: Validation) -> list[Validation]:
    from pagealloc_model.verdict.validation import validate

    free, recording = validation.replay, validation.recording
    return [
        validate(
            recording_between(recording, window),
            rules=free.rules,
            assumptions=free.assumptions,
            seed=free.seed,
        )
        for window in loss_windows(recording)
        if not window.unusable
    ]


def _over_windows(tables: Sequence[pd.DataFrame]) -> pd.DataFrame:
    """One table of several windows': counts added up, other errors averaged."""
    together = pd.concat(tables, ignore_index=True)
    rows = []
    for (metric, scope), mine in together.groupby(["metric", "scope"], sort=False):
        row = mine.iloc[0].to_dict()
        if metric.startswith(("refill", "drain", "extfrag")):
            row["measured"], row["predicted"] = mine["measured"].sum(), mine["predicted"].sum()
            row["error"] = relative(row["predicted"], row["measured"])
            row["null_error"] = relative(mine["null"].sum(), row["measured"])
        else:
            for name in ("measured", "predicted", "error", "null_error"):
                row[name] = mine[name].abs().mean() if name == "error" else mine[name].mean()
        rows.append({**row, "metric": metric, "scope": scope})
    return pd.DataFrame(rows)


def _together(runs: Sequence[Run], tables: Sequence[pd.DataFrame]) -> pd.DataFrame:
    """The rows of all runs, metric by metric."""
    parts = [
        table.assign(run=run.name, imposed=run.is_imposed, value=table["predicted"])
        for run, table in zip(runs, tables, strict=True)
    ]
    columns = ["metric", "scope", "unit", "run", "imposed", "measured", "value", "error"]
    both = pd.concat(parts, ignore_index=True)[[*columns, "null_error"]]
    order = both["metric"].map({name: place for place, name in enumerate(METRICS)})
    return both.iloc[np.argsort(order.to_numpy(), kind="stable")].reset_index(drop=True)


def _shares(errors: pd.DataFrame, truths: Iterable[str]) -> pd.DataFrame:
    """Whose each metric's error is; see `Budget.shares`."""
    truths = list(truths)
    size = errors["error"].abs()
    means = size.groupby([errors["metric"], errors["run"]], sort=False).mean().unstack()
    rows = []
    for metric in errors["metric"].unique():
        mean = means.loc[metric]
        error, left = float(mean[FREE]), float(mean[ALL])
        decided = error - float(mean.get(DECIDED, left))
        missing = error - decided - left
        removed = {name: error - float(mean[name]) for name in truths}
        most = max(removed, key=lambda name: removed[name], default="")
        worth = most and removed[most] > _WORTH_RECORDING * error
        rows.append(
            {
                "metric": metric,
                "error": error,
                "models": error - missing,
                "decided": decided,
                "missing": missing,
                "windows": float(mean.get(WINDOWS, np.nan)),
                "most_by": most if worth else "",
            }
        )
    return pd.DataFrame(rows)


def _records(frame: pd.DataFrame) -> list[dict[str, object]]:
    return frame.astype(object).where(frame.notna(), None).to_dict(orient="records")
