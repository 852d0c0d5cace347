"""kswapd goes on as and where the recorded one did at that time, if a replay is asked for it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from pytest import MonkeyPatch

import pagealloc_model as pm
from pagealloc_model.allocator import layout as at
from pagealloc_model.allocator import pressure_layout as pr
from pagealloc_model.predicted import recorded_kswapd as module
from pagealloc_model.predicted.elastic_values import elastic_values
from pagealloc_model.predicted.recorded_kswapd import (
    RecordedKswapd,
    recorded_kswapd,
    recorded_schedule,
)
from pagealloc_model.recording.trace import tracepoints as tp
from pagealloc_model.recording.trace.columns import Trace
from tests.predicted.test_replay_elastic import replayed, replayed_anew
from tests.small_recordings import shipped_recording


def table(**columns: list[int]) -> dict[str, np.ndarray]:
    return {name: np.array(values, np.int64) for name, values in columns.items()}


def trace_with(stock: pm.Recording, *, clusters: dict[str, np.ndarray]) -> Trace:
    """Runs of one node begin at 100 and 1000, one of another at 500."""
    runs = table(time_ns=[100, 1000, 500], pid=[7, 7, 8], nid=[0, 0, 1])
    return replace(stock.trace, tables={tp.KSWAPD_WAKE: runs, tp.LRU_SHRINK_INACTIVE: clusters})


def test_paces_worked_by_hand(stock: pm.Recording, monkeypatch: MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PAGES_OF_A_PACE", 30)
    clusters = table(
        time_ns=[50, 140, 200, 520, 1020, 1080, 1100],
        pid=[7, 7, 7, 8, 7, 7, 9],
        nr_reclaimed=[99, 20, 10, 30, 5, 27, 99],
        cpu=[1, 0, 0, 1, 0, 1, 0],
    )
    kswapd = recorded_kswapd(trace_with(stock, clusters=clusters))
    assert kswapd is not None
    # Node 0: from 100 on 100 ns for 30 pages, from 1000 on 20 + 60 for 5 + 27; node 1: 20 for 30.
    paces = {node: [each.tolist() for each in held] for node, held in kswapd.free_ns.items()}
    assert paces == {0: [[100, 1000], [100 // 30, 80 // 32]], 1: [[500], [20 // 30]]}
    # Node 0's begins on CPU 0 and is on CPU 1 after its cluster that ended at 1020.
    places = {node: [each.tolist() for each in held] for node, held in kswapd.cpus.items()}
    assert places == {0: [[100, 1020], [0, 1]], 1: [[500], [1]]}
    assert kswapd.changes_ns.tolist() == [100, 500, 1000, 1020]


def test_there_is_no_pace_without_runs_or_pages(stock: pm.Recording) -> None:
    none = table(time_ns=[120], pid=[7], nr_reclaimed=[0], cpu=[0])
    assert recorded_kswapd(trace_with(stock, clusters=none)) is None
    before = table(time_ns=[20], pid=[7], nr_reclaimed=[5], cpu=[0])
    assert recorded_kswapd(trace_with(stock, clusters=before)) is None
    assert recorded_kswapd(replace(stock.trace, tables={})) is None


def scheduled_trace(stock: pm.Recording) -> Trace:
    """kswapd0 runs from 100 to 130 and, preempted, from 150 to 190; kcompactd0 from 160 on."""
    clusters = table(
        time_ns=[125, 155, 185, 520],
        pid=[7, 7, 7, 8],
        nr_reclaimed=[20, 512, 10, 30],
        cpu=[0, 0, 0, 1],
    )
    switches = table(
        time_ns=[100, 130, 150, 190, 160, 170],
        cpu=[0, 0, 0, 0, 1, 1],
        prev_pid=[1, 7, 1, 7, 2, 9],
        prev_state=[0, 0x100, 0, 1, 0, 1],
        next_pid=[7, 1, 7, 1, 9, 2],
    )
    plain = trace_with(stock, clusters=clusters)
    tables = {**plain.tables, tp.SCHED_SWITCH: switches}
    comms = {**plain.comms, 7: "kswapd0", 8: "kswapd1", 9: "kcompactd0"}
    return replace(plain, tables=tables, comms=comms)


def test_a_pace_by_schedule_is_of_the_time_on_a_cpu(stock: pm.Recording) -> None:
    trace = scheduled_trace(stock)
    scheduled, plain = (recorded_kswapd(trace, scheduled=on) for on in (True, False))
    assert scheduled is not None and plain is not None
    # 25, 5 + 5 and 30 ns on the CPU free 20, 32 (a huge page's cluster counts as one) and 10
    assert scheduled.free_ns[0][1].tolist() == [65 // 62]
    assert plain.free_ns[0][1].tolist() == [85 // 542]
    # nobody saw kswapd1 on a CPU: it keeps its general pace
    assert 1 not in scheduled.free_ns and 1 in plain.free_ns
    assert plain.schedule is None
    schedule = scheduled.schedule
    assert schedule is not None
    assert schedule.kswapd[0].table.tolist() == [[100, 30, 20], [150, 40, 0]]
    assert schedule.kcompactd[0].table.tolist() == [[160, 10, 0]]
    assert schedule.kswapd.keys() == schedule.kcompactd.keys() == {0}


def test_nothing_is_scheduled_without_switches_of_a_kswapd(stock: pm.Recording) -> None:
    assert recorded_schedule(stock.trace) is None
    trace = scheduled_trace(stock)
    assert recorded_schedule(replace(trace, comms={9: "kcompactd0"})) is None
    unseen = recorded_kswapd(trace_with(stock, clusters=trace.tables[tp.LRU_SHRINK_INACTIVE]))
    assert unseen is not None and unseen.schedule is None


def counted(replay: pm.Replay) -> np.ndarray:
    """What kswapd has freed, sample by sample."""
    table = replay.vmstat
    return table.loc[table["name"] == "pgsteal_kswapd", "value"].to_numpy()


PACES = "pagealloc_model.predicted.replay.recorded_kswapd"


def test_kswapd_frees_by_the_pace_of_the_time(
    stock: pm.Recording, monkeypatch: MonkeyPatch
) -> None:
    first, last = stock.trace.demand_span_ns
    slow, fast = 1_000_000, 500
    halves = np.array([first, (first + last) // 2 + 1]), np.array([slow, fast])
    paces = RecordedKswapd(free_ns={0: halves}, cpus={})
    monkeypatch.setattr(PACES, lambda trace, scheduled: paces)
    paced = counted(replayed_anew(kswapd_as_recorded=True))
    throughout = counted(replayed(kswapd_free_ns=slow))
    half = len(paced) // 2 - 1
    np.testing.assert_array_equal(paced[:half], throughout[:half])
    assert paced[-1] - paced[half] > 2 * (throughout[-1] - throughout[half])


def test_one_pace_throughout_is_no_change(stock: pm.Recording, monkeypatch: MonkeyPatch) -> None:
    first, last = stock.trace.demand_span_ns
    paces = RecordedKswapd(
        free_ns={0: (np.linspace(first, last, 40).astype(np.int64), np.full(40, 20_000))},
        cpus={0: (np.array([first, last // 2 + first // 2]), np.array([0, 0]))},
    )
    monkeypatch.setattr(PACES, lambda trace, scheduled: paces)
    paced = counted(replayed_anew(kswapd_as_recorded=True))
    np.testing.assert_array_equal(paced, counted(replayed(kswapd_free_ns=20_000)))


def test_what_kswapd_frees_goes_to_the_lists_of_the_cpu_that_it_is_on(
    stock: pm.Recording, monkeypatch: MonkeyPatch
) -> None:
    first, _ = stock.trace.demand_span_ns
    drains = {}
    for cpu in (0, 1):
        held = RecordedKswapd(
            free_ns={0: (np.array([first]), np.array([500]))},
            cpus={0: (np.array([first]), np.array([cpu])), 7: (np.array([first]), np.array([0]))},
        )
        monkeypatch.setattr(PACES, lambda trace, scheduled, held=held: held)
        table = replayed_anew(kswapd_as_recorded=True).transactions
        pages = (table["objects"] * table["transactions"])[table["site"] == "drain"]
        drains[cpu] = pages.groupby(table["cpu"]).sum()
    assert drains[0][0] > drains[1][0]
    assert drains[1][1] > drains[0][1]


def spans_of(replay: pm.Replay) -> list[int]:
    """How many spans node 0's kswapd has, and at which one it ended."""
    st = replay.final.st
    nodes = int(st[int(st[at.PRESSURE_BASE]) + pr.NODES_BASE])
    return [int(st[nodes + pr.KSWAPD_CPU_TIME + word]) for word in (pr.SPANS, pr.SPAN)]


