"""Every table that `make readme` writes has its place in README or docs/, once."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest


def declared(checkout: Path) -> dict[str, list[str]]:
    """Keys of the tables that benchmarks/readme.py declares, by the table's name."""
    tree = ast.parse((checkout / "benchmarks" / "readme.py").read_text())
    found = {}
    for node in tree.body:
        target = node.target if isinstance(node, ast.AnnAssign) else None
        if isinstance(node, ast.Assign):
            target = node.targets[0]
        if target is not None and ast.unparse(target) in ("PLACES", "PARTS", "FULL_PARTS"):
            found[ast.unparse(target)] = [ast.literal_eval(key) for key in node.value.keys]  # type: ignore[attr-defined, union-attr]
    return found


def places(checkout: Path) -> dict[str, str]:
    tree = ast.parse((checkout / "benchmarks" / "readme.py").read_text())
    for node in tree.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "PLACES":
            return ast.literal_eval(node.value)
    raise AssertionError("benchmarks/readme.py declares no PLACES")


@pytest.fixture(scope="module")
def written(checkout: Path) -> dict[str, str]:
    files = [checkout / "README.md", *(checkout / "docs").glob("*.md")]
    return {str(file.relative_to(checkout)): file.read_text() for file in files}


def test_every_part_has_a_place(checkout: Path) -> None:
    keys = declared(checkout)
    assert sorted(keys["PLACES"]) == sorted(keys["PARTS"] + keys["FULL_PARTS"])


def test_markers_are_where_their_part_is_written_once(
    checkout: Path, written: dict[str, str]
) -> None:
    for edge in ("begin", "end"):
        found = sorted(
            (name, file)
            for file, text in written.items()
            for name in re.findall(rf"<!-- ([\w-]+):{edge} -->", text)
        )
        assert found == sorted(places(checkout).items())


def test_every_table_holds_figures(written: dict[str, str]) -> None:
    """A table that was lost while pages moved would leave its markers empty."""
    for file, text in written.items():
        for name, table in re.findall(r"<!-- ([\w-]+):begin -->\n(.*?)<!-- \1:end -->", text, re.S):
            rows = [line for line in table.splitlines() if line.startswith("| ")]
            assert len(rows) > 1, (file, name)
            assert any(re.search(r"\d", row) for row in rows[1:]), (file, name)


def test_readme_is_short(written: dict[str, str]) -> None:
    assert len(written["README.md"].splitlines()) <= 200


def test_pages_with_tables_lead_to_the_glossary(written: dict[str, str]) -> None:
    without = [
        file
        for file, text in written.items()
        if ":begin -->" in text and "glossary.md)" not in text
    ]
    assert not without
