"""Frees of slab pages that recorded reclaim caused (T10.16)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast

import numpy as np
import pytest

from pagealloc_model.predicted.demand.elastic import RCU_NS, ElasticRows, slab_frees, slab_survivors
from pagealloc_model.recording.snapshot import Snapshot
from pagealloc_model.recording.trace.columns import Trace
from tests.small_recordings import TimedEvents

PAGE = 0x1000
SLAB = "GFP_KERNEL|__GFP_COMP|__GFP_RECLAIMABLE"
TASK, KSWAPD, SOFTIRQ, RCU = range(4)


def recorded(tmp_path: Path, freers: list[int], late_ns: int = 0) -> Trace:
    """Slabs, each freed by another, after kswapd has freed a page; `late_ns` after that."""
    events = TimedEvents()
    for number in range(len(freers)):
        events.on(0, pid=7).alloc(PAGE + number, gfp=SLAB)
    events.alloc(PAGE - 1)
    events.on(1, pid=40, comm="kswapd0").free(PAGE - 1)
    for number, freer in enumerate(freers):
        pid, comm = {KSWAPD: (40, "kswapd0"), RCU: (12, "rcu_preempt")}.get(freer, (7, "make"))
        events.on(1, pid=pid, comm=comm).free(PAGE + number)
    trace = events.trace(tmp_path)
    in_interrupt = np.zeros(len(trace), np.int8)
    in_interrupt[len(freers) + 2 :] = np.array(freers) == SOFTIRQ
    time_ns = trace.time_ns.copy()
    time_ns[len(freers) + 2 :] += late_ns
    return replace(trace, in_interrupt=in_interrupt, time_ns=time_ns)


def by_reclaim(trace: Trace, slabs: int) -> list[bool]:
    """Whether reclaim freed each slab."""
    rows = np.arange(len(trace) - slabs, len(trace))
    return cast(list[bool], ElasticRows(trace).freed_by_reclaim(rows).tolist())


def test_slabs_are_known_by_their_requests(tmp_path: Path) -> None:
    trace = recorded(tmp_path, [TASK, SOFTIRQ])
    assert slab_frees(trace).tolist() == [4, 5]


def test_what_rcu_frees_soon_after_reclaim_is_reclaims(tmp_path: Path) -> None:
    freers = [TASK, KSWAPD, SOFTIRQ, RCU]
    assert by_reclaim(recorded(tmp_path, freers), 4) == [False, True, True, True]


def test_what_rcu_frees_long_after_reclaim_is_not(tmp_path: Path) -> None:
    assert by_reclaim(recorded(tmp_path, [SOFTIRQ, RCU], RCU_NS), 2) == [False, False]


def test_nothing_is_reclaims_where_there_was_none(tmp_path: Path) -> None:
    events = TimedEvents()
    events.on(0, pid=7).alloc(PAGE, gfp=SLAB)
    events.on(0, pid=12, comm="rcu_preempt").free(PAGE)
    assert by_reclaim(events.trace(tmp_path), 1) == [False]


@dataclass(frozen=True)
class _Counted:
    """What is read of a snapshot."""

    time_ns: int
    vmstat: dict[str, int] | None


@pytest.mark.parametrize(
    ("scanned", "expected"),
    [(0, None), (24, 0), (32, 250), (2400, 990), (3, 0)],
)
def test_survivors_are_slabs_whose_objects_were_scanned_in_vain(
    tmp_path: Path, scanned: int, expected: int | None
) -> None:
    """Three slabs of eight objects went."""
    trace = recorded(tmp_path, [KSWAPD, SOFTIRQ, RCU, TASK])
    ends = (0, None), (1, {"slabs_scanned": 100}), (1 << 60, {"slabs_scanned": 100 + scanned})
    snapshots = [cast(Snapshot, _Counted(*each)) for each in ends]
    assert slab_survivors(trace, snapshots, 8) == expected
