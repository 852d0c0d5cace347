"""State files of /proc as four kernels print them, and what of them is refused."""

from pathlib import Path

import pytest

from pagealloc_model.base.errors import RecordingError
from pagealloc_model.recording.proc.counts import (
    format_read_times,
    parse_buddyinfo,
    parse_pagetypeinfo,
    parse_read_times,
    parse_vmstat,
)
from pagealloc_model.recording.proc.zoneinfo import ZoneInfo, ZoneInfoZone, parse_zoneinfo
from tests.recording.proc.samples_of import RELEASES, sample

READ_TIMES = Path("read_ns.json")
PARSERS = {
    "buddyinfo": parse_buddyinfo,
    "pagetypeinfo": parse_pagetypeinfo,
    "vmstat": parse_vmstat,
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
    for each in info.zones:
        if each.managed:
            assert each.counters["nr_free_pages"] == each.free
            assert each.pagesets and each.start_pfn is not None
        else:
            assert each.pagesets == () and each.start_pfn is None and each.end_pfn is None


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
