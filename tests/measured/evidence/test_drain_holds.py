"""Whether drains drop the lock: from the bulk free's calls, and from pauses between pages."""

from pathlib import Path

import pytest

from pagealloc_model.measured import rule_findings as drain_holds
from pagealloc_model.measured.rule_findings import Finding
from pagealloc_model.measured.stream import allocator_stream
from pagealloc_model.recording.proc.zoneinfo import parse_zoneinfo
from pagealloc_model.recording.zone_map import ZoneMap
from tests.small_recordings import NORMAL, TimedEvents, start_free, zoneinfo_text

ZONES = ZoneMap.of(parse_zoneinfo(zoneinfo_text(start_free(), {})))
BATCH = int(ZONES.batches()[0])
FIRST = NORMAL.first_free
DRAINS, PAGES = 40, 150
"""Nine steps at a multiple of the batch in each drain."""


def drains(
    *, pause: int = 0, comm: str = "task", count: int = DRAINS, order: int = 0
) -> TimedEvents:
    """Drains that follow a free, or that a kworker does out of the blue."""
    events = TimedEvents()
    events.on(cpu=0, pid=7, comm=comm)
    for _ in range(count):
        if comm == "task":
            events.free(FIRST)
        else:
            events.wait(5_000).on(cpu=0, pid=8, comm="task").free(FIRST)
            events.on(cpu=0, pid=7, comm=comm)
        for page in range(PAGES):
            if page and page % BATCH == 0:
                events.wait(pause)
            events.drained(FIRST + page, order=order)
    return events


def found(events: TimedEvents, directory: Path, cause: str = "commit") -> Finding | None:
    trace = events.trace(directory)
    stream = allocator_stream(trace, with_probes=True)
    if drain_holds.PROBE in trace.tables:
        return drain_holds.by_calls(stream, trace, BATCH, cause)
    return drain_holds.by_pauses(drain_holds.drain_steps(stream, ZONES, trace.comms), cause)


def test_a_pause_after_every_batch_is_a_lock_dropped(tmp_path: Path) -> None:
    finding = found(drains(pause=1), tmp_path)
    assert finding is not None
    assert finding.value is True
    assert "commit drains: a step at 15 pages takes 2000 ns, elsewhere 1000-1000 ns" in finding.line


def test_even_steps_are_one_hold(tmp_path: Path) -> None:
    finding = found(drains(), tmp_path)
    assert finding is not None
    assert finding.value is False


def test_few_even_steps_prove_nothing(tmp_path: Path) -> None:
    assert found(drains(count=20), tmp_path) is None
    assert found(drains(pause=1, count=2), tmp_path) is None


def test_decay_is_told_from_overflow(tmp_path: Path) -> None:
    events = drains(pause=1, comm="kworker/0:1")
    finding = found(events, tmp_path, "decay")
    assert finding is not None
    assert finding.value is True
    assert found(events, tmp_path, "commit") is None


def test_drains_of_larger_pages_do_not_count(tmp_path: Path) -> None:
    assert found(drains(pause=1, order=1), tmp_path) is None


@pytest.mark.parametrize(("count", "batched"), [(BATCH, True), (2 * BATCH, False)])
def test_calls_say_how_many_pages_a_hold_frees(tmp_path: Path, count: int, batched: bool) -> None:
    events = TimedEvents()
    for _ in range(30):
        events.free(FIRST)
        events.event("pa:pcp_bulk_free", f"zone=0xff10 count={count} pindex=1")
        events.drained(FIRST)
    finding = found(events, tmp_path)
    assert finding is not None
    assert finding.value is batched
    assert found(events, tmp_path, "decay") is None


def test_a_few_calls_of_another_cause_change_nothing(tmp_path: Path) -> None:
    events = TimedEvents()
    for index in range(40):
        events.free(FIRST)
        events.event("pa:pcp_bulk_free", f"zone=0xff10 count={200 if index < 2 else 9} pindex=1")
    finding = found(events, tmp_path)
    assert finding is not None
    assert finding.value is True
    assert "2 of 40" in finding.line
