"""The examples of README and docs/ run: Python in one namespace a page, commands by the CLI.

What cannot run here has a comment before it that says why: `<!-- not run: WHY -->`. What takes
long has `<!-- long: WHY -->`, and runs with `-m long`.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from pytest import MonkeyPatch

from pagealloc_model.cli import main
from tests.docs.examples import RUNNABLE, Example, examples, pages

CHECKOUT = Path(__file__).parent.parent.parent
PAGES = pages(CHECKOUT)
LANGUAGES = {"python", "sh", "text", "diff", "toml"}


def with_runnable(mark: str) -> list[str]:
    """Pages on which something runs: unmarked blocks for "", those marked long for "long"."""
    return [
        page
        for page in PAGES
        if any(each.language in RUNNABLE and each.mark == mark for each in examples(CHECKOUT, page))
    ]


def run_page(page: str, *, with_long: bool) -> None:
    """Run a page's blocks in order, in the working directory."""
    namespace: dict[str, Any] = {"__name__": "example"}
    for example in examples(CHECKOUT, page):
        if example.mark == "not run" or (example.mark == "long" and not with_long):
            continue
        if example.language == "python":
            run_python(example, namespace)
        elif example.language == "sh":
            run_commands(example)


def run_python(example: Example, namespace: dict[str, Any]) -> None:
    """Execute a block; a complaint names the page and its line."""
    shifted = "\n" * (example.line - 1) + example.body
    exec(compile(shifted, str(CHECKOUT / example.page), "exec"), namespace)


def run_commands(example: Example) -> None:
    """Run each `pagealloc` line of a block; anything else needs a mark."""
    for program, *arguments in example.commands():
        assert program == "pagealloc", (
            f"{example.page}:{example.line}: say why {program} is not run"
        )
        assert main(arguments) == 0, f"{example.page}:{example.line}: {' '.join(arguments)}"


@pytest.fixture(autouse=True)
def in_empty_folder(tmp_path: Path, monkeypatch: MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("document", with_runnable(""))
def test_examples_run(document: str) -> None:
    run_page(document, with_long=False)


@pytest.mark.long
@pytest.mark.parametrize("document", with_runnable("long"))
def test_long_examples_run(document: str) -> None:
    run_page(document, with_long=True)


@pytest.mark.parametrize("document", PAGES)
def test_blocks_say_what_they_are(document: str) -> None:
    """A fence without a language, or a second way to write a shell, would run nowhere."""
    text = (CHECKOUT / document).read_text()
    found = list(examples(CHECKOUT, document))
    assert 2 * len(found) == len(re.findall(r"^ *```", text, re.MULTILINE))
    if document not in ("docs/page_allocator.md", "docs/trace_events.md"):
        assert {each.language for each in found} <= LANGUAGES


def test_an_example_that_fails_is_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("text\n\n```python\nassert 1 == 2\n```\n\n```sh\nrm -r /nowhere\n```\n")
    (broken, other) = examples(tmp_path, "page.md")
    with pytest.raises(AssertionError):
        run_python(broken, {})
    with pytest.raises(AssertionError, match=r"page\.md:8: say why rm is not run"):
        run_commands(other)
