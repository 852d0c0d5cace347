"""One recording, read from perf.data, its archives and the text of `perf script`, agrees."""

from __future__ import annotations

import gzip
import lzma
import subprocess
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import zstandard

from pagealloc_model.base.errors import RecordingError
from pagealloc_model.recording.recording import open_recording
from pagealloc_model.recording.trace.columns import COLUMN_TYPES, Event, Trace
from pagealloc_model.recording.trace.perf_data import read_perf_data
from pagealloc_model.recording.trace.trace_text import read_perf_script
from tests.fuzz.seeds import FINISHED_ROUND, SAMPLE, records_of

pytestmark = pytest.mark.perf

STABLE_GFP = 0xFFFFFF
MICROSECOND = 1000
FIELDS = (
    (),
    ("--ns",),
    ("-F", "comm,pid,tid,cpu,time,event,trace"),
    ("-F", "tid,cpu,time,event,trace"),
    ("-F", "-comm"),
    ("-F", "+misc"),
    ("-F", "+period,+flags"),
    ("-F", "+ip,+sym,+symoff,+dso"),
    ("-F", "comm,tid,cpu,time,event,ip,trace"),
    ("-F", "comm,tid,cpu,time,event,sym,trace"),
    ("-G",),
    ("--header",),
    ("--ns", "--show-task-events", "--show-mmap-events", "--show-lost-events"),
)
PACKERS: tuple[Callable[[bytes], bytes], ...] = (
    gzip.compress,
    partial(lzma.compress, preset=0),
    zstandard.ZstdCompressor().compress,
)


def script_text(perf_command: str, path: Path, *options: str) -> bytes:
    command = [perf_command, "script", "-i", str(path), *options]
    return subprocess.run(command, capture_output=True, check=True, timeout=60).stdout


def assert_same_events(text: Trace, native: Trace, *, ns: bool) -> None:
    unit = 1 if ns else MICROSECOND
    np.testing.assert_array_equal(text.time_ns // unit, native.time_ns // unit)
    for name in set(COLUMN_TYPES) - {"time_ns", "gfp", "in_interrupt"}:
        np.testing.assert_array_equal(getattr(text, name), getattr(native, name), err_msg=name)
    np.testing.assert_array_equal(text.gfp, native.gfp & STABLE_GFP)


@pytest.mark.filterwarnings("ignore:.*depend on the kernel")
@pytest.mark.parametrize(
    ("layout", "fields"),
    [*(("recorded", each) for each in FIELDS), ("piped", FIELDS[0]), ("piped", FIELDS[7])],
)
def test_fields_of_perf_script(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    perf_command: str,
    layout: str,
    fields: tuple[str, ...],
) -> None:
    path = request.getfixturevalue(layout)
    native = read_perf_data(path)
    assert native.count(Event.ALLOC) > 100
    file = tmp_path / "script.txt"
    file.write_bytes(script_text(perf_command, path, *fields))
    text = read_perf_script(file)
    assert_same_events(text, native, ns="--ns" in fields)
    locks = native.tables.get("lock:contention_begin", {"lock_addr": np.zeros(0)})["lock_addr"]
    if len(locks):
        shown = text.tables["lock:contention_begin"]["lock_addr"]
        np.testing.assert_array_equal(shown, locks)


@pytest.mark.filterwarnings("ignore:.*depend on the kernel")
@pytest.mark.parametrize("pack", PACKERS)
def test_archives_of_a_recording_and_of_its_text(
    recorded: Path, tmp_path: Path, perf_command: str, pack: Callable[[bytes], bytes]
) -> None:
    native = read_perf_data(recorded)
    file = tmp_path / "packed"
    file.write_bytes(pack(recorded.read_bytes()))
    unpacked = open_recording(file).trace
    for name in COLUMN_TYPES:
        np.testing.assert_array_equal(getattr(unpacked, name), getattr(native, name))
    file.write_bytes(pack(script_text(perf_command, recorded, "--ns")))
    assert_same_events(open_recording(file).trace, native, ns=True)


@pytest.mark.filterwarnings("ignore:.*depend on the kernel")
def test_text_places_losses_as_the_recording_does(
    lossy: Path, tmp_path: Path, perf_command: str
) -> None:
    trace = read_perf_data(lossy)
    native = trace.losses
    file = tmp_path / "script.txt"
    file.write_bytes(script_text(perf_command, lossy, "--ns", "--show-lost-events"))
    text = read_perf_script(file).losses
    assert len(text.count)
    keys = list(zip(native.cpu.tolist(), native.end_ns.tolist(), strict=True))
    placed = dict(zip(keys, native.start_ns.tolist(), strict=True))
    for cpu, start_ns, end_ns in zip(text.cpu, text.start_ns, text.end_ns, strict=True):
        times = trace.time_ns[trace.cpu == cpu]
        earlier = np.count_nonzero((times >= start_ns) & (times < placed[cpu, end_ns]))
        assert start_ns <= placed[cpu, end_ns] and earlier <= 4


def test_a_piped_recording_cut_anywhere_is_the_beginning_of_the_whole(
    piped_in_rounds: Path, tmp_path: Path
) -> None:
    whole, good = read_perf_data(piped_in_rounds), piped_in_rounds.read_bytes()
    certain_from = end_of_first_certain_round(good)
    assert certain_from < len(good) // 2
    file = tmp_path / "cut"
    for length in (certain_from - 1, *(int(len(good) * share) | 1 for share in (0.5, 0.8, 0.99))):
        file.write_bytes(good[:length])
        if length < certain_from:
            with pytest.raises(RecordingError, match="before any event is certain"):
                read_perf_data(file)
            continue
        trace = read_perf_data(file)
        assert trace.notes and 0 < len(trace) < len(whole)
        for name in COLUMN_TYPES:
            expected = getattr(whole, name)[: len(trace)]
            np.testing.assert_array_equal(getattr(trace, name), expected)


def end_of_first_certain_round(content: bytes) -> int:
    """End of the round that follows the first one with an event in it."""
    samples = samples_at_last_round = 0
    for kind, _, end in records_of(content):
        samples += kind == SAMPLE
        if kind == FINISHED_ROUND:
            if samples_at_last_round:
                return end
            samples_at_last_round = samples
    raise AssertionError("no two rounds after an event")
