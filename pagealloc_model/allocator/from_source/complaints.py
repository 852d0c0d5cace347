"""Functions and files that a tree lacks, in a line."""

from __future__ import annotations

import re
from collections.abc import Iterable

from pagealloc_model.allocator.from_source.source_tree import (
    SOURCES,
    SOURCES_OF_SOME,
    SourceTree,
)


def not_found(tree: SourceTree, functions: Iterable[str]) -> str:
    """Functions and files that a tree does not have where they are looked for.

    Args:
        tree: a tree.
        functions: names that are in none of the files that are read; where they went is told if
            another file of mm/ defines them.
    """
    files = [path for path in SOURCES if path not in SOURCES_OF_SOME and tree.read(path) is None]
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