def test_a_replay_goes_by_the_switches_of_its_recording() -> None:
    recording = shipped_recording("scheduled_6.12")
    found = elastic_values(recording)
    assert found.elastic.daemons_as_scheduled
    assert "kswapd's and kcompactd's waits for a CPU*" in str(found)
    asked = pm.Assumptions(reclaim="elastic", elastic=found.elastic)
    even = replace(asked, elastic=replace(found.elastic, daemons_as_scheduled=False))
    scheduled, plain = (pm.replay(recording, assumptions=each) for each in (asked, even))
    assert "kswapd's and kcompactd's waits for a CPU" in scheduled.imposed
    assert "kswapd's and kcompactd's waits for a CPU" not in plain.imposed
    switches = recording.trace.tables[tp.SCHED_SWITCH]
    (kswapd,) = (pid for pid, name in recording.trace.comms.items() if name == "kswapd0")
    begun = int((switches["next_pid"] == kswapd).sum())
    count, at_span = spans_of(scheduled)
    assert begun - 1 <= count <= begun and 0 < at_span < count
    assert spans_of(plain) == [0, 0]
    assert not np.array_equal(counted(scheduled), counted(plain))


def test_without_switches_the_line_says_that_waits_are_not_known(stock: pm.Recording) -> None:
    found = elastic_values(stock)
    assert not found.elastic.daemons_as_scheduled
    assert "general values: kswapd's and kcompactd's waits for a CPU" in str(found)
