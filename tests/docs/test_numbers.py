"""Numbers of README and docs/ are those that commands print, and that their tables hold.

Behind a paragraph or a table stands which command prints its numbers, in a comment that readers of
the page do not see: `<!-- COMMAND prints NUMBER; NUMBER -->`. Each number has to stand between the
last heading and the comment, and in what the command prints; commas of thousands do not count.
"""

from __future__ import annotations

import io
import re
import shlex
import subprocess
import sys
from contextlib import redirect_stdout
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path

import pytest

from pagealloc_model.cli import main
from tests.docs.examples import examples, pages

CHECKOUT = Path(__file__).parent.parent.parent
PRINTED = re.compile(
    r"<!-- (?P<command>(?:pagealloc|python) [^>]+?)\s+prints\s+(?P<numbers>[^>]+?) -->"
)
HEADING = re.compile(r"^#+ .*$", re.MULTILINE)
BLOCK = re.compile(r"<!-- (?P<name>[\w-]+):begin -->\n(?P<lines>.*?)<!-- (?P=name):end -->", re.S)


@dataclass(frozen=True, kw_only=True)
class Printed:
    """Numbers of a page, the command that prints them, and the text that has them."""

    page: str
    command: str
    numbers: tuple[str, ...]
    near: str

    def __str__(self) -> str:
        return f"{self.page}: {self.command}"


def printed(page: str, text: str) -> list[Printed]:
    """The comments of a page."""
    found = []
    for each in PRINTED.finditer(text):
        before = text[: each.start()]
        headings = [*HEADING.finditer(before)]
        near = PRINTED.sub("", before[headings[-1].start() if headings else 0 :])
        numbers = tuple(" ".join(each["numbers"].split()).split("; "))
        command = " ".join(each["command"].split())
        found.append(Printed(page=page, command=command, numbers=numbers, near=near))
    return found


@cache
def output(command: str) -> str:
    """What a command prints; of `python`, run at the top of the checkout."""
    program, *words = shlex.split(command)
    if program == "python":
        asked = [sys.executable, *words]
        return subprocess.run(
            asked, cwd=CHECKOUT, capture_output=True, text=True, check=True
        ).stdout
    out = io.StringIO()
    with redirect_stdout(out):
        assert main(words) == 0, command
    return out.getvalue()


def has(text: str, number: str) -> bool:
    """Whether a number stands in a text, not as a part of another one."""
    plain = re.sub(r"(?<=\d),(?=\d{3})", "", f" {text} ")
    wanted = re.escape(number.replace(",", ""))
    return re.search(rf"(?<![\d.]){wanted}(?![\d]|\.\d)", plain) is not None


def absent(of: Printed) -> list[str]:
    """Where which of the numbers are missing."""
    sides = {of.page: of.near, of.command: output(of.command)}
    return [
        f"{number} is not in {place}"
        for place, text in sides.items()
        for number in of.numbers
        if not has(text, number)
    ]


ALL = [each for page in pages(CHECKOUT) for each in printed(page, (CHECKOUT / page).read_text())]


@pytest.mark.parametrize("of", ALL, ids=str)
def test_numbers_are_printed_by_their_commands(
    of: Printed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(CHECKOUT)
    assert absent(of) == []


@pytest.mark.parametrize("page", ["README.md", "docs/pcp_buddy.md", "docs/defrag_mode.md"])
def test_pages_with_results_say_what_prints_them(page: str) -> None:
    assert any(each.page == page for each in ALL)


def test_a_changed_number_is_found() -> None:
    text = "# A\n412 holds\n# B\n1,903 holds, 63.5 %\n<!-- pagealloc x prints 1,903; 412; 63 -->\n"
    (one,) = printed("page", text)
    assert one.numbers == ("1,903", "412", "63") and one.command == "pagealloc x"
    assert [number for number in one.numbers if not has(one.near, number)] == ["412", "63"]
    assert has("holds 1903", "1,903") and not has("holds 11,903", "1,903")


def shown_outputs() -> list[tuple[str, list[str], str]]:
    """Of each page, commands of a block and the text in a fence right behind it."""
    found = []
    for page in pages(CHECKOUT):
        blocks = list(examples(CHECKOUT, page))
        for one, two in pairwise(blocks):
            if one.language == "sh" and two.language == "text":
                last = one.commands()[-1]
                if last[0] == "pagealloc" and (two.line - one.line) <= one.body.count("\n") + 4:
                    found.append((page, last, two.body))
    return found


@pytest.mark.parametrize(("page", "command", "shown"), shown_outputs())
def test_text_behind_a_command_is_what_it_prints(
    page: str, command: list[str], shown: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(CHECKOUT)
    assert shown.strip() in output(shlex.join(command)), page


FINDING = re.compile(r"^\| \[[^]]+\]\((?P<page>docs/\w+\.md)\) \| (?P<result>.+) \|$", re.MULTILINE)
NUMBER = re.compile(r"(?<![\w.=])\d[\d,]*(?:\.\d+)?(?![\w.]*[a-z])")


def findings() -> list[tuple[str, str]]:
    """Rows of README that tell a page's results."""
    return FINDING.findall((CHECKOUT / "README.md").read_text())


@pytest.mark.parametrize(("page", "result"), findings())
def test_numbers_of_a_finding_stand_on_its_page(page: str, result: str) -> None:
    pages_of = [page, *re.findall(r"\]\((docs/\w+\.md)\)", result)]
    text = "\n".join((CHECKOUT / each).read_text() for each in pages_of)
    told = re.sub(r"`[^`]*`|\]\([^)]*\)", " ", result)
    assert [number for number in NUMBER.findall(told) if not has(text, number.rstrip(","))] == []
