"""Trees are patched and cut into items, and functions taken from them; what lacks is listed."""

from __future__ import annotations

import os
import re
import tarfile
import tempfile
from pathlib import Path

import pytest
from pytest import MonkeyPatch

from pagealloc_model.base.errors import UsageError
from pagealloc_model.kernel_source.compiled_tree import CompiledTree
from pagealloc_model.kernel_source.extraction import (
    Configuration,
    Item,
    KernelSourceError,
    TreeIndex,
    extract,
    top_level_items,
)
from pagealloc_model.kernel_source.source_tree import open_tree, read_patch
from tests.kernel_source import Compiled, Patched, Sources

PLAIN = Configuration(zone_types=("DMA32", "Normal"))
PAGE_ALLOC = "mm/page_alloc.c"


def without_function(text: str, name: str) -> tuple[str, str]:
    """A file without one of its functions, and the function."""
    found = re.search(rf"^static [\w ]*\b{name}\([^;{{]*\)\n\{{.*?^\}}\n", text, re.S | re.M)
    assert found
    return text.replace(found[0], ""), found[0]


def test_a_unit_holds_the_tree_s_own_functions(kernel_source: Sources) -> None:
    unit = extract(TreeIndex(kernel_source("6.12")), PLAIN)
    functions = {each.names[0] for each in unit.items if each.kind == "function"}
    assert {"rmqueue_bulk", "nr_pcp_high", "__rmqueue_claim", "zone_watermark_fast"} <= functions
    assert "__alloc_pages_slowpath" not in functions
    line = next(each.line for each in unit.items if each.names[0] == "nr_pcp_free")
    assert unit.function_at(PAGE_ALLOC, line + 3) == "nr_pcp_free"


def test_what_an_older_tree_has_not_is_listed(compiled: Compiled) -> None:
    assert compiled("6.1").missing == (
        "nr_pcp_alloc",
        "decay_pcp_high",
        "__rmqueue_claim",
        "__rmqueue_steal",
    )


def test_renamed_and_changed_functions_are_all_listed(patched: Patched) -> None:
    old = "static void reserve_highatomic_pageblock(struct page *page, int order,"
    tree = patched("6.12", PAGE_ALLOC, old, f"{old} int gate,")
    text = tree.root / PAGE_ALLOC
    text.write_text(text.read_text().replace("wake_all_kswapds(", "wake_every_kswapd("))
    with pytest.raises(KernelSourceError) as caught:
        extract(TreeIndex(tree), PLAIN)
    message = str(caught.value)
    assert f"reserve_highatomic_pageblock() at {PAGE_ALLOC}:" in message
    assert "has a parameter 'gate'" in message
    assert "not found: wake_all_kswapds();" in message


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


def test_a_directory_without_a_kernel_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"no mm/page_alloc\.c"):
        open_tree(tmp_path)


def test_one_of_several_tarballs_must_be_named(tmp_path: Path) -> None:
    for series in ("6.1", "6.12"):
        (tmp_path / f"linux-source-{series}.tar.xz").write_bytes(b"")
    with pytest.raises(UsageError, match=r"name one of linux-source-6\.1\.tar\.xz, linux-source"):
        open_tree(tmp_path)


