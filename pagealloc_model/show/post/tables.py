"""Tables as text for a mail or a terminal."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from pagealloc_model.base.errors import UsageError
from pagealloc_model.base.table import Table
from pagealloc_model.base.text import (
    NOT_AVAILABLE,
    TERMINAL,
    WIDTH,
    count_of,
    number,
    paragraph,
    percent,
)
from pagealloc_model.numbers import result_tables as results
from pagealloc_model.numbers import statistics
from pagealloc_model.numbers.comparison import BELIEVED
from pagealloc_model.numbers.locks import changed_by_costs
from pagealloc_model.numbers.result_tables import FEW, Style, in_measure, with_unit
from pagealloc_model.numbers.statistics import LEVEL, NO_EFFECT, smallest_p
from pagealloc_model.policy.lock_costs import SPREAD
from pagealloc_model.show.post.message import Fixed, Message, Words, sections_of

if TYPE_CHECKING:
    from pagealloc_model.numbers.comparison import RepeatedComparison
    from pagealloc_model.numbers.locks import LockComparison
    from pagealloc_model.predicted.lock_times import LockTimes
    from pagealloc_model.recording.record.doctor import Check


def _text(
    titles: Sequence[str],
    rows: Sequence[Sequence[str | float]],
    *notes: str,
    width: int = WIDTH,
) -> str:
    """A table, and paragraphs below it."""
    parts = [Table(titles, rows).to_text(width), *(paragraph(note, width=width) for note in notes)]
    return "\n\n".join(parts) + "\n"


TARGET = 0.05
"""Error up to which a count by site is as good as asked for."""
JUDGED = ("acquisitions", "pages_per_acquisition")
MOST_MISSED = 2
"""Counts that a sentence names."""


def traffic_table(comparison: LockComparison) -> str:
    """Every site's counts."""
    by_site = comparison.by_site.set_index("site")
    rows = []
    for quantity in (*JUDGED, "contended"):
        columns = [f"{quantity}_{side}" for side in ("measured", "predicted", "error")]
        for site, (measured, predicted, error) in by_site[columns].T.items():
            if not (pd.isna(measured) and pd.isna(predicted)):
                name = quantity.replace("_", " ")
                said = percent(error)
                is_count = quantity != "pages_per_acquisition" and pd.notna(measured)
                if is_count and measured < results.FEW_MEASURED:
                    said = results.counts_cell(predicted, measured)
                rows.append((name, str(site), measured, predicted, said))
    return _text(("quantity", "site", "measured", "predicted", "error"), rows)


def traffic_line(comparison: LockComparison) -> str:
    """The number of counts near what was measured, and those farthest off by more than `TARGET`."""
    by_site = comparison.by_site.set_index("site")
    counts = pd.to_numeric(by_site["acquisitions_measured"], errors="coerce")
    told = by_site[counts >= results.FEW_MEASURED]
    errors = {
        f"{quantity.replace('_', ' ')} of {site}": float(error)
        for quantity in JUDGED
        for site, error in told[f"{quantity}_error"].dropna().items()
    }
    missed = [name for name, error in errors.items() if abs(error) > TARGET]
    missed.sort(key=lambda name: -abs(errors[name]))
    named = [f"{name} ({percent(errors[name])})" for name in missed[:MOST_MISSED]]
    near = f"{len(errors) - len(missed)} of {len(errors)} measured counts of ten events or more"
    farthest = f"; farthest off: {', '.join(named)}" if named else ""
    return f"{near} are predicted within {TARGET:.0%}{farthest}"


def longest_hold_table(times: LockTimes) -> str:
    """The longest hold of each caller in pages, and in time for low and high costs."""
    rows = []
    for row in times.longest_holds().itertuples():
        cause = " ".join(filter(None, (row.site, row.cause)))
        in_us = (row.hold_ns / 1e3 * factor for factor in (1 / SPREAD, 1, SPREAD))
        rows.append(("longest hold", cause, row.pages, *in_us))
    return _text(("caller", "cause", "pages", "us, low", "us", "us, high"), rows)


def spread_table(spread: pd.DataFrame) -> str:
    """Those of `with_spread` that costs change, but longest holds."""
    shown = changed_by_costs(spread)
    columns = ["result", "low", "value", "high"]
    others = shown.loc[shown["metric"] != "longest hold", columns]
    rows = [("with low and high costs", *row) for row in others.itertuples(index=False)]
    return _text(("costs", "result", "low", "value", "high"), rows)


