"""The house: which room may use which, no circles, and what stands at the top."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.import_graph import LATE_IN, ImportGraph

SPINE = (
    *("base", "policy", "recording", "allocator", "measured", "predicted", "numbers", "show"),
    *("loads", "sweeps", "notebook", "cli"),
)
"""Rooms of the package, from the ground up: each uses those before it, and none after it."""
LEAVES = ("kernel_source", "diagnosis", "guests")
"""Rooms at the rim: each uses the spine and the leaves before it, and two rooms use them."""
OPENS_LEAVES = ("notebook", "cli")
LATE = {
    "pagealloc_model.numbers.comparison -> pagealloc_model.show.html.results",
    "pagealloc_model.numbers.validation -> pagealloc_model.diagnosis.budget",
    "pagealloc_model.numbers.validation -> pagealloc_model.show.html.results",
    "pagealloc_model.predicted.replay -> pagealloc_model.numbers.comparison",
    "pagealloc_model.predicted.replay -> pagealloc_model.predicted.lock_times",
    "pagealloc_model.predicted.replay -> pagealloc_model.show.html.results",
    "pagealloc_model.recording.recording -> pagealloc_model.diagnosis.placement",
    "pagealloc_model.recording.recording -> pagealloc_model.measured.measured",
    "pagealloc_model.recording.recording -> pagealloc_model.recording.importing",
    "pagealloc_model.recording.recording -> pagealloc_model.recording.provenance",
    "pagealloc_model.recording.recording -> pagealloc_model.recording.trim",
    "pagealloc_model.recording.recording -> pagealloc_model.show.html.results",
    "pagealloc_model.recording.recording -> pagealloc_model.show.recording_text",
}
"""Late imports: of the function that carries out a method, in the method's body, and of its types
for type checkers. Only the modules `LATE_IN` have them."""
LINES = 900
PAGE_LINES = PAGE_COLUMNS = 150


@pytest.fixture(scope="module")
def graph(checkout: Path) -> ImportGraph:
    return ImportGraph(checkout)


def room_of(module: str) -> str:
    return module.split(".")[1]


def inside(graph: ImportGraph) -> dict[str, list[str]]:
    """What each module of the rooms imports of the package, late imports apart.

    A module may name its own package.
    """
    return {
        module: [
            each
            for each in imported
            if not module.startswith(f"{each}.") and f"{module} -> {each}" not in LATE
        ]
        for module, imported in graph.imports.items()
        if module.startswith("pagealloc_model.")
    }


def test_the_top_of_the_package_is_its_rooms(checkout: Path) -> None:
    top = {path.stem for path in (checkout / "pagealloc_model").iterdir() if path.suffix == ".py"}
    folders = {file.parent for file in (checkout / "pagealloc_model").glob("*/__init__.py")}
    names = {folder.name for folder in folders} | top - {"__init__"}
    assert names == {*SPINE, *LEAVES}


def may_use(room: str) -> tuple[str, ...]:
    """Rooms that a room may import, itself included."""
    if room in LEAVES:
        return *SPINE[: SPINE.index("notebook")], *LEAVES[: LEAVES.index(room) + 1]
    before = SPINE[: SPINE.index(room) + 1]
    return (*before, *LEAVES) if room in OPENS_LEAVES else before


def test_a_room_uses_those_before_it_only(graph: ImportGraph) -> None:
    against = {
        f"{module} -> {other}"
        for module, imported in inside(graph).items()
        for other in imported
        if room_of(other) not in may_use(room_of(module))
    }
    assert against == set()


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


def test_late_imports_are_in_methods_of_these_modules(graph: ImportGraph) -> None:
    for arrow in LATE:
        module, other = arrow.split(" -> ")
        assert module.removeprefix("pagealloc_model.") in LATE_IN
        assert other in graph.imports[module]
        assert other not in graph.at_once[module]


def test_who_calls_a_method_uses_what_carries_it_out(graph: ImportGraph) -> None:
    assert graph.methods["judge_choices"] == "pagealloc_model.diagnosis.placement"
    assert {"measure", "trim", "to_columns", "compare", "lock_times", "budget"} < {*graph.methods}


def test_the_graph_sees_imports(graph: ImportGraph) -> None:
    assert "pagealloc_model.base.jit" in graph.imports["pagealloc_model.allocator.buddy"]
    assert room_of("pagealloc_model.cli.main") == "cli"


def test_no_file_is_too_long_to_read(checkout: Path) -> None:
    files = (checkout / "pagealloc_model").rglob("*.py")
    lines = {str(file.relative_to(checkout)): file.read_text().count("\n") for file in files}
    assert {name: count for name, count in lines.items() if count > LINES} == {}


@pytest.mark.parametrize("name", ["pcp_buddy", "predicted_and_run"])
def test_a_page_is_short(name: str, checkout: Path) -> None:
    text = (checkout / f"docs/{name}.md").read_text()
    lines = re.sub(r"^<!-- .* prints .* -->\n+", "", text, flags=re.MULTILINE).splitlines()
    assert len(lines) < PAGE_LINES
    assert max(len(line) for line in lines if not line.startswith("|")) <= PAGE_COLUMNS


AS_A_WHOLE = "allocator"
"""Its kernels are compared with the oracle, and with the kernel's own code, all at once."""
THROUGH_OTHERS = {
    *("base.garbage", "base.version", "base.jit.kept", "base.jit.replaced"),
    *("diagnosis.ticks", "diagnosis.tuning_words", "guests.workloads"),
    *("loads.demand", "notebook.start_here", "numbers.values"),
    *("recording.record.kernel_memory", "recording.record.machine_state"),
    *("recording.trace.walk", "show.drawing"),
}
"""Modules that tests of what uses them test; one that gets tests of its own leaves this list."""


def has_tests(checkout: Path, module: Path) -> bool:
    """Whether its name finds tests: a file or a folder, in its room, or a file of the browser."""
    room, name = checkout / "tests" / module.parent, module.stem.lstrip("_")
    files = (room / f"test_{name}.py", checkout / "tests/browser" / f"test_{name}.py")
    return any(file.exists() for file in files) or any((room / name).glob("test_*.py"))


def test_the_tests_of_a_module_are_found_by_its_name(checkout: Path) -> None:
    package = checkout / "pagealloc_model"
    modules = [
        each.relative_to(package)
        for each in package.rglob("*.py")
        if not each.stem.startswith("__") and each.parent != package
    ]
    without = {
        ".".join(each.with_suffix("").parts)
        for each in modules
        if each.parts[0] != AS_A_WHOLE and not has_tests(checkout, each)
    }
    assert without - THROUGH_OTHERS == set(), "write tests/ROOM/test_NAME.py for each"
    assert THROUGH_OTHERS - without == set(), "take these from THROUGH_OTHERS"
