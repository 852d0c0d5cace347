"""A guest's rounds from its first one: what is cut, and what is refused."""

from __future__ import annotations

import pytest
from pagealloc_model.notebooks.studies.round_trend import SIDES, rounds_from_the_first

import pagealloc_model as pm
from pagealloc_model.base.errors import UsageError


def test_only_the_first_round_is_read() -> None:
    """Requests of later rounds would ask for more huge pages than the first has."""
    recording = pm.open("mixed_6.1")
    first_ns = int(recording.trace.time_ns[0])
    begins = [first_ns, first_ns + 2_400_000_000, first_ns + 4_800_000_000]
    table = rounds_from_the_first(recording, begins, survivors=("stay",), seeds=(0,))
    assert list(table["side"].unique()) == list(SIDES)
    assert set(table["round"]) == {1, 2}
    whole = rounds_from_the_first(
        recording, [first_ns, int(recording.trace.time_ns[-1])], survivors=("stay",), seeds=(0,)
    )
    asked = table.set_index(["side", "round"])["huge_asked"]["vanilla", 1]
    assert 0 < asked < whole["huge_asked"].iloc[0]


def test_times_outside_the_recording_are_refused() -> None:
    recording = pm.open("mixed_6.1")
    last_ns = int(recording.trace.time_ns[-1])
    for begins in ([], [last_ns], [last_ns, last_ns + 1]):
        with pytest.raises(UsageError, match="give two times"):
            rounds_from_the_first(recording, begins)
