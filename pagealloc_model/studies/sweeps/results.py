"""The result of a sweep: one row a point."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from pagealloc_model.base.errors import UsageError, known_names
from pagealloc_model.base.lazy import LazyMethod
from pagealloc_model.base.table import Table
from pagealloc_model.base.text import WIDTH, ascii_only, count_of, number, paragraph
from pagealloc_model.studies.sweeps.metrics import Metric, metric

if TYPE_CHECKING:
    from collections.abc import Sequence

    import plotly.graph_objects as go

    from pagealloc_model.studies.sweeps.metrics import Metric


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
        (str(row["recording"]), label, *(row[name] for name in metrics))
        for label, (_, row) in zip(labels, rows.iterrows(), strict=True)
    ]
    header = ("recording", "point", *(letters))
    legend = [
        paragraph(name, width=width, label=f"{letter} ")
        for letter, name in zip(letters, metrics, strict=True)
    ]
    return "\n".join([*legend, Table(header, lines).to_text(width)])


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


LOCK_TIME, FRAGMENTATION = "zone_lock_hold_ns", "unusable_index_pageblock"


@dataclass(frozen=True, kw_only=True, eq=False)
class ParetoFront:
    """The points of a sweep by two metrics.

    Attributes:
        x: the first metric.
        y: the second.
        points: axes, recording, the two metrics (means over seeds), and on_front; by x.
        axes: what was varied.
        source: the sweep's rows.
    """

    x: Metric
    y: Metric
    points: pd.DataFrame
    axes: tuple[str, ...]
    source: pd.DataFrame

    @property
    def front(self) -> pd.DataFrame:
        """The points that no other one beats."""
        return self.points[self.points["on_front"]]

    def to_text(self, width: int = 72) -> str:
        """The front as a table for a mail."""
        return pareto_table(self.points, self.axes, self.x, self.y, self.source, width=width)

    def figure(self) -> go.Figure:
        """All points, the front joined."""
        from pagealloc_model.show.figures import pareto_front

        titles = (self.x.title, self.y.title)
        return pareto_front(self.points, self.axes, self.x.name, self.y.name, titles)


def pareto(
    rows: pd.DataFrame, axes: Sequence[str], x: str = LOCK_TIME, y: str = FRAGMENTATION
) -> ParetoFront:
    """The front of two metrics, for each recording by itself.

    A point is on it if every other point that is better in one metric is worse in the other. Less
    is better, except in metrics of which more is.

    Args:
        rows: a sweep's table.
        axes: its columns that were varied.
        x: a metric; time under zone->lock by default.
        y: another; the share of free memory that is no whole pageblock by default.

    Raises:
        UsageError: no such metric, or no point with a result.
    """
    for name in (x, y):
        if name not in rows:
            raise no_such_metric(name, rows)
    if x == y:
        raise UsageError(f"a Pareto front needs two metrics, not {x} twice")
    known = rows[rows[x].notna() & rows[y].notna()]
    if known.empty:
        raise UsageError("no point of the sweep has a result")
    keys = ["recording", *axes]
    points = known.groupby(keys, sort=False, dropna=False)[[x, y]].mean().reset_index()
    signs = np.array([-1.0 if metric(name).better == "higher" else 1.0 for name in (x, y)])
    points["on_front"] = False
    for _, own in points.groupby("recording", sort=False):
        points.loc[own.index, "on_front"] = on_front(own[[x, y]].to_numpy() * signs)
    points = points.sort_values(["recording", x, y], kind="stable", ignore_index=True)
    return ParetoFront(x=metric(x), y=metric(y), points=points, axes=tuple(axes), source=rows)


def on_front(costs: np.ndarray) -> np.ndarray:
    """Which rows no other row beats: not more in both columns, and less in one.

    Args:
        costs: shape (points, 2); less is better.
    """
    order = np.lexsort((costs[:, 1], costs[:, 0]))
    ranked = costs[order]
    before = np.concatenate([[np.inf], np.minimum.accumulate(ranked[:, 1])[:-1]])
    best = ranked[:, 1] < before
    equal_to_last = np.zeros(len(ranked), bool)
    equal_to_last[1:] = (ranked[1:] == ranked[:-1]).all(axis=1)
    for place in np.flatnonzero(equal_to_last):
        best[place] = best[place - 1]
    found = np.empty(len(costs), bool)
    found[order] = best
    return found


def pareto_table(
    points: pd.DataFrame,
    axes: Sequence[str],
    x: Metric,
    y: Metric,
    source: pd.DataFrame,
    *,
    width: int = WIDTH,
) -> str:
    """One line for each point on the front, by the first metric.

    Args:
        points: recording, axes, the two metrics, on_front.
        axes: what was varied.
        x: the first metric.
        y: the second.
        source: the sweep's rows, for the footer.
        width: characters per line at most.
    """
    front = points[points["on_front"]]
    lines = [
        (
            str(row["recording"]),
            point_words(row, axes),
            row[x.name],
            row[y.name],
        )
        for _, row in front.iterrows()
    ]
    header = ("recording", "point", "[1]", "[2]")
    legend = [
        paragraph(f"{each.title}: {each.meaning}", width=width, label=f"[{place}] ")
        for place, each in enumerate((x, y), 1)
    ]
    rule = (
        f"{len(front)} of {len(points)} points: any other point is worse in one metric, or better "
        "in none."
    )
    table = "\n".join([*legend, Table(header, lines).to_text(width)])
    return "\n\n".join([table, paragraph(rule, width=width), sweep_footer(source, width)]) + "\n"


def write_parquet(table: pd.DataFrame, path: str | Path) -> None:
    """Write a table under a temporary name, then give it its own.

    Args:
        table: without an index of its own.
        path: replaced if it exists.

    Raises:
        UsageError: it cannot be written.
    """
    path = Path(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f".{path.name}.", dir=path.parent) as directory:
            partial = Path(directory) / path.name
            table.to_parquet(partial, index=False)
            os.replace(partial, path)
    except OSError as error:
        raise UsageError(f"{path}: cannot be written ({error.strerror or error})") from None


@dataclass(frozen=True, kw_only=True, eq=False)
class SweepResult:
    """A sweep's table.

    Attributes:
        rows: one row a point, in the order of recordings, seeds and points. Columns: recording,
            one for each axis (NA: as recorded), seed; metrics (`sweeps.metrics`); then provenance:
            recording_sha256, effective_policy, effective_rules, decided_by, assumptions,
            lost_events, version, model, seconds, finished, key; and error, "" where there is none.
        axes: what was varied.
        reused: how many points were known before.
    """

    _repr_html_ = LazyMethod("show.html.results", "sweep_html")
    _repr_pretty_ = LazyMethod("show.html.results", "print_text")

    rows: pd.DataFrame
    axes: tuple[str, ...]
    reused: int = 0

    def to_pandas(self) -> pd.DataFrame:
        """A copy of the table."""
        return self.rows.copy()

    @property
    def failed(self) -> pd.DataFrame:
        """The points that have an error in place of numbers."""
        return self.rows[self.rows["error"] != ""]

    @cached_property
    def metrics(self) -> tuple[str, ...]:
        """The columns that hold numbers of the replays."""
        from pagealloc_model.studies.sweeps.metrics import (
            COUNTER_PREFIX,
            ORDER_PREFIX,
            metric_names,
        )

        known = set(metric_names())
        prefixes = (ORDER_PREFIX, COUNTER_PREFIX)
        return tuple(name for name in self.rows if name in known or str(name).startswith(prefixes))

    def to_parquet(self, path: str | Path) -> None:
        """Write the table; the file appears whole or not at all.

        Raises:
            UsageError: it cannot be written.
        """
        write_parquet(self.rows, path)

    def to_text(self, metrics: Sequence[str] = (), width: int = 72) -> str:
        """Points and some metrics as a table for a mail."""
        return sweep_table(self.rows, self.axes, metrics, width=width)

    def figure(self, along: str, metrics: Sequence[str]) -> go.Figure:
        """Metrics along one axis, a line for each combination of the others."""
        from pagealloc_model.show.figures import sweep_lines

        return sweep_lines(self.rows, self.axes, along, metrics)

    def sensitivity(self, metric: str) -> Sensitivity:
        """How far each axis alone moves a metric; see `sweeps.sensitivity`."""
        return sensitivity(self.rows, self.axes, metric)

    def pareto(self, x: str = LOCK_TIME, y: str = FRAGMENTATION) -> ParetoFront:
        """The points that no other one beats in both metrics; see `sweeps.pareto`."""
        return pareto(self.rows, self.axes, x, y)


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
        (
            row.axis,
            f"{_at(row.lowest_at)} .. {_at(row.highest_at)}",
            row.lowest,
            row.highest,
            row.swing,
        )
        for row in summary.itertuples()
    ]
    header = ("field", "at .. at", "lowest", "highest", "swing")
    base = number(summary["base"].iloc[0])
    title = paragraph(f"{metric.title}: {metric.meaning}. Base: {base}.", width=width)
    table = Table(header, lines).to_text(width)
    return "\n\n".join(
        [title, table, paragraph(RULE, width=width), sweep_footer(source, width)]
    ) + ("\n")


def _at(value: object) -> str:
    if isinstance(value, str):
        return ascii_only(value)
    return "as recorded" if pd.isna(value) else str(int(value))  # type: ignore[call-overload]
