from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pytest

from pagealloc_model.base.errors import RecordingError
from pagealloc_model.recording.trace.columns import EVENT_NAMES, Event, Losses
from pagealloc_model.recording.trace.perf_data import attr_problem, read_perf_data
from pagealloc_model.recording.trace.perf_file import (
    AttrFlag,
    Feature,
    SampleType,
    has_samples,
    open_perf_file,
)
from tests import synthetic_perf_data as perf
from tests.perf_data_writer import SAMPLE, records_in
from tests.small_recordings import shipped_recording
from tests.synthetic_perf_data import ALLOC, CONTENTION, FREE, MIGRATETYPE, ORDER, PFN, Tracepoint

READ_GROUP = 8
READ_ID_AND_LOST = 4 | 16


def alloc_raw(pfn: int, order: int = 0, gfp: int = 0x20, migratetype: int = 0) -> bytes:
    return ALLOC.raw(pfn=pfn, order=order, gfp_flags=gfp, migratetype=migratetype)


@pytest.mark.parametrize("refill", [(("int percpu_refill", 4, True),), ()])
def test_every_main_event(tmp_path: Path, refill: tuple[perf.Declared, ...]) -> None:
    """Older kernels do not say whether a removal was a refill."""
    extfrag = perf.EXTFRAG
    names = list(extfrag.offsets)
    points = [
        ALLOC,
        Tracepoint("kmem:mm_page_free_batched", 2, (PFN,)),
        Tracepoint("kmem:mm_page_alloc_zone_locked", 3, (PFN, ORDER, MIGRATETYPE, *refill)),
        Tracepoint("kmem:mm_page_pcpu_drain", 4, (PFN, ORDER, MIGRATETYPE)),
        extfrag,
    ]
    raws = [
        alloc_raw(1),
        points[1].raw(pfn=2),
        points[2].raw(pfn=3, order=1, migratetype=2, **({"percpu_refill": 1} if refill else {})),
        points[3].raw(pfn=4, order=2, migratetype=1),
        points[4].raw(**dict(zip(names, (5, 3, 9, 2, 1, 1), strict=True))),
    ]
    attrs = [perf.attr_of(point, [number]) for number, point in enumerate(points, 1)]
    records = [
        perf.sample(attr, raw, number=number, time=number)
        for number, (attr, raw) in enumerate(zip(attrs, raws, strict=True), 1)
    ]
    trace = read_perf_data(perf.write(tmp_path / "p", attrs, records, points))
    assert trace.event.tolist() == [0, 2, 3, 4, 5]
    assert trace.pfn.tolist() == [1, 2, 3, 4, 5]
    assert trace.order.tolist() == [0, 0, 1, 2, 3]
    assert trace.migratetype.tolist() == [0, -1, 2, 1, 2]
    assert trace.percpu_refill.tolist() == [-1, -1, 1 if refill else -1, -1, -1]
    table = trace.tables[extfrag.name]
    shown = [table[name].tolist() for name in ("row", "fallback_order", "change_ownership")]
    assert shown == [[4], [9], [1]]


@pytest.mark.parametrize("gap", [0, 4, 24])
def test_field_offsets_come_from_the_format(tmp_path: Path, gap: int) -> None:
    moved = Tracepoint(ALLOC.name, 9, tuple(reversed(ALLOC.declared)), gap, ALLOC.print_fmt)
    attr = perf.attr_of(moved, [1])
    raw = moved.raw(pfn=123, order=4, gfp_flags=0x20, migratetype=-1)
    trace = read_perf_data(
        perf.write(tmp_path / "p", [attr], [perf.sample(attr, raw, number=1)], [moved])
    )
    assert (trace.pfn[0], trace.order[0], trace.gfp[0]) == (123, 4, 0x20)
    assert trace.migratetype[0] == -1


@pytest.mark.parametrize("order", [31, 63])
def test_an_order_whose_pages_no_sum_can_hold_is_refused(tmp_path: Path, order: int) -> None:
    attr = perf.attr_of(ALLOC, [1])

    def path_of(order: int) -> Path:
        return perf.write(
            tmp_path / "p", [attr], [perf.sample(attr, alloc_raw(123, order), number=1)], [ALLOC]
        )

    assert read_perf_data(path_of(18)).order.tolist() == [18]
    with pytest.raises(RecordingError, match="outside its field's range"):
        read_perf_data(path_of(order))


