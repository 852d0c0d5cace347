"""Finding: what one source of a recording says about one rule."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One rule's value as a source shows it.

    Attributes:
        value: the field's value in `KernelRules`.
        line: what shows it, in one line.
    """

    value: bool
    line: str
