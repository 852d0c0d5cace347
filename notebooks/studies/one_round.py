"""Rounds of a guest predicted from its first one: the recording is cut there, and repeated."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pandas as pd
from pagealloc_model.notebooks.studies.repeated import HugeFaults
from pagealloc_model.notebooks.studies.round_trend import rounds_of_sides

from pagealloc_model.base.errors import UsageError
from pagealloc_model.measured.costs import at_recorded_cost
from pagealloc_model.policy.policy import Policy
from pagealloc_model.recording.recorded_machine import start_snapshots
from pagealloc_model.recording.recording import Recording, open_recording
from pagealloc_model.recording.trim import trim_recording

SIDES = {"vanilla": Policy(defrag_mode=False), "defrag_mode": Policy(defrag_mode=True)}


def rounds_from_the_first(
    recording: Recording,
    begins_ns: Sequence[int],
    *,
    survivors: Sequence[str] = ("once", "stay", "gone"),
    touched: int | None = None,
    seeds: Sequence[int] = (0, 1, 2),
) -> pd.DataFrame:
    """As many rounds as a guest had, from what is recorded of the first one alone.

    The recording is cut where its second round begins, and its demand, huge-page faults included,
    gone through again and again. Reclaim and compaction cost what they did in that part.

    Args:
        recording: of all rounds, or of the first.
        begins_ns: when each round begins, and the last one ends, on the recording's clock, ns.
        survivors: as `repeated_rounds` takes them.
        touched: base pages that a task asks for in place of a refused huge page; None for the
            median of the first round, or all 512 where that refused none.
        seeds: of what nothing settles.

    Returns:
        As `rounds_of_sides`, sides "vanilla" and "defrag_mode", with a column survivors.

    Raises:
        UsageError: fewer than two times, or the second lies outside the recording.
    """
    first_ns = int(recording.trace.time_ns[0])
    if len(begins_ns) < 2 or not first_ns < begins_ns[1] <= int(recording.trace.time_ns[-1]):
        raise UsageError(
            f"{recording.name}: rounds begin at {list(begins_ns)[:2]} ns and so on; give two times "
            "or more, of which the second lies within the recording"
        )
    tables = []
    with tempfile.TemporaryDirectory() as folder:
        seconds = (begins_ns[1] - first_ns) / 1e9
        trim_recording(recording.path, Path(folder) / "first", seconds=seconds)
        first = open_recording(Path(folder) / "first")
        costs = at_recorded_cost(first.trace, start_snapshots(first)[1])
        if touched is not None:
            elastic = replace(costs.elastic, base_pages_per_huge=touched)
            costs = replace(costs, elastic=elastic)
        for words in survivors:
            found = rounds_of_sides(
                [first],
                SIDES,
                seeds,
                rounds=len(begins_ns) - 1,
                faults=HugeFaults(per_round=0),
                survivors=words,
                assumptions=costs,
            )
            tables.append(found.assign(survivors=words, recording=recording.name))
    return pd.concat(tables, ignore_index=True)
