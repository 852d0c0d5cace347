"""Machine code takes indices as they are; compiled with checks, it refuses what it must not do."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numba
import numpy as np
import pytest
from pytest import MonkeyPatch

from pagealloc_model.base import jit
from tests.allocator.checked_replays import digests

pytestmark = pytest.mark.skipif(bool(numba.config.DISABLE_JIT), reason="nothing is compiled")

TABLE = np.array([2, 3, 5], np.int64)


def word_of(words: np.ndarray, index: int) -> int:
    return words[index]


def last_of_table() -> int:
    return TABLE[-1]


def compiled(tmp_path: Path, monkeypatch: MonkeyPatch, *, checked: bool) -> Any:
    """An entry point that reads one word through an inner function."""
    monkeypatch.setenv("PAGEALLOC_CACHE", str(tmp_path))
    monkeypatch.setattr(jit.options, "CHECKED", checked)
    read = jit.inner(word_of)

    def reading(words: np.ndarray, others: np.ndarray, index: int) -> int:
        return read(words, index) + read(others, 0)

    return jit.entry(reading)


@pytest.mark.parametrize("index", [-1, 3, 1 << 40])
def test_an_index_outside_its_array_is_refused(
    index: int, tmp_path: Path, monkeypatch: MonkeyPatch
) -> None:
    reading = compiled(tmp_path, monkeypatch, checked=True)
    words, others = np.arange(3), np.zeros(1, np.int64)
    assert reading(words, others, 2) == 2
    with pytest.raises(IndexError, match="out of bounds"):
        reading(words, others, index)


def test_arrays_that_overlap_are_refused(tmp_path: Path, monkeypatch: MonkeyPatch) -> None:
    reading = compiled(tmp_path, monkeypatch, checked=True)
    words = np.arange(3)
    with pytest.raises(ValueError, match="reading: two of its arrays overlap"):
        reading(words, words[1:], 0)


def test_without_checks_an_index_is_taken_as_it_is(
    tmp_path: Path, monkeypatch: MonkeyPatch
) -> None:
    """The word before the array, not the array's last one."""
    reading = compiled(tmp_path, monkeypatch, checked=False)
    words = np.arange(10, 14)
    assert reading(words[1:], np.zeros(1, np.int64), -1) == 10


def test_a_callers_function_may_count_from_the_end(
    tmp_path: Path, monkeypatch: MonkeyPatch
) -> None:
    monkeypatch.setenv("PAGEALLOC_CACHE", str(tmp_path))
    last = jit.guest(last_of_table)

    def asking(count: int) -> int:
        return last() + count

    assert jit.entry(asking)(1) == 6


@pytest.mark.long
def test_no_replay_leaves_an_array(checkout: Path) -> None:
    """Shipped recordings under several policies: nothing is refused, the outcome is the same."""
    checked = subprocess.run(
        [sys.executable, "-m", "tests.allocator.checked_replays"],
        cwd=checkout,
        env=os.environ | {"PAGEALLOC_CHECKED": "1", "PYTHONPATH": str(checkout)},
        capture_output=True,
        text=True,
    )
    assert checked.returncode == 0, checked.stderr
    assert checked.stdout.splitlines() == list(digests())
