"""The course over time that stands behind a row of an error table."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from pagealloc_model.show.html.sparkline import Course

BINS = 40
"""Of rates, over the whole recording."""


@dataclass(frozen=True, kw_only=True)
class _Source:
    """Where a metric's course is.

    Attributes:
        table: attribute of measured and predicted tables.
        value: column that is added up.
        only: column and value that rows must have.
    """

    table: str
    value: str
    only: tuple[str, str] | None = None


_STATES = {
    "free_pages": _Source(table="free_pages", value="pages"),
    "pcp_count": _Source(table="pcp", value="count"),
    "watermark_boost": _Source(table="boosts", value="pages"),
    "pageblocks": _Source(table="pageblocks", value="blocks"),
    "highatomic_blocks": _Source(
        table="pageblocks", value="blocks", only=("migratetype", "HighAtomic")
    ),
}
_RATES = {
    f"{site}_{what}": (site, column)
    for site in ("refill", "drain")
    for what, column in (("transactions", ""), ("pages", "pages"))
}
_COLUMNS: dict[str, tuple[str, Callable[[str], Any]]] = {
    "zone": ("zone", str),
    "node": ("node", int),
    "cpu": ("cpu", int),
    "type": ("migratetype", str),
}


def course_of(tables: Any, metric: str, scope: str, span_ns: tuple[int, int]) -> Course | None:
    """Return how a metric went over time, None where its tables do not say.

    Rates are sums over `BINS` equal parts of the time.

    Args:
        tables: `Measured`, or a `Replay`.
        metric: of the error table.
        scope: of the row, such as "zone=Normal,cpu=0"; "all" adds up everything.
        span_ns: begin and end of the time that is cut into parts.
    """
    if metric in _STATES:
        return _state(tables, _STATES[metric], scope)
    if metric in _RATES:
        return _rate(tables, *_RATES[metric], scope, span_ns)
    return None


def _state(tables: Any, source: _Source, scope: str) -> Course | None:
    rows = _within(getattr(tables, source.table), scope)
    if rows is None or not len(rows):
        return None
    if source.only is not None:
        rows = rows[rows[source.only[0]] == source.only[1]]
    values = rows.groupby("time_ns")[source.value].sum(min_count=1)
    return Course(
        times=values.index.to_numpy(float), values=values.to_numpy(float, na_value=np.nan)
    )


def _rate(
    tables: Any, site: str, column: str, scope: str, span_ns: tuple[int, int]
) -> Course | None:
    full = tables.transactions_full
    if not len(full) or full["time_ns"].isna().all():
        return None
    rows = _within(full, scope)
    if rows is None:
        return None
    rows = rows[rows["site"] == site]
    weights = rows[column].to_numpy(float, na_value=0.0) if column else None
    times = rows["time_ns"].to_numpy(float)
    sums, edges = np.histogram(times, BINS, span_ns, weights=weights)
    return Course(times=(edges[:-1] + edges[1:]) / 2, values=sums.astype(float))


def _within(rows: pd.DataFrame, scope: str) -> pd.DataFrame | None:
    """The rows that a scope is about, None where the table cannot tell."""
    if scope == "all":
        return rows
    for part in scope.split(","):
        name, _, wanted = part.partition("=")
        column, kind = _COLUMNS.get(name, ("", str))
        if column not in rows:
            return None
        rows = rows[rows[column] == kind(wanted)]
    return rows