def trylock_line(times: LockTimes) -> str:
    """The outcome of trylocks of lists that failed."""
    sums = times.trylocks.sum()
    return (
        f"Trylocks of lists that failed: {sums['frees']} of frees and {sums['allocations']} of "
        f"allocations, each one page under zone->lock; "
        f"{count_of(sums['drains_cut_short'], 'drain was', 'drains were')} cut short, "
        f"{count_of(sums['pages_left'], 'page')} stayed on a list."
    )


REPEATED_RULE = (
    "Sign rule: change is patch - base of the means, in percent of base. It is a number, marked n, "
    "where base is below 20 or the change is above 1000 %, and in percentage points (pt) for a "
    "share. error, null: that of the model and of the null model on these recordings, as pagealloc "
    "validate has them. A change is better or worse only if its interval, over runs and windows "
    "and with the model's error added, excludes 0 (in error: it contains 0). unchecked: no "
    "recording shows this metric. unproven: larger than the error, but the null model is as near "
    "to this metric of the recordings as the model."
)


def repeated_table(repeated: RepeatedComparison, *, style: Style = "signed") -> str:
    """Means, spread and significance by metric, with the sign rule and the test.

    Style "signed" prints means, standard deviations, the raw change and p; "mmtests" Min, Amean,
    Stddev, CoeffVar and Max with gains, significant ones between asterisks.
    """
    runs = repeated.runs
    tested = "One run per column: no significance test."
    if runs > 1:
        tested = (
            f"{runs} runs per column; +- is their standard deviation; p: {statistics.TEST}; between"
            f" asterisks: p < {LEVEL:g}, not corrected for the {len(repeated.rows)} rows tested."
        )
        if smallest_p(runs) >= LEVEL:
            least = f"{smallest_p(runs):.3g}"
            tested += f" With {runs} runs p is at least {least}: no row can be marked."
    if style == "mmtests":
        moments = [line for row in repeated.rows.itertuples() for line in _moments(row)]
        titles = ("metric", "scope", "base", "patch")
        return _text(titles, moments, f"{results.MMTESTS_RULE} {tested}")
    titles = ("metric", "scope", "base", "+-", "patch", "+-", "change", "error", "null", "p", "")
    rows = []
    for row in repeated.rows.itertuples():
        change = in_measure(row, row.patch - row.base)
        is_said = row.significant and row.verdict in BELIEVED
        values = (row.base, row.base_std, row.patch, row.patch_std)
        shown = (f"*{change}*" if is_said else change, row.error_words, row.null_words)
        p = NOT_AVAILABLE if pd.isna(row.p) else f"{row.p:.3f}"
        judgement = results.judgement(row)
        rows.append((with_unit(row), str(row.scope), *values, *shown, p, judgement))
    return _text(titles, rows, f"{REPEATED_RULE} {tested}")


def _moments(row: Any) -> Iterator[tuple[str, ...]]:
    """One line per moment, in the manner of mmtests' compare-kernels."""
    sides = [(row.base, row.base_std), (row.patch, row.patch_std)]
    relative = [100 * std / mean if mean else float("nan") for mean, std in sides]
    for name, base, patch, better in (
        ("Min", row.base_min, row.patch_min, row.better),
        ("Amean", row.base, row.patch, row.better),
        ("Stddev", row.base_std, row.patch_std, "lower"),
        ("CoeffVar", *relative, "lower"),
        ("Max", row.base_max, row.patch_max, row.better),
    ):
        gain: Any = 0.0 if base == patch else pd.NA
        if not (pd.isna(base) or pd.isna(patch) or abs(base) < FEW):
            gain = (patch - base) / base * (-1 if better == "lower" else 1)
        cell = results.value_and_gain(patch, gain)
        marked = row.significant and name == "Amean" and row.verdict in BELIEVED
        shown = f"*{cell}*" if marked else f"{cell} "
        yield with_unit(row), f"{row.scope} {name}", f"{results.value_and_gain(base, 0.0)} ", shown


def snapshot_table(snapshots: pd.DataFrame) -> str:
    """Measured, predicted and null values at every snapshot of one validation."""
    rows = [
        (f"{row.metric}, {row.scope}", f"{row.time_s:.2f} s", row.measured, row.predicted, row.null)
        for row in snapshots.itertuples()
    ]
    return _text(("metric", "time", "measured", "predicted", "nothing changes"), rows)


