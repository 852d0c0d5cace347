"""Recordings, replays, validations, comparisons and results of studies as they show themselves."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from html import escape
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

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
from pagealloc_model.verdict.result_tables import (
    ERROR_RULE,
    SIGNED_RULE,
    error_cell,
    judgement,
    measures,
    with_unit,
)

if TYPE_CHECKING:
    from pagealloc_model.measured.rules import RuleEvidence
    from pagealloc_model.predicted.replay import Replay
    from pagealloc_model.recording.recording import Recording
    from pagealloc_model.verdict.comparison import Comparison
    from pagealloc_model.verdict.validation import Validation

WIDTH, HEIGHT, EDGE = 96, 22, 3
"""Pixels, and the room at each edge for a mark."""
MOST_POINTS = 60
MARK = 2.2
BINS = 40
"""Of rates, over the whole recording."""
EVENT_BINS = 60
NAN = float("nan")
NO_PICTURE = Markup(html="")
PICTURE = Column(title="over time", picture=True)

Course = tuple[np.ndarray, np.ndarray]
"""A quantity over time: times of any unit and values, float, shape (n,) each."""


def sparkline(
    words: str, line: Course, marks: Course | None = None, dashed: Course | None = None
) -> Markup:
    """A small picture that stretches from the smallest value to the largest."""
    courses = []
    for course in (dashed, line, marks):
        times, values = (np.zeros(0), np.zeros(0)) if course is None else course
        courses.append((times[np.isfinite(values)], values[np.isfinite(values)]))
    every_time, every_value = map(np.concatenate, zip(*courses, strict=True))
    if not len(every_value):
        return NO_PICTURE
    low, high = float(every_value.min()), float(every_value.max())
    first, last = float(every_time.min()), float(every_time.max())
    places = []
    for times, values in courses:
        if len(values) > MOST_POINTS:  # of each stretch the one furthest from the mean
            away = np.abs(values - values.mean())
            edges = np.linspace(0, len(values), MOST_POINTS + 1).astype(int).tolist()
            far = [begin + int(away[begin:end].argmax()) for begin, end in pairwise(edges)]
            times, values = times[far], values[far]
        across = (times - first) / max(last - first, 1e-9)
        up = (values - low) / (high - low) if high > low else 0.5 + 0 * values
        x = EDGE + across * (WIDTH - 2 * EDGE)
        y = HEIGHT - EDGE - up * (HEIGHT - 2 * EDGE)
        places.append(list(zip(x.tolist(), y.tolist(), strict=True)))
    drawn = ""
    for points, dashes in zip(places, (' stroke-dasharray="3 2"', ""), strict=False):
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        drawn += f'<polyline points="{path}" stroke-width="1.2"{dashes}/>' if path else ""
    drawn += "".join(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{MARK}"/>' for x, y in places[2])
    label = escape(f"{words}; from {low:,.6g} to {high:,.6g}")
    return Markup(
        html=f'<svg role="img" aria-label="{label}" width="{WIDTH}" height="{HEIGHT}" '
        f'fill="none" stroke="currentColor"><title>{label}</title>{drawn}</svg>'
    )


def course_of(tables: Any, metric: str, scope: str, span_ns: Iterable[int]) -> Course | None:
    """The course of a metric of the error table, None where its tables do not say.

    Rates are sums over `BINS` equal parts of the time.
    """
    quantity = scoped_quantity(tables, metric, scope)
    if quantity is None:
        return None
    times = quantity.time_ns.astype(float)
    if quantity.how == "mean":
        return times, quantity.values
    sums, edges = np.histogram(times, BINS, tuple(span_ns), weights=quantity.values)
    return (edges[:-1] + edges[1:]) / 2, sums.astype(float)


def _rules_table(evidence: Sequence[Mapping[str, Any]]) -> Markup:
    """A row for each rule, with what it rests on."""
    words = word_columns("rule", "value", "standing", "from")
    rows = []
    for rule in evidence:
        kind = BAD if "inferred" in rule["standing"] else PLAIN
        standing = Cell(shown=rule["standing"], kind=kind)
        origin = Cell(shown=rule["line"], kind=DIM)
        value, check = str(rule["value"]).lower(), str(rule["check"])
        rows.append((str(rule["rule"]), value, standing, origin, check))
    columns = [*words, Column(title="events say", long=True)]
    return Table(columns, rows, "rules and what they rest on").to_html()


REPLAY_COLUMNS = (
    *word_columns("predicted", "scope"),
    *("total", "at the end", PICTURE),
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
    """A summary line, totals and states with their course, and folded where from."""
    has_nodes = len(replay.machine.nodes) > 1
    zones = [zone for zone in replay.machine.zones if zone.managed]
    names = [(f"node={zone.node}," if has_nodes else "") + f"zone={zone.name}" for zone in zones]
    parts = [(metric, "all", unit) for metric, unit in TOTALS.items()]
    parts += [(metric, zone, unit) for metric, unit in STATES.items() for zone in names]
    rows = []
    for metric, scope, unit in parts:
        course = course_of(replay, metric, scope, (int(replay.edges[0]), int(replay.edges[-1])))
        value, picture = NAN, NO_PICTURE
        if course is not None:
            picture = sparkline(f"{metric}, {scope}", course)
            if len(course[1]):
                value = float(course[1].sum() if metric in TOTALS else course[1][-1])
        cells = [Cell(shown=number(value), number=value), Cell(shown="", number=NAN)]
        cells = cells if metric in TOTALS else cells[::-1]
        rows.append((metric, scope, *cells, Cell(shown=picture), Cell(shown=unit, kind=DIM)))
    imposed = f"not a prediction: imposed are {', '.join(replay.imposed)}"
    return framed(
        line(_replay_words(replay), lead=f"{replay.name}, predicted:"),
        *([line(imposed, kind=BAD)] if replay.imposed else []),
        Table(REPLAY_COLUMNS, rows, "what the replay predicts").to_html(),
        *_replay_parts(replay),
    )


def _replay_words(replay: Replay) -> str:
    """One line: policy, time, events and holds of zone->lock."""
    changed = ", ".join(f"{name}={value}" for name, value in replay.asked_policy.given().items())
    seconds = (int(replay.edges[-1]) - int(replay.edges[0])) / 1e9
    holds = int((~replay.transactions_full["site"].isin(EMPTY_SITES)).sum())
    return (
        f"policy {changed or 'as recorded'}; {seconds:.1f} s, {len(replay.demand.events):,} "
        f"requests and frees, zone->lock held {count_of(holds, 'time')}, "
        f"{count_of(int(replay.fallbacks['count'].sum()), 'fallback')}"
    )


def _replay_parts(
    replay: Replay, evidence: Sequence[RuleEvidence] | None = None
) -> tuple[Markup, ...]:
    """Folded, the rules, the start state, and where recording and model disagreed.

    `evidence` is what the rules rest on, if that was held against events.
    """
    counts = [f"{name}: {count:,}" for name, count in replay.divergence.items() if count]
    policy = [f"{name} = {value}" for name, value in replay.policy.given().items()]
    rules = [rule.to_dict() for rule in evidence or replay.rule_evidence]
    return (
        folded("Policy", listed(policy)),
        folded("Rules", line(replay.rules_origin), _rules_table(rules)),
        folded("Start state", listed(replay.start_state)),
        folded("Where replay and recording could not agree", listed(counts or ["nowhere"])),
    )


COMPARISON_COLUMNS = (
    *word_columns("", "metric", "scope"),
    PICTURE,
    *("base", "patch", "change", "error", "from", "to"),
)
COMPARISON_MARKS = {
    BETTER: ("\u2713 better", GOOD),
    WORSE: ("\u2717 worse", BAD),
    CHANGED: ("\u2260 changed", GOOD),
}


def comparison_html(comparison: Comparison) -> str:
    """The rows that are known, with the line that says which to believe."""
    known = comparison.rows
    known = known[known["base"].notna() | known["patch"].notna()]
    edges = windows_of(comparison.base)
    pairs = {(base.metric, base.scope): (base, patch) for base, patch in comparison.pairs}
    rows = []
    for row in known.itertuples():
        sides = pairs.get((row.metric, row.scope), ())
        picture = NO_PICTURE
        # totals, sizes and states have no windows
        if sides and all(side.has_windows for side in sides):
            base, patch = (np.asarray(side.course(edges), float) for side in sides)
            if not np.isnan(base).all() and not np.isnan(patch).all():
                words = f"{row.metric}, {row.scope}, by window"
                base, patch = ((np.arange(len(each), dtype=float), each) for each in (base, patch))
                picture = sparkline(words, patch, dashed=base)
        mark, kind = COMPARISON_MARKS.get(row.verdict, (judgement(row), DIM))
        dim = PLAIN if row.verdict in BELIEVED else DIM
        cells = [Cell(shown=mark, kind=kind)]
        cells += [Cell(shown=words, kind=dim) for words in (with_unit(row), str(row.scope))]
        cells.append(Cell(shown=picture))
        cells += [_number_cell(value, dim) for value in (row.base, row.patch)]
        changes = (row.patch - row.base, row.error, row.change_low, row.change_high)
        for shown, value in zip(measures(row), changes, strict=True):
            relative = value / abs(row.base) if row.base else value
            cells.append(Cell(shown=shown, number=float(relative), kind=dim))
        rows.append(cells)
    return framed(
        line(comparison.footer().policy_difference, lead=f"{comparison.base.name}:"),
        line(comparison.believable),
        Table(COMPARISON_COLUMNS, rows, "what the patch changes").to_html(),
        line("Line: patch over time; dashes: base.", kind=DIM),
        folded("What the columns mean", line(SIGNED_RULE)),
        folded("What both sides were made from", *_replay_parts(comparison.base)),
    )


def _number_cell(value: Any, kind: str = PLAIN) -> Cell:
    return Cell(shown=number(value), number=NAN if pd.isna(value) else float(value), kind=kind)


def print_recording(recording: Recording, printer: Any, cycle: bool) -> None:
    """Print as `pagealloc info` does."""
    printer.text(recording_text(recording))


def print_replay(replay: Replay, printer: Any, cycle: bool) -> None:
    """Print a few lines; arguments as above."""
    printer.text(paragraph(f"{replay.name}, predicted: {_replay_words(replay)}"))


def print_text(result: Any, printer: Any, cycle: bool) -> None:
    """Print what has `to_text()`; arguments as above."""
    printer.text(result.to_text())


EVENTS = (*word_columns("event"), "recorded", "per second", PICTURE)
CHECKS = (
    *word_columns("", "check"),
    Column(title="found", long=True),
    Column(title="to do", long=True),
)
RECORDING_MARKS = {USABLE: ("\u2713", GOOD), DOUBT: ("?", BAD), REFUSED: ("\u2717", BAD)}


def recording_html(recording: Recording) -> str:
    """A summary line, what is in doubt, events over time; the rest is folded.

    Raises:
        RecordingError: the recording cannot be read.
    """
    described = describe_recording(recording)
    events = sum(described["events"].values())
    count = events + sum(described["other_events"].values())
    lost = f"{described['lost']:,} lost" if described["lost"] else "none lost"
    cpus = count_of(described["cpus"], "CPU") if described["cpus"] else "unknown number of CPUs"
    words = (
        f"kernel {described['kernel'] or 'unknown'}, {cpus}, "
        f"{described['seconds']:.1f} s, {count_of(count, 'event')} ({lost}), "
        f"{count_of(described['snapshots'], 'snapshot')}"
    )
    checks = described["provenance"]
    odd = [check for check in checks if check["level"] != USABLE]
    believed = believed_words([ProvenanceCheck(**check) for check in checks])
    table = Table(EVENTS, list(_events(recording, described["seconds"])), "events").to_html()
    return framed(
        line(words, lead=f"{recording.name}:"),
        line(believed, kind=PLAIN if not odd else BAD),
        *([_checks(odd)] if odd else []),
        folded(f"Events ({events:,} of the allocator)", table),
        folded(f"What was checked ({len(checks)})", _checks(checks)),
        folded(f"Missing ({len(described['missing'])})", listed(described["missing"])),
        folded("Rules", line(described["rules"]), _rules_table(described["rule_evidence"])),
        folded("Origin", listed([f"path: {described['path']}", f"sha256: {described['sha256']}"])),
    )


def _checks(checks: Sequence[Mapping[str, str]]) -> Markup:
    rows = []
    for check in checks:
        mark, kind = RECORDING_MARKS[check["level"]]
        level = Cell(shown=f"{mark} {check['level']}", kind=kind)
        rows.append((level, check["check"], check["found"], check.get("todo", "")))
    return Table(CHECKS, rows, "whether the recording can be believed").to_html()


def _events(recording: Recording, seconds: float) -> Iterator[tuple[Cell, ...]]:
    trace = recording.trace
    times = {name: trace.time_ns[trace.event == event] for name, event in EVENT_NAMES.items()}
    tables = {name: table for name, table in trace.tables.items() if name not in times}
    for name, instants in (times | {name: tables[name]["time_ns"] for name in tables}).items():
        counts, edges = np.histogram(instants, EVENT_BINS, trace.span_ns)
        course = edges[:-1].astype(float), counts.astype(float)
        rate = len(instants) / max(seconds, 1e-9)
        kind = PLAIN if len(instants) else DIM
        yield (
            Cell(shown=name, kind=kind),
            Cell(shown=f"{len(instants):,}", number=len(instants), kind=kind),
            Cell(shown=f"{rate:,.0f}", number=rate, kind=kind),
            Cell(shown=sparkline(f"{name} over time", course) if len(instants) else ""),
        )


def sweep_html(result: Any) -> str:
    """The points of a `SweepResult`, settings first, then what was predicted."""
    failed = len(result.failed)
    words = f"{count_of(len(result.rows), 'point')}, {result.reused} known before"
    failures = [line(f"{count_of(failed, 'point')} failed", kind=BAD)] if failed else []
    shown = ["recording", *result.axes, "seed", *result.metrics, *(["error"] if failed else [])]
    columns = [name for name in shown if name in result.rows]
    points = frame_table(result.rows[columns], "points of the sweep")
    return framed(line(words, lead="Sweep:"), *failures, points)


def experiment_html(result: Any) -> str:
    """The changes of an `ExperimentResult`, and how often predictions were right."""
    return framed(
        _counted(f"{result.plan.name}:", "run", result.runs, result.failed),
        frame_table(result.changes, "predicted and measured changes"),
        line("How often predictions were right, beside the model that nothing changes:"),
        frame_table(result.score, "score"),
    )


def fleet_html(result: Any) -> str:
    """The hosts of a `FleetResult`."""
    lead = "made-up fleet:" if result.synthetic else "Fleet:"
    summary = _counted(lead, "host", result.hosts, result.failed)
    return framed(summary, frame_table(result.hosts, "hosts"))


def _counted(lead: str, noun: str, rows: Sequence[Any], failed: Sequence[Any]) -> Markup:
    words = count_of(len(rows), noun) + (f", {len(failed)} failed" if len(failed) else "")
    return line(words, lead=lead, kind=BAD if len(failed) else PLAIN)


def frame_table(frame: pd.DataFrame, caption: str) -> Markup:
    """A DataFrame as a table that sorts and filters; columns of words are on the left."""
    numeric = [pd.api.types.is_numeric_dtype(frame[name]) for name in frame]
    pairs = zip(frame, numeric, strict=True)
    columns = [Column(title=str(name), words=not is_number) for name, is_number in pairs]
    rows = [
        [
            _number_cell(value)
            if is_number
            else Cell(shown="" if value is None or value is pd.NA else str(value))
            for value, is_number in zip(row, numeric, strict=True)
        ]
        for row in frame.itertuples(index=False, name=None)
    ]
    return Table(columns, rows, caption).to_html()


VALIDATION_COLUMNS = (
    *word_columns("", "metric", "scope"),
    *(PICTURE, "measured", "predicted", "error", "null error"),
    *word_columns("unit", "null model"),
)
VALIDATION_MARKS = {NEARER: ("\u2713 nearer", GOOD), FARTHER: ("\u2717 no nearer", BAD)}
"""Beginnings of rows that can be held to a null model."""
FEW_MARKS = 12
"""Measured values up to this many are rings, more are a dashed line."""


def validation_html(validation: Validation) -> str:
    """The verdict, the error table, and folded what limits the comparison."""
    replay = validation.replay
    span = (int(replay.edges[0]), int(replay.edges[-1]))
    rows = []
    for row in validation.errors.itertuples():
        measured, predicted = (
            course_of(tables, row.metric, row.scope, span)
            for tables in (validation.measured, replay)
        )
        picture = NO_PICTURE
        if predicted is not None:
            is_many = measured is not None and len(measured[1]) > FEW_MARKS
            beside = {"dashed" if is_many else "marks": measured}
            picture = sparkline(f"{row.metric}, {row.scope}, over time", predicted, **beside)
        judged = against_null(row)
        mark, kind = VALIDATION_MARKS.get(judged, (judged, DIM))
        dim = DIM if kind == DIM else PLAIN
        cells = [Cell(shown=mark, kind=kind)]
        cells += [Cell(shown=str(words), kind=dim) for words in (row.metric, row.scope)]
        cells.append(Cell(shown=picture))
        cells += [_number_cell(value, dim) for value in (row.measured, row.predicted)]
        for value, own in ((row.error, kind), (row.null_error, dim)):
            size = NAN if pd.isna(value) else abs(float(value))
            cells.append(Cell(shown=error_cell(value, row), number=size, kind=own))
        cells += [Cell(shown=str(row.unit), kind=DIM)]
        cells += [Cell(shown=str(row.null_model or ""), kind=DIM)]
        rows.append(cells)
    explained = (
        "Line: predicted over time; rings or dashes: measured. "
        "Nearer: the error is smaller than the null model's, which knows no allocator."
    )
    return framed(
        line(headline(validation.scores), lead=f"{validation.recording.name}, predicted:"),
        Table(VALIDATION_COLUMNS, rows, "errors of the prediction").to_html(),
        line(explained, kind=DIM),
        folded("What the columns mean", line(ERROR_RULE)),
        folded(f"Notes ({len(validation.notes)})", listed(validation.notes)),
        folded("What is not modelled", listed(validation.not_modelled)),
        *_replay_parts(replay, validation.rule_evidence),
    )
