"""Functions that kernels call are kept as they were lowered, and lowered anew after an edit."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import numba
import numpy as np
import pytest

from pagealloc_model.base import jit
from pagealloc_model.base.inner_cache import SUFFIX

pytestmark = [
    pytest.mark.skipif(bool(numba.config.DISABLE_JIT), reason="nothing is compiled"),
    pytest.mark.skipif(jit.PLAIN, reason="numba compiles in its own way"),
]

NAME = "module_of_small_kernels"
KERNELS = """
from pagealloc_model.base.jit import cold, entry, inner

FACTOR = 3

@inner
def scaled(value: int) -> int:
    return FACTOR * value

@cold
def apart(value: int) -> int:
    return max(value, 5) + int(value > 7)

@inner
def both(value: int) -> int:
    return scaled(value) + apart(value)

@inner
def alone(value: int) -> int:
    return value - 1

@entry
def summed(values):
    total = 0
    for index in range(len(values)):
        total += both(values[index]) + alone(values[index])
    return total
"""
VALUES = np.array([1, 2, 40])
SUM = 3 * 43 + (5 + 5 + 41) + 40


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty directory for all that is kept."""
    kept = tmp_path / "cache"
    monkeypatch.setenv("PAGEALLOC_CACHE", str(kept))
    # Python takes bytecode for up to date after an edit of the same length in the same second.
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    yield kept
    sys.modules.pop(NAME, None)


def loaded(directory: Path, source: str) -> ModuleType:
    """A module of kernels as another process would load it, its entry point not kept."""
    file = directory / f"{NAME}.py"
    file.write_text(source)
    spec = importlib.util.spec_from_file_location(NAME, file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[NAME] = module
    spec.loader.exec_module(module)
    return module


def forget_entry_points(cache: Path) -> None:
    """Remove what is kept of entry points."""
    for file in cache.rglob("*.kernel"):
        file.unlink()


def lowered_now(module: ModuleType, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the functions that are lowered, not loaded, when the entry point is compiled."""
    names = []
    for name in ("scaled", "apart", "both", "alone"):
        compiler = getattr(module, name)._compiler
        before = compiler.compile

        def noted(*given: object, name: str = name, before: object = before) -> object:
            names.append(name)
            return before(*given)  # type: ignore[operator]

        monkeypatch.setattr(compiler, "compile", noted)
    assert module.summed(VALUES) == SUM if module.FACTOR == 3 else module.summed(VALUES) > SUM
    return names


def test_a_function_that_was_lowered_is_loaded(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert set(lowered_now(loaded(tmp_path, KERNELS), monkeypatch)) == {
        "scaled",
        "apart",
        "both",
        "alone",
    }
    assert len(list(cache.rglob(f"*{SUFFIX}"))) == 4
    forget_entry_points(cache)
    again = loaded(tmp_path, KERNELS)
    assert lowered_now(again, monkeypatch) == []
    assert sum(again.summed.stats.cache_misses.values()) == 1


def test_an_edit_lowers_what_reaches_it_and_nothing_else(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lowered_now(loaded(tmp_path, KERNELS), monkeypatch)
    edited = loaded(tmp_path, KERNELS.replace("FACTOR = 3", "FACTOR = 4"))
    assert set(lowered_now(edited, monkeypatch)) == {"scaled", "both"}


def test_what_cannot_be_read_is_lowered_anew(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lowered_now(loaded(tmp_path, KERNELS), monkeypatch)
    for file in cache.rglob(f"*{SUFFIX}"):
        file.write_bytes(file.read_bytes()[:40])
    forget_entry_points(cache)
    assert len(lowered_now(loaded(tmp_path, KERNELS), monkeypatch)) == 4


def test_a_function_that_its_module_does_not_name_is_not_kept(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = loaded(tmp_path, KERNELS)
    hidden = {"scaled": module.scaled}
    del module.scaled
    module.both.py_func.__globals__.update(hidden)
    module.scaled = module.alone
    assert module.both.identity((numba.int64,)) != ""
    assert hidden["scaled"].identity((numba.int64,)) == ""
