"""Rows of demand as kernels fill them, against the same rules put down event by event."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from pytest import MonkeyPatch

from pagealloc_model.allocator import layout as at
from pagealloc_model.allocator import objects as resolved
from pagealloc_model.base import arrays
from pagealloc_model.base.arrays import Column, in_memory, parts
from pagealloc_model.predicted.demand.demand import resolve_demand
from pagealloc_model.predicted.demand.event_order import merged
from pagealloc_model.predicted.demand.reclaim import direct_reclaims
from pagealloc_model.predicted.demand.rows import (
    BATCH_NS,
    GFP_ACCOUNT,
    GFP_KERNEL,
    PartRows,
    RequestsOfTasks,
    RowMaker,
    highest_type_by_gfp,
    realtime_tasks,
    with_reserve,
)
from pagealloc_model.predicted.prepared import recorded_machine
from pagealloc_model.recording.trace.columns import COLUMN_TYPES, Event, Trace
from tests.small_recordings import END_PFN, shipped_recording, small_machine

ROWS = 120
HIDDEN_TYPE = 2
REALTIME = 2


def random_trace(seed: int) -> Trace:
    """Few tasks, CPUs and pages: batches, interrupts, repeats, failures, pages outside."""
    random = np.random.default_rng(seed)
    columns = {name: np.zeros(ROWS, kind) for name, kind in COLUMN_TYPES.items()}
    steps = random.choice([0, 1, BATCH_NS // 8, BATCH_NS], ROWS, p=[0.3, 0.4, 0.28, 0.02])
    columns["time_ns"] = 1000 + np.cumsum(steps)
    kinds = [Event.ALLOC, Event.FREE, Event.FREE_BATCHED, Event.PCPU_DRAIN]
    columns["event"] = random.choice(kinds, ROWS, p=[0.3, 0.35, 0.25, 0.1])
    columns["pfn"] = random.choice([0, 1, 2, 3, 8, 65536 + 1, END_PFN + 4], ROWS)
    columns["order"][:] = random.choice([0, 1, 11], ROWS, p=[0.8, 0.15, 0.05])
    failed = (columns["event"] == Event.ALLOC) & (random.random(ROWS) < 0.2)
    columns["pfn"][failed] = -1
    columns["gfp"] = random.choice([ACCOUNTED, at.GFP_DIRECT_RECLAIM, 0x2], ROWS)
    columns["gfp"][columns["event"] != Event.ALLOC] = 0
    columns["migratetype"] = random.integers(0, 3, ROWS)
    columns["cpu"], columns["pid"] = random.integers(0, 2, ROWS), random.integers(1, 4, ROWS)
    columns["in_interrupt"] = random.integers(-1, 2, ROWS)
    again = np.flatnonzero(random.random(ROWS - 1) < 0.1)
    for name in COLUMN_TYPES:
        columns[name][again + 1] = columns[name][again]
    columns["time_ns"] = np.maximum.accumulate(columns["time_ns"])
    return Trace(**{name: columns[name].astype(kind) for name, kind in COLUMN_TYPES.items()})


ACCOUNTED = GFP_ACCOUNT | at.GFP_DIRECT_RECLAIM


def batches(trace: Trace) -> tuple[dict[int, int], dict[int, int]]:
    """The free of each put page; of each put, the free of its CPU's next one."""
    last: dict[tuple[int, int], int] = {}
    free_of: dict[int, int] = {}
    for row in range(len(trace)):
        if trace.event[row] not in (Event.FREE, Event.FREE_BATCHED):
            continue
        key = int(trace.cpu[row]), int(trace.pfn[row])
        before = last.get(key)
        if trace.event[row] == Event.FREE_BATCHED and before is not None:
            soon = trace.time_ns[row] - trace.time_ns[before] <= BATCH_NS
            if trace.event[before] == Event.FREE and soon:
                free_of[row] = before
        last[key] = row
    next_free = {}
    for cpu in np.unique(trace.cpu):
        puts = [row for row in free_of if trace.cpu[row] == cpu]
        next_free |= {put: free_of[after] for put, after in pairwise(puts)}
    return free_of, next_free


def late_puts(trace: Trace, free_of: dict[int, int]) -> dict[int, int]:
    """Of `free_of`, what was put after another task of the CPU had run, or behind such a page."""
    late: dict[int, int] = {}
    for put, free in sorted(free_of.items()):
        tasks = [
            int(trace.pid[row])
            for row in range(free, put + 1)
            if trace.cpu[row] == trace.cpu[put] and trace.in_interrupt[row] <= 0
        ]
        of_one_task = trace.in_interrupt[[free, put]].max() <= 0 and tasks[0] == tasks[-1]
        is_behind = any(free < row and trace.cpu[row] == trace.cpu[put] for row in late)
        if of_one_task and (len(set(tasks)) > 1 or is_behind):
            late[put] = free
    return late


