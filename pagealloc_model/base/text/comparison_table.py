"""Two policies side by side, as text for a mail."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import pandas as pd

from pagealloc_model.base.errors import UsageError
from pagealloc_model.base.table import Table
from pagealloc_model.base.text.footer import Footer
from pagealloc_model.base.text.layout import (
    NOT_AVAILABLE,
    WIDTH,
    ascii_only,
    paragraph,
)

Style = Literal["signed", "mmtests"]

PLAIN_RULE = (
    "Sign rule: change is (patch - base) / base as it is, or a number marked n where base is a "
    "count below 20 or the change above 1000 %, or in points (pt) of a share; whether that is good "
    "is in the last column (+ better, - worse). What the model's error is for these rows no "
    "recording shows."
)
SIGNED_RULE = (
    "Sign rule: change is patch - base, in percent of base, or as a number marked n where base is "
    "a count below 20 or the change above 1000 %, or in points of a share. error: the model's on "
    "this very recording, in the same measure; from, to: interval of the change between two runs "
    "(95 %, from windows of the recording and from seeds, the model's error included). Nothing is "
    "better or worse unless its interval leaves out 0 (in error: it does not). unchecked: "
    "nothing recorded shows that metric, so the interval has no error in it. one seed: of a rare "
    "event several seeds tell. null: the model was no nearer than a null model; these come last."
)
MMTESTS_RULE = (
    "Sign rule: percentages are gains over base, positive is better; metrics where neither "
    "direction is better show (patch - base) / base and are marked with ~. error: the model's on "
    "this very recording, in percent of base, n a number. Between asterisks: beyond the model's "
    "error and the spread over windows of the recording. null: no nearer than a null model."
)
FEW = 20
"""Of a base below this, a change is a number: a percentage of so little says nothing."""
TIMES = ("ns", "us", "ms", "s")
"""Units of what is no count, of which little is no less certain."""
LARGEST_PERCENT = 10.0
"""A relative change above this is a number, too."""
JUDGEMENTS = {"within error": "in error", "fails null": "null"}
"""Verdicts in words that fit a column."""


def comparison_table(
    rows: pd.DataFrame,
    footer: Footer | str,
    *,
    style: Style = "signed",
    width: int = WIDTH,
    first: str = "",
) -> str:
    """A comparison's rows as plain text with its sign rule and its footer.

    Args:
        rows: columns metric, scope, base, patch, unit, better ("lower", "higher" or ""); of judged
            rows also error, change_low, change_high (in the metric's unit), verdict.
        footer: provenance, or its text.
        style: "signed" prints the raw change; "mmtests" prints `value ( gain%)` per column, where
            positive is better.
        width: characters per line at most.
        first: said before the table.

    Raises:
        UsageError: an unknown style.
    """
    if style not in _STYLES:
        raise UsageError(f"comparison style {style!r} is unknown; use {' or '.join(_STYLES)}")
    render, rule = _STYLES[style]
    if "verdict" not in rows:
        rows, rule = _unjudged(rows), PLAIN_RULE if style == "signed" else rule
        render = _plain if style == "signed" else render
    known = rows[rows["base"].notna() | rows["patch"].notna()]
    header, lines = render(known)
    table = Table(header, lines).to_text(width)
    provenance = footer if isinstance(footer, str) else footer.to_text(width)
    unknown = list(dict.fromkeys(rows.loc[~rows.index.isin(known.index), "metric"]))
    words = f"Not known here, hence NA: {', '.join(unknown)}." if unknown else ""
    parts = [paragraph(each, width=width) for each in (first,) if each]
    parts += [table, *(paragraph(each, width=width) for each in (words, rule) if each), provenance]
    return "\n\n".join(parts) + "\n"


def _unjudged(rows: pd.DataFrame) -> pd.DataFrame:
    """Rows that nothing judges."""
    return rows.assign(
        error=float("nan"), change_low=float("nan"), change_high=float("nan"), verdict=""
    )


Rows = tuple[tuple[str, ...], list[tuple[str | float, ...]]]
"""Titles and rows of a table."""


def _plain(rows: pd.DataFrame) -> Rows:
    """Base, patch and the raw signed change."""
    return ("metric", "scope", "base", "patch", "change", ""), [
        (*_named(row), row.base, row.patch, in_measure(row, row.patch - row.base), _sign(row))
        for row in rows.itertuples()
    ]


def _signed(rows: pd.DataFrame) -> Rows:
    """Base, patch, the change, the model's error, the interval and what may be said."""
    return ("metric", "scope", "base", "patch", "change", "error", "from", "to", ""), [
        (*_named(row), row.base, row.patch, *measures(row), judgement(row))
        for row in rows.itertuples()
    ]


def _named(row: Any) -> tuple[str, str]:
    return with_unit(row), str(row.scope)


def measures(row: Any) -> tuple[str, str, str, str]:
    """Change, error, and the ends of the interval of a row, all in one measure."""
    return (
        in_measure(row, row.patch - row.base),
        in_measure(row, row.error).lstrip("+"),
        in_measure(row, row.change_low),
        in_measure(row, row.change_high),
    )


def in_measure(row: Any, amount: object) -> str:
    """A difference in the row's measure: percent of base, a number, or points of a share."""
    if pd.isna(amount):
        return NOT_AVAILABLE
    value = float(amount)  # type: ignore[arg-type]
    if row.unit == "share":
        return f"{100 * value:+.1f}pt"
    change = row.patch - row.base
    is_much = abs(row.base) >= FEW or (row.unit in TIMES and row.base != 0)
    if pd.notna(change) and is_much and abs(change) <= LARGEST_PERCENT * abs(row.base):
        percent = 100 * value / row.base
        return f"{percent:+.1f}%" if abs(percent) < 100 else f"{percent:+.0f}%"
    return f"{value:+.0f}n" if abs(value) >= FEW or value == int(value) else f"{value:+.1f}n"


def judgement(row: Any) -> str:
    """What may be said of a row, in a word or two."""
    return JUDGEMENTS.get(row.verdict, row.verdict)


def _mmtests(rows: pd.DataFrame) -> Rows:
    """Value and gain per column, in the manner of mmtests' compare-kernels."""
    lines: list[tuple[str | float, ...]] = []
    for row in rows.itertuples():
        cell = value_and_gain(row.patch, _gain(row))
        metric, scope = _named(row)
        lines.append(
            (
                metric,
                scope + ("" if row.better else " ~"),
                value_and_gain(row.base, 0.0),
                f"*{cell}*" if row.verdict in ("better", "worse", "changed") else f"{cell} ",
                in_measure(row, row.error).lstrip("+"),
                judgement(row),
            )
        )
    return ("metric", "scope", "base", "patch ", "error", ""), lines


_STYLES: dict[str, tuple[Callable[[pd.DataFrame], Rows], str]] = {
    "signed": (_signed, SIGNED_RULE),
    "mmtests": (_mmtests, MMTESTS_RULE),
}


def with_unit(row: Any) -> str:
    """A metric's name with its unit."""
    return ascii_only(f"{row.metric} ({row.unit})" if row.unit else str(row.metric))


def _sign(row: Any) -> str:
    """Signs of a change for the better (+) or the worse (-); empty where neither can be said."""
    change = row.patch - row.base
    if pd.isna(change) or change == 0 or not row.better:
        return ""
    return "+" if (change > 0) == (row.better == "higher") else "-"


def _gain(row: Any) -> object:
    """Change relative to base, with its sign turned where less is better."""
    change = row.patch - row.base
    if pd.isna(change) or (change and abs(row.base) < FEW and row.unit != "share"):
        return pd.NA
    share = change / row.base if change else 0.0
    return -share if row.better == "lower" else share


def value_and_gain(value: object, gain: object) -> str:
    """Such as "0.50 (  25.00%)", as mmtests prints them."""
    if pd.isna(value):
        return f"{NOT_AVAILABLE} ({NOT_AVAILABLE:>7} )"
    if pd.isna(gain):
        return f"{float(value):.2f} ({NOT_AVAILABLE:>7} )"  # type: ignore[arg-type]
    shown = 100 * float(gain) + 0.0  # type: ignore[arg-type]  # + 0.0 turns -0.0 into 0.0
    return f"{float(value):.2f} ({shown:7.2f}%)"  # type: ignore[arg-type]


SCOPE_WORDS = {"zone": "", "order": "order ", "cpu": "CPU ", "node": "node "}
METRIC_WORDS = {
    "zone_lock_acquisitions": "zone->lock acquisitions",
    "pages_per_acquisition": "pages per zone->lock acquisition",
    "buddy_alloc_transactions": "allocations at the buddy",
    "direct_free_transactions": "frees to the buddy",
    "pcp_count": "pages on per-CPU lists",
    "pcp_lock_acquisitions": "pcp->lock acquisitions",
    "highatomic_blocks": "HighAtomic pageblocks",
    "free_in_whole_blocks": "free pages in whole blocks",
    "free_in_whole_blocks_not_highatomic": "the same, not HighAtomic",
    "thp_success": "THP success",
    "extfrag_events": "fallbacks",
}


def row_words(row: Any, *, place: str = " in ") -> str:
    """A row of a comparison in words, such as "free pages in DMA32".

    Args:
        row: with metric and scope.
        place: what stands before a zone.
    """
    metric = METRIC_WORDS.get(row.metric, row.metric.replace("_transactions", "s"))
    words = metric.replace("_", " ")
    for part in str(row.scope).split(","):
        key, _, value = part.rpartition("=")
        if key == "at":
            words += f" ({value})"
        elif part != "all":
            words += (place if key == "zone" else " ") + SCOPE_WORDS.get(key, "") + value
    return words
