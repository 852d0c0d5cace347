"""Rules that sysctls, zoneinfo and the event format show before the first event."""

from pathlib import Path

import pytest

from pagealloc_model.measured.rules import Settings
from pagealloc_model.recording.proc.zoneinfo import ZoneInfoZone, parse_zoneinfo
from pagealloc_model.recording.recording import open_recording
from tests.recording.proc.samples_of import sample
from tests.small_recordings import start_free, write_recording, zoneinfo_text


def zones_of(text: str) -> tuple[ZoneInfoZone, ...]:
    return tuple(zone for zone in parse_zoneinfo(text).zones if zone.managed)


def value(settings: Settings, rule: str) -> bool | None:
    finding = settings.findings().get(rule)
    return None if finding is None else finding.value


def test_printed_bounds_show_auto_tuning() -> None:
    zones = zones_of(zoneinfo_text(start_free(), {}))
    assert value(Settings(zones=zones), "pcp_auto_tuned") is True


def test_limits_that_differ_by_cpu_show_auto_tuning() -> None:
    lines = [line for line in zoneinfo_text(start_free(), {}).splitlines() if "high_m" not in line]
    assert value(Settings(zones=zones_of("\n".join(lines))), "pcp_auto_tuned") is None
    last = max(index for index, line in enumerate(lines) if "high: 60" in line)
    lines[last] = lines[last].replace("60", "90")
    finding = Settings(zones=zones_of("\n".join(lines))).findings().get("pcp_auto_tuned")
    assert finding is not None
    assert finding.line == "pcp->high of zone Normal is 60 to 90 by CPU"


@pytest.mark.parametrize("rule", ["fallback_from_largest", "lists_match_blocks"])
def test_defrag_mode_shows_the_fallback_rule(rule: str) -> None:
    expected = rule == "lists_match_blocks"
    assert value(Settings(sysctls={"defrag_mode": "0"}), rule) is expected
    assert value(Settings(sysctls={"defrag_mode": None}), rule) is None
    printed = zoneinfo_text(start_free(), {}).replace(
        "  pagesets", "      nr_free_pages_blocks 512\n  pagesets"
    )
    assert value(Settings(zones=zones_of(printed)), rule) is expected


@pytest.mark.parametrize(("low", "capped"), [(128, True), (129, False)])
def test_the_movable_zones_watermark(low: int, capped: bool) -> None:
    text = zoneinfo_text(start_free(), {}).replace(" Movable", "  Device")
    text = text.replace("  Normal", " Movable")
    for mark, value_printed in (("min ", 64), ("low ", 80), ("high", 96)):
        text = text.replace(f"        {mark}     {value_printed}", f"        {mark}     {low}")
    zones = zones_of(text)
    assert value(Settings(zones=zones), "movable_min_capped") is capped
    assert value(Settings(), "movable_min_capped") is None


def test_the_flag_of_atomic_requests() -> None:
    names = frozenset({"__GFP_HIGH"})
    assert value(Settings(gfp_names=names), "boost_retry_by_high") is True
    assert value(Settings(gfp_names=names | {"__GFP_ATOMIC"}), "boost_retry_by_high") is False
    assert value(Settings(), "boost_retry_by_high") is None


def test_a_recording_without_anything_shows_nothing(tmp_path: Path) -> None:
    recording = open_recording(write_recording(tmp_path / "made", snapshots=False))
    assert Settings.of(recording).findings() == {}


def test_an_old_zoneinfo_denies_nothing() -> None:
    settings = Settings(zones=zones_of(sample("6.1", "zoneinfo")))
    assert value(settings, "pcp_auto_tuned") in (None, True)
    assert value(settings, "fallback_from_largest") is None
