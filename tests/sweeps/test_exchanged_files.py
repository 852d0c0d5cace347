"""A finished point is of the bytes that were read: no recording gets another's numbers."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import pagealloc_model as pm
from pagealloc_model.recording.importing import import_recording
from pagealloc_model.sweeps.design import Settings
from pagealloc_model.sweeps.records import named_recording, recording_digest, replayed_point
from tests.recording.rewritten_store import rewrite
from tests.small_recordings import write_recording

DATA = Path(__file__).parents[2] / "data"


@pytest.fixture
def two(tmp_path: Path) -> tuple[Path, Path]:
    first, second = write_recording(tmp_path / "first"), tmp_path / "second"
    shutil.copytree(first, second)
    content = (second / "perf.data").read_text()
    (second / "perf.data").write_text(content.replace("order=0", "order=1"))
    assert (second / "perf.data").read_text() != content
    return first, second


@pytest.mark.parametrize("is_read", [False, True])
def test_events_exchanged_behind_an_open_recording_are_refused(
    two: tuple[Path, Path], is_read: bool
) -> None:
    """A digest taken before, or after, is not that of the events."""
    first, second = two
    recording = pm.open(first)
    named = named_recording(recording)
    if is_read:
        _ = recording.trace
    shutil.copy(second / "perf.data", first / "perf.data")
    with pytest.raises(pm.RecordingError, match="changed or exchanged since"):
        named_recording(recording)
    settings = Settings()
    with pytest.raises(pm.RecordingError, match="changed or exchanged since"):
        replayed_point(recording, settings)
    with pytest.raises(pm.RecordingError, match="has changed since the sweep began"):
        replace(named, recording=None).opened()


def test_a_store_that_claims_to_be_another_recording_has_its_own_digest(tmp_path: Path) -> None:
    """Its header is a stranger's; finished points are named by the bytes that lie there."""
    digests = set()
    for number, name in enumerate(("mixed_6.1", "xfree")):
        store = import_recording(DATA / name, tmp_path / f"{number}").path

        def claim(header: dict[str, Any]) -> None:
            header["source"]["sha256"] = "0" * 64

        rewrite(store / "events.arrow", header=claim)
        recording = pm.open(store)
        assert recording.sha256 == "0" * 64
        digests.add(recording_digest(recording))
    assert len(digests) == 2
