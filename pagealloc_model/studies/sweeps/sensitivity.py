"""How far each axis alone moves a metric."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pandas as pd

from pagealloc_model.base.errors import UsageError
from pagealloc_model.base.text.layout import WIDTH, Row, ascii_only, number, paragraph, text_table
from pagealloc_model.studies.sweeps.metrics import Metric, metric
from pagealloc_model.studies.sweeps.sweep_table import no_such_metric, sweep_footer

if TYPE_CHECKING:
    import plotly.graph_objects as go

    from pagealloc_model.studies.sweeps.metrics import Metric

KEYS = ("recording", "seed")


@dataclass(frozen=True, kw_only=True, eq=False)
class Sensitivity:
    """One-at-a-time summaries of a sweep.

    Attributes:
        metric: what is looked at.
        values: axis, value, recording, seed, metric, change (relative to the base), one row for
            each point that differs from its base in this axis alone.
        summary: axis, base, lowest, lowest_at, highest, highest_at, swing (highest - lowest, the
            base included) of the means over recordings and seeds; largest swing first.
        source: the sweep's rows.
    """

    metric: Metric
    values: pd.DataFrame
    summary: pd.DataFrame
    source: pd.DataFrame

    def to_text(self, width: int = 72) -> str:
        """The summary as a table for a mail."""
        return sensitivity_table(self.summary, self.metric, self.source, width=width)

    def figure(self) -> go.Figure:
        """The summary as bars."""
        from pagealloc_model.show.figures import sensitivity_bars

        return sensitivity_bars(self.summary, self.metric.title)


def sensitivity(rows: pd.DataFrame, axes: Sequence[str], name: str) -> Sensitivity:
    """What one axis does while all others stay at their base.

    The base is the point at which the most axes are as recorded (NA); of several, the first. Points
    that differ from it in more than one axis, as most of a grid does, are left out.

    Args:
        rows: a sweep's table.
        axes: its columns that were varied.
        name: the metric.

    Raises:
        UsageError: no such metric, no axis, or no point differs from the base in one axis alone.
    """
    if name not in rows:
        raise no_such_metric(name, rows)
    known = rows[rows[name].notna()].reset_index(drop=True)
    if not axes or known.empty:
        raise UsageError("the sweep has no axis, or no point with a result")
    base_at = known[list(axes)].isna().sum(axis=1).idxmax()
    base = known.loc[base_at, list(axes)]
    differs = pd.DataFrame({axis: ~_equals(known[axis], base[axis]) for axis in axes})
    alone = differs.sum(axis=1)
    base_values = known[alone == 0].set_index(list(KEYS))[name]
    parts = []
    for axis in axes:
        own = known[(alone == 1) & differs[axis]]
        part = own[[axis, *KEYS, name]].rename(columns={axis: "value", name: "metric"})
        before = pd.MultiIndex.from_frame(own[list(KEYS)]).map(base_values)
        part["change"] = (own[name].to_numpy() - before) / before.where(before != 0)
        part.insert(0, "axis", axis)
        part["value"] = part["value"].astype(object)
        parts.append(part)
    values = pd.concat(parts, ignore_index=True)
    if values.empty:
        raise UsageError(
            "no point differs from the base in one field alone; sweep one_at_a_time(...)"
        )
    return Sensitivity(
        metric=metric(name),
        values=values,
        summary=_summary(values, base, float(base_values.mean())),
        source=rows,
    )


def _equals(column: pd.Series, value: object) -> pd.Series:
    if pd.isna(value):
        return column.isna()
    return (column == value).fillna(False).astype(bool)


def _summary(values: pd.DataFrame, base: pd.Series, base_value: float) -> pd.DataFrame:
    rows = []
    for axis, own in values.groupby("axis", sort=False):
        means = own.groupby("value", dropna=False)["metric"].mean()
        means.loc[_or_recorded(base[axis])] = base_value
        lowest, highest = means.idxmin(), means.idxmax()
        low, high = float(means.min()), float(means.max())
        rows.append((axis, base_value, low, lowest, high, highest, high - low))
    columns = ["axis", "base", "lowest", "lowest_at", "highest", "highest_at", "swing"]
    frame = pd.DataFrame(rows, columns=columns)
    return frame.sort_values("swing", ascending=False, kind="stable", ignore_index=True)


def _or_recorded(value: object) -> object:
    return "as recorded" if pd.isna(value) else value


RULE = (
    "One field at a time, the others as in the base; swing: highest - lowest, the base included; "
    "means over recordings and seeds."
)


def sensitivity_table(
    summary: pd.DataFrame, metric: Metric, source: pd.DataFrame, *, width: int = WIDTH
) -> str:
    """One line a field, the one that matters most first.

    Args:
        summary: axis, base, lowest, lowest_at, highest, highest_at, swing.
        metric: what moves.
        source: the sweep's rows, for the footer.
        width: characters per line at most.
    """
    lines = [
        Row(
            heading=ascii_only(row.axis),
            label=f"{_at(row.lowest_at)} .. {_at(row.highest_at)}",
            cells=(number(row.lowest), number(row.highest), number(row.swing)),
        )
        for row in summary.itertuples()
    ]
    header = Row(heading="field", label="at .. at", cells=("lowest", "highest", "swing"))
    base = number(summary["base"].iloc[0])
    title = paragraph(f"{metric.title}: {metric.meaning}. Base: {base}.", width=width)
    table = text_table(header, lines, width=width)
    return "\n\n".join(
        [title, table, paragraph(RULE, width=width), sweep_footer(source, width)]
    ) + ("\n")


def _at(value: object) -> str:
    if isinstance(value, str):
        return ascii_only(value)
    return "as recorded" if pd.isna(value) else str(int(value))  # type: ignore[call-overload]
