"""The house: which room may use which, no circles, and what stands at the top."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.import_graph import PACKAGE, ImportGraph

BUDGETS = {
    "base": 1_510,
    "policy": 1_570,
    "recording": 10_610,
    "allocator": 13_720,
    "measured": 3_060,
    "predicted": 8_660,
    "verdict": 6_580,
    "show": 3_740,
    "studies": 5_590,
    "notebook": 2_150,
    "cli": 1_790,
}
"""Lines of Python that a room may have, docstrings counted: who adds takes away as much."""

ROOMS = tuple(BUDGETS)
"""Rooms of the package, from the ground up: each uses those before it, and none after it."""
NAMES_AT_THE_TOP = 12
LINES = 900


@pytest.fixture(scope="module")
def graph(checkout: Path) -> ImportGraph:
    return ImportGraph(checkout, (PACKAGE,))


def room_of(module: str) -> str:
    return module.split(".")[1]


def inside(graph: ImportGraph) -> dict[str, list[str]]:
    """What each module of the rooms imports of the package; a module may name its own package."""
    return {
        module: [
            each
            for each in imported
            if each.startswith("pagealloc_model.") and not module.startswith(f"{each}.")
        ]
        for module, imported in graph.imports.items()
        if module.startswith("pagealloc_model.")
    }


def test_the_top_of_the_package_is_its_rooms(checkout: Path) -> None:
    top = {path.stem for path in (checkout / "pagealloc_model").iterdir() if path.suffix == ".py"}
    folders = {file.parent for file in (checkout / "pagealloc_model").glob("*/__init__.py")}
    names = {folder.name for folder in folders} | top - {"__init__"}
    assert names == set(ROOMS)
    assert len(names) <= NAMES_AT_THE_TOP


def test_a_room_uses_those_before_it_only(graph: ImportGraph) -> None:
    assert [
        f"{module} -> {other}"
        for module, imported in inside(graph).items()
        for other in imported
        if ROOMS.index(room_of(other)) > ROOMS.index(room_of(module))
    ] == []


def test_no_module_reaches_itself(graph: ImportGraph) -> None:
    imports = inside(graph)
    done: set[str] = set()

    def circle(module: str, way: tuple[str, ...]) -> tuple[str, ...]:
        if module in way:
            return (*way[way.index(module) :], module)
        if module in done:
            return ()
        for each in imports[module]:
            found = circle(each, (*way, module))
            if found:
                return found
        done.add(module)
        return ()

    assert [found for module in imports if (found := circle(module, ()))] == []


def test_the_graph_sees_imports(graph: ImportGraph) -> None:
    assert "pagealloc_model.base.jit" in graph.imports["pagealloc_model.allocator.buddy"]
    assert room_of("pagealloc_model.cli.main") == "cli"


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_keeps_to_its_budget(checkout: Path, room: str) -> None:
    files = (checkout / "pagealloc_model" / room).rglob("*.py")
    assert sum(file.read_text().count("\n") for file in files) <= BUDGETS[room]


def test_no_file_is_too_long_to_read(checkout: Path) -> None:
    files = (checkout / "pagealloc_model").rglob("*.py")
    lines = {str(file.relative_to(checkout)): file.read_text().count("\n") for file in files}
    assert {name: count for name, count in lines.items() if count > LINES} == {}
