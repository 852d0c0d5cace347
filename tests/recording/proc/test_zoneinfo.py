"""zoneinfo of several kernels: zones, marks, lists."""

from __future__ import annotations

import pytest

from pagealloc_model.recording.proc.zoneinfo import ZoneInfo, ZoneInfoZone, parse_zoneinfo
from tests.recording.proc.samples_of import RELEASES, sample


def zone_of(info: ZoneInfo, name: str, node: int = 0) -> ZoneInfoZone:
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
    normal = zone_of(info, "Normal", node=1)
    assert (normal.start_pfn, normal.spanned) == (2359296, 2097152)
    assert normal.pagesets[3].count == 292
    assert normal.pagesets[3].high_min is None and normal.pagesets[3].high_max is None


def test_7_2_prints_watermarks_with_the_boost_added() -> None:
    normal = zone_of(parse_zoneinfo(sample("7.2", "zoneinfo")), "Normal")
    assert normal.boost == 512
    raw = [getattr(normal, name) - normal.boost for name in ("min", "low", "high")]
    assert raw == [2718, 3397, 4076]
