"""Two policies over the same demand: what changes, and how far each change can be believed."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import product
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from pagealloc_model.allocator.pcp import high_limits
from pagealloc_model.allocator.pressure_layout import ANON
from pagealloc_model.allocator.sites import EMPTY_SITES
from pagealloc_model.base import progress_bar
from pagealloc_model.base.arrays import bin_edges
from pagealloc_model.base.errors import PageallocError, UsageError
from pagealloc_model.base.table import Table
from pagealloc_model.base.text import TERMINAL, count_of, paragraph
from pagealloc_model.base.version import __version__
from pagealloc_model.measured.folios import CLASS_NAMES
from pagealloc_model.numbers import vocabulary as voc
from pagealloc_model.numbers.errors import held_to, hold_errors, records
from pagealloc_model.numbers.join import ModelError, joined
from pagealloc_model.numbers.result_tables import (
    FEW,
    Footer,
    Style,
    comparison_table,
    error_cell,
    in_measure,
    judgement,
    measures,
    null_cell,
    row_words,
)
from pagealloc_model.numbers.statistics import LEVEL, paired_p, scaled, unscaled, widths
from pagealloc_model.numbers.validation import Validation, validate
from pagealloc_model.numbers.values import (
    WINDOWS,
    Holds,
    Quantity,
    States,
    unknown,
    windows_of,
)
from pagealloc_model.policy.policy import Assumptions, Policy, policy_settings
from pagealloc_model.policy.policy_fields import Setting
from pagealloc_model.predicted.reclaim_mode import BY_RECLAIM
from pagealloc_model.predicted.replay import Replay, replay
from pagealloc_model.predicted.tables import LITERAL
from pagealloc_model.recording.machine import PMD_ORDER
from pagealloc_model.recording.provenance import LEVELS, REFUSED, USABLE, worst
from pagealloc_model.recording.recorded_machine import recorded_settings
from pagealloc_model.recording.recording import shipped_recordings_directory
from pagealloc_model.recording.trace.columns import Event

if TYPE_CHECKING:
    from pagealloc_model.policy.kernel_rules import KernelRules
    from pagealloc_model.recording.recording import Recording
    from pagealloc_model.recording.trace.columns import Trace


def recorded_values(base: Replay) -> dict[str, Setting]:
    """Policy fields whose recorded value is known: from sysctls, rules and per-CPU lists.

    Args:
        base: a replay under the recorded policy.
    """
    rules, machine = base.rules, base.machine
    values: dict[str, Setting] = recorded_settings(base.recording) | {
        "pcp_free_batched": rules.free_batched,
        "pcp_decay_batched": rules.decay_batched,
        "highatomic_from_pcp": rules.highatomic_from_pcp,
        "pageblock_order": machine.counted_order,
    }
    with_lists = [zone for zone in machine.zones if zone.pagesets]
    if with_lists:
        # Of the largest zone; computed where the kernel does not print them.
        zone = max(with_lists, key=lambda zone: zone.managed)
        batch = zone.pagesets[0].batch
        cpus = machine.cpus_of_node(machine.nodes.index(zone.node)) or machine.nr_cpus
        fraction = machine.percpu_pagelist_high_fraction
        low, high = high_limits(zone, batch, cpus, Policy(), rules, fraction)
        values |= {"pcp_batch": batch, "pcp_high_min": low, "pcp_high_max": high}
    return values | base.policy.given()


Key = tuple[str, str]
"""Metric and scope of a comparison's row."""


@dataclass(frozen=True, kw_only=True)
class ModelErrors:
    """The errors of one recording.

    Attributes:
        by_row: of every metric that the recording shows.
        refused: why no comparison on it can be believed, "" if it may.
        dispersion: variance over mean of recorded fallbacks by window, 1 or more.
    """

    by_row: Mapping[Key, ModelError] = field(default_factory=dict)
    refused: str = ""
    dispersion: float = 1.0


_NOT_CHECKED = tuple(f"{site}_transactions" for site in EMPTY_SITES)
"""Attempts that found no page: few recordings show them, and no comparison is held to them."""
NOT_VALIDATED = ModelErrors(
    refused="the model was not held to the recording; validated() does so, with one more replay"
)


