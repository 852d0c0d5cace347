"""Cuts of recordings: what they keep, what they leave out."""

from __future__ import annotations

import gzip
import hashlib
import json
import pickle
import shutil
import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from pagealloc_model.base.errors import UsageError
from pagealloc_model.recording.recording import open_recording
from pagealloc_model.recording.snapshot import Snapshot
from pagealloc_model.recording.trace.columns import COLUMN_TYPES, Trace
from pagealloc_model.recording.trace.perf_data import read_perf_data
from pagealloc_model.recording.trace.perf_file import SampleType
from pagealloc_model.recording.trim import trim_recording
from tests import synthetic_perf_data as perf
from tests.synthetic_perf_data import ALLOC, CONTENTION

SHIPPED = ("kbuild", "xfree", "highatomic_stock", "highatomic_gate3")
SECRET = "topsecret"
FLAGS = gzip.compress(bytes(range(16)), mtime=0)
OWNER = (
    f"Page allocated via order 0, mask 0x0(), pid 6, tgid 6 ({SECRET}), ts 3 ns\n"
    "PFN 7 type Movable Block 0 type Movable Flags 0x0()\n\n"
)
KERNEL = 0xFF11000000000000
TEXT = 0xFFFFFFFF81000000


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    """A recording of 100 allocations, 10 ns apart from 1000 ns on, with everything there may be."""
    directory = tmp_path / "source"
    directory.mkdir()
    chained = perf.USUAL_SAMPLE | SampleType.CALLCHAIN
    attrs = [perf.attr_of(ALLOC, [1]), perf.attr_of(CONTENTION, [2], sample_type=chained)]
    records = [
        perf.comm_record(attrs[0], 5, "make"),
        perf.comm_record(attrs[0], 6, SECRET),
        perf.comm_record(attrs[0], 9, SECRET),
    ]
    for index in range(100):
        time = 1000 + 10 * index
        raw = ALLOC.raw(pfn=index, order=1, gfp_flags=0x20, migratetype=1)
        records.append(perf.sample(attrs[0], raw, number=1, time=time, cpu=index % 2, tid=6))
        if index % 10 == 0:
            lock = CONTENTION.raw(lock_addr=KERNEL + 100 * (index % 3), flags=1)
            chain = [2**64 - 128, TEXT + index, TEXT + 7]
            records.append(perf.sample(attrs[1], lock, number=2, time=time + 1, chain=chain))
    records.append(perf.comm_record(attrs[0], 6, "late", time=1995, number=1))
    records.append(perf.record(13, struct.pack("<Q", 7) + perf.trailer(attrs[0], number=1)))
    perf.write(directory / "perf.data", attrs, records, [ALLOC, CONTENTION], compress=True)
    for time in (900, 950, 1200, 1600, 1700, 2100, 2200):
        snapshot = directory / "snapshots" / f"{time:020}"
        snapshot.mkdir(parents=True)
        (snapshot / "vmstat").write_text("pgfree 1\n")
        (snapshot / "read_ns.json").write_text(f'{{"vmstat": [{time + 2}, {time + 5}]}}')
    (directory / "kpageflags.u64.gz").write_bytes(FLAGS)
    (directory / "page_owner.txt.gz").write_bytes(gzip.compress(OWNER.encode()))
    meta = {
        "bundle_version": 1,
        "uname": ["Linux", SECRET, "6.12.0", "#1", "x86_64"],
        "nr_cpus": 2,
        "start_ns": 990,
        "end_ns": 2050,
    }
    (directory / "meta.json").write_text(json.dumps(meta))
    return directory


def snapshot_times(recording: Path) -> list[int]:
    return sorted(int(entry.name) for entry in (recording / "snapshots").iterdir())


def cut(recording: Path, **options: object) -> tuple[Path, Trace, dict[str, object]]:
    """Trim into a new directory; its path, events and meta.json."""
    destination = recording.parent / "cut"
    trim_recording(recording, destination, **options)
    meta = json.loads((destination / "meta.json").read_text())
    return destination, open_recording(destination).whole_trace, meta


