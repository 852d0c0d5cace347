"""A unit compiled into a shared library, and the library loaded."""

from __future__ import annotations

import ctypes
import hashlib
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterable
from functools import cached_property
from pathlib import Path

from pagealloc_model.allocator.from_source.complaints import not_found
from pagealloc_model.allocator.from_source.extraction import (
    JUDGED,
    LATER_NAMES,
    Configuration,
    KernelSourceError,
    TreeIndex,
    Unit,
    extract,
)
from pagealloc_model.allocator.from_source.parts import ALLOCATION, Part
from pagealloc_model.allocator.from_source.source_tree import SourceTree
from pagealloc_model.base.errors import UsageError

ERRORS_MOST = 12

COMPILERS = ("cc", "gcc", "clang")
OPTIONS = (
    "-std=gnu11",
    "-O2",
    "-fPIC",
    "-shared",
    "-fno-strict-aliasing",
    "-fwrapv",
    "-Werror=implicit-function-declaration",
    "-Werror=incompatible-pointer-types",
    "-Werror=int-conversion",
)


def compiler() -> str:
    """The system's C compiler.

    Raises:
        UsageError: there is none.
    """
    for name in COMPILERS:
        found = shutil.which(name)
        if found:
            return found
    raise UsageError(f"no C compiler ({', '.join(COMPILERS)}) is installed; install gcc")


class CompiledTree:
    """A tree's units and libraries, one per configuration, in a directory that ends with it."""

    def __init__(self, tree: SourceTree, part: Part = ALLOCATION) -> None:
        self.tree = tree
        self.part = part
        self._directory = tempfile.TemporaryDirectory(prefix="pagealloc-kernel-")
        self._built: dict[Configuration, tuple[Unit, Path]] = {}
        self._copies = 0
        self._idle: dict[Configuration, list[ctypes.CDLL]] = {}

    @cached_property
    def _index(self) -> TreeIndex:
        return TreeIndex(self.tree, self.part)

    @property
    def missing(self) -> tuple[str, ...]:
        """Judged functions that the tree does not have under their names."""
        return tuple(
            name
            for name in JUDGED
            if all(
                self._index.function(each) is None for each in (name, LATER_NAMES.get(name, name))
            )
        )

    def built(self, configuration: Configuration) -> tuple[Unit, Path]:
        """The unit and the library file of a configuration; compiled on first use.

        Raises:
            KernelSourceError: functions are missing, or the unit does not compile.
            UsageError: there is no compiler.
        """
        if configuration not in self._built:
            self._built[configuration] = self._build(configuration)
        return self._built[configuration]

    def load(self, configuration: Configuration) -> ctypes.CDLL:
        """A library for one state alone: what the kernel keeps in variables is each copy's own."""
        idle = self._idle.setdefault(configuration, [])
        if idle:
            return idle.pop()
        _, path = self.built(configuration)
        self._copies += 1
        copy = path.with_name(f"{path.stem}-{self._copies}.so")
        shutil.copyfile(path, copy)
        return ctypes.CDLL(str(copy))

    def give_back(self, configuration: Configuration, library: ctypes.CDLL) -> None:
        """A library that no state uses any more."""
        self._idle[configuration].append(library)

    def _build(self, configuration: Configuration) -> tuple[Unit, Path]:
        unit = extract(self._index, configuration)
        name = hashlib.sha256(unit.text.encode()).hexdigest()[:16]
        path = Path(self._directory.name) / f"{name}.so"
        source = path.with_suffix(".c")
        source.write_text(unit.text)
        done = subprocess.run(
            [compiler(), *OPTIONS, "-o", str(path), str(source)],
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise KernelSourceError(compile_errors(unit, self.tree, done.stderr, self.missing))
        return unit, path


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
