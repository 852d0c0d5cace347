"""Damaged recordings: an error of ours, or what is certain of the events; nothing worse."""

from __future__ import annotations

import gzip
import os
import random
import re
import struct
import subprocess
import sys
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest
import zstandard

from pagealloc_model.base.errors import RecordingError
from pagealloc_model.recording.trace.perf_data import read_perf_data
from pagealloc_model.recording.trace.trace_text import read_perf_script
from tests import synthetic_perf_data as perf
from tests.fuzz.kinds import KINDS, in_processes
from tests.fuzz.mutation import cut, damaged
from tests.fuzz.run import INTERPRETED, bounds_checked, fuzz, fuzz_both
from tests.fuzz.worker import check_consistent
from tests.synthetic_perf_data import ALLOC

SECONDS = float(os.environ.get("PAGEALLOC_FUZZ_SECONDS", "90"))
LINE = "a 1 [000] 1.000001: kmem:mm_page_free: page=0x5 pfn=0x5 order=0"


def test_two_hundred_damaged_recordings(tmp_path: Path) -> None:
    finished = fuzz(tmp_path, {}, inputs=200, guided=False)
    finished.check()
    assert finished.report["inputs"] == 200 and finished.report["outcomes"]["a trace"] > 10


@pytest.mark.long
def test_damaged_recordings_for_minutes(tmp_path: Path) -> None:
    """PAGEALLOC_FUZZ_SECONDS says for how long; `python -m tests.fuzz.run` does the same."""
    interpreted, compiled = fuzz_both(tmp_path, SECONDS, seed=1)
    interpreted.check()
    compiled.check()
    assert interpreted.report["corpus"] > 20 and compiled.report["inputs"] > 100


@pytest.mark.long
@pytest.mark.parametrize("name", ["xfree", "highatomic_gate3"])
def test_a_hundred_copies_of_a_real_recording(
    shipped: Callable[[str], Path], tmp_path: Path, name: str
) -> None:
    good = (shipped(name) / "perf.data").read_bytes()
    dice = random.Random(name)
    path = tmp_path / "perf.data"
    for number in range(50):
        is_cut = number % 2 == 0
        path.write_bytes(cut(good, dice) if is_cut else damaged(good, [good], dice))
        try:
            trace = read_perf_data(path)
        except RecordingError as error:
            assert str(path) in str(error) and "\n" not in str(error)
        else:
            assert not is_cut, "a file's layout cannot be read without its end"
            check_consistent(trace)


@pytest.mark.parametrize("settings", [INTERPRETED, bounds_checked()])
@pytest.mark.long
def test_a_word_outside_its_buffer_is_seen(settings: dict[str, str]) -> None:
    code = (
        "import numpy as np; "
        "from pagealloc_model.recording.trace.walk import gather_words; "
        "gather_words(np.zeros(16, np.uint8), np.array([9]), np.zeros(1, np.int64))"
    )
    command = [sys.executable, "-c", code]
    done = subprocess.run(
        command, env={**os.environ, **settings}, capture_output=True, text=True, check=False
    )
    assert "IndexError" in done.stderr


@pytest.mark.parametrize(
    "body",
    [
        "kmem:mm_page_free: pfn=0x5 order=99999999999999999999",
        "vmscan:mm_vmscan_kswapd_wake: nid=99999999999999999999999 order=-1",
        "vmscan:mm_vmscan_kswapd_wake: nid=007 order=18446744073709551615",
        "vmscan:mm_vmscan_kswapd_wake: nid=-5 order=18446744073709551615",
        f"lock:contention_begin: 0x{'f' * 5000} (flags=SPIN)",
    ],
)
def test_numbers_of_any_length_in_text(tmp_path: Path, body: str) -> None:
    path = tmp_path / "text"
    path.write_text(f"{LINE}\na 1 [000] 2.000001: {body}\n")
    expect_trace_or_line(path)


@pytest.mark.parametrize(
    "line",
    [
        "a 1 [99999] 1.000001: vmscan:mm_vmscan_kswapd_wake: nid=0",
        f"a 1 [{'9' * 5000}] 1.000001: vmscan:mm_vmscan_kswapd_wake: nid=0",
        f"a {'9' * 5000} [000] 1.000001: vmscan:mm_vmscan_kswapd_wake: nid=0",
        f"a 1 [000] {'9' * 5000}.000001: vmscan:mm_vmscan_kswapd_wake: nid=0",
        f"# os release : {'6' * 5000}.1",
        f"# nrcpus online : {'6' * 5000}",
        f"a 1 [000] 1.000001: PERF_RECORD_LOST lost {'9' * 5000}",
        "x" * 1_000_000,
        "x " * 500_000,
    ],
)
def test_lines_of_any_length_in_text(tmp_path: Path, line: str) -> None:
    path = tmp_path / "text"
    path.write_text(f"{line}\n{LINE}\n")
    expect_trace_or_line(path)


