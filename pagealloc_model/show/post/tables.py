"""Tables as text for a mail or a terminal."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from pagealloc_model.base.errors import UsageError
from pagealloc_model.base.result_tables import (
    FEW,
    MMTESTS_RULE,
    Style,
    in_measure,
    judgement,
    value_and_gain,
    with_unit,
)
from pagealloc_model.base.table import Table
from pagealloc_model.base.text import (
    NOT_AVAILABLE,
    WIDTH,
    ascii_only,
    count_of,
    number,
    paragraph,
    percent,
)
from pagealloc_model.policy.lock_costs import SPREAD
from pagealloc_model.show.post.message import Block, Fixed, Message, Section, Words
from pagealloc_model.verdict.choices.placement import KERNEL_FUNCTIONS, MISSES_TOLD
from pagealloc_model.verdict.comparison import BELIEVED
from pagealloc_model.verdict.statistics import (
    CONFIDENCE,
    INTERVAL,
    LEVEL,
    NO_EFFECT,
    NOT_PREDICTED,
    RIGHT,
    TEST,
    TOO_FEW,
    WITHIN,
    WRONG,
    smallest_p,
)

if TYPE_CHECKING:
    from pagealloc_model.predicted.lock_times import LockTimes
    from pagealloc_model.recording.record.doctor import Check
    from pagealloc_model.recording.trace.columns import Trace
    from pagealloc_model.verdict.choices.placement import Placement
    from pagealloc_model.verdict.comparison import RepeatedComparison
    from pagealloc_model.verdict.locks import LockComparison


RULE = (
    "Each choice is judged from the state the kernel was in, as its earlier events leave it. "
    "share: hits of the choices judged; null: the same of the null model; unjudged: choices that "
    "the recording does not settle; repairs: corrections of what the choice is judged from that "
    "no event explains; margin: how far the closest watermark test was from its mark. Free-running "
    "shares are placement_exact, placement_block and placement_zone."
)
FALLBACK_WORDS = ("none", "claim", "steal")


def choice_table(placement: Placement, *, width: int = WIDTH) -> str:
    """Shares by choice, one line each, then by CPU.

    Args:
        placement: the judged recording.
        width: characters per line at most.
    """
    choices = placement.choices
    of_all, of_cpus = (choices[choices["scope"].str.startswith(each)] for each in ("all", "cpu="))
    rows = [("All choices", row.choice, *_cells(row)) for row in of_all.itertuples()]
    rows += [(row.choice, row.scope, *_cells(row)) for row in of_cpus.itertuples()]
    for row in placement.zone_classes.itertuples():
        atomic = " atomic" if row.atomic else ""
        heading = f"zone, order {row.orders} {row.migratetype}{atomic}, by margin"
        shares = (_share(row.share), _share(row.null_share), NOT_AVAILABLE, NOT_AVAILABLE)
        rows.append((heading, f">={row.margin_at_least} pages", row.judged, row.hits, *shares))
    titles = ("choice", "scope", "judged", "hits", "share", "null", "unjudged", "repairs")
    return _text(titles, rows, width, RULE)


def _text(
    titles: Sequence[str], rows: Sequence[Sequence[str | float]], width: int, *notes: str
) -> str:
    """A table, and paragraphs below it."""
    parts = [Table(titles, rows).to_text(width), *(paragraph(each, width=width) for each in notes)]
    return "\n\n".join(parts) + "\n"


def miss_list(placement: Placement, *, width: int = WIDTH) -> str:
    """The first misses of each choice: event, what the rule says, the state it says it from.

    Args:
        placement: the judged recording.
        width: characters per line at most.
    """
    lines: list[str] = []
    totals = placement.choices[placement.choices["scope"] == "all"].set_index("choice")
    for choice, misses in placement.misses.groupby("choice", sort=False):
        missed = int(totals.loc[choice, "judged"] - totals.loc[choice, "hits"])
        where = KERNEL_FUNCTIONS[str(choice)]
        lines.append(
            paragraph(f"{choice}: {count_of(missed, 'miss', 'misses')} ({where})", width=width)
        )
        for miss in misses.head(MISSES_TOLD).itertuples():
            lines.append(paragraph(_explained(miss), width=width, label="  - "))
        lines.append("")
    return "\n".join(lines)


def _cells(row: Any) -> tuple[str | float, ...]:
    shares = (_share(row.share), _share(row.null_share))
    return (row.judged, row.hits, *shares, row.unjudged, row.repairs)


def _share(value: float) -> str:
    """Hits in percent, rounded down so that only all of them are 100%."""
    if pd.isna(value):
        return NOT_AVAILABLE
    return f"{int(value * 1e5) / 1e3:.3f}%"


def _explained(miss: Any) -> str:
    size = f"order {miss.order} type {miss.migratetype}"
    said, done = _said_and_done(miss)
    state = ", ".join(
        [
            f"count {miss.listed}",
            f"high {miss.high}",
            f"alloc_factor {miss.alloc_factor}",
            f"free_count {miss.free_count}",
            *(["zone below high"] if miss.below_high else []),
            *(["reclaim active"] if miss.reclaim_active else []),
        ]
    )
    when = f"{miss.time_s:.6f} s, row {miss.row}, {miss.task or 'task'}/{miss.pid} CPU {miss.cpu}"
    return ascii_only(f"{when}, {size}: {done}; the rule says {said} ({state})")


def _said_and_done(miss: Any) -> tuple[str, str]:
    if miss.choice == "zone":
        return f"zone {miss.predicted}" if miss.predicted >= 0 else "none", f"zone {miss.actual}"
    if miss.choice == "fallback":
        return FALLBACK_WORDS[miss.predicted], f"fallback: {FALLBACK_WORDS[miss.actual]}"
    if miss.choice in ("pcp_pop", "buddy_pfn", "drain_page"):
        named = f"page {miss.predicted}" if miss.predicted >= 0 else "no page"
        return named, f"page {miss.actual}"
    if miss.choice == "refill_when":
        words = ("no refill", "a refill")
        return words[miss.predicted > 0], words[miss.actual > 0]
    unit = "objects" if miss.choice == "refill_size" else "pages drained"
    return f"{miss.predicted}", f"{miss.actual} {unit}"


TARGET = 0.05
"""Error up to which a count by site is as good as asked for."""

JUDGED = ("acquisitions", "pages_per_acquisition")
QUANTITIES = (*JUDGED, "contended")
LONGEST_HOLD = "longest hold, "


def traffic_table(comparison: LockComparison, *, width: int = WIDTH) -> str:
    """Every site's counts, and which of them are off by more than `TARGET`."""
    by_site = comparison.by_site.set_index("site")
    rows = [
        (
            quantity.replace("_", " "),
            str(site),
            by_site.loc[site, f"{quantity}_measured"],
            by_site.loc[site, f"{quantity}_predicted"],
            percent(by_site.loc[site, f"{quantity}_error"]),
        )
        for quantity in QUANTITIES
        for site in by_site.index
        if quantity == "acquisitions" or _is_known(by_site, site, quantity)
    ]
    missed = ", ".join(misses(by_site)) or "nothing"
    titles = ("quantity", "site", "measured", "predicted", "error")
    return _text(titles, rows, width, f"Off by more than {TARGET:.0%}: {missed}.")


