"""What a candidate changes, as a table with a bar for each believed range."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Any

import pandas as pd

from pagealloc_model.base.text.comparison_table import measures, with_unit
from pagealloc_model.base.text.counts import count_of
from pagealloc_model.base.text.layout import number
from pagealloc_model.verdict.judged_rows import BELIEVED, BETTER, SAME, UNKNOWN, WORSE

if TYPE_CHECKING:
    from pagealloc_model.verdict.comparison import Comparison

MOST_IN_VIEW = 6
"""Believed rows that are not folded."""
NOTHING_ASKED = (
    "<p>The candidate is the base: move a control, and what it changes is told here first.</p>"
)
_STYLE = """<style>
.pagealloc-difference { max-height: 190px; overflow: auto; }
.pagealloc-difference table { border-collapse: collapse; font-size: 12px; }
.pagealloc-difference th { text-align: left; font-weight: normal; padding: 0 10px 0 0; }
.pagealloc-difference td { text-align: right; padding: 0 10px 0 0; white-space: nowrap; }
.pagealloc-difference td:first-child, .pagealloc-difference td:last-child { text-align: left; }
.pagealloc-difference p { margin: 0 0 4px 0; }
.pagealloc-difference summary { cursor: pointer; }
</style>"""
_TITLES = ("changes", "base", "candidate", "change", "believed range", "", "")
_ARROWS = {BETTER: "\u25b2 better", WORSE: "\u25bc worse"}
_WIDTH, _HEIGHT = 120, 12
"""Of a bar, in pixels."""


def difference_html(comparison: Comparison) -> str:
    """Return the rows that change: those to believe, the others folded, the same ones counted."""
    rows = comparison.judged
    moved = changing_rows(comparison)
    believed = moved[moved["verdict"].isin(BELIEVED)]
    first, more = believed[:MOST_IN_VIEW], believed[MOST_IN_VIEW:]
    others = moved[~moved["verdict"].isin(BELIEVED)]
    parts = [f"<p>{escape(_summary(comparison, believed))}</p>", _table(first)]
    for words, folded in (
        (f"{len(more)} more to believe", more),
        (f"{len(others)} that nothing bears out, or within the model's error", others),
    ):
        if len(folded):
            parts.append(f"<details><summary>{escape(words)}</summary>{_table(folded)}</details>")
    still = int((rows["verdict"] != UNKNOWN).sum()) - len(moved)
    if still:
        parts.append(
            f"<p>{count_of(still, 'quantity stays as it is', 'quantities stay as they are')}.</p>"
        )
    return f'{_STYLE}<div class="pagealloc-difference">{"".join(parts)}</div>'


def changing_rows(comparison: Comparison) -> pd.DataFrame:
    """Return the judged rows whose value is not that of the base."""
    rows = comparison.judged
    return rows[(rows["verdict"] != UNKNOWN) & (rows["base"] != rows["patch"])]


def _summary(comparison: Comparison, believed: pd.DataFrame) -> str:
    if comparison.errors.refused:
        return comparison.believable
    if believed.empty:
        return "Nothing changes by more than the model's error on this recording."
    return (
        f"{count_of(len(believed), 'change')} larger than the model's error on this recording "
        "(range: 95 % over windows of the recording, widened by that error)"
    )


def _table(rows: pd.DataFrame) -> str:
    if rows.empty:
        return ""
    head = "".join(f"<th>{escape(title)}</th>" for title in _TITLES)
    body = "".join(_row(row) for row in rows.itertuples())
    return f"<table><tr>{head}</tr>{body}</table>"


def _row(row: Any) -> str:
    scope = "" if row.scope == "all" else f", {row.scope}"
    change, _, low, high = (escape(each.strip()) for each in measures(row))
    cells = (
        escape(f"{with_unit(row)}{scope}"),
        number(row.base),
        number(row.patch),
        f"<b>{change}</b>" if row.verdict in BELIEVED else change,
        f"{low} to {high}",
        _bar(row.patch - row.base, row.low, row.high, f"from {low} to {high}"),
        _ARROWS.get(row.verdict, "" if row.verdict == SAME else escape(row.verdict)),
    )
    return "<tr>" + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>"


def _bar(change: float, low: float, high: float, words: str) -> str:
    """The range about zero, a tick at zero, a dot at the change; on the row's own scale."""
    reach = max(abs(change), abs(low), abs(high))
    if not reach < float("inf") or not reach:
        return ""

    def at(value: float) -> float:
        return round(_WIDTH / 2 * (1 + 0.95 * value / reach), 1)

    begin, end, middle = at(low), at(high), _HEIGHT / 2
    return (
        f'<svg width="{_WIDTH}" height="{_HEIGHT}" role="img" '
        f'aria-label="{words}">'
        f'<rect x="{begin}" y="3" width="{max(end - begin, 1.0):.1f}" height="6" fill="#767676"/>'
        f'<line x1="{_WIDTH / 2}" x2="{_WIDTH / 2}" y1="0" y2="{_HEIGHT}" stroke="currentColor"/>'
        f'<circle cx="{at(change)}" cy="{middle}" r="3.5" fill="currentColor"/></svg>'
    )
