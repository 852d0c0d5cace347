"""What differs between two drawings, so that only that is sent and drawn again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pagealloc_model.show.figures.drawing import Drawing
from pagealloc_model.show.figures.lanes import Trace

MOVING = ("x", "y", "z", "customdata", "text")
"""What of a trace may differ between two drawings of one frame."""
NOTES = "annotations"
"""What of a layout may differ."""
MOVED_IN_PLACE = ("scatter", "bar")
"""Types of traces that plotly moves without laying out the figure anew."""


@dataclass(frozen=True, kw_only=True)
class Moves:
    """How one drawing becomes another of the same frame.

    Attributes:
        coordinates: number of a trace -> what it has anew.
        in_place: whether the page can move them without laying out the figure anew: lines and bars
            that have other numbers in the same places.
        notes: all annotations where one differs, such as who has no value in a panel; else None.
    """

    coordinates: dict[int, Trace]
    in_place: bool
    notes: list[Any] | None = None


def moves_between(before: Drawing, after: Drawing) -> Moves | None:
    """What moved; None if more than coordinates and notes differs."""
    if not same_frame(before, after, but=NOTES):
        return None
    coordinates = {}
    for number, (old, new) in enumerate(zip(before.traces, after.traces, strict=True)):
        moved = {name: new[name] for name in MOVING if not same(old.get(name), new.get(name))}
        if moved:
            coordinates[number] = moved
    in_place = all(
        set(moved) <= {"x", "y"}
        and after.traces[number]["type"] in MOVED_IN_PLACE
        and all(map(_are_numbers, moved.values()))
        for number, moved in coordinates.items()
    )
    earlier, notes = (list(each.layout.get(NOTES, ())) for each in (before, after))
    return Moves(
        coordinates=coordinates,
        in_place=in_place,
        notes=None if same(earlier, notes) else notes,
    )


def same_frame(before: Drawing, after: Drawing, *, but: str = "") -> bool:
    """Whether two drawings differ in the coordinates of their traces only.

    Args:
        before: a drawing.
        after: another.
        but: a part of the layout that may differ too.
    """
    layouts = [
        {name: part for name, part in each.layout.items() if name != but}
        for each in (before, after)
    ]
    return (
        len(before.traces) == len(after.traces)
        and same(*layouts)
        and all(
            same(_frame(old), _frame(new))
            for old, new in zip(before.traces, after.traces, strict=True)
        )
    )


def same(first: Any, second: Any) -> bool:
    """Whether two values of a drawing are equal; nan equals nan."""
    if isinstance(first, np.ndarray) or isinstance(second, np.ndarray):
        return _same_arrays(first, second)
    if isinstance(first, dict) and isinstance(second, dict):
        return first.keys() == second.keys() and all(same(first[key], second[key]) for key in first)
    if isinstance(first, list | tuple) and isinstance(second, list | tuple):
        return len(first) == len(second) and all(map(same, first, second))
    return bool(first == second)


def _same_arrays(first: Any, second: Any) -> bool:
    if first is None or second is None:
        return False
    mine, other = np.asarray(first), np.asarray(second)
    is_float = mine.dtype.kind == other.dtype.kind == "f"
    return np.array_equal(mine, other, equal_nan=is_float)


def _frame(trace: Trace) -> Trace:
    """The trace without coordinates, but with the names of those that it has."""
    kept = {name: each for name, each in trace.items() if name not in MOVING}
    return kept | {"has": [name for name in MOVING if trace.get(name) is not None]}


def _are_numbers(values: Sequence[Any]) -> bool:
    return np.asarray(values).dtype.kind in "iuf"
