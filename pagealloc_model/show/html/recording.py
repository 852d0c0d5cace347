"""A recording in a notebook: what it holds, what it lost, whether it can be believed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from pagealloc_model.base.text.counts import count_of
from pagealloc_model.recording.provenance_check import (
    DOUBT,
    REFUSED,
    USABLE,
    ProvenanceCheck,
    believed_words,
)
from pagealloc_model.recording.trace.columns import EVENT_NAMES
from pagealloc_model.show.html.parts import (
    BAD,
    DIM,
    GOOD,
    PLAIN,
    Cell,
    Column,
    Markup,
    folded,
    framed,
    line,
    listed,
    table,
)
from pagealloc_model.show.html.sparkline import Course, sparkline
from pagealloc_model.show.recording_text import describe_recording

if TYPE_CHECKING:
    from pagealloc_model.recording.recording import Recording

EVENTS = (
    Column(title="event", words=True),
    Column(title="recorded"),
    Column(title="per second"),
    Column(title="over time"),
)
CHECKS = (
    Column(title="", words=True),
    Column(title="check", words=True),
    Column(title="found", long=True),
    Column(title="to do", long=True),
)
RULES = (
    Column(title="rule", words=True),
    Column(title="value", words=True),
    Column(title="standing", words=True),
    Column(title="from", words=True),
)
MARKS = {USABLE: ("\u2713", GOOD), DOUBT: ("?", BAD), REFUSED: ("\u2717", BAD)}
BINS = 60


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
            table(EVENTS, _events(recording, described), "events"),
        ),
        folded(f"What was checked ({len(checks)})", _checks(checks)),
        folded(f"Missing ({len(described['missing'])})", listed(described["missing"])),
        folded("Rules", line(described["rules"]), _rules(described)),
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
        mark, kind = MARKS[each["level"]]
        rows.append(
            (
                Cell(shown=f"{mark} {each['level']}", kind=kind),
                Cell(shown=each["check"]),
                Cell(shown=each["found"]),
                Cell(shown=each.get("todo", "")),
            )
        )
    return table(CHECKS, rows, "whether the recording can be believed")


def _events(
    recording: Recording, described: Mapping[str, Any]
) -> Iterator[tuple[Cell, Cell, Cell, Cell]]:
    trace, seconds = recording.trace, max(described["seconds"], 1e-9)
    times = {name: trace.time_ns[trace.event == event] for name, event in EVENT_NAMES.items()}
    times |= {name: each["time_ns"] for name, each in trace.tables.items() if name not in times}
    for name, mine in times.items():
        counts, edges = np.histogram(mine, BINS, trace.span_ns)
        course = Course(times=edges[:-1].astype(float), values=counts.astype(float))
        rate = len(mine) / seconds
        kind = PLAIN if len(mine) else DIM
        yield (
            Cell(shown=name, kind=kind),
            Cell(shown=f"{len(mine):,}", number=len(mine), kind=kind),
            Cell(shown=f"{rate:,.0f}", number=rate, kind=kind),
            Cell(shown=sparkline(f"{name} over time", course) if len(mine) else ""),
        )


def _rules(described: Mapping[str, Any]) -> Markup:
    rows = (
        [Cell(shown=str(each[name]).lower()) for name in ("rule", "value", "standing", "line")]
        for each in described["rule_evidence"]
    )
    return table(RULES, rows, "rules and what they rest on")
