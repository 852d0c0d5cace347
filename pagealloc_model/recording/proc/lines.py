"""What the parsers of /proc files share: reading, splitting and one way to complain."""

from __future__ import annotations

import re
from pathlib import Path

from pagealloc_model.base.errors import RecordingError
from pagealloc_model.base.given_file import text_of
from pagealloc_model.recording.proc.limits import END_OF_MEMORY

_DIGITS = 20
_NODE_ZONE = re.compile(r"^Node\s+(\d+),\s+zone\s+(\w+)(.*)$")


def read_text(path: str | Path) -> str:
    """The text of one state file.

    Raises:
        RecordingError: it is no file, cannot be read, is too long or is not text.
    """
    return text_of(path, "ascii", todo="copy the file from /proc again")


def malformed(path: str | Path, line_number: int, what: str) -> RecordingError:
    """The error for a line that does not look as any known kernel prints it."""
    return RecordingError(
        path,
        f"line {line_number}: {what}",
        todo="the file must be an unedited copy from /proc of a kernel from 6.1 to 7.3",
    )


def integer(word: str, path: str | Path, line_number: int) -> int:
    """A non-negative decimal number.

    Raises:
        RecordingError: the word is anything else, or more than a kernel's word can hold.
    """
    if not (word.isascii() and word.isdigit()):
        raise malformed(path, line_number, f"{word!r} is not a count")
    if len(word) > _DIGITS or int(word) >= 1 << 64:
        raise malformed(path, line_number, f"{word[:_DIGITS]}... is more than 64 bits hold")
    return int(word)


def count_of_pages(word: str, path: str | Path, line_number: int) -> int:
    """A number of pages, buddies or blocks.

    Raises:
        RecordingError: the word is no such number, or more than memory has pages.
    """
    count = integer(word, path, line_number)
    if count > END_OF_MEMORY:
        raise malformed(path, line_number, f"{word} is more than memory can have pages")
    return count


def split_node_zone(line: str) -> tuple[int, str, str] | None:
    """Node, zone name and the rest of a `Node N, zone NAME ...` line; None for other lines."""
    match = _NODE_ZONE.match(line)
    if match is None:
        return None
    return int(match[1]), match[2], match[3]