MARKS = dict.fromkeys((NO_EFFECT, statistics.NOT_PREDICTED, statistics.TOO_FEW), " ") | {
    statistics.WITHIN: "=",
    statistics.RIGHT: "+",
    statistics.WRONG: "!",
}
"""Signs behind a prediction."""
READING = (
    "change: mean of the later side less that of the earlier one, with its "
    f"{statistics.CONFIDENCE:.0%} interval over runs ({statistics.INTERVAL}, not corrected for "
    "the number of rows). "
    "literal, elastic: the predicted change, from recordings of the earlier side alone. "
    "= within the interval; + right direction; ! wrong; no mark: no measurable effect, "
    "or too few runs."
)
NO_FIELD = "Nothing in the model stands for this setting: no change is predicted."
SCORE_RULE = (
    "effects: quantities of pairs with a measurable effect, and of these the shares predicted "
    "within the interval, in the right direction (those within it included; a coin has half), "
    "wrong, and none (not predicted). quiet: of those without one, predictions within the "
    "interval."
)
LARGE_RULE = (
    "large: effects beyond twice the half-width of their interval, and of these the shares within "
    "and in the direction; smaller ones pass for effects only where the measured change came out "
    "large. holds: of all quantities, effects or not, those whose 95 % interval holds the "
    "prediction. right size: quantities whose slope of measured on predicted changes is between "
    "0.8 and 1.25, of those with eight pairs or more."
)


def experiment_table(changes: pd.DataFrame, score: pd.DataFrame, *, width: int = WIDTH) -> str:
    """Every quantity with a measurable effect, how to read it, and how often it was predicted.

    Quantities without one are named below their pair's rows.

    Args:
        changes: as `guests.experiment.changes_table` returns it.
        score: of the same, by `score_table`.
        width: characters per line at most.
    """
    blocks = []
    for title, rows in changes.groupby("pair", sort=False):
        blocks += _pair(str(title), rows, width)
    shares = experiment_score(score, width=width)
    return "\n\n".join([*blocks, paragraph(READING, width=width), shares])


def experiment_line(score: pd.DataFrame) -> str:
    """The number of measurable changes predicted, in a sentence."""
    said = [
        f"{row.model} replays predict {row.predicted} of "
        f"{count_of(row.measurable, 'measurable change')} within the interval, "
        f"{row.predicted + row.right} in the direction and {row.wrong} wrongly"
        for row in score.itertuples()
        if row.predicted + row.right
    ]
    words = "; ".join(reversed(said)) or "no measurable change is predicted"
    return f"{words[0].upper()}{words[1:]}."


def experiment_score(score: pd.DataFrame, *, width: int = WIDTH) -> str:
    """The share of changes that were predicted, by mode of reclaim, and how to read that."""

    def share(part: int, whole: int) -> str:
        return f"{part} ({100 * part / whole:.0f}%)" if whole else NOT_AVAILABLE

    scored = []
    for row in score.itertuples():
        counts = (row.predicted, row.predicted + row.right, row.wrong, row.not_predicted)
        shares = [share(count, row.measurable) for count in counts]
        quiet = share(row.quiet_inside, row.quiet)
        scored.append(("quantities of all pairs", row.model, row.measurable, *shares, quiet))
    titles = ("model", "mode", "effects", "within", "direction", "wrong", "none", "quiet")
    large = [
        (
            *("quantities of all pairs", row.model, row.large),
            *(share(count, row.large) for count in (row.large_predicted, row.large_direction)),
            share(row.hold, row.judged),
            f"{row.right_size} of {row.sized}" if row.sized else NOT_AVAILABLE,
        )
        for row in score.itertuples()
    ]
    sizes = ("model", "mode", "large", "within", "direction", "holds", "right size")
    texts = (
        _text(titles, scored, SCORE_RULE, width=width),
        _text(sizes, large, LARGE_RULE, width=width),
    )
    return "\n\n".join(texts)


def _pair(title: str, changes: pd.DataFrame, width: int) -> Iterator[str]:
    runs = f"{changes['runs_before'].iloc[0]} and {changes['runs_after'].iloc[0]} runs"
    heading = paragraph(f"{title} ({runs})", width=width)
    by_mode = {mode: rows.set_index("metric") for mode, rows in changes.groupby("mode", sort=False)}
    first = next(iter(by_mode.values()))
    shown = first[first["verdict"] != NO_EFFECT]
    rows = []
    for metric, row in shown.iterrows():
        values = [_short(row[name]) for name in ("before", "change", "low", "high")]
        interval = NOT_AVAILABLE if pd.isna(row["low"]) else f"[{values[2]}, {values[3]}]"
        predicted = (mode.loc[metric, ["predicted", "verdict"]] for mode in by_mode.values())
        cells = [f"{_short(value)} {MARKS[verdict]}" for value, verdict in predicted]
        rows.append((str(metric), row["unit"], *values[:2], interval, *cells))
    titles = ("quantity", "unit", "before", "change", "interval", *map(str, by_mode))
    none = "No quantity has a measurable effect."
    yield f"{heading}\n\n{Table(titles, rows).to_text(width) if rows else none}"
    notes = [] if changes["modelled"].iloc[0] else [NO_FIELD]
    notes += [f"Not predicted: {note}." for note in dict.fromkeys(changes["note"]) if note]
    quiet = first.index[first["verdict"] == NO_EFFECT]
    if len(quiet) and len(shown):
        unknown = [
            metric
            for metric in quiet
            if all(pd.isna(mode.loc[metric, "predicted"]) for mode in by_mode.values())
        ]
        names = [f"{metric} (not predicted)" if metric in unknown else metric for metric in quiet]
        notes.append(f"{NO_EFFECT.capitalize()}: {', '.join(names)}.")
    yield from (paragraph(note, width=width) for note in notes)