def _is_known(by_site: pd.DataFrame, site: str, quantity: str) -> bool:
    sides = by_site.loc[site, [f"{quantity}_measured", f"{quantity}_predicted"]]
    return not bool(sides.isna().all())


def misses(by_site: pd.DataFrame) -> Iterator[str]:
    """Counts that are off by more than `TARGET`, in words.

    Args:
        by_site: `LockComparison.by_site`, indexed by site.
    """
    for quantity in JUDGED:
        for site, error in by_site[f"{quantity}_error"].items():
            if not pd.isna(error) and abs(float(error)) > TARGET:
                yield f"{quantity.replace('_', ' ')} of {site} ({percent(error)})"


def longest_hold_table(times: LockTimes, *, width: int = WIDTH) -> str:
    """The longest hold of each caller in pages, and in time for costs that are tenfold apart."""
    rows = [
        (
            "longest hold",
            " ".join(word for word in (row.site, row.cause) if word),
            row.pages,
            *(row.hold_ns / 1e3 * factor for factor in (1 / SPREAD, 1, SPREAD)),
        )
        for row in times.longest_holds().itertuples()
    ]
    return _text(("caller", "cause", "pages", "us, low", "us", "us, high"), rows, width)


def spread_table(spread: pd.DataFrame, *, width: int = WIDTH) -> str:
    """What else is valued in time, for costs that are tenfold apart.

    Args:
        spread: of `with_spread`.
        width: characters per line at most.
    """
    rows = [
        ("in time", str(row.result), row.low, row.value, row.high)
        for row in spread.itertuples()
        if not str(row.result).startswith(LONGEST_HOLD)
    ]
    return _text(("what", "unit", "low", "value", "high"), rows, width)


