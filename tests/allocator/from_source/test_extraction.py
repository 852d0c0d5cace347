"""Functions are taken from real trees; what is not there, or not as expected, is listed."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from pagealloc_model.allocator.from_source.compiled_tree import CompiledTree
from pagealloc_model.allocator.from_source.extraction import (
    Configuration,
    KernelSourceError,
    TreeIndex,
    extract,
)
from pagealloc_model.allocator.from_source.source_tree import SourceTree, open_tree
from pagealloc_model.base.errors import UsageError

PLAIN = Configuration(zone_types=("DMA32", "Normal"))
PAGE_ALLOC = "mm/page_alloc.c"


def without_function(text: str, name: str) -> tuple[str, str]:
    """A file without one of its functions, and the function."""
    found = re.search(rf"^static [\w ]*\b{name}\([^;{{]*\)\n\{{.*?^\}}\n", text, re.S | re.M)
    assert found
    return text.replace(found[0], ""), found[0]


def test_a_unit_holds_the_tree_s_own_functions(
    kernel_source: Callable[[str], SourceTree],
) -> None:
    unit = extract(TreeIndex(kernel_source("6.12")), PLAIN)
    functions = {each.names[0] for each in unit.items if each.kind == "function"}
    assert {"rmqueue_bulk", "nr_pcp_high", "__rmqueue_claim", "zone_watermark_fast"} <= functions
    assert "__alloc_pages_slowpath" not in functions
    line = next(each.line for each in unit.items if each.names[0] == "nr_pcp_free")
    assert unit.function_at(PAGE_ALLOC, line + 3) == "nr_pcp_free"


def test_what_an_older_tree_has_not_is_listed(compiled: Callable[[str], CompiledTree]) -> None:
    assert compiled("6.1").missing == (
        "nr_pcp_alloc",
        "decay_pcp_high",
        "__rmqueue_claim",
        "__rmqueue_steal",
    )


def test_renamed_and_changed_functions_are_all_listed(
    patched: Callable[[str, str, str, str], SourceTree],
) -> None:
    tree = patched(
        "6.12",
        PAGE_ALLOC,
        "static void reserve_highatomic_pageblock(struct page *page, int order,",
        "static void reserve_highatomic_pageblock(struct page *page, int order, int gate,",
    )
    text = tree.root / PAGE_ALLOC
    text.write_text(text.read_text().replace("wake_all_kswapds(", "wake_every_kswapd("))
    with pytest.raises(KernelSourceError) as caught:
        extract(TreeIndex(tree), PLAIN)
    message = str(caught.value)
    assert f"reserve_highatomic_pageblock() at {PAGE_ALLOC}:" in message
    assert "has a parameter 'gate'" in message
    assert "not found: wake_all_kswapds();" in message


def test_functions_that_moved_are_listed_with_their_new_place(
    patched: Callable[[str, str, str, str], SourceTree],
) -> None:
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


def test_files_that_a_tree_lacks_are_listed(
    patched: Callable[[str, str, str, str], SourceTree],
) -> None:
    old = "max_nr_free = high - batch;"
    tree = patched("6.12", PAGE_ALLOC, old, old)
    (tree.root / "include/linux/gfp_types.h").unlink()
    with pytest.raises(KernelSourceError, match=r"not found: include/linux/gfp_types\.h"):
        CompiledTree(tree).load(PLAIN)


def test_a_compiler_s_complaint_names_the_function_of_the_tree(
    patched: Callable[[str, str, str, str], SourceTree],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
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
    kernel_source: Callable[[str], SourceTree], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    tree = kernel_source("6.12")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UsageError, match="install gcc"):
        CompiledTree(tree).load(PLAIN)


def test_a_directory_without_a_kernel_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"no mm/page_alloc\.c"):
        open_tree(tmp_path)


def test_one_of_several_tarballs_must_be_named(tmp_path: Path) -> None:
    for series in ("6.1", "6.12"):
        (tmp_path / f"linux-source-{series}.tar.xz").write_bytes(b"")
    with pytest.raises(UsageError, match=r"name one of linux-source-6\.1\.tar\.xz, linux-source"):
        open_tree(tmp_path)


def test_a_file_that_is_no_tarball_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "linux-source-6.12.tar.xz").write_bytes(b"no tarball")
    with pytest.raises(UsageError, match="not a kernel source tarball"):
        open_tree(tmp_path)
    assert not list((tmp_path / "cache" / "pagealloc_model").iterdir())
