"""Refills, holds and waits where the kernel announces them itself, in hand-made perf.data (T8)."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from pagealloc_model.measured.contention import (
    announced_contention,
    announced_holds,
    contended_releases,
    measured_contention,
)
from pagealloc_model.measured.measured import measure
from pagealloc_model.measured.stream import allocator_stream
from pagealloc_model.measured.transactions import RunRules, Transactions, inferred_transactions
from pagealloc_model.recording.importing import import_recording
from pagealloc_model.recording.proc.zoneinfo import parse_zoneinfo
from pagealloc_model.recording.recording import open_recording
from pagealloc_model.recording.trace.columns import Trace
from pagealloc_model.recording.trace.perf_data import read_perf_data
from pagealloc_model.recording.trim import trim_recording
from pagealloc_model.recording.zone_map import ZoneMap
from tests import synthetic_perf_data as perf
from tests.measured.test_transactions import Row, rows
from tests.recording.proc.samples_of import sample as state_file
from tests.synthetic_perf_data import Tracepoint

ZONES = ZoneMap.of(parse_zoneinfo(state_file("6.1", "zoneinfo")))
DMA32, NORMAL = 0x10000, 0x120000
REFILL, DRAIN, FREE = 0xFFFFFFFF81000100, 0xFFFFFFFF81000200, 0xFFFFFFFF81000300
LOCK = 0xFFFF888000001000
POINTS = (
    *(perf.ALLOC, perf.FREE, perf.REMOVAL, perf.DRAIN, perf.REFILL),
    *(perf.ZONE_CONTENDED, perf.ZONE_LOCKED, perf.ZONE_UNLOCK),
    *(perf.CONTENDED_RELEASE, perf.CONTENTION),
)


class Events:
    """Events 10 ns apart, on CPU 0 until told otherwise."""

    def __init__(self, points: tuple[Tracepoint, ...] = POINTS) -> None:
        self.points = points
        self.attrs = {
            point.name: perf.attr_of(point, [number]) for number, point in enumerate(points, 1)
        }
        self.records: list[bytes] = []
        self.cpu, self.now = 0, 1000

    def add(self, point: Tracepoint, **values: int | bytes) -> int:
        """Add an event, unless it is not recorded; returns its time."""
        self.now += 10
        if point.name in self.attrs:
            attr = self.attrs[point.name]
            raw = point.raw(pid=70 + self.cpu, **values)
            where = {"number": attr.ids[0], "time": self.now, "cpu": self.cpu, "tid": 70 + self.cpu}
            self.records.append(perf.sample(attr, raw, **where))
        return self.now

    def locked(self, caller: int, wait_ns: int = 0, zone: bytes = b"DMA32") -> int:
        known = {"node_id": 0, "name": zone, "count": 1, "caller": caller}
        if wait_ns:
            self.add(perf.ZONE_CONTENDED, **known)
            self.now += wait_ns - 10
        waited = {"contended": bool(wait_ns), "wait_ns": wait_ns}
        return self.add(perf.ZONE_LOCKED, **known, **waited)

    def unlock(self, caller: int) -> int:
        return self.add(perf.ZONE_UNLOCK, node_id=0, name=b"DMA32", count=1, caller=caller)

    def remove(self, pfn: int, *, refill: bool, order: int = 0) -> None:
        self.add(perf.REMOVAL, pfn=pfn, order=order, migratetype=1, percpu_refill=1)
        if refill:
            self.add(perf.REFILL, pfn=pfn, order=order, migratetype=1)

    def alloc(self, pfn: int) -> None:
        self.add(perf.ALLOC, pfn=pfn, order=0, gfp_flags=0, migratetype=1)

    def free(self, pfn: int, order: int = 0) -> None:
        self.add(perf.FREE, pfn=pfn, order=order)

    def drain(self, *pfns: int) -> None:
        for pfn in pfns:
            self.add(perf.DRAIN, pfn=pfn, order=0, migratetype=1)

    def file(self, directory: Path) -> Path:
        attrs = list(self.attrs.values())
        return perf.write(directory / "perf.data", attrs, self.records, self.points)

    def trace(self, directory: Path) -> Trace:
        return read_perf_data(self.file(directory))


def without(*absent: Tracepoint) -> tuple[Tracepoint, ...]:
    return tuple(point for point in POINTS if point not in absent)


def inferred(trace: Trace) -> list[Row]:
    stream = allocator_stream(trace, with_probes=False, with_lock_events=True)
    return rows(inferred_transactions(stream, ZONES, trace.comms, RunRules()))


def announced(trace: Trace) -> tuple[Transactions, pd.DataFrame, tuple[str, ...]]:
    stream = allocator_stream(trace, with_probes=False, with_lock_events=True)
    return announced_holds(trace, stream, ZONES)


def refill_and_direct(events: Events) -> Events:
    """A refill of one object, used at once, and a direct allocation that no refill brought."""
    events.remove(DMA32, refill=True)
    events.alloc(DMA32)
    events.remove(DMA32 + 1, refill=False)
    events.remove(DMA32 + 2, refill=False)
    events.remove(DMA32 + 3, refill=True)
    events.remove(DMA32 + 4, refill=True)
    return events


@pytest.mark.parametrize(
    ("absent", "expected"),
    [
        ((), "refill 1, buddy_alloc 1, buddy_alloc 1, refill 2"),
        ((perf.REFILL,), "buddy_alloc 1, refill 4"),  # wrongly: this is inferred
    ],
)
def test_a_refill_is_what_the_kernel_says_it_is(
    tmp_path: Path, absent: tuple[Tracepoint, ...], expected: str
) -> None:
    trace = refill_and_direct(Events(without(*absent))).trace(tmp_path)
    transactions = inferred(trace)
    assert ", ".join(f"{site} {objects}" for site, _, _, objects, _ in transactions) == expected


def four_holds(events: Events) -> dict[str, int]:
    """Two refills in a row, one that finds nothing, a drain and a direct free; their times."""
    times = {}
    times["first"] = events.locked(REFILL)
    events.remove(DMA32, refill=True)
    events.remove(DMA32 + 1, refill=True)
    events.unlock(REFILL)
    times["second"] = events.locked(REFILL, wait_ns=500)
    events.remove(DMA32 + 2, refill=True)
    times["second ends"] = events.unlock(REFILL)
    times["empty"] = events.locked(REFILL, zone=b"Normal")
    events.unlock(REFILL)
    events.remove(DMA32 + 9, refill=False)
    events.cpu = 1
    events.free(DMA32 + 4)
    times["drain"] = events.locked(DRAIN)
    events.drain(DMA32 + 3, DMA32 + 4)
    events.unlock(DRAIN)
    events.free(DMA32 + 16, order=4)
    times["free"] = events.locked(FREE)
    events.unlock(FREE)
    return times


HOLDS = [
    ("refill", "", 0, 2, 2),
    ("refill", "", 0, 1, 1),
    ("empty_refill", "", 0, 0, 0),
    ("buddy_alloc", "", 0, 1, 1),
    ("drain", "commit", 1, 2, 2),
    ("direct_free", "", 1, 1, 16),
]


@pytest.mark.parametrize("absent", [(), (perf.REFILL,), (perf.ZONE_CONTENDED,)])
def test_holds_are_those_the_lock_tracepoints_bound(
    tmp_path: Path, absent: tuple[Tracepoint, ...]
) -> None:
    events = Events(without(*absent))
    times = four_holds(events)
    tables = announced(events.trace(tmp_path))
    assert rows(tables[0]) == HOLDS
    assert tables[1]["zone"].tolist() == ["DMA32", "DMA32", "Normal", "DMA32", "DMA32"]
    assert tables[1]["time_ns"].tolist() == [
        times[name] for name in ("first", "second", "empty", "drain", "free")
    ]
    assert tables[1]["hold_ns"].tolist() == [50, 30, 10, 30, 10]
    assert tables[1]["wait_ns"].tolist() == [0, 500, 0, 0, 0]


def test_fields_that_the_kernel_lacks_are_done_without(tmp_path: Path) -> None:
    """Of a lock event's fields none is sure to be there: the list has seen several formats."""
    bare = [
        Tracepoint(point.name, point.number, (("int count", 4, True),))
        for point in (perf.ZONE_CONTENDED, perf.ZONE_LOCKED, perf.ZONE_UNLOCK)
    ]
    known = without(perf.ZONE_CONTENDED, perf.ZONE_LOCKED, perf.ZONE_UNLOCK)
    events = Events((*known, *bare))
    events.add(bare[0], count=1)
    events.now += 90
    events.add(bare[1], count=1)
    events.remove(NORMAL, refill=True)
    events.add(bare[2], count=1)
    tables = announced(events.trace(tmp_path))
    assert rows(tables[0]) == [("refill", "", 0, 1, 1)]
    assert tables[1][["zone", "hold_ns", "wait_ns"]].values.tolist() == [["Normal", 30, 100]]


