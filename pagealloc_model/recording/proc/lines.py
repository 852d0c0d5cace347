"""What the parsers of /proc files share: reading, splitting and one way to complain."""

from __future__ import annotations

import re
from pathlib import Path

from pagealloc_model.base.errors import RecordingError

_NODE_ZONE = re.compile(r"^Node\s+(\d+),\s+zone\s+(\w+)(.*)$")


def read_text(path: str | Path) -> str:
    """The text of one state file.

    Raises:
        RecordingError: the file cannot be read or is not text.
    """
    try:
        return Path(path).read_text(encoding="ascii")
    except OSError as error:
        raise RecordingError(
            path, f"cannot be read ({error.strerror})", todo="check the path and its permissions"
        ) from None
    except UnicodeDecodeError as error:
        raise RecordingError(
            path,
            "is not plain text",
            offset=error.start,
            todo="copy the file from /proc again",
        ) from None


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
        RecordingError: the word is anything else.
    """
    if not (word.isascii() and word.isdigit()):
        raise malformed(path, line_number, f"{word!r} is not a count")
    return int(word)


def split_node_zone(line: str) -> tuple[int, str, str] | None:
    """Node, zone name and the rest of a `Node N, zone NAME ...` line; None for other lines."""
    match = _NODE_ZONE.match(line)
    if match is None:
        return None
    return int(match[1]), match[2], match[3]
