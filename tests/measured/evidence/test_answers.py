"""Rules shown by later snapshots and drained types; findings kept per recording."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from pagealloc_model.measured.rule_findings import ANSWER_FINDERS, Answers, answer_findings
from pagealloc_model.recording.recording import Recording, open_recording
from pagealloc_model.recording.trace.columns import Losses
from tests.small_recordings import NORMAL, TimedEvents, start_free, write_recording, write_snapshot


def with_highs(directory: Path, highs: list[int]) -> Recording:
    """One snapshot a second; every list of CPU 0 and 1 has the same limit."""
    recording = write_recording(directory / "made", snapshots=False)
    for index, high in enumerate(highs):
        made = write_snapshot(recording, (index + 1) * 10**9, start_free())
        file = made / "zoneinfo"
        file.write_text(file.read_text().replace("high: 60", f"high: {high}"))
    return open_recording(recording)


def value(recording: Recording, rule: str) -> bool | None:
    finding = ANSWER_FINDERS[rule](Answers(recording))
    return None if finding is None else finding.value


@pytest.mark.parametrize(
    ("highs", "tuned", "decays"),
    [
        ([240, 210, 184], True, True),
        ([240, 211, 186], True, None),
        ([60, 60, 60], None, None),
        ([60, 240, 60], None, None),
    ],
)
def test_limits_that_move(
    tmp_path: Path, highs: list[int], tuned: bool | None, decays: bool | None
) -> None:
    recording = with_highs(tmp_path, highs)
    assert value(recording, "pcp_auto_tuned") is tuned
    assert value(recording, "pcp_decays") is decays


@pytest.mark.parametrize(
    ("pages", "used", "expected"), [(10, False, True), (9, False, None), (10, True, None)]
)
def test_drains_that_see_the_reserve(
    tmp_path: Path, pages: int, used: bool, expected: bool | None
) -> None:
    """S5.6: pages freed since they were refilled show nothing, 6.1 drains those alike."""
    events = TimedEvents()
    listed = range(0x100, 0x100 + pages)
    events.locked(*listed)
    for pfn in listed if used else ():
        events.alloc(pfn)
        events.free(pfn)
    events.drained(*listed, migratetype=3)
    events.alloc(0x500)
    recording = open_recording(write_recording(tmp_path / "made", events))
    assert value(recording, "lists_match_blocks") is expected


def test_flushes_count_only_where_nothing_was_lost(tmp_path: Path) -> None:
    events = TimedEvents()
    for cpu in (0, 1):
        events.on(cpu=cpu)
        first = NORMAL.first_free + 1024 * cpu
        for page in range(20):
            events.free(first + page)
        for pair in range(13):
            events.free(first + 512 + 2 * pair, order=1)
    path = write_recording(tmp_path / "made", events)
    assert value(open_recording(path), "high_order_flush_adds_half_high_min") is True
    lossy = open_recording(path)
    one = np.ones(1, np.int64)
    losses = Losses(cpu=one.astype(np.int16), start_ns=one, end_ns=one, count=one)
    lossy.__dict__["trace"] = replace(lossy.trace, losses=losses)
    assert value(lossy, "high_order_flush_adds_half_high_min") is None


def test_findings_are_kept(tmp_path: Path) -> None:
    recording = with_highs(tmp_path, [240, 210, 184])
    assert answer_findings(recording) is answer_findings(recording)
    assert set(answer_findings(recording)) == {"pcp_auto_tuned", "pcp_decays"}