def test_a_32_bit_kernel(tmp_path: Path) -> None:
    fields = (
        ("unsigned long pfn", 4, False),
        ORDER,
        ("unsigned long gfp_flags", 4, False),
        MIGRATETYPE,
    )
    small = Tracepoint(ALLOC.name, 9, fields, print_fmt=ALLOC.print_fmt)
    attr = perf.attr_of(small, [1])
    records = [
        perf.sample(attr, small.raw(pfn=pfn, gfp_flags=0x80000000), number=1, time=time)
        for time, pfn in enumerate((7, 2**32 - 1))
    ]
    trace = read_perf_data(perf.write(tmp_path / "p", [attr], records, [small]))
    assert trace.pfn.tolist() == [7, -1]
    assert trace.gfp.tolist() == [0x80000000] * 2


EVERY_FIXED_PART = (
    SampleType.IP
    | SampleType.TID
    | SampleType.TIME
    | SampleType.ADDR
    | SampleType.ID
    | SampleType.STREAM_ID
    | SampleType.CPU
    | SampleType.PERIOD
    | SampleType.RAW
)


@pytest.mark.parametrize(
    "sample_type",
    [
        EVERY_FIXED_PART,
        EVERY_FIXED_PART | SampleType.IDENTIFIER,
        EVERY_FIXED_PART | SampleType.CALLCHAIN,
        EVERY_FIXED_PART | SampleType.READ,
        EVERY_FIXED_PART | SampleType.READ | SampleType.CALLCHAIN,
        SampleType.ID | SampleType.TID | SampleType.TIME | SampleType.CPU | SampleType.RAW,
    ],
)
@pytest.mark.parametrize("read_format", [0, READ_ID_AND_LOST, READ_GROUP | READ_ID_AND_LOST])
def test_sample_types(tmp_path: Path, sample_type: SampleType, read_format: int) -> None:
    attrs = [
        perf.attr_of(point, [number], sample_type=sample_type, read_format=read_format)
        for number, point in ((1, ALLOC), (2, FREE))
    ]
    read = struct.pack("<QQQ", 5, 1, 0)
    if read_format == 0:
        read = read[:8]
    if read_format & READ_GROUP:
        read = struct.pack("<Q", 2) + read * 2
    parts = {"read": read, "chain": [2**64 - 128, 0xFFFFFFFF81000000], "tail": b"x" * 16}
    records = [
        perf.sample(attrs[1], FREE.raw(pfn=8, order=2), number=2, time=2, cpu=3, tid=4, **parts),
        perf.sample(attrs[0], alloc_raw(9, 1), number=1, time=1, cpu=2, tid=5, **parts),
    ]
    trace = read_perf_data(perf.write(tmp_path / "p", attrs, records))
    assert trace.pfn.tolist() == [9, 8]
    assert trace.order.tolist() == [1, 2]
    assert trace.cpu.tolist() == [2, 3]
    assert trace.pid.tolist() == [5, 4]


WITHOUT_ID = SampleType.TID | SampleType.TIME | SampleType.CPU | SampleType.RAW


def test_one_event_without_ids(tmp_path: Path) -> None:
    attr = perf.attr_of(ALLOC, sample_type=WITHOUT_ID, flags=AttrFlag(0))
    records = [perf.sample(attr, alloc_raw(4), time=1), perf.comm_record(attr, 5, "make")]
    trace = read_perf_data(perf.write(tmp_path / "p", [attr], records))
    assert trace.pfn.tolist() == [4]
    assert trace.comms[5] == "make"
    assert trace.clock == "perf"


