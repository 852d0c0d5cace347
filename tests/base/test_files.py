"""Files and directories that are made: names of their own, nothing overwritten."""

from __future__ import annotations

from pathlib import Path

import pytest

from pagealloc_model.base.errors import UsageError
from pagealloc_model.base.files import file_name_of, new_file

PATHS = (
    *(
        "/opt/v",
        "../../up",
        "..",
        ".",
        "",
        ".hidden",
        "-rf",
        "a/b",
        "a\0b",
        "a b",
        "a\nb",
        "events",
    ),
    *("losses", "a:b:c", "kmem:../x", "%2e", "x" * 300, "\ud800", "\u00e9:x"),
)


@pytest.mark.parametrize("name", PATHS)
def test_a_name_makes_a_file_only_in_its_directory(tmp_path: Path, name: str) -> None:
    inside = tmp_path / "inside"
    inside.mkdir()
    new_file(inside, f"{file_name_of(name)}.x").close()
    assert [path.parent for path in tmp_path.rglob("*.x")] == [inside]
    assert not file_name_of(name).startswith((".", "-"))


def test_only_equal_names_have_equal_file_names() -> None:
    names = {*PATHS, "kmem:mm_page_free", "kmem.mm_page_free", "%kmem", "x" * 301}
    assert len({file_name_of(name) for name in names}) == len(names)
    assert file_name_of("kmem:mm_page_free") == "kmem.mm_page_free"


@pytest.mark.parametrize("name", ["/tmp/x", "../x", "..", "", "a/b", "a\0b"])
def test_a_path_is_no_name_of_a_file(tmp_path: Path, name: str) -> None:
    with pytest.raises(UsageError, match="is no name"):
        new_file(tmp_path, name)


def test_what_is_there_is_not_written_to(tmp_path: Path) -> None:
    (tmp_path / "victim").write_text("kept")
    (tmp_path / "link").symlink_to(tmp_path / "victim")
    for name in ("victim", "link"):
        with pytest.raises(UsageError, match="cannot be made"):
            new_file(tmp_path, name)
    assert (tmp_path / "victim").read_text() == "kept"
    new_file(tmp_path, "new").close()
    assert (tmp_path / "new").stat().st_mode & 0o777 == 0o600
