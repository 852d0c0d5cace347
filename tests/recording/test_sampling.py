"""Recordings that perf sampled: rates and call stacks, and nothing that needs every event."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import pagealloc_model as pm
from pagealloc_model.base.errors import UsageError
from pagealloc_model.measured.call_stacks import call_stacks
from pagealloc_model.measured.measured import measure
from pagealloc_model.recording.provenance import REFUSED
from pagealloc_model.recording.trace.perf_file import AttrFlag, SampleType
from pagealloc_model.show.post import describe_recording, recording_text
from tests import synthetic_perf_data as perf
from tests.synthetic_perf_data import ALLOC, FREE

SECOND = 1_000_000_000


def sampled_recording(folder: Path, **alloc: object) -> pm.Recording:
    """Ten requests of order 0 and five of order 3, three frees; the first two kinds sampled."""
    attrs = [perf.attr_of(ALLOC, [1], **alloc), perf.attr_of(FREE, [2])]
    records = [
        perf.sample(
            attrs[0],
            ALLOC.raw(pfn=number, order=3 * (number >= 10), gfp_flags=0x20, migratetype=1),
            number=1,
            time=number * SECOND // 14,
        )
        for number in range(15)
    ]
    records += [
        perf.sample(attrs[1], FREE.raw(pfn=number, order=0), number=2, time=SECOND)
        for number in range(3)
    ]
    return pm.open(perf.write(folder / "perf.data", attrs, records))


def test_rates_are_scaled_by_the_period(tmp_path: Path) -> None:
    recording = sampled_recording(tmp_path, period=100)
    assert recording.trace.sampled == {"kmem:mm_page_alloc": 100}
    rates = describe_recording(recording)["sampled_rates"]
    rows = [(rate["event"], rate["order"], rate["migratetype"], rate["events"]) for rate in rates]
    assert rows == [
        ("kmem:mm_page_alloc", 0, 1, 1000),
        ("kmem:mm_page_alloc", 3, 1, 500),
        ("kmem:mm_page_free", 0, -1, 3),
    ]
    assert [rate["events_per_s"] for rate in rates] == [1000, 500, 3]
    assert [rate["error"] for rate in rates] == pytest.approx([100 * 10**0.5, 100 * 5**0.5, 0])
    text = recording_text(recording)
    assert "kmem:mm_page_alloc, order 3, type 1: 500 +- 224 events, 500 a second" in text


def test_samples_by_frequency_have_shares_alone(tmp_path: Path) -> None:
    recording = sampled_recording(tmp_path, period=4000, flags=perf.USUAL_FLAGS | AttrFlag.FREQ)
    assert recording.trace.sampled == {"kmem:mm_page_alloc": 0}
    (first, second, _) = describe_recording(recording)["sampled_rates"]
    assert (first["samples"], second["samples"], first["events"]) == (10, 5, None)
    assert "kmem:mm_page_alloc, order 3, type 1: 5 samples" in recording_text(recording)


def test_what_needs_every_event_is_refused(tmp_path: Path) -> None:
    recording = sampled_recording(tmp_path, period=100)
    for use in (pm.replay, measure):
        with pytest.raises(UsageError, match="kmem:mm_page_alloc: sampled, so that pages cannot"):
            use(recording)
    (check,) = (check for check in recording.provenance() if check.check == "sampled")
    assert (check.level, check.found) == (REFUSED, "kmem:mm_page_alloc: one of 100")


def test_call_stacks_count_what_samples_stand_for(tmp_path: Path) -> None:
    kind = perf.USUAL_SAMPLE | SampleType.CALLCHAIN
    attrs = [perf.attr_of(ALLOC, [1], period=50, sample_type=kind)]
    raw = ALLOC.raw(pfn=1, order=2, gfp_flags=0x20, migratetype=1)
    chain = np.array([(1 << 64) - 128, 0xFFFF_8000_0000_1000], np.uint64).tolist()
    records = [perf.sample(attrs[0], raw, number=1, time=time, chain=chain) for time in range(3)]
    path = perf.write(tmp_path / "perf.data", attrs, records)
    stacks = call_stacks(pm.open(path)).by_stack("kmem:mm_page_alloc")
    assert stacks[["events", "pages"]].to_numpy().tolist() == [[3, 3 * 50 * 4]]


def test_a_complete_recording_is_not_sampled(tmp_path: Path) -> None:
    recording = sampled_recording(tmp_path)
    assert recording.trace.sampled == {}
    assert describe_recording(recording)["sampled_rates"] == []
    assert not [check for check in recording.provenance() if check.check == "sampled"]