def test_ids_from_the_event_description(tmp_path: Path) -> None:
    attrs = [perf.attr_of(ALLOC), perf.attr_of(FREE)]
    described = struct.pack("<II", 2, 128)
    for number, (attr, name) in enumerate(zip(attrs, (ALLOC.name, FREE.name), strict=True), 1):
        text = name.encode().ljust(64, b"\0")
        described += attr.raw + struct.pack("<II", 1, 64) + text + struct.pack("<Q", number)
    records = b"".join(
        [
            perf.sample(attrs[0], alloc_raw(1), number=1, time=1),
            perf.sample(attrs[1], FREE.raw(pfn=2), number=2, time=2),
        ]
    )
    features = {**perf.features_of([ALLOC, FREE]), Feature.EVENT_DESC: described}
    perf.write_perf_data(tmp_path / "p", attrs=attrs, features=features, records=records)
    assert read_perf_data(tmp_path / "p").event.tolist() == [Event.ALLOC, Event.FREE]


def test_ties_keep_the_order_of_the_file(tmp_path: Path) -> None:
    attrs = [perf.attr_of(ALLOC, [1]), perf.attr_of(CONTENTION, [2])]
    lock = CONTENTION.raw(lock_addr=1)
    records = [
        perf.sample(attrs[0], alloc_raw(1), number=1, time=9),
        perf.sample(attrs[1], lock, number=2, time=5),
        perf.sample(attrs[0], alloc_raw(2), number=1, time=5, cpu=1),
        perf.sample(attrs[1], lock, number=2, time=5),
        perf.sample(attrs[0], alloc_raw(3), number=1, time=5),
        perf.sample(attrs[1], lock, number=2, time=7),
        perf.sample(attrs[1], lock, number=2, time=10),
    ]
    trace = read_perf_data(perf.write(tmp_path / "p", attrs, records))
    assert trace.pfn.tolist() == [2, 3, 1]
    assert trace.tables["lock:contention_begin"]["row"].tolist() == [0, 1, 2, 3]


def test_call_chains(tmp_path: Path) -> None:
    chained = perf.USUAL_SAMPLE | SampleType.CALLCHAIN
    attrs = [perf.attr_of(ALLOC, [1]), perf.attr_of(CONTENTION, [2], sample_type=chained)]
    lock = CONTENTION.raw(lock_addr=0xFFFF888000000001, flags=1)
    records = [
        perf.sample(attrs[1], lock, number=2, time=6, chain=[7, 8]),
        perf.sample(attrs[1], lock, number=2, time=5, chain=[2**64 - 128, 4, 5]),
        perf.sample(attrs[1], lock, number=2, time=7),
    ]
    trace = read_perf_data(perf.write(tmp_path / "p", attrs, records))
    table = trace.tables["lock:contention_begin"]
    chains = [
        trace.callchains[start : start + length].tolist()
        for start, length in zip(table["callchain_start"], table["callchain_len"], strict=True)
    ]
    assert chains == [[2**64 - 128, 4, 5], [7, 8], []]
    assert table["lock_addr"].dtype == np.uint64
    assert table["lock_addr"].tolist() == [0xFFFF888000000001] * 3


def lost_record(attr: perf.EventAttr, count: int, **where: int) -> bytes:
    return perf.record(2, struct.pack("<QQ", 1, count) + perf.trailer(attr, **where))


def lost_samples_record(attr: perf.EventAttr, count: int, misc: int = 0, **where: int) -> bytes:
    return perf.record(13, struct.pack("<Q", count) + perf.trailer(attr, **where), misc)


def test_losses_are_counted_once(tmp_path: Path) -> None:
    attr = perf.attr_of(ALLOC, [1, 2])
    index = struct.pack("<Q", 2) + struct.pack("<8Q", 1, 0, 0, 0, 2, 1, 1, 0)
    records = [
        perf.record(69, index),
        perf.sample(attr, alloc_raw(1), number=1, time=10, cpu=0),
        perf.sample(attr, alloc_raw(2), number=2, time=15, cpu=1),
        lost_record(attr, 7, number=1, time=20, cpu=0),
        perf.sample(attr, alloc_raw(3), number=1, time=21, cpu=0),
        lost_samples_record(attr, 7, number=1),
        lost_samples_record(attr, 4, number=2),
        lost_samples_record(attr, 100, misc=1 << 15, number=2),
    ]
    losses = read_perf_data(perf.write(tmp_path / "p", [attr], records)).losses
    assert losses.cpu.tolist() == [0, 1]
    assert losses.count.tolist() == [7, 4]
    assert losses.start_ns.tolist() == [10, 15]
    assert losses.end_ns.tolist() == [20, 21]
    assert losses.total == 11


