"""Memory stalls that events of reclaim, compaction, the daemons and the scheduler show."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from pagealloc_model.base.errors import UsageError
from pagealloc_model.measured.cpu_spans import Running
from pagealloc_model.measured.memory_stalls import (
    beside,
    in_stall,
    recorded_daemon_work,
    recorded_stalls,
)
from pagealloc_model.recording.trace import tracepoints as tp
from tests.small_recordings import shipped_recording

UNDER_PRESSURE = "highatomic_gate3"

SWITCHES = [
    # time, CPU, who goes, in which state, who comes
    (100, 0, 0, 0, 10),
    (200, 0, 10, 0x100, 50),
    (260, 0, 50, 1, 10),
    (300, 0, 10, 1, 0),
    (400, 0, 0, 0, 20),
    (500, 0, 20, 0, 10),
    (520, 0, 10, 2, 20),
    (600, 0, 20, 1, 0),
    (150, 1, 0, 0, 60),
    (650, 1, 60, 1, 0),
]
"""Of kswapd 50 and tasks 10, 20 and 60; 10 is preempted by kswapd, 20 by 10."""


def who_ran() -> Running:
    columns = np.array(SWITCHES, np.int64).T
    names = ("time_ns", "cpu", "prev_pid", "prev_state", "next_pid")
    table = dict(zip(names, columns, strict=True))
    running = Running.of(SimpleNamespace(tables={tp.SCHED_SWITCH: table}))
    assert running is not None
    return running


def stalls_of(*rows: tuple[int, int, int, int]) -> pd.DataFrame:
    return pd.DataFrame(list(rows), columns=["pid", "cpu", "begin_ns", "ns"])


def test_without_switches_nobody_knows_who_ran() -> None:
    assert Running.of(SimpleNamespace(tables={})) is None


def test_full_leaves_out_the_time_of_those_in_no_stall() -> None:
    running = who_ran()
    # 10 stalls on CPU 0 from 250 to 550: kswapd runs 10 ns of it, 20 runs 130
    ran = beside(running, stalls_of((10, 0, 250, 300)))
    assert ran["ns"].sum() == 10 + 100 + 30
    # with kswapd in a stall too, its time is full as well
    ran = beside(running, stalls_of((10, 0, 250, 300), (50, 0, 200, 60)))
    assert ran["ns"].sum() == 100 + 30


def test_days_of_stalls_are_counted_and_what_is_too_long_is_refused() -> None:
    """A word holds four days of 10,000 tasks, not 73 years of two."""
    day = 24 * 3600 * 10**9
    pid, begin = np.arange(1, 10_001), np.full(10_000, 4 * day)
    running = Running(
        pid=pid,
        cpu=np.zeros(10_000, np.int64),
        begin_ns=begin,
        end_ns=begin + 9,
        sleeps=np.ones(10_000, bool),
    )
    stalls = stalls_of((1, 0, 5, 5), (9, 0, 4 * day + 3, 5), (9_999, 0, 4 * day + 8, 5))
    assert np.array(in_stall(running, stalls)).T.tolist() == [
        [0, 4 * day + 3, 4 * day + 8],
        [0, 4 * day + 8, 4 * day + 9],
    ]
    with pytest.raises(UsageError, match="2 tasks or CPUs within 640,512 hours are too many"):
        in_stall(running, stalls_of((1, 0, 5, 5), (2, 0, 1 << 61, 5)))


@pytest.mark.parametrize(
    ("begins", "ends", "work"),
    [
        ([110, 140], [120, 150], [(110, 10), (140, 10)]),
        ([110], [105, 120], [(100, 5), (110, 10)]),
        ([110, 140], [120], [(110, 10), (140, 60)]),
        ([], [120], [(100, 20)]),
        ([110], [], [(110, 90)]),
        ([110, 140], [150], [(110, 30), (140, 10)]),
    ],
)
def test_work_counts_as_far_as_events_go(
    begins: list[int], ends: list[int], work: list[tuple[int, int]]
) -> None:
    tables = {
        f"vmscan:mm_vmscan_balance_pgdat_{name}": {
            "time_ns": np.array(times, np.int64),
            "pid": np.full(len(times), 50),
            "cpu": np.zeros(len(times), np.int64),
        }
        for name, times in (("begin", begins), ("end", ends))
    }
    trace = SimpleNamespace(tables=tables, demand_span_ns=(100, 200))
    rows = recorded_daemon_work(trace).sort_values("begin_ns")
    assert list(zip(rows["begin_ns"], rows["ns"], strict=True)) == work
    assert set(rows["pid"]) == {50}


def test_kswapd_s_naps_are_no_work() -> None:
    """Runs from 110 and 150 with clusters, and one from 190 without; it slept at 180 alone."""
    columns = {
        "vmscan:mm_vmscan_kswapd_wake": [110, 150, 190],
        "vmscan:mm_vmscan_kswapd_sleep": [180],
        "vmscan:mm_vmscan_lru_shrink_inactive": [115, 120, 155],
    }
    tables = {
        name: {
            "time_ns": np.array(times),
            "pid": np.full(len(times), 50),
            "cpu": np.zeros(len(times), np.int64),
        }
        for name, times in columns.items()
    }
    rows = recorded_daemon_work(SimpleNamespace(tables=tables, demand_span_ns=(100, 200)))
    assert rows[["begin_ns", "ns"]].to_numpy().tolist() == [[110, 10], [150, 5], [190, 0]]
    del tables["vmscan:mm_vmscan_lru_shrink_inactive"]
    rows = recorded_daemon_work(SimpleNamespace(tables=tables, demand_span_ns=(100, 200)))
    assert rows["ns"].to_list() == [40, 30, 10]


def test_daemons_work_has_its_thread() -> None:
    trace = shipped_recording(UNDER_PRESSURE).trace
    work = recorded_daemon_work(trace)
    names = {trace.comms[pid].rstrip("0123456789") for pid in work["pid"]}
    assert names <= {"kswapd", "kcompactd"}


def test_daemons_do_not_stall() -> None:
    trace = shipped_recording(UNDER_PRESSURE).trace
    stalls = recorded_stalls(trace)
    assert len(stalls)
    names = [trace.comms.get(pid, "") for pid in stalls["pid"]]
    assert not any(name.startswith(("kswapd", "kcompactd")) for name in names)
