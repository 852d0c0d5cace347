"""Markdown tables of what predictions are off by: errors, choices and error budgets."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pandas as pd

import pagealloc_model as pm
from pagealloc_model.base.text import percent
from pagealloc_model.numbers.result_tables import (
    FEW_MEASURED,
    counts_cell,
    error_cell,
    null_cell,
)
from pagealloc_model.numbers.validation import Validation

SHOWN = {
    "free_pages": "free pages",
    "order_distribution_tv": "distribution over orders",
    "pcp_count": "pages on per-CPU lists",
    "refill_pages": "pages refilled",
    "refill_transactions": "refills",
    "drain_pages": "pages drained",
    "drain_transactions": "drains",
    "highatomic_blocks": "highatomic blocks at the end",
    "extfrag_events": "fallbacks",
    "contended_acquisitions": "contended acquisitions",
}
SHORT = {
    "free_pages": "free pages",
    "order_distribution_tv": "orders",
    "refill_pages": "pages refilled",
    "refill_transactions": "refills",
    "drain_pages": "pages drained",
    "drain_transactions": "drains",
}


def markdown(
    heads: Iterable[str], rows: Iterable[Iterable[object]], words: int = 1
) -> Iterator[str]:
    """A markdown table, of which all columns but the first so many are numbers."""
    heads = list(heads)
    yield f"| {' | '.join(heads)} |".replace("|  |", "| |")
    yield f"|{'---|' * words}{'--:|' * (len(heads) - words)}"
    for row in rows:
        yield f"| {' | '.join(map(str, row))} |"


def apart(*tables: Iterable[str]) -> Iterator[str]:
    """Lines of tables, one below the other with an empty line between them."""
    for place, lines in enumerate(tables):
        yield from ([""] if place else [])
        yield from lines


def short_error_lines(validations: list[Validation]) -> Iterator[str]:
    """A markdown table with one row per recording: error (null model's error)."""
    rows = []
    for one in validations:
        errors = one.errors.set_index("metric")
        cells = [short_cell(errors.loc[[metric]]) for metric in SHORT]
        rows.append([one.recording.name, one.replay.assumptions.reclaim, *cells])
    return markdown(["recording", "reclaim", *SHORT.values()], rows, words=2)


def short_cell(rows: pd.DataFrame) -> str:
    """Error and null model's error over all, or of node 0's Normal or else first zone."""
    overall = rows[rows["scope"] == "all"]
    zones = rows[rows["scope"].str.fullmatch(r"(node=0,)?zone=\w+")]
    normal = zones[zones["scope"].str.endswith("zone=Normal")]
    row = next(part for part in (overall, normal, zones) if len(part)).iloc[0]
    return f"{error_cell(row)} ({null_cell(row)})"


def error_lines(validations: list[Validation]) -> Iterator[str]:
    """A markdown table of the main errors of recordings."""
    head = "recording | reclaim | seeds | what | where | measured | predicted | least | most"
    yield f"| {head} | error | null model | null model's error |"
    yield f"|---|---|--:|---|---|{'--:|' * 5}---|--:|"
    for validation in validations:
        errors = validation.errors
        chosen = errors["metric"].isin(SHOWN) & ~errors["scope"].str.startswith("cpu=")
        for row in errors[chosen & (errors["scope"] != "per time bin")].itertuples():
            sides = (row.measured, row.predicted, row.least, row.most)
            yield (
                f"| {validation.recording.name} | {validation.replay.assumptions.reclaim} "
                f"| {validation.seeds} | {SHOWN[row.metric]} | {row.scope} "
                f"| {' | '.join(map(number_cell, sides))} "
                f"| {error_cell(row)} | {row.null_model} | {null_cell(row)} |"
            )


def number_cell(value: float) -> str:
    """A number in a table."""
    return "NA" if pd.isna(value) else f"{value:,.4g}" if abs(value) < 10 else f"{value:,.0f}"


def choice_lines(paths: Iterable[str]) -> Iterator[str]:
    """A markdown table of the choices judged alone: one row per recording and kind of choice."""
    yield "| recording | choice | judged | as the kernel | null model | unjudged |"
    yield "|---|---|--:|--:|--:|--:|"
    for path in paths:
        recording = pm.open(path)
        choices = recording.judge_choices().choices
        for row in choices[choices["scope"] == "all"].itertuples():
            if row.judged or row.unjudged:
                yield (
                    f"| {recording.name} | {row.choice} | {row.judged:,} | {_share(row.share)} "
                    f"| {_share(row.null_share)} | {row.unjudged:,} |"
                )


def _share(value: float) -> str:
    """In percent, rounded down so that only all is 100%."""
    return "NA" if pd.isna(value) else f"{int(value * 1e4) / 100:.2f}%"


def table_lines(frame: pd.DataFrame) -> Iterator[str]:
    """A data frame as markdown; errors in percent, of fewer than ten measured the counts."""
    numeric = [pd.api.types.is_numeric_dtype(frame[name]) for name in frame]
    yield f"| {' | '.join(map(str, frame))} |"
    yield f"|{'|'.join('--:' if right else '---' for right in numeric)}|"
    for row in frame.to_dict(orient="records"):
        cells = {
            name: percent(value)
            if name in ("error", "added") and not isinstance(value, str)
            else _cell(value)
            for name, value in row.items()
        }
        measured = row.get("measured")
        if "error" in row and pd.notna(measured) and measured < FEW_MEASURED and measured % 1 == 0:
            cells["error"] = counts_cell(row["predicted"], measured)
        yield f"| {' | '.join(cells.values())} |"


def _cell(value: object) -> str:
    if isinstance(value, str):
        return value
    return number_cell(float("nan") if pd.isna(value) else float(value))  # type: ignore[arg-type, call-overload]