def test_intervals_that_losses_touch() -> None:
    losses = Losses(
        cpu=np.zeros(3, np.int16),
        start_ns=np.array([10, 50, 12]),
        end_ns=np.array([40, 60, 13]),
        count=np.ones(3, np.int64),
    )
    begins, ends = np.array([0, 0, 35, 41, 60, 61]), np.array([9, 10, 36, 49, 99, 99])
    assert losses.overlap(begins, ends).tolist() == [False, True, True, False, True, False]
    assert not Losses.of([]).overlap(begins, ends).any()


def test_unknown_records_are_stepped_over(tmp_path: Path) -> None:
    attr = perf.attr_of(ALLOC, [1])
    area = b"\xff" * 24
    records = [
        perf.record(4711, b"?" * 40),
        perf.record(71, struct.pack("<QQQIIII", len(area), 0, 0, 0, 0, 0, 0)) + area,
        perf.sample(attr, alloc_raw(3), number=1),
        perf.record(68, b""),
    ]
    assert len(read_perf_data(perf.write(tmp_path / "p", [attr], records))) == 1


def test_more_rows_and_notes_than_expected(tmp_path: Path) -> None:
    attrs = [perf.attr_of(ALLOC, [1]), perf.attr_of(CONTENTION, [2])]
    pair = perf.sample(attrs[0], alloc_raw(3), number=1) + perf.sample(
        attrs[1], CONTENTION.raw(lock_addr=1), number=2
    )
    trace = read_perf_data(perf.write(tmp_path / "p", attrs, [pair] * 70_000, compress=True))
    assert len(trace) == 70_000
    assert trace.tables["lock:contention_begin"]["row"].tolist() == list(range(1, 70_001))


def test_an_error_is_one_line_whatever_a_file_names() -> None:
    [attr] = sampled(sample_type=perf.USUAL_SAMPLE & ~SampleType.TIME)
    problem = attr_problem(attr, "odd\n:event")
    assert str(RecordingError("p", problem)) == "p: samples of odd :event carry no TIME"


BEFORE_PFN = Tracepoint(ALLOC.name, 9, (("struct page * page", 8, False), ORDER))


def sampled(**changed: object) -> list[perf.EventAttr]:
    return [perf.attr_of(ALLOC, [1], **changed)]


@pytest.mark.parametrize(
    ("attrs", "message"),
    [
        (sampled(sample_type=perf.USUAL_SAMPLE & ~SampleType.TIME), "carry no TIME"),
        (sampled(sample_type=perf.USUAL_SAMPLE & ~SampleType.RAW), "carry no RAW"),
        ([perf.attr_of(FREE, [1])], "no kmem:mm_page_alloc"),
        ([perf.attr_of(point, sample_type=WITHOUT_ID) for point in (ALLOC, FREE)], "no common id"),
        ([perf.attr_of(ALLOC, [1]), perf.attr_of(ALLOC, [2])], "more than once"),
        ([perf.attr_of(Tracepoint("a:b", 99, ()), [1])], "no format data for tracepoint number"),
        ([perf.attr_of(BEFORE_PFN, [1])], "has no field pfn"),
    ],
)
def test_recordings_that_cannot_be_used(
    tmp_path: Path, attrs: list[perf.EventAttr], message: str
) -> None:
    described = [BEFORE_PFN] if attrs[0].config == 9 else [ALLOC, FREE, CONTENTION]
    path = perf.write(tmp_path / "p", attrs, [], described)
    with pytest.raises(RecordingError, match=message) as caught:
        read_perf_data(path)
    assert "\n" not in str(caught.value)
    assert str(path) in str(caught.value)


TASK, HARD, SOFT, SOFT_WITH_IRQS_OFF, RESCHED = 0x00, 0x08, 0x10, 0x11, 0x05
FLAGS = {TASK: 0, HARD: 1, SOFT: 1, SOFT_WITH_IRQS_OFF: 1, RESCHED: 0, HARD | SOFT: 1}


