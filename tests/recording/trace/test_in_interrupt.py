"""The column `in_interrupt` (T1.7): read from common_flags, kept by copies, -1 where untold."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pytest
import synthetic_perf_data as perf
from synthetic_perf_data import ALLOC, FREE

from pagealloc_model.recording.trace import store as store_module
from pagealloc_model.recording.trace.perf_data import read_perf_data
from pagealloc_model.recording.trace.perf_file import SampleType, open_perf_file
from pagealloc_model.recording.trace.store import read_store, write_store
from tests.perf_data_writer import SAMPLE, records_in
from tests.small_recordings import shipped_recording

MAIN = ("alloc", "free", "free_batched", "alloc_zone_locked", "pcpu_drain", "alloc_extfrag")
TASK, HARD, SOFT, SOFT_WITH_IRQS_OFF, RESCHED = 0x00, 0x08, 0x10, 0x11, 0x05
FLAGS = (TASK, HARD, SOFT, SOFT_WITH_IRQS_OFF, RESCHED, HARD | SOFT)
EXPECTED = [0, 1, 1, 1, 0, 1]


def flagged(raw: bytes, flags: int) -> bytes:
    """Raw data of an event with other common_flags: the third byte."""
    return raw[:2] + bytes([flags]) + raw[3:]


def written(path: Path, *, compress: bool = False) -> Path:
    """A recording with an allocation and a free of each set of flags, 10 ns apart."""
    attrs = [perf.attr_of(ALLOC, [1]), perf.attr_of(FREE, [2])]
    records = []
    for number, flags in enumerate(FLAGS):
        alloc = flagged(ALLOC.raw(pfn=number, gfp_flags=0x20), flags)
        free = flagged(FREE.raw(pfn=number), flags)
        records.append(perf.sample(attrs[0], alloc, number=1, time=100 + 20 * number))
        records.append(perf.sample(attrs[1], free, number=2, time=110 + 20 * number))
    return perf.write(path, attrs, records, compress=compress)


@pytest.mark.parametrize("compress", [False, True])
def test_hard_and_soft_interrupts_are_told_from_tasks(tmp_path: Path, compress: bool) -> None:
    trace = read_perf_data(written(tmp_path / "p", compress=compress))
    assert trace.in_interrupt.tolist() == list(np.repeat(EXPECTED, 2))
    assert trace.in_interrupt.dtype == np.int8


@pytest.mark.parametrize(
    ("places", "expected"),
    [((0, 2, 1, 3), [1, 0]), ((0, None, 2, 3), [-1, -1])],
    ids=["behind the preemption count", "not at all"],
)
def test_it_is_read_from_where_the_format_has_the_flags(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    places: tuple[int | None, ...],
    expected: list[int],
) -> None:
    """Not from a fixed byte; without them it is left open."""
    other = ("unsigned char other", 1, False)
    common = tuple(other if place is None else perf.COMMON[place] for place in places)
    monkeypatch.setattr(perf, "COMMON", common)
    attr = perf.attr_of(ALLOC, [1])
    raw = ALLOC.raw(pfn=1, gfp_flags=0x20)
    raws = [raw[:2] + bytes(pair) + raw[4:] for pair in ((0, HARD), (HARD, 0))]
    records = [perf.sample(attr, each, number=1, time=time) for time, each in enumerate(raws)]
    trace = read_perf_data(perf.write(tmp_path / "p", [attr], records))
    assert trace.in_interrupt.tolist() == expected


@pytest.mark.parametrize("compress", [False, True])
def test_a_store_from_before_the_column_leaves_it_open(
    tmp_path: Path, compress: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    trace = read_perf_data(written(tmp_path / "p"))
    older = {name: t for name, t in store_module.COLUMN_TYPES.items() if name != "in_interrupt"}
    with monkeypatch.context() as writing:
        writing.setattr(store_module, "COLUMN_TYPES", older)
        write_store(trace, tmp_path / "s", source=None, compress=compress)
    read = read_store(tmp_path / "s")
    assert read.in_interrupt.tolist() == [-1] * len(trace)
    assert read.in_interrupt.dtype == np.int8
    assert not read.in_interrupt.flags.writeable
    np.testing.assert_array_equal(read.pfn, trace.pfn)


@pytest.mark.parametrize("name", ["kbuild", "highatomic_stock"])
def test_recordings_have_what_their_bytes_say(name: str) -> None:
    """What perf prints lacks the flags; byte 2 of an event's raw data has them (T1.7)."""
    recording = shipped_recording(name)
    trace = read_perf_data(recording.event_file)
    told = {
        key: sorted(bool(flags & (HARD | SOFT)) for flags in found)
        for key, found in flags_of_events(recording.event_file).items()
    }
    read: dict[tuple[int, int], list[int]] = {}
    for key, flag in zip(
        zip(trace.time_ns.tolist(), trace.cpu.tolist(), strict=True),
        trace.in_interrupt.tolist(),
        strict=True,
    ):
        read.setdefault(key, []).append(flag)
    assert {key: sorted(flags) for key, flags in read.items()} == told
    assert 0 < int((trace.in_interrupt == 1).sum()) < len(trace)


def flags_of_events(path: Path) -> dict[tuple[int, int], list[int]]:
    """common_flags of each main event by time and CPU, found without the reader's walk."""
    file = open_perf_file(path)
    names = {f"mm_page_{name}" for name in MAIN}
    ids = {form.id for form in file.formats.values() if form.name in names}
    attrs = {number: attr for attr in file.attrs for number in attr.ids or (0,)}
    found: dict[tuple[int, int], list[int]] = {}
    for record in records_in(file):
        if int.from_bytes(record[:4], "little") != SAMPLE:
            continue
        body = record[8:]
        attr = attrs[struct.unpack_from("<Q", body, 0)[0]]
        if attr.config in ids:
            assert attr.sample_type & ~SampleType.CALLCHAIN == perf.USUAL_SAMPLE
            time_ns, cpu = struct.unpack_from("<QI", body, 24)
            place = 48
            if attr.sample_type & SampleType.CALLCHAIN:
                place += 8 + 8 * struct.unpack_from("<Q", body, place)[0]
            found.setdefault((time_ns, cpu), []).append(body[place + 4 + 2])
    return found
