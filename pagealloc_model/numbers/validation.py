"""Predicted against measured under the recorded policy, each error beside a null model's."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from math import ceil
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from pagealloc_model.base import progress_bar
from pagealloc_model.base.arrays import bin_width_ns
from pagealloc_model.base.progress_bar import Report
from pagealloc_model.base.table import Table
from pagealloc_model.base.text import WIDTH, count_of, paragraph, percent
from pagealloc_model.measured.measured import Measured, measure
from pagealloc_model.measured.rules import RuleEvidence, checked, rule_notes
from pagealloc_model.measured.stream import allocator_stream
from pagealloc_model.numbers.errors import (
    Scored,
    empty_attempt_notes,
    error_table,
    model_errors,
    records,
)
from pagealloc_model.numbers.join import PREDICTED, ModelError, distance
from pagealloc_model.numbers.loss_windows import (
    LossWindow,
    loss_windows,
    recording_between,
    refuse_if_lossy,
)
from pagealloc_model.numbers.values import States, Zones, was_recorded
from pagealloc_model.numbers.vocabulary import SCORED, SERIES_WORDS, SHARES, TOTAL_WORDS
from pagealloc_model.policy.policy import Assumptions
from pagealloc_model.predicted.growth import size_changes
from pagealloc_model.predicted.prepared import VALIDATION_BYTES, refuse_large, replayed_machine
from pagealloc_model.predicted.replay import Replay, replay
from pagealloc_model.predicted.tables import LITERAL
from pagealloc_model.recording.provenance import long_gap
from pagealloc_model.recording.recorded_machine import (
    missing_topology,
    start_snapshots,
)
from pagealloc_model.recording.trace import tracepoints as tp
from pagealloc_model.recording.trace.columns import Event

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
"""A prediction is near if it is off by at most this share of what was measured."""
_NAMED, _MISSES_NAMED = 4, 2
"""Quantities that the line names: right ones, and those that are most off."""
NULL_MODELS = "(nothing changes, no per-CPU lists)"
_SCORE_COLUMNS = ("quantity", "metric", "measured", "predicted", "error", "null_error", "verdict")


def scores(errors: pd.DataFrame, snapshots: pd.DataFrame) -> pd.DataFrame:
    """Score each quantity of the whole machine once; imposed rows are left out.

    Of a series the error is its mean distance over the snapshots, of a total that at the end, both
    in shares of what was measured: infinite where nothing was measured and something predicted.

    Args:
        errors: of a validation: totals come from there.
        snapshots: of a validation: states come from there.

    Returns:
        quantity, metric, measured, predicted, error, null_error, verdict.
    """
    scored = []
    for metric, words in SERIES_WORDS.items():
        series = snapshots[snapshots["metric"] == metric]
        series = series[series["scope"] == "all"] if metric in SHARES else series
        sides = series.groupby("time_s")[["measured", "predicted", "null"]].sum()
        if len(sides):
            measured, predicted, null = (sides[name].to_numpy(float) for name in sides)
            distances = [distance(side, measured) for side in (predicted, null)]
            means = float(measured.mean()), float(predicted.mean())
            scored.append((words, metric, *means, *distances))
    known = (errors["kind"] == PREDICTED) & errors[["measured", "predicted"]].notna().all(axis=1)
    totals = errors[known].set_index(["metric", "scope"])
    for key, words in TOTAL_WORDS.items():
        if key in totals.index:
            real, model, null = totals.loc[key, ["measured", "predicted", "null"]].astype(float)
            scored.append((words, key[0], real, model, abs(model - real), abs(null - real)))
    rows = []
    for words, metric, measured, predicted, *distances in scored:
        if measured or predicted:
            errors_of = [
                distance / measured if measured else (np.inf if distance else 0.0)
                for distance in distances
            ]
            verdict = judgement_of(measured, predicted, *errors_of)
            rows.append((words, metric, measured, predicted, *errors_of, verdict))
    return pd.DataFrame(rows, columns=list(_SCORE_COLUMNS))


def judgement_of(measured: float, predicted: float, error: float, null_error: float) -> str:
    """Say how right one prediction is."""
    if error <= _NEAR:
        worse = error and error >= null_error
        return f"within {max(ceil(100 * error), 1)} %" + (", null no worse" if worse else "")
    if not measured or not predicted:
        return "none predicted" if measured else "none measured"
    ratio = predicted / measured
    if ratio >= 2:
        return f"{ratio:,.0f} times too many"
    if ratio <= 0.5:
        return f"{1 / ratio:,.0f} times too few"
    return f"off by {100 * error:.0f} %"


def headline(table: pd.DataFrame) -> str:
    """One line of verdict on `scores`: what is predicted, what is not, and how many of all."""
    if table.empty:
        return "nothing that was recorded can be held to a prediction"
    near = table["error"] <= _NEAR
    right = table[near & ((table["error"] < table["null_error"]) | (table["error"] == 0))]
    parts = [f"{row.quantity} {row.verdict}" for row in right.head(_NAMED).itertuples()]
    missed = table[~near].sort_values("error", ascending=False, kind="stable")
    misses = [f"{row.quantity} ({row.verdict})" for row in missed.head(_MISSES_NAMED).itertuples()]
    said = [f"the model predicts {', '.join(parts) or 'nothing better than a null model does'}"]
    said += [f"furthest off: {', '.join(misses)}"] if misses else []
    return "; ".join([*said, f"{score_words(table)} {NULL_MODELS}"])


def score_words(table: pd.DataFrame) -> str:
    """Count quantities of `scores` near what was measured, and how many a null model has there."""
    near, null = (int((table[name] <= _NEAR).sum()) for name in ("error", "null_error"))
    return (
        f"{near} of {count_of(len(table), 'quantity', 'quantities')} within {100 * _NEAR:.0f} % of "
        f"what was measured, against {null} for the null model"
    )


@dataclass(frozen=True, kw_only=True)
class SeedRange:
    """One quantity over seeds.

    Attributes:
        quantity: in words.
        metric: of the error table.
        measured: what the kernel did; NaN where the recording does not show it.
        values: one a seed.
    """

    quantity: str
    metric: str
    measured: float
    values: tuple[float, ...]

    @property
    def below(self) -> int:
        """Number of seeds that give less than was measured."""
        return sum(value < self.measured for value in self.values)

    @property
    def inside(self) -> bool:
        """True if the kernel's number lies in the range."""
        return min(self.values) <= self.measured <= max(self.values)

    def __str__(self) -> str:
        count = len(self.values)
        low, middle, high = (float(f(self.values)) for f in (min, np.median, max))
        line = f"Over {count} seeds, {self.quantity}: "
        line += f"{low:,.0f} to {high:,.0f}, median {middle:,.0f}" if low < high else f"{low:,.0f}"
        if np.isnan(self.measured):
            return f"{line}; not measured"
        where = f"in the range, {self.below} of {count} below" if self.inside else "outside"
        return f"{line}; measured {self.measured:,.0f}, {where}"

    def to_dict(self) -> dict[str, object]:
        """Content that `pagealloc validate --json` prints of it."""
        measured = None if np.isnan(self.measured) else self.measured
        more = {"values": list(self.values), "inside": self.inside, "below": self.below}
        return asdict(self) | {"measured": measured} | more


