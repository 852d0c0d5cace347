"""Results that are one table, of sweeps, experiments and fleets, in a notebook."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pandas as pd

from pagealloc_model.base.text.counts import count_of
from pagealloc_model.base.text.layout import number
from pagealloc_model.show.html.parts import BAD, PLAIN, Cell, Column, Markup, framed, line, table

if TYPE_CHECKING:
    from collections.abc import Sequence


def sweep_html(result: Any) -> str:
    """Return the points of a `SweepResult`, settings first, then what was predicted."""
    shown = ["recording", *result.axes, "seed", *result.metrics]
    failed = len(result.failed)
    parts = [
        line(f"{count_of(len(result.rows), 'point')}, {result.reused} known before", lead="Sweep:")
    ]
    if failed:
        parts.append(line(f"{count_of(failed, 'point')} failed", kind=BAD))
        shown.append("error")
    columns = [name for name in shown if name in result.rows]
    return framed(*parts, frame_table(result.rows[columns], "points of the sweep"))


def experiment_html(result: Any) -> str:
    """Return the changes of an `ExperimentResult`, and how often predictions were right."""
    failed = len(result.failed)
    words = count_of(len(result.runs), "run") + (f", {failed} failed" if failed else "")
    return framed(
        line(words, lead=f"{result.plan.name}:", kind=BAD if failed else PLAIN),
        frame_table(result.changes, "predicted and measured changes"),
        line("How often predictions were right, beside the model that nothing changes:"),
        frame_table(result.score, "score"),
    )


def fleet_html(result: Any) -> str:
    """Return the hosts of a `FleetResult`."""
    failed = len(result.failed)
    words = count_of(len(result.hosts), "host") + (f", {failed} failed" if failed else "")
    made = "made-up fleet:" if result.synthetic else "Fleet:"
    return framed(
        line(words, lead=made, kind=BAD if failed else PLAIN),
        frame_table(result.hosts, "hosts"),
    )


def frame_table(frame: pd.DataFrame, caption: str) -> Markup:
    """Return a DataFrame as a table that sorts and filters; columns of words are on the left."""
    numeric = [pd.api.types.is_numeric_dtype(frame[name]) for name in frame]
    columns = [
        Column(title=str(name), words=not is_number)
        for name, is_number in zip(frame, numeric, strict=True)
    ]
    rows = (_cells(row, numeric) for row in frame.itertuples(index=False, name=None))
    return table(columns, rows, caption)


def _cells(row: Sequence[Any], numeric: Sequence[bool]) -> list[Cell]:
    return [
        Cell(shown=number(value), number=float("nan") if pd.isna(value) else float(value))
        if is_number
        else Cell(shown="" if value is None or value is pd.NA else str(value))
        for value, is_number in zip(row, numeric, strict=True)
    ]
