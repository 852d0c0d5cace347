"""Fields of frozen dataclasses by dotted names, through dataclasses that are fields themselves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import Field, fields, is_dataclass, replace
from typing import Any, get_args, get_type_hints


def nested_field(owner: type, path: Sequence[str]) -> Field[Any] | None:
    """The field at a path such as ("ownership", "policy"); None if there is none."""
    for step, name in enumerate(path):
        found = {each.name: each for each in fields(owner)}.get(name)
        if found is None or step == len(path) - 1:
            return found
        inner = _dataclass_of(owner, name)
        if inner is None:
            return None
        owner = inner
    return None


def with_nested_value(owner: Any, path: Sequence[str], value: object) -> Any:
    """A copy of a dataclass with the field at a path replaced.

    On the way, a dataclass that is None is begun with its defaults.

    Args:
        owner: an instance.
        path: as `nested_field` finds it.
        value: the new value.
    """
    name, *rest = path
    if rest:
        inner = getattr(owner, name)
        if inner is None:
            made = _dataclass_of(type(owner), name)
            inner = made() if made is not None else None
        value = with_nested_value(inner, rest, value)
    return replace(owner, **{name: value})


def _dataclass_of(owner: type, name: str) -> type | None:
    """The dataclass that a field holds, also where it may be None."""
    hint = get_type_hints(owner)[name]
    candidates = get_args(hint) or (hint,)
    return next((each for each in candidates if is_dataclass(each)), None)
