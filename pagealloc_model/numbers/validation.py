"""Predicted against measured under the recorded policy, each error beside a null model's."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from pagealloc_model.base import progress_bar
from pagealloc_model.base.arrays import bin_width_ns
from pagealloc_model.base.progress_bar import Report
from pagealloc_model.base.table import Table
from pagealloc_model.base.text import WIDTH, count_of, paragraph
from pagealloc_model.measured.measured import Measured, measure
from pagealloc_model.measured.rules import RuleEvidence, checked, rule_notes
from pagealloc_model.measured.stream import allocator_stream
from pagealloc_model.numbers.errors import (
    FARTHER,
    NEARER,
    against_null,
    empty_attempt_notes,
    error_table,
    held_to,
    records,
)
from pagealloc_model.numbers.join import PREDICTED, ModelError
from pagealloc_model.numbers.loss_windows import (
    LossWindow,
    loss_windows,
    recording_between,
    refuse_if_lossy,
)
from pagealloc_model.numbers.result_tables import FEW_MEASURED, error_cell, is_few, null_cell
from pagealloc_model.numbers.vocabulary import SCORED, SHARES
from pagealloc_model.policy.policy import Assumptions
from pagealloc_model.predicted.growth import size_changes
from pagealloc_model.predicted.prepared import VALIDATION_BYTES, refuse_large, replayed_machine
from pagealloc_model.predicted.reclaim_mode import mode_and_why
from pagealloc_model.predicted.replay import Replay, replay
from pagealloc_model.predicted.tables import LITERAL
from pagealloc_model.recording.provenance import long_gap
from pagealloc_model.recording.recorded_machine import missing_topology
from pagealloc_model.recording.trace import tracepoints as tp

if TYPE_CHECKING:
    from pagealloc_model.diagnosis.budget import Budget
    from pagealloc_model.policy.kernel_rules import KernelRules
    from pagealloc_model.predicted.demand.demand import Demand
    from pagealloc_model.recording.recording import Recording


_DEMAND = "imposed from the recording: what is asked for and freed, when and on which CPU; "
_GROWTH = "memory that the machine got later, where events first touch it"
_DECIDED = (
    "predicted: which page serves a request, from which zone and list; refills, drains, decay and "
    "tuning of per-CPU lists; splits, merges and placement in the buddy; fallbacks and watermark "
    "boosts; reserving and releasing highatomic blocks"
)
IMPOSED = {
    "literal": (
        f"{_DEMAND}what reclaim "
        "frees, when kswapd runs, which requests reclaim directly, from when to when; requests "
        "that failed; how many free pages compaction took, when and in which zone, where it freed "
        "what it moved, when it drained lists, and which requests it captured a page for; when "
        f"vmstat ticks ran, if recorded; {_GROWTH}",
        _DECIDED,
    ),
    "elastic": (
        f"{_DEMAND}atomic requests that failed; when vmstat ticks ran, if recorded; {_GROWTH}",
        f"{_DECIDED}; what kswapd and direct reclaim free, what compaction moves, and when",
    ),
}
NOT_MODELLED = (
    "failures of the per-CPU list's trylock: an interrupt that hits a list in use goes to the "
    "buddy directly (S4.10); demand shows it within a folio batch, not within a refill or a drain",
    "pages that change hands without an event: bulk allocation, contiguous ranges (T9); those "
    "freed later appear as hidden allocations in the counts above",
    "what waiting for zone->lock changes: holds and waits are computed from the replay, with costs "
    "fitted to this recording or assumed, and do not act back on what is asked for and freed",
    "memory that leaves the machine: what is taken offline or poisoned leaves no event; what a "
    "balloon takes is an allocation like others",
    "tails that alloc_pages_exact gives back go to a free list's head, not its tail (T9)",
)


_NEAR = 0.25
"""A prediction is near if it is off by at most this much, by its row of the error table."""
_NAMED = 2
"""Quantities that the line names: as many right ones as of those that are most off."""
NULL_MODELS = "(no change; counts as in the first quarter)"
TOO_FEW = "too few"
_SCORE_RULE = (
    "error: of states the mean distance over time in share of the measured range, mean of the "
    "zones; of counts (predicted - measured) / measured, of fewer than ten events as 7/9 (too few: "
    "not scored). no nearer: than the null model."
)
_SCORE_COLUMNS = (
    *("quantity", "metric", "unit", "measured", "predicted", "least", "most"),
    *("error", "null", "null_error", "counted", "verdict"),
)


def scores(errors: pd.DataFrame) -> pd.DataFrame:
    """The rows of an error table that score each quantity of the whole machine once.

    Imposed ones are left out, and what was neither measured nor predicted.

    Args:
        errors: of a validation.

    Returns:
        quantity (in words), metric; unit, measured, predicted, least, most, error, null,
        null_error and counted as in the error table; verdict: as `against_null` has it, or
        `TOO_FEW` where both sides are below `FEW_MEASURED`.
    """
    whole = errors[(errors["scope"] == "all") & (errors["kind"] == PREDICTED)]
    rows = {str(row.metric): row for row in whole.itertuples()}
    scored = []
    for number in SCORED:
        row = rows.get(number.name)
        if row is None or not (row.measured > 0 or row.predicted > 0) or pd.isna(row.measured):
            continue
        words = number.verdict[1] + " at the end" * (number.how == "last")
        is_tiny = is_few(row) and (row.predicted < FEW_MEASURED or row.counted != row.measured)
        verdict = TOO_FEW if is_tiny else against_null(row)
        scored.append((words, *(getattr(row, name) for name in _SCORE_COLUMNS[1:-1]), verdict))
    return pd.DataFrame(scored, columns=list(_SCORE_COLUMNS))


def near(table: pd.DataFrame) -> pd.DataFrame:
    """The rows of `scores` that are near what was measured, and no farther than the null model."""
    size = table["error"].abs()
    return table[(table["verdict"] != TOO_FEW) & (size <= _NEAR) & (table["verdict"] != FARTHER)]


def headline(table: pd.DataFrame) -> str:
    """One line of verdict on `scores`: what is predicted, what is not, and how many of all."""
    counted = table[table["verdict"] != TOO_FEW]
    if counted.empty:
        return "nothing that was recorded can be held to a prediction"
    size = counted["error"].abs()
    right = near(table).head(_NAMED)
    missed = counted.assign(size=size.fillna(np.inf))[~(size <= _NEAR)]
    missed = missed.sort_values("size", ascending=False, kind="stable").head(_NAMED)
    none = "no quantity is near, and nearer than the null model"
    said = [f"errors (null model's): {', '.join(_named(right))}" if len(right) else none]
    said += [f"furthest off: {', '.join(_named(missed))}"] if len(missed) else []
    return "; ".join([*said, f"{score_words(table)} {NULL_MODELS}"])


def _named(rows: pd.DataFrame) -> list[str]:
    return [f"{row.quantity} {error_cell(row)} ({null_cell(row)})" for row in rows.itertuples()]


def score_words(table: pd.DataFrame) -> str:
    """Count quantities of `scores` near what was measured, and how many a null model has there."""
    counted = table[table["verdict"] != TOO_FEW]
    near, null = (int((counted[name].abs() <= _NEAR).sum()) for name in ("error", "null_error"))
    few = len(table) - len(counted)
    left = f" ({few} of fewer than ten events not scored)" if few else ""
    return (
        f"{near} of {count_of(len(counted), 'quantity', 'quantities')} within {100 * _NEAR:.0f} %"
        f"{left}, {null} by the null model"
    )


SEEDS_UNDER_PRESSURE = 5


def usual_seeds(recording: Recording, assumptions: Assumptions | None = None) -> int:
    """Seeds of a validation or a comparison: more than one under pressure.

    Where the recorded kernel reclaimed, or the model decides what is reclaimed, fallbacks, boosts
    and reserved blocks differ widely from seed to seed.
    """
    modes = [mode_and_why(recording, [])[0], assumptions and assumptions.reclaim]
    is_pressed = "elastic" in modes
    return SEEDS_UNDER_PRESSURE if is_pressed else 1


def _over_seeds(tables: Sequence[pd.DataFrame]) -> pd.DataFrame:
    """One error table of several seeds': means, and `least` and `most` of what is predicted.

    A row that a seed lacks stands for what stayed there as it was at the start.
    """
    keys, means = ["metric", "scope"], ["predicted", "error"]
    together = [table.set_index(keys) for table in tables]
    every = pd.concat(together)
    table = every[~every.index.duplicated()].copy()
    whole = [own.reindex(table.index) for own in together]
    for name, still in zip(means, ("null", "null_error"), strict=True):
        values = pd.DataFrame(
            {
                seed: own[name].where(own["kind"].notna(), table[still])
                for seed, own in enumerate(whole)
            }
        ).astype(float)
        table[name] = values.mean(axis=1)
        if name == "predicted":
            table["least"], table["most"] = values.min(axis=1), values.max(axis=1)
    return table.reset_index()


@dataclass(frozen=True, kw_only=True, eq=False)
class Validation:
    """Distance of a prediction from what the machine did.

    Attributes:
        recording: the recording.
        replay: the prediction under the recorded policy.
        measured: the recording's own tables.
        errors: metric, scope, measured, predicted, error, unit, null_model, null, null_error,
            kind, counted, least, most. `error` is relative to `measured` unless the unit says
            otherwise; `counted` is the number of measured events that it rests on.
            Of several seeds `predicted` and `error` are means, and `least` and `most` the range.
        snapshots: time_s, metric, scope, measured, predicted, null: every scored snapshot, in each
            zone where anything changed; of shares also in "all" of these together.
        numbers: the same, and what comparisons alone look up.
        rule_evidence: what each rule rests on, held against what the allocator did.
        notes: what limits the comparison, and what was imposed.
        not_modelled: what the model leaves out.
        scored_from_ns: the start snapshot, which the null model keeps; later ones are scored.
        seeds: that `errors` are means over.
    """

    recording: Recording
    replay: Replay
    measured: Measured
    errors: pd.DataFrame
    snapshots: pd.DataFrame
    numbers: tuple[ModelError, ...]
    rule_evidence: tuple[RuleEvidence, ...]
    notes: tuple[str, ...]
    not_modelled: tuple[str, ...]
    scored_from_ns: int = 0
    seeds: int = 1

    def __repr__(self) -> str:
        return self.to_text()

    def _repr_html_(self) -> str:
        from pagealloc_model.show.html.results import validation_html

        return validation_html(self)

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(self.to_text())

    def budget(self, windows: Sequence[Validation] | None = None) -> Budget:
        """Which truth, imposed, removes which error; see `budget.error_budget`."""
        from pagealloc_model.diagnosis.budget import error_budget

        return error_budget(self, windows)

    @cached_property
    def scores(self) -> pd.DataFrame:
        """Each quantity of the whole machine scored once."""
        return scores(self.errors)

    @property
    def headline(self) -> str:
        """One line of verdict."""
        seeds = f" (mean of {self.seeds} seeds)" if self.seeds > 1 else ""
        return f"{self.recording.name}{seeds}: {headline(self.scores)}"

    def over_seeds(self, seeds: int) -> Validation:
        """The same with errors as means over so many seeds, replayed side by side on the cores."""
        if seeds < 2:
            return self
        recording, first = self.recording, self.replay
        options = {"rules": first.rules, "assumptions": first.assumptions}
        options["progress"] = progress_bar.unreported

        def again(seed: int) -> tuple[ModelError, ...]:
            predicted = replay(recording, first.asked_policy, **options, seed=seed)
            return held_to(recording, predicted, self.measured)[1]

        more = range(first.seed + 1, first.seed + seeds)
        with ThreadPoolExecutor(min(seeds, os.cpu_count() or 1)) as threads:
            return self.with_seeds(list(threads.map(again, more)))

    def with_seeds(self, others: Sequence[Sequence[ModelError]]) -> Validation:
        """The same with errors as means over this seed and others, whose numbers are given."""
        tables = [error_table(numbers) for numbers in (self.numbers, *others)]
        return replace(self, errors=_over_seeds(tables), seeds=len(tables)) if others else self

    def to_text(self, width: int = WIDTH, asides: Sequence[str] = ()) -> str:
        """The verdict, the mode of reclaim, and the scored quantities.

        Args:
            width: characters per line at most.
            asides: said below these.
        """
        rows = []
        for row in self.scores.itertuples():
            sides = (row.measured, row.predicted, *([row.least, row.most] * (self.seeds > 1)))
            shown = sides if row.metric in SHARES else map(round, sides)
            mark = "" if row.verdict == NEARER else str(row.verdict)
            rows.append(("", str(row.quantity), *shown, error_cell(row), null_cell(row), mark))
        titles = ["", "quantity", "measured", "predicted", *(["least", "most"] * (self.seeds > 1))]
        above = (f"{self.headline}.", str(self.replay.reclaim), *asides)
        return "\n\n".join(
            [
                *(paragraph(line, width=width) for line in above),
                Table([*titles, "error", "null error", ""], rows).to_text(width),
                paragraph(_SCORE_RULE, width=width),
            ]
        )

    def to_dict(self) -> dict[str, object]:
        """Content that `pagealloc validate --json` prints."""
        return {
            "recording": self.recording.name,
            "kernel": self.recording.release,
            "rules": self.replay.rules.spelled(),
            "rule_evidence": [rule.to_dict() for rule in self.rule_evidence],
            "policy": self.replay.policy.given(),
            "start_state": list(self.replay.start_state),
            "events": len(self.recording.trace),
            "lost": self.recording.trace.losses.total,
            "orphan_frees": self.replay.divergence["orphan_frees"],
            "divergences": dict(self.replay.divergence),
            "metrics": records(self.errors),
            "headline": self.headline,
            "scores": records(self.scores),
            "seeds": self.seeds,
            "snapshots": records(self.snapshots),
            "notes": list(self.notes),
            "not_modelled": list(self.not_modelled),
        }


def validate(
    recording: Recording,
    *,
    rules: KernelRules | str | None = None,
    assumptions: Assumptions | None = None,
    seed: int = 0,
    predicted: Replay | None = None,
    progress: Callable[[float], None] | None = None,
    cancel: Callable[[], bool] | None = None,
) -> Validation:
    """Replay a recording under its own policy and measure the distance.

    Snapshots that describe the start are input, so only later ones are scored.

    Args:
        recording: an opened recording.
        rules: as `choose_rules` takes them.
        assumptions: as `replay` takes them.
        seed: for choices that nothing in the recording settles.
        predicted: a replay of it under its own policy, such as one by a kernel build's own code,
            in place of the model's; rules, assumptions and seed are then the replay's.
        progress: called with the share done, 0 to 1.
        cancel: asked now and then; True ends the replay with `Cancelled`.

    Raises:
        UsageError: no snapshot, nothing to replay, or too much lost: see `validate_windows`.
        PolicyError: no rules for the recording's kernel.
        RecordingError: a file of the recording cannot be read.
    """
    refuse_if_lossy(recording)
    machine = replayed_machine(recording, assumptions)
    refuse_large(recording, machine, "a validation", VALIDATION_BYTES)
    options = {"rules": rules, "assumptions": assumptions, "seed": seed}
    predicted = predicted or replay(recording, **options, progress=progress, cancel=cancel)
    with progress_bar.progress(
        f"comparing with what {recording.name} shows",
        given=None if progress is None else progress_bar.unreported,
    ) as report:
        return _compared(recording, predicted, report or progress_bar.unreported)


def validate_windows(
    recording: Recording,
    *,
    rules: KernelRules | str | None = None,
    assumptions: Assumptions | None = None,
    seed: int = 0,
) -> tuple[tuple[LossWindow, Validation], ...]:
    """Validate each usable loss-free window by itself; arguments and errors are `validate`'s."""
    options = {"rules": rules, "assumptions": assumptions, "seed": seed}
    return tuple(
        (window, validate(recording_between(recording, window), **options))
        for window in loss_windows(recording)
        if not window.unusable
    )


