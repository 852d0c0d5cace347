"""An entry point and all it calls are compiled as one: each function once, for kernels only."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import FunctionType
from typing import Any

import numba
import numpy as np
import pytest
from pytest import MonkeyPatch

from pagealloc_model.base import jit
from pagealloc_model.base.jit import compiler

pytestmark = pytest.mark.skipif(bool(numba.config.DISABLE_JIT), reason="nothing is compiled")

ROW = np.dtype([("narrow", np.int8), ("wide", np.int64)])


def doubled(value: int) -> int:
    return value + value


def is_set(flag: bool) -> bool:
    return not flag


def compiled(tmp_path: Path, monkeypatch: MonkeyPatch) -> tuple[Any, Any, Any]:
    """An entry point, compiled now, and the two functions that it calls."""
    monkeypatch.setenv("PAGEALLOC_CACHE", str(tmp_path))
    double, test = jit.inner(doubled), jit.inner(is_set)

    def summed(rows: np.ndarray, count: int) -> int:
        total = 0
        for number in range(count):
            total += double(rows[number]["narrow"]) + double(rows[number]["wide"]) + double(3)
            if test(False) and not test(total > 0):
                total += double(number > 0)
        return total

    loop = jit.entry(summed)
    rows = np.array([(127, 1 << 40), (-128, 5)], ROW)
    assert loop(rows, 2) == 2 * (127 + (1 << 40) + 3) + 2 * (-128 + 5 + 3 + 1)
    return loop, double, test


def test_a_function_is_compiled_once_for_all_integers(
    tmp_path: Path, monkeypatch: MonkeyPatch
) -> None:
    _, double, test = compiled(tmp_path, monkeypatch)
    assert [str(each) for each in double.nopython_signatures] == ["(int64,) -> int64"]
    assert [str(each) for each in test.nopython_signatures] == ["(bool,) -> bool"]


def test_only_the_entry_point_can_be_called_from_elsewhere(
    tmp_path: Path, monkeypatch: MonkeyPatch
) -> None:
    loop, double, _ = compiled(tmp_path, monkeypatch)
    library = next(iter(loop.overloads.values())).library
    shared = [
        each.name for each in library.get_defined_functions() if each.linkage.name != "internal"
    ]
    assert shared
    assert all("summed" in name for name in shared)
    inner = next(iter(double.overloads.values())).library
    assert inner.get_pointer_to_function("doubled") == 0
    with pytest.raises(TypeError, match="doubled: only kernels call it"):
        double(1)


def refused(value: int) -> int:
    if value > 3:
        raise ValueError("too large")
    return value


def stepped(words: np.ndarray, step: int) -> int:
    """Sum of elements that are a step apart: a range refuses the step 0."""
    total = 0
    for place in range(0, len(words), step):
        total += words[place]
    return total


@pytest.mark.parametrize("role", [jit.inner, jit.hot, jit.cold])
def test_what_raises_does_so_through_kernels(
    role: Callable[..., Any], tmp_path: Path, monkeypatch: MonkeyPatch
) -> None:
    monkeypatch.setenv("PAGEALLOC_CACHE", str(tmp_path))
    asked, summed = jit.guest(refused), role(stepped)

    def through(words: np.ndarray, step: int) -> int:
        return summed(words, step) + asked(step)

    loop = jit.entry(through)
    assert loop(np.arange(10), 3) == 0 + 3 + 6 + 9 + 3
    with pytest.raises(ValueError, match="must not be zero"):
        loop(np.arange(10), 0)
    with pytest.raises(ValueError, match="too large"):
        loop(np.arange(10), 4)


@pytest.mark.skipif(jit.PLAIN, reason="numba compiles in its own way")
def test_a_function_that_moves_to_another_file_is_compiled_anew() -> None:
    """Machine code on disk names the module in which it looks for globals."""
    here, there = jit.inner(doubled), jit.inner(FunctionType(doubled.__code__, {}, "doubled"))
    there.py_func.__module__ = "elsewhere"
    there.py_func.__annotations__ = doubled.__annotations__
    assert compiler.compiled_as(here) != compiler.compiled_as(there)
    there.py_func.__module__ = doubled.__module__
    assert compiler.compiled_as(here) == compiler.compiled_as(there)
