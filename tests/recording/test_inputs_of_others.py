"""What people have: partial recordings, files that are no trace, and what they are told."""

from __future__ import annotations

import bz2
import os
import re
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

import pagealloc_model as pm
from pagealloc_model.base.errors import RecordingError
from pagealloc_model.cli.main import main
from pagealloc_model.recording.provenance import provenance
from pagealloc_model.recording.recording import open_recording
from pagealloc_model.recording.trace.columns import Event
from pagealloc_model.recording.trace.perf_data import read_perf_data
from tests import synthetic_perf_data as perf
from tests.memory_reports import MadeZone, report
from tests.perf_data_writer import text_feature, write_perf_data
from tests.synthetic_perf_data import ALLOC, CMDLINE, FREE

WILD = "PAGEALLOC_WILD"
"""Names a folder of inputs that people have, each kind with its README."""


def recorded_check(path: Path) -> str:
    """The check "recorded" of a recording's provenance."""
    check = next(each for each in provenance(open_recording(path)) if each.check == "recorded")
    return f"{check.level}: {check.found}"


def recorded(
    path: Path, command: str, events: list[tuple[int, int]], cpus: tuple[int, ...] = (0, 1, 2, 3)
) -> Path:
    """A perf.data with a command line and allocations of these orders, each freed."""
    alloc, free = perf.attr_of(ALLOC, [1]), perf.attr_of(FREE, [2])
    records = []
    for place, (order, tid) in enumerate(events):
        where = {"time": 1000 * place + 1, "cpu": cpus[place % len(cpus)], "tid": tid}
        raw = {"pfn": 64 * place, "order": order}
        records.append(perf.sample(alloc, ALLOC.raw(**raw), number=1, **where))
        records.append(perf.sample(free, FREE.raw(**raw), number=2, **where))
    words = command.split()
    features = {
        **perf.features_of((ALLOC, FREE)),
        CMDLINE: struct.pack("<I", len(words)) + b"".join(map(text_feature, words)),
    }
    write_perf_data(
        path,
        attrs=[alloc, free],
        features=features,
        records=b"".join(records),
        compress=False,
    )
    return path


ALL_ORDERS = [(place % 3, place % 2 * 77) for place in range(1200)]


@pytest.mark.parametrize(
    ("command", "found"),
    [
        ("perf record -a -e kmem:*", "usable: all tasks of all CPUs, by perf's arguments"),
        ("perf record -C 1 -e kmem:*", "refused: some CPUs, by perf's arguments"),
        ("perf record -e kmem:* -p 77", "refused: single tasks, by perf's arguments"),
        (
            "perf record -a -e kmem:mm_page_alloc --filter order>=3",
            "refused: a part of the events (--filter), by perf's arguments",
        ),
        (
            "perf record -a --exclude-perf -e kmem:*",
            "usable with doubt: all tasks but perf itself (--exclude-perf), by perf's arguments",
        ),
        (
            "perf record -a --overwrite -e kmem:*",
            "refused: the last events of each CPU (--overwrite), by perf's arguments",
        ),
        ("perf", "usable: all tasks: threads of the kernel have events too"),
    ],
)
def test_the_header_says_what_was_recorded(tmp_path: Path, command: str, found: str) -> None:
    path = recorded(tmp_path / "perf.data", command, ALL_ORDERS)
    assert recorded_check(path) == found
    store = tmp_path / "events.arrow"
    pm.open(path).to_columns(store)
    assert recorded_check(store) == found


def test_orders_that_are_missing_contradict_a_whole_recording(tmp_path: Path) -> None:
    events = [(3 + place % 2, 0) for place in range(200)]
    path = recorded(tmp_path / "perf.data", "perf", events)
    found = "refused: a part of the events: none of 200 allocations is of order 0"
    assert recorded_check(path) == found


