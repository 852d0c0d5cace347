"""A secret in every place that a recording can hold one, and none in what is made anonymous."""

from __future__ import annotations

import gzip
import json
import re
import struct
from collections import defaultdict
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.ipc
import pytest

from pagealloc_model.recording.anonymise import _is_kernel_line, _renamed, anonymise_snapshot
from pagealloc_model.recording.recording import open_recording
from pagealloc_model.recording.snapshot import FOLIO_STATS_FILE, Snapshot
from pagealloc_model.recording.trace.columns import NAMED, ThreadNames
from pagealloc_model.recording.trace.perf_file import SampleType
from pagealloc_model.recording.trim import TrimResult, trim_recording
from tests import synthetic_perf_data as perf
from tests.synthetic_perf_data import ALLOC, Tracepoint

SECRET = "topsecret"
WORD = int.from_bytes(b"topsecre", "little")
HALF = int.from_bytes(b"tops", "little")
"""A program's stack holds texts eight bytes a word."""
TEXT = 0xFFFFFFFF81000000
LOCK_WITH_MORE = Tracepoint(
    "lock:contention_begin",
    801,
    (("void * lock_addr", 8, False), ("u64 my_field", 8, False), ("char my_text[16]", 16, False)),
)
OWN = Tracepoint("kmem:topsecret_event", 802, (("u64 address", 8, False),))


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    directory = tmp_path / SECRET / SECRET
    directory.mkdir(parents=True)
    chained = perf.USUAL_SAMPLE | SampleType.CALLCHAIN
    attrs = [
        perf.attr_of(ALLOC, [1], sample_type=chained),
        perf.attr_of(LOCK_WITH_MORE, [2], sample_type=chained),
        perf.attr_of(OWN, [3]),
    ]
    stack = struct.pack("<3Q", WORD, WORD + 1, HALF)
    records = [
        perf.comm_record(attrs[0], 6, SECRET),
        perf.comm_record(attrs[0], 7, f"kworker{SECRET}"),
        perf.comm_record(attrs[0], 2, "kthreadd"),
        perf.fork_record(attrs[0], 2, 8, time=0),
        perf.comm_record(attrs[0], 8, "kthread_xyz"),
        perf.record(1, struct.pack("<IIQQQ", 1, 1, TEXT, 1, 0) + SECRET.encode().ljust(16, b"\0")),
        perf.record(68, SECRET.encode().ljust(16, b"\0")),
    ]
    for index in range(20):
        time = 1000 + 10 * index
        raw = ALLOC.raw(pfn=index, order=1, gfp_flags=0x20, migratetype=1)
        chain = [2**64 - 128, TEXT + index, 2**64 - 512, WORD, HALF]
        records.append(perf.sample(attrs[0], raw, number=1, time=time, tid=6, chain=chain))
        lock = LOCK_WITH_MORE.raw(lock_addr=TEXT, my_field=WORD, my_text=SECRET.encode())
        more = perf.sample(attrs[1], lock, number=2, time=time + 1, chain=chain, tail=stack)
        records.append(more)
        records.append(perf.sample(attrs[2], OWN.raw(address=WORD), number=3, time=time + 2))
    # The thread's number is used again, by a program.
    records.append(perf.fork_record(attrs[0], 6, 8, time=1990))
    records.append(perf.comm_record(attrs[0], 8, f"re{SECRET}", time=1995, number=1))
    perf.write(directory / "perf.data", attrs, records, [ALLOC, LOCK_WITH_MORE, OWN])
    for time in (900, 1100, 2100):
        snapshot = directory / "snapshots" / f"{time:020}"
        snapshot.mkdir(parents=True)
        odd = f"nr_{SECRET} 2\npgfree_{SECRET} 3\nnr_free_pages {WORD}\n"
        (snapshot / "vmstat").write_text(f"pgfree 1\n{SECRET} 2\n# {SECRET}\n{odd}")
        pressure = f"some avg10=0.50 avg60=0.00 avg300=0.00 total=7\n{SECRET} total=1\n"
        (snapshot / "pressure_memory").write_text(pressure)
        (snapshot / "stat").write_text("cpu 1 2 300 4 5 0 0 7\ncpu0 1 2 300 4 5 0 0 7\n")
        (snapshot / "zoneinfo").write_text(f"Node 0, zone {SECRET}\n  pages free 1\n")
        (snapshot / "buddyinfo").write_bytes(b"Node 0, zone Normal 1\n\xff" + SECRET.encode())
        (snapshot / SECRET).write_text(SECRET)
        times = {"vmstat": [time, time + 1], SECRET: [time, time + 1]}
        (snapshot / "read_ns.json").write_text(json.dumps(times))
    words = np.array([WORD, 1 << 10], "<u8").tobytes()
    (directory / "kpageflags.u64.gz").write_bytes(gzip.compress(words))
    (directory / "page_owner.txt.gz").write_bytes(gzip.compress(SECRET.encode()))
    (directory / "kallsyms.gz").write_bytes(gzip.compress(f"{TEXT:x} T {SECRET}\n".encode()))
    (directory / "profile.folded").write_text(f"{SECRET};{SECRET}x;rmqueue_bulk 3\n{SECRET}\n")
    (directory / SECRET).write_text(SECRET)
    (directory / "meta.json").write_text(json.dumps(meta_of_secrets()))
    return directory