def expect_trace_or_line(path: Path) -> None:
    try:
        check_consistent(read_perf_script(path))
    except RecordingError as error:
        assert re.search(r"line \d", str(error))


def test_a_text_cut_within_a_line_loses_the_line(tmp_path: Path) -> None:
    path = tmp_path / "text"
    path.write_text(f"{LINE}\n{LINE.replace('pfn=0x5', 'pfn=0x55')[: -len('5 order=0')]}")
    trace = read_perf_script(path)
    assert trace.pfn.tolist() == [5]
    assert trace.notes == ("the text is cut short in line 2, which is left out",)


def test_a_text_without_lines(tmp_path: Path) -> None:
    path = tmp_path / "text"
    path.write_bytes(gzip.compress(b"x" * (40 << 20), 1))
    with pytest.raises(RecordingError, match="a line of more than"):
        read_perf_script(path)


def test_a_pipe_that_ends_within_a_round_is_cut(tmp_path: Path) -> None:
    """Cut between two records; what the other CPU did meanwhile is missing."""
    attr, end = perf.attr_of(ALLOC, [1]), perf.record(68, b"")
    events = [
        perf.sample(attr, ALLOC.raw(pfn=time, order=1), number=1, time=time, cpu=cpu)
        for time, cpu in ((10, 0), (20, 1), (30, 0), (25, 1), (50, 0), (45, 1))
    ]
    rounds = [*events[:2], end, *events[2:4], end, events[4]]
    for compressed in (False, True):
        records = rounds
        if compressed:
            parts = (events[:2], events[2:4], [events[4]])
            packed = [perf.compressed_records(b"".join(part)) for part in parts]
            records = [packed[0], end, packed[1], end, packed[2]]
        path = perf.write_piped(tmp_path / "p", [attr], records)
        trace = read_perf_data(path)
        assert trace.time_ns.tolist() == [10, 20] and trace.notes
        whole = perf.write_piped(path, [attr], [*records, events[5], end])
        assert len(read_perf_data(whole)) == 6


def test_little_that_unpacks_to_much(tmp_path: Path) -> None:
    """Zstd turns four bytes into 128 KiB."""
    attr = perf.attr_of(ALLOC, [1])
    zeros = zstandard.ZstdCompressor().compress(bytes(1 << 30))
    records = [
        struct.pack("<IHH", 81, 0, 8 + len(part)) + part
        for part in (zeros[start : start + 65000] for start in range(0, len(zeros), 65000))
    ]
    path = perf.write(tmp_path / "p", [attr], records)
    tracemalloc.start()
    try:
        with pytest.raises(RecordingError, match="at byte 0 of the decompressed records"):
            read_perf_data(path)
        assert tracemalloc.get_traced_memory()[1] < 400 << 20
    finally:
        tracemalloc.stop()


def test_ids_that_many_events_share(tmp_path: Path) -> None:
    path = perf.write(tmp_path / "p", [perf.attr_of(ALLOC, range(4000))], [])
    data = bytearray(path.read_bytes())
    ids = data[104 + 32000 + 128 : 104 + 32000 + 144]
    entry = data[104 + 32000 : 104 + 32000 + 128] + ids
    struct.pack_into("<QQ", data, 24, len(data), 200 * len(entry))
    path.write_bytes(data + 200 * entry)
    with pytest.raises(RecordingError, match="id lists of the attributes overlap"):
        read_perf_data(path)


def test_an_input_of_each_kind(tmp_path: Path) -> None:
    kinds = ["perf script text", "trace.dat", "vmstat", "state file", "kernel log"]
    limits = {"inputs": 4, "seconds": 20, "seed": 1, "keep": tmp_path, "checked": False}
    for report in in_processes(kinds, **limits):
        assert not report["failures"] and report["inputs"], report


@pytest.mark.long
def test_every_kind_of_input_by_another_seed(tmp_path: Path) -> None:
    """Two seconds each; `python -m tests.fuzz.kinds --seed N` does the same again."""
    seed = random.SystemRandom().randrange(1 << 32)
    print(f"seed {seed}")
    limits = {"inputs": 1000, "seconds": 2, "seed": seed, "keep": tmp_path, "checked": False}
    for report in in_processes(list(KINDS), **limits):
        assert not report["failures"] and report["inputs"], (seed, report)
