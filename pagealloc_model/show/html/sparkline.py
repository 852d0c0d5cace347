"""A line of a few characters' size, drawn inside a table's row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from itertools import pairwise

import numpy as np

from pagealloc_model.show.html.parts import Markup

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