def model_errors(
    recording: Recording,
    rules: KernelRules | str | None = None,
    assumptions: Assumptions | None = None,
    predicted: Replay | None = None,
) -> ModelErrors:
    """Errors of the model on a recording; it is validated once, and they are kept with it.

    Args:
        recording: validated.
        rules: of the model.
        assumptions: of the model.
        predicted: its replay under these and its own policy, if there is one already.
    """

    def find() -> ModelErrors:
        options = {"rules": rules, "assumptions": assumptions, "predicted": predicted}
        try:
            return errors_of(validate(recording, **options))
        except PageallocError as error:
            return ModelErrors(refused=f"it cannot be validated: {error}")

    return recording.remembered(_key(rules, assumptions), find)


def _key(rules: KernelRules | str | None, assumptions: Assumptions | None) -> tuple[object, ...]:
    return "model errors", rules, assumptions or Assumptions()


def errors_of(validation: Validation) -> ModelErrors:
    """Errors of the model that a validation found."""
    checks = validation.replay.checks
    refused = [str(check) for check in checks if check.level == REFUSED]
    sides = (validation.recording, validation.replay, validation.measured)
    return ModelErrors(
        by_row=_by_row((*validation.numbers, *hold_errors(*sides))),
        refused="; ".join(refused) if worst(checks) == REFUSED else "",
        dispersion=_dispersion(validation.recording.trace),
    )


def _by_row(errors: Iterable[ModelError]) -> dict[Key, ModelError]:
    return {
        (error.metric, error.scope): error
        for error in errors
        if error.is_known and error.metric not in _NOT_CHECKED
    }


def _dispersion(trace: Trace) -> float:
    times = trace.time_ns[trace.event == Event.EXTFRAG]
    counts, _ = np.histogram(times, WINDOWS, range=trace.demand_span_ns)
    return max(float(counts.var(ddof=1) / counts.mean()), 1.0) if counts.any() else 1.0


BETTER, WORSE, CHANGED, SAME = "better", "worse", "changed", "same"
WITHIN_ERROR, UNPROVEN = "within error", "unproven"
UNCHECKED, DOUBTED, UNKNOWN, ONE_SEED = "unchecked", "refused", "unknown", "one seed"
BELIEVED = (BETTER, WORSE, CHANGED)
"""Verdicts on a change that is larger than the model's error on this recording."""
BEYOND_ERROR = (*BELIEVED, UNPROVEN)
"""The same, and that on such a change of a quantity that a null model predicts as well on this
recording. A null model says where a quantity stays, not whether a policy changes it."""
REASONS = {
    UNPROVEN: "larger than it, but unproven",
    WITHIN_ERROR: "within the model's error",
    UNCHECKED: "not shown by the recording",
    ONE_SEED: "too rare to judge from one seed",
    SAME: "the same on both sides",
}
"""Why others are not believed, in words."""
LEAST_COVERED = 0.25
"""Where the model's value at the scored snapshots is less than this share of that of the whole
replay, the snapshots missed most of what happened, and their error says little of it."""


@dataclass(frozen=True, kw_only=True)
class Change:
    """One quantity of one recording under two policies.

    Attributes:
        spread: of two runs, on the scale.
        by_seed: seeds settle it as well as the policy: rare events, and under a reclaim of the
            model's own a state at the end, such as blocks that are reserved or not.
    """

    before: Quantity
    after: Quantity
    error: ModelError | None
    spread: float
    refused: bool = False
    by_seed: bool = False

    @staticmethod
    def of(
        before: Quantity,
        after: Quantity,
        edges: np.ndarray,
        errors: ModelErrors,
        mode: str = "literal",
    ) -> Change:
        """Look up the model's error, and take the spread from windows of either side."""
        error = errors.by_row.get((before.metric, before.scope))
        if error is not None and abs(error.predicted) < abs(before.value) * LEAST_COVERED:
            error = None
        return Change(
            before=before,
            after=after,
            error=error,
            spread=math.hypot(*(side.spread(edges, errors.dispersion) for side in (before, after))),
            refused=bool(errors.refused),
            by_seed=before.how == "count" or (before.how == "last" and mode == "elastic"),
        )

    @property
    def on_scale(self) -> float:
        """The change on the scale of the quantity."""
        places = scaled(np.array([self.before.value, self.after.value]), self.before.unit)
        return float(places[1] - places[0])


