"""/proc/zoneinfo as four kernels print it, and what is refused."""

import pytest

from pagealloc_model.base.errors import RecordingError
from pagealloc_model.recording.proc.zoneinfo import ZoneInfo, ZoneInfoZone, parse_zoneinfo
from tests.recording.proc.samples_of import RELEASES, sample


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
    assert normal.promo is None and normal.reserved_highatomic is None
    assert normal.pagesets[3].count == 292
    assert normal.pagesets[3].high_min is None and normal.pagesets[3].high_max is None
    assert normal.vm_stats_threshold == 43
    assert zone(info, "DMA32").cma == 65536
    assert info.node_counters[1]["nr_inactive_anon"] == 30043


def test_6_12() -> None:
    dma32 = zone(parse_zoneinfo(sample("6.12", "zoneinfo")), "DMA32")
    assert (dma32.min, dma32.low, dma32.high, dma32.promo) == (8546, 10682, 12818, 14954)
    assert dma32.protection == (0, 950, 950)
    assert [pageset.count for pageset in dma32.pagesets] == [808, 48, 25, 13]
    assert dma32.reserved_highatomic is None


def test_6_18() -> None:
    info = parse_zoneinfo(sample("6.18", "zoneinfo"))
    assert [z.name for z in info.zones] == ["DMA", "DMA32", "Normal", "Movable", "Device"]
    normal = zone(info, "Normal")
    assert (normal.managed, normal.present) == (2654208, 5505024)
    assert normal.counters["nr_free_pages_blocks"] == 1689600
    first = normal.pagesets[0]
    assert (first.count, first.high, first.batch) == (28541, 33205, 63)
    assert (first.high_min, first.high_max, first.vm_stats_threshold) == (8168, 165888, 32)


def test_7_2_prints_watermarks_with_the_boost_added() -> None:
    normal = zone(parse_zoneinfo(sample("7.2", "zoneinfo")), "Normal")
    assert normal.boost == 512
    raw = [getattr(normal, name) - normal.boost for name in ("min", "low", "high", "promo")]
    assert raw == [2718, 3397, 4076, 4755]
    assert normal.reserved_highatomic is not None and normal.free_highatomic is not None


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("        min      2717", "        min      -3", "line 101: '-3' is not a count"),
        ("        min      2717\n", "", "line 98: zone Normal has no min"),
        ("              batch: 63\n  vm", "  vm", "zone DMA32, cpu 0 has no batch"),
        ("protection: (0, 950, 950)", "protection: 0", "is not a list of counts"),
        ("    cpu: 0\n", "", "count comes before any 'cpu:' line"),
        ("  node_unreclaimable:  0", "  node_unreclaimable", "is not a name and a value"),
    ],
)
def test_odd_text_is_one_clear_error(old: str, new: str, message: str) -> None:
    text = sample("6.12", "zoneinfo")
    assert old in text
    with pytest.raises(RecordingError) as caught:
        parse_zoneinfo(text.replace(old, new, 1), "RECORDING/zoneinfo")
    assert message in str(caught.value) and "RECORDING/zoneinfo" in str(caught.value)


@pytest.mark.parametrize("text", ["", "\n", "pages free 3\n"])
def test_text_without_zones_is_refused(text: str) -> None:
    with pytest.raises(RecordingError):
        parse_zoneinfo(text)
