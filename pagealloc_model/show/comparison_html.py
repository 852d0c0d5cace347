"""A comparison as a table in a notebook; what nothing can be said of is grey."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Any

from pagealloc_model.base.text.comparison_table import judgement, measures, with_unit
from pagealloc_model.base.text.layout import number
from pagealloc_model.verdict.judged_rows import BELIEVED, FAILS_NULL

if TYPE_CHECKING:
    from pagealloc_model.verdict.comparison import Comparison

TITLES = ("metric", "scope", "base", "patch", "change", "error", "from", "to", "")
GREY, FAINT = "#767676", "#9a9a9a"
"""Of rows that tell nothing, and of those that failed their null model."""


def comparison_html(comparison: Comparison) -> str:
    """Return the rows that are known, with the line that says which to believe."""
    rows = comparison.judged
    known = rows[rows["base"].notna() | rows["patch"].notna()]
    head = "".join(f"<th>{escape(title)}</th>" for title in TITLES)
    body = "".join(_row(row) for row in known.itertuples())
    return f"<p>{escape(comparison.believable)}</p><table><tr>{head}</tr>{body}</table>"


def _row(row: Any) -> str:
    if row.verdict in BELIEVED:
        style = "font-weight: bold"
    else:
        style = f"color: {FAINT if row.verdict == FAILS_NULL else GREY}"
    cells = (
        with_unit(row),
        row.scope,
        number(row.base),
        number(row.patch),
        *measures(row),
        judgement(row),
    )
    return f'<tr style="{style}">' + "".join(f"<td>{escape(str(c))}</td>" for c in cells) + "</tr>"
