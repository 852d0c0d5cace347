"""Recordings, replays, validations, comparisons and results of studies as they show themselves.

All text is escaped here, or in the tables of `base.table`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from pagealloc_model.allocator.sites import EMPTY_SITES
from pagealloc_model.base.table import (
    BAD,
    DIM,
    GOOD,
    PLAIN,
    Cell,
    Column,
    Markup,
    Table,
    class_of,
    word_columns,
)
from pagealloc_model.base.text import count_of, number, paragraph, zone_scope
from pagealloc_model.numbers import result_tables as words_of
from pagealloc_model.numbers import vocabulary as voc
from pagealloc_model.numbers.comparison import BELIEVED, BETTER, CHANGED, WORSE
from pagealloc_model.numbers.errors import FARTHER, NEARER, against_null
from pagealloc_model.numbers.validation import headline
from pagealloc_model.numbers.values import Quantity, windows_of
from pagealloc_model.predicted.reclaim_mode import several_choices
from pagealloc_model.recording import provenance
from pagealloc_model.recording.trace.columns import EVENT_NAMES
from pagealloc_model.show.recording_text import describe_recording

if TYPE_CHECKING:
    from pagealloc_model.measured.rules import RuleEvidence
    from pagealloc_model.numbers.comparison import Comparison
    from pagealloc_model.numbers.validation import Validation
    from pagealloc_model.predicted.replay import Replay
    from pagealloc_model.recording.recording import Recording

STYLE, SCRIPT = (
    (Path(__file__).parent / f"results.{kind}").read_text(encoding="utf-8")
    for kind in ("css", "js")
)


def framed(*parts: Markup) -> str:
    """An output that carries its style and script."""
    body = "".join(part.html for part in parts)
    return f'<div class="pagealloc"><style>\n{STYLE}</style>{body}<script>\n{SCRIPT}</script></div>'


def line(text: str, *, lead: str = "", kind: str = PLAIN) -> Markup:
    """A paragraph."""
    bold = f"<b>{escape(lead)}</b> " if lead else ""
    return Markup(html=f"<p{class_of(kind)}>{bold}{escape(text)}</p>")


def _listed(lines: Iterable[str]) -> Markup:
    return Markup(html="<ul>" + "".join(f"<li>{escape(text)}</li>" for text in lines) + "</ul>")


def _folded(title: str, *parts: Markup) -> Markup:
    """Parts behind a title that opens them."""
    body = "".join(part.html for part in parts)
    return Markup(html=f"<details><summary>{escape(title)}</summary>{body}</details>")


WIDTH, HEIGHT, EDGE = 64, 22, 3
"""Pixels, and the room at each edge for a mark."""
MOST_POINTS = 60
BINS = 40
"""Of rates, over the whole recording."""
NAN = float("nan")
PICTURE = Column(title="over time", picture=True)
Course = tuple[np.ndarray, np.ndarray]
"""A quantity over time: times of any unit and values, float, shape (n,) each."""


def sparkline(
    words: str, line: Course | None, marks: Course | None = None, dashed: Course | None = None
) -> Markup:
    """A small picture that stretches from the smallest value to the largest; none without any."""
    nothing = (np.zeros(0), np.zeros(0))
    courses = []
    for times, values in (course or nothing for course in (dashed, line, marks)):
        courses.append((times[np.isfinite(values)], values[np.isfinite(values)]))
    every_time, every_value = map(np.concatenate, zip(*courses, strict=True))
    if not len(every_value):
        return Markup(html="")
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
    drawn += "".join(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2.2"/>' for x, y in places[2])
    label = escape(f"{words}; from {low:,.6g} to {high:,.6g}")
    return Markup(
        html=f'<svg role="img" aria-label="{label}" width="{WIDTH}" height="{HEIGHT}" '
        f'fill="none" stroke="currentColor"><title>{label}</title>{drawn}</svg>'
    )


def course_of(quantity: Quantity | None, span_ns: Iterable[int]) -> Course | None:
    """The course of a number that instants date; rates are sums over `BINS` parts of the time."""
    if quantity is None:
        return None
    times = quantity.time_ns.astype(float)
    if quantity.how != "sum":
        return times, quantity.values
    sums, edges = np.histogram(times, BINS, tuple(span_ns), weights=quantity.values)
    return (edges[:-1] + edges[1:]) / 2, sums.astype(float)


def _cell(value: Any, kind: str = PLAIN, shown: str | None = None) -> Cell:
    """Words or a picture as they are, a number in a few characters, or as `shown`."""
    if isinstance(value, str | Markup):
        return Cell(shown=value, kind=kind)
    amount = NAN if pd.isna(value) else float(value)
    return Cell(shown=number(value) if shown is None else shown, number=amount, kind=kind)


def _rules_table(evidence: Sequence[Mapping[str, Any]]) -> Markup:
    """A row for each rule, with what it rests on."""
    rows = [
        (
            *(str(rule["rule"]), str(rule["value"]).lower()),
            _cell(rule["standing"], BAD if "inferred" in rule["standing"] else PLAIN),
            _cell(rule["line"], DIM),
            str(rule["check"]),
        )
        for rule in evidence
    ]
    columns = word_columns("rule", "value", "standing", "from")
    columns.append(Column(title="events say", long=True))
    return Table(columns, rows, "rules and what they rest on").to_html()


def replay_html(replay: Replay) -> str:
    """A summary line, totals and states with their course, and folded where from."""
    zones = [zone for zone in replay.machine.zones if zone.managed]
    names = [zone_scope(zone.node, zone.name, replay.machine.nodes) for zone in zones]
    scored = [row for row in voc.STATES if row.verdict[0]]
    parts = [(row, "all") for row in voc.MOVED] + [(row, zone) for row in scored for zone in names]
    dated = voc.over_time(replay, replay.machine)
    rows = []
    for row, scope in parts:
        course = course_of(dated.get((row.name, scope)), replay.edges[[0, -1]].tolist())
        value = NAN
        if course is not None and len(course[1]):
            value = float(course[1].sum() if row in voc.MOVED else course[1][-1])
        cells = [_cell(value), _cell(NAN, shown="")]
        cells = cells if row in voc.MOVED else cells[::-1]
        picture = _cell(sparkline(f"{row.name}, {scope}", course))
        unit = _cell(row.unit or "holds of zone->lock", DIM)
        rows.append((row.name, scope, *cells, picture, unit))
    imposed = f"imposed from the recording, so no prediction: {', '.join(replay.imposed)}"
    head = (*word_columns("predicted", "scope"), "total", "at the end", PICTURE)
    return framed(
        line(_replay_words(replay), lead=f"{replay.name}, predicted:"),
        line(str(replay.reclaim)),
        *([line(imposed, kind=BAD)] if replay.imposed else []),
        Table((*head, *word_columns("unit")), rows, "what the replay predicts").to_html(),
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
        _folded("Policy", _listed(policy)),
        _folded("Rules", line(replay.rules_origin), _rules_table(rules)),
        _folded("Start state", _listed(replay.start_state)),
        _folded("Where replay and recording could not agree", _listed(counts or ["nowhere"])),
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
        picture = Markup(html="")
        # totals, sizes and states have no windows
        if sides and all(side.has_windows for side in sides):
            courses = [np.asarray(side.course(edges), float) for side in sides]
            if not any(np.isnan(values).all() for values in courses):
                base, patch = ((np.arange(len(values), dtype=float), values) for values in courses)
                picture = sparkline(f"{row.metric}, {row.scope}, by window", patch, dashed=base)
        mark, kind = COMPARISON_MARKS.get(row.verdict, (words_of.judgement(row), DIM))
        dim = PLAIN if row.verdict in BELIEVED else DIM
        values = (words_of.with_unit(row), str(row.scope), picture, row.base, row.patch)
        cells = [_cell(value, PLAIN if value is picture else dim) for value in values]
        change, error, low, high = words_of.measures(row)
        for value, shown in (
            (row.patch - row.base, change),
            (row.change_low, low),
            (row.change_high, high),
        ):
            cells.append(_cell(value / abs(row.base) if row.base else value, dim, shown))
        size = NAN if pd.isna(row.error) else abs(float(row.error))
        cells.append(_cell(size, dim, f"{error} ({row.null_words})"))
        rows.append([_cell(mark, kind), *cells])
    numbers = ("base", "patch", "change", "from", "to", "error (null)")
    columns = (*word_columns("", "metric", "scope"), PICTURE, *numbers)
    return framed(
        line(comparison.footer().policy_difference, lead=f"{comparison.base.name}:"),
        line(comparison.believable),
        Table(columns, rows, "what the patch changes").to_html(),
        line("Line: patch over time; dashes: base.", kind=DIM),
        _folded("What the columns mean", line(words_of.SIGNED_RULE)),
        _folded("What both sides were made from", *_replay_parts(comparison.base)),
    )


def replay_text(replay: Replay) -> str:
    """A few lines on a replay."""
    words = f"{replay.name}, predicted: {_replay_words(replay)}"
    return "\n".join(map(paragraph, (words, str(replay.reclaim))))


RECORDING_MARKS = {
    provenance.USABLE: ("\u2713", GOOD),
    provenance.DOUBT: ("?", BAD),
    provenance.REFUSED: ("\u2717", BAD),
}


def recording_html(recording: Recording) -> str:
    """A summary line, what is in doubt, events over time; the rest is folded.

    Raises:
        RecordingError: the recording cannot be read.
    """
    described = describe_recording(recording)
    trace, seconds = recording.trace, described["seconds"]
    times = {name: trace.time_ns[trace.event == event] for name, event in EVENT_NAMES.items()}
    others = {name: table["time_ns"] for name, table in trace.tables.items() if name not in times}
    rows = []
    for name, instants in (times | others).items():
        counts, edges = np.histogram(instants, 60, trace.span_ns)
        course = (edges[:-1].astype(float), counts.astype(float)) if len(instants) else None
        rate, kind = len(instants) / max(seconds, 1e-9), PLAIN if len(instants) else DIM
        cells = (_cell(name, kind), _cell(len(instants), kind, f"{len(instants):,}"))
        picture = sparkline(f"{name} over time", course)
        rows.append((*cells, _cell(rate, kind, f"{rate:,.0f}"), _cell(picture)))
    columns = (*word_columns("event"), "recorded", "per second", PICTURE)
    events = sum(described["events"].values())
    count = events + sum(described["other_events"].values())
    lost = f"{described['lost']:,} lost" if described["lost"] else "none lost"
    cpus = count_of(described["cpus"], "CPU") if described["cpus"] else "unknown number of CPUs"
    words = (
        f"kernel {described['kernel'] or 'unknown'}, {cpus}, "
        f"{seconds:.1f} s, {count_of(count, 'event')} ({lost}), "
        f"{count_of(described['snapshots'], 'snapshot')}"
    )
    checks = described["provenance"]
    odd = [check for check in checks if check["level"] != provenance.USABLE]
    believed = provenance.believed_words([provenance.ProvenanceCheck(**check) for check in checks])
    origin = [f"path: {described['path']}", f"sha256: {described['sha256']}"]
    return framed(
        line(words, lead=f"{recording.name}:"),
        line(believed, kind=BAD if odd else PLAIN),
        *([_checks(odd)] if odd else []),
        _folded(f"Events ({events:,} of the allocator)", Table(columns, rows, "events").to_html()),
        _folded(f"What was checked ({len(checks)})", _checks(checks)),
        _folded(f"Missing ({len(described['missing'])})", _listed(described["missing"])),
        _folded("Rules", line(described["rules"]), _rules_table(described["rule_evidence"])),
        _folded("Origin", _listed(origin)),
    )


def _checks(checks: Sequence[Mapping[str, str]]) -> Markup:
    rows = []
    for check in checks:
        mark, kind = RECORDING_MARKS[check["level"]]
        level = _cell(f"{mark} {check['level']}", kind)
        rows.append((level, check["check"], check["found"], check.get("todo", "")))
    long = [Column(title=title, long=True) for title in ("found", "to do")]
    columns = (*word_columns("", "check"), *long)
    return Table(columns, rows, "whether the recording can be believed").to_html()


def sweep_html(result: Any) -> str:
    """The points of a `SweepResult`, settings first, then what was predicted."""
    failed = len(result.failed)
    words = f"{count_of(len(result.rows), 'point')}, {result.reused} known before"
    failures = [line(f"{count_of(failed, 'point')} failed", kind=BAD)] if failed else []
    shown = ["recording", *result.axes, "seed", *result.metrics, *(["error"] if failed else [])]
    points = frame_table(
        result.rows[[name for name in shown if name in result.rows]], "points of the sweep"
    )
    reclaim = line(several_choices(result.reclaim))
    return framed(line(words, lead="Sweep:"), *failures, reclaim, points)


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
    summary = _counted("Fleet:", "host", result.hosts, result.failed)
    reclaim = line(several_choices(result.reclaim))
    return framed(summary, reclaim, frame_table(result.hosts, "hosts"))


def _counted(lead: str, noun: str, rows: Sequence[Any], failed: Sequence[Any]) -> Markup:
    words = count_of(len(rows), noun) + (f", {len(failed)} failed" if len(failed) else "")
    return line(words, lead=lead, kind=BAD if len(failed) else PLAIN)


def frame_table(frame: pd.DataFrame, caption: str) -> Markup:
    """A DataFrame as a table that sorts and filters; columns of words are on the left."""
    columns, cells = [], []
    for name in frame:
        is_number = pd.api.types.is_numeric_dtype(frame[name])
        columns.append(Column(title=str(name), words=not is_number))
        values = frame[name] if is_number else frame[name].astype(object)
        texts = ("" if value is None or value is pd.NA else str(value) for value in values)
        cells.append(map(_cell, values if is_number else texts))
    return Table(columns, list(zip(*cells, strict=True)), caption).to_html()


VALIDATION_MARKS = {NEARER: ("\u2713 nearer", GOOD), FARTHER: ("\u2717 no nearer", BAD)}
"""Beginnings of rows that can be held to a null model."""


def validation_html(validation: Validation) -> str:
    """The verdict, the error table, and folded what limits the comparison."""
    replay = validation.replay
    span = (int(replay.edges[0]), int(replay.edges[-1]))
    sides = [voc.over_time(side, replay.machine) for side in (validation.measured, replay)]
    rows = []
    for row in validation.errors.itertuples():
        measured, predicted = (course_of(side.get((row.metric, row.scope)), span) for side in sides)
        # few measured values are rings, more are a dashed line
        is_many = measured is not None and len(measured[1]) > 12
        beside = {"dashed" if is_many else "marks": measured if predicted else None}
        picture = sparkline(f"{row.metric}, {row.scope}, over time", predicted, **beside)
        judged = against_null(row)
        mark, kind = VALIDATION_MARKS.get(judged, (judged, DIM))
        dim = DIM if kind == DIM else PLAIN
        cells = [_cell(mark, kind), *(_cell(str(text), dim) for text in (row.metric, row.scope))]
        cells += [_cell(picture), _cell(row.measured, dim), _cell(row.predicted, dim)]
        for value, own, said in (
            (row.error, kind, words_of.error_cell(row)),
            (row.null_error, dim, words_of.null_cell(row)),
        ):
            cells.append(_cell(NAN if pd.isna(value) else abs(float(value)), own, said))
        cells += [_cell(str(words), DIM) for words in (row.unit, row.null_model or "")]
        rows.append(cells)
    explained = (
        "Line: predicted over time; rings or dashes: measured. "
        "Nearer: the error is smaller than the null model's, which knows no allocator."
    )
    numbers = ("measured", "predicted", "error", "null error")
    columns = (*word_columns("", "metric", "scope"), PICTURE, *numbers)
    columns += tuple(word_columns("unit", "null model"))
    return framed(
        line(headline(validation.scores), lead=f"{validation.recording.name}:"),
        line(str(replay.reclaim)),
        Table(columns, rows, "errors of the prediction").to_html(),
        line(explained, kind=DIM),
        _folded("What the columns mean", line(words_of.ERROR_RULE)),
        _folded(f"Notes ({len(validation.notes)})", _listed(validation.notes)),
        _folded("What is not modelled", _listed(validation.not_modelled)),
        *_replay_parts(replay, validation.rule_evidence),
    )