def text(path: Path, lines: list[tuple[str, int, int]], header: str = "") -> Path:
    """Text of perf script: events by name, order and migratetype."""
    said = [
        f"swapper     0 [{place % 2:03d}] {1 + place / 1e6:.9f}: kmem:{name}: page=0x1 "
        f"pfn=0x{place + 1:x} order={order}"
        + ("" if name == "mm_page_free" else f" migratetype={migratetype}")
        + (" gfp_flags=GFP_KERNEL" if name == "mm_page_alloc" else "")
        + (" percpu_refill=0" if name == "mm_page_alloc_zone_locked" else "")
        for place, (name, order, migratetype) in enumerate(lines)
    ]
    path.write_text(f"{header}" + "\n".join(said) + "\n")
    return path


def test_a_header_in_text_says_what_was_recorded(tmp_path: Path) -> None:
    events = [("mm_page_alloc", 0, place % 2) for place in range(300)]
    header = "# nrcpus online : 2\n# cmdline : /usr/bin/perf record -e kmem:* {}-- make \n"
    for words, found in (
        ("-a ", "usable: all tasks of all CPUs"),
        ("-C 1 ", "refused: some CPUs"),
        ("-a --filter order >= 3 ", "refused: a part of the events (--filter)"),
        ("", "refused: single tasks"),
    ):
        path = text(tmp_path / "trace.txt", events, header.format(words))
        assert recorded_check(path) == f"{found}, by perf's arguments"


def test_removals_without_allocations_of_their_order_contradict(tmp_path: Path) -> None:
    lines = [("mm_page_alloc", 0, 0), ("mm_page_alloc_zone_locked", 3, 0)] * 150
    assert recorded_check(text(tmp_path / "trace.txt", lines)) == (
        "refused: a part of the events: 150 removals of order 3, and no allocation of it"
    )


@pytest.mark.parametrize(("migratetype", "name"), [(0, "user memory"), (1, "the kernel's memory")])
def test_types_that_are_missing_are_doubted(tmp_path: Path, migratetype: int, name: str) -> None:
    lines = [("mm_page_alloc", 0, migratetype)] * 6000
    found = recorded_check(text(tmp_path / "trace.txt", lines))
    assert found.startswith(f"usable with doubt: none of 6,000 allocations is for {name} (")


def test_cpus_without_events_are_doubted(tmp_path: Path) -> None:
    path = recorded(tmp_path / "perf.data", "perf", ALL_ORDERS, cpus=(2,))
    assert recorded_check(path) == (
        "usable with doubt: events of 1 of 4 CPUs: perhaps the others were left out"
    )


BUDDYINFO = "Node 0, zone   Normal     17    203    102     17     21      4      7      0 \n"
ZONEINFO = "Node 0, zone      DMA\n  per-node stats\n      nr_inactive_anon 72\n"
FILES: dict[str, tuple[bytes, str]] = {
    "buddyinfo": (BUDDYINFO.encode(), "is a copy of /proc/buddyinfo; join it with a trace"),
    "zoneinfo": (ZONEINFO.encode(), "is a copy of /proc/zoneinfo; join it with a trace"),
    "pagetypeinfo": (b"Page block order: 9\nPages per block:  512\n", "is a copy of /proc/paget"),
    "perf.tar.bz2": (bz2.compress(b"x" * 1000), "is packed by bzip2; unpack it"),
    "perf.trace": (
        b"     0.000 make/7 kmem:mm_page_alloc(pfn: 366, gfp_flags: 1314250, migratetype: 1)\n",
        "is what perf trace prints, which has no CPUs and not all fields; record with -e kmem",
    ),
    "dmesg.txt": (report([MadeZone()]).encode(), "pagealloc explain dmesg.txt says why it failed"),
}


@pytest.mark.parametrize("name", FILES)
def test_files_that_are_no_trace_are_named(tmp_path: Path, name: str) -> None:
    content, message = FILES[name]
    (tmp_path / name).write_bytes(content)
    with pytest.raises(RecordingError, match=re.escape(message)):
        len(open_recording(tmp_path / name).trace)


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (("zoneinfo", "buddyinfo"), "holds copies of /proc and no events; join it with a trace"),
        (("00000001763308523375",), "holds copies of /proc and no events"),
        (("header", "data", "data.0"), "was recorded with perf record --threads"),
        (("anything",), "is a directory without perf.data"),
    ],
)
def test_directories_that_are_no_recording_are_named(
    tmp_path: Path, names: tuple[str, ...], message: str
) -> None:
    for name in names:
        (tmp_path / name).write_text("")
    with pytest.raises(RecordingError, match=message):
        open_recording(tmp_path)


