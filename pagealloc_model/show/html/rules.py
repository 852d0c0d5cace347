"""The rules of a replay as a table in a notebook."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pagealloc_model.show.html.parts import BAD, DIM, Cell, Column, Markup, table

if TYPE_CHECKING:
    from pagealloc_model.measured.rules import RuleEvidence

COLUMNS = (
    Column(title="rule", words=True),
    Column(title="value", words=True),
    Column(title="standing", words=True),
    Column(title="from", words=True),
    Column(title="what the events say", long=True),
)


def rules_table(evidence: Sequence[RuleEvidence]) -> Markup:
    """Return a row for each rule, with what it rests on."""
    rows = [
        (
            Cell(shown=each.rule),
            Cell(shown=str(each.value).lower()),
            Cell(shown=each.standing, kind=BAD if "inferred" in each.standing else ""),
            Cell(shown=each.line, kind=DIM),
            Cell(shown=each.check),
        )
        for each in evidence
    ]
    return table(COLUMNS, rows, "rules and what they rest on")
