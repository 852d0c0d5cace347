"""Messages of sections: encoding, lists, Markdown, commands."""

from __future__ import annotations

from pathlib import Path

import pytest
from markdown_it import MarkdownIt

from pagealloc_model.show.post.message import Fixed, Message, Section, Words, command


def test_utf8_is_declared(tmp_path: Path) -> None:
    message = Message(
        subject="s", sections=(Section(title="T", blocks=(Fixed(text="\u2588"),)),), utf8=True
    )
    assert "Content-Type: text/plain; charset=UTF-8\n" in message.to_text()
    assert "\u2588" in message.to_text()


def test_items_of_a_list_stand_together() -> None:
    blocks = (Words(text="a", bullet=True), Words(text="b", bullet=True), Words(text="c"))
    message = Message(subject="s", sections=(Section(title="T", blocks=blocks),))
    assert message.to_text() == "Subject: s\n\nT\n-\n\n- a\n- b\n\nc\n"
    assert message.to_markdown() == "# s\n\n## T\n\n- a\n- b\n\nc\n"


@pytest.mark.parametrize(
    "text",
    [
        "<img src=x>",
        "[a](https://b)",
        "![a](https://b)",
        "[a]: https://b",
        "`code`",
        "*strong* **stronger** _weak_ __bold__",
        "~~gone~~",
        "&lt;b&gt;",
        "# title",
        "> quoted",
        "a\\*b",
        "pcp->batch of __GFP_HIGH, defrag_mode=True [predicted]",
    ],
)
def test_markdown_shows_words_as_they_are(text: str) -> None:
    blocks = (Words(text=text), Words(text=text, bullet=True))
    message = Message(subject=text, sections=(Section(title="", blocks=blocks),))
    tokens = [
        part
        for token in MarkdownIt("commonmark").enable("strikethrough").parse(message.to_markdown())
        for part in token.children or ()
    ]
    assert {token.type for token in tokens} <= {"text", "text_special"}
    assert "".join(token.content for token in tokens) == text * 3


def test_markdown_leaves_plain_names_alone() -> None:
    text = "[predicted] pcp->batch of defrag_mode=True, 5 % & more"
    assert Message(subject=text, sections=()).to_markdown() == f"# {text}\n\n"[:-1]


def test_long_commands_are_broken_where_a_shell_goes_on() -> None:
    lines = command(" ".join(f"--option{number} value" for number in range(12))).text.splitlines()
    assert len(lines) > 1
    assert all(line.endswith(" \\") for line in lines[:-1])
    assert max(map(len, lines)) <= 72
