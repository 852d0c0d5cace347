"""Two policies side by side, as text for a mail."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import pandas as pd

from pagealloc_model.base.errors import UsageError
from pagealloc_model.base.text.footer import Footer
from pagealloc_model.base.text.layout import (
    NOT_AVAILABLE,
    WIDTH,
    Row,
    ascii_only,
    number,
    paragraph,
    percent,
    text_table,
)

Style = Literal["signed", "mmtests"]

SIGNED_RULE = (
    "Sign rule: change is (patch - base) / base as it is; whether that is good is in the last "
    "column (+ better, - worse)."
)
MMTESTS_RULE = (
    "Sign rule: percentages are gains over base, positive is better; metrics where neither "
    "direction is better show (patch - base) / base and are marked with ~."
)


def comparison_table(
    rows: pd.DataFrame, footer: Footer | str, *, style: Style = "signed", width: int = WIDTH
) -> str:
    """A comparison's rows as plain text with its sign rule and its footer.

    Args:
        rows: columns metric, scope, base, patch, change (relative), unit, better ("lower",
            "higher" or "").
        footer: provenance, or its text.
        style: "signed" prints the raw change; "mmtests" prints `value ( gain%)` per column, where
            positive is better.
        width: characters per line at most.

    Raises:
        UsageError: an unknown style.
    """
    if style not in _STYLES:
        raise UsageError(f"comparison style {style!r} is unknown; use {' or '.join(_STYLES)}")
    render, rule = _STYLES[style]
    header, lines = render(rows)
    table = text_table(header, lines, width=width)
    provenance = footer if isinstance(footer, str) else footer.to_text(width)
    return "\n\n".join([table, paragraph(rule, width=width), provenance]) + "\n"


def _signed(rows: pd.DataFrame) -> tuple[Row, list[Row]]:
    """Base, patch and the raw signed change."""
    header = Row(heading="metric", label="scope", cells=("base", "patch", "change", ""))
    return header, [
        Row(
            heading=with_unit(row),
            label=ascii_only(str(row.scope)),
            cells=(number(row.base), number(row.patch), percent(row.change), verdict(row)),
        )
        for row in rows.itertuples()
    ]


def _mmtests(rows: pd.DataFrame) -> tuple[Row, list[Row]]:
    """Value and gain per column, in the manner of mmtests' compare-kernels."""
    header = Row(heading="metric", label="scope", cells=("base", "patch"))
    return header, [
        Row(
            heading=with_unit(row),
            label=ascii_only(str(row.scope)) + ("" if row.better else " ~"),
            cells=(value_and_gain(row.base, 0.0), value_and_gain(row.patch, _gain(row))),
        )
        for row in rows.itertuples()
    ]


_Renderer = Callable[[pd.DataFrame], tuple[Row, list[Row]]]
_STYLES: dict[str, tuple[_Renderer, str]] = {
    "signed": (_signed, SIGNED_RULE),
    "mmtests": (_mmtests, MMTESTS_RULE),
}


def with_unit(row: Any) -> str:
    """A metric's name with its unit."""
    return ascii_only(f"{row.metric} ({row.unit})" if row.unit else str(row.metric))


def verdict(row: Any) -> str:
    """Signs of a change for the better (+) or the worse (-); empty where neither can be said."""
    if pd.isna(row.change) or row.change == 0 or not row.better:
        return ""
    return "+" if (row.change > 0) == (row.better == "higher") else "-"


def _gain(row: Any) -> object:
    """Relative change with its sign turned where less is better."""
    if pd.isna(row.change):
        return pd.NA
    return -row.change if row.better == "lower" else row.change


def value_and_gain(value: object, gain: object) -> str:
    """Such as "0.50 (  25.00%)", as mmtests prints them."""
    if pd.isna(value):
        return f"{NOT_AVAILABLE} ({NOT_AVAILABLE:>7} )"
    if pd.isna(gain):
        return f"{float(value):.2f} ({NOT_AVAILABLE:>7} )"  # type: ignore[arg-type]
    shown = 100 * float(gain) + 0.0  # type: ignore[arg-type]  # + 0.0 turns -0.0 into 0.0
    return f"{float(value):.2f} ({shown:7.2f}%)"  # type: ignore[arg-type]
