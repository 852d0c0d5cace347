"""Tables as notebooks show them: few rows, named columns, what matters most first."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import numpy as np
import pandas as pd

MOST = 12
"""Rows that are read at a glance; the whole table is a file in data/."""


def few_rows(
    table: pd.DataFrame, columns: Mapping[str, str], *, percent: Collection[str] = ()
) -> pd.DataFrame:
    """Return the first rows of a table, with these columns under these headings, rounded."""
    chosen = table[list(columns)].head(MOST)
    shown = {
        heading: [_shown(value, 100 if name in percent else 1) for value in chosen[name]]
        for name, heading in columns.items()
    }
    first, *others = shown
    return pd.DataFrame(shown).set_index(first)[others].rename_axis(index=None, columns=first)


def _shown(value: object, times: int) -> str:
    if isinstance(value, str | bool | np.bool_):
        return str(value)
    if pd.isna(value):  # type: ignore[call-overload]
        return "NA"
    number = times * float(value)  # type: ignore[arg-type]
    if abs(number) >= 10 or number.is_integer():
        return f"{number:,.0f}"
    return f"{number:.3g}" if times == 1 and abs(number) < 1 else f"{number:.2g}"
