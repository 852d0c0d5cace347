"""Kernels that are lowered in short ways and call one another directly do what Python does."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numba
import numpy as np
import pytest

from pagealloc_model.base import jit
from pagealloc_model.base.jit import cold, entry, guest, hot, inner

pytestmark = [
    pytest.mark.skipif(bool(numba.config.DISABLE_JIT), reason="nothing is compiled"),
    pytest.mark.skipif(jit.PLAIN, reason="numba compiles in its own way"),
]

RECORD = np.dtype([("next", np.int32), ("order", np.int8), ("word", np.int64)])


class Arrays(NamedTuple):
    """What most of these kernels take."""

    records: np.ndarray
    words: np.ndarray
    table: np.ndarray
    flags: np.ndarray
    factor: int


def arrays() -> Arrays:
    """Small arrays with different values."""
    records = np.zeros(5, RECORD)
    for place in range(5):
        records[place] = (place + 1, -place, place << 40)
    table = np.arange(12).reshape(3, 4) * 7
    flags = np.array([True, False, True])
    return Arrays(records, np.arange(100, 110), table, flags, 3)


@hot
def at_column(table: np.ndarray, row: int, column: int) -> int:
    """An element, plus the table's lengths."""
    return table[row, column] + 1000 * table.shape[0] + 10000 * table.shape[1]


@inner
def two(m: Arrays, place: int) -> tuple[int, bool]:
    """A record's word and a flag."""
    return int(m.records[place]["word"]) + m.factor, m.flags[place]


@cold
def changed(m: Arrays, place: int, by: int = 5) -> None:
    """Write one of each."""
    m.records[place]["order"] += by
    m.words[place] = m.records[place]["order"] + int(m.flags[place])
    m.table[place, place] -= by
    m.flags[place] = not m.flags[place]


@inner
def summed(words: np.ndarray, first: int) -> int:
    """Every second element from one on, and how many there are."""
    total = 0
    for place in range(first, len(words), 2):
        value = words[place]
        if value > 104:
            total += value
            continue
        first = place
        total -= first
    for more in (first, total):
        total += more & 3
    return total


@inner
def stepped(words: np.ndarray, step: int) -> int:
    """Elements a step apart: a range refuses the step 0."""
    total = 0
    for place in range(0, 10, step):
        total += words[place]
    return total


@inner
def one(words: np.ndarray) -> int:
    """The second element."""
    return words[1]


@inner
def applied(m: Arrays, function: Callable[[np.ndarray], int]) -> int:
    """What a function makes of the words."""
    return function(m.words)


@entry
def everything(m: Arrays, small: np.ndarray) -> tuple[int, ...]:
    """Call all of them."""
    word, flag = two(m, 2)
    changed(m, 1)
    changed(m, by=small[0], place=2)
    found = at_column(m.table, 1, small[1]) + at_column(m.table, 2, 2)
    return word, int(flag), found, summed(m.words, 1), stepped(m.words, 3), applied(m, one)


@entry
def steps(words: np.ndarray, step: int) -> int:
    """The kernel that may raise, through one that does not."""
    return stepped(words, step)


def python_of(m: Arrays, small: np.ndarray) -> tuple[int, ...]:
    """The same in Python."""
    word, flag = two.py_func(m, 2)
    changed.py_func(m, 1)
    changed.py_func(m, by=small[0], place=2)
    found = at_column.py_func(m.table, 1, small[1]) + at_column.py_func(m.table, 2, 2)
    return (
        word,
        int(flag),
        found,
        summed.py_func(m.words, 1),
        stepped.py_func(m.words, 3),
        one.py_func(m.words),
    )


@guest
def refused(value: int) -> int:
    """A caller's function, which may raise."""
    if value > 3:
        raise ValueError("too large")
    return value


@inner
def through(value: int) -> int:
    """A kernel that calls it."""
    return refused(value) + 1


@entry
def guests(value: int) -> int:
    """A kernel that calls that."""
    return through(value)


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PAGEALLOC_CACHE", str(tmp_path))


def is_direct(function: object) -> bool:
    """Whether kernels call a function directly, for all types it was compiled for."""
    (way,) = {made.library.direct for made in function.overloads.values()}  # type: ignore[attr-defined]
    return bool(way)


def test_kernels_do_what_python_does() -> None:
    compiled, plain = arrays(), arrays()
    small = np.array([2, 3], np.int16)
    assert everything(compiled, small) == python_of(plain, small)
    for ours, theirs in zip(compiled[:4], plain[:4], strict=True):
        np.testing.assert_array_equal(ours, theirs)
    for function in (at_column, two, changed, summed, applied, one):
        assert is_direct(function) is not jit.CHECKED


def test_what_may_raise_is_called_so_that_it_can() -> None:
    words = np.arange(10)
    assert steps(words, 4) == 0 + 4 + 8
    with pytest.raises(ValueError, match="must not be zero"):
        steps(words, 0)
    assert not is_direct(stepped)


def test_a_callers_function_may_raise_through_kernels() -> None:
    assert guests(3) == 4
    with pytest.raises(ValueError, match="too large"):
        guests(4)
    assert not is_direct(through)