def trylock_line(times: LockTimes) -> str:
    """What trylocks of lists that failed came to."""
    sums = times.trylocks.sum()
    return (
        f"Trylocks of lists that failed: {sums['frees']} of frees and {sums['allocations']} of "
        f"allocations, each one page under zone->lock; "
        f"{count_of(sums['drains_cut_short'], 'drain was', 'drains were')} cut short, "
        f"{count_of(sums['pages_left'], 'page')} stayed on a list."
    )


REPEATED_RULE = (
    "Sign rule: change is patch - base of the means, in percent of base, or as a number marked n "
    "where base is below 20 or the change above 1000 %, or in points of a share. error: the "
    "model's on these very recordings, in the same measure. Nothing is better or worse unless its "
    "interval, over runs and over windows of each, error included, leaves out 0 (in error: it does "
    "not). unchecked: nothing recorded shows that metric. null: the model was no nearer than a "
    "null model; such rows come last."
)


def repeated_table(
    repeated: RepeatedComparison, *, style: Style = "signed", width: int = WIDTH
) -> str:
    """Means, spread and significance by metric, with the sign rule and the test.

    Args:
        repeated: the runs.
        style: "signed" prints means, standard deviations, the raw change and p; "mmtests" prints
            Min, Amean, Stddev, CoeffVar and Max with gains, significant ones between asterisks.
        width: characters per line at most.
    """
    tested = significance_words(len(repeated.comparisons), len(repeated.rows))
    if style == "mmtests":
        moments = [line for row in repeated.rows.itertuples() for line in _mmtests(row)]
        return _text(
            ("metric", "scope", "base", "patch"), moments, width, f"{MMTESTS_RULE} {tested}"
        )
    titles = ("metric", "scope", "base", "+-", "patch", "+-", "change", "error", "p", "")
    rows = [_signed(row) for row in repeated.rows.itertuples()]
    return _text(titles, rows, width, f"{REPEATED_RULE} {tested}")


def significance_words(runs: int, rows: int) -> str:
    """What test was made over how many runs, and what it cannot tell."""
    if runs == 1:
        return "One run per column: no significance test."
    words = (
        f"{runs} runs per column; +- is their standard deviation; p: {TEST}; between asterisks: "
        f"p < {LEVEL:g}, not corrected for the {rows} rows tested."
    )
    if smallest_p(runs) >= LEVEL:
        words += f" With {runs} runs p is at least {smallest_p(runs):.3g}: no row can be marked."
    return words


def _signed(row: Any) -> tuple[str | float, ...]:
    change = in_measure(row, row.patch - row.base)
    is_said = row.significant and row.verdict in BELIEVED
    return (
        with_unit(row),
        str(row.scope),
        *(row.base, row.base_std, row.patch, row.patch_std),
        f"*{change}*" if is_said else change,
        in_measure(row, row.error).lstrip("+"),
        NOT_AVAILABLE if pd.isna(row.p) else f"{row.p:.3f}",
        judgement(row),
    )


def _mmtests(row: Any) -> Iterator[tuple[str, ...]]:
    """One line per moment, in the manner of mmtests' compare-kernels."""
    sides = [(row.base, row.base_std), (row.patch, row.patch_std)]
    relative = [100 * std / mean if mean else float("nan") for mean, std in sides]
    for name, base, patch in (
        ("Min", row.base_min, row.patch_min),
        ("Amean", row.base, row.patch),
        ("Stddev", row.base_std, row.patch_std),
        ("CoeffVar", *relative),
        ("Max", row.base_max, row.patch_max),
    ):
        gain = _gain(base, patch, row.better if name in ("Min", "Amean", "Max") else "lower")
        cell = value_and_gain(patch, gain)
        marked = row.significant and name == "Amean" and row.verdict in BELIEVED
        shown = f"*{cell}*" if marked else f"{cell} "
        yield with_unit(row), f"{row.scope} {name}", f"{value_and_gain(base, 0.0)} ", shown


