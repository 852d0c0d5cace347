"""One compiled tree serves several threads: each gets a library of its own."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import pytest

from pagealloc_model.allocator.from_source import compiled_tree
from pagealloc_model.allocator.from_source.compiled_tree import CompiledTree, Configuration

THREADS = 16


def test_threads_share_no_library(monkeypatch: pytest.MonkeyPatch) -> None:
    all_here = threading.Barrier(THREADS)
    built: list[Configuration] = []

    def build(self: CompiledTree, configuration: Configuration) -> tuple[SimpleNamespace, object]:
        built.append(configuration)
        path = Path(self._directory.name) / "unit.so"
        path.write_bytes(bytes(1 << 20))
        return SimpleNamespace(), path

    monkeypatch.setattr(CompiledTree, "_build", build)
    monkeypatch.setattr(compiled_tree.ctypes, "CDLL", str)
    tree = CompiledTree(SimpleNamespace())  # type: ignore[arg-type]
    configuration = Configuration(zone_types=("Normal",))

    def load(_: int) -> str:
        all_here.wait()
        return str(tree.load(configuration))

    with ThreadPoolExecutor(THREADS) as threads:
        loaded = list(threads.map(load, range(THREADS)))
    assert len(built) == 1
    assert len(set(loaded)) == THREADS
