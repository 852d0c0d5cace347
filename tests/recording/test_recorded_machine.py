"""The machine of a recording: its watermarks and reserves computed again."""

from __future__ import annotations

from pathlib import Path

import pytest

import pagealloc_model as pm
from pagealloc_model.policy.policy import Policy
from pagealloc_model.recording.recorded_machine import recorded_machine
from tests.recording.test_machine import NEWEST, reserves
from tests.small_recordings import TimedEvents, shipped_recording, write_recording


@pytest.mark.parametrize("name", ["kbuild", "xfree", "highatomic_stock", "highatomic_gate3"])
def test_recomputing_with_the_recorded_inputs_gives_the_recorded_watermarks(name: str) -> None:
    """Up to the pages that the zone gained after the kernel had computed them at boot."""
    recording = shipped_recording(name)
    machine = recorded_machine(recording)
    sysctl = recording.meta["sysctl"]
    policy = Policy(
        min_free_kbytes=int(sysctl["min_free_kbytes"]),
        watermark_scale_factor=int(sysctl["watermark_scale_factor"]),
    )
    for zone, recorded in zip(
        machine.with_watermarks(policy, NEWEST).zones, machine.zones, strict=True
    ):
        if recorded.managed:
            watermarks = (recorded.min, recorded.low, recorded.high)
            assert (zone.min, zone.low, zone.high) == pytest.approx(watermarks, rel=1e-3, abs=1)


@pytest.mark.parametrize("name", ["kbuild", "xfree", "highatomic_stock", "matrix_A1"])
def test_mainline_s_ratios_give_the_recorded_reserves(name: str) -> None:
    """Up to the pages that zones above gained after the kernel had computed them."""
    machine = recorded_machine(shipped_recording(name))
    ratios = {"DMA": 256, "DMA32": 256, "Normal": 32}
    words = " ".join(str(ratios.get(name, 0)) for name in machine.zone_types)
    values = reserves(machine.with_lowmem_reserve(Policy(lowmem_reserve_ratio=words)))
    for value, theirs in zip(values, reserves(machine), strict=True):
        assert value == pytest.approx(theirs, rel=2e-3, abs=1)


def test_a_machine_without_snapshots_is_made_of_events_where_asked_for(tmp_path: Path) -> None:
    events = TimedEvents()
    events.alloc((1 << 20) + 7)
    recording = pm.open(write_recording(tmp_path / "bare", events, snapshots=False))
    with pytest.raises(pm.UsageError, match="no snapshot with a usable zoneinfo"):
        recorded_machine(recording)
    machine = recorded_machine(recording, by_events=True)
    assert [(zone.name, zone.end_pfn) for zone in machine.zones] == [
        ("DMA32", 1 << 20),
        ("Normal", (1 << 20) + 1024),
    ]
    shipped = shipped_recording("xfree")
    assert recorded_machine(shipped, by_events=True) == recorded_machine(shipped)