_CHAOTIC = ("highatomic_blocks", "watermark_boost", "extfrag_events")


def seed_ranges(
    recording: Recording, measured: Measured, first: Replay, scored: np.ndarray, seeds: int
) -> tuple[SeedRange, ...]:
    """Ranges of chaotic quantities: replays under further seeds, side by side on the cores."""
    chaotic = [number for number in SCORED if number.name in _CHAOTIC]

    def numbers(tables: Measured | Replay) -> tuple[float, ...]:
        states = States.of(tables, first.machine).at(scored)
        together = Zones(states=states, block_order=first.machine.counted_order)
        made_from = (together, together, tables.fallbacks)
        pairs = zip(chaotic, made_from, strict=True)
        return tuple(next(number.quantities(table)).value for number, table in pairs)

    def again(seed: int) -> tuple[float, ...]:
        options = {"rules": first.rules, "assumptions": first.assumptions, "seed": seed}
        return numbers(
            replay(recording, first.asked_policy, **options, progress=progress_bar.unreported)
        )

    real = list(numbers(measured))
    if not was_recorded(recording, Event.EXTFRAG):
        real[-1] = float("nan")
    more = range(first.seed + 1, first.seed + seeds)
    with ThreadPoolExecutor(min(seeds, os.cpu_count() or 1)) as threads:
        by_seed = [numbers(first), *threads.map(again, more)]
    ranges = zip(chaotic, real, zip(*by_seed, strict=True), strict=True)
    return tuple(
        SeedRange(
            quantity=number.verdict[1] + " at the end" * (number.how == "last"),
            metric=number.name,
            measured=kernel,
            values=values,
        )
        for number, kernel, values in ranges
        if not np.isnan(values).any() and (any(values) or kernel > 0)
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class Validation:
    """Distance of a prediction from what the machine did.

    Attributes:
        recording: the recording.
        replay: the prediction under the recorded policy.
        measured: the recording's own tables.
        errors: metric, scope, measured, predicted, error, unit, null_model, null, null_error,
            kind. `error` is relative to `measured` unless the unit says otherwise.
        snapshots: time_s, metric, scope, measured, predicted, null: every scored snapshot, in each
            zone where anything changed; of shares also in "all" of these together.
        numbers: the same, and what comparisons alone look up.
        rule_evidence: what each rule rests on, held against what the allocator did.
        notes: what limits the comparison, and what was imposed.
        not_modelled: what the model leaves out.
        scored_from_ns: the start snapshot, which the null model keeps; later ones are scored.
        seeds: chaotic quantities as ranges over seeds, if asked for.
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
    seeds: tuple[SeedRange, ...] = ()

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
        return scores(self.errors, self.snapshots)

    @property
    def headline(self) -> str:
        """One line of verdict."""
        return f"{self.recording.name}: {headline(self.scores)}"

    def over_seeds(self, seeds: int) -> Validation:
        """The same with chaotic quantities as ranges over so many seeds."""
        if seeds < 2:
            return self
        end = self.recording.trace.demand_span_ns[1]
        times = np.array([snapshot.time_ns for snapshot in self.recording.dated_snapshots])
        scored = times[(times > self.scored_from_ns) & (times <= end)]
        ranges = seed_ranges(self.recording, self.measured, self.replay, scored, seeds)
        return replace(self, seeds=ranges)

    def to_text(self, width: int = WIDTH, asides: Sequence[str] = ()) -> str:
        """The verdict, the mode of reclaim, the scored quantities, and ranges over seeds.

        Args:
            width: characters per line at most.
            asides: said below these.
        """
        rows = []
        for row in self.scores.itertuples():
            null = percent(row.null_error).lstrip("+") if row.null_error <= 10 else "> 1000%"
            sides = (row.measured, row.predicted)
            shown = sides if row.metric in SHARES else map(round, sides)
            rows.append(("", str(row.quantity), *shown, str(row.verdict), null))
        titles = ("", "quantity", "measured", "predicted", "verdict", "null error")
        ranges = [paragraph(f"{spread}.", width=width) for spread in self.seeds]
        above = (f"{self.headline}.", str(self.replay.reclaim), *asides)
        return "\n\n".join(
            [
                *(paragraph(line, width=width) for line in above),
                Table(titles, rows).to_text(width),
                *(["\n".join(ranges)] if ranges else []),
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
            "scores": records(self.scores.replace({np.inf: np.nan})),
            "seeds": [seed.to_dict() for seed in self.seeds],
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
    _, start = start_snapshots(recording)
    scored = Scored.of(measured, predicted, start_ns=start.time_ns, end_ns=last)
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
    errors = model_errors(recording, predicted, measured, scored)
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
        errors=error_table(errors),
        snapshots=scored.at_snapshots(),
        numbers=errors,
        rule_evidence=evidence,
        notes=tuple(dict.fromkeys(notes)),
        not_modelled=tuple(not_modelled),
        scored_from_ns=start.time_ns,
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
