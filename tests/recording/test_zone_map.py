"""Zones of page frames, by zoneinfo."""

from __future__ import annotations

import numpy as np

from pagealloc_model.recording.proc.zoneinfo import parse_zoneinfo
from pagealloc_model.recording.zone_map import UNKNOWN_ZONE, ZoneMap
from tests.recording.proc.samples_of import sample


def test_codes_follow_start_and_span() -> None:
    zones = ZoneMap.of(parse_zoneinfo(sample("6.1", "zoneinfo")))
    names = [(zone.node, zone.name) for zone in zones.zones]
    assert names == [(0, "DMA"), (0, "DMA32"), (0, "Normal"), (1, "Normal")]
    pfn = np.array([0, 1, 4095, 4096, 1048575, 1048576, 2359295, 2359296, 4456447, 4456448, -1])
    unknown = UNKNOWN_ZONE
    assert zones.codes(pfn).tolist() == [unknown, 0, 0, 1, 1, 2, 2, 3, 3, unknown, unknown]
    assert not zones.overlaps
    assert zones.batches().tolist() == [1, 63, 63, 63, 63]


def test_without_zoneinfo_every_zone_is_unknown() -> None:
    zones = ZoneMap.of(None)
    assert zones.codes(np.array([1, 2])).tolist() == [UNKNOWN_ZONE] * 2
    assert zones.batches().tolist() == [63]
    assert not zones.overlaps