def _gain(base: float, patch: float, better: str) -> object:
    if pd.isna(base) or pd.isna(patch) or abs(base) < FEW:
        return 0.0 if base == patch else pd.NA
    change = (patch - base) / base
    return -change if better == "lower" else change


def snapshot_table(snapshots: pd.DataFrame, *, width: int = WIDTH) -> str:
    """Measured, predicted and null values at every snapshot of one validation.

    Args:
        snapshots: columns time_s, metric, scope, measured, predicted, null.
        width: characters per line at most.
    """
    rows = [
        (f"{row.metric}, {row.scope}", f"{row.time_s:.2f} s", row.measured, row.predicted, row.null)
        for row in snapshots.itertuples()
    ]
    return _text(("metric", "time", "measured", "predicted", "nothing changes"), rows, width)


MARKS = {WITHIN: "=", RIGHT: "+", WRONG: "!", NO_EFFECT: " ", NOT_PREDICTED: " ", TOO_FEW: " "}
"""What stands behind a prediction."""

READING = (
    "change: mean of the later side less that of the earlier one, with its "
    f"{CONFIDENCE:.0%} interval over runs ({INTERVAL}, not corrected for the number of rows). "
    "literal, elastic: the predicted change, from recordings of the earlier side alone. "
    "= within the interval; + right direction; ! wrong; no mark: no measurable effect, "
    "or too few runs."
)
NO_FIELD = "Nothing in the model stands for this setting: no change is predicted."


def experiment_table(changes: pd.DataFrame, score: pd.DataFrame, *, width: int = WIDTH) -> str:
    """Every quantity with a measurable effect, how to read it, and how often it was predicted.

    Quantities without one are named below their pair's rows.

    Args:
        changes: as `studies.experiments.changes_table` returns it.
        score: of the same.
        width: characters per line at most.
    """
    blocks = [
        block
        for title, mine in changes.groupby("pair", sort=False)
        for block in _pair(title, mine, width)
    ]
    return (
        "\n\n".join([*blocks, paragraph(READING, width=width), score_text(score, width=width)])
        + "\n"
    )


def _pair(title: str, mine: pd.DataFrame, width: int) -> Iterator[str]:
    runs = f"{mine['runs_before'].iloc[0]} and {mine['runs_after'].iloc[0]} runs"
    heading = paragraph(f"{title} ({runs})", width=width)
    by_mode = {mode: rows.set_index("metric") for mode, rows in mine.groupby("mode", sort=False)}
    first = next(iter(by_mode.values()))
    shown = first[first["verdict"] != NO_EFFECT]
    if len(shown):
        titles = ("quantity", "unit", "before", "change", "interval", *by_mode)
        rows = [_row(metric, row, by_mode) for metric, row in shown.iterrows()]
        yield f"{heading}\n\n{Table(titles, rows).to_text(width)}"
    else:
        yield f"{heading}\n\nNo quantity has a measurable effect."
    if not mine["modelled"].iloc[0]:
        yield paragraph(NO_FIELD, width=width)
    for note in dict.fromkeys(note for note in mine["note"] if note):
        yield paragraph(f"Not predicted: {note}.", width=width)
    quiet = first.index[first["verdict"] == NO_EFFECT]
    if len(quiet) and len(shown):
        yield paragraph(f"{NO_EFFECT.capitalize()}: {', '.join(quiet)}.", width=width)


def _row(metric: Any, row: pd.Series, by_mode: dict[Any, pd.DataFrame]) -> tuple[str, ...]:
    interval = NOT_AVAILABLE
    if pd.notna(row["low"]):
        interval = f"[{_short(row['low'])}, {_short(row['high'])}]"
    cells = [
        f"{_short(rows.loc[metric, 'predicted'])} {MARKS[rows.loc[metric, 'verdict']]}"
        for rows in by_mode.values()
    ]
    measured = (_short(row["before"]), _short(row["change"]), interval)
    return (str(metric), row["unit"], *measured, *cells)


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


