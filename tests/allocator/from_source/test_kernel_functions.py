"""The kernel's names in docstrings: present, in the table, and in the kernel's source."""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import chain
from pathlib import Path

import pytest

from pagealloc_model.allocator.from_source.source_tree import SourceTree
from tests.kernel_functions import (
    KERNEL_FILES,
    MODEL,
    ORACLE,
    SERIES,
    TABLE,
    functions_in,
    kernels_with,
    table,
)

DEFINITION = re.compile(
    r"^(?:#\s*define\s+|[A-Za-z_][\w \t*]*?[ \t*])?(\w+?)(?:_noprof)?\(", re.MULTILINE
)
"""Functions and macros that begin a line; static ones may have their type on the line before."""

MOVED = ("mm/page_alloc.h", "include/linux/mmzone.h", "mm/folio.c")
"""Where other kernels than 7.2 have some of them."""


@pytest.mark.parametrize("folder", [MODEL, ORACLE])
def test_each_docstring_begins_with_its_kernel_function(checkout: Path, folder: str) -> None:
    functions = list(functions_in(folder, checkout))
    assert len(functions) > 400
    wrong = [f"{each.path}:{each.line}: {each.name}" for each in functions if not each.begins_well]
    assert not wrong, (
        "begin the docstring with 'name(): ', 'Part of name(): ' or 'No kernel function: ':\n"
        + "\n".join(wrong)
    )


def test_the_table_is_up_to_date(checkout: Path) -> None:
    assert (checkout / TABLE).read_text() == table(checkout), "run `make kernel-table`"


def test_the_files_name_no_function_that_nothing_stands_for(checkout: Path) -> None:
    listed = {name for names in KERNEL_FILES.values() for name in names.split()}
    assert listed == kernel_functions(checkout)


@pytest.mark.parametrize("series", SERIES)
def test_the_kernel_has_the_functions_named(
    checkout: Path, kernel_source: Callable[[str], SourceTree], series: str
) -> None:
    source = kernel_source(series)
    texts = {path: source.read(path) or "" for path in [*KERNEL_FILES, *MOVED]}
    defined = {path: set(DEFINITION.findall(text)) for path, text in texts.items()}
    anywhere = set(chain.from_iterable(defined.values()))
    named = kernel_functions(checkout)
    assert named & anywhere == {name for name in named if series in kernels_with(name)}
    if series == "7.2":
        misplaced = {
            name
            for path, names in KERNEL_FILES.items()
            for name in names.split()
            if series in kernels_with(name) and name not in defined[path]
        }
        assert not misplaced


def kernel_functions(checkout: Path) -> set[str]:
    """Every kernel function that something stands for."""
    functions = (each for part in (MODEL, ORACLE) for each in functions_in(part, checkout))
    return {name for each in functions for name in each.kernel_functions}
