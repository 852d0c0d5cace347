"""State files of the kernel: as four kernels print them, packed, and what of them is refused."""

from __future__ import annotations

import gzip
import lzma
from pathlib import Path

import numpy as np
import pytest
import zstandard

from pagealloc_model.base.errors import RecordingError
from pagealloc_model.base.files import chunks_of
from pagealloc_model.measured.call_stacks import waits_by_caller
from pagealloc_model.recording.machine import DEFAULT_MIGRATETYPES
from pagealloc_model.recording.proc import pages as page_owner
from pagealloc_model.recording.proc.counts import (
    format_read_times,
    parse_buddyinfo,
    parse_pagetypeinfo,
    parse_pressure,
    parse_read_times,
    parse_system_time,
    parse_vmstat,
    read_kallsyms,
)
from pagealloc_model.recording.proc.pages import BUDDY, NOPAGE, read_kpageflags, read_page_owner
from pagealloc_model.recording.proc.zoneinfo import ZoneInfo, ZoneInfoZone, parse_zoneinfo
from pagealloc_model.recording.recording import open_recording
from pagealloc_model.recording.trace.perf_file import SampleType
from pagealloc_model.show.post import describe_recording, recording_text
from tests import synthetic_perf_data as perf
from tests.recording.proc.samples_of import RELEASES, sample
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


@pytest.mark.parametrize("release", RELEASES)
def test_sums_of_buddyinfo_and_pagetypeinfo_agree(release: str) -> None:
    buddies = parse_buddyinfo(sample(release, "buddyinfo"))
    types = parse_pagetypeinfo(sample(release, "pagetypeinfo"))
    for zone in buddies.zones:
        rows = [r for r in types.free_lists if (r.node, r.zone) == (zone.node, zone.zone)]
        by_type = sum(n << order for row in rows for order, n in enumerate(row.buddies))
        assert by_type == pytest.approx(zone.free_pages, rel=0.01)


@pytest.mark.parametrize("release", RELEASES)
def test_all_rows_of_pagetypeinfo_are_read(release: str) -> None:
    text = sample(release, "pagetypeinfo")
    info = parse_pagetypeinfo(text)
    assert (info.pageblock_order, info.pages_per_block) == (9, 512)
    assert len(info.free_lists) == text.count(", type ")
    assert len(info.free_lists) == len(info.pageblocks) * len(info.migratetypes)


def test_labels_are_the_kernels_numbering() -> None:
    assert parse_pagetypeinfo(sample("6.12", "pagetypeinfo")).migratetypes == (
        "Unmovable",
        "Movable",
        "Reclaimable",
        "HighAtomic",
    )
    assert parse_pagetypeinfo(sample("6.1", "pagetypeinfo")).migratetypes[4:] == ("CMA", "Isolate")


def test_several_nodes_lower_bounds_and_mixed_blocks() -> None:
    info = parse_pagetypeinfo(sample("6.1", "pagetypeinfo"))
    assert {row.node for row in info.free_lists} == {0, 1}
    cut = [row for row in info.free_lists if any(row.lower_bound)]
    assert [(row.node, row.zone, row.migratetype) for row in cut] == [(0, "Normal", "Movable")]
    assert cut[0].buddies[0] == 100000 and cut[0].lower_bound == (True, *[False] * 10)
    assert not info.is_exact


def zone(info: ZoneInfo, name: str, node: int = 0) -> ZoneInfoZone:
    return next(z for z in info.zones if (z.name, z.node) == (name, node))


@pytest.mark.parametrize("release", RELEASES)
def test_every_zone_is_read_and_free_agrees_with_the_counter(release: str) -> None:
    text = sample(release, "zoneinfo")
    info = parse_zoneinfo(text)
    assert len(info.zones) == text.count(", zone ")
    for zone in info.zones:
        if zone.managed:
            assert zone.counters["nr_free_pages"] == zone.free
            assert zone.pagesets and zone.start_pfn is not None
        else:
            assert zone.pagesets == () and zone.start_pfn is None and zone.end_pfn is None


def test_6_1_has_no_automatic_high_and_no_promotion_mark() -> None:
    info = parse_zoneinfo(sample("6.1", "zoneinfo"))
    normal = zone(info, "Normal", node=1)
    assert (normal.start_pfn, normal.spanned) == (2359296, 2097152)
    assert normal.pagesets[3].count == 292
    assert normal.pagesets[3].high_min is None and normal.pagesets[3].high_max is None


def test_7_2_prints_watermarks_with_the_boost_added() -> None:
    normal = zone(parse_zoneinfo(sample("7.2", "zoneinfo")), "Normal")
    assert normal.boost == 512
    raw = [getattr(normal, name) - normal.boost for name in ("min", "low", "high")]
    assert raw == [2718, 3397, 4076]


@pytest.mark.parametrize("release", RELEASES)
def test_every_line_of_vmstat_is_one_counter(release: str) -> None:
    text = sample(release, "vmstat")
    stat = parse_vmstat(text)
    assert len(stat.values) == len(text.splitlines())
    assert stat.get("nr_free_pages") and stat.get("pgfree")


def test_times_that_are_written_are_read() -> None:
    times = {"buddyinfo": (5, 9), "zoneinfo": (9, 12)}
    assert parse_read_times(format_read_times(times), READ_TIMES) == times
    assert parse_read_times("{}", READ_TIMES) == {}


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


