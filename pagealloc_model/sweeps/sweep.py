"""`sweep`: every point of a design on every recording; its table, summaries and fronts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from pagealloc_model.base.errors import PageallocError, UsageError, known_names
from pagealloc_model.base.files import written_whole
from pagealloc_model.base.progress_bar import progress as progress_bar
from pagealloc_model.base.table import Table
from pagealloc_model.base.text import WIDTH, ascii_only, count_of, number, paragraph
from pagealloc_model.numbers.result_tables import labelled
from pagealloc_model.numbers.vocabulary import Number, column
from pagealloc_model.policy.kernel_rules import KernelRules
from pagealloc_model.policy.policy import AUTO, Assumptions, Policy
from pagealloc_model.predicted.reclaim_mode import (
    ReclaimChoice,
    acts_through_reclaim,
    mode_and_why,
    several_choices,
)
from pagealloc_model.recording.recording import Recording, open_recording
from pagealloc_model.sweeps.design import Point, Settings, grid, shown
from pagealloc_model.sweeps.records import (
    PROVENANCE,
    Record,
    SweptRecording,
    Task,
    columns_of,
    completed,
    in_folders,
    is_address,
    named_recording,
    point_key,
    records_by_cluster,
    records_by_threads,
)

if TYPE_CHECKING:
    import plotly.graph_objects as go
    from distributed import Client


DEFAULT_METRICS = (
    "zone_lock_acquisitions",
    "zone_lock_hold_ns",
    "longest_drain_pages",
    "highatomic_blocks_end",
    "unusable_index_pageblock",
)
"""Shown where none are asked for."""
LOCK_TIME, FRAGMENTATION = "zone_lock_hold_ns", "unusable_index_pageblock"
NOT_KNOWN = "THP success, compaction and reclaim under another policy: replays are literal"
COLUMNS_AT_MOST = 3
"""More columns of numbers than this go into a block of their own below."""
KEYS = ("recording", "seed")
RULE = (
    "One field at a time, the others as in the base; swing: highest - lowest, the base included; "
    "means over recordings and seeds."
)


class ReplayRows:
    """A base of results whose table `rows` has a row a replay, with its error where it failed."""

    rows: pd.DataFrame
    reclaim: Mapping[str, ReclaimChoice]

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(f"{self.reclaim_words}{self.to_text()}")

    @property
    def reclaim_words(self) -> str:
        """A paragraph on the modes of reclaim and why, to stand above a table; "" if none known."""
        return f"{paragraph(several_choices(self.reclaim))}\n\n" if self.reclaim else ""

    def to_pandas(self) -> pd.DataFrame:
        """A copy of the table."""
        return self.rows.copy()

    @property
    def failed(self) -> pd.DataFrame:
        """The rows that have an error in place of numbers."""
        return self.rows[self.rows["error"] != ""]


@dataclass(frozen=True, kw_only=True, eq=False)
class SweepResult(ReplayRows):
    """A sweep's table.

    Attributes:
        rows: one row a point, in the order of recordings, seeds and points. Columns: recording,
            one for each axis (NA: as recorded), seed; metrics (`numbers.vocabulary`); then
            provenance: recording_sha256, effective_policy, effective_rules, decided_by,
            assumptions, lost_events, version, model, seconds, finished, key; and error, "" where
            there is none.
        axes: what was varied.
        reused: how many points were known before.
        reclaim: the mode of reclaim of a recording's points, by its name, and why; without those
            at an fsspec address, or whose points differ in it.
    """

    rows: pd.DataFrame
    axes: tuple[str, ...]
    reused: int = 0
    reclaim: Mapping[str, ReclaimChoice] = field(default_factory=dict)

    def _repr_html_(self) -> str:
        from pagealloc_model.show.html.results import sweep_html

        return sweep_html(self)

    @cached_property
    def metrics(self) -> tuple[str, ...]:
        """The columns that hold numbers of the replays."""
        return tuple(name for name in self.rows if column(str(name)).meaning != name)

    def to_parquet(self, path: str | Path) -> None:
        """Write the table; the file appears whole or not at all."""
        write_parquet(self.rows, path)

    def to_text(self, metrics: Sequence[str] = (), width: int = WIDTH) -> str:
        """Points and some metrics as a table for a mail, a block for every few metrics."""
        rows = self.rows
        chosen = list(metrics) or [name for name in DEFAULT_METRICS if name in rows]
        _known(rows, chosen)
        labels = [ascii_only(point_words(row, self.axes)) for _, row in rows.iterrows()]
        blocks = []
        for first in range(0, len(chosen), COLUMNS_AT_MOST):
            names = chosen[first : first + COLUMNS_AT_MOST]
            letters = [f"[{place}]" for place in range(1, len(names) + 1)]
            lines = [
                (str(row["recording"]), label, *(row[name] for name in names))
                for label, (_, row) in zip(labels, rows.iterrows(), strict=True)
            ]
            legend = [
                paragraph(name, width=width, label=f"{letter} ")
                for letter, name in zip(letters, names, strict=True)
            ]
            table = Table(("recording", "point", *letters), lines)
            blocks.append("\n".join([*legend, table.to_text(width)]))
        failed: dict[str, list[str]] = {}
        for label, error in zip(labels, rows["error"], strict=True):
            if error:
                failed.setdefault(error, []).append(label)
        for error, points in failed.items():
            why = f"{len(points)} failed, {points[0]} first: {error}"
            blocks.append(paragraph(why, width=width, label="NA: "))
        return "\n\n".join([*blocks, _footer(rows, width)]) + "\n"

    def figure(self, along: str, metrics: Sequence[str]) -> go.Figure:
        """Metrics along one axis, a line for each combination of the others."""
        from pagealloc_model.show.figures import sweep_lines

        return sweep_lines(self.rows, self.axes, along, metrics)

    def sensitivity(self, name: str) -> Sensitivity:
        """Effect of each axis while all others stay at their base.

        The base is the point at which the most axes are as recorded (NA); of several, the first.
        Points that differ from it in more than one axis, as most of a grid does, are left out.
        """
        _known(self.rows, [name])
        known = self.rows[self.rows[name].notna()].reset_index(drop=True)
        if not self.axes or known.empty:
            raise UsageError("the sweep has no axis, or no point with a result")
        settings = (
            known[list(self.axes)]
            .astype(object)
            .where(known[list(self.axes)].notna(), "as recorded")
        )
        base = settings.loc[known[list(self.axes)].isna().sum(axis=1).idxmax()]
        differs = settings != base
        alone = differs.sum(axis=1)
        base_values = known[alone == 0].set_index(list(KEYS))[name]
        base_value = float(base_values.mean())
        parts, lines = [], []
        for axis in self.axes:
            own = known[(alone == 1) & differs[axis]]
            part = own[[axis, *KEYS, name]].rename(columns={axis: "value", name: "metric"})
            before = pd.MultiIndex.from_frame(own[list(KEYS)]).map(base_values)
            part["change"] = (own[name].to_numpy() - before) / before.where(before != 0)
            part.insert(0, "axis", axis)
            part["value"] = part["value"].astype(object)
            parts.append(part)
            means = part.groupby("value", dropna=False)["metric"].mean()
            if means.empty:
                continue
            means.loc[base[axis]] = base_value
            low, high = float(means.min()), float(means.max())
            lines.append((axis, base_value, low, means.idxmin(), high, means.idxmax(), high - low))
        if not lines:
            raise UsageError(
                "no point differs from the base in one field alone; sweep one_at_a_time(...)"
            )
        columns = ["axis", "base", "lowest", "lowest_at", "highest", "highest_at", "swing"]
        summary = pd.DataFrame(lines, columns=columns)
        summary = summary.sort_values("swing", ascending=False, kind="stable", ignore_index=True)
        values = pd.concat(parts, ignore_index=True)
        return Sensitivity(metric=column(name), values=values, summary=summary, source=self.rows)

    def pareto(self, x: str = LOCK_TIME, y: str = FRAGMENTATION) -> ParetoFront:
        """The front of two metrics, for each recording by itself.

        A point is on it if every other point that is better in one metric is worse in the other.
        Less is better, except in metrics of which more is.
        """
        _known(self.rows, (x, y))
        if x == y:
            raise UsageError(f"a Pareto front needs two metrics, not {x} twice")
        known = self.rows[self.rows[[x, y]].notna().all(axis=1)]
        if known.empty:
            raise UsageError("no point of the sweep has a result")
        points = known.groupby(["recording", *self.axes], sort=False, dropna=False)[[x, y]].mean()
        points = points.reset_index().sort_values(
            ["recording", x, y], kind="stable", ignore_index=True
        )
        costs = points[["recording"]]
        for place, name in (("x", x), ("y", y)):
            sign = -1.0 if column(name).better == "higher" else 1.0
            costs = costs.assign(**{place: points[name] * sign})
        ranked = costs.sort_values(["recording", "x", "y"], kind="stable")
        lowest = ranked.groupby("recording")["y"].cummin()
        before = lowest.groupby(ranked["recording"]).shift(fill_value=np.inf)
        best = (ranked["y"] < before).groupby([ranked[name] for name in ranked]).transform("any")
        points["on_front"] = best.reindex(points.index)
        return ParetoFront(
            x=column(x), y=column(y), points=points, axes=self.axes, source=self.rows
        )


def point_words(row: Any, axes: Sequence[str]) -> str:
    """A point as "axis=value axis=value"; "as recorded" where nothing differs."""
    words = []
    for axis in axes:
        value = row[axis]
        if not pd.isna(value):
            is_number = hasattr(value, "dtype") or isinstance(value, bool)
            words.append(f"{axis}={int(value) if is_number else value}")
    words += [f"seed={row['seed']}"] if row.get("seed") else []
    return " ".join(words) or "as recorded"


def _footer(rows: pd.DataFrame, width: int) -> str:
    """Origin of a sweep's table."""
    assumed = distinct(rows, "assumptions")
    lines = {
        "recording": distinct(rows, "recording"),
        "rules": distinct(rows, "effective_rules"),
        "assumed": assumed,
        "lost": distinct(rows, "lost_events") + " events in the recording",
        "not known": "" if "reclaim=elastic" in assumed else NOT_KNOWN,
        "made with": f"pagealloc_model {distinct(rows, 'version')} "
        f"(model {distinct(rows, 'model')}), {count_of(len(rows), 'point')}",
    }
    return labelled(lines, width)


