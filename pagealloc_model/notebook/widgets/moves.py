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


@dataclass(frozen=True, kw_only=True)
class Moves:
    """How one drawing becomes another of the same frame.

    Attributes:
        coordinates: number of a trace -> what it has anew.
        stretched: layout's names of the axes whose values now span another range; None where more
            than lines moved up and down.
    """

    coordinates: dict[int, Trace]
    stretched: list[str] | None


def moves_between(before: Drawing, after: Drawing) -> Moves | None:
    """What moved; None if more than coordinates differs."""
    if not same_frame(before, after):
        return None
    coordinates = {}
    for number, (old, new) in enumerate(zip(before.traces, after.traces, strict=True)):
        moved = {name: new[name] for name in MOVING if not same(old.get(name), new.get(name))}
        if moved:
            coordinates[number] = moved
    lines_only = all(
        set(moved) == {"y"} and after.traces[number]["type"] == "scatter"
        for number, moved in coordinates.items()
    )
    if not lines_only:
        return Moves(coordinates=coordinates, stretched=None)
    axes = {after.traces[number].get("yaxis", "y") for number in coordinates}
    stretched = [
        f"yaxis{axis[1:]}" for axis in sorted(axes) if _span(before, axis) != _span(after, axis)
    ]
    return Moves(coordinates=coordinates, stretched=stretched)


def same_frame(before: Drawing, after: Drawing) -> bool:
    """Whether two drawings differ in the coordinates of their traces only."""
    return (
        len(before.traces) == len(after.traces)
        and same(before.layout, after.layout)
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


def _span(drawing: Drawing, axis: str) -> tuple[float, float]:
    """Least and greatest value of all traces on a y axis."""
    values = [_numbers(trace["y"]) for trace in drawing.traces if trace.get("yaxis", "y") == axis]
    known = np.concatenate(values)
    known = known[np.isfinite(known)]
    return (float(known.min()), float(known.max())) if len(known) else (np.inf, -np.inf)


def _numbers(values: Sequence[Any]) -> np.ndarray:
    """Values as numbers; of categories, none."""
    found = np.asarray(values)
    return found.astype(float) if found.dtype.kind in "iuf" else np.array([])