def test_what_a_hold_without_a_release_moved_is_unknown(tmp_path: Path) -> None:
    events = Events()
    events.locked(REFILL)
    events.remove(DMA32, refill=True)
    events.unlock(REFILL)
    events.locked(REFILL)
    events.remove(DMA32 + 1, refill=True)
    tables = announced(events.trace(tmp_path))
    assert rows(tables[0]) == [("refill", "", 0, 1, 1), ("refill", "", 0, -1, -1)]
    assert tables[1]["hold_ns"].isna().tolist() == [False, True]
    assert "1 hold has no recorded kmem:mm_zone_lock_unlock" in tables[2][1]


def test_announced_waits_are_the_contention(tmp_path: Path) -> None:
    events = Events()
    times = four_holds(events)
    trace = events.trace(tmp_path)
    contention = announced_contention(announced(trace)[1], measured_contention(trace, ZONES))
    assert contention.known
    assert contention.waits.values.tolist() == [
        [times["second"] - 500, 0, "DMA32", 0, "refill", 500]
    ]


def recorded(events: Events, directory: Path) -> Path:
    """A recording directory with one snapshot."""
    directory.mkdir(exist_ok=True)
    events.file(directory)
    snapshot = directory / "snapshots" / f"{1:020d}"
    snapshot.mkdir(parents=True)
    (snapshot / "zoneinfo").write_text(state_file("6.1", "zoneinfo"))
    return directory


