"""Recordings that perf reads itself, event for event as the package's own reader does."""

from __future__ import annotations

import gzip
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from pagealloc_model.base.errors import RecordingError, UsageError
from pagealloc_model.recording.record import perf_python as embedded
from pagealloc_model.recording.record.perf_python import read_with_perf_script, runs_scripts
from pagealloc_model.recording.trace.columns import COLUMN_TYPES
from pagealloc_model.recording.trace.perf_data import read_perf_data
from pagealloc_model.recording.trace.side_tables import CHAIN_COLUMNS
from tests import synthetic_perf_data as perf
from tests.synthetic_perf_data import (
    ALLOC,
    CONTENTION,
    FREE,
    MIGRATETYPE,
    ORDER,
    PFN,
    Tracepoint,
)

pytestmark = pytest.mark.perf

PAGE = "(((struct page *)vmemmap_base) + (REC->pfn)), REC->pfn, REC->order"
PRINTED_FREE = replace(FREE, print_fmt=f'"page=%p pfn=0x%lx order=%d", {PAGE}')
PRINTED_DRAIN = Tracepoint(
    "kmem:mm_page_pcpu_drain",
    504,
    (PFN, ORDER, MIGRATETYPE),
    print_fmt=f'"page=%p pfn=0x%lx order=%d migratetype=%d", {PAGE}, REC->migratetype',
)
"""The texts of the last two begin with a page, as the kernel's do."""


@pytest.fixture(scope="module", autouse=True)
def perf_with_python(perf_command: str) -> None:
    """Skips where perf has no Python inside."""
    if not runs_scripts():
        pytest.skip(f"{perf_command} was built without Python")


def assert_agrees(path: Path) -> None:
    native, other = read_perf_data(path), read_with_perf_script(path)
    for name in set(COLUMN_TYPES) - {"in_interrupt"}:
        np.testing.assert_array_equal(getattr(other, name), getattr(native, name), err_msg=name)
    assert other.tables.keys() == native.tables.keys()
    for name, table in native.tables.items():
        for column in set(table) - set(CHAIN_COLUMNS):
            np.testing.assert_array_equal(other.tables[name][column], table[column], err_msg=column)
    threads = set(native.pid.tolist())
    assert {tid: native.comms[tid] for tid in threads & native.comms.keys()} == {
        tid: name for tid, name in other.comms.items() if tid in threads
    }
    for name in ("gfp_bits", "release", "nr_cpus", "clock"):
        assert getattr(other, name) == getattr(native, name)


def test_a_recording_just_made(recorded: Path) -> None:
    assert_agrees(recorded)


def test_a_recording_just_made_through_a_pipe(piped: Path) -> None:
    assert_agrees(piped)


def test_losses(lossy: Path) -> None:
    native, other = read_perf_data(lossy).losses, read_with_perf_script(lossy).losses
    assert other.total == native.total
    placed = other.cpu >= 0
    assert set(other.end_ns[placed].tolist()) <= set(native.end_ns.tolist())


def test_a_recording_that_begins_with_frees(tmp_path: Path) -> None:
    """Perf's Python crashes on those, so the first events are read as text."""
    points = [perf.PRINTED_ALLOC, PRINTED_FREE, PRINTED_DRAIN]
    attrs = [perf.attr_of(point, [number]) for number, point in enumerate(points, 1)]
    drain = points[2].raw(pfn=3, order=2, migratetype=1)
    records = [
        perf.comm_record(attrs[0], 77, "make", number=1),
        perf.sample(attrs[1], FREE.raw(pfn=8, order=3), number=2, time=1_000_000_007, tid=77),
        perf.sample(attrs[2], drain, number=3, time=1_000_000_008, tid=77),
        perf.sample(
            attrs[0], ALLOC.raw(pfn=9, gfp_flags=0x20), number=1, time=1_000_000_008, tid=77
        ),
        perf.sample(attrs[0], ALLOC.raw(pfn=2**64 - 1), number=1, time=1_000_000_009, tid=77),
        perf.sample(attrs[1], FREE.raw(pfn=9), number=2, time=1_000_000_010, tid=77),
    ]
    assert_agrees(perf.write(tmp_path / "perf.data", attrs, records, points))


def one_sample(path: Path, attrs: list[perf.EventAttr], event: perf.Tracepoint) -> Path:
    """A file with one sample of its first event."""
    records = [perf.sample(attrs[0], event.raw(pfn=1), number=1, time=1_000_000_000)]
    return perf.write(path, attrs, records, (ALLOC, PRINTED_FREE, CONTENTION))


def test_without_allocations_a_recording_cannot_be_used(tmp_path: Path) -> None:
    attrs = [perf.attr_of(FREE, [1]), perf.attr_of(CONTENTION, [2])]
    path = one_sample(tmp_path / "perf.data", attrs, FREE)
    with pytest.raises(RecordingError, match="no kmem:mm_page_alloc"):
        read_with_perf_script(path)


def test_sampled_events_are_known_as_such(tmp_path: Path) -> None:
    path = one_sample(tmp_path / "perf.data", [perf.attr_of(ALLOC, [1], period=100)], ALLOC)
    assert read_with_perf_script(path).sampled == {"kmem:mm_page_alloc": 100}


def test_files_that_perf_cannot_read(tmp_path: Path) -> None:
    path = tmp_path / "perf.data"
    path.write_bytes(b"no recording at all, but long enough" * 9)
    with pytest.raises(RecordingError, match="perf cannot read it"):
        read_with_perf_script(path)
    path.write_bytes(gzip.compress(b"PERFILE2"))
    with pytest.raises(RecordingError, match="is packed"):
        read_with_perf_script(path)


def test_a_perf_without_python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedded, "runs_scripts", lambda: False)
    with pytest.raises(UsageError, match="was built without Python"):
        read_with_perf_script(tmp_path / "perf.data")
