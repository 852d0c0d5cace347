"""Points of a sweep and some of their numbers, as text for a mail."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd

from pagealloc_model.base.errors import UsageError, known_names
from pagealloc_model.base.text.counts import count_of
from pagealloc_model.base.text.layout import WIDTH, Row, ascii_only, number, paragraph, text_table

DEFAULT_METRICS = (
    "zone_lock_acquisitions",
    "zone_lock_hold_ns",
    "longest_drain_pages",
    "highatomic_blocks_end",
    "unusable_index_pageblock",
)
"""Shown where none are asked for."""
NOT_KNOWN = "THP success, compaction and reclaim under another policy: replays are literal"
COLUMNS_AT_MOST = 3
"""More columns of numbers than this go into a block of their own below."""


def sweep_table(
    rows: pd.DataFrame, axes: Sequence[str], metrics: Sequence[str] = (), *, width: int = WIDTH
) -> str:
    """One line a point, under its recording; metrics in blocks below one another.

    Args:
        rows: a sweep's table.
        axes: its columns that say what was varied.
        metrics: columns to show; none for the usual ones.
        width: characters per line at most.

    Raises:
        UsageError: the table has no such metric.
    """
    chosen = list(metrics) or [name for name in DEFAULT_METRICS if name in rows]
    known = [name for name in chosen if name not in rows]
    if known:
        raise no_such_metric(known[0], rows)
    labels = [ascii_only(point_words(row, axes)) for _, row in rows.iterrows()]
    blocks = []
    for first in range(0, len(chosen), COLUMNS_AT_MOST):
        shown = chosen[first : first + COLUMNS_AT_MOST]
        blocks.append(_block(rows, labels, shown, width))
    return "\n\n".join([*blocks, *_errors(rows, labels, width), sweep_footer(rows, width)]) + "\n"


def point_words(row: Any, axes: Sequence[str], without: Sequence[str] = ()) -> str:
    """A point as "axis=value axis=value"; "as recorded" where nothing differs."""
    given = [
        f"{axis}={_plain(row[axis])}"
        for axis in axes
        if axis not in without and not pd.isna(row[axis])
    ]
    seed = [f"seed={row['seed']}"] if row.get("seed") else []
    return " ".join([*given, *seed]) or "as recorded"


def _plain(value: object) -> object:
    return int(value) if hasattr(value, "dtype") or isinstance(value, bool) else value  # type: ignore[call-overload]


def _block(rows: pd.DataFrame, labels: Sequence[str], metrics: Sequence[str], width: int) -> str:
    """Titles above the numbers are letters where the names would not fit."""
    letters = [f"[{place}]" for place in range(1, len(metrics) + 1)]
    lines = [
        Row(
            heading=ascii_only(str(row["recording"])),
            label=label,
            cells=tuple(number(row[name]) for name in metrics),
        )
        for label, (_, row) in zip(labels, rows.iterrows(), strict=True)
    ]
    header = Row(heading="recording", label="point", cells=tuple(letters))
    legend = [
        paragraph(name, width=width, label=f"{letter} ")
        for letter, name in zip(letters, metrics, strict=True)
    ]
    return "\n".join([*legend, text_table(header, lines, width=width)])


def _errors(rows: pd.DataFrame, labels: Sequence[str], width: int) -> list[str]:
    """Why points failed, each reason once."""
    if "error" not in rows:
        return []
    failed: dict[str, list[str]] = {}
    for label, error in zip(labels, rows["error"], strict=True):
        if error:
            failed.setdefault(error, []).append(label)
    return [
        paragraph(f"{len(points)} failed, {points[0]} first: {error}", width=width, label="NA: ")
        for error, points in failed.items()
    ]


def sweep_footer(rows: pd.DataFrame, width: int = WIDTH) -> str:
    """What a sweep's table was made from."""
    assumed = _distinct(rows, "assumptions")
    lines = {
        "recording": _distinct(rows, "recording"),
        "rules": _distinct(rows, "effective_rules"),
        "assumed": assumed,
        "lost": _distinct(rows, "lost_events") + " events in the recording",
        "not known": "" if "reclaim=elastic" in assumed else NOT_KNOWN,
        "made with": f"pagealloc_model {_distinct(rows, 'version')} "
        f"(model {_distinct(rows, 'model')}), {count_of(len(rows), 'point')}",
    }
    return "\n".join(
        paragraph(text, width=width, label=f"{label + ':':<11}")
        for label, text in lines.items()
        if text
    )


def _distinct(rows: pd.DataFrame, column: str) -> str:
    if column not in rows:
        return "unknown"
    return ", ".join(str(value) for value in rows[column].dropna().unique()) or "unknown"


def no_such_metric(name: str, rows: pd.DataFrame) -> UsageError:
    """Return the error of a name that no column of a sweep's table has, with near names.

    Args:
        name: as it was written.
        rows: a sweep's table.
    """
    known = [column for column in rows.columns if pd.api.types.is_numeric_dtype(rows[column])]
    return UsageError(f"the sweep has no metric {name!r}; {known_names(name, known, 'metrics')}")