@pytest.mark.parametrize("compress", [True, False])
def test_a_window_from_the_start(recording: Path, compress: bool) -> None:
    path, trace, meta = cut(recording, seconds=405e-9, compress=compress)
    assert trace.pfn.tolist() == list(range(41))
    assert len(trace.tables["lock:contention_begin"]["row"]) == 5
    assert trace.comms[6] == SECRET
    assert snapshot_times(path) == [950, 1200, 1600]
    assert open_recording(path).snapshots[1].read_ns == {"vmstat": (1202, 1205)}
    assert gzip.decompress((path / "kpageflags.u64.gz").read_bytes()) == gzip.decompress(FLAGS)
    assert (path / "page_owner.txt.gz").exists()
    assert (meta["start_ns"], meta["end_ns"]) == (990, 1405)
    provenance = meta["provenance"]
    digest = hashlib.sha256((recording / "perf.data").read_bytes()).hexdigest()
    assert provenance["source"] == "source"
    assert provenance["source_sha256"] == digest
    assert provenance["window_ns"] == [1000, 1405]
    assert provenance["page_allocator_events"] == 41
    assert provenance["anonymised"] is False
    assert provenance["removed"] == ["snapshots outside the window"]
    assert "seconds=4.05e-07" in provenance["command"]
    assert open_recording(path).missing is not None


def test_kernel_symbols_go_along_unless_anonymised(recording: Path) -> None:
    symbols = gzip.compress(b"ffffffff81000000 T _text\n")
    (recording / "kallsyms.gz").write_bytes(symbols)
    path, _, _ = cut(recording, start_s=600e-9, seconds=100e-9)
    assert open_recording(path).kernel_symbols is not None
    shutil.rmtree(path)
    path, _, meta = cut(recording, anonymise=True)
    assert not (path / "kallsyms.gz").exists()
    assert any("kallsyms" in phrase for phrase in meta["provenance"]["removed"])


@pytest.mark.parametrize(
    "name", ["page_owner.txt.gz", "kpageflags.u64.gz", "kallsyms.gz", "profile.folded"]
)
def test_bytes_that_are_not_what_their_name_says_are_left_out(recording: Path, name: str) -> None:
    (recording / name).write_bytes(pickle.dumps(SECRET))
    path, _, meta = cut(recording)
    assert not (path / name).exists()
    assert f"{name}, which cannot be read" in meta["provenance"]["removed"]


def test_the_profile_of_a_whole_recording_is_kept(recording: Path) -> None:
    meta = json.loads((recording / "meta.json").read_text())
    meta["profile"] = {"event": "cycles", "sample_ns": 1, "seconds": 1, "repeats_command": False}
    (recording / "meta.json").write_text(json.dumps(meta))
    (recording / "profile.folded").write_text("do_idle;rmqueue_bulk 3\n")
    path, _, _ = cut(recording)
    profile = open_recording(path).lock_profile
    assert profile is not None
    assert profile.samples == {"refill": 3}


def test_a_window_from_later_on(recording: Path) -> None:
    path, trace, meta = cut(recording, start_s=600e-9, seconds=100e-9)
    assert trace.pfn.tolist() == list(range(60, 70))
    assert trace.comms[6] == SECRET
    assert snapshot_times(path) == [1600, 1700]
    assert not (path / "kpageflags.u64.gz").exists()
    assert not (path / "page_owner.txt.gz").exists()
    assert (meta["start_ns"], meta["end_ns"]) == (1600, 1700)
    assert any("kpageflags" in phrase for phrase in meta["provenance"]["removed"])
    assert trace.losses.total == 0


def test_a_number_of_events(recording: Path) -> None:
    _, trace, meta = cut(recording, start_s=100e-9, events=7)
    assert trace.pfn.tolist() == list(range(10, 17))
    assert meta["provenance"]["page_allocator_events"] == 7


def test_the_whole_recording(recording: Path) -> None:
    path, trace, meta = cut(recording)
    assert len(trace) == 100
    assert trace.losses.total == 7
    assert trace.comms[6] == "late"
    assert (meta["start_ns"], meta["end_ns"]) == (990, 2050)
    assert snapshot_times(path) == [950, 1200, 1600, 1700, 2100]
    assert meta["provenance"]["window_reaches_recording_end"] is True


def test_a_cut_of_a_cut_keeps_both_origins(recording: Path) -> None:
    first, _, _ = cut(recording, seconds=500e-9)
    trim_recording(first, recording.parent / "again", events=3)
    meta = json.loads((recording.parent / "again" / "meta.json").read_text())
    assert meta["provenance"]["source"] == "cut"
    assert meta["provenance"]["earlier"]["source"] == "source"


def test_a_bare_perf_data(recording: Path) -> None:
    path, trace, meta = cut(recording / "perf.data", events=5)
    assert len(trace) == 5
    assert set(meta) == {"bundle_version", "provenance"}
    assert not (path / "snapshots").exists()


