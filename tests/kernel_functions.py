"""Which kernel function each function of the model and of the oracle stands for: docs' table.

`python -m tests.kernel_functions` writes docs/kernel_functions.md anew, from docstrings.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

MODEL = "pagealloc_model/allocator"
ORACLE = "tests/oracle"
TABLE = "docs/kernel_functions.md"

LEFT_OUT = {
    MODEL: "hooks",
    ORACLE: """
        dump elastic_scenarios machine random_scenarios scenarios steps
    """,
}
"""Modules and folders that are not the allocator: they set it up, drive it or print it."""

SERIES = ("6.1", "6.12", "7.2", "7.3")  # kernels that the names were looked up in

FORM = re.compile(
    r"Part of (?P<whole>\w+)\(\): \S|(?P<first>\w+)\(\)(?: and (?P<second>\w+)\(\))?: \S"
)
"""How the docstring of a function begins that stands for one of the kernel."""

CITATION = re.compile(r"\bS\d{1,2}(?:\.\d{1,2})?\b")

INTRODUCTION = f"""\
# Kernel functions and what stands for them

`make kernel-table` writes the last three columns from the docstrings in `{MODEL}` and `{ORACLE}`:
a docstring begins with the kernel function that its function stands for. A function in parentheses
does a part of the kernel's. Methods leave out leading underscores, which mean something else in a
Python class. The first two columns are written by hand: files are those of 7.2; kernels are named
where not all of {", ".join(SERIES)} have the function. Sections are those of
[page_allocator.md](page_allocator.md).

| kernel function | kernel file | model function (module) | oracle | spec section |
|---|---|---|---|---|
"""
ROW = re.compile(r"^\| `(\w+)` \| (\S+)(?: \((.*?)\))? \|", re.MULTILINE)


@dataclass(frozen=True)
class ModelFunction:
    """A function of the model or of the oracle."""

    path: Path  # its file, from the top of the source tree
    line: int  # where it begins
    name: str  # its name, after that of its class
    docstring: str  # "" if it has none

    @property
    def kernel_functions(self) -> tuple[str, ...]:
        """Kernel functions that it stands for, wholly or in part."""
        found = FORM.match(self.docstring)
        return tuple(filter(None, found.group("whole", "first", "second"))) if found else ()

    @property
    def is_part(self) -> bool:
        return self.docstring.startswith("Part of ")

    @property
    def sections(self) -> frozenset[str]:
        """Sections of the specification that its docstring cites."""
        return frozenset(CITATION.findall(self.docstring))

    def shown(self) -> str:
        """Name and module as the table has them."""
        text = f"`{self.name}` ({self.path.stem})"
        return f"({text})" if self.is_part else text


def functions_in(folder: str, top: Path) -> Iterator[ModelFunction]:
    """Functions and methods of the model's or the oracle's allocator, file after file.

    Tests, special methods and functions within functions are left out.
    """
    left_out = LEFT_OUT[folder].split()
    for path in sorted((top / folder).rglob("*.py")):
        part = path.relative_to(top / folder).parts[0].removesuffix(".py")
        if part not in left_out and not path.stem.startswith("test_"):
            yield from _functions_of(ast.parse(path.read_text()), path.relative_to(top), "")


def _functions_of(
    parent: ast.Module | ast.ClassDef, path: Path, prefix: str
) -> Iterator[ModelFunction]:
    for node in parent.body:
        if isinstance(node, ast.ClassDef):
            yield from _functions_of(node, path, f"{prefix}{node.name}.")
        elif isinstance(node, ast.FunctionDef) and not re.fullmatch(r"__\w+__", node.name):
            docstring = ast.get_docstring(node) or ""
            yield ModelFunction(path, node.lineno, prefix + node.name, docstring)


def kernel_files(top: Path) -> dict[str, tuple[str, tuple[str, ...]]]:
    """The file that defines each kernel function, and the kernels of `SERIES` that have it."""
    return {
        name: (file, tuple(kernels.split(", ")) if kernels else SERIES)
        for name, file, kernels in ROW.findall((top / TABLE).read_text())
    }


def named_functions(top: Path) -> set[str]:
    """Every kernel function that something stands for."""
    functions = (each for folder in (MODEL, ORACLE) for each in functions_in(folder, top))
    return {name for each in functions for name in each.kernel_functions}


def table(top: Path) -> str:
    """The page with the table, of the source tree at `top`."""
    model, oracle = (list(functions_in(each, top)) for each in (MODEL, ORACLE))
    known, named = kernel_files(top), named_functions(top)
    if named - set(known):
        raise ValueError(f"add rows with a kernel file to {TABLE}: {sorted(named - set(known))}")
    files = list(dict.fromkeys(file for file, _ in known.values()))
    order = sorted(named, key=lambda name: (files.index(known[name][0]), name.strip("_"), name))
    rows = []
    for name in order:
        file, series = known[name]
        cells = [f"`{name}`", file + (f" ({', '.join(series)})" if series != SERIES else "")]
        sides = [
            [each for each in side if name in each.kernel_functions] for side in (model, oracle)
        ]
        for side in sides:
            side.sort(key=lambda each: each.is_part)
            cells.append(", ".join(each.shown() for each in side))
        cited = {section for side in sides for each in side for section in each.sections}
        by_number = sorted(cited, key=lambda section: [*map(int, section[1:].split("."))])
        rows.append(f"| {' | '.join([*cells, ', '.join(by_number)])} |\n")
    return INTRODUCTION + "".join(rows)


if __name__ == "__main__":
    TOP = Path(__file__).parents[1]
    (TOP / TABLE).write_text(table(TOP))
