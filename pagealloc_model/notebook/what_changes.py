"""Changes by a candidate: a sentence first, then rows with the range that can be believed."""

from __future__ import annotations

import math
from html import escape
from typing import TYPE_CHECKING, Any

import pandas as pd

import pagealloc_model as pm
from pagealloc_model.base.text import count_of, rounded, times
from pagealloc_model.notebook.page_widget import folded_text
from pagealloc_model.numbers.comparison import BELIEVED, BETTER, SAME, UNKNOWN, WORSE
from pagealloc_model.numbers.result_tables import in_measure, measures, with_unit

if TYPE_CHECKING:
    from pagealloc_model.numbers.comparison import Comparison
    from pagealloc_model.predicted.replay import Replay


MOST_NAMED = 3
"""Quantities that the sentence names."""
MOST_IN_VIEW = 6
"""Believed rows that are not folded."""
NOTHING_ASKED = (
    "<p>The candidate is the base: move a control, and what it changes is told here first.</p>"
)
NOT_MOVED = "<p>As recorded: move a control, and what it changes is told here.</p>"
COMPARING = "<p>Both sides are compared; the first time, the model's error is found too ...</p>"
_RANGE = "believed range"
_RANGE_IS = "95 % over windows of the recording, widened by the model's error on it"


def difference_html(comparison: Comparison, who: str = "The candidate") -> str:
    """The rows that change: those to believe, the others folded, the same ones counted."""
    rows = comparison.rows
    moved = changing_rows(comparison)
    is_believed = moved["verdict"].isin(BELIEVED)
    believed, others = moved[is_believed], moved[~is_believed]
    first, more = believed[:MOST_IN_VIEW], believed[MOST_IN_VIEW:]
    parts = [f'<p class="first">{escape(change_words(comparison, who))}</p>', _table(first)]
    for words, rest in (
        (f"{len(more)} more to believe", more),
        (f"{len(others)} that nothing bears out, or within the model's error", others),
    ):
        if len(rest):
            parts.append(f"<details><summary>{escape(words)}</summary>{_table(rest)}</details>")
    still = int((rows["verdict"] != UNKNOWN).sum()) - len(moved)
    if still:
        words = count_of(still, "quantity stays as it is", "quantities stay as they are")
        parts.append(f"<p>{words}.</p>")
    return f'<div class="pagealloc-difference">{"".join(parts)}</div>'


def replays_html(base: Replay, patch: Replay) -> str:
    """What a policy changes of the recorded one, with the model's error; and the whole table."""
    if patch is base:
        return NOT_MOVED
    comparison = pm.compare(base, patch).validated()
    return difference_html(comparison, "This policy") + folded_text(comparison.to_text(width=72))


def changing_rows(comparison: Comparison) -> pd.DataFrame:
    """The judged rows whose value is not that of the base."""
    rows = comparison.rows
    return rows[(rows["verdict"] != UNKNOWN) & (rows["base"] != rows["patch"])]


def change_words(comparison: Comparison, who: str = "The candidate") -> str:
    """One or two sentences: the largest changes to believe, their direction and size.

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
    # one row of a metric, those of all zones and what is better or worse before others
    largest = believed[["base", "patch"]].abs().max(axis=1)
    ranked = believed.assign(
        in_part=believed["scope"] != "all",
        neutral=~believed["verdict"].isin((BETTER, WORSE)),
        small=-(believed["patch"] - believed["base"]).abs() / largest,
    ).sort_values(["in_part", "neutral", "small"], kind="stable")
    named = ranked.drop_duplicates("metric")[:MOST_NAMED]
    *words, last = [_in_words(row) for row in named.itertuples()]
    sentence = f"{who} {', '.join(words)}{' and ' if words else ''}{last}."
    left = len(believed) - len(named)
    if left:
        others = count_of(left, "other change is", "other changes are")
        sentence += f" {others} larger than the model's error."
    return sentence


def _in_words(row: Any) -> str:
    """Such as "raises refill transactions by 20 %, from 100 to 120"."""
    verb = "raises" if row.patch > row.base else "lowers"
    scope = row.scope.replace("=", " ")
    where = "" if scope == "all" else f" {scope}" if scope.startswith("at ") else f" ({scope})"
    name = row.metric.replace("_", " ") + where
    if row.unit == "share":
        return f"{verb} {name} from {100 * row.base:.3g} % to {100 * row.patch:.3g} %"
    change = in_measure(row, row.patch - row.base)
    size = f"by {change.strip('+-n%')}{' %' if change.endswith('%') else ''}"
    if row.base > 0 and row.patch >= 3 * row.base:
        size = times(row.patch / row.base)
    unit = f" {row.unit}" if row.unit and not row.metric.endswith(row.unit) else ""
    return f"{verb} {name} {size}, from {rounded(row.base)} to {rounded(row.patch)}{unit}"


def _table(rows: pd.DataFrame) -> str:
    if rows.empty:
        return ""
    titles = ("changes", "base", "candidate", "change", _RANGE, "", "")
    hints = {_RANGE: f' title="{escape(_RANGE_IS)}"'}
    arrows = {BETTER: "\u25b2 better", WORSE: "\u25bc worse", SAME: ""}
    lines = ["".join(f"<th{hints.get(title, '')}>{escape(title)}</th>" for title in titles)]
    for row in rows.itertuples():
        scope = "" if row.scope == "all" else f", {row.scope}"
        change, _, low, high = (escape(words.strip()) for words in measures(row))
        cells = (
            escape(f"{with_unit(row)}{scope}"),
            rounded(row.base),
            rounded(row.patch),
            f"<b>{change}</b>" if row.verdict in BELIEVED else change,
            "NA" if pd.isna(row.change_low) else f"{low} to {high}",
            _bar(row.patch - row.base, row.change_low, row.change_high, f"from {low} to {high}"),
            arrows.get(row.verdict, escape(row.verdict)),
        )
        lines.append("".join(f"<td>{cell}</td>" for cell in cells))
    head, *body = (f"<tr>{line}</tr>" for line in lines)
    return f"<table>{head}{''.join(body)}</table>"


def _bar(change: float, low: float, high: float, words: str) -> str:
    """The range about zero, a tick at zero, a dot at the change; on the row's own scale."""
    reach = max(abs(change), abs(low), abs(high))
    if not reach or not all(map(math.isfinite, (change, low, high))):
        return ""
    width, height = 120, 12  # pixels
    middle = width / 2
    begin, end, dot = (round(middle * (1 + 0.95 * at / reach), 1) for at in (low, high, change))
    return (
        f'<svg width="{width}" height="{height}" role="img" aria-label="{words}">'
        f'<rect x="{begin}" y="3" width="{max(end - begin, 1.0):.1f}" height="6" fill="#767676"/>'
        f'<line x1="{middle}" x2="{middle}" y1="0" y2="{height}" stroke="currentColor"/>'
        f'<circle cx="{dot}" cy="{height / 2}" r="3.5" fill="currentColor"/></svg>'
    )