def test_anonymised_addresses_keep_order_and_equality(recording: Path) -> None:
    original = read_perf_data(recording / "perf.data")
    _, trace, _ = cut(recording, anonymise=True)
    name, field = "lock:contention_begin", "lock_addr"
    before, after = original.tables[name][field], trace.tables[name][field]
    assert not set(before.tolist()) & set(after.tolist())
    assert np.array_equal(
        np.unique(before, return_inverse=True)[1], np.unique(after, return_inverse=True)[1]
    )
    assert trace.tables[name]["flags"].tolist() == original.tables[name]["flags"].tolist()
    assert trace.comms == {0: "swapper", 5: "make", 6: "t2", 9: "t1"}
    chains = trace.callchains.reshape(-1, 3)
    assert set(chains[:, 0].tolist()) == {2**64 - 128}
    assert len(set(chains[:, 1].tolist())) == 10
    assert len(set(chains[:, 2].tolist())) == 1
    for name in COLUMN_TYPES:
        assert np.array_equal(getattr(trace, name), getattr(original, name)), name


def test_functions_the_user_keeps(recording: Path) -> None:
    symbols = f"{TEXT:x} T outer\n{TEXT + 50:x} t inner\n{TEXT + 90:x} t unseen\n"
    (recording / "kallsyms.gz").write_bytes(gzip.compress(symbols.encode()))
    path, trace, _ = cut(recording, anonymise=True, seconds=700e-9, keep_functions=True)
    functions = open_recording(path).kernel_symbols
    assert functions is not None
    assert {*functions.names} == {"outer", "inner"}
    chains = trace.callchains.reshape(-1, 3)
    names = [functions.name_at(address) for address in chains[:, 1].tolist()]
    assert names == ["outer"] * 5 + ["inner"] * (len(names) - 5)
    assert functions.addresses.tolist() == sorted(set(chains[:, 1:].ravel().tolist()))


def test_names_the_user_keeps(recording: Path) -> None:
    _, trace, _ = cut(recording, anonymise=True, events=5, keep_names=[SECRET])
    assert trace.comms[9] == SECRET


@pytest.mark.parametrize(
    "options",
    [
        {"seconds": 0},
        {"seconds": float("nan")},
        {"start_s": -1},
        {"events": 0},
        {"seconds": 1, "events": 1},
        {"start_s": 10},
    ],
    ids=str,
)
def test_impossible_windows(recording: Path, options: dict[str, float]) -> None:
    destination = recording.parent / "cut"
    with pytest.raises(UsageError):
        trim_recording(recording, destination, **options)
    assert [entry.name for entry in recording.parent.iterdir()] == ["source"]


def test_nothing_is_overwritten(recording: Path) -> None:
    with pytest.raises(UsageError, match="exists"):
        trim_recording(recording, recording)


def test_a_failed_cut_leaves_nothing(recording: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OSError(28, "disk full")

    monkeypatch.setattr(Snapshot, "copy_to", fail)
    with pytest.raises(UsageError, match="disk full"):
        trim_recording(recording, recording.parent / "cut")
    assert [entry.name for entry in recording.parent.iterdir()] == ["source"]


@pytest.mark.parametrize("name", (*SHIPPED, "build_stacks"))
def test_shipped_recordings_are_cuts_from_the_start(
    name: str, shipped: Callable[[str], Path]
) -> None:
    recording = open_recording(shipped(name))
    provenance = recording.meta["provenance"]
    assert provenance["anonymised"] and provenance["window_starts_at_recording_start"]
    assert len(recording.whole_trace) == provenance["page_allocator_events"]
    assert recording.trace.losses.total == 0
    assert recording.kpageflags is not None
    first, last = recording.whole_trace.span_ns
    times = [snapshot.time_ns for snapshot in recording.snapshots]
    assert times[0] <= first
    assert times[-1] >= last
    assert recording.missing == ()


@pytest.mark.long
@pytest.mark.perf
@pytest.mark.parametrize("name", SHIPPED)
def test_shipped_recordings_equal_their_source(
    name: str, shipped: Callable[[str], Path], full_recording: Callable[[str], Path]
) -> None:
    """Events of the shipped cut are those of the full recording, addresses apart."""
    cut_trace = read_perf_data(shipped(name) / "perf.data")
    full = read_perf_data(full_recording(name) / "perf.data")
    for column in COLUMN_TYPES:
        assert np.array_equal(
            getattr(cut_trace, column), getattr(full, column)[: len(cut_trace)]
        ), column
