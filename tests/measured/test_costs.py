"""What a recording's kernel had counted before the start, as shares that a replay assumes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from pagealloc_model.measured.costs import (
    recorded_base_pages,
    recorded_elastic_costs,
    recorded_kswapd_ns,
    recorded_reclaim_ns,
    recorded_use,
)
from pagealloc_model.recording.snapshot import Snapshot
from pagealloc_model.recording.trace import tracepoints as tp
from pagealloc_model.recording.trace.columns import Event, Trace
from tests.small_recordings import TimedEvents, shipped_recording


def start_with(directory: Path, **counts: int) -> Snapshot:
    """A snapshot whose vmstat has these counters."""
    lines = [f"{name} {value}\n" for name, value in {"nr_free_pages": 1, **counts}.items()]
    (directory / "vmstat").write_text("".join(lines))
    return Snapshot(time_ns=0, directory=directory)


@pytest.mark.parametrize(
    ("counts", "per_mille"),
    [
        ({}, None),
        ({"pgscan_file": 1000, "pgsteal_file": 960}, 40),
        ({"pgscan_file": 1000, "pgsteal_file": 1200}, 0),
        ({"pgmigrate_success": 197, "pgmigrate_fail": 3}, None),
    ],
)
def test_shares_are_those_of_what_was_counted(
    tmp_path: Path, counts: dict[str, int], per_mille: int | None
) -> None:
    trace = shipped_recording("highatomic_stock").trace
    own = {name: table for name, table in trace.tables.items() if name != tp.LRU_SHRINK_INACTIVE}
    trace = replace(trace, tables=own)
    shown = {"file_referenced_per_mille": per_mille, "file_dirty_per_mille": 0}
    expected = recorded_elastic_costs(trace) | (shown if per_mille is not None else {})
    assert recorded_elastic_costs(trace, start_with(tmp_path, **counts)) == expected


def clusters(trace: Trace, **columns: list[int]) -> Trace:
    """The trace with such clusters of reclaim."""
    names = ("nr_scanned", "nr_activate0", "nr_activate1", "nr_ref_keep", "reclaim_flags")
    count = len(columns["nr_scanned"])
    table = {name: np.array(columns.get(name, [0] * count), np.int32) for name in names}
    return replace(trace, tables={tp.LRU_SHRINK_INACTIVE: table})


def test_pages_in_use_are_those_that_recorded_clusters_kept() -> None:
    """Files and anonymous memory apart; what was dirty or could not be unmapped is no use."""
    stock = shipped_recording("highatomic_stock").trace
    trace = clusters(
        stock,
        nr_scanned=[32, 32, 32, 4],
        nr_activate0=[0, 0, 3, 0],
        nr_activate1=[0, 7, 0, 0],
        nr_ref_keep=[1, 0, 9, 2],
        reclaim_flags=[10, 6, 9, 25],
    )
    shown = {"file_referenced_per_mille": 125, "anon_referenced_per_mille": 389}
    assert recorded_use(trace) == shown | {"file_dirty_per_mille": 0}
    assert recorded_elastic_costs(trace).items() >= shown.items()


def test_a_kind_that_was_not_scanned_shows_no_share(tmp_path: Path) -> None:
    stock = shipped_recording("highatomic_stock").trace
    assert set(recorded_use(clusters(stock, nr_scanned=[32], reclaim_flags=[9]))) == {
        "anon_referenced_per_mille"
    }
    assert recorded_use(clusters(stock, nr_scanned=[])) == {}
    assert recorded_use(replace(stock, tables={})) == {}
    # what was counted since boot gives way to it
    start = start_with(tmp_path, pgscan_file=1000, pgsteal_file=960)
    own = clusters(stock, nr_scanned=[32], nr_activate1=[0], reclaim_flags=[2])
    assert recorded_elastic_costs(own, start)["file_referenced_per_mille"] == 0


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
    assert recorded_elastic_costs(trace).get("compact_migrate_ns") == cost


COMPACTION = "compaction:mm_compaction_"


def test_contention_worked_by_hand() -> None:
    """Runs of task 7 isolate of blocks 1, 2 and 2, and give way once; task 8's waits for locks.

    What was looked at in vain, and between runs, does not count.
    """
    tables = {
        COMPACTION + "begin": table(
            time_ns=[10, 30, 10], pid=[7, 7, 8], row=[0, 2, 0], sync=[0, 0, 1]
        ),
        COMPACTION + "end": table(
            time_ns=[20, 40, 50], pid=[7, 7, 8], row=[1, 3, 1], status=[7, 8, 7]
        ),
        COMPACTION + "isolate_migratepages": table(
            time_ns=[11, 12, 13, 14, 25, 31, 12],
            pid=[7, 7, 7, 7, 7, 7, 8],
            start_pfn=[512, 544, 1024, 2048, 4096, 1024, 512],
            nr_taken=[32, 480, 1, 0, 32, 32, 32],
        ),
    }
    trace = replace(shipped_recording("highatomic_stock").trace, tables=tables)
    assert recorded_elastic_costs(trace)["compaction_contended_per_mille"] == 333
    del tables[COMPACTION + "isolate_migratepages"]
    trace = replace(trace, tables=tables)
    assert "compaction_contended_per_mille" not in recorded_elastic_costs(trace)


WAKE, RUN, SHRUNK = (
    f"vmscan:mm_vmscan_{name}" for name in ("wakeup_kswapd", "kswapd_wake", "lru_shrink_inactive")
)


def table(**columns: list[int]) -> dict[str, np.ndarray]:
    return {name: np.array(values, np.int64) for name, values in columns.items()}


def test_kswapd_s_costs_worked_by_hand() -> None:
    """Runs of node 0 last 40 and 10 and free 20 and 5 pages, that of node 1 lasts 100 for 25.

    The first had been woken once more while it waited: that is not a wait of its own.
    """
    trace = replace(
        shipped_recording("highatomic_stock").trace,
        tables={
            WAKE: table(time_ns=[90, 98, 180, 195, 400], nid=[0, 0, 0, 1, 0]),
            RUN: table(time_ns=[100, 200, 200], pid=[7, 7, 8], nid=[0, 0, 1]),
            SHRUNK: table(
                time_ns=[50, 120, 140, 210, 205, 300, 310],
                pid=[7, 7, 7, 7, 8, 8, 9],
                nr_reclaimed=[99, 0, 20, 5, 25, 0, 99],
            ),
        },
    )
    assert recorded_kswapd_ns(trace) == {"kswapd_free_ns": 150 // 50, "kswapd_wake_ns": 10}
    without = {name: table for name, table in trace.tables.items() if name != SHRUNK}
    assert recorded_kswapd_ns(replace(trace, tables=without)) == {"kswapd_wake_ns": 10}
    assert recorded_kswapd_ns(replace(trace, tables={})) == {}


def test_kswapd_has_the_cost_of_direct_reclaim_where_its_own_is_not_known() -> None:
    trace = shipped_recording("highatomic_stock").trace
    tables = {name: table for name, table in trace.tables.items() if "kswapd" not in name}
    direct = recorded_reclaim_ns(trace)
    costs = recorded_elastic_costs(replace(trace, tables=tables))
    assert costs["kswapd_free_ns"] == direct
    own = recorded_elastic_costs(trace)["kswapd_free_ns"]
    assert own == recorded_kswapd_ns(trace)["kswapd_free_ns"] != direct


def test_base_pages_behind_a_refusal_end_with_the_next_huge_page() -> None:
    """Pages behind a huge page that was served, of files, and of others do not count."""
    trace = shipped_recording("highatomic_stock").trace
    huge, base, of_file = 0x3D20CA, 0x140DCA, 0x152C4A
    asks = [
        *[(7, 9, huge, -1), (7, 0, base, 1), (8, 0, base, 2), (7, 0, of_file, 3), (7, 0, base, 4)],
        *[(7, 9, huge, 512), (7, 0, base, 5), (7, 9, huge, -1)],
        *[(7, 9, huge, -1), (7, 0, base, 6), (7, 0, base, 7), (8, 0, base, 8)],
    ]
    asks.append((9, 9, huge, -1))  # khugepaged's, in whose place nobody asks
    columns = {"event": np.full_like(trace.event, Event.FREE)}
    columns["event"][: len(asks)] = Event.ALLOC
    for name, values in zip(("pid", "order", "gfp", "pfn"), zip(*asks, strict=True), strict=True):
        columns[name] = getattr(trace, name).copy()
        columns[name][: len(asks)] = values
    small = replace(trace, **columns, comms={9: "khugepaged"})
    assert recorded_base_pages(small) == 2
    served = replace(small, pfn=np.abs(small.pfn))
    assert recorded_base_pages(served) is None
