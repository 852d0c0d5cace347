"""Trees are patched and cut into items, and functions taken from them; what lacks is listed."""

from __future__ import annotations

import os
import tarfile
import tempfile
from pathlib import Path

import pytest
from pytest import MonkeyPatch

from pagealloc_model.base.errors import UsageError
from pagealloc_model.kernel_source.extraction import (
    Configuration,
)
from pagealloc_model.kernel_source.source_tree import open_tree, read_patch
from tests.kernel_source import Compiled

PLAIN = Configuration(zone_types=("DMA32", "Normal"))
PAGE_ALLOC = "mm/page_alloc.c"


def test_what_an_older_tree_has_not_is_listed(compiled: Compiled) -> None:
    assert compiled("6.1").missing == (
        "nr_pcp_alloc",
        "decay_pcp_high",
        "__rmqueue_claim",
        "__rmqueue_steal",
    )


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
