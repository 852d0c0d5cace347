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
