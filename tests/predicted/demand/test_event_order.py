"""Interrupts that may have come into a refill or a drain (T10.13): how they are found."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from pytest import MonkeyPatch

from pagealloc_model.allocator import layout as at
from pagealloc_model.base import arrays
from tests.predicted.demand.test_demand import Script, told

BEFORE_REQUEST = "a0 +10 !a1 !f1 a2^1:GFP_HIGHUSER_MOVABLE a4"
"""An interrupt with a request and a free, nearer to the task's request behind it."""


@pytest.mark.parametrize(
    ("script", "events", "interrupts"),
    [
        (BEFORE_REQUEST, "A0 B^1 A1 F1 A2^1 A3", [1, 2]),
        # What begins is the request, not a missed free before it.
        ("a0 +10 !a2 a0^1", "A0 B^1 A1 F0 A2^1", [1]),
        # The nearer event wins, from the interrupt's first and last on; of equals the request.
        ("a0 f0 !a1 +10 a2", "A0 F0 H A1 A2", [2]),
        ("a0 f0 !a1 +50 !f1 a2", "A0 F0 B A1 F1 A2", [2, 3]),
        ("a0 f0 +1 !a1 +50 !f1 a2", "A0 F0 B A1 F1 A2", [2, 3]),
        ("a0 f0 !a1 +50 !f1 +1 a2", "A0 F0 H A1 F1 A2", [2, 3]),
        # A request before it and a free behind it are over.
        ("a0 !a1 +10 a2 +10 !f1 f2", "A0 A1 A2 F1 F2", []),
        # The interrupt names the task that it came into: another's event tells nothing.
        ("a0 +10 !a1 @0:7 a2", "A0 A1 A2", []),
        ("a0 @0:7 f0 @0 !a1 +10 @0:7 a2", "A0 F0 A1 A2", []),
        # Events of other CPUs end no interrupt, are none, and are no nearer event.
        ("a0 +10 !a1 @1:11 a8 @0 !a2 @1:11 f8 @0 a3", "A0 B A1 A2 A3 F2 A4", [1, 3]),
        (
            "@0:20 a0 @1:21 a16 +10 @0:20 !a1 @1:21 !a17 a18^1 @0:20 a2",
            "A0 A1 B A2 B^1 A3 A4^1 A5",
            [2, 3],
        ),
        # Nothing says what came before the first event, or behind the last.
        ("!a0 a1 f1 !a2 !f2", "A0 A1 F1 A2 F2", []),
        # Those into folio batches are known by the order of events (T10.5): not before the first
        # page is put on a list, not behind the last, and no other task's, which finds pages that
        # are put later in no list.
        ("a0 +5 a1 +5 f0 f1 b0 !a2 b1 a3", "A0 A1 F0 F1 A2 A3", [4]),
        (
            "a0 a1 a2 f0 a64 f1 b0 a65 f64 @0:7 a66 @0 b1 f65 f2 b2",
            "A0 A1 A2 F0 A3 A4 F3 A5 F1 F4 F2",
            [5, 6],
        ),
        ("a0 +10 !a1 x^2", "A0 B^2 A1 R^2", [1]),
        # The allocation that no event shows stands first of all and bears no mark.
        ("@1:11 a0 f0 @0 a1 +10 !f0 a2", "A0 F0 A1 h2 B F2 A3", [3, 4]),
        # A free that is two events here: the task's request begins once, before both.
        ("a0 a1 +10 !f0^1 a2", "A0 A1 B F0 F1 A2", [2, 3]),
    ],
)
def test_interrupts_are_found(
    tmp_path: Path, script: str, events: str, interrupts: list[int]
) -> None:
    """`interrupts` are numbers of events that find a list locked, holds themselves left out."""
    demand = Script(script).demand(tmp_path)
    assert told(demand) == events
    is_hold = np.isin(demand.events["operation"], (at.BEGIN_REQUEST, at.HOLD_DRAINED))
    others = demand.events[~is_hold]
    assert np.flatnonzero(others["bits"] & at.INTERRUPTS_HOLDER).tolist() == interrupts
    assert not np.any(demand.events["bits"] & np.uint32(at.CONTEXT_BITS))
    for place in np.flatnonzero(is_hold):
        hold, behind = demand.events[place], demand.events[place + 1 :]
        assert hold["object"] == -1
        assert hold["time_ns"] == behind["time_ns"][0]
        if hold["operation"] == at.HOLD_DRAINED:
            assert (hold["bits"], hold["cpu"]) == (at.INTERRUPTS_HOLDER, behind["cpu"][0])
            continue
        is_request = np.isin(behind["operation"], (at.ALLOC, at.RECORDED_FAILURE))
        is_request &= (behind["cpu"] == hold["cpu"]) & (behind["bits"] & at.INTERRUPTS_HOLDER == 0)
        for name in ("order", "migratetype", "zone", "bits"):
            assert hold[name] == behind[is_request][0][name], name


@pytest.mark.parametrize("context", [-1, 0])
def test_nothing_is_marked_where_no_interrupt_is_known(tmp_path: Path, context: int) -> None:
    events = Script(BEFORE_REQUEST)
    demand = events.demand(tmp_path, [context] * len(events.lines))
    assert told(demand) == "A0 A1 F1 A2^1 A3"
    assert not np.any(demand.events["bits"] & np.uint32(at.CONTEXT_BITS | at.INTERRUPTS_HOLDER))


def test_parts_of_the_trace_make_no_difference(tmp_path: Path, monkeypatch: MonkeyPatch) -> None:
    whole = Script(BEFORE_REQUEST).demand(tmp_path).events
    monkeypatch.setattr(arrays, "ROWS_TOGETHER", 2)
    np.testing.assert_array_equal(Script(BEFORE_REQUEST).demand(tmp_path).events, whole)