def plain_rows(trace: Trace) -> tuple[list[dict[str, Any]], int, int]:
    """Rows, events outside, events recorded twice."""
    machine = small_machine()
    zone_of_gfp = highest_type_by_gfp(machine)
    spans = [(zone.start_pfn, zone.end_pfn) for zone in machine.zones if zone.managed]
    free_of, next_free = batches(trace)
    late = late_puts(trace, free_of)
    read = at.GFP_READ_BITS & ~at.GFP_ATOMIC
    rows: list[dict[str, Any]] = []
    last_event: dict[int, int] = {}
    last_put: dict[int, int] = {}
    last_row: dict[int, int] = {}
    last_request: dict[tuple[int, int], int] = {}
    outside = twice = 0
    same_names = ("time_ns", "event", "pfn", "order", "pid", "gfp")
    for row in range(len(trace)):
        cpu, pid, pfn = int(trace.cpu[row]), int(trace.pid[row]), int(trace.pfn[row])
        kind, order = trace.event[row], int(trace.order[row])
        if row in free_of:
            last_put[cpu] = row
        if row in late.values():
            continue
        if row in late:
            kind, order = Event.FREE, int(trace.order[late[row]])
        if kind > Event.FREE:
            continue
        before = last_event.get(cpu)
        last_event[cpu] = row
        if before is not None and pfn >= 0:
            columns = [getattr(trace, name) for name in same_names]
            if all(column[row] == column[before] for column in columns):
                twice += 1
                continue
        size = 1 << order
        is_buddy = order <= machine.max_order and pfn % size == 0
        inside = is_buddy and any(begin <= pfn and pfn + size <= end for begin, end in spans)
        failed = pfn == -1 and kind == Event.ALLOC and order <= machine.max_order
        if not inside and not failed:
            outside += 1
            continue
        gfp = int(trace.gfp[row])
        if pid == REALTIME and gfp & at.GFP_DIRECT_RECLAIM:
            gfp |= at.GFP_HIGH
        is_free = kind == Event.FREE
        bits = GFP_KERNEL & at.GFP_READ_BITS if is_free else gfp & read
        put = last_put.get(cpu)
        if row in free_of.values() or row in late:
            bits |= at.FREED_IN_BATCH
        elif put is not None and next_free.get(put, row) < put and trace.pid[put] == pid:
            bits |= at.INTERRUPTS_HOLDER
        bits |= at.IN_INTERRUPT if trace.in_interrupt[row] > 0 else 0
        made = {
            "row": row,
            "pid": pid,
            "pfn": pfn,
            "bits": bits,
            "cpu": cpu,
            "is_free": int(is_free),
            "order": order,
            "migratetype": HIDDEN_TYPE if is_free else int(trace.migratetype[row]),
            "zone": int(zone_of_gfp[gfp & 15]),
            "failed_charge": 0,
            "task": (pid, cpu),
            "task_request": last_request.get((pid, cpu), -1),
        }
        rows.append(made)
        freed = rows[last_row[cpu]] if cpu in last_row else made
        last_row[cpu] = len(rows) - 1
        if not is_free:
            last_request[pid, cpu] = row
            same = freed["task"] == made["task"] and freed["order"] == order
            if pfn == -1 and freed["is_free"] and same and gfp & GFP_ACCOUNT:
                freed |= {name: made[name] for name in ("bits", "migratetype", "zone")}
                freed["failed_charge"] = 1
    return rows, outside, twice


@pytest.mark.parametrize("rows_together", [ROWS, 7])
@pytest.mark.parametrize("seed", [*range(30), 273])  # in 273 a put is late behind a late one
def test_rows_are_what_each_event_says(
    seed: int, rows_together: int, monkeypatch: MonkeyPatch
) -> None:
    monkeypatch.setattr(arrays, "ROWS_TOGETHER", rows_together)
    trace = random_trace(seed)
    expected, outside, twice = plain_rows(trace)
    found = found_rows(trace)
    assert (found.outside, found.recorded_twice) == (outside, twice)
    for name in resolved.ROW.names or ():
        assert found.rows[name].tolist() == [row[name] for row in expected], name


def found_rows(trace: Trace) -> PartRows:
    """The rows of all parts, with their requests."""
    maker = RowMaker(
        trace, small_machine(), HIDDEN_TYPE, direct_reclaims(trace), realtime=frozenset({REALTIME})
    )
    rows, tasks, last_row = np.zeros(0, resolved.ROW), RequestsOfTasks(), np.full(1 << 10, -1)
    outside = twice = 0
    for part in parts(len(trace)):
        made = maker.part(part)
        first, rows = len(rows), np.concatenate([rows, made.rows])
        tasks.link(rows, first, trace.gfp, last_row)
        outside, twice = outside + made.outside, twice + made.recorded_twice
    return PartRows(rows=rows, outside=outside, recorded_twice=twice)


