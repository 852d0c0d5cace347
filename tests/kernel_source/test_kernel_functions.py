"""The kernel's names in docstrings: present, in the table, and in the kernel's source."""

from __future__ import annotations

import re
from itertools import chain
from pathlib import Path

import pytest

from tests.kernel_functions import (
    MODEL,
    ORACLE,
    SERIES,
    TABLE,
    functions_in,
    kernel_files,
    named_functions,
    table,
)
from tests.kernel_source import Sources

DEFINITION = re.compile(
    r"^(?:#\s*define\s+|[A-Za-z_][\w \t*]*?[ \t*])?(\w+?)(?:_noprof)?\(", re.MULTILINE
)
"""Functions and macros that begin a line; static ones may have their type on the line before."""

MOVED = ("mm/page_alloc.h", "include/linux/mmzone.h", "mm/folio.c")
"""Where other kernels than 7.2 have some of them."""


@pytest.mark.parametrize("folder", [MODEL, ORACLE])
def test_a_docstring_begins_with_its_kernel_function(checkout: Path, folder: str) -> None:
    """Where a function has the name of one."""
    known = {name.strip("_") for name in kernel_files(checkout)}
    functions = list(functions_in(folder, checkout))
    assert sum(bool(each.kernel_functions) for each in functions) > 150
    wrong = [
        f"{each.path}:{each.line}: {each.name}"
        for each in functions
        if each.name.rpartition(".")[2].strip("_") in known and not each.kernel_functions
    ]
    assert not wrong, "begin the docstring with 'name(): ':\n" + "\n".join(wrong)


def test_the_table_is_up_to_date(checkout: Path) -> None:
    assert (checkout / TABLE).read_text() == table(checkout), "run `make kernel-table`"


@pytest.mark.parametrize("series", SERIES)
def test_the_kernel_has_the_functions_named(
    checkout: Path, kernel_source: Sources, series: str
) -> None:
    source, known = kernel_source(series), kernel_files(checkout)
    texts = {path: source.read(path) or "" for path in {file for file, _ in known.values()}}
    texts |= {path: source.read(path) or "" for path in MOVED}
    defined = {path: set(DEFINITION.findall(text)) for path, text in texts.items()}
    named = named_functions(checkout)
    expected = {name for name in named if series in known[name][1]}
    assert named & set(chain.from_iterable(defined.values())) == expected
    if series == "7.2":
        assert not {name for name in expected if name not in defined[known[name][0]]}
