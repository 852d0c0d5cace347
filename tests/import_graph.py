"""Which modules of the checkout import which, read from their sources."""

from __future__ import annotations

import ast
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

ROOTS = ("pagealloc_model", "tests", "benchmarks", "notebooks")
PACKAGE = "pagealloc_model"
INSTALLED = "pagealloc_model.notebooks"
"""What the package calls the folder of notebooks; modules here have the folder's own name."""
LAZY_NAMES = "_PLACES"
"""In the package's `__init__`: public names, and the modules that they are loaded from."""
METHOD = "LazyMethod"
"""Declares a method that another room carries out. Who calls the method uses that room."""


class ImportGraph:
    """Modules and their imports, wherever in a file they stand.

    Args:
        checkout: the top of the source tree.
        roots: folders whose modules are taken.
    """

    def __init__(self, checkout: Path, roots: Sequence[str] = ROOTS) -> None:
        files = [file for root in roots for file in sorted((checkout / root).rglob("*.py"))]
        self.files = {module_name(file.relative_to(checkout)): file for file in files}
        trees = {name: ast.parse(file.read_bytes()) for name, file in self.files.items()}
        self._lazy = _lazy_names(trees[PACKAGE])
        self._methods = _method_modules(trees.values())
        self.imports = {
            name: frozenset(self._imported(tree)) - {name, PACKAGE} for name, tree in trees.items()
        }

    def distances(self, changed: Iterable[str]) -> dict[str, int]:
        """Imports between each module and the nearest changed one, of those that reach one."""
        importers: dict[str, list[str]] = {name: [] for name in self.files}
        for name, imported in self.imports.items():
            for each in imported:
                importers[each].append(name)
        found = {name: 0 for name in changed if name in importers}
        waiting = deque(found)
        while waiting:
            name = waiting.popleft()
            for each in importers[name]:
                if each not in found:
                    found[each] = found[name] + 1
                    waiting.append(each)
        return found

    def _imported(self, tree: ast.Module) -> Iterator[str]:
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                names = [each.name for each in node.names]
            elif isinstance(node, ast.ImportFrom) and node.module:
                names = [f"{node.module}.{each.name}" for each in node.names] + [node.module]
            elif isinstance(node, ast.Attribute):
                is_package = isinstance(node.value, ast.Name) and node.value.id == "pm"
                places = self._lazy if is_package else self._methods
                names = [places[node.attr]] if node.attr in places else []
            else:
                continue
            names = [name.replace(INSTALLED, "notebooks") for name in names]
            yield from (name for name in names if name in self.files)


def module_name(file: Path) -> str:
    """Name of a module by its file's path in the checkout."""
    parts = file.with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _lazy_names(package: ast.Module) -> dict[str, str]:
    """Modules that the package's public names are loaded from."""
    for node in package.body:
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == LAZY_NAMES:
            places = ast.literal_eval(node.value)
            return {name: f"{PACKAGE}.{module}" for name, (module, _) in places.items()}
    return {}


def _method_modules(trees: Iterable[ast.Module]) -> dict[str, str]:
    """Modules that carry out methods of classes, by the method's name."""
    return {
        node.targets[0].id: f"{PACKAGE}.{ast.literal_eval(node.value.args[0])}"
        for tree in trees
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign)
        and isinstance(node.targets[0], ast.Name)
        and isinstance(node.value, ast.Call)
        and getattr(node.value.func, "id", "") == METHOD
    }
