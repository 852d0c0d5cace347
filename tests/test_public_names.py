"""The names at the top of the package, and the methods of later rooms."""

from __future__ import annotations

import ast
import inspect
import subprocess
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

import pytest

import pagealloc_model as pm
from pagealloc_model.diagnosis.budget import error_budget
from pagealloc_model.diagnosis.placement import judge_placement
from pagealloc_model.measured.measured import measure
from pagealloc_model.numbers.comparison import compare
from pagealloc_model.numbers.validation import Validation
from pagealloc_model.predicted.lock_times import lock_times
from pagealloc_model.recording.importing import import_recording
from pagealloc_model.recording.provenance import provenance
from pagealloc_model.recording.trim import trim_recording

NAMESPACES = ("fleets", "locks", "synthetic")
PUBLIC = {
    *("open", "replay", "compare", "validate", "sweep", "explain", "explore", "experiment"),
    *("Policy", "Assumptions", "KernelRules", "Hooks", "KernelBuild", "Recording", "Replay"),
    *("PageallocError", "RecordingError", "UsageError", "PolicyError", "Cancelled"),
    *NAMESPACES,
    "__version__",
}
METHODS: list[tuple[Callable[..., object], Callable[..., object]]] = [
    (pm.Recording.measure, measure),
    (pm.Recording.provenance, provenance),
    (pm.Recording.judge_choices, judge_placement),
    (pm.Recording.trim, trim_recording),
    (pm.Recording.to_columns, import_recording),
    (pm.Replay.compare, compare),
    (pm.Replay.lock_times, lock_times),
    (Validation.budget, error_budget),
]
IMPORT_ALONE = """
import sys
import pagealloc_model
print(*(set(sys.modules) & {"numba", "numpy", "pandas", "pyarrow"}))
"""


def test_these_are_the_public_names() -> None:
    assert set(pm.__all__) == PUBLIC == set(dir(pm))
    assert len(pm.__all__) == len(PUBLIC)


def test_names_for_type_checkers_are_those_that_are_loaded(checkout: Path) -> None:
    tree = ast.parse((checkout / "pagealloc_model/__init__.py").read_text())
    (for_types,) = [node for node in tree.body if isinstance(node, ast.If)]
    imported = {
        alias.asname or alias.name: (node.module, alias.name)
        for node in for_types.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    loaded = {
        name: (f"pagealloc_model.{place}", attribute)
        if attribute
        else tuple(f"pagealloc_model.{place}".rsplit(".", 1))
        for name, (place, attribute) in pm._PLACES.items()
    }
    assert imported == loaded
    assert all(getattr(pm, name) is not None for name in loaded)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match=r"has no attribute 'nothing'$"):
        _ = pm.nothing


@pytest.mark.parametrize(("method", "function"), METHODS)
def test_methods_take_what_their_functions_take(
    method: Callable[..., object], function: Callable[..., object]
) -> None:
    ours, theirs = inspect.signature(method), inspect.signature(function)
    assert list(ours.parameters.values())[1:] == list(theirs.parameters.values())[1:]
    assert ours.return_annotation == theirs.return_annotation
    assert inspect.getdoc(method)


def test_a_recording_opened_without_the_package_has_its_methods() -> None:
    code = "from pagealloc_model.recording.recording import Recording; Recording.measure"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_importing_the_package_loads_nothing_heavy() -> None:
    done = subprocess.run(
        [sys.executable, "-c", IMPORT_ALONE], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == []


@pytest.mark.parametrize("folder", ["pagealloc_model", "notebooks/studies", "benchmarks", "tests"])
def test_names_of_other_modules_exist(checkout: Path, folder: str) -> None:
    missing = []
    for path in sorted((checkout / folder).rglob("*.py")):
        nodes = list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
        bound = {node.id for node in nodes if isinstance(node, ast.Name) and _is_stored(node)}
        bound |= {node.arg for node in nodes if isinstance(node, ast.arg)}
        modules = {}
        for node in nodes:
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(pm.__name__):
                for alias in node.names:
                    value = _found(node.module or "", alias.name)
                    if value is None:
                        missing.append(f"{path}:{node.lineno}: {node.module}.{alias.name}")
                    if inspect.ismodule(value):
                        modules[alias.asname or alias.name] = value.__name__
        for node in nodes:
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                name = node.value.id
                if name in modules.keys() - bound and _found(modules[name], node.attr) is None:
                    missing.append(f"{path}:{node.lineno}: {modules[name]}.{node.attr}")
    assert missing == []


def _is_stored(name: ast.Name) -> bool:
    return isinstance(name.ctx, ast.Store)


def _found(module: str, name: str) -> object:
    """What a module has under a name, or the module below it; None if there is neither."""
    found = import_module(module)
    if hasattr(found, name):
        return found if getattr(found, name) is None else getattr(found, name)
    try:
        return import_module(f"{module}.{name}")
    except ModuleNotFoundError:
        return None
