"""Every part that `make readme` writes has its place in README or docs/, once."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest


def part_names(checkout: Path) -> list[str]:
    tree = ast.parse((checkout / "benchmarks" / "readme.py").read_text())
    named = [node for node in tree.body if isinstance(node, ast.AnnAssign)]
    parts = [each.value for each in named if ast.unparse(each.target) in ("PARTS", "FULL_PARTS")]
    assert len(parts) == 2
    return [key.value for part in parts for key in part.keys]  # type: ignore[union-attr]


@pytest.fixture(scope="module")
def written(checkout: Path) -> str:
    files = [checkout / "README.md", *(checkout / "docs").glob("*.md")]
    return "\n".join(file.read_text() for file in files)


def test_every_part_has_its_markers_once(checkout: Path, written: str) -> None:
    for name in part_names(checkout):
        assert written.count(f"<!-- {name}:begin -->\n") == 1, name
        assert written.count(f"<!-- {name}:end -->") == 1, name


def test_every_marker_is_of_a_part(checkout: Path, written: str) -> None:
    marks = [line[5:-10] for line in written.splitlines() if line.endswith(":begin -->")]
    assert sorted(marks) == sorted(part_names(checkout))
