"""What `make quick` chooses, and how it tells that nothing was judged."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import pytest
from pytest import MonkeyPatch

from pagealloc_model.base import jit
from pagealloc_model.cli import compile_kernels
from tests import quick
from tests.import_graph import ImportGraph


@pytest.fixture(scope="module")
def graph(checkout: Path) -> ImportGraph:
    return ImportGraph(checkout)


def test_an_edit_of_a_kernel_asks_the_oracle_first(graph: ImportGraph) -> None:
    distances = graph.distances(["pagealloc_model.allocator.pcp"])
    chosen = quick.chosen_tests(graph, ["pagealloc_model.allocator.pcp"])
    assert tuple(chosen[: len(quick.FIRST)]) == quick.FIRST
    nearest = [distances[name] for name in chosen[len(quick.FIRST) :]]
    assert nearest == sorted(nearest)
    assert "tests.recording.trace.test_time_order" not in chosen


def test_an_edit_elsewhere_leaves_the_oracle_alone(graph: ImportGraph) -> None:
    chosen = quick.chosen_tests(graph, ["pagealloc_model.show.figures"])
    assert chosen
    assert not set(chosen) & set(quick.FIRST)


def test_methods_are_imports_of_those_who_call_them(graph: ImportGraph) -> None:
    placement = "pagealloc_model.diagnosis.placement"
    assert placement in graph.imports["tests.judged_shares"]
    assert placement not in graph.imports["pagealloc_model.recording.recording"]


def test_without_a_change_nothing_is_judged(
    monkeypatch: MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(quick, "changed_modules", lambda since: [])
    monkeypatch.setattr("sys.argv", ["quick"])
    assert quick.main() == 2
    assert "no Python file differs from HEAD" in capsys.readouterr().out


def test_a_large_kernel_that_is_not_on_disk_is_compiled(
    monkeypatch: MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(jit, "kernels_directory", lambda: tmp_path)
    monkeypatch.setattr(compile_kernels, "compile_kernel", lambda group: "compiled")
    assert quick.compiled() == "event loop: compiled"
    monkeypatch.setattr(quick, "LARGE", quick.LARGE[:1])
    advance = import_module(quick.LARGE[0][0]).advance
    name = f"{jit.entry_name(advance)}-{jit.entry_fingerprint(advance)}-types.kernel"
    (tmp_path / name).touch()
    assert quick.compiled() == ""
