"""Every table that `make readme` writes has its place in README, docs/ or data/tables, once."""

from __future__ import annotations

import ast
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest


def declared(checkout: Path) -> dict[str, Any]:
    """The tables that `make readme` writes, as benchmarks/readme.toml declares them."""
    return tomllib.loads((checkout / "benchmarks" / "readme.toml").read_text())


def parts_made(checkout: Path) -> list[str]:
    """Names of the parts that benchmarks/readme.py has lines for."""
    tree = ast.parse((checkout / "benchmarks" / "readme.py").read_text())
    return [
        ast.literal_eval(key)
        for node in tree.body
        if isinstance(node, ast.AnnAssign)
        and ast.unparse(node.target) in ("PARTS", "FULL_PARTS", "EXCERPTS")
        for key in node.value.keys  # type: ignore[union-attr]
        if key is not None
    ]


@pytest.fixture(scope="module")
def written(checkout: Path) -> dict[str, str]:
    files = [checkout / "README.md", *(checkout / "docs").glob("*.md")]
    return {str(file.relative_to(checkout)): file.read_text() for file in files}


def test_every_part_has_a_place(checkout: Path) -> None:
    tables = declared(checkout)
    written = [*parts_made(checkout), *tables["excerpts"]]
    assert sorted([*tables["places"], *tables["files"]]) == sorted(written)


def test_markers_are_where_their_part_is_written_once(
    checkout: Path, written: dict[str, str]
) -> None:
    for edge in ("begin", "end"):
        found = sorted(
            (name, file)
            for file, text in written.items()
            for name in re.findall(rf"<!-- ([\w-]+):{edge} -->", text)
        )
        assert found == sorted(declared(checkout)["places"].items())


def test_full_tables_are_linked_from_a_page(checkout: Path, written: dict[str, str]) -> None:
    tables = declared(checkout)
    files = {name for names in tables["files"].values() for name in names}
    assert {path.stem for path in (checkout / "data" / "tables").iterdir()} == files
    pages = "".join(written.values())
    shown = {excerpt["table"] for excerpt in tables["excerpts"].values()}
    assert {name for name in files if f"data/tables/{name}.csv)" not in pages} <= shown


def test_every_table_holds_figures(written: dict[str, str]) -> None:
    """A table that was lost while pages moved would leave its markers empty."""
    for file, text in written.items():
        for name, table in re.findall(r"<!-- ([\w-]+):begin -->\n(.*?)<!-- \1:end -->", text, re.S):
            rows = [line for line in table.splitlines() if line.startswith("| ")]
            assert len(rows) > 1, (file, name)
            assert any(re.search(r"\d", row) for row in rows[1:]), (file, name)


def test_pages_are_short(written: dict[str, str]) -> None:
    """README and each page but the spec are read at once, and so are all of them in an hour."""
    assert len(written["README.md"].splitlines()) <= 150
    exact = ("page_allocator", "trace_events", "recording", "kernel_functions")
    lines = {
        file: len(text.splitlines())
        for file, text in written.items()
        if file.startswith("docs/") and Path(file).stem not in exact
    }
    assert {file: count for file, count in lines.items() if count > 150} == {}
    assert sum(lines.values()) <= 2440