def half_width(runs: Sequence[Change], recordings: int = 1) -> float:
    """Half of the interval of `interval_of` on the scale of the quantity.

    Windows of the recordings say how far two runs lie apart, seeds how far the model's answers to
    one do, and the model's error moves out either end.
    """
    if _needs_seeds(runs):
        return math.nan
    windows = widths(WINDOWS - 1) * float(np.mean([run.spread for run in runs]))
    seeds = 0.0
    if len(runs) > 1:
        varies = float(np.std([run.on_scale for run in runs], ddof=1))
        seeds = widths(len(runs) - 1) * varies * math.sqrt(1 / recordings + 1 / len(runs))
    unit = runs[0].before.unit
    errors = [run.error.on_scale(unit) for run in runs if run.error is not None]
    half = math.hypot(windows / math.sqrt(recordings), seeds)
    return half + (float(np.mean(errors)) if errors else 0.0)


def interval_of(runs: Sequence[Change], recordings: int = 1) -> tuple[float, float]:
    """Interval of the change between two sets of as many runs, NaN where it is unknown."""
    unit = runs[0].before.unit
    before = float(np.mean([run.before.value for run in runs]))
    after = float(np.mean([run.after.value for run in runs]))
    half = half_width(runs, recordings)
    ends = unscaled(scaled(after, unit) + np.array([-half, half]), unit)
    return min(float(ends[0]), after) - before, max(float(ends[1]), after) - before


def _needs_seeds(runs: Sequence[Change]) -> bool:
    """True if it is of one run and differs from seed to seed."""
    return len(runs) == 1 and runs[0].by_seed


_ERROR_NUMBERS = ("measured", "predicted", "null", "error", "null_error", "counted")


def mean_error(errors: Sequence[ModelError]) -> SimpleNamespace:
    """A row of an error table with the means of several runs; of none, nothing is known."""
    rows = [error.row() for error in errors]
    means = dict.fromkeys(_ERROR_NUMBERS, math.nan) | {"unit": "", "null_model": ""}
    if rows:
        means |= {name: float(np.mean([row[name] for row in rows])) for name in _ERROR_NUMBERS}
        means |= {name: str(rows[0][name]) for name in ("unit", "null_model")}
    return SimpleNamespace(**means)


def judged_runs(
    runs: Sequence[Change], recordings: int = 1, *, tested: bool = False
) -> dict[str, object]:
    """The row of one quantity's runs: means, the change, and what is to be believed of it.

    `tested` adds a test of the change, and how far the runs lie apart.
    """
    error = mean_error([run.error for run in runs if run.error is not None])
    low, high = interval_of(runs, recordings)
    sides = {
        "base": pd.Series([run.before.value for run in runs], dtype=float),
        "patch": pd.Series([run.after.value for run in runs], dtype=float),
    }
    base, patch = (side.mean() for side in sides.values())
    one = runs[0].before
    row = {
        **{"metric": one.metric, "scope": one.scope, "base": base, "patch": patch},
        **{"change": patch - base, "unit": one.unit, "better": one.better},
        **{"error": error.error, "error_words": error_cell(error)},
        "null_model": error.null_model,
        **{"null_error": error.null_error, "null_words": null_cell(error)},
        "change_low": low,
        "change_high": high,
        "verdict": verdict_of(runs, low, high),
    }
    if tested:
        p = paired_p(*(side.tolist() for side in sides.values()))
        row |= {"runs": len(runs), "p": p, "significant": bool(p < LEVEL)}
        for (name, side), moment in product(sides.items(), ("min", "std", "max")):
            row[f"{name}_{moment}"] = getattr(side, moment)()
    return row


def verdict_of(runs: Sequence[Change], low: float, high: float) -> str:
    """Verdict on a change; "better" and "worse" only of one beyond all error."""
    change = float(np.mean([run.after.value - run.before.value for run in runs]))
    errors = [run.error for run in runs]
    better = runs[0].before.better
    improved = (change > 0) == (better == "higher")
    verdicts = (
        (math.isnan(change), UNKNOWN),
        (change == 0, SAME),
        (any(run.refused for run in runs), DOUBTED),
        (None in errors, UNCHECKED),
        (_needs_seeds(runs), ONE_SEED),
        (not (low > 0 or high < 0), WITHIN_ERROR),
        (any(error is not None and not error.beats_null for error in errors), UNPROVEN),
        (not better, CHANGED),
        (improved, BETTER),
    )
    return next((verdict for holds, verdict in verdicts if holds), WORSE)


