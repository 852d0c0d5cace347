"""Pages are asked for before the events that free them, and nothing else comes of it."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import numba
import numpy as np
import pytest

from pagealloc_model.allocator import layout as at
from pagealloc_model.allocator.events import AHEAD, place_ahead, prefetch
from pagealloc_model.base import jit


def ahead_of(position: int, numbers: list[int], places: list[int]) -> int:
    """The place that is asked for at an event, of events on these objects."""
    events = np.zeros(len(numbers), at.EVENT)
    events["object"] = numbers
    plain = getattr(place_ahead, "py_func", place_ahead)
    machine = SimpleNamespace(places=np.array(places, np.int32))
    return int(plain(machine, events, position, len(events)))


def test_the_place_is_that_of_an_event_to_come() -> None:
    numbers = [0] * (AHEAD + 2)
    numbers[AHEAD + 1] = 1
    assert ahead_of(0, numbers, [70, 90]) == 70
    assert ahead_of(1, numbers, [70, 90]) == 90


def test_there_is_none_behind_the_last_event_and_of_no_object() -> None:
    assert ahead_of(2, [0] * (AHEAD + 2), [70]) == -1
    assert ahead_of(0, [-1] * (AHEAD + 1), [70]) == -1


@pytest.mark.skipif(bool(numba.config.DISABLE_JIT), reason="nothing is compiled")
@pytest.mark.parametrize("records", [np.dtype(np.int32), at.PAGE])
def test_asking_is_one_instruction_and_allows_any_index(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, records: np.dtype
) -> None:
    monkeypatch.setenv("PAGEALLOC_CACHE", str(tmp_path))

    def asked(pages: np.ndarray, index: int) -> int:
        prefetch(pages, index)
        return index

    loop = jit.entry(asked)
    pages = np.zeros(2, records)
    assert [loop(pages, index) for index in (0, -1, 1 << 40)] == [0, -1, 1 << 40]
    assert not pages.view(np.uint8).any()
    assert any("prefetch" in code for code in loop.inspect_asm().values())
