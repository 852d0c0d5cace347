"""Comparing two Traces field by field."""

from __future__ import annotations

from dataclasses import fields

import numpy as np

from pagealloc_model.recording.trace.columns import Trace


def differing_fields(one: Trace, other: Trace) -> list[str]:
    """Names of what is not equal, values and types; `source` is not looked at."""
    names = [field.name for field in fields(Trace) if field.name != "source"]
    return [name for name in names if not _equal(getattr(one, name), getattr(other, name))]


def _equal(one: object, other: object) -> bool:
    if isinstance(one, np.ndarray):
        return isinstance(other, np.ndarray) and one.dtype == other.dtype and _same(one, other)
    if hasattr(one, "__dataclass_fields__"):
        return type(one) is type(other) and _equal(vars(one), vars(other))
    if hasattr(one, "items"):
        return (
            hasattr(other, "items")
            and set(one) == set(other)
            and all(_equal(value, other[key]) for key, value in one.items())
        )
    return one == other


def _same(one: np.ndarray, other: np.ndarray) -> bool:
    return bool(np.array_equal(one, other))