def believable_words(table: pd.DataFrame, refused: str = "") -> str:
    """One line: for which rows a comparison can be believed."""
    if refused:
        return f"Believe no row of this comparison: {refused}."
    known = table[table["verdict"] != UNKNOWN]
    good = known[known["verdict"].isin(BELIEVED)]
    is_good = known["verdict"].isin(BELIEVED).groupby(known["metric"])
    mixed = is_good.any() & ~is_good.all()
    names = [
        f"{metric} ({scope})" if mixed[metric] else metric
        for metric, scope in zip(good["metric"], good["scope"], strict=True)
    ]
    believed = ", ".join(dict.fromkeys(names)) or "none"
    rest = _other_words(known)
    rest = f"; the other rows: {rest}" if rest else ""
    return f"Believe {len(good)} of {count_of(len(known), 'change')}: {believed}{rest}."


def _other_words(known: pd.DataFrame) -> str:
    """The number of rows that are not believed, by the reason."""
    counts = known["verdict"].value_counts()
    return ", ".join(f"{counts[word]} {words}" for word, words in REASONS.items() if word in counts)


_TOLD_RULE = (
    "base, patch: of the whole replay; validate compares what lies between snapshots. from, to: "
    "the 95 % interval of the change, which includes the model's error on this recording."
)
_MARK_RULES = {  # said where there is such a mark
    "n ": "n: a difference in number, not a percentage.",
    "pt ": "pt: percentage points.",
    "in error": "in error: the interval contains 0.",
    "one seed": "one seed: too rare to judge from one seed.",
    "unchecked": "unchecked: the recording does not show this quantity.",
    UNPROVEN: "unproven: larger than the model's error, but a null model, such as no change since "
    "the start, is as near to this quantity of the recording as the model.",
}
_NAMED, _SHOWN = 4, 12
"""Changes that the first sentence names, and those that a short text has rows for."""


def guest_words(fields: Iterable[str], mode: str) -> str:
    """How changes that policy fields made in guests were predicted, "" if no guest shows it.

    Args:
        fields: names.
        mode: of reclaim.
    """
    data = shipped_recordings_directory()
    path = data / "tables" / "experiments_scores.csv" if data else None
    if path is None or not path.is_file():
        return ""
    settings = policy_settings()
    names = {name: settings[name].metadata["kernel_name"] for name in fields}
    scores = pd.read_csv(path, keep_default_na=False)
    scores = scores[(scores["model"] == mode) & (scores["effects"] > 0)]
    words = []
    for name, setting in names.items():
        own = scores[scores["setting"].isin((setting, f"vm.{name}"))]
        if len(own):
            right, within = (
                own[column].str.extract(r"(\d+)", expand=False).astype(int).sum()
                for column in ("direction", "within")
            )
            words.append(
                f"Experiments varied {own['setting'].iloc[0]} "
                f"({', '.join(own['plan'])}): of {own['effects'].sum()} quantities that measurably "
                f"changed, {right} were predicted in the right direction, {within} within the 95 % "
                "interval (no change, the null model: none)."
            )
    return " ".join(words)


def _short_text(rows: pd.DataFrame, comparison: Comparison, refused: str) -> str:
    """Changes beyond error in a sentence, and these rows with the totals of the machine."""
    keys = list(zip(rows["metric"], rows["scope"], strict=True))
    words = [voc.TOTAL_WORDS.get(key) for key in keys]
    named = [name or row_words(row) for name, row in zip(words, rows.itertuples(), strict=True)]
    known = rows.assign(words=named, total=list(map(bool, words)))[rows["verdict"] != UNKNOWN]
    beyond = known[known["verdict"].isin(BEYOND_ERROR)]
    beyond = beyond.sort_values("verdict", key=lambda of: of == UNPROVEN, kind="stable")
    rest = _other_words(known.drop(beyond.index))
    said = "no change is larger than the model's error"
    if len(beyond):
        changes = []
        for row in beyond.drop_duplicates("metric")[:_NAMED].itertuples():
            amount = in_measure(row, row.patch - row.base).rstrip("n").replace("pt", " points")
            mark = f" ({UNPROVEN})" if row.verdict == UNPROVEN else ""
            up = "down" if amount[0] == "-" else "up"
            changes.append(f"{row.words} {up} by {amount[1:]}{mark}")
        counts = f"{len(beyond)} of {count_of(len(known), 'change')}"
        are = "is" if len(beyond) == 1 else "are"
        said = f"{', '.join(changes)}; {counts} {are} larger than the model's error"
    others = "the others" if len(beyond) else f"all {len(known)}"
    said += f"; {others}: {rest}" if rest else ""
    first = paragraph(f"{comparison.title}: {f'believe no row: {refused}' if refused else said}.")
    totals = known[known["total"]].drop(beyond.index, errors="ignore")
    lines = []
    for row in pd.concat([beyond[:_SHOWN], totals]).itertuples():
        sides = (round(side) if abs(side) >= FEW else side for side in (row.base, row.patch))
        change, _, *interval = measures(row)
        lines.append(("", row.words, *sides, change, *interval, judgement(row)))
    titles = ("", "quantity", "base", "patch", "change", "from", "to", "")
    cells = " ".join(f"{cell} " for line in lines for cell in line)
    over = f" Means over {comparison.seeds} seeds." if comparison.seeds > 1 else ""
    rule = " ".join(
        [_TOLD_RULE + over, *(words for mark, words in _MARK_RULES.items() if mark in cells)]
    )
    guests = guest_words(comparison.changed_fields, comparison.base.assumptions.reclaim)
    notes = (paragraph(words) for words in (rule, guests) if words)
    return "\n\n".join([first, Table(titles, lines).to_text(TERMINAL), *notes])


