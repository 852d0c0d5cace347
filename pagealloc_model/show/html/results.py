"""Recordings, replays, validations, comparisons and results of studies as they show themselves."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from pagealloc_model.base.result_tables import (
    ERROR_RULE,
    SIGNED_RULE,
    error_cell,
    judgement,
    measures,
    with_unit,
)
from pagealloc_model.base.table import (
    BAD,
    DIM,
    GOOD,
    PLAIN,
    Cell,
    Column,
    Markup,
    Table,
    word_columns,
)
from pagealloc_model.base.text import count_of, number, paragraph
from pagealloc_model.predicted.tables import EMPTY_SITES
from pagealloc_model.recording.provenance import (
    DOUBT,
    REFUSED,
    USABLE,
    ProvenanceCheck,
    believed_words,
)
from pagealloc_model.recording.trace.columns import EVENT_NAMES
from pagealloc_model.show.html.parts import folded, framed, line, listed
from pagealloc_model.show.recording_text import describe_recording, recording_text
from pagealloc_model.verdict.comparison import BELIEVED, BETTER, CHANGED, WORSE
from pagealloc_model.verdict.errors import FARTHER, NEARER, against_null
from pagealloc_model.verdict.headline import headline
from pagealloc_model.verdict.quantities import scoped_quantity, windows_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pagealloc_model.measured.rules import RuleEvidence
    from pagealloc_model.predicted.replay import Replay
    from pagealloc_model.recording.recording import Recording
    from pagealloc_model.verdict.comparison import Comparison
    from pagealloc_model.verdict.quantities import Quantity
    from pagealloc_model.verdict.validation import Validation


WIDTH, HEIGHT, EDGE = 96, 22, 3
"""Pixels, and the room at each edge for a mark."""

MOST_POINTS = 60
MARK = 2.2


@dataclass(frozen=True, kw_only=True, eq=False)
class Course:
    """A quantity over time.

    Attributes:
        times: float, shape (n,), of any unit.
        values: float, the same shape.
    """

    times: np.ndarray
    values: np.ndarray


def sparkline(
    words: str, line: Course, marks: Course | None = None, dashed: Course | None = None
) -> Markup:
    """Return a small picture that stretches from the smallest value to the largest.

    Args:
        words: what it shows; its range is added.
        line: drawn through.
        marks: drawn as rings.
        dashed: drawn as a dashed line.
    """
    courses = [_known(each) for each in (line, marks, dashed) if each is not None]
    values = np.concatenate([each.values for each in courses])
    if not len(values):
        return Markup(html="")
    times = np.concatenate([each.times for each in courses])
    low, high = float(values.min()), float(values.max())
    first, last = float(times.min()), float(times.max())

    def places(course: Course) -> list[tuple[float, float]]:
        course = _thinned(_known(course))
        across = (course.times - first) / max(last - first, 1e-9)
        up = (course.values - low) / (high - low) if high > low else 0.5 + 0 * course.values
        x = EDGE + across * (WIDTH - 2 * EDGE)
        y = HEIGHT - EDGE - up * (HEIGHT - 2 * EDGE)
        return list(zip(x.tolist(), y.tolist(), strict=True))

    label = escape(f"{words}; from {low:,.6g} to {high:,.6g}")
    drawn = [_path(places(dashed), ' stroke-dasharray="3 2"')] if dashed is not None else []
    drawn.append(_path(places(line), ""))
    drawn += (
        []
        if marks is None
        else [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{MARK}"/>' for x, y in places(marks)]
    )
    return Markup(
        html=f'<svg role="img" aria-label="{label}" width="{WIDTH}" height="{HEIGHT}" '
        f'fill="none" stroke="currentColor"><title>{label}</title>{"".join(drawn)}</svg>'
    )


def _path(places: Sequence[tuple[float, float]], dashes: str) -> str:
    points = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
    return f'<polyline points="{points}" stroke-width="1.2"{dashes}/>' if points else ""


def _known(course: Course) -> Course:
    known = np.isfinite(course.values)
    return Course(times=course.times[known], values=course.values[known])


def _thinned(course: Course) -> Course:
    """At most `MOST_POINTS` points: of each stretch the one that is furthest from the mean."""
    count = len(course.values)
    if count <= MOST_POINTS:
        return course
    away = np.abs(course.values - course.values.mean())
    edges = np.linspace(0, count, MOST_POINTS + 1).astype(int)
    kept = [begin + int(away[begin:end].argmax()) for begin, end in pairwise(edges.tolist())]
    return Course(times=course.times[kept], values=course.values[kept])


BINS = 40
"""Of rates, over the whole recording."""


def course_of(tables: Any, metric: str, scope: str, span_ns: tuple[int, int]) -> Course | None:
    """Return how a metric of the error table went, None where its tables do not say.

    Rates are sums over `BINS` equal parts of the time.

    Args:
        tables: `Measured`, or a `Replay`.
        metric: of the error table.
        scope: of the row.
        span_ns: begin and end of the time that is cut into parts.
    """
    quantity = scoped_quantity(tables, metric, scope)
    if quantity is None:
        return None
    times = quantity.time_ns.astype(float)
    if quantity.how == "mean":
        return Course(times=times, values=quantity.values)
    sums, edges = np.histogram(times, BINS, span_ns, weights=quantity.values)
    return Course(times=(edges[:-1] + edges[1:]) / 2, values=sums.astype(float))


def rules_table(evidence: Sequence[Mapping[str, Any]]) -> Markup:
    """Return a row for each rule, with what it rests on.

    Args:
        evidence: of each rule, as its `to_dict` gives it.
    """
    columns = [
        *word_columns("rule", "value", "standing", "from"),
        Column(title="events say", long=True),
    ]
    rows = [
        (
            str(each["rule"]),
            str(each["value"]).lower(),
            Cell(shown=each["standing"], kind=BAD if "inferred" in each["standing"] else PLAIN),
            Cell(shown=each["line"], kind=DIM),
            str(each["check"]),
        )
        for each in evidence
    ]
    return Table(columns, rows, "rules and what they rest on").to_html()


REPLAY_COLUMNS = (
    *word_columns("predicted", "scope"),
    "total",
    "at the end",
    Column(title="over time", picture=True),
    *word_columns("unit"),
)
TOTALS = {
    "refill_transactions": "holds of zone->lock",
    "refill_pages": "pages",
    "drain_transactions": "holds of zone->lock",
    "drain_pages": "pages",
}
STATES = {"free_pages": "pages", "pcp_count": "pages", "highatomic_blocks": "pageblocks"}


def replay_html(replay: Replay) -> str:
    """Return a summary line, totals and states with their course, and folded where from."""
    return framed(
        line(replay_words(replay), lead=f"{replay.name}, predicted:"),
        *(
            [line(f"not a prediction: imposed are {', '.join(replay.imposed)}", kind=BAD)]
            if replay.imposed
            else []
        ),
        Table(REPLAY_COLUMNS, list(_rows(replay)), "what the replay predicts").to_html(),
        *replay_parts(replay),
    )


def replay_words(replay: Replay) -> str:
    """Return one line: policy, time, events and holds of zone->lock."""
    changed = ", ".join(f"{name}={value}" for name, value in replay.asked_policy.given().items())
    seconds = (int(replay.edges[-1]) - int(replay.edges[0])) / 1e9
    holds = int((~replay.transactions_full["site"].isin(EMPTY_SITES)).sum())
    return (
        f"policy {changed or 'as recorded'}; {seconds:.1f} s, {len(replay.demand.events):,} "
        f"requests and frees, zone->lock held {count_of(holds, 'time')}, "
        f"{count_of(int(replay.fallbacks['count'].sum()), 'fallback')}"
    )


def replay_parts(
    replay: Replay, evidence: Sequence[RuleEvidence] | None = None
) -> tuple[Markup, ...]:
    """Return, folded, the rules, the start state, and where recording and model disagreed.

    Args:
        replay: the replay.
        evidence: what its rules rest on, if that was held against events; None: as it was chosen.
    """
    counts = [f"{name}: {count:,}" for name, count in replay.divergence.items() if count]
    policy = [f"{name} = {value}" for name, value in replay.policy.given().items()]
    rules = [each.to_dict() for each in evidence or replay.rule_evidence]
    return (
        folded("Policy", listed(policy)),
        folded("Rules", line(replay.rules_origin), rules_table(rules)),
        folded("Start state", listed(replay.start_state)),
        folded("Where replay and recording could not agree", listed(counts or ["nowhere"])),
    )


def _rows(replay: Replay) -> Iterator[tuple[Cell, ...]]:
    zones = [
        (f"node={zone.node}," if len(replay.machine.nodes) > 1 else "") + f"zone={zone.name}"
        for zone in replay.machine.zones
        if zone.managed
    ]
    for metric, unit in TOTALS.items():
        yield _row(replay, metric, "all", unit, is_total=True)
    for metric, unit in STATES.items():
        for scope in zones:
            yield _row(replay, metric, scope, unit, is_total=False)


def _row(replay: Replay, metric: str, scope: str, unit: str, *, is_total: bool) -> tuple[Cell, ...]:
    span = (int(replay.edges[0]), int(replay.edges[-1]))
    course = course_of(replay, metric, scope, span)
    value = float("nan")
    if course is not None and len(course.values):
        value = float(course.values.sum() if is_total else course.values[-1])
    shown, empty = Cell(shown=number(value), number=value), Cell(shown="", number=float("nan"))
    picture = Markup(html="") if course is None else sparkline(f"{metric}, {scope}", course)
    return (
        Cell(shown=metric),
        Cell(shown=scope),
        shown if is_total else empty,
        empty if is_total else shown,
        Cell(shown=picture),
        Cell(shown=unit, kind=DIM),
    )


COMPARISON_COLUMNS = (
    *word_columns("", "metric", "scope"),
    Column(title="over time", picture=True),
    *("base", "patch", "change", "error", "from", "to"),
)
COMPARISON_MARKS = {
    BETTER: ("\u2713 better", GOOD),
    WORSE: ("\u2717 worse", BAD),
    CHANGED: ("\u2260 changed", GOOD),
}


def comparison_html(comparison: Comparison) -> str:
    """Return the rows that are known, with the line that says which to believe."""
    rows = comparison.rows
    known = rows[rows["base"].notna() | rows["patch"].notna()]
    edges = windows_of(comparison.base)
    pairs = {(base.metric, base.scope): (base, patch) for base, patch in comparison.pairs}
    footer = comparison.footer()
    return framed(
        line(footer.policy_difference, lead=f"{comparison.base.name}:"),
        line(comparison.believable),
        Table(
            COMPARISON_COLUMNS,
            [
                list(_cells(row, pairs.get((row.metric, row.scope)), edges))
                for row in known.itertuples()
            ],
            "what the patch changes",
        ).to_html(),
        line("Line: patch over time; dashes: base.", kind=DIM),
        folded("What the columns mean", line(SIGNED_RULE)),
        folded("What both sides were made from", *replay_parts(comparison.base)),
    )


def _cells(row: Any, pair: tuple[Quantity, Quantity] | None, edges: np.ndarray) -> Iterator[Cell]:
    mark, kind = COMPARISON_MARKS.get(row.verdict, (judgement(row), DIM))
    is_believed = row.verdict in BELIEVED
    dim = PLAIN if is_believed else DIM
    yield Cell(shown=mark, kind=kind)
    yield Cell(shown=with_unit(row), kind=dim)
    yield Cell(shown=str(row.scope), kind=dim)
    yield Cell(shown=Markup(html="") if pair is None else _courses(*pair, edges))
    for value in (row.base, row.patch):
        yield Cell(shown=number(value), number=float(value), kind=dim)
    changes = (row.patch - row.base, row.error, row.change_low, row.change_high)
    for shown, value in zip(measures(row), changes, strict=True):
        relative = value / abs(row.base) if row.base else value
        yield Cell(shown=shown, number=float(relative), kind=dim)


def _courses(base: Quantity, patch: Quantity, edges: np.ndarray) -> Markup:
    """Both sides by window; nothing for totals, sizes and states, which have no windows."""
    sides = [_by_window(each, edges) for each in (patch, base)]
    if any(each is None or pd.isna(each.values).all() for each in sides):
        return Markup(html="")
    return sparkline(f"{base.metric}, {base.scope}, by window", sides[0], dashed=sides[1])


def _by_window(quantity: Quantity, edges: np.ndarray) -> Course | None:
    if not quantity.has_windows:
        return None
    values = quantity.course(edges)
    return Course(times=np.arange(len(values), dtype=float), values=np.asarray(values, float))


def print_recording(recording: Recording, printer: Any, cycle: bool) -> None:
    """Print as `pagealloc info` does.

    Args:
        recording: an opened recording.
        printer: of IPython.
        cycle: whether the object is inside itself, which none of these can be.
    """
    printer.text(recording_text(recording))


def print_validation(validation: Validation, printer: Any, cycle: bool) -> None:
    """Print the verdict and the scored quantities; arguments as above."""
    printer.text(validation.to_text())


def print_replay(replay: Replay, printer: Any, cycle: bool) -> None:
    """Print a few lines; arguments as above."""
    printer.text(paragraph(f"{replay.name}, predicted: {replay_words(replay)}"))


def print_text(result: Any, printer: Any, cycle: bool) -> None:
    """Print what has `to_text()`; arguments as above."""
    printer.text(result.to_text())


EVENTS = (*word_columns("event"), "recorded", "per second", Column(title="over time", picture=True))
CHECKS = (
    *word_columns("", "check"),
    Column(title="found", long=True),
    Column(title="to do", long=True),
)
RECORDING_MARKS = {USABLE: ("\u2713", GOOD), DOUBT: ("?", BAD), REFUSED: ("\u2717", BAD)}
EVENT_BINS = 60


def recording_html(recording: Recording) -> str:
    """Return a summary line, what is in doubt, events over time; the rest is folded.

    Raises:
        RecordingError: the recording cannot be read.
    """
    described = describe_recording(recording)
    checks = described["provenance"]
    odd = [each for each in checks if each["level"] != USABLE]
    believed = believed_words([ProvenanceCheck(**each) for each in checks])
    return framed(
        line(recording_words(described), lead=f"{recording.name}:"),
        line(believed, kind=PLAIN if not odd else BAD),
        *([_checks(odd)] if odd else []),
        folded(
            f"Events ({sum(described['events'].values()):,} of the allocator)",
            Table(EVENTS, list(_events(recording, described)), "events").to_html(),
        ),
        folded(f"What was checked ({len(checks)})", _checks(checks)),
        folded(f"Missing ({len(described['missing'])})", listed(described["missing"])),
        folded("Rules", line(described["rules"]), rules_table(described["rule_evidence"])),
        folded("Origin", listed([f"path: {described['path']}", f"sha256: {described['sha256']}"])),
    )


def recording_words(described: Mapping[str, Any]) -> str:
    """Return one line: kernel, CPUs, time, events, losses, snapshots.

    Args:
        described: as `describe_recording` gives it.
    """
    events = sum(described["events"].values()) + sum(described["other_events"].values())
    lost = f"{described['lost']:,} lost" if described["lost"] else "none lost"
    cpus = count_of(described["cpus"], "CPU") if described["cpus"] else "unknown number of CPUs"
    return (
        f"kernel {described['kernel'] or 'unknown'}, {cpus}, "
        f"{described['seconds']:.1f} s, {count_of(events, 'event')} ({lost}), "
        f"{count_of(described['snapshots'], 'snapshot')}"
    )


def _checks(checks: Sequence[Mapping[str, str]]) -> Markup:
    rows = []
    for each in checks:
        mark, kind = RECORDING_MARKS[each["level"]]
        level = Cell(shown=f"{mark} {each['level']}", kind=kind)
        rows.append((level, each["check"], each["found"], each.get("todo", "")))
    return Table(CHECKS, rows, "whether the recording can be believed").to_html()


def _events(
    recording: Recording, described: Mapping[str, Any]
) -> Iterator[tuple[Cell, Cell, Cell, Cell]]:
    trace, seconds = recording.trace, max(described["seconds"], 1e-9)
    times = {name: trace.time_ns[trace.event == event] for name, event in EVENT_NAMES.items()}
    times |= {name: each["time_ns"] for name, each in trace.tables.items() if name not in times}
    for name, mine in times.items():
        counts, edges = np.histogram(mine, EVENT_BINS, trace.span_ns)
        course = Course(times=edges[:-1].astype(float), values=counts.astype(float))
        rate = len(mine) / seconds
        kind = PLAIN if len(mine) else DIM
        yield (
            Cell(shown=name, kind=kind),
            Cell(shown=f"{len(mine):,}", number=len(mine), kind=kind),
            Cell(shown=f"{rate:,.0f}", number=rate, kind=kind),
            Cell(shown=sparkline(f"{name} over time", course) if len(mine) else ""),
        )


def sweep_html(result: Any) -> str:
    """Return the points of a `SweepResult`, settings first, then what was predicted."""
    shown = ["recording", *result.axes, "seed", *result.metrics]
    failed = len(result.failed)
    parts = [
        line(f"{count_of(len(result.rows), 'point')}, {result.reused} known before", lead="Sweep:")
    ]
    if failed:
        parts.append(line(f"{count_of(failed, 'point')} failed", kind=BAD))
        shown.append("error")
    columns = [name for name in shown if name in result.rows]
    return framed(*parts, frame_table(result.rows[columns], "points of the sweep"))


def experiment_html(result: Any) -> str:
    """Return the changes of an `ExperimentResult`, and how often predictions were right."""
    failed = len(result.failed)
    words = count_of(len(result.runs), "run") + (f", {failed} failed" if failed else "")
    return framed(
        line(words, lead=f"{result.plan.name}:", kind=BAD if failed else PLAIN),
        frame_table(result.changes, "predicted and measured changes"),
        line("How often predictions were right, beside the model that nothing changes:"),
        frame_table(result.score, "score"),
    )


def fleet_html(result: Any) -> str:
    """Return the hosts of a `FleetResult`."""
    failed = len(result.failed)
    words = count_of(len(result.hosts), "host") + (f", {failed} failed" if failed else "")
    made = "made-up fleet:" if result.synthetic else "Fleet:"
    return framed(
        line(words, lead=made, kind=BAD if failed else PLAIN),
        frame_table(result.hosts, "hosts"),
    )


def frame_table(frame: pd.DataFrame, caption: str) -> Markup:
    """Return a DataFrame as a table that sorts and filters; columns of words are on the left."""
    numeric = {name: pd.api.types.is_numeric_dtype(frame[name]) for name in frame}
    columns = [Column(title=str(name), words=not is_one) for name, is_one in numeric.items()]
    rows = [
        [_cell(value, is_one) for value, is_one in zip(row, numeric.values(), strict=True)]
        for row in frame.itertuples(index=False, name=None)
    ]
    return Table(columns, rows, caption).to_html()


def _cell(value: Any, is_number: bool) -> Cell:
    if is_number:
        return Cell(shown=number(value), number=_sorted_by(value))
    return Cell(shown="" if value is None or value is pd.NA else str(value))


VALIDATION_COLUMNS = (
    *word_columns("", "metric", "scope"),
    Column(title="over time", picture=True),
    *("measured", "predicted", "error", "null error"),
    *word_columns("unit", "null model"),
)
VALIDATION_MARKS = {NEARER: ("\u2713 nearer", GOOD), FARTHER: ("\u2717 no nearer", BAD)}
"""How rows begin that can be held to a null model."""

FEW_MARKS = 12
"""Measured values up to this many are rings, more are a dashed line."""


def validation_html(validation: Validation) -> str:
    """Return the verdict, the error table, and folded what limits the comparison."""
    rows = [(row, against_null(row)) for row in validation.errors.itertuples()]
    return framed(
        line(headline(validation.scores), lead=f"{validation.recording.name}, predicted:"),
        Table(
            VALIDATION_COLUMNS,
            [list(_validation_cells(validation, *each)) for each in rows],
            "errors of the prediction",
        ).to_html(),
        line(
            "Line: predicted over time; rings or dashes: measured. "
            "Nearer: the error is smaller than the null model's, which knows no allocator.",
            kind=DIM,
        ),
        folded("What the columns mean", line(ERROR_RULE)),
        folded(f"Notes ({len(validation.notes)})", listed(validation.notes)),
        folded("What is not modelled", listed(validation.not_modelled)),
        *replay_parts(validation.replay, validation.rule_evidence),
    )


def _validation_cells(validation: Validation, row: Any, found: str) -> Iterator[Cell]:
    mark, kind = VALIDATION_MARKS.get(found, (found, DIM))
    dim = DIM if kind == DIM else ""
    yield Cell(shown=mark, kind=kind)
    yield Cell(shown=str(row.metric), kind=dim)
    yield Cell(shown=str(row.scope), kind=dim)
    yield Cell(shown=_course(validation, row))
    for value in (row.measured, row.predicted):
        yield Cell(shown=number(value), number=_sorted_by(value), kind=dim)
    for value, its in ((row.error, kind), (row.null_error, dim)):
        yield Cell(shown=error_cell(value, row), number=abs(_sorted_by(value)), kind=its)
    yield Cell(shown=str(row.unit), kind=DIM)
    yield Cell(shown=str(row.null_model or ""), kind=DIM)


def _course(validation: Validation, row: Any) -> Markup:
    edges = validation.replay.edges
    span = (int(edges[0]), int(edges[-1]))
    measured, predicted = (
        course_of(tables, row.metric, row.scope, span)
        for tables in (validation.measured, validation.replay)
    )
    if predicted is None:
        return Markup(html="")
    words = f"{row.metric}, {row.scope}, over time"
    if measured is not None and len(measured.values) > FEW_MARKS:
        return sparkline(words, predicted, dashed=measured)
    return sparkline(words, predicted, marks=measured)


def _sorted_by(value: Any) -> float:
    return float("nan") if pd.isna(value) else float(value)
