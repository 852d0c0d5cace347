"""`pagealloc post --reply highatomic`: a mail that a list takes, an error beside each figure."""

from __future__ import annotations

from pathlib import Path

import pytest
from pagealloc_model.notebooks.studies.shipped_idle_reserve import reply

from pagealloc_model.cli import main
from pagealloc_model.show.post.message import Fixed


def test_the_command_prints_the_reply(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["post", "--reply", "highatomic"]) == 0
    text = capsys.readouterr().out
    assert text == reply().to_text()
    assert text.startswith("Subject: Re: [PATCH] mm/page_alloc: skip high atomic reservation\n\n")
    assert text.isascii() and "nan" not in text.lower().split()
    assert max(map(len, text.splitlines())) <= 72
    assert text.count("\n") <= 60
    assert main(["post", "--reply", "highatomic", "--format", "md"]) == 0
    assert capsys.readouterr().out.startswith("# Re: [PATCH]")


def test_each_row_with_a_figure_has_its_error() -> None:
    blocks = [block for section in reply().sections for block in section.blocks]
    tables = [block.text for block in blocks if isinstance(block, Fixed)]
    figures = [line for table in tables for line in table.splitlines() if "%" in line]
    assert len(figures) > 6
    assert [line for line in figures if " to " not in line and "one run" not in line] == []


def test_it_is_written_as_mail_and_as_markdown(tmp_path: Path) -> None:
    folder = tmp_path / "reply"
    assert main(["post", "--reply", "highatomic", "-o", str(folder)]) == 0
    assert sorted(file.name for file in folder.iterdir()) == ["post.md", "post.txt"]
    assert (folder / "post.txt").read_text() == reply().to_text()


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["kbuild", "--reply", "highatomic"], "leave out PATH"),
        (["--reply", "highatomic", "--patch", "pcp_batch=7"], "leave out PATH"),
        (["kbuild"], "needs PATH and --patch"),
        (["--patch", "pcp_batch=7"], "needs PATH and --patch"),
    ],
)
def test_a_reply_stands_alone_and_a_comparison_needs_both(
    words: list[str], error: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["post", *words]) == 2
    assert error in capsys.readouterr().err