def _short(value: float) -> str:
    """A number in about five characters: 12.3k for 12345."""
    if pd.isna(value):
        return NOT_AVAILABLE
    for scale, letter in ((1e6, "M"), (1e3, "k")):
        if abs(value) >= 10 * scale or (letter == "M" and abs(value) >= scale):
            return f"{value / scale:.3g}{letter}" if abs(value) < 1e3 * scale else f"{value:.3g}"
    if abs(value) >= 1e3:
        return f"{value:.0f}"
    return f"{value:.1f}" if abs(value) >= 10 and value != int(value) else number(value)


def experiment_message(
    name: str,
    about: Sequence[str],
    changes: pd.DataFrame,
    failed: pd.DataFrame,
    score: pd.DataFrame,
) -> Message:
    """An experiment as a message: what was run, predicted beside measured, what failed.

    Args:
        name: of the experiment.
        about: sentences on what was run.
        changes: as `guests.experiment.changes_table` returns it.
        failed: side, repeat and error of runs that left no recording.
        score: of the changes, by `score_table`.
    """
    what = (
        "Changes predicted by a trace-driven model of the page allocator, from "
        "recordings of one side, beside what changed when the other side was run."
    )
    missing = [f"{row.side}{row.repeat}: {row.error}" for row in failed.itertuples()]
    sections = {
        "What": [Words(text=what)],
        "On what": [Words(text=line, bullet=True) for line in about],
        "Results": [Fixed(text=experiment_table(changes, score))],
        "Runs that failed": [Words(text=line, bullet=True) for line in missing],
    }
    subject = f"[predicted and measured] {name}"
    return Message(subject=subject, sections=sections_of(sections))


def doctor_text(checks: Sequence[Check] | None = None) -> str:
    """A few words for each check, and whether a recording is possible.

    Args:
        checks: as `doctor.examine` gives them; None: those of this machine, here and now.
    """
    if checks is None:
        from pagealloc_model.recording.record.doctor import examine
        from pagealloc_model.recording.record.host import Host

        checks = examine(Host(), Path.cwd())
    width = max(len(check.name) for check in checks)
    lines = []
    for check in checks:
        mark = "NO" if check.blocks else "--" if check.cost else "ok"
        label = f"{mark}  {check.name:<{width}}  "
        todo = check.todo and f"to do: {check.todo}"
        words = "; ".join(filter(None, [check.found, check.cost, todo]))
        hanging = {"initial_indent": label, "subsequent_indent": " " * len(label)}
        # a path stays in one piece, to be copied
        whole = {"break_long_words": False, "break_on_hyphens": False}
        lines += textwrap.wrap(words, TERMINAL, **hanging, **whole)
    is_possible = "not possible" if any(check.blocks for check in checks) else "possible"
    first = f"Recording is {is_possible} here. (ok: nothing is missing; --: what is missing costs"
    first += " something; NO: it is needed.)"
    return "\n".join([paragraph(first), "", *lines])


def live_text(seconds: float) -> str:
    """Rates of this machine's page-allocator events, or why they cannot be had.

    Args:
        seconds: how long to sample.
    """
    from pagealloc_model.recording.record.perf_python import live
    from pagealloc_model.recording.trace.columns import EVENT_NAMES

    try:
        trace = live(seconds)
    except UsageError as error:
        return paragraph(str(error), label="not sampled: ")
    width = max(len(name) for name in EVENT_NAMES)
    lines = [f"this machine ({trace.release}, {count_of(trace.nr_cpus, 'CPU')}) for {seconds:g} s"]
    for name, kind in EVENT_NAMES.items():
        count = trace.count(kind)
        lines.append(f"  {name:<{width}}  {count:>9,}  {count / seconds:>9,.0f}/s")
    return "\n".join([*lines, f"  {'lost':<{width}}  {trace.losses.total:>9,}"])