def test_a_pipe_without_tracepoints_is_not_called_cut_short(tmp_path: Path) -> None:
    attr = perf.attr_of(ALLOC, [1])
    clock = perf.parse_attr(struct.pack("<I", 1) + attr.raw[4:], (1,))  # a software event
    features = perf.features_of((ALLOC,))
    piped = perf.piped([clock], features, [perf.sample(clock, b"", number=1)])
    formats = perf.record(66, struct.pack("<I", len(features[perf.Feature.TRACING_DATA])))
    data = features[perf.Feature.TRACING_DATA]
    without = piped.replace(formats + data + b"\0" * (-len(data) % 8), b"")
    assert without != piped
    path = tmp_path / "perf.data"
    path.write_bytes(without)
    with pytest.raises(RecordingError, match="no tracepoint format data; record tracepoints, such"):
        read_perf_data(path)


def test_a_killed_perf_is_named(tmp_path: Path) -> None:
    """Perf writes the features' bits first, the size of the data and their places at the end."""
    path = recorded(tmp_path / "perf.data", "perf record -a", ALL_ORDERS)
    content = bytearray(path.read_bytes())
    content[48:56] = bytes(8)
    path.write_bytes(content)
    with pytest.raises(RecordingError, match="perf was killed before it wrote"):
        read_perf_data(path)


def test_a_recording_of_simpleperf_is_named(tmp_path: Path) -> None:
    path = tmp_path / "perf.data"
    attr = perf.attr_of(ALLOC, [1])
    write_perf_data(path, attrs=[attr], features={129: b"x" * 8}, records=b"", compress=False)
    with pytest.raises(RecordingError, match="is a recording of simpleperf"):
        read_perf_data(path)


TRACE = "# tracer: nop\n#\n  t-1  [000] ....  1.000001: mm_page_free: page=0x1 pfn=0x1 order=0\n"
ATTACHED_ZONEINFO = """\
Node 0, zone   Normal
  pages free     4000
        min      67
        low      83
        high     99
        spanned  65536
        present  65536
        managed  65000
        protection: (0, 0)
  start_pfn:           {start}
"""