def meta_of_secrets() -> dict[str, object]:
    """meta.json with the secret in every value, every key and every depth."""
    secrets = {SECRET: SECRET, "source": SECRET, "command": [SECRET], "made_by": SECRET}
    keys = """clock cpuinfo_model meminfo package perf_version lockdown ended_by hypervisor
    interval_s cpu_nodes node_distances config topology missing_events probes cmdline"""
    nested = {"enabled": SECRET, SECRET: [SECRET, {SECRET: SECRET}]}
    return {
        **{key: [SECRET, nested] for key in keys.split()},
        SECRET: SECRET,
        "attached": nested,
        "bundle_version": 1,
        "nr_cpus": 2,
        "uname": [SECRET, SECRET, f"6.12.0-{SECRET}", f"#1 SMP {SECRET}", SECRET],
        "command": [f"/home/{SECRET}/{SECRET}", SECRET],
        "perf": [
            *(f"/opt/{SECRET}/perf", "record", f"-{SECRET}", f"--cgroup={SECRET}", "-a"),
            *(f"--{SECRET}", "-o", f"/{SECRET}:/{SECRET}", "-e", f"probe:{SECRET}", "--", SECRET),
        ],
        "sysctl": {SECRET: "1", "swappiness": SECRET, "stat_interval": "1"},
        "thp": nested,
        "profile": {
            "event": f"cpu-clock:{SECRET}",
            "sample_ns": 1.0,
            "seconds": 1.0,
            "repeats_command": True,
            SECRET: SECRET,
        },
        "provenance": {**secrets, "earlier": {**secrets, "removed": [SECRET], "earlier": secrets}},
    }


def texts_of(recording: Path) -> list[bytes]:
    """All that a recording's files hold, also what is packed in them, and their names."""
    texts = []
    for file in recording.rglob("*"):
        texts.append(str(file.relative_to(recording)).encode())
        if not file.is_file():
            continue
        content = file.read_bytes()
        texts.append(content)
        if content.startswith(b"\x1f\x8b"):
            texts.append(gzip.decompress(content))
        if file.suffix == ".arrow":
            with pa.ipc.open_file(pa.OSFile(str(file))) as opened:
                batches = [opened.get_batch(n) for n in range(opened.num_record_batches)]
            for column in (column for batch in batches for column in batch.columns):
                values = column.flatten()
                texts += [bytes(buffer) for buffer in values.buffers() if buffer is not None]
    return texts


@pytest.fixture(params=[True, False], ids=["compressed", "plain"])
def trimmed(recording: Path, request: pytest.FixtureRequest) -> TrimResult:
    place = recording.parents[1] / SECRET[::-1]
    return trim_recording(recording, place, anonymise=True, compress=request.param)


def test_no_secret_is_left(trimmed: TrimResult) -> None:
    for place in texts_of(trimmed.path):
        for secret in (SECRET.encode(), b"topsecre", b"tops", SECRET[::-1].encode()):
            assert secret not in place, place[:400]


def test_what_is_left_out_is_named_to_the_user_alone(trimmed: TrimResult) -> None:
    listed = "\n".join(trimmed.removed)
    for name in ("kmem:topsecret_event", "my_field", "my_text", "vmstat", "zoneinfo", SECRET):
        assert name in listed
    phrases = json.loads((trimmed.path / "meta.json").read_text())["provenance"]["removed"]
    assert any(phrase == "other events: 1" for phrase in phrases)


