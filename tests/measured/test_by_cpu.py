"""Events by CPU and the pages of drains, as kernels find them, against numpy's sorts."""

from __future__ import annotations

import numpy as np
import pytest

from pagealloc_model.base import arrays
from pagealloc_model.measured import rule_findings as drain_holds
from pagealloc_model.measured import rule_findings as fallback_events
from pagealloc_model.measured import transactions as runs
from pagealloc_model.measured.measured import DIRECT_RECLAIM, outcomes_table
from pagealloc_model.measured.rule_findings import evidence_stream
from pagealloc_model.measured.stream import Stream, allocator_stream
from pagealloc_model.recording.proc.zoneinfo import parse_zoneinfo
from pagealloc_model.recording.trace.columns import COLUMN_TYPES, Event, Trace
from pagealloc_model.recording.zone_map import ZoneMap
from tests.small_recordings import start_free, zoneinfo_text

ROWS = 400
ZONES = ZoneMap.of(parse_zoneinfo(zoneinfo_text(start_free(), {})))
BEGINS = {"pid": np.array([1, 2, 3], np.int32), "time_ns": np.array([30, 90, 91])}


def random_trace(seed: int) -> Trace:
    """Runs of drains on a few CPUs, some of them numbered -1, between other events."""
    random = np.random.default_rng(seed)
    columns = {name: np.zeros(ROWS, kind) for name, kind in COLUMN_TYPES.items()}
    columns["time_ns"] = np.cumsum(random.integers(0, 3, ROWS))
    kinds = [each.value for each in Event]
    columns["event"] = np.repeat(random.choice(kinds, ROWS // 8), 8)
    columns["event"][random.random(ROWS) < 0.1] = Event.FREE
    columns["cpu"] = np.repeat(random.integers(-1, 3, ROWS // 4), 4)
    columns["pid"] = np.repeat(random.integers(1, 3, ROWS // 40), 40)
    columns["pfn"] = random.integers(-1, 12, ROWS)
    columns["order"] = random.integers(0, 2, ROWS)
    columns["migratetype"] = random.integers(0, 4, ROWS)
    columns["gfp"] = random.choice([0x400, 0x408, 0x20, 0], ROWS)
    typed = {name: columns[name].astype(kind) for name, kind in COLUMN_TYPES.items()}
    bits = {"__GFP_DIRECT_RECLAIM": 0x400, "__GFP_MOVABLE": 0x8, "__GFP_HIGH": 0x20}
    return Trace(**typed, gfp_bits=bits, tables={DIRECT_RECLAIM: BEGINS}, comms={2: "kworker/0:1"})


@pytest.mark.parametrize("seed", range(10))
def test_rows_of_a_cpu_stand_together_in_their_order(seed: int) -> None:
    trace = random_trace(seed)
    stream = allocator_stream(trace, with_probes=True)
    order = np.argsort(trace.cpu, kind="stable")
    for name in ("cpu", "time_ns", "pid", "pfn", "order", "migratetype", "percpu_refill"):
        np.testing.assert_array_equal(getattr(stream, name), getattr(trace, name)[order])
    np.testing.assert_array_equal(stream.kind, trace.event[order])
    assert stream.kind.dtype == np.int8


def from_elsewhere(stream: Stream, drained: np.ndarray) -> np.ndarray:
    """Which drained pages another CPU had freed or refilled last, by sorting pages and times."""
    rows = stream.rows_of(Event.FREE, Event.ZONE_LOCKED, Event.PCPU_DRAIN)
    rows = rows[np.lexsort((stream.time_ns[rows], stream.pfn[rows]))]
    before, after = rows[:-1], rows[1:]
    found = np.zeros(len(stream), bool)
    found[after] = (
        (stream.kind[after] == Event.PCPU_DRAIN)
        & (stream.kind[before] != Event.PCPU_DRAIN)
        & (stream.pfn[after] == stream.pfn[before])
        & (stream.cpu[after] != stream.cpu[before])
    )
    return found[drained]


@pytest.mark.parametrize("frames", [1 << 26, 1])
@pytest.mark.parametrize("seed", range(10))
def test_pages_are_followed_from_cpu_to_cpu(
    seed: int, frames: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runs, "_MOST_FRAMES", frames)
    stream = allocator_stream(random_trace(seed), with_probes=True)
    drained = stream.rows_of(Event.PCPU_DRAIN)
    expected = from_elsewhere(stream, drained)
    assert expected.any()
    np.testing.assert_array_equal(runs._came_from_elsewhere(stream, drained), expected)


@pytest.mark.parametrize("seed", range(20))
def test_rules_rest_on_events_around_drains_and_fallbacks(seed: int) -> None:
    trace = random_trace(seed)
    thin, whole = evidence_stream(trace), allocator_stream(trace, with_probes=True)
    assert len(thin) < len(whole)
    assert fallback_events.generation(thin) == fallback_events.generation(whole)
    members = [each.rows_of(Event.PCPU_DRAIN) for each in (thin, whole)]
    for name in ("time_ns", "cpu", "pfn"):
        columns = [
            getattr(each, name)[rows] for each, rows in zip((thin, whole), members, strict=True)
        ]
        np.testing.assert_array_equal(*columns)
    starts = [
        runs.run_starts(each, rows, ZONES.codes(each.pfn[rows]))
        for each, rows in zip((thin, whole), members, strict=True)
    ]
    np.testing.assert_array_equal(*starts)
    causes = [
        drain_holds.drain_causes(each, rows[starts[0]], trace.comms)
        for each, rows in zip((thin, whole), members, strict=True)
    ]
    np.testing.assert_array_equal(*causes)


@pytest.mark.parametrize("seed", range(5))
def test_outcomes_of_parts_together_are_those_of_the_whole(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    trace = random_trace(seed)
    whole = outcomes_table(trace, pmd_order=9, reclaim_recorded=True)
    allocs = trace.event == Event.ALLOC
    assert whole["asked"].sum() == allocs.sum()
    assert whole["failed"].sum() == (allocs & (trace.pfn < 0)).sum()
    for rows_together in (1, 7):
        monkeypatch.setattr(arrays, "ROWS_TOGETHER", rows_together)
        assert outcomes_table(trace, pmd_order=9, reclaim_recorded=True).equals(whole)


def test_reclaim_without_any_allocation_stalled_nothing() -> None:
    columns = {name: np.zeros(0, kind) for name, kind in COLUMN_TYPES.items()}
    begins = {"pid": np.ones(1, np.int32), "time_ns": np.zeros(1, np.int64)}
    trace = Trace(**columns, tables={DIRECT_RECLAIM: begins})
    assert outcomes_table(trace, pmd_order=9, reclaim_recorded=True).empty
