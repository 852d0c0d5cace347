"""A tree that does not compile says where, in its own functions' names."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from pytest import MonkeyPatch

from pagealloc_model.base.errors import UsageError
from pagealloc_model.kernel_source.compiled_tree import CompiledTree
from pagealloc_model.kernel_source.extraction import (
    KernelSourceError,
)
from tests.kernel_source import Patched, Sources
from tests.kernel_source.test_source_tree import PAGE_ALLOC, PLAIN


def without_function(text: str, name: str) -> tuple[str, str]:
    """A file without one of its functions, and the function."""
    found = re.search(rf"^static [\w ]*\b{name}\([^;{{]*\)\n\{{.*?^\}}\n", text, re.S | re.M)
    assert found
    return text.replace(found[0], ""), found[0]


def test_functions_that_moved_are_listed_with_their_new_place(patched: Patched) -> None:
    """The tree alone calls the first, the shim the second."""
    old = "max_nr_free = high - batch;"
    tree = patched("6.12", PAGE_ALLOC, old, old)
    text = (tree.root / PAGE_ALLOC).read_text()
    for name in ("nr_pcp_free", "unreserve_highatomic_pageblock"):
        text, moved = without_function(text, name)
        (tree.root / "mm" / f"{name}.c").write_text(f"\n\n{moved}")
        (tree.root / PAGE_ALLOC).write_text(text)
        with pytest.raises(KernelSourceError) as caught:
            CompiledTree(tree).load(PLAIN)
        assert "\n" not in str(caught.value)
        assert f"not found: {name}() (it is at mm/{name}.c:3)" in str(caught.value)


def test_a_compiler_s_complaint_names_the_function_of_the_tree(
    patched: Patched, monkeypatch: MonkeyPatch, tmp_path: Path
) -> None:
    """Also where compilers complain in another language."""
    german = 'case $LC_ALL in C) cat ;; *) sed "s/error:/Fehler:/" ;; esac'
    (tmp_path / "cc").write_text(f'#!/bin/bash\nset -o pipefail\ngcc "$@" 2>&1 | {german} >&2\n')
    (tmp_path / "cc").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.setenv("LC_ALL", "de_DE.UTF-8")
    tree = patched(
        "6.12", PAGE_ALLOC, "pcp->free_count >>= 1;", "pcp->free_count = pages_of_tomorrow();"
    )
    with pytest.raises(KernelSourceError, match=r"in rmqueue_pcplist\(\): .*pages_of_tomorrow"):
        CompiledTree(tree).load(PLAIN)


def test_without_a_compiler_there_is_one_clear_line(
    kernel_source: Sources, monkeypatch: MonkeyPatch, tmp_path: Path
) -> None:
    tree = kernel_source("6.12")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UsageError, match="install gcc"):
        CompiledTree(tree).load(PLAIN)
