"""The deletion test: what the allocator answered can be cut out without moving a prediction."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from pagealloc_model.predicted.replay import Replay
from pagealloc_model.predicted.replay import replay as replay_recording
from pagealloc_model.recording.recorded_machine import start_snapshots
from pagealloc_model.recording.recording import Recording
from pagealloc_model.recording.trace.columns import COLUMN_TYPES, Event, Trace
from tests.small_recordings import ELASTIC, LITERAL, shipped_recording, shipped_replay

ANSWERS = (Event.ZONE_LOCKED, Event.PCPU_DRAIN, Event.EXTFRAG)
ANSWER_TABLES = (
    *("lock:", "pa:", "migrate:", "kmem:mm_page_alloc_extfrag"),
    *("kmem:mm_page_pcpu_refill", "kmem:mm_zone_lock"),
)
TABLES = (
    "free_pages",
    "pageblocks",
    "pcp",
    "lock",
    "transactions",
    "transactions_full",
    "fallbacks",
    "outcomes",
    "vmstat",
)
LITERALLY = ("kbuild", "xfree", "highatomic_stock", "highatomic_gate3")
ELASTICALLY = ("highatomic_stock", "highatomic_gate3")
"""Recordings whose kernels reclaimed."""


def without_answers(trace: Trace) -> Trace:
    """The trace without refills, drains, fallbacks, lock events and probes."""
    kept = ~np.isin(trace.event, [int(event) for event in ANSWERS])
    kept_before = np.concatenate([[0], np.cumsum(kept)])
    tables = {
        name: {**table, "row": kept_before[table["row"]]}
        for name, table in trace.tables.items()
        if not name.startswith(ANSWER_TABLES)
    }
    columns = {name: getattr(trace, name)[kept] for name in COLUMN_TYPES}
    return replace(trace, **columns, tables=tables, callchains=np.zeros(0, np.uint64))


def blinded(recording: Recording) -> Recording:
    """The recording without answers and without snapshots later than those of the start."""
    _, start = start_snapshots(recording)
    known = tuple(each for each in recording.snapshots if each.time_ns <= start.time_ns)
    copy = replace(recording, snapshots=known)
    copy.__dict__["trace"] = without_answers(recording.trace)  # where cached_property keeps it
    return copy


@pytest.fixture(
    scope="module",
    params=[*((name, LITERAL) for name in LITERALLY), *((name, ELASTIC) for name in ELASTICALLY)],
    ids=lambda case: f"{case[0]}-{case[1].reclaim}",
)
def both(request: pytest.FixtureRequest) -> tuple[Recording, Replay, Replay]:
    name, assumptions = request.param
    recording = shipped_recording(name)
    is_literal = assumptions == LITERAL
    full = shipped_replay(name) if is_literal else replay_recording(recording, assumptions=ELASTIC)
    return recording, full, replay_recording(blinded(recording), assumptions=assumptions)


def test_something_was_deleted(both: tuple[Recording, Replay, Replay]) -> None:
    recording, _, _ = both
    copy = blinded(recording)
    assert len(copy.trace) < len(recording.trace)
    assert len(copy.snapshots) < len(recording.snapshots)
    assert len(copy.trace.tables) < len(recording.trace.tables)


@pytest.mark.parametrize("name", TABLES)
def test_predicted_tables_are_bit_identical(
    both: tuple[Recording, Replay, Replay], name: str
) -> None:
    recording, full, blind = both
    _, start = start_snapshots(recording)
    deleted = [e.time_ns for e in recording.dated_snapshots if e.time_ns > start.time_ns]
    sighted = getattr(full, name)
    if name in ("free_pages", "pageblocks", "pcp", "vmstat"):
        sighted = sighted[~sighted["time_ns"].isin(deleted)].reset_index(drop=True)
    assert len(sighted) or name == "fallbacks"
    pd.testing.assert_frame_equal(getattr(blind, name), sighted, check_exact=True)


def test_the_rest_of_the_result_is_identical(both: tuple[Recording, Replay, Replay]) -> None:
    _, full, blind = both
    assert np.array_equal(full.places, blind.places)
    assert np.array_equal(full.log, blind.log)
    assert full.divergence == blind.divergence
    assert full.start_state == blind.start_state
    assert full.machine == blind.machine
    assert full.rules == blind.rules
    assert full.rules_origin == blind.rules_origin
    assert full.rule_evidence == blind.rule_evidence
    assert full.final is not None and blind.final is not None
    assert np.array_equal(full.final.st, blind.final.st)
    assert np.array_equal(full.final.pages, blind.final.pages)