def score_text(score: pd.DataFrame, *, width: int = WIDTH) -> str:
    """How many quantities were predicted, by mode and by the model that nothing changes.

    Args:
        score: model, measurable, predicted, right, wrong, not_predicted, quiet, quiet_inside.
        width: characters per line at most.
    """
    titles = ("model", "mode", "effects", "within", "direction", "wrong", "none", "quiet")
    rows = []
    for row in score.itertuples():
        counts = (row.predicted, row.predicted + row.right, row.wrong, row.not_predicted)
        shares = [_of(count, row.measurable) for count in counts]
        quiet = _of(row.quiet_inside, row.quiet)
        rows.append(("quantities of all pairs", row.model, row.measurable, *shares, quiet))
    words = (
        "effects: quantities of pairs with a measurable effect, and of these the shares predicted "
        "within the interval, in the right direction (those within it included; a coin has half), "
        "wrong, and none (not predicted). quiet: of those without one, predictions within the "
        "interval."
    )
    return _text(titles, rows, width, words).rstrip("\n")


def _of(part: int, whole: int) -> str:
    return f"{part} ({100 * part / whole:.0f}%)" if whole else NOT_AVAILABLE


def experiment_message(
    name: str,
    about: Sequence[str],
    changes: pd.DataFrame,
    score: pd.DataFrame,
    failed: pd.DataFrame,
) -> Message:
    """An experiment as a message: what was run, predicted beside measured, what failed.

    Args:
        name: of the experiment.
        about: sentences on what was run.
        changes: as `studies.experiments.changes_table` returns it.
        score: of the same.
        failed: side, repeat and error of runs that left no recording.
    """
    told: tuple[Block, ...] = tuple(Words(text=each, bullet=True) for each in about)
    missing = tuple(
        Words(text=f"{row.side}{row.repeat}: {row.error}", bullet=True)
        for row in failed.itertuples()
    )
    sections = (
        Section(
            title="What",
            blocks=(
                Words(
                    text="Changes predicted by a trace-driven model of the page allocator, from "
                    "recordings of one side, beside what changed when the other side was run."
                ),
            ),
        ),
        Section(title="On what", blocks=told),
        Section(title="Results", blocks=(Fixed(text=experiment_table(changes, score)),)),
        Section(title="Runs that failed", blocks=missing),
    )
    kept = tuple(section for section in sections if section.blocks)
    return Message(subject=f"[predicted and measured] {name}", sections=kept)


DOCTOR_WIDTH = 79
"""Columns of a terminal."""


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
        parts = [check.found, check.cost, check.todo]
        words = "; ".join(part for part in parts if part)
        label = f"{mark}  {check.name:<{width}}  "
        # a path stays in one piece, to be copied
        lines += textwrap.wrap(
            words,
            DOCTOR_WIDTH,
            initial_indent=label,
            subsequent_indent=" " * len(label),
            break_long_words=False,
            break_on_hyphens=False,
        )
    possible = not any(check.blocks for check in checks)
    return "\n".join(
        [*lines, "", f"recording is {'possible' if possible else 'not possible'} here"]
    )


def live_text(seconds: float) -> str:
    """Rates of this machine's page-allocator events, or why they cannot be had.

    Args:
        seconds: how long to sample.
    """
    from pagealloc_model.recording.record.perf_python import live

    try:
        trace = live(seconds)
    except UsageError as error:
        return paragraph(str(error), label="not sampled: ")
    return _rates_text(trace, seconds)


def _rates_text(trace: Trace, seconds: float) -> str:
    from pagealloc_model.recording.trace.columns import EVENT_NAMES

    width = max(len(name) for name in EVENT_NAMES)
    return "\n".join(
        [
            f"this machine ({trace.release}, {count_of(trace.nr_cpus, 'CPU')}) for {seconds:g} s",
            *[
                f"  {name:<{width}}  {count:>9,}  {count / seconds:>9,.0f}/s"
                for name, count in ((name, trace.count(kind)) for name, kind in EVENT_NAMES.items())
            ],
            f"  {'lost':<{width}}  {trace.losses.total:>9,}",
        ]
    )
