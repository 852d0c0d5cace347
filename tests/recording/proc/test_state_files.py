"""State files of the kernel: as four kernels print them, packed, and what of them is refused."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from pagealloc_model.base.errors import RecordingError
from pagealloc_model.measured.call_stacks import waits_by_caller
from pagealloc_model.recording.proc.counts import (
    parse_buddyinfo,
    parse_pagetypeinfo,
    parse_pressure,
    parse_read_times,
    parse_system_time,
    parse_vmstat,
)
from pagealloc_model.recording.proc.zoneinfo import parse_zoneinfo
from pagealloc_model.recording.recording import open_recording
from pagealloc_model.recording.trace.perf_file import SampleType
from pagealloc_model.show.post import describe_recording, recording_text
from tests import synthetic_perf_data as perf
from tests.recording.proc.samples_of import sample
from tests.synthetic_perf_data import ALLOC, CONTENTION

READ_TIMES = Path("read_ns.json")
PARSERS = {
    "buddyinfo": parse_buddyinfo,
    "pagetypeinfo": parse_pagetypeinfo,
    "vmstat": parse_vmstat,
    "pressure_memory": parse_pressure,
    "stat": parse_system_time,
    "zoneinfo": parse_zoneinfo,
    READ_TIMES.name: parse_read_times,
}


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("buddyinfo", "", "no zone found"),
        ("buddyinfo", "Node 0, zone DMA\n", "line 1: has 0 orders"),
        ("buddyinfo", "Node 0, zone DMA 1 2\nNode 0, zone Normal 1\n", "line 2: has 1 orders"),
        ("buddyinfo", "Node 0, zone DMA 1 x\n", "'x' is not a count"),
        ("buddyinfo", "Node 0, zone DMA 1 2147483649\n", "more than memory can have"),
        ("buddyinfo", "Node 0, zone DMA 1\nNode 0, zone DMA 2\n",
         "line 2: zone DMA of node 0 appears a second"),
        ("stat", "cpu0 1 2 3 4 5 6 7\n", "line 1: is no line of all CPUs' times"),
        ("pressure_memory", "some total=1\n", "line 1: is no line of memory pressure"),
        ("vmstat", "", "no counter found"),
        ("vmstat", "pgfree\n", "line 1: is not a name and a value"),
        ("vmstat", "pgfree 1\npgfree 2\n", "line 2: pgfree appears a second time"),
        (READ_TIMES.name, "", "is not valid JSON"),
        (READ_TIMES.name, "[" * 100_000, "is not valid JSON"),
        (READ_TIMES.name, "[1, 2]", "is not a JSON object"),
        (READ_TIMES.name, '{"vmstat": [1]}', "'vmstat' has no two times in ns"),
        (READ_TIMES.name, '{"vmstat": [2, 1]}', "'vmstat' has no two times in ns"),
        (READ_TIMES.name, '{"vmstat": [-1, 1]}', "'vmstat' has no two times in ns"),
        (READ_TIMES.name, '{"vmstat": [true, 1]}', "'vmstat' has no two times in ns"),
        (READ_TIMES.name, '{"vmstat": [1, 9223372036854775808]}',
         "'vmstat' has no two times in ns"),
        ("zoneinfo", "", "no zone"),
        ("zoneinfo", "pages free 3\n", "line 1"),
    ],
)  # fmt: skip
def test_text_that_no_kernel_prints(name: str, text: str, message: str) -> None:
    with pytest.raises(RecordingError, match=message):
        PARSERS[name](text, Path(name))


@pytest.mark.parametrize(
    ("name", "old", "new", "message"),
    [
        ("pagetypeinfo", "Page block order: 9\n", "", "ends without 'Page block order:'"),
        ("pagetypeinfo", "Page block order: 9", "Page block order: nine", "'nine' is not a count"),
        ("pagetypeinfo", "type    Unmovable     49", "type    Unmovable",
         "line 5: has 10 counts for 11 orders"),
        ("pagetypeinfo", "DMA32           11 ", "DMA32 ",
         "line 15: has 3 counts for 4 migratetypes"),
        ("pagetypeinfo", ", type   HighAtomic", ", type       Purple",
         "counts no blocks of type Purple"),
        ("pagetypeinfo", "Free pages count", "Pages count", "is neither a header nor a zone's row"),
        ("pagetypeinfo", "type    Unmovable     49", "type    Unmovable 2147483649",
         "more than memory can have"),
        ("pagetypeinfo", ", type   HighAtomic", ", type      Movable",
         "is a row that was there before"),
        ("zoneinfo", "        min      2717", "        min      -3",
         "line 101: '-3' is not a count"),
        ("zoneinfo", "        min      2717\n", "", "line 98: zone Normal has no min"),
        ("zoneinfo", "              batch: 63\n  vm", "  vm", "zone DMA32, cpu 0 has no batch"),
        ("zoneinfo", "protection: (0, 950, 950)", "protection: 0", "is not a list of counts"),
        ("zoneinfo", "    cpu: 0\n", "", "count comes before any 'cpu:' line"),
        ("zoneinfo", "  node_unreclaimable:  0", "  node_unreclaimable",
         "is not a name and a value"),
    ],
)  # fmt: skip
def test_odd_lines_are_one_clear_error(name: str, old: str, new: str, message: str) -> None:
    text = sample("6.12", name)
    assert old in text
    with pytest.raises(RecordingError) as caught:
        PARSERS[name](text.replace(old, new, 1), f"RECORDING/{name}")
    assert message in str(caught.value) and f"RECORDING/{name}" in str(caught.value)


START = 0xFFFFFFFF81000000
FUNCTIONS = ("rmqueue_bulk", "_raw_spin_lock", "get_page_from_freelist", "alloc_pages", "do_fault")
LISTED = "".join(f"{START + 256 * n:x} t {name}\n" for n, name in enumerate(FUNCTIONS))
OTHERS = f"{START + 128:x} D data\n{START + (1 << 24):x} t far\t[ext4]\n"
TEXT = f"0000000000000000 A fixed\n{LISTED}{OTHERS}"


def at(function: str, offset: int = 8) -> int:
    return START + 256 * FUNCTIONS.index(function) + offset


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