def _compared(recording: Recording, predicted: Replay, report: Report) -> Validation:
    """Measure, and hold the prediction against it."""
    first, last = recording.trace.demand_span_ns
    assumptions = predicted.assumptions
    # Held, so that measuring, the evidence for rules and the fit of costs share one (see there).
    stream = allocator_stream(recording.trace, with_probes=True)
    measured = measure(recording, bin_ns=bin_width_ns(last - first))
    report(0.6)
    scored, errors = held_to(recording, predicted, measured)
    evidence = checked(recording, predicted.rule_evidence)
    report(0.8)
    notes = [predicted.rules_origin]
    if predicted.kernel:
        notes += [f"replayed by the code of {predicted.kernel}"]
        notes += [f"left to the shim: {call}" for call in predicted.not_covered]
    notes += rule_notes(evidence, predicted.rules)
    notes += [*IMPOSED[assumptions.reclaim], *measured.notes, *recording.missing]
    notes += empty_attempt_notes(predicted, measured)
    notes += recording.trace.notes
    notes += long_gap(recording.trace)
    notes += _compaction_notes(recording, predicted.demand)
    notes += size_changes(recording)
    notes += missing_topology(predicted.machine)
    if not len(scored.times):
        notes.append("no snapshot after the start: nothing to hold free memory and blocks to")
    del stream
    not_modelled = list(NOT_MODELLED)
    if assumptions.reclaim == "literal":
        not_modelled.insert(0, f"THP success, compaction and reclaim: {LITERAL}")
    if assumptions.counters != "lagged":
        not_modelled.append(
            "the lag of NR_FREE_PAGES behind per-CPU deltas: watermark tests read the exact count "
            "(S1.10)"
        )
    return Validation(
        recording=recording,
        replay=predicted,
        measured=measured,
        errors=_over_seeds([error_table(errors)]),
        snapshots=scored.at_snapshots(),
        numbers=errors,
        rule_evidence=evidence,
        notes=tuple(dict.fromkeys(notes)),
        not_modelled=tuple(not_modelled),
        scored_from_ns=scored.start_ns,
    )


def _compaction_notes(recording: Recording, demand: Demand) -> Iterator[str]:
    """Say which pages that compaction took rest on less than the events of its scans."""
    if demand.isolated_unseen:
        yield (
            f"{demand.isolated_unseen} of {demand.isolated_pages} free pages that compaction took "
            "show only in what it moved (mm_compaction_migratepages): the fast search leaves no "
            "event before 6.12, or scans were not recorded"
        )
    first, last = recording.trace.demand_span_ns
    samples = [
        snapshot.vmstat.get("pgmigrate_success")
        for snapshot in recording.dated_snapshots
        if first <= snapshot.time_ns <= last and snapshot.vmstat is not None
    ]
    counts = [count for count in samples if count is not None]
    moved = counts[-1] - counts[0] if counts else 0
    shown = tp.MIGRATEPAGES in recording.trace.tables
    if moved and not demand.isolated_pages and not shown:
        yield (
            f"{count_of(moved, 'page was', 'pages were')} migrated (pgmigrate_success in vmstat) "
            "and the recording has no events of "
            "compaction: up to as many free pages too many are predicted; record compaction:*"
        )
