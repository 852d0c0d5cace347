"""`sweep`: every point of a design on every recording, what is known taken from the cache."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from pagealloc_model.base.errors import UsageError
from pagealloc_model.base.progress_bar import progress as progress_bar
from pagealloc_model.base.text import count_of
from pagealloc_model.policy.kernel_rules import KernelRules
from pagealloc_model.policy.policy import Assumptions, Policy
from pagealloc_model.recording.recording import Recording
from pagealloc_model.studies.sweeps.design import Point, Settings, grid, shown
from pagealloc_model.studies.sweeps.records import (
    PROVENANCE,
    Record,
    Task,
    columns_of,
    completed,
    named_recording,
    point_key,
    records_by_threads,
)
from pagealloc_model.studies.sweeps.results import SweepResult

if TYPE_CHECKING:
    from distributed import Client

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
        recordings: recordings, paths, or fsspec addresses (protocol://path) that workers read.
        vary: values by axis, of which every combination is a point; or the points themselves, such
            as `space_filling` and `one_at_a_time` make. Axes are fields of `Policy`, "policy"
            (whole ones, kernel builds and hooks too), "rules" and "assumptions.FIELD".
        seeds: every point is made once with each.
        policy: what all points have in common.
        rules: as `replay` takes them.
        assumptions: ours.
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
    rows = [
        (
            point,
            Task(key=point_key(recording.digest, settings), recording=recording, settings=settings),
        )
        for recording in dict.fromkeys([named_recording(source) for source in recordings])
        for seed in dict.fromkeys(seeds)
        for point in points
        for settings in [replace(base.with_values(point), seed=seed)]
    ]
    if not rows:
        raise UsageError("a sweep needs at least one recording and one seed")
    tasks = {task.key: task for _, task in rows}

    def make(keys: set[str]) -> Iterator[Record]:
        todo = [task for key, task in tasks.items() if key in keys]
        return _records(sorted(todo, key=_preparation), client, workers)

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
    return SweepResult(rows=table, axes=axes, reused=reused)


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


def _preparation(task: Task) -> tuple[str, ...]:
    """Points that start from the same state come one after the other, so that it is made once."""
    settings = task.settings
    starts = (settings.rules, settings.assumptions, settings.seed)
    return (task.recording.digest, *map(str, starts))


def _records(
    tasks: Sequence[Task], client: Client | str | None, workers: int | None
) -> Iterator[Record]:
    """Records as they are finished."""
    if not tasks:
        return
    if client is None:
        yield from records_by_threads(tasks, workers)
    elif workers is not None:
        raise UsageError("workers are the cluster's own; start it with as many as you want")
    else:
        from pagealloc_model.studies.sweeps.cluster import records_by_cluster

        yield from records_by_cluster(tasks, client)


def _axis_column(values: Sequence[object]) -> object:
    """Values in a column that can say NA, for as recorded; mixed ones as text."""
    kinds = {type(value) for value in values if value is not None}
    if kinds <= {bool}:
        return pd.array(values, dtype="boolean")
    if kinds <= {int}:
        return pd.array(values, dtype="Int64")
    texts = [None if value is None else str(value) for value in values]
    return pd.array(texts, dtype="string")
