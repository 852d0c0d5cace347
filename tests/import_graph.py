"""Which modules of the package import which, read from their sources."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

PACKAGE = "pagealloc_model"
LAZY_NAMES = "_PLACES"
"""In the package's `__init__`: public names, and the modules that they are loaded from."""
LATE_IN = ("recording.recording", "predicted.replay", "numbers.comparison", "numbers.validation")
"""Modules whose classes have methods that a later module carries out."""


class ImportGraph:
    """Modules and their imports.

    Attributes:
        imports: what each module imports, wherever in its file, with the modules that carry out
            methods that it calls.
        at_once: what it imports when it is itself imported.
        methods: by the name of a method, the later module that carries it out.
    """

    def __init__(self, checkout: Path) -> None:
        files = sorted((checkout / PACKAGE).rglob("*.py"))
        trees = {
            module_name(file.relative_to(checkout)): ast.parse(file.read_bytes()) for file in files
        }
        self._names = trees.keys()
        self._lazy = _lazy_names(trees[PACKAGE])
        late = [trees[f"{PACKAGE}.{module}"] for module in LATE_IN]
        self.methods = {name: to for tree in late for name, to in _late_methods(tree)}
        self.imports = {name: self._imported(name, ast.walk(tree)) for name, tree in trees.items()}
        self.at_once = {name: self._imported(name, _at_once(tree)) for name, tree in trees.items()}

    def _imported(self, module: str, nodes: Iterator[ast.AST]) -> frozenset[str]:
        found: set[str] = set()
        for node in nodes:
            if isinstance(node, ast.Import):
                found |= {each.name for each in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module:
                found |= {f"{node.module}.{each.name}" for each in node.names} | {node.module}
            elif isinstance(node, ast.Attribute):
                is_package = isinstance(node.value, ast.Name) and node.value.id == "pm"
                places = self._lazy if is_package else self.methods
                found |= {places[node.attr]} if node.attr in places else set()
        return frozenset(found & self._names) - {module, PACKAGE}


def module_name(file: Path) -> str:
    """Name of a module by its file's path in the checkout."""
    parts = file.with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _at_once(node: ast.AST) -> Iterator[ast.AST]:
    """What runs when a module is imported: no body of a function, nothing for type checkers."""
    for child in ast.iter_child_nodes(node):
        is_for_types = isinstance(child, ast.If) and ast.unparse(child.test) == "TYPE_CHECKING"
        if not is_for_types and not isinstance(child, ast.FunctionDef | ast.Lambda):
            yield child
            yield from _at_once(child)


def _lazy_names(package: ast.Module) -> dict[str, str]:
    """Modules that the package's public names are loaded from."""
    for node in package.body:
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == LAZY_NAMES:
            places = ast.literal_eval(node.value)
            return {name: f"{PACKAGE}.{module}" for name, (module, _) in places.items()}
    return {}


def _late_methods(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """Methods, and the modules that carry them out: each imports a function and returns its value.

    Who calls such a method uses that module.
    """
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            *_, first, last = [None, *node.body]
            if (
                isinstance(first, ast.ImportFrom)
                and isinstance(last, ast.Return)
                and isinstance(last.value, ast.Call)
                and getattr(last.value.func, "id", "") in [each.name for each in first.names]
            ):
                yield node.name, first.module or ""
