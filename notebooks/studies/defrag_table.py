"""What was posted of defrag_mode beside what the model says, as text for a mail."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd

from pagealloc_model.base.text.layout import (
    NOT_AVAILABLE,
    WIDTH,
    Row,
    number,
    paragraph,
    percent,
    text_table,
)

COUNTED = "posted and predicted counts are of runs of different length: compare changes"


def defrag_table(rows: pd.DataFrame, rules: str, *, width: int = WIDTH) -> str:
    """Each row's change, posted and predicted, and whether sign and size agree.

    Args:
        rows: of `judged_rows`.
        rules: how rows are judged, in words.
        width: characters per line at most.
    """
    lines = [
        Row(
            heading=str(row.quantity),
            label=f"{number(round(row.base))} -> {number(round(row.patch))}",
            cells=(
                percent(row.posted_change),
                percent(row.change),
                _interval(row.change_low, row.change_high),
                verdict_word(row.sign),
                verdict_word(row.size),
                verdict_word(row.beats_null),
            ),
        )
        for row in rows.itertuples()
    ]
    titles = ("posted", "model", "95 % interval", "sign", "size", "null")
    header = Row(heading="posted row", label="model's counts", cells=titles)
    counts = ", ".join(
        f"{what} {int(rows[name].fillna(False).sum())} of {len(rows)}"
        for name, what in (("sign", "sign"), ("size", "size"), ("beats_null", "nearer than null"))
    )
    told = f"{rules} {counts}; {COUNTED}."
    return f"{text_table(header, lines, width=width)}\n\n{paragraph(told, width=width)}\n"


def trend_table(
    shares: pd.DataFrame, ends: Mapping[str, float], words: str, *, width: int = WIDTH
) -> str:
    """Huge pages served of those asked for, run by run.

    Args:
        shares: of `served_shares`.
        ends: of `trend`.
        words: what the last line is.
        width: characters per line at most.
    """
    lines = [
        Row(
            heading="share of huge pages served",
            label=f"run {step}",
            cells=tuple(f"{100 * value:.1f}%" for value in row),
        )
        for step, row in zip(shares.index, shares.to_numpy(), strict=True)
    ]
    cells = tuple(f"{100 * ends[name]:+.1f}" for name in shares)
    lines.append(Row(heading=words, label="percentage points", cells=cells))
    titles = ("posted, vanilla", "defrag", "model, vanilla", "defrag")
    header = Row(heading="what", label="run", cells=titles)
    return f"{text_table(header, lines, width=width)}\n"


def left_out_lines(left_out: Mapping[str, str], *, width: int = WIDTH) -> str:
    """Rows of the post that are not compared, and why.

    Args:
        left_out: row -> reason.
        width: characters per line at most.
    """
    items = [f"{row}: {reason}." for row, reason in left_out.items()]
    return "\n".join(paragraph(each, width=width, label="- ") for each in items) + "\n"


def verdict_word(verdict: object) -> str:
    """yes, no or NA."""
    return NOT_AVAILABLE if pd.isna(verdict) else "yes" if verdict else "no"


def _interval(low: float, high: float) -> str:
    return NOT_AVAILABLE if pd.isna(low) else f"{_short(low)} to {_short(high)}"


def _short(value: float) -> str:
    """A ratio in percent, in times where that is large."""
    return f"x{1 + value:.0f}" if value > 9 else percent(value)