def test_the_traces_have_all_that_rows_tell() -> None:
    rows, outside, twice = [], 0, 0
    for seed in range(30):
        more, left_out, repeated = plain_rows(random_trace(seed))
        rows += more
        outside, twice = outside + left_out, twice + repeated
    assert min(outside, twice, sum(row["failed_charge"] for row in rows)) > 10
    for bit in (at.FREED_IN_BATCH, at.INTERRUPTS_HOLDER, at.IN_INTERRUPT, at.GFP_HIGH):
        assert sum(bool(row["bits"] & bit) for row in rows) > 10, bit


def test_more_tasks_than_the_table_has_room_for() -> None:
    count = 5000
    columns = {name: np.zeros(count, kind) for name, kind in COLUMN_TYPES.items()}
    columns["time_ns"] = np.arange(count)
    columns["pid"] = np.arange(count) % 4999
    trace = Trace(**columns)
    found = found_rows(trace)
    assert found.rows["task_request"].tolist() == [-1] * 4999 + [0]


# Merging a part at a time is a stable sort of the whole


def emitted_events(seed: int) -> np.ndarray:
    """Frees in time order, many of equal times, some with a hidden allocation before them."""
    random = np.random.default_rng(seed)
    times, events = np.cumsum(random.integers(0, 2, 50)), []
    for number, now in enumerate(times.tolist()):
        if random.random() < 0.4:
            hidden_ns = random.choice([now, max(now - int(random.integers(0, 9)), 0)])
            events.append((hidden_ns, number, at.HIDDEN_ALLOC))
        events.append((now, number, at.FREE))
    records = np.zeros(len(events), at.EVENT)
    names = ("time_ns", "object", "operation")
    for name, column in zip(names, zip(*events, strict=True), strict=True):
        records[name] = column
    return records


@pytest.mark.parametrize("rows_together", [1, 3, 1000])
@pytest.mark.parametrize("seed", range(20))
def test_merged_events_are_sorted_stably(
    seed: int, rows_together: int, monkeypatch: MonkeyPatch
) -> None:
    monkeypatch.setattr(arrays, "ROWS_TOGETHER", rows_together)
    emitted = emitted_events(seed)
    beside = np.zeros(6, at.EVENT)
    beside["time_ns"] = np.random.default_rng(seed).integers(-1, 30, 6)
    beside["operation"] = at.KSWAPD_START
    together = np.concatenate([beside, emitted])
    expected = together[np.argsort(together["time_ns"], kind="stable")]
    is_hidden = emitted["operation"] == at.HIDDEN_ALLOC
    extra = np.concatenate([beside, emitted[is_hidden]])
    ranks = np.concatenate([np.zeros(6, np.int64), np.cumsum(~is_hidden)[is_hidden]])
    others = emitted[~is_hidden]
    np.testing.assert_array_equal(merged(others, extra, ranks, in_memory), expected)
    held = Column(at.EVENT)
    held.append(others)
    found = merged(held.values, extra, ranks, in_memory, held)
    np.testing.assert_array_equal(found, expected)


# A recorder with realtime priority dips into the min reserve; no other task is known to


GFP_ATOMIC = 0x820


def test_requests_that_may_reclaim_count_as_high_ones() -> None:
    words = with_reserve(np.array([GFP_KERNEL, GFP_ATOMIC, 0], np.uint32))
    assert words.tolist() == [GFP_KERNEL | at.GFP_HIGH, GFP_ATOMIC, 0]


def test_the_recorder_is_realtime_if_it_was_asked_to_be() -> None:
    shipped = shipped_recording("highatomic_gate3")
    assert {shipped.trace.comms[pid] for pid in realtime_tasks(shipped)} == {"perf"}
    command = [word for word in shipped.meta["perf"] if word not in ("-r", "20")]
    assert realtime_tasks(replace(shipped, meta=shipped.meta | {"perf": command})) == frozenset()


def test_a_prediction_gives_them_the_reserve() -> None:
    shipped = shipped_recording("highatomic_gate3")
    machine = recorded_machine(shipped)
    plain = resolve_demand(shipped.trace, machine).events
    favoured = resolve_demand(shipped.trace, machine, realtime=realtime_tasks(shipped)).events
    gained = favoured["bits"] & ~plain["bits"]
    assert set(np.unique(gained).tolist()) == {0, at.GFP_HIGH}
    assert (plain["bits"][gained != 0] & at.GFP_DIRECT_RECLAIM != 0).all()
