"""What a recording answers about the rules of its kernel, by findings."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pagealloc_model.measured import rule_findings
from pagealloc_model.measured.rule_findings import (
    ANSWERED,
    Answers,
    Finding,
    answer_findings,
    flush_chances,
)
from pagealloc_model.measured.rules import (
    Settings,
)
from pagealloc_model.policy.kernel_rules import KernelRules
from pagealloc_model.recording.recording import Recording, open_recording
from pagealloc_model.recording.trace.columns import Losses, Trace
from pagealloc_model.recording.zone_map import ZoneMap
from tests.event_text import EventText
from tests.measured.test_rules import FIRST, ZONES, drains
from tests.predicted.demand.test_demand import Script
from tests.small_recordings import (
    NORMAL,
    TimedEvents,
    shipped_recording,
    start_free,
    write_recording,
    write_snapshot,
)


def test_findings_are_of_rules_there_are() -> None:
    for recording in map(shipped_recording, ("xfree", "highatomic_stock")):
        assert {*Settings.of(recording).findings(), *ANSWERED} <= {*KernelRules.rule_names()}


def with_highs(directory: Path, highs: list[int]) -> Recording:
    """One snapshot a second; every list of CPU 0 and 1 has the same limit."""
    recording = write_recording(directory / "made", snapshots=False)
    for index, high in enumerate(highs):
        snapshot = write_snapshot(recording, (index + 1) * 10**9, start_free())
        file = snapshot / "zoneinfo"
        file.write_text(file.read_text().replace("high: 60", f"high: {high}"))
    return open_recording(recording)


def answered(recording: Recording, rule: str) -> bool | None:
    finding = getattr(Answers.of(recording), rule)()
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
    assert answered(recording, "pcp_auto_tuned") is tuned
    assert answered(recording, "pcp_decays") is decays


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
    assert answered(recording, "lists_match_blocks") is expected


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
    assert answered(open_recording(path), "high_order_flush_adds_half_high_min") is True
    lossy = open_recording(path)
    one = np.ones(1, np.int64)
    losses = Losses(cpu=one.astype(np.int16), start_ns=one, end_ns=one, count=one)
    lossy.__dict__["trace"] = replace(lossy.trace, losses=losses)
    assert answered(lossy, "high_order_flush_adds_half_high_min") is None


def test_findings_are_kept(tmp_path: Path) -> None:
    recording = with_highs(tmp_path, [240, 210, 184])
    assert answer_findings(recording) is answer_findings(recording)
    assert set(answer_findings(recording)) == {"pcp_auto_tuned", "pcp_decays"}


def finding_of(events: TimedEvents, directory: Path, cause: str = "commit") -> Finding | None:
    answers = Answers(events.trace(directory), ZONES)
    return answers.free_batched() if cause == "commit" else answers.decay_batched()


KWORKER = "kworker/0:1"


@pytest.mark.parametrize(
    ("drained", "cause", "expected"),
    [
        # A pause after every batch is a lock dropped, even steps are one hold; few prove nothing.
        ({"pause": 1}, "commit", True),
        ({}, "commit", False),
        ({"count": 20}, "commit", None),
        ({"pause": 1, "count": 2}, "commit", None),
        # Decay is told from overflow; drains of larger pages do not count.
        ({"pause": 1, "comm": KWORKER}, "decay", True),
        ({"pause": 1, "comm": KWORKER}, "commit", None),
        ({"pause": 1, "order": 1}, "commit", None),
    ],
)
def test_pauses_tell_whether_the_lock_is_dropped(
    drained: dict[str, Any], cause: str, expected: bool | None, tmp_path: Path
) -> None:
    finding = finding_of(drains(**drained), tmp_path, cause)
    assert (finding and finding.value) is expected
    if drained == {"pause": 1} and finding is not None:
        line = "commit drains: a step at 15 pages takes 2000 ns, elsewhere 1000-1000 ns"
        assert line in finding.line


@pytest.mark.parametrize(("count", "batched"), [(15, True), (16, False)])
def test_calls_say_how_many_pages_a_hold_frees(tmp_path: Path, count: int, batched: bool) -> None:
    events = TimedEvents()
    for _ in range(30):
        events.free(FIRST)
        events.event("pa:pcp_bulk_free", f"zone=0xff10 count={count} pindex=1")
        events.drained(FIRST)
    finding = finding_of(events, tmp_path)
    assert finding is not None
    assert finding.value is batched
    assert finding_of(events, tmp_path, "decay") is None
    assert Answers(events.trace(tmp_path), ZoneMap.of(None)).free_batched() is None


def test_a_few_calls_of_another_cause_change_nothing(tmp_path: Path) -> None:
    events = TimedEvents()
    for index in range(40):
        events.free(FIRST)
        events.event("pa:pcp_bulk_free", f"zone=0xff10 count={200 if index < 2 else 9} pindex=1")
    finding = finding_of(events, tmp_path)
    assert finding is not None
    assert finding.value is True
    assert "2 of 40" in finding.line


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
@pytest.mark.parametrize("flags", [0x201, 0x100])
def test_what_served_a_request_that_reserves(tmp_path: Path, announced: bool, flags: int) -> None:
    answers = Answers(reserving(tmp_path, announced=announced, flags=flags), ZONES)
    served, refilled = answers.highatomic_from_pcp(), answers.highatomic_refills_pcp()
    assert served is not None and served.value is not announced
    assert refilled is not None and refilled.value is (flags == 0x201)


def test_too_few_calls_prove_nothing(tmp_path: Path) -> None:
    answers = Answers(reserving(tmp_path, announced=True, times=5), ZONES)
    assert answers.highatomic_from_pcp() is None
    assert answers.highatomic_refills_pcp() is None


@pytest.mark.parametrize(
    ("blocks", "rounded"), [((1, 1, 1), True), ((0, 2, 2), False), ((0, 0, 1), None)]
)
def test_the_cap_is_where_the_reserve_stops(
    tmp_path: Path, blocks: tuple[int, ...], rounded: bool | None
) -> None:
    """Normal has 8192 managed pages: 1 % is 81, one block. Below it nothing is told."""
    recording = write_recording(tmp_path / "recording", snapshots=False)
    for index, count in enumerate(blocks):
        directory = write_snapshot(recording, 10**9 + index, start_free())
        file = directory / "pagetypeinfo"
        file.write_text(file.read_text().replace("Normal 1 15 0 0 0", f"Normal 1 14 0 {count} 0"))
    finding = Answers.of(open_recording(recording)).reserve_cap_rounded()
    assert (finding and finding.value) is rounded


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
    finding = Answers(text.trace(tmp_path), ZONES).fallback_from_largest()
    assert finding is not None
    assert finding.value is before


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("F20 f512^1 f514^1", (1, 0)),
        ("F20 f512^1 f514^1 d0", (1, 1)),
        # Below both thresholds, batch 15 and 45, and above them both kernels agree.
        ("F12 f512^1 f514^1", (0, 0)),
        ("F13 f512^1 f514^1", (1, 0)),
        ("F42 f512^1 f514^1", (1, 0)),
        ("F43 f512^1 f514^1", (0, 0)),
        # Allocations halve the count.
        ("F80 a0 a1 a2 f512^1 f514^1", (0, 0)),
        ("F112 a0 a1 a2 f512^1 f514^1", (1, 0)),
        # Another CPU's and a single page do not count as the one before; an empty list cannot
        # flush; a free inside an open batch does not reach the list.
        ("F20 f512^1 f90 f514^1 @1 f516^1", (0, 0)),
        ("F20 f512^1 D20 f514^1", (0, 0)),
        ("F20 f512^1 f100 f514^1 b100", (0, 0)),
        ("a0", (0, 0)),
    ],
)
def test_chances_to_flush(tmp_path: Path, script: str, expected: tuple[int, int]) -> None:
    assert flush_chances(Script(script, FIRST).trace(tmp_path), ZONES) == expected


@pytest.mark.parametrize(
    ("frees", "flushed", "expected"),
    [(100, 3, True), (100, 35, False), (100, 17, None), (19, 0, None)],
)
def test_shares_decide_only_where_they_are_clear(
    frees: int, flushed: int, expected: bool | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rule_findings, "flush_chances", lambda *_: (frees, flushed))
    answers = Answers(drains(count=1).trace(tmp_path), ZONES)
    finding = answers.high_order_flush_adds_half_high_min()
    assert (finding and finding.value) is expected