def test_what_carries_a_conclusion_is_kept(recording: Path, trimmed: TrimResult) -> None:
    before, after = open_recording(recording), open_recording(trimmed.path)
    assert after.whole_trace.pfn.tolist() == before.whole_trace.pfn.tolist()
    assert len(after.whole_trace.tables["lock:contention_begin"]["row"]) == 20
    assert after.lock_profile.samples == {"refill": 3}
    assert after.snapshots[0].vmstat.values == {"pgfree": 1}
    assert after.snapshots[0].pressure == {"some": 7}
    assert after.snapshots[0].system_s == 3.0
    assert after.meta["uname"][2] == after.whole_trace.release == "6.12.0"
    assert after.meta["sysctl"] == {"swappiness": None, "stat_interval": "1"}
    assert after.meta["perf"][1:5] == ["record", "anonymous", "--cgroup", "-a"]
    assert after.kpageflags.tolist() == [WORD & (1 << 28) - 1, 1 << 10]


@pytest.mark.parametrize("second", ["topsecret_shell", "kthreadd_topsecret", "kthreadd", None])
def test_a_name_is_not_kept_for_its_parent(tmp_path: Path, second: str | None) -> None:
    """Thread 2 may be any program in a container, and is the parent of what the kernel starts."""
    attr = perf.attr_of(ALLOC, [1])
    records = [
        *([perf.comm_record(attr, 2, second)] if second else []),
        perf.comm_record(attr, 0, SECRET),
        perf.fork_record(attr, 2, 9, time=10),
        perf.comm_record(attr, 9, f"w{SECRET}", time=11, number=1),
    ]
    for time in range(20, 30):
        records.append(perf.sample(attr, ALLOC.raw(pfn=time), number=1, time=time, tid=9))
    source = tmp_path / "source"
    source.mkdir()
    perf.write(source / "perf.data", [attr], records, [ALLOC])
    trimmed = trim_recording(source, tmp_path / "out", anonymise=True)
    names = {*open_recording(trimmed.path).whole_trace.comms.values()}
    assert names and all(re.fullmatch(r"t\d+|swapper|kthreadd", name) for name in names), names


@pytest.mark.parametrize(
    ("name", "kept"),
    [
        ("kworker/0:1H-tops", "kworker/0:1H"),
        ("kworker/u8:3-tops", "kworker/u8:3"),
        ("kworker/R-topse", "kworker/R"),
        ("kworker/u8:3", "kworker/u8:3"),
        ("jbd2/topsecret-8", "jbd2/"),
        ("kworker/topsecret", "t1"),
        ("kworker/0:1topsecret", "t1"),
        ("rcu_tasks_trace", "rcu_tasks_trace"),
        ("rcu_exp_gp_kthr", "rcu_exp_gp_kthr"),
        ("rcu_preempt", "rcu_preempt"),
        ("rcu_topsecret", "t1"),
        ("irq/24-topsecret", "t1"),
    ],
)
def test_of_a_kernel_thread_what_its_name_begins_with_is_kept(name: str, kept: str) -> None:
    names = ThreadNames.of([(0, 9, 2, ""), (0, 9, NAMED, name)])
    assert _renamed(names, ()).name.tolist() == ["", kept]


def test_a_line_of_words_of_the_kernel_is_read_once() -> None:
    """A pattern with two ways to take "zone" went through all of them."""
    assert not _is_kernel_line("zone " * 10_000 + "!")
    assert _is_kernel_line("Node 0, zone      DMA      1      0      0      2")
    assert _is_kernel_line("Free pages count per migrate type at order       0      1")


def test_no_address_stays_in_the_place_of_a_counter(tmp_path: Path) -> None:
    kept, address = "hugepages-64kB/nr_anon 12\n", 0xFFFF888000001000
    source = tmp_path / "snapshots" / "00000000000000000001"
    source.mkdir(parents=True)
    (source / FOLIO_STATS_FILE).write_text(
        f"{kept}hugepages-64kB/split {address}\nhugepages-{address}kB/split 1\n"
    )
    left_out: defaultdict[str, dict[str, None]] = defaultdict(dict)
    anonymise_snapshot(Snapshot(time_ns=1, directory=source), tmp_path / "new", left_out)
    assert (tmp_path / "new" / FOLIO_STATS_FILE).read_text() == kept
    assert left_out["state files with lines that no kernel prints"] == {FOLIO_STATS_FILE: None}