@dataclass(frozen=True, kw_only=True, eq=False)
class RepeatedComparison:
    """Comparisons of the same policies; a run is a recording and a seed.

    Attributes:
        comparisons: each over its seeds.
        refused: why none of them can be believed, "" if they may.
        rows: those of a `Comparison`, of means over runs, with runs, p, significant, and base_min,
            base_std, base_max, patch_min, patch_std, patch_max.
    """

    comparisons: tuple[Comparison, ...]
    rows: pd.DataFrame
    refused: str = ""

    def __repr__(self) -> str:
        return _short_text(self.rows, self.comparisons[0], self.refused)

    @property
    def runs(self) -> int:
        """Recordings times seeds."""
        return sum(comparison.seeds for comparison in self.comparisons)

    @property
    def believable(self) -> str:
        """One line: for which rows this comparison can be believed."""
        return believable_words(self.rows, self.refused)


def _runs_by_row(runs: Sequence[Sequence[Change]]) -> list[list[Change]]:
    """Changes of each quantity that all runs have."""
    by_run = [{(one.before.metric, one.before.scope): one for one in run} for run in runs]
    return [[run[key] for run in by_run] for key in by_run[0] if all(key in run for run in by_run)]


def _with_zeros(runs: Sequence[Sequence[Change]]) -> list[tuple[Change, ...]]:
    """Changes of one recording's seeds, with those that only other seeds counted as zeros."""
    counted = {
        (one.before.metric, one.before.scope): one
        for run in runs
        for one in run
        if one.before.how in ("count", "sum")
    }

    def none(like: Change) -> Change:
        before, after = (
            replace(side, time_ns=side.time_ns[:0], values=side.values[:0])
            for side in (like.before, like.after)
        )
        return replace(like, before=before, after=after, error=None)

    filled = []
    for run in runs:
        own = {(one.before.metric, one.before.scope) for one in run}
        more = (none(one) for key, one in counted.items() if key not in own)
        filled.append((*run, *more))
    return filled


def repeated(comparisons: Sequence[Comparison]) -> RepeatedComparison:
    """Put the runs of one comparison together; a metric that some runs lack is left out.

    Raises:
        UsageError: no run, or runs of different policies or rules.
    """
    if not comparisons:
        raise UsageError("nothing to compare: give at least one recording")
    first = comparisons[0]
    for other, side in product(comparisons[1:], ("base", "patch")):
        policies = [getattr(run, side).asked_policy for run in (first, other)]
        if policies[0] != policies[1]:
            raise UsageError(f"runs of different policies: {policies[0]} and {policies[1]}")
    refused = next((other.errors.refused for other in comparisons if other.errors.refused), "")
    recordings = len({other.base.name for other in comparisons})
    by_row = _runs_by_row([run for one in comparisons for run in one.runs])
    rows = [judged_runs(runs, recordings, tested=True) for runs in by_row]
    table = pd.DataFrame(rows)
    return RepeatedComparison(comparisons=tuple(comparisons), rows=table, refused=refused)


