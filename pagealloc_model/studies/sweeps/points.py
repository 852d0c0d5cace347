"""Which points a sweep has: grids, one axis at a time, designs that fill a space; and `--vary`."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pagealloc_model.base.errors import PolicyError, UsageError
from pagealloc_model.policy.policy_fields import BOOL, CHOICE, INT, parse_setting
from pagealloc_model.studies.sweeps.settings import axis_metadata

Point = dict[str, object]
"""Values by axis (`Settings.with_values`)."""

LARGEST_RANGE = 100_000
"""More steps than this in one START:STOP:STEP are taken for a slip."""


def grid(vary: Mapping[str, Iterable[object]]) -> list[Point]:
    """Every combination of the axes' values; the last axis changes fastest.

    Raises:
        UsageError: an axis without values.
    """
    axes = {name: list(dict.fromkeys(values)) for name, values in vary.items()}
    for name, values in axes.items():
        if not values:
            raise UsageError(f"cannot vary {name}: it has no values")
    return [dict(zip(axes, values, strict=True)) for values in itertools.product(*axes.values())]


def one_at_a_time(vary: Mapping[str, Iterable[object]]) -> list[Point]:
    """The base, as recorded, then every value of every axis with the others as recorded."""
    return [{}, *({name: value} for name, values in vary.items() for value in values)]


def space_filling(
    ranges: Mapping[str, tuple[int, int] | None], points: int, *, seed: int = 0
) -> list[Point]:
    """Points spread evenly over the ranges of several axes: a Latin hypercube (scipy.stats.qmc).

    Args:
        ranges: lowest and highest value by axis, both included; None for the field's own range.
        points: how many; points that coincide after rounding count once.
        seed: of the design.

    Raises:
        UsageError: no axis, no point, or an empty range.
        PolicyError: an axis that has no range of whole numbers.
    """
    if not ranges or points < 1:
        raise UsageError("a space-filling design needs at least one axis and one point")
    from scipy.stats import qmc

    bounds = [_bounds(name, given) for name, given in ranges.items()]
    sampler = qmc.LatinHypercube(len(bounds), rng=seed, optimization="random-cd")
    made = []
    for unit in sampler.random(points):
        values = [
            low + int(share * (high - low + 1))
            for share, (low, high) in zip(unit, bounds, strict=True)
        ]
        made.append(
            tuple(
                bool(value) if axis_metadata(name)["kind"] == BOOL else value
                for name, value in zip(ranges, values, strict=True)
            )
        )
    return [dict(zip(ranges, values, strict=True)) for values in dict.fromkeys(made)]


def _bounds(name: str, given: tuple[int, int] | None) -> tuple[int, int]:
    about = axis_metadata(name)
    if "minimum" not in about or about["kind"] not in (INT, BOOL):
        raise PolicyError(f"{name} has no range of whole numbers that a design could fill")
    low, high = given or (about["minimum"], about["maximum"])
    if low > high:
        raise UsageError(f"the range of {name} is empty: {low} to {high}")
    return int(low), int(high)


def parse_vary(words: Sequence[str]) -> dict[str, list[Any]]:
    """Axes from words such as "pcp_batch=15,31,63", "costly_order=0:9:3" or "rules=6.12,6.18".

    A range START:STOP:STEP includes STOP, as seq(1) does; ":STEP" may be left out.

    Raises:
        UsageError: a word without "=", a field named twice, or no values.
        PolicyError: an unknown field, or a value it does not take.
    """
    vary: dict[str, list[Any]] = {}
    for word in words:
        name, equals, text = (part.strip() for part in word.partition("="))
        if not equals or not text:
            raise UsageError(f"--vary {word}: write FIELD=VALUE,VALUE,... or FIELD=START:STOP:STEP")
        if name in vary:
            raise UsageError(f"--vary {name}: named twice; give all its values at once")
        about = axis_metadata(name)
        vary[name] = [value for part in text.split(",") for value in _values(name, part, about)]
    return vary


def _values(name: str, text: str, about: Mapping[str, Any]) -> Iterable[object]:
    text = text.strip()
    if about.get("kind") == INT and ":" in text:
        return _range(name, text)
    if not about or ("choices" not in about and about["kind"] == CHOICE):
        return [None if text.lower() == "none" else text]
    return [parse_setting(name, about, text)]


def _range(name: str, text: str) -> range:
    try:
        start, stop, step = [*(int(part) for part in text.split(":")), 1][:3]
    except ValueError:
        raise UsageError(f"--vary {name}={text}: write START:STOP:STEP in whole numbers") from None
    if step <= 0 or stop < start or (stop - start) // step >= LARGEST_RANGE:
        raise UsageError(
            f"--vary {name}={text}: a range goes up in steps of 1 or more, from START to STOP"
        )
    return range(start, stop + 1, step)
