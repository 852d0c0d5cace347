"""A message for a mailing list: a subject, sections of words and of fixed lines, as mail or .md."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pagealloc_model.base.text import INDENT, WIDTH, ascii_only, cleaned, folded, paragraph

SUBJECT = "Subject: "
MIME_HEADERS = (
    "MIME-Version: 1.0",
    "Content-Type: text/plain; charset=UTF-8",
    "Content-Transfer-Encoding: 8bit",
)


@dataclass(frozen=True, kw_only=True)
class Words:
    """A paragraph, wrapped where it is shown.

    Attributes:
        text: of any length.
        bullet: whether it is an item of a list.
    """

    text: str
    bullet: bool = False


@dataclass(frozen=True, kw_only=True)
class Fixed:
    """Lines whose columns matter: a table, a chart, a command; 72 columns at most."""

    text: str


Block = Words | Fixed


@dataclass(frozen=True, kw_only=True)
class Section:
    """A title, "" for none, and what stands below it."""

    title: str
    blocks: tuple[Block, ...]


@dataclass(frozen=True, kw_only=True)
class Message:
    """A complete message; `str()` is its text.

    Attributes:
        subject: one line.
        sections: in order.
        utf8: whether charts use characters outside ASCII.
    """

    subject: str
    sections: tuple[Section, ...]
    utf8: bool = False

    def __str__(self) -> str:
        return self.to_text()

    def to_text(self) -> str:
        """A mail as `git send-email` and `mutt -H` take it: Subject, blank line, body.

        Spaces only, no line over 72 columns, ASCII unless `utf8`.
        """
        subject = " ".join(self.subject.split())
        headers = [f"{SUBJECT}{subject}"[:WIDTH], *(MIME_HEADERS if self.utf8 else ())]
        parts = ["\n".join(headers), *(_section_text(section) for section in self.sections)]
        text = "\n\n".join(parts).expandtabs() + "\n"
        text = "\n".join(line.rstrip() for line in text.splitlines()) + "\n"
        return cleaned(text if self.utf8 else ascii_only(text))

    def to_markdown(self) -> str:
        """The same as Markdown; fixed lines stand in fences."""
        parts = [f"# {self.subject}"]
        for section in self.sections:
            title = f"## {section.title}\n\n" if section.title else ""
            parts.append(title + _joined(section.blocks, _as_markdown))
        return cleaned("\n\n".join(parts) + "\n")


def _section_text(section: Section) -> str:
    title = f"{section.title}\n{'-' * len(section.title)}\n\n" if section.title else ""
    return title + _joined(section.blocks, _as_text)


def _joined(blocks: Sequence[Block], show: Callable[[Block], str]) -> str:
    """Blocks with an empty line between them, but none between the items of a list."""
    text, was_item = "", False
    for block in blocks:
        is_item = isinstance(block, Words) and block.bullet
        gap = "\n" if is_item and was_item else "\n\n"
        text += (gap if text else "") + show(block)
        was_item = is_item
    return text


def _as_text(block: Block) -> str:
    if isinstance(block, Fixed):
        return "\n".join(folded(line) for line in block.text.rstrip().splitlines())
    return paragraph(block.text, label="- " if block.bullet else "")


def _as_markdown(block: Block) -> str:
    if isinstance(block, Fixed):
        return f"```\n{block.text.rstrip()}\n```"
    return f"- {block.text}" if block.bullet else block.text


def command(words: str) -> Fixed:
    """A command to type, broken by backslashes where it is too long for a line."""
    lines, line = [], f"{INDENT}$"
    for word in words.split():
        if len(f"{line} {word} \\") > WIDTH:
            lines.append(f"{line} \\")
            line = INDENT * 2
        line += f" {word}"
    return Fixed(text="\n".join([*lines, line]))
