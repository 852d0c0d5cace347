"""Kernel symbols: where functions begin and end, and the chains that waited for a lock."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from pagealloc_model.base.errors import RecordingError
from pagealloc_model.measured.call_stacks import waits_by_caller
from pagealloc_model.recording.proc.counts import read_kallsyms
from pagealloc_model.recording.recording import open_recording
from pagealloc_model.recording.trace.perf_file import SampleType
from pagealloc_model.show.post import describe_recording, recording_text
from tests import synthetic_perf_data as perf
from tests.synthetic_perf_data import ALLOC, CONTENTION

START = 0xFFFFFFFF81000000
FUNCTIONS = ("rmqueue_bulk", "_raw_spin_lock", "get_page_from_freelist", "alloc_pages", "do_fault")
LISTED = "".join(f"{START + 256 * n:x} t {name}\n" for n, name in enumerate(FUNCTIONS))
OTHERS = f"{START + 128:x} D data\n{START + (1 << 24):x} t far\t[ext4]\n"
TEXT = f"0000000000000000 A fixed\n{LISTED}{OTHERS}"


def at(function: str, offset: int = 8) -> int:
    return START + 256 * FUNCTIONS.index(function) + offset


def test_names_of_addresses(tmp_path: Path) -> None:
    path = tmp_path / "kallsyms.gz"
    path.write_bytes(gzip.compress(TEXT.encode()))
    symbols = read_kallsyms(path)
    assert symbols is not None
    assert symbols.name_at(START) == symbols.name_at(START + 255) == "rmqueue_bulk"
    assert symbols.name_at(START + 256) == "_raw_spin_lock"
    assert symbols.name_at(START - 1) == f"{START - 1:#x}"
    assert symbols.name_at(START + (1 << 23)) == f"{START + (1 << 23):#x}"
    assert symbols.name_at(START + (1 << 24)) == "far"


def test_hidden_addresses_and_other_text(tmp_path: Path) -> None:
    path = tmp_path / "kallsyms"
    path.write_text("0000000000000000 T _text\n0000000000000000 t vmstat_update\n")
    assert read_kallsyms(path) is None
    path.write_text(f"{LISTED}no symbol\n")
    with pytest.raises(RecordingError, match="line 6: no address, type and name"):
        read_kallsyms(path)


def test_waits_by_caller(tmp_path: Path) -> None:
    chained = perf.USUAL_SAMPLE | SampleType.CALLCHAIN
    attrs = [perf.attr_of(ALLOC, [1]), perf.attr_of(CONTENTION, [2], sample_type=chained)]
    in_kernel = 2**64 - 128
    refill = [in_kernel, *map(at, ("_raw_spin_lock", *FUNCTIONS[:1], *FUNCTIONS[2:]))]
    direct = [in_kernel, at("_raw_spin_lock"), at("get_page_from_freelist"), at("alloc_pages")]
    waits = [
        perf.sample(attrs[1], CONTENTION.raw(lock_addr=9), number=2, time=time, chain=chain)
        for time, chain in enumerate((refill, direct, refill))
    ]
    first = perf.sample(attrs[0], ALLOC.raw(pfn=1, order=0), number=1, time=0)
    perf.write(tmp_path / "perf.data", attrs, [first, *waits])
    assert waits_by_caller(open_recording(tmp_path)) == []
    (tmp_path / "kallsyms.gz").write_bytes(gzip.compress(TEXT.encode()))
    recording = open_recording(tmp_path)
    by_refill = "rmqueue_bulk < get_page_from_freelist < alloc_pages < do_fault"
    expected = {by_refill: 2, "get_page_from_freelist < alloc_pages": 1}
    assert dict(waits_by_caller(recording)) == expected
    assert describe_recording(recording)["lock_waits"] == expected
    assert f"         2  {by_refill}" in recording_text(recording)
