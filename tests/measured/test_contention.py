"""Contended acquisitions of zone->lock recognised in made-up events."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from pagealloc_model.measured.contention import measured_contention
from pagealloc_model.recording.proc.zoneinfo import ZoneInfoZone
from pagealloc_model.recording.trace import tracepoints as tp
from pagealloc_model.recording.trace.columns import COLUMN_TYPES, Event, Trace
from pagealloc_model.recording.zone_map import ZoneMap

ZONE_LOCK, OTHER_LOCK = 0xFFFF888000001000, 0xFFFF888000002000
REFILL, DRAIN, READER = 0xFFFFFFFF81000100, 0xFFFFFFFF81000200, 0xFFFFFFFF81000300
SLOW_PATH, SPIN_LOCK = 0xFFFFFFFF82000000, 0xFFFFFFFF82000010
KERNEL_CONTEXT = 0xFFFFFFFFFFFFFF80

Step = tuple[int, int, int, int]
"""Time, event, pfn, CPU."""
Wait = tuple[int, int, int, int, int]
"""Time, duration, lock, caller, CPU."""


def zone_map() -> ZoneMap:
    """One zone of 4096 pages."""
    zone = object.__new__(ZoneInfoZone)
    vars(zone).update(node=0, name="Normal", start_pfn=0, spanned=4096)
    return ZoneMap(zones=(zone,))


def trace_of(steps: list[Step], waits: list[Wait], flags: int = 1, nr_cpus: int = 2) -> Trace:
    """A trace of allocator events and of waits for spinlocks."""
    rows = sorted(steps)
    waits = sorted(waits)
    times = np.array([row[0] for row in rows], np.int64)
    chains = [[KERNEL_CONTEXT, SLOW_PATH, SPIN_LOCK, wait[3], 1] for wait in waits]

    def table(at_end: bool) -> dict[str, np.ndarray]:
        moments = np.array([wait[0] + wait[1] * at_end for wait in waits], np.int64)
        order = np.argsort(moments, kind="stable")
        return {
            "time_ns": moments[order],
            "cpu": np.array([wait[4] for wait in waits], np.int16)[order],
            "pid": np.array([wait[4] for wait in waits], np.int32)[order],
            "row": np.searchsorted(times, moments[order]),
            "lock_addr": np.array([wait[2] for wait in waits], np.uint64)[order],
        }

    begins = table(False) | {
        "flags": np.full(len(waits), flags, np.uint32),
        "callchain_start": np.arange(len(waits)) * 5,
        "callchain_len": np.full(len(waits), 5),
    }
    columns = {name: np.zeros(len(rows), kind) for name, kind in COLUMN_TYPES.items()}
    for place, name in enumerate(("time_ns", "event", "pfn", "cpu")):
        columns[name] = np.array([row[place] for row in rows])
    return Trace(
        **columns | {"pid": columns["cpu"]},
        tables={tp.CONTENTION_BEGIN: begins, tp.CONTENTION_END: table(True)},
        callchains=np.array(chains, np.uint64).ravel(),
        nr_cpus=nr_cpus,
    )


STEPS = [
    (1000, Event.ZONE_LOCKED, 8, 0),
    (1100, Event.ZONE_LOCKED, 9, 0),
    (3000, Event.PCPU_DRAIN, 10, 1),
    (400_000, Event.ALLOC, 11, 0),
]
WAITS = [
    (500, 400, ZONE_LOCK, REFILL, 0),
    (2000, 900, ZONE_LOCK, DRAIN, 1),
    (100_000, 50, ZONE_LOCK, READER, 0),
    (399_900, 50, OTHER_LOCK, REFILL, 0),
]


def test_a_zones_lock_is_the_one_its_events_follow() -> None:
    """Two waits are followed by events under the lock; the third is of the same lock."""
    contention = measured_contention(trace_of(STEPS, WAITS), zone_map())
    assert contention.known
    assert contention.waits["time_ns"].tolist() == [500, 100_000, 2000]
    assert contention.waits["site"].tolist() == ["refill", "other", "drain"]
    assert contention.waits["wait_ns"].tolist() == [400, 50, 900]
    assert set(contention.waits["zone"]) == {"Normal"}
    assert contention.notes[0].startswith("3 of 4 contended acquisitions")


def test_waits_that_no_event_follows_do_not_outvote_those_that_tell() -> None:
    waits: list[Wait] = [(at, 10, ZONE_LOCK, REFILL, 0) for at in (100, 1000, 2000, 3000)]
    contention = measured_contention(trace_of([(115, Event.ZONE_LOCKED, 7, 0)], waits), zone_map())
    assert contention.known
    assert len(contention.waits) == 4


def test_no_spinlock_contended_is_unknown_not_none() -> None:
    """A guest that takes spinlocks by test-and-set shows sleeping locks only (T8)."""
    contention = measured_contention(trace_of(STEPS, WAITS, flags=2), zone_map())
    assert not contention.known
    assert "test-and-set" in contention.notes[0]
    assert contention.waits.empty


def test_not_recorded_is_unknown() -> None:
    bare = replace(trace_of(STEPS, WAITS), tables={})
    assert "not recorded" in measured_contention(bare, zone_map()).notes[0]


def test_none_seen_is_none_only_where_every_wait_shows() -> None:
    """Four CPUs: a native spinlock's first waiter emits nothing. Two: what shows is all."""
    others = [wait for wait in WAITS if wait[2] == OTHER_LOCK]
    assert not measured_contention(trace_of(STEPS, others, nr_cpus=4), zone_map()).known
    both = measured_contention(trace_of(STEPS, others, nr_cpus=2), zone_map())
    assert both.known
    assert both.waits.empty
