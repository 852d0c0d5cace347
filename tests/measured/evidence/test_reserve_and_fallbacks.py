"""The highatomic reserve's rules from kprobes and blocks; the fallback rule from event order."""

from pathlib import Path

import pytest

from pagealloc_model.measured import rule_findings as fallback_events
from pagealloc_model.measured import rule_findings as highatomic_calls
from pagealloc_model.measured.rule_findings import Finding
from pagealloc_model.measured.stream import allocator_stream
from pagealloc_model.recording.recording import open_recording
from pagealloc_model.recording.trace.columns import Trace
from tests.event_text import EventText
from tests.small_recordings import start_free, write_recording, write_snapshot

PFN = 0x10000


def reserving(directory: Path, *, announced: bool, flags: int = 0, times: int = 30) -> Trace:
    """Requests that try to reserve, their page just taken from the buddy or not."""
    text = EventText()
    for index in range(times):
        text.event(
            "pa:pcp_bulk_alloc", f"zone=0xff order=1 count=31 mt=0 flags={flags if index else 0:#x}"
        )
        if announced:
            text.locked(PFN + 2 * index, order=1)
        text.event("pa:ha_reserve", "order=1 zone=0xff")
        text.alloc(PFN + 2 * index, order=1, gfp="GFP_ATOMIC")
    return text.trace(directory)


@pytest.mark.parametrize("announced", [True, False])
def test_what_served_a_request_that_reserves(tmp_path: Path, announced: bool) -> None:
    trace = reserving(tmp_path, announced=announced)
    stream = allocator_stream(trace, with_probes=True)
    finding = highatomic_calls.reserve_after_list(stream, trace.tables)
    assert finding is not None
    assert finding.value is not announced


@pytest.mark.parametrize("flags", [0x201, 0x100])
def test_refills_for_requests_that_may_reserve(tmp_path: Path, flags: int) -> None:
    trace = reserving(tmp_path, announced=True, flags=flags)
    finding = highatomic_calls.refills_for_highatomic(trace.tables)
    assert finding is not None
    assert finding.value is (flags == 0x201)


def test_too_few_calls_prove_nothing(tmp_path: Path) -> None:
    trace = reserving(tmp_path, announced=True, times=5)
    stream = allocator_stream(trace, with_probes=True)
    assert highatomic_calls.reserve_after_list(stream, trace.tables) is None
    assert highatomic_calls.refills_for_highatomic(trace.tables) is None
    assert highatomic_calls.reserve_after_list(stream, {}) is None


@pytest.mark.parametrize(("blocks", "rounded"), [((1, 1, 1), True), ((0, 2, 2), False)])
def test_the_cap_is_where_the_reserve_stops(
    tmp_path: Path, blocks: tuple[int, ...], rounded: bool
) -> None:
    finding = cap_of(tmp_path, blocks)
    assert finding is not None
    assert finding.value is rounded


def test_a_reserve_below_its_cap_proves_nothing(tmp_path: Path) -> None:
    assert cap_of(tmp_path, (0, 0, 1)) is None


def cap_of(tmp_path: Path, blocks: tuple[int, ...]) -> Finding | None:
    """Normal has 8192 managed pages: 1 % is 81, one block."""
    recording = write_recording(tmp_path / "recording", snapshots=False)
    for index, count in enumerate(blocks):
        directory = write_snapshot(recording, 10**9 + index, start_free())
        file = directory / "pagetypeinfo"
        file.write_text(file.read_text().replace("Normal 1 15 0 0 0", f"Normal 1 14 0 {count} 0"))
    return highatomic_calls.cap(open_recording(recording).snapshots)


@pytest.mark.parametrize("before", [True, False])
def test_the_fallback_rule_shows_in_the_order_of_events(tmp_path: Path, before: bool) -> None:
    text = EventText()
    for index in range(12):
        pfn = PFN + 512 * index
        if before:
            text.fallback(pfn, found=4, owned=1)
            text.locked(pfn)
        elif index % 2:
            text.locked(pfn)
            text.fallback(pfn, found=4, owned=1)
        else:
            text.fallback(pfn, found=9, owned=1)
            text.locked(pfn + 1)
        text.alloc(pfn)
    stream = allocator_stream(text.trace(tmp_path), with_probes=True)
    finding = fallback_events.generation(stream)
    assert finding is not None
    assert finding.value is before
    assert fallback_events.generation(stream.take(slice(0, 12))) is None
