"""A comparison in a notebook; what nothing can be said of is dim."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from pagealloc_model.base.text.comparison_table import (
    SIGNED_RULE,
    judgement,
    measures,
    with_unit,
)
from pagealloc_model.base.text.layout import number
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
    table,
)
from pagealloc_model.show.html.replay import replay_parts
from pagealloc_model.show.html.sparkline import Course, sparkline
from pagealloc_model.verdict.comparison import BELIEVED, BETTER, CHANGED, WORSE

if TYPE_CHECKING:
    from pagealloc_model.verdict.comparison import Comparison
    from pagealloc_model.verdict.quantity import Quantity

COLUMNS = (
    Column(title="", words=True),
    Column(title="metric", words=True),
    Column(title="scope", words=True),
    Column(title="over time"),
    Column(title="base"),
    Column(title="patch"),
    Column(title="change"),
    Column(title="error"),
    Column(title="from"),
    Column(title="to"),
)
MARKS = {
    BETTER: ("\u2713 better", GOOD),
    WORSE: ("\u2717 worse", BAD),
    CHANGED: ("\u2260 changed", GOOD),
}


def comparison_html(comparison: Comparison) -> str:
    """Return the rows that are known, with the line that says which to believe."""
    rows = comparison.judged
    known = rows[rows["base"].notna() | rows["patch"].notna()]
    pairs = {(base.metric, base.scope): (base, patch) for base, patch in comparison.pairs}
    footer = comparison.footer()
    return framed(
        line(footer.policy_difference, lead=f"{comparison.base.name}:"),
        line(comparison.believable),
        table(
            COLUMNS,
            (_cells(row, pairs.get((row.metric, row.scope))) for row in known.itertuples()),
            "what the patch changes",
        ),
        line("Line: patch over time; dashes: base.", kind=DIM),
        folded("What the columns mean", line(SIGNED_RULE)),
        folded("What both sides were made from", *replay_parts(comparison.base)),
    )


def _cells(row: Any, pair: tuple[Quantity, Quantity] | None) -> Iterator[Cell]:
    mark, kind = MARKS.get(row.verdict, (judgement(row), DIM))
    is_believed = row.verdict in BELIEVED
    dim = PLAIN if is_believed else DIM
    yield Cell(shown=mark, kind=kind)
    yield Cell(shown=with_unit(row), kind=dim)
    yield Cell(shown=str(row.scope), kind=dim)
    yield Cell(shown=Markup(html="") if pair is None else _courses(*pair))
    for value in (row.base, row.patch):
        yield Cell(shown=number(value), number=float(value), kind=dim)
    changes = (row.patch - row.base, row.error, row.low, row.high)
    for shown, value in zip(measures(row), changes, strict=True):
        relative = value / abs(row.base) if row.base else value
        yield Cell(shown=shown, number=float(relative), kind=dim)


def _courses(base: Quantity, patch: Quantity) -> Markup:
    """Both sides by window; nothing for totals and states, which have no windows."""
    sides = [_by_window(each) for each in (patch, base)]
    if any(each is None or pd.isna(each.values).all() for each in sides):
        return Markup(html="")
    return sparkline(f"{base.metric}, {base.scope}, by window", sides[0], dashed=sides[1])


def _by_window(quantity: Quantity) -> Course | None:
    if quantity.how not in ("sum", "ratio", "most") or not len(quantity.parts):
        return None
    values = quantity.parts
    if quantity.how == "ratio":
        with np.errstate(invalid="ignore", divide="ignore"):
            values = quantity.parts / quantity.per
    return Course(times=np.arange(len(values), dtype=float), values=np.asarray(values, float))