def test_a_file_that_is_no_tarball_is_refused(tmp_path: Path, monkeypatch: MonkeyPatch) -> None:
    monkeypatch.delenv("PAGEALLOC_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "linux-source-6.12.tar.xz").write_bytes(b"no tarball")
    with pytest.raises(UsageError, match="not a kernel source tarball"):
        open_tree(tmp_path)
    assert not list((tmp_path / "cache" / "pagealloc_model" / "sources").iterdir())


@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes directories of others")
def test_sources_that_others_put_into_the_cache_are_not_read(
    tmp_path: Path, monkeypatch: MonkeyPatch
) -> None:
    monkeypatch.delenv("PAGEALLOC_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    (tmp_path / "linux-1/mm").mkdir(parents=True)
    (tmp_path / "linux-1/mm/page_alloc.c").write_text("mine")
    tarball = tmp_path / "linux-source-1.tar.gz"
    with tarfile.open(tarball, "w:gz") as made:
        made.add(tmp_path / "linux-1", "linux-1")
    root = open_tree(tarball).root
    assert open_tree(tarball).root == root
    (root / "mm/page_alloc.c").write_text("theirs")
    os.chown(root.parent, 1234, 1234)
    read = open_tree(tarball)
    assert read.read("mm/page_alloc.c") == "mine"
    assert read.root != root


SOURCE = """\
/* int not_here(void) { return 1; } */
#ifndef GUARD_H
#define GUARD_H
#include <linux/list.h>

#define LIMIT(x) ((x) + \\
  EXTRA) /* a comment that
 * goes on */
enum colour { RED, GREEN = 4, /* , BLUE */ };
struct shelf {
    struct book *books[LIMIT(2)];
    enum colour colour;
};
struct book;
typedef unsigned int __bitwise mark_t;
static DEFINE_MUTEX(shelf_lock);
static DEFINE_PER_CPU(int, shelf_count);
static int table[2][3] = {
    [RED] = { 1, ('}') },
};
extern int elsewhere(int a);
static void later(void);

#ifdef CONFIG_WIDE
static inline int width(struct shelf *shelf) { return wide(shelf); }
#elif CONFIG_DEPTH > 2
static inline int width(struct shelf *shelf)
{
#if 0
    { return '}'; }
#endif
    { return deep(shelf, "}"); }
}
#else
static inline int width(struct shelf *shelf) { return 0; }
#endif
__no_sanitize
static inline
struct book *first(struct shelf *shelf, int mark_count)
{
    return shelf->books[0];
}
EXPORT_SYMBOL(first);
#endif
"""


def named(name: str) -> list[Item]:
    return [each for each in top_level_items(SOURCE, "mm/shelf.c") if name in each.names]


def test_each_definition_is_found_once_by_its_names() -> None:
    first = ["GUARD_H", "LIMIT", "enum colour RED GREEN", "struct shelf", "mark_t", "shelf_lock"]
    names = [" ".join(each.names) for each in top_level_items(SOURCE, "mm/shelf.c")]
    assert names == [*first, "shelf_count", "table", *["width"] * 3, "first"]


def test_variants_keep_the_conditions_that_choose_between_them() -> None:
    assert [each.conditions[1:] for each in named("width")] == [
        ("(defined(CONFIG_WIDE))",),
        ("!(defined(CONFIG_WIDE)) && (CONFIG_DEPTH > 2)",),
        ("!(defined(CONFIG_WIDE)) && !(CONFIG_DEPTH > 2) && (1)",),
    ]


def test_items_know_their_lines_words_and_parameters() -> None:
    (function,), (macro,) = named("first"), named("LIMIT")
    assert SOURCE.splitlines()[function.line - 1] == "__no_sanitize"
    assert SOURCE.splitlines()[function.end_line - 1] == "}"
    assert function.parameters == ("shelf", "mark_count")
    assert function.prototype.endswith("struct book *first(struct shelf *shelf, int mark_count);")
    assert macro.text.split() == ["#define", "LIMIT(x)", "((x)", "+", "\\", "EXTRA)"]
    assert macro.is_called
    assert "EXTRA" in macro.words
    assert {"deep(", "struct shelf", "shelf"} <= named("width")[1].words
    assert {"struct book", "LIMIT("} <= named("struct shelf")[0].words


FILE = "mm/page_alloc.c"
TEXT = "one\ntwo\nthree\nfour\ntwo\nthree\nfive\n"

POSTED = """From: someone
Subject: [PATCH] mm: other things

---
 mm/page_alloc.c | 4 ++--

diff --git a/mm/swap.c b/mm/swap.c
--- a/mm/swap.c
+++ b/mm/swap.c
@@ -1 +1 @@
-no
+yes
diff --git a/mm/page_alloc.c b/mm/page_alloc.c
--- a/mm/page_alloc.c
+++ b/mm/page_alloc.c
@@ -1,2 +1,3 @@ int one(void)
 one
-two
+TWO
+TWO
@@ -5,2 +6,2 @@
 two
-three
+THREE
--
2.39
"""


def one_hunk(header: str, *lines: str, path: str = f"b/{FILE}") -> str:
    return "\n".join([f"--- a/{FILE}", f"+++ {path}", f"@@ {header} @@", *lines, ""])


def applied(patch: Path | str, text: str = TEXT) -> str:
    return read_patch(patch, (FILE,)).applied(FILE, text)


PATCHED = "one\nTWO\nTWO\nthree\nfour\ntwo\nTHREE\nfive\n"


def test_a_posted_patch_changes_the_files_that_are_read(tmp_path: Path) -> None:
    file = tmp_path / "posted.patch"
    file.write_text(POSTED)
    assert applied(POSTED) == applied(file) == applied(str(file)) == PATCHED


def test_lines_are_found_where_they_have_moved_to_the_nearest_first() -> None:
    assert applied(POSTED, f"zero\n{TEXT}") == f"zero\n{PATCHED}"
    change = ("-two", "+2")
    assert applied(one_hunk("-4,1 +4,1", *change)).split("\n")[4] == "2"
    assert applied(one_hunk("-3,1 +3,1", *change)).split("\n")[1] == "2"


def test_lines_without_context_go_where_the_patch_says() -> None:
    assert applied(one_hunk("-1,0 +2,1", "+new")).startswith("one\nnew\ntwo")
    assert applied(one_hunk("-7 +6,0", "-five")) == TEXT.removesuffix("five\n")


@pytest.mark.parametrize("path", [FILE, f"linux-6.12/{FILE}", f"b/{FILE}"])
def test_files_are_named_with_or_without_a_directory_before_them(path: str) -> None:
    assert applied(one_hunk("-1 +1", "-one", "+1", path=path)).startswith("1\n")


@pytest.mark.parametrize(
    ("patch", "message"),
    [
        (one_hunk("-1 +1", "-ones", "+1"), r"at line 1 of mm/page_alloc\.c is not in the tree"),
        (one_hunk("-90,0 +90,1", "+new"), "is not in the tree"),
        (one_hunk("-1,9 +1,9", " one", "-two"), "line 3: the hunk has other lines"),
        (one_hunk("-1 +1", "-one", "+1", path="b/mm/swap.c"), r"none of the files .* mm/swap\.c"),
        ("no patch\nat all\n", "not a patch"),
        ("/nowhere.patch", "cannot be read"),
    ],
)
def test_what_does_not_apply_is_refused(patch: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        applied(patch)


def test_a_patched_tree_reads_patched_and_stays_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "mm").mkdir()
    (tmp_path / FILE).write_text(TEXT)
    assert open_tree(tmp_path, POSTED).read(FILE) == applied(POSTED)
    assert open_tree(tmp_path).read(FILE) == (tmp_path / FILE).read_text() == TEXT
    with pytest.raises(UsageError, match="is not in the tree"):
        open_tree(tmp_path, one_hunk("-1 +1", "-ones", "+1"))