def test_measured_tables_have_the_times_of_holds(tmp_path: Path) -> None:
    events = Events()
    four_holds(events)
    measured = measure(open_recording(recorded(events, tmp_path)))
    assert measured.boundaries == "lock tracepoints"
    lock = measured.lock.set_index(["zone", "site"])
    refills = lock.loc[("DMA32", "refill")]
    assert (refills.acquisitions, refills.hold_ns, refills.max_hold_ns, refills.wait_ns) == (
        *(2, 80, 50, 500),
    )
    assert lock.loc[("DMA32", "direct_free")].hold_ns == 10
    assert pd.isna(lock.loc[("DMA32", "buddy_alloc")].hold_ns)


@pytest.mark.parametrize("from_store", [False, True])
def test_cuts_and_stores_say_the_same_of_holds(tmp_path: Path, from_store: bool) -> None:
    """Addresses and names change, but not which are equal, nor the zones."""
    events = Events()
    events.alloc(NORMAL)
    four_holds(events)
    events.alloc(NORMAL + 1)
    source = recorded(events, tmp_path / "source")
    original = announced(open_recording(source).trace)
    if from_store:
        source = import_recording(source, tmp_path / "store").path
    trim_recording(source, tmp_path / "cut", anonymise=True)
    cut = open_recording(tmp_path / "cut").trace
    assert REFILL not in cut.tables["kmem:mm_zone_locked"]["caller"]
    assert announced(cut)[1].equals(original[1])
    assert rows(announced(cut)[0]) == HOLDS


def test_measured_says_whose_word_its_refills_are(tmp_path: Path) -> None:
    events = refill_and_direct(Events(without(perf.ZONE_LOCKED)))
    measured = measure(open_recording(recorded(events, tmp_path)))
    assert measured.boundaries == "refill events"
    assert measured.lock.hold_ns.isna().all() and measured.holds.empty
    assert any("mm_page_pcpu_refill's word" in note for note in measured.notes)


def test_who_made_others_wait(tmp_path: Path) -> None:
    """Of a zone's lock each contended release is its holder's; of other locks none is shown."""
    end = Tracepoint(
        "lock:contention_end", 520, (("void * lock_addr", 8, False), ("int ret", 4, True))
    )
    events = Events((*POINTS, end))
    events.add(perf.CONTENTION, lock_addr=LOCK, flags=1)
    events.add(perf.CONTENTION, lock_addr=LOCK, flags=1)
    events.cpu = 1
    events.drain(DMA32, DMA32 + 1)
    first = events.add(perf.CONTENDED_RELEASE, lock_addr=LOCK)
    events.cpu = 0
    events.add(end, lock_addr=LOCK, ret=0)
    events.remove(DMA32 + 2, refill=False)
    second = events.add(perf.CONTENDED_RELEASE, lock_addr=LOCK)
    events.now += 10**9
    events.add(perf.CONTENDED_RELEASE, lock_addr=LOCK + 64)
    waits = contended_releases(events.trace(tmp_path), ZONES)
    assert waits.values.tolist() == [
        [first, 0, "DMA32", 1, "drain", 2],
        [second, 0, "DMA32", 0, "refill", 1],
    ]


def test_waiters_are_unknown_without_the_waits(tmp_path: Path) -> None:
    events = Events(without(perf.CONTENTION))
    events.drain(DMA32)
    events.add(perf.CONTENDED_RELEASE, lock_addr=LOCK)
    waits = contended_releases(events.trace(tmp_path), ZONES)
    assert waits["site"].tolist() == ["drain"] and waits["waiting"].isna().all()
    assert waits["cpu"].dtype == np.int64