@dataclass(frozen=True, kw_only=True, eq=False)
class Comparison:
    """Two replays of one recording side by side.

    Attributes:
        base: the replay compared against.
        patch: the replay with the change.
        pairs: each quantity on both sides.
        errors: the model's errors on this recording; `NOT_VALIDATED` unless it was validated.
        others: changes under other seeds; rows are means over all.
        held: under each of these seeds, the numbers of a validation; none without errors.
    """

    base: Replay
    patch: Replay
    pairs: tuple[tuple[Quantity, Quantity], ...]
    errors: ModelErrors = NOT_VALIDATED
    others: tuple[tuple[Change, ...], ...] = ()
    held: tuple[tuple[ModelError, ...], ...] = ()

    def __repr__(self) -> str:
        return _short_text(self.rows, self, self.errors.refused)

    def _repr_html_(self) -> str:
        from pagealloc_model.show.html.results import comparison_html

        return comparison_html(self)

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(self.to_text())

    @property
    def title(self) -> str:
        """The recording, the patch's policy, and the base's if it is not the recorded one."""
        base, patch = self.base.asked_policy, self.patch.asked_policy
        return f"{self.base.name}, {patch}" + (f" against {base}" if base.given() else "")

    @property
    def changed_fields(self) -> list[str]:
        """Fields in which the policies differ."""
        before, after = self.base.policy.given(), self.patch.policy.given()
        return [name for name in policy_settings() if before.get(name) != after.get(name)]

    def validated(self, validation: Validation | None = None) -> Comparison:
        """The same with the model's errors on this recording, which say what is to be believed.

        Args:
            validation: of the recording, under the base's rules and assumptions; None: the
                recording is validated once, and its errors are kept with it.
        """
        if validation is not None:
            return self.with_errors(errors_of(validation))
        base = self.base
        own = (base.recording, base.rules, base.assumptions)
        return self.with_errors(model_errors(*own, base if self.base_is_recorded else None))

    @property
    def base_is_recorded(self) -> bool:
        """Whether the base is what `validate` replays: all of a recording under its own policy."""
        base = self.base
        is_imposed = base.assumptions.reclaim == "literal" and base.imposed
        other = base.asked_policy.given() or base.kernel or base.hooks or base.seed or is_imposed
        return not other and np.array_equal(
            base.edges, bin_edges(*base.recording.trace.demand_span_ns)
        )

    @property
    def seeds(self) -> int:
        """Seeds that rows are means over."""
        return 1 + len(self.others)

    @property
    def runs(self) -> list[tuple[Change, ...]]:
        """Changes of each seed; what only some seeds counted is 0 in the others."""
        return _with_zeros([self.changes, *self.others])

    def over_seeds(self, seeds: int) -> Comparison:
        """The same with rows as means over so many seeds, replayed side by side on the cores.

        Each seed has the model's own errors, if this comparison has errors.

        Raises:
            UsageError: a side was replayed by a kernel build or with hooks, which are not kept.
        """
        if seeds < 2:
            return self
        base, patch = self.base, self.patch
        if any(side.kernel or side.hooks for side in (base, patch)):
            raise UsageError("a kernel build and hooks are not replayed again: compare one seed")
        recording, is_judged = base.recording, bool(self.errors.by_row)
        options = {"rules": base.rules, "progress": progress_bar.unreported}
        measured = recording.measure() if is_judged else None

        def again(seed: int) -> tuple[tuple[Change, ...], tuple[ModelError, ...]]:
            sides = [
                replay(
                    recording, side.asked_policy, assumptions=side.assumptions, **options, seed=seed
                )
                for side in (base, patch)
            ]
            errors, numbers = self.errors, ()
            if measured is not None:
                recorded = sides[0]
                if base.asked_policy.given():
                    recorded = replay(recording, assumptions=base.assumptions, **options, seed=seed)
                held = (recording, recorded, measured)
                _, numbers = held_to(*held)
                errors = replace(errors, by_row=_by_row((*numbers, *hold_errors(*held))))
            return compare(*sides).with_errors(errors).changes, numbers

        more = range(base.seed + 1, base.seed + seeds)
        with ThreadPoolExecutor(min(seeds, os.cpu_count() or 1)) as threads:
            others, numbers = zip(*threads.map(again, more), strict=True)
        return replace(self, others=others, held=numbers if is_judged else ())

    def with_errors(self, errors: ModelErrors) -> Comparison:
        """The same with these errors; refused where only an elastic replay can tell the change."""
        before, after = self.base.policy.given(), self.patch.policy.given()
        names = [name for name in BY_RECLAIM if before.get(name) != after.get(name)]
        if names and not errors.refused and self.base.assumptions.reclaim == "literal":
            imposed = (
                f"{', '.join(names)} changes when reclaim runs, which a literal replay takes from "
                "the recording; replay with --reclaim elastic, in Python "
                "Assumptions(reclaim='elastic')"
            )
            errors = replace(errors, refused=imposed)
        return replace(self, errors=errors)

    @cached_property
    def changes(self) -> tuple[Change, ...]:
        """Each quantity with what is known of its change."""
        edges, mode = windows_of(self.base), self.base.assumptions.reclaim
        return tuple(Change.of(*pair, edges, self.errors, mode) for pair in self.pairs)

    @cached_property
    def rows(self) -> pd.DataFrame:
        """A row for each quantity.

        metric, scope; base, patch and change in `unit`; unit; better: "lower", "higher" or "";
        error and null_error of the model, as error tables have them, and in words; null_model;
        change_low and change_high: the interval of the change, error included; verdict. Of several
        seeds these are means, and the interval has their spread.
        """
        by_row = _runs_by_row(self.runs)
        return pd.DataFrame([judged_runs(runs) for runs in by_row])

    @property
    def believable(self) -> str:
        """One line: for which rows this comparison can be believed."""
        return believable_words(self.rows, self.errors.refused)

    def to_text(self, width: int = 72, style: Style = "signed") -> str:
        """The table with its sign rule and provenance, at most `width` columns of ASCII."""
        rows = self.rows
        if style == "mmtests":
            keys = zip(rows["metric"], rows["scope"], strict=True)
            rows = rows.assign(metric=[voc.MMTESTS.get(key) or key[0] for key in keys])
        return comparison_table(
            rows, self.footer(), style=style, width=width, first=self.believable
        )

    def to_dict(self) -> dict[str, object]:
        """Content that `pagealloc compare --json` prints."""
        return {
            "base": self.base.provenance,
            "patch": self.patch.provenance,
            "believable": self.believable,
            "seeds": self.seeds,
            "rows": records(self.rows),
        }

    def footer(self) -> Footer:
        """Origin of both columns."""
        base, assumptions = self.base, self.base.assumptions
        assumed = f"reclaim {assumptions.reclaim}, counters {assumptions.counters}"
        assumed += "" if assumptions.reclaim == "elastic" else f"; NA: {LITERAL}"
        if base.demand.by_orders != self.patch.demand.by_orders:
            assumed += f"; NA: {OTHER_ORDERS}"
        odd = [check for check in base.checks if check.level != USABLE]
        odd.sort(key=lambda check: -LEVELS.index(check.level))
        return Footer(
            recording=base.name,
            kernel=base.rules_origin,
            policy_difference=_difference(base, self.patch),
            version=f"{__version__} (model {base.provenance['model']})",
            lost_events=base.losses,
            divergences={
                f"{side} {name}": count
                for side, replay in (("base", base), ("patch", self.patch))
                for name, count in replay.divergence.items()
                if name in ("forced", "failed", "in_base_pages", "orphan_frees")
            },
            assumptions=assumed,
            doubts=tuple(f"{check.check} ({check.level}): {check.found}" for check in odd),
            seeds=self.seeds,
        )


