"""Every table that `make readme` writes has its place in README, docs/ or data/tables, once."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any

import pytest

DECLARED = ("PLACES", "FILES", "EXCERPTS", "PARTS", "FULL_PARTS")


def declared(checkout: Path) -> dict[str, list[str]]:
    """Keys of the tables that benchmarks/readme.py declares, by the table's name."""
    tree = ast.parse((checkout / "benchmarks" / "readme.py").read_text())
    found = {}
    for node in tree.body:
        target = node.target if isinstance(node, ast.AnnAssign) else None
        if isinstance(node, ast.Assign):
            target = node.targets[0]
        if target is not None and ast.unparse(target) in DECLARED:
            found[ast.unparse(target)] = [ast.literal_eval(key) for key in node.value.keys]  # type: ignore[attr-defined, union-attr]
    return found


def literal(checkout: Path, name: str) -> dict[str, Any]:
    """A table of strings that benchmarks/readme.py declares."""
    tree = ast.parse((checkout / "benchmarks" / "readme.py").read_text())
    for node in tree.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == name:
            return ast.literal_eval(node.value)
    raise AssertionError(f"benchmarks/readme.py declares no {name}")


@pytest.fixture(scope="module")
def written(checkout: Path) -> dict[str, str]:
    files = [checkout / "README.md", *(checkout / "docs").glob("*.md")]
    return {str(file.relative_to(checkout)): file.read_text() for file in files}


def test_every_part_has_a_place(checkout: Path) -> None:
    keys = declared(checkout)
    written = keys["PARTS"] + keys["FULL_PARTS"] + keys["EXCERPTS"]
    assert sorted(keys["PLACES"] + keys["FILES"]) == sorted(written)


def test_markers_are_where_their_part_is_written_once(
    checkout: Path, written: dict[str, str]
) -> None:
    for edge in ("begin", "end"):
        found = sorted(
            (name, file)
            for file, text in written.items()
            for name in re.findall(rf"<!-- ([\w-]+):{edge} -->", text)
        )
        assert found == sorted(literal(checkout, "PLACES").items())


def test_full_tables_are_linked_from_a_page(checkout: Path, written: dict[str, str]) -> None:
    declared = {name for names in literal(checkout, "FILES").values() for name in names}
    assert {path.stem for path in (checkout / "data" / "tables").iterdir()} == declared
    pages = "".join(written.values())
    shown = set(re.findall(r'Excerpt\(\s*"(\w+)"', (checkout / "benchmarks/readme.py").read_text()))
    assert {name for name in declared if f"data/tables/{name}.csv)" not in pages} <= shown


def test_every_table_holds_figures(written: dict[str, str]) -> None:
    """A table that was lost while pages moved would leave its markers empty."""
    for file, text in written.items():
        for name, table in re.findall(r"<!-- ([\w-]+):begin -->\n(.*?)<!-- \1:end -->", text, re.S):
            rows = [line for line in table.splitlines() if line.startswith("| ")]
            assert len(rows) > 1, (file, name)
            assert any(re.search(r"\d", row) for row in rows[1:]), (file, name)


def test_readme_is_short(written: dict[str, str]) -> None:
    assert len(written["README.md"].splitlines()) <= 150


def test_pages_are_short(written: dict[str, str]) -> None:
    """Each page but the spec is read at once, and so are all of them in an hour."""
    exact = ("page_allocator", "trace_events", "recording", "kernel_functions")
    lines = {
        file: len(text.splitlines())
        for file, text in written.items()
        if file.startswith("docs/") and Path(file).stem not in exact
    }
    assert {file: count for file, count in lines.items() if count > 150} == {}
    assert sum(lines.values()) <= 2200


def test_pages_with_tables_lead_to_the_glossary(written: dict[str, str]) -> None:
    without = [
        file
        for file, text in written.items()
        if ":begin -->" in text and "glossary.md)" not in text
    ]
    assert not without
