"""Kernel sources: Debian's packages in /usr/src, or trees in PAGEALLOC_KERNEL_SOURCES."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from pagealloc_model.kernel_source import compiled_tree
from pagealloc_model.kernel_source.compiled_tree import COMPILERS, OPTIONS, CompiledTree
from pagealloc_model.kernel_source.source_tree import SourceTree, open_tree
from tests.kernel_source import Compiled, Patched, Sources

SOURCES_VARIABLE = "PAGEALLOC_KERNEL_SOURCES"


@pytest.fixture(scope="session", autouse=True)
def compiled_in_little_time() -> Iterator[None]:
    """Most of the time of these tests is the compiler's: -Og takes a third of what -O2 takes."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compiled_tree, "OPTIONS", tuple("-Og" if o == "-O2" else o for o in OPTIONS))
        yield


@pytest.fixture(scope="session")
def kernel_source() -> Sources:
    """The tree of a series such as "6.12"; skips the test where it or a compiler is missing."""

    @cache
    def tree_of(series: str) -> SourceTree:
        if not any(shutil.which(each) for each in COMPILERS):
            pytest.skip("no C compiler")
        folder = Path(os.environ.get(SOURCES_VARIABLE) or "/usr/src")
        for name in (f"linux-source-{series}", f"linux-source-{series}.tar.xz"):
            if (folder / name).exists():
                return open_tree(folder / name)
        pytest.skip(f"{folder} has no linux-source-{series} (see .ci/system-packages)")

    return tree_of


@pytest.fixture(scope="session")
def compiled(kernel_source: Sources) -> Compiled:
    """The compiled code of a series; configurations are shared by all tests."""
    made: dict[str, CompiledTree] = {}

    def tree_of(series: str) -> CompiledTree:
        if series not in made:
            made[series] = CompiledTree(kernel_source(series))
        return made[series]

    return tree_of


@pytest.fixture
def patched(kernel_source: Sources, tmp_path: Path) -> Patched:
    """A copy of a series' tree with one text of a file replaced."""

    def tree_of(series: str, path: str, old: str, new: str) -> SourceTree:
        original = kernel_source(series)
        copy = tmp_path / f"linux-{series}"
        for part in ("mm", "include/linux"):
            shutil.copytree(original.root / part, copy / part, ignore=_only_sources)
        if (original.root / "Makefile").exists():
            shutil.copy(original.root / "Makefile", copy)
        text = (copy / path).read_text()
        assert text.count(old) == 1, f"{old!r} is not in {path} of {series} exactly once"
        (copy / path).write_text(text.replace(old, new))
        return open_tree(copy)

    return tree_of


def _only_sources(directory: str, names: list[str]) -> list[str]:
    return [
        each
        for each in names
        if (Path(directory) / each).is_dir() or not each.endswith((".c", ".h"))
    ]