OTHER_ORDERS = "the policy asks for other numbers of folios of that order"
"""Why a quantity of folios is not compared."""


def _quantities(replay: Replay, edges: np.ndarray) -> Iterator[Quantity]:
    """All that a comparison says of a replay."""
    windowed = voc.Windowed(replay, edges)
    yield from voc.compared(voc.HOLDS, Holds.of_table(replay.transactions_full))
    yield from voc.by_zone(States.of_replay(replay), replay.machine)
    yield from voc.compared(voc.LISTS, windowed)
    yield from voc.compared(voc.FALLBACKS, replay.fallbacks)
    yield from voc.compared(voc.HOLD_TIMES, windowed)
    if replay.assumptions.reclaim != "elastic":
        yield from (number.quantity(None, number.scope) for number in (*voc.COUNTERS, voc.FAILED))
        return
    yield from voc.compared(voc.COUNTERS, voc.Growth.between(replay.vmstat, edges))
    yield from voc.compared((voc.FAILED,), replay.outcomes)
    yield from voc.folios(replay.folios, edges)


def _comparable(
    pairs: Iterable[tuple[Quantity, Quantity]],
    before: pd.DataFrame,
    after: pd.DataFrame,
    kinds: Sequence[str],
) -> tuple[tuple[Quantity, Quantity], ...]:
    """Pairs in which the later is unknown where it is of folios of an order asked for otherwise.

    Args:
        pairs: of two replays of which one has a demand made anew by a policy (S10.13).
        before: requests for folios of the one side.
        after: those of the other.
        kinds: classes whose orders the policies differ in.
    """
    own = [side.set_index(["class", "order"])["asked"] for side in (before, after)]
    asked = pd.concat(own, axis=1).fillna(0)
    other = asked.index[asked.iloc[:, 0] != asked.iloc[:, 1]].tolist()
    names: set[tuple[str, str]] = set()
    folios = [number.name for number in voc.FOLIOS]
    for kind, order in other:
        if kind in kinds:
            names.add((voc.FAILED.name, f"order={order}"))
            names |= {(metric, f"class={kind},order={order}") for metric in folios}
            is_huge = kind == "anon" and order == PMD_ORDER
            names |= {(metric, "all") for metric in (*voc.HUGE, "thp_success") if is_huge}
    return tuple(
        (one, unknown(two)) if (two.metric, two.scope) in names else (one, two)
        for one, two in pairs
    )


