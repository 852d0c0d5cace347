"""A recorder with realtime priority dips into the min reserve; no other task is known to."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from pagealloc_model.allocator import layout as at
from pagealloc_model.predicted.demand.demand import resolve_demand
from pagealloc_model.predicted.demand.rows import realtime_tasks, with_reserve
from pagealloc_model.predicted.prepared import recorded_machine
from tests.small_recordings import shipped_recording

GFP_KERNEL, GFP_ATOMIC = 0xCC0, 0x820


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
