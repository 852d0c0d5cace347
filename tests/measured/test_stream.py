"""The allocator's events of a trace as a stream: rows, CPUs, pages followed."""

from __future__ import annotations

import numpy as np
import pytest

from pagealloc_model.allocator.sites import CAUSES, MEASURED
from pagealloc_model.measured import transactions as runs
from pagealloc_model.measured.stream import allocator_stream
from pagealloc_model.measured.transactions import (
    RunRules,
    inferred_transactions,
)
from pagealloc_model.recording.trace.columns import Event
from tests.measured.test_transactions import ZONES, random_trace


@pytest.mark.parametrize("seed", range(10))
def test_rows_of_a_cpu_stand_together_in_their_order(seed: int) -> None:
    trace = random_trace(seed)
    stream = allocator_stream(trace, with_probes=True)
    order = np.argsort(trace.cpu, kind="stable")
    for name in ("cpu", "time_ns", "pid", "pfn", "order", "migratetype", "percpu_refill"):
        np.testing.assert_array_equal(getattr(stream, name), getattr(trace, name)[order])
    np.testing.assert_array_equal(stream.kind, trace.event[order])
    assert stream.kind.dtype == np.int8


@pytest.mark.parametrize("seed", range(20))
def test_pages_are_followed_from_cpu_to_cpu(seed: int) -> None:
    """A run of drains is of all lists if another CPU freed or refilled most of its pages last."""
    trace = random_trace(seed)
    last: dict[int, tuple[int, bool]] = {}
    elsewhere = {}
    for row in np.lexsort((trace.cpu, trace.time_ns)).tolist():
        kind, cpu, pfn = int(trace.event[row]), int(trace.cpu[row]), int(trace.pfn[row])
        if kind in (Event.FREE, Event.ZONE_LOCKED, Event.PCPU_DRAIN):
            before, was_drained = last.get(pfn, (cpu, False))
            if kind == Event.PCPU_DRAIN:
                elsewhere[row] = before != cpu and not was_drained
            last[pfn] = (cpu, kind == Event.PCPU_DRAIN)
    stream = allocator_stream(trace, with_probes=True)
    by_cpu = np.argsort(trace.cpu, kind="stable")
    drained = stream.rows_of(Event.PCPU_DRAIN)
    zone = ZONES.codes(stream.pfn[drained])
    starts = np.flatnonzero(runs.run_starts(stream, drained, zone))
    shares = [
        np.mean([elsewhere[row] for row in by_cpu[part].tolist()])
        for part in np.split(drained, starts[1:])
    ]
    table = inferred_transactions(stream, ZONES, {}, RunRules(free_batched=False))
    table = table[table["site"] == MEASURED.index("drain")]
    of_all = table["cause"] == CAUSES.index("drain_all")
    assert of_all.sum() == sum(share > 0.5 for share in shares)
