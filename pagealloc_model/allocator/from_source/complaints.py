"""What stands in the way of compiling a tree, in a line."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

from pagealloc_model.allocator.from_source.source_tree import SOURCES, SourceTree

if TYPE_CHECKING:
    from pagealloc_model.allocator.from_source.extraction import Unit

ERRORS_MOST = 12


def not_found(tree: SourceTree, functions: Iterable[str]) -> str:
    """Functions and files that a tree does not have where they are looked for.

    Args:
        tree: a tree.
        functions: names that are in none of the files that are read; where they went is told if
            another file of mm/ defines them.
    """
    files = [path for path in SOURCES if tree.read(path) is None]
    found = [f"{name}(){_elsewhere(tree, name)}" for name in functions]
    return ", ".join([*found, *files])


def _elsewhere(tree: SourceTree, name: str) -> str:
    """Where else a function is defined, "" if nowhere."""
    definition = re.compile(rf"^\w[\w \t*]*\b{name}\([^;{{]*\)\s*\{{", re.M)
    for path in sorted(tree.root.glob("mm/*.[ch]")):
        relative = path.relative_to(tree.root).as_posix()
        text = "" if relative in SOURCES else tree.read(relative) or ""
        found = definition.search(text)
        if found:
            return f" (it is at {relative}:{text.count(chr(10), 0, found.start()) + 1})"
    return ""


def compile_errors(unit: Unit, tree: SourceTree, output: str, missing: Iterable[str]) -> str:
    """A compiler's complaints as one line, each with its function in the tree.

    Args:
        unit: what was compiled.
        tree: where it is from.
        output: the compiler's.
        missing: functions that the tree does not have under their names.
    """
    found = []
    for path, line, message in re.findall(r"^([^:\n]+):(\d+):\d+: error: (.*)$", output, re.M):
        function = unit.function_at(path, int(line))
        found.append(f"{path}:{line}{f' in {function}()' if function else ''}: {message}")
    unique = list(dict.fromkeys(found)) or [output.strip()[-500:]]
    more = f"; and {len(unique) - ERRORS_MOST} more" if len(unique) > ERRORS_MOST else ""
    lacking = not_found(tree, missing)
    return (
        f"{tree.path}: does not compile with the shim: "
        f"{f'not found: {lacking}; ' if lacking else ''}{'; '.join(unique[:ERRORS_MOST])}{more}"
    )