def test_attach_says_why_a_zoneinfo_is_of_no_use(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trace, zoneinfo = tmp_path / "trace.txt", tmp_path / "zoneinfo"
    trace.write_text(TRACE)
    zoneinfo.write_text("> " + ATTACHED_ZONEINFO.format(start=0))
    words = ["attach", str(trace), "--zoneinfo", str(zoneinfo), "--release", "6.1.0"]
    assert main([*words, "-o", str(tmp_path / "out")]) == 2
    assert f"{zoneinfo}: line 1: comes before any" in capsys.readouterr().err


def test_memory_that_begins_far_up_is_attached_and_replayed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trace, zoneinfo = tmp_path / "trace.txt", tmp_path / "zoneinfo"
    trace.write_text(TRACE.replace("pfn=0x1", "pfn=0x80000001"))
    zoneinfo.write_text(ATTACHED_ZONEINFO.format(start=1 << 31))
    (tmp_path / "buddyinfo").write_text(BUDDYINFO)
    words = ["attach", str(trace), "--zoneinfo", str(zoneinfo), "--release", "6.8.0"]
    assert main([*words, "-o", str(tmp_path / "out")]) == 0
    assert main(["info", str(tmp_path / "out")]) == 0
    assert main(["replay", str(tmp_path / "out")]) == 0
    assert "can be replayed" not in "".join(capsys.readouterr())
    assert pm.explain(tmp_path, order=2).answer.serving is not None


@pytest.fixture
def wild() -> Callable[[str], Path]:
    """Path of an input by the beginning of its folder's name and its own."""

    def path_of(name: str) -> Path:
        folder = os.environ.get(WILD)
        if not folder:
            pytest.skip(f"{WILD} names no folder of inputs")
        kind, _, rest = name.partition("/")
        return next(Path(folder).glob(f"{kind}-*")) / rest

    return path_of


EVENTS_READ = {
    "02/enum_names.data.xz": (102, 93),
    "03/stack.txt": (4, 0),
    "03/user_stack.txt": (10, 0),
    "03/arm64_4.4_lkml.txt": (3, 0),
    "04/syscalls.txt": (16, 0),
    "04/dot_in_name.txt": (1, 1),
    "04/function.txt": (6, 0),
    "05/report.txt": (18, 0),
    "06/android.txt": (1, 0),
    "06/mainline_4.9.txt": (2, 0),
    "11/with_cpu_clock.txt": (9, 5),
    "11/rounds.txt": (9, 21),
}


@pytest.mark.long
@pytest.mark.parametrize("name", EVENTS_READ)
@pytest.mark.filterwarnings("ignore:.*gfp flags")
def test_traces_that_people_have_are_read(wild: Callable[[str], Path], name: str) -> None:
    trace = open_recording(wild(name)).trace
    assert (trace.count(Event.ALLOC), trace.count(Event.FREE)) == EVENTS_READ[name]


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("10/clock.pipe.data.xz", "has no tracepoint format data; record tracepoints"),
        ("12/vmscan_only.txt", "record with -e kmem:mm_page_alloc -e kmem:mm_page_free"),
        ("12/function_graph.txt", "record with the nop tracer"),
        ("12/comm_cut_off.txt", "has no task name: it was cut off"),
        ("12/begins_as.bz2", "is packed by bzip2"),
        ("12/buddyinfo", "is a copy of /proc/buddyinfo"),
        ("07/zoneinfo", "is a copy of /proc/zoneinfo"),
        ("13/", "holds copies of /proc and no events"),
        ("01/state_filter", "holds copies of /proc and no events"),
    ],
)
def test_inputs_that_are_refused_say_what_helps(
    wild: Callable[[str], Path], name: str, message: str
) -> None:
    with pytest.raises(RecordingError, match=message):
        len(open_recording(wild(name)).trace)


@pytest.mark.long
@pytest.mark.parametrize(("name", "found"), [("one_cpu", "some CPUs"), ("filter", "a part of the")])
def test_partial_recordings_that_people_have_are_refused(
    wild: Callable[[str], Path], tmp_path: Path, name: str, found: str
) -> None:
    words = ["attach", str(wild(f"01/{name}.data.xz"))]
    words += ["--snapshot", str(wild(f"01/state_{name}")), "-o", str(tmp_path / "out")]
    assert main(words) == 0
    assert recorded_check(tmp_path / "out").startswith(f"refused: {found}")


@pytest.mark.long
def test_the_context_is_that_of_the_header(wild: Callable[[str], Path]) -> None:
    trace = open_recording(wild("09/trace.txt")).trace
    assert trace.in_interrupt.tolist() == [1, 1, 0, 0]


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "why"),
    [("08/zoneinfo.4.14", "line 30: is not a name and a value"), ("08/zoneinfo.quoted", "line 1")],
)
def test_attach_names_the_line(
    wild: Callable[[str], Path],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    name: str,
    why: str,
) -> None:
    words = ["attach", str(wild("08/events.txt")), "--zoneinfo", str(wild(name))]
    assert main([*words, "--release", "6.1.0", "-o", str(tmp_path / "out")]) == 2
    assert f"{Path(name).name}: {why}" in capsys.readouterr().err


@pytest.mark.long
def test_proc_alone_is_explained(wild: Callable[[str], Path]) -> None:
    found = pm.explain(wild("13/"), order=9, release="5.8.0")
    assert found.answer.serving is not None and found.answer.serving.zone.name == "DMA32"
    assert [each.zone.name for each in found.answer.zones] == ["Normal", "DMA32", "DMA"]