def distinct(rows: pd.DataFrame, column: str) -> str:
    """The different values of a column; "unknown" where there are none."""
    if column not in rows:
        return "unknown"
    return ", ".join(str(value) for value in rows[column].dropna().unique()) or "unknown"


def _known(rows: pd.DataFrame, names: Sequence[str]) -> None:
    """Refuse a metric that a sweep's table does not have, with near names."""
    for name in names:
        if name not in rows:
            numbers = [own for own in rows if pd.api.types.is_numeric_dtype(rows[own])]
            near = known_names(name, numbers, "metrics")
            raise UsageError(f"the sweep has no metric {name!r}; {near}")


def write_parquet(table: pd.DataFrame, path: str | Path) -> None:
    """Write a table, which appears whole or not at all and replaces what was there."""
    path = Path(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with written_whole(path) as partial:
            table.to_parquet(partial, index=False)
    except OSError as error:
        raise UsageError(f"{path}: cannot be written ({error.strerror or error})") from None


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

    x: Number
    y: Number
    points: pd.DataFrame
    axes: tuple[str, ...]
    source: pd.DataFrame

    @property
    def front(self) -> pd.DataFrame:
        """The points that no other one beats."""
        return self.points[self.points["on_front"]]

    def to_text(self, width: int = WIDTH) -> str:
        """The front as a table for a mail, a line a point, by the first metric."""
        lines = [
            (
                *(str(row["recording"]), point_words(row, self.axes)),
                *(row[self.x.sweep], row[self.y.sweep]),
            )
            for _, row in self.front.iterrows()
        ]
        legend = [
            paragraph(f"{own.title}: {own.meaning}", width=width, label=f"[{place}] ")
            for place, own in enumerate((self.x, self.y), 1)
        ]
        rule = (
            f"{len(lines)} of {len(self.points)} points: any other point is worse in one metric, "
            "or better in none."
        )
        table = Table(("recording", "point", "[1]", "[2]"), lines).to_text(width)
        texts = ["\n".join([*legend, table]), paragraph(rule, width=width)]
        return "\n\n".join([*texts, _footer(self.source, width)]) + "\n"

    def figure(self) -> go.Figure:
        """All points, the front joined."""
        from pagealloc_model.show.figures import pareto_front

        titles = (self.x.in_words, self.y.in_words)
        return pareto_front(self.points, self.axes, self.x.sweep, self.y.sweep, titles)


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

    metric: Number
    values: pd.DataFrame
    summary: pd.DataFrame
    source: pd.DataFrame

    def to_text(self, width: int = WIDTH) -> str:
        """The summary as a table for a mail, the field that matters most first."""

        def shown(value: Any) -> str:
            if isinstance(value, str):
                return ascii_only(value)
            return "as recorded" if pd.isna(value) else str(int(value))

        lines = [
            (
                row.axis,
                f"{shown(row.lowest_at)} .. {shown(row.highest_at)}",
                row.lowest,
                row.highest,
                row.swing,
            )
            for row in self.summary.itertuples()
        ]
        base = number(self.summary["base"].iloc[0])
        title = f"{self.metric.title}: {self.metric.meaning}. Base: {base}."
        table = Table(("field", "at .. at", "lowest", "highest", "swing"), lines).to_text(width)
        texts = [paragraph(title, width=width), table, paragraph(RULE, width=width)]
        return "\n\n".join([*texts, _footer(self.source, width)]) + "\n"

    def figure(self) -> go.Figure:
        """The summary as bars."""
        from pagealloc_model.show.figures import sensitivity_bars

        return sensitivity_bars(self.summary, self.metric.in_words)


Vary = Mapping[str, Iterable[object]] | Sequence[Mapping[str, object]]


def sweep(
    recordings: Iterable[Recording | str | Path],
    vary: Vary | None = None,
    *,
    seeds: Iterable[int] = (0,),
    policy: Policy | None = None,
    rules: KernelRules | str | None = None,
    assumptions: Assumptions | None = None,
    client: Client | str | None = None,
    workers: int | None = None,
    cache: str | Path | bool = True,
    progress: Callable[[float], None] | None = None,
) -> SweepResult:
    """Replay recordings under many policies: one row of numbers for each.

    Points that were made before, by this version of the model, are taken from the cache; those that
    fail have their error in place of numbers and are tried again the next time. Points that are
    finished when a sweep is interrupted stay in the cache.

    Args:
        recordings: recordings, paths, folders of recordings, or fsspec addresses (protocol://path)
            that workers read.
        vary: values by axis, of which every combination is a point; or the points themselves, such
            as `space_filling` and `one_at_a_time` make. Axes are fields of `Policy`, "policy"
            (whole ones, kernel builds and hooks too), "rules" and "assumptions.FIELD".
        seeds: every point is made once with each.
        policy: what all points have in common.
        rules: as `replay` takes them.
        assumptions: ours. Where they leave the mode of reclaim to a recording, all its points have
            one: that of the points' policies taken together, as in a comparison.
        client: a Dask client, or its scheduler's address, whose workers make the points; None for
            threads of this process.
        workers: how many threads; None for one on each CPU.
        cache: a directory for finished points; True for the user's own, False for none.
        progress: called with the share done, 0 to 1; None shows a bar where one is seen.

    Raises:
        UsageError: no recording, an axis without values, workers for a cluster.
        PolicyError: an axis that is none, or a value outside its range.
        RecordingError: a recording cannot be opened.
        ClusterError: the scheduler cannot be reached, or goes away.
    """
    base = Settings(
        policy=policy or Policy(), rules=rules, assumptions=assumptions or Assumptions()
    )
    if workers is not None and workers < 1:
        raise UsageError(f"{workers} workers: a sweep needs at least one")
    points = _points(vary)
    axes = tuple(dict.fromkeys(name for point in points for name in point))
    asked = [base.with_values(point) for point in points]
    swept = dict.fromkeys(map(named_recording, in_folders(recordings)))
    chosen = {recording: _reclaim(recording, asked) for recording in swept}
    rows = [
        (
            point,
            Task(key=point_key(recording.digest, settings), recording=recording, settings=settings),
        )
        for recording, reclaim in chosen.items()
        for seed in dict.fromkeys(seeds)
        for point, own in zip(points, asked, strict=True)
        for settings in [replace(own.in_mode(reclaim), seed=seed)]
    ]
    if not rows:
        raise UsageError("a sweep needs at least one recording and one seed")
    tasks = {task.key: task for _, task in rows}

    def make(keys: set[str]) -> Iterator[Record]:
        # points that start from the same state come one after the other, so that it is made once
        todo = sorted(
            (task for key, task in tasks.items() if key in keys),
            key=lambda task: (task.recording.digest, *map(str, task.settings.start)),
        )
        if not todo:
            return
        if client is None:
            yield from records_by_threads(todo, workers)
        elif workers is not None:
            raise UsageError("workers are the cluster's own; start it with as many as you want")
        else:
            yield from records_by_cluster(todo, client)

    with progress_bar(
        f"sweeping {count_of(len(tasks), 'point')}", len(tasks), "points", progress
    ) as report:
        records, reused = completed(tasks, cache, make, report)
    of_rows = [task for _, task in rows]
    columns: dict[str, object] = {"recording": [task.recording.name for task in of_rows]}
    for axis in axes:
        columns[axis] = _axis_column([shown(point.get(axis)) for point, _ in rows])
    columns["seed"] = [task.settings.seed for task in of_rows]
    columns |= columns_of([records[task.key] for task in of_rows])
    table = pd.DataFrame(columns)
    place = table.columns.get_loc(PROVENANCE[0])
    table.insert(place, "recording_sha256", [task.recording.digest for task in of_rows])
    modes = {settings.assumptions.reclaim for settings in asked}
    known = {
        recording.name: reclaim
        for recording, reclaim in chosen.items()
        if reclaim is not None and len(modes) == 1
    }
    return SweepResult(rows=table, axes=axes, reused=reused, reclaim=known)


def _reclaim(recording: SweptRecording, points: Sequence[Settings]) -> ReclaimChoice | None:
    """The mode of those points of a recording that ask for none; None if its replay chooses."""
    deciders = [point.decider() for point in points if point.assumptions.reclaim == AUTO]
    if not deciders:
        mode, why = points[0].assumptions.reclaim, "as asked for"
    elif is_address(recording.place):  # only its workers read it
        mode, why = "elastic", acts_through_reclaim(deciders)
    else:
        try:
            mode, why = mode_and_why(
                recording.recording or open_recording(recording.place), deciders
            )
        except PageallocError:  # its points say so
            return None
    return ReclaimChoice(mode=mode, why=why) if why else None


def _points(vary: Vary | None) -> list[Point]:
    """The design's points, each once, NumPy's numbers as Python's."""
    if vary is None:
        return [{}]
    points = [
        {
            name: value.item() if isinstance(value, np.generic) else value
            for name, value in point.items()
        }
        for point in (grid(vary) if isinstance(vary, Mapping) else vary)
    ]
    if not points:
        raise UsageError("a sweep needs at least one point")
    return [point for place, point in enumerate(points) if point not in points[:place]]


def _axis_column(values: Sequence[object]) -> object:
    """Values in a column that can say NA, for as recorded; mixed ones as text."""
    kinds = {type(value) for value in values if value is not None}
    if kinds <= {bool}:
        return pd.array(values, dtype="boolean")
    if kinds <= {int}:
        return pd.array(values, dtype="Int64")
    texts = [None if value is None else str(value) for value in values]
    return pd.array(texts, dtype="string")
