"""Examples of README and docs/: every block of code, and what may be done with it."""

from __future__ import annotations

import re
import shlex
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

FENCE = re.compile(
    r"(?:<!-- (?P<mark>not run|long): (?P<why>.+?) -->\n\s*)?"
    r"^(?P<indent> *)```(?P<language>\S*)\n(?P<body>.*?)^(?P=indent)```$",
    re.MULTILINE | re.DOTALL,
)
RUNNABLE = ("python", "sh")


@dataclass(frozen=True, kw_only=True)
class Example:
    """One block."""

    page: str  # path of its page, from the top of the checkout
    line: int  # of its first line
    language: str  # as its fence names it
    body: str  # its text
    mark: str  # "not run", "long", or ""
    why: str  # the reason that stands with the mark

    def commands(self) -> list[list[str]]:
        lines = self.body.replace("\\\n", " ").splitlines()
        return [words for line in lines if (words := shlex.split(line, comments=True))]


def pages(checkout: Path) -> list[str]:
    """README, CONTRIBUTING and the pages of docs/, from the top of the checkout."""
    files = [
        checkout / "README.md",
        checkout / "CONTRIBUTING.md",
        *(checkout / "docs").glob("*.md"),
    ]
    return sorted(str(file.relative_to(checkout)) for file in files)


def examples(checkout: Path, page: str) -> Iterator[Example]:
    """The blocks of a page, in order."""
    text = (checkout / page).read_text()
    for found in FENCE.finditer(text):
        yield Example(
            page=page,
            line=text.count("\n", 0, found.start("body")) + 1,
            language=found["language"],
            body=textwrap.dedent(found["body"]),
            mark=found["mark"] or "",
            why=found["why"] or "",
        )
