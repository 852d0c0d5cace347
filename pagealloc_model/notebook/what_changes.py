"""What a candidate changes: a sentence first, then rows with the range that can be believed."""

from __future__ import annotations

import math
from html import escape
from typing import TYPE_CHECKING, Any

import pandas as pd

from pagealloc_model.base.result_tables import in_measure, measures, with_unit
from pagealloc_model.base.text import count_of, number
from pagealloc_model.verdict.comparison import BELIEVED, BETTER, SAME, UNKNOWN, WORSE

if TYPE_CHECKING:
    from pagealloc_model.verdict.comparison import Comparison


MOST_NAMED = 3
"""Quantities that the sentence names."""
MANYFOLD = 3
"""From this ratio on a change is told as one."""
MOST_IN_VIEW = 6
"""Believed rows that are not folded."""
NOTHING_ASKED = (
    "<p>The candidate is the base: move a control, and what it changes is told here first.</p>"
)
COMPARING = "<p>Both sides are compared; the first time, the model's error is found too ...</p>"
RANGE = "believed range"
RANGE_IS = "95 % over windows of the recording, widened by the model's error on it"
_STYLE = """<style>
.pagealloc-difference { max-height: 190px; overflow: auto; }
.pagealloc-difference table { border-collapse: collapse; font-size: 12px; }
.pagealloc-difference th { text-align: left; font-weight: normal; padding: 0 10px 0 0; }
.pagealloc-difference td { text-align: right; padding: 0 10px 0 0; white-space: nowrap; }
.pagealloc-difference td:first-child, .pagealloc-difference td:last-child { text-align: left; }
.pagealloc-difference p { margin: 0 0 4px 0; }
.pagealloc-difference .first { font-size: 14px; font-weight: bold; line-height: 1.3; }
.pagealloc-difference summary { cursor: pointer; }
</style>"""
_TITLES = ("changes", "base", "candidate", "change", RANGE, "", "")
_ARROWS = {BETTER: "\u25b2 better", WORSE: "\u25bc worse"}
_WIDTH, _HEIGHT = 120, 12
"""Of a bar, in pixels."""


def difference_html(comparison: Comparison) -> str:
    """Return the rows that change: those to believe, the others folded, the same ones counted."""
    rows = comparison.rows
    moved = changing_rows(comparison)
    believed = moved[moved["verdict"].isin(BELIEVED)]
    first, more = believed[:MOST_IN_VIEW], believed[MOST_IN_VIEW:]
    others = moved[~moved["verdict"].isin(BELIEVED)]
    parts = [f'<p class="first">{escape(change_words(comparison))}</p>', _table(first)]
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
    rows = comparison.rows
    return rows[(rows["verdict"] != UNKNOWN) & (rows["base"] != rows["patch"])]


def change_words(comparison: Comparison, who: str = "The candidate") -> str:
    """Return one or two sentences: the largest changes to believe, their direction and size.

    Args:
        comparison: base and candidate.
        who: changes them.
    """
    if comparison.errors.refused:
        return f"No change can be believed: {comparison.errors.refused}."
    moved = changing_rows(comparison)
    believed = moved[moved["verdict"].isin(BELIEVED)]
    if moved.empty:
        return f"{who} changes nothing that is counted here."
    if believed.empty:
        return f"{who} changes nothing by more than the model's error on this recording."
    named = _largest(believed)
    words = [_in_words(row) for row in named.itertuples()]
    last = f" and {words[-1]}" if len(words) > 1 else words[-1]
    left = len(believed) - len(named)
    more = (
        f" {count_of(left, 'other change is', 'other changes are')} larger than the model's error."
        if left
        else ""
    )
    return f"{who} {', '.join(words[:-1])}{last}.{more}"


def _largest(rows: pd.DataFrame) -> pd.DataFrame:
    """One row of a metric, those of all zones and what is better or worse before others."""
    ranked = rows.assign(
        in_part=rows["scope"] != "all",
        neutral=~rows["verdict"].isin((BETTER, WORSE)),
        small=-(rows["patch"] - rows["base"]).abs() / rows[["base", "patch"]].abs().max(axis=1),
    ).sort_values(["in_part", "neutral", "small"], kind="stable")
    return ranked.drop_duplicates("metric")[:MOST_NAMED]


def _in_words(row: Any) -> str:
    """Such as "raises refill transactions by 20 %, from 100 to 120"."""
    verb = "raises" if row.patch > row.base else "lowers"
    scope = row.scope.replace("=", " ")
    where = "" if scope == "all" else f" {scope}" if scope.startswith("at ") else f" ({scope})"
    name = row.metric.replace("_", " ") + where
    if row.unit == "share":
        return f"{verb} {name} from {100 * row.base:.3g} % to {100 * row.patch:.3g} %"
    size = f"by {in_measure(row, row.patch - row.base).strip('+-n%')}"
    if row.base > 0 and row.patch >= MANYFOLD * row.base:
        size = f"{row.patch / row.base:.2g}-fold"
    elif in_measure(row, row.patch - row.base).endswith("%"):
        size += " %"
    unit = f" {row.unit}" if row.unit and not row.metric.endswith(row.unit) else ""
    return f"{verb} {name} {size}, from {_grouped(row.base)} to {_grouped(row.patch)}{unit}"


def _grouped(value: float) -> str:
    """A number as in the table, with its thousands set apart."""
    return f"{value:,.0f}" if abs(value) >= 1000 else number(value)


def _table(rows: pd.DataFrame) -> str:
    if rows.empty:
        return ""
    told = {RANGE: f' title="{escape(RANGE_IS)}"'}
    head = "".join(f"<th{told.get(title, '')}>{escape(title)}</th>" for title in _TITLES)
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
        "NA" if pd.isna(row.change_low) else f"{low} to {high}",
        _bar(row.patch - row.base, row.change_low, row.change_high, f"from {low} to {high}"),
        _ARROWS.get(row.verdict, "" if row.verdict == SAME else escape(row.verdict)),
    )
    return "<tr>" + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>"


def _bar(change: float, low: float, high: float, words: str) -> str:
    """The range about zero, a tick at zero, a dot at the change; on the row's own scale."""
    reach = max(abs(change), abs(low), abs(high))
    if not reach or not all(map(math.isfinite, (change, low, high))):
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