def compare(base: Replay, patch: Replay) -> Comparison:
    """Put two replays of the same recording side by side.

    Raises:
        UsageError: the replays differ in recording, window, rules, assumptions or seed, so that a
            difference could not be laid at the policy's door.

    The model's errors are in it where the recording was validated for a comparison before;
    otherwise `Comparison.validated` finds them.
    """
    if base.reclaim.mode != patch.reclaim.mode:
        sides = (f"{side.reclaim.mode} ({side.reclaim.why})" for side in (base, patch))
        raise UsageError(
            f"cannot compare replays of different modes of reclaim, {' and '.join(sides)}: replay "
            "both with the same, as assumptions=Assumptions(reclaim='elastic') does"
        )
    demands = (base.demand, patch.demand)
    asked = [demand.recorded if demand.by_orders else demand.events for demand in demands]
    is_one_demand = np.array_equal(*asked)
    assumed = [side.assumptions for side in (base, patch)]
    if not is_one_demand:  # elastic values are read off each recording
        assumed = [replace(each, elastic=None) for each in assumed]
    pairs = {
        name: (getattr(base, name), getattr(patch, name)) for name in ("name", "rules", "seed")
    }
    for name, values in {**pairs, "assumptions": tuple(assumed)}.items():
        if values[0] != values[1]:
            brief = " and ".join(str(getattr(value, "name", value)) for value in values)
            raise UsageError(f"cannot compare replays of different {name}: {brief}")
    if not is_one_demand:
        raise UsageError(f"cannot compare replays of different recordings, both named {base.name}")
    if not np.array_equal(base.edges, patch.edges):
        raise UsageError("cannot compare replays of different windows")
    edges = windows_of(base)
    pairs = joined(_quantities(base, edges), _quantities(patch, edges))
    if base.demand.by_orders != patch.demand.by_orders:
        kinds = [CLASS_NAMES[ANON]]  # faults alone are asked for anew
        pairs = _comparable(pairs, base.folios, patch.folios, kinds)
    errors = base.recording.memo.get(_key(base.rules, base.assumptions), NOT_VALIDATED)
    return Comparison(base=base, patch=patch, pairs=pairs).with_errors(errors)


def _difference(base: Replay, patch: Replay) -> str:
    before, after = base.policy.given(), patch.policy.given()
    changed = []
    if base.kernel != patch.kernel:
        changed.append(f"code: {base.kernel or 'model'} -> {patch.kernel or 'model'}")
    if base.hooks != patch.hooks:
        hooks = [", ".join(side.hooks) or "none" for side in (base, patch)]
        changed.append(f"hooks: {' -> '.join(hooks)}")

    def shown(name: str, settings: Mapping[str, Setting]) -> str:
        value = settings.get(name)
        if value is None and "." in name:
            value = policy_settings()[name].default
        if value is None:
            return "as recorded"
        return value if isinstance(value, str) else str(int(value))

    changed += [
        f"{name}: {shown(name, before)} -> {shown(name, after)}"
        for name in policy_settings()
        if before.get(name) != after.get(name)
    ]
    return "; ".join(changed) or "none"
