"""Patches are applied to what is read of a tree; what does not apply is refused in one line."""

from __future__ import annotations

from pathlib import Path

import pytest

from pagealloc_model.allocator.from_source.source_tree import open_tree, read_patch
from pagealloc_model.base.errors import UsageError

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


def test_a_posted_patch_changes_the_files_that_are_read(tmp_path: Path) -> None:
    expected = "one\nTWO\nTWO\nthree\nfour\ntwo\nTHREE\nfive\n"
    assert applied(POSTED) == expected
    file = tmp_path / "posted.patch"
    file.write_text(POSTED)
    assert applied(file) == applied(str(file)) == expected


def test_lines_are_found_where_they_have_moved_to_the_nearest_first() -> None:
    assert (
        applied(POSTED, f"zero\n{TEXT}") == "zero\none\nTWO\nTWO\nthree\nfour\ntwo\nTHREE\nfive\n"
    )
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
