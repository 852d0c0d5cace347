"""What a recording's kernel had counted before the start, as shares that a replay assumes."""

from __future__ import annotations

from pathlib import Path

import pytest

from pagealloc_model.measured.recorded_costs import at_recorded_cost, shares_before
from pagealloc_model.recording.snapshot import Snapshot
from tests.small_recordings import shipped_recording


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
