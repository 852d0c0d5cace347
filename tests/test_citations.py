"""Every citation of the spec in the code ("S4.4", "T12.3") leads to a section in docs/."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

CITATION = re.compile(r"\b([ST]\d{1,2}(?:\.\d{1,2})?)\b")
SECTION = re.compile(r"^(?:## |\*\*)([ST]\d{1,2}(?:\.\d{1,2})?)\b", re.MULTILINE)


def sections(docs: Path) -> set[str]:
    return {name for page in docs.glob("*.md") for name in SECTION.findall(page.read_text())}


def citations(text: str) -> list[tuple[int, str]]:
    """(line number, section) of each citation in comments, docstrings and other text."""
    return [
        (number, name)
        for number, line in enumerate(text.splitlines(), start=1)
        for name in CITATION.findall(line)
    ]


def test_sections_are_found(checkout: Path) -> None:
    assert {"S1", "S4.4", "S13", "T1", "T12.3"} <= sections(checkout / "docs")


@pytest.mark.parametrize("folder", ["pagealloc_model", "docs", "notebooks"])
def test_citations_resolve(checkout: Path, folder: str) -> None:
    known = sections(checkout / "docs")
    files = [
        path
        for path in sorted((checkout / folder).rglob("*"))
        if path.suffix in {".py", ".md", ".ipynb"} and ".ipynb_checkpoints" not in path.parts
    ]
    dangling = [
        f"{path.relative_to(checkout)}:{line}: {name}"
        for path in files
        for line, name in citations(path.read_text())
        if name not in known
    ]
    assert not dangling, "\n".join(dangling)
