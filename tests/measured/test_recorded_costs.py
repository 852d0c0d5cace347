"""What a recording's kernel had counted before the start, as shares that a replay assumes."""

from __future__ import annotations

from pathlib import Path

import pytest

from pagealloc_model.measured.recorded_costs import (
    at_recorded_cost,
    recorded_migrate_ns,
    shares_before,
)
from pagealloc_model.policy.assumptions import ElasticAssumptions
from pagealloc_model.recording.snapshot import Snapshot
from tests.small_recordings import TimedEvents, shipped_recording


def start_with(directory: Path, **counts: int) -> Snapshot:
    """A snapshot whose vmstat has these counters."""
    lines = [f"{name} {value}\n" for name, value in {"nr_free_pages": 1, **counts}.items()]
    (directory / "vmstat").write_text("".join(lines))
    return Snapshot(time_ns=0, directory=directory)


@pytest.mark.parametrize(
    ("counts", "expected"),
    [
        ({}, {}),
        (
            {"pgscan_file": 1000, "pgsteal_file": 960},
            {"file_referenced_per_mille": 40, "file_dirty_per_mille": 0},
        ),
        ({"pgmigrate_success": 197, "pgmigrate_fail": 3}, {}),
    ],
)
def test_shares_are_those_of_what_was_counted(
    tmp_path: Path, counts: dict[str, int], expected: dict[str, int]
) -> None:
    assert shares_before(start_with(tmp_path, **counts)) == expected


def test_they_come_beside_the_cost_of_reclaim(tmp_path: Path) -> None:
    trace = shipped_recording("highatomic_stock").trace
    start = start_with(tmp_path, pgscan_file=1000, pgsteal_file=990)
    assumed, plain = at_recorded_cost(trace, start).elastic, at_recorded_cost(trace).elastic
    assert assumed.file_referenced_per_mille == 10
    assert assumed.reclaim_free_ns == plain.reclaim_free_ns
    assert plain.file_referenced_per_mille != 10


def runs_of_compaction(*runs: tuple[int, int, int]) -> TimedEvents:
    """Runs of a task, us long, and how many pages each moved at once."""
    events = TimedEvents()
    for pid, microseconds, pages in runs:
        events.on(0, pid=pid).event("compaction:mm_compaction_begin", "zone_start=0")
        if pages:
            events.event("compaction:mm_compaction_migratepages", f"nr_migrated={pages}")
        events.wait(microseconds - (2 if pages else 1))
        events.event("compaction:mm_compaction_end", "status=8")
    return events


@pytest.mark.parametrize(
    ("runs", "cost"),
    [
        ([(7, 100, 50), (7, 60, 20), (8, 90, 10)], 3_000),
        ([(7, 500, 0), (7, 60, 20)], 3_000),
        ([(7, 500, 0)], None),
        ([], None),
    ],
)
def test_a_move_costs_what_runs_took_by_page_moved(
    tmp_path: Path, runs: list[tuple[int, int, int]], cost: int | None
) -> None:
    """The median of the runs that moved pages; pages between two runs belong to none."""
    events = runs_of_compaction(*runs)
    events.on(0, pid=7).event("compaction:mm_compaction_migratepages", "nr_migrated=9")
    events.alloc(0x1000)
    trace = events.trace(tmp_path)
    assert recorded_migrate_ns(trace) == cost
    moving = at_recorded_cost(trace).elastic.compact_migrate_ns
    assert moving == (cost if cost is not None else ElasticAssumptions().compact_migrate_ns)