@pytest.mark.parametrize(
    ("places", "flagged"), [((0, 1, 2, 3), 2), ((0, 2, 1, 3), 3), ((0, None, 2, 3), None)]
)
@pytest.mark.parametrize("compress", [False, True])
def test_interrupts_are_told_from_tasks(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    places: tuple[int | None, ...],
    flagged: int | None,
    compress: bool,
) -> None:
    """Flags are read from where the format has them, not from a fixed byte (T1.7)."""
    other = ("unsigned char other", 1, False)
    common = tuple(other if place is None else perf.COMMON[place] for place in places)
    monkeypatch.setattr(perf, "COMMON", common)
    attr, raw = perf.attr_of(ALLOC, [1]), bytearray(alloc_raw(1))
    records = []
    for time, flags in enumerate(FLAGS):
        raw[2:4] = HARD, HARD
        raw[flagged or 2] = flags
        records.append(perf.sample(attr, bytes(raw), number=1, time=time))
    trace = read_perf_data(perf.write(tmp_path / "p", [attr], records, compress=compress))
    expected = [-1] * len(FLAGS) if flagged is None else list(FLAGS.values())
    assert trace.in_interrupt.tolist() == expected and trace.in_interrupt.dtype == np.int8


@pytest.mark.parametrize("name", ["kbuild", "highatomic_stock"])
def test_recordings_have_what_their_bytes_say(name: str) -> None:
    """What perf prints lacks the flags; byte 2 of an event's raw data has them (T1.7)."""
    recording = shipped_recording(name)
    trace = read_perf_data(recording.event_file)
    expected = {
        key: sorted(bool(flags & (HARD | SOFT)) for flags in words)
        for key, words in flags_of_events(recording.event_file).items()
    }
    read: dict[tuple[int, int], list[int]] = {}
    for key, flag in zip(
        zip(trace.time_ns.tolist(), trace.cpu.tolist(), strict=True),
        trace.in_interrupt.tolist(),
        strict=True,
    ):
        read.setdefault(key, []).append(flag)
    assert {key: sorted(flags) for key, flags in read.items()} == expected
    assert 0 < int((trace.in_interrupt == 1).sum()) < len(trace)


def flags_of_events(path: Path) -> dict[tuple[int, int], list[int]]:
    """common_flags of each main event by time and CPU, found without the reader's walk."""
    file = open_perf_file(path)
    ids = {form.id for form in file.formats.values() if form.event_name in EVENT_NAMES}
    attrs = {number: attr for attr in file.attrs for number in attr.ids or (0,)}
    flags: dict[tuple[int, int], list[int]] = {}
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
            flags.setdefault((time_ns, cpu), []).append(body[place + 4 + 2])
    return flags


@pytest.mark.parametrize("any_sample", [True, False])
@pytest.mark.parametrize("layout", ["plain", "compressed", "padded", "piped"])
def test_headers_tell_whether_anything_was_sampled(
    tmp_path: Path, layout: str, any_sample: bool
) -> None:
    attr = perf.attr_of(ALLOC, [1])
    records = [perf.comm_record(attr, 7, "task")] * 3
    records += [perf.sample(attr, alloc_raw(1), number=1)] if any_sample else []
    if layout in ("compressed", "padded"):
        content = perf.compressed_records(b"".join(records), padded=layout == "padded")
        records = [perf.comm_record(attr, 8, "other"), content]
    write = perf.write_piped if layout == "piped" else perf.write
    assert has_samples(open_perf_file(write(tmp_path / "p", [attr], records))) == any_sample


@pytest.mark.parametrize(("back_ns", "noted"), [(2_000, False), (5_000_000_000, True)])
def test_a_clock_that_goes_back_on_one_cpu_is_named(
    tmp_path: Path, back_ns: int, noted: bool
) -> None:
    attr, late = perf.attr_of(ALLOC, [1]), 10_000_000_000
    records = [
        perf.sample(attr, ALLOC.raw(pfn=pfn, order=0), time=time, cpu=cpu)
        for pfn, (time, cpu) in enumerate([(late, 0), (late + 1, 1), (late - back_ns, 1)])
    ]
    trace = read_perf_data(perf.write(tmp_path / "p", [attr], records))
    assert trace.time_ns.tolist() == [late - back_ns, late, late + 1]
    assert [note.split(":")[0] for note in trace.notes] == [
        "the clock of CPU 1 goes back by 5.000 s"
    ] * noted