STACK = " post_alloc_hook+0x9c/0xc0\n get_page_from_freelist+0x11/0x1c0\n"
OLD = (
    "Page allocated via order 2, mask 0x52cc0(GFP_KERNEL|__GFP_NOWARN|__GFP_NORETRY|__GFP_COMP), "
    "pid 1, tgid 1 (swapper/0), ts 105 ns, free_ts 0 ns\n"
    "PFN 4096 type Unmovable Block 8 type Unmovable Flags 0x200(slab|node=0|zone=1)\n"
    f"{STACK}Slab cache page\n\n"
)
RECENT = (
    "Page allocated via order 0, mask 0x100cca(GFP_HIGHUSER_MOVABLE), pid 77, tgid 70 "
    "((sd-pam), x), ts 12345678901 ns\n"
    "PFN 0x1234 type Movable Block 9 type HighAtomic Flags 0x4a0(lru|mappedtodisk)\n"
    f"{STACK}Page has been migrated, last migrate reason: compaction\nCharged to memcg a.slice\n\n"
)
NAMELESS = (
    "Page allocated via order 0, mask 0x0(), pid -1, ts 3 ns\n"
    "PFN 7 type Reclaimable Block 0 type Reclaimable Flags 0x0()\n\n"
)


def write(directory: Path, text: str) -> Path:
    path = directory / "page_owner.txt"
    path.write_text(text)
    return path


def test_old_and_recent_kernels_are_read(tmp_path: Path) -> None:
    owner = read_page_owner(write(tmp_path, OLD + RECENT + NAMELESS))
    assert owner.pfn.tolist() == [4096, 0x1234, 7]
    assert owner.order.tolist() == [2, 0, 0]
    types = DEFAULT_MIGRATETYPES
    assert owner.types_as(types, owner.migratetype).tolist() == [0, 1, 2]
    assert owner.types_as(types, owner.block_migratetype).tolist() == [0, 3, 2]
    assert owner.types_as(("Unmovable",), owner.migratetype).tolist() == [0, -1, -1]
    assert (len(owner), owner.pages) == (3, 6)


@pytest.mark.parametrize(
    "pack", [str.encode, lambda text: gzip.compress(text.encode()),
             lambda text: lzma.compress(text.encode()),
             lambda text: zstandard.compress(text.encode())],
    ids=["plain", "gzip", "xz", "zstd"],
)  # fmt: skip
def test_every_compression_is_read(tmp_path: Path, pack: object) -> None:
    path = tmp_path / "page_owner.any"
    path.write_bytes(pack(OLD + RECENT))  # type: ignore[operator]
    assert read_page_owner(path).pfn.tolist() == [4096, 0x1234]


def test_pieces_join_to_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path, (OLD + RECENT + NAMELESS) * 20)
    whole = read_page_owner(path)
    for size in (1, 97, 600):
        monkeypatch.setattr("pagealloc_model.base.files.CHUNK", size)
        assert len(list(chunks_of(path))) == -(-path.stat().st_size // size)
        monkeypatch.setattr(page_owner, "CHUNK", 1 << 20)
        again = read_page_owner(path)
        assert again.pfn.tolist() == whole.pfn.tolist()
        assert again.order.tolist() == whole.order.tolist()


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("hello\n", 1),
        (OLD + RECENT.replace("PFN", "PNF"), 7),
        (OLD + RECENT.replace("0x1234", "0x1234567890"), 7),
        (OLD.replace("PFN 4096", "PFN 4097") + RECENT, 1),
        (OLD + RECENT.replace("order 0", "order 15"), 7),
        (OLD + RECENT[:60], 7),
        (OLD + RECENT[:150], 7),
        (OLD + RECENT.replace("ts 12345678901", "ts " + "9" * 30), 7),
        (OLD * 3 + RECENT.replace("mask 0x100cca", "mask"), 19),
    ],
)
def test_odd_text_is_refused_with_its_line(tmp_path: Path, text: str, line: int) -> None:
    path = write(tmp_path, text)
    with pytest.raises(RecordingError) as caught:
        read_page_owner(path)
    assert str(caught.value).startswith(f"{path}: line {line}: ")
    assert "\n" not in str(caught.value)


def test_an_empty_file_asks_for_page_owner(tmp_path: Path) -> None:
    with pytest.raises(RecordingError, match="page_owner=on"):
        read_page_owner(write(tmp_path, ""))


def write_flags(path: Path, content: bytes) -> Path:
    with gzip.open(path, "wb") as file:
        file.write(content)
    return path


def test_words_are_little_endian_by_page_frame(tmp_path: Path) -> None:
    words = np.array([NOPAGE, BUDDY, 0, 1 << 32], np.uint64)
    flags = read_kpageflags(write_flags(tmp_path / "flags.gz", words.astype("<u8").tobytes()))
    assert flags.dtype == np.uint64
    assert flags.tolist() == words.tolist()
    assert (flags & BUDDY != 0).tolist() == [False, True, False, False]


def test_files_that_are_refused(tmp_path: Path) -> None:
    path = write_flags(tmp_path / "flags.gz", np.arange(9999, dtype="<u8").tobytes())
    for content, problem in (
        (gzip.compress(bytes(11)), r"offset 8: holds 11 bytes"),
        (path.read_bytes()[:-900], "not an intact gzip"),
        (b"no gzip at all", "not an intact gzip"),
    ):
        path.write_bytes(content)
        with pytest.raises(RecordingError, match=problem):
            read_kpageflags(path)
    with pytest.raises(RecordingError, match="cannot be read"):
        read_kpageflags(tmp_path / "none.gz")


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
