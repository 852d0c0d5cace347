"""A message for a mailing list: a subject, sections of words and of fixed lines, as mail or .md."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pagealloc_model.base.text import INDENT, WIDTH, ascii_only, cleaned, folded, paragraph

MIME_HEADERS = (
    "MIME-Version: 1.0\nContent-Type: text/plain; charset=UTF-8\nContent-Transfer-Encoding: 8bit"
)

LISTS = ("linux-mm@kvack.org", "linux-kernel@vger.kernel.org")
PAGE_ALLOCATOR = (
    "Andrew Morton <akpm@linux-foundation.org>",
    "Vlastimil Babka <vbabka@kernel.org>",
    "Suren Baghdasaryan <surenb@google.com>",
    "Michal Hocko <mhocko@suse.com>",
    "Brendan Jackman <brendan.jackman@linux.dev>",
    "Johannes Weiner <hannes@cmpxchg.org>",
    "Zi Yan <ziy@nvidia.com>",
)
"""Who maintains and reviews the page allocator (MAINTAINERS, 7.3.4)."""
MEMORY_CORE = (
    "David Hildenbrand <david@kernel.org>",
    "Lorenzo Stoakes <ljs@kernel.org>",
    "Liam R. Howlett <liam@infradead.org>",
    "Mike Rapoport <rppt@kernel.org>",
)
"""Who else maintains and reviews mm/vmstat.c and include/linux/mmzone.h (MAINTAINERS, 7.3.4)."""


@dataclass(frozen=True, kw_only=True)
class Words:
    """A paragraph, wrapped where it is shown; or an item of a list."""

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
    blocks: Sequence[Block]


def sections_of(blocks: Mapping[str, Sequence[Block]]) -> list[Section]:
    """Sections by their titles, without those that have nothing."""
    return [Section(title=title, blocks=shown) for title, shown in blocks.items() if shown]


@dataclass(frozen=True, kw_only=True)
class Message:
    """A complete message; `str()` is its text.

    Attributes:
        subject: one line.
        sections: in order.
        utf8: whether charts use characters outside ASCII.
        to: whom it answers, "" for nobody.
        copies: who else receives it.
    """

    subject: str
    sections: Sequence[Section]
    utf8: bool = False
    to: str = ""
    copies: Sequence[str] = ()

    def __str__(self) -> str:
        return self.to_text()

    def to_text(self) -> str:
        """A mail as `git send-email` and `mutt -H` take it: Subject, blank line, body.

        Spaces only, no line over 72 columns, ASCII unless `utf8`.
        """
        subject = textwrap.wrap(f"Subject: {self.subject}", WIDTH, subsequent_indent=" ")
        parts = ["\n".join([*subject, *([MIME_HEADERS] if self.utf8 else [])])]
        for section in self.sections:
            line = "-" * len(section.title)
            title = f"{section.title}\n{line}\n\n" if section.title else ""
            parts.append(title + _joined(section.blocks, is_markdown=False))
        text = "\n\n".join(parts).expandtabs() + "\n"
        text = "\n".join(line.rstrip() for line in text.splitlines()) + "\n"
        return cleaned(text if self.utf8 else ascii_only(text))

    def to_mail(self, in_reply_to: str) -> str:
        """The text with its headers.

        Args:
            in_reply_to: the Message-ID of the mail that is answered.
        """
        return addressed(self.to_text(), self.to, self.copies, in_reply_to)

    def to_markdown(self) -> str:
        """The same as Markdown; fixed lines stand in fences."""
        parts = [f"# {_as_markdown(self.subject)}"]
        for section in self.sections:
            title = f"## {section.title}\n\n" if section.title else ""
            parts.append(title + _joined(section.blocks, is_markdown=True))
        return cleaned("\n\n".join(parts) + "\n")


def addressed(text: str, to: str, copies: Sequence[str], in_reply_to: str = "") -> str:
    """A text that begins with "Subject:", with headers as `git send-email` reads them.

    It makes no References of In-Reply-To, so both are there.

    Args:
        text: of a message or of a patch.
        to: whom it is sent to.
        copies: who else receives it; whoever is in `to` is left out.
        in_reply_to: the Message-ID of the mail that is answered, "" for a new thread.
    """
    others = ",\n    ".join(each for each in copies if each != to)
    lines = [f"To: {to}", f"Cc: {others}"]
    if in_reply_to:
        answered = f"<{in_reply_to.strip('<>')}>"
        lines += [f"In-Reply-To: {answered}", f"References: {answered}"]
    return "\n".join([*lines, text])


_MARKUP = re.compile(
    r"[\\`*<]|~(?=~)|&(?=#?\w{1,32};)|\](?=[(\[:])|(?<![^\W_])_|_(?![^\W_])|^[#>+=-]"
)
"""What Markdown takes for markup; an underscore inside a name and a bracket alone are none."""


def _as_markdown(text: str) -> str:
    """A text that Markdown shows as it is: of names, none is a link, a tag or emphasis."""
    return _MARKUP.sub(lambda part: f"\\{part[0]}", text)


def _joined(blocks: Sequence[Block], *, is_markdown: bool) -> str:
    """Blocks with an empty line between them, but none between the items of a list."""
    text, was_item = "", False
    for block in blocks:
        is_item = isinstance(block, Words) and block.bullet
        label = "- " if is_item else ""
        if isinstance(block, Words):
            plain = block.text
            shown = label + _as_markdown(plain) if is_markdown else paragraph(plain, label=label)
        elif is_markdown:
            shown = f"```\n{block.text.rstrip()}\n```"
        else:
            shown = "\n".join(folded(line) for line in block.text.rstrip().splitlines())
        gap = "\n" if is_item and was_item else "\n\n"
        text += (gap if text else "") + shown
        was_item = is_item
    return text


def command(words: str) -> Fixed:
    """A command to type, broken by backslashes where it is too long for a line."""
    lines, line = [], f"{INDENT}$"
    for word in words.split():
        if len(f"{line} {word} \\") > WIDTH:
            lines.append(f"{line} \\")
            line = INDENT * 2
        line += f" {word}"
    return Fixed(text="\n".join([*lines, line]))
