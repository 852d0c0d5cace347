"""Files that someone gave: what is no file is refused before it is opened, what is too long after.

A device never ends and a FIFO makes its reader wait, so neither is ever opened.
"""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import Any, Literal

from pagealloc_model.base.errors import RecordingError

_KINDS = (
    (stat.S_ISFIFO, "FIFO"),
    (stat.S_ISCHR, "device"),
    (stat.S_ISBLK, "device"),
    (stat.S_ISSOCK, "socket"),
    (stat.S_ISDIR, "directory"),
)
_CHECK = "check the path and its permissions"
MOST_TEXT = 1 << 26
"""Bytes of the longest state file or description that is read whole."""


def is_given(path: Path) -> bool:
    """Whether the name is there, be it a file or not; reading it says what is wrong with it."""
    return os.path.lexists(path)


def refuse_unless_file(path: str | Path) -> None:
    """Refuse what is no plain file.

    Raises:
        RecordingError: it is a FIFO, a device, a socket or a directory, or it is not there.
    """
    try:
        mode = os.stat(path).st_mode
    except (OSError, ValueError) as error:
        raise unreadable(path, error) from None
    for is_kind, name in _KINDS:
        if is_kind(mode):
            raise RecordingError(path, f"is a {name}, not a file", todo="copy it to a file first")


def unreadable(path: str | Path, error: OSError | ValueError) -> RecordingError:
    """The error for a file that cannot be opened or read."""
    reason = error.strerror if isinstance(error, OSError) else str(error)
    return RecordingError(path, f"cannot be read ({reason})", todo=_CHECK)


def text_of(path: str | Path, encoding: Literal["ascii", "utf-8"], *, todo: str) -> str:
    """The text of a small file, read whole.

    Args:
        path: the file.
        encoding: of its bytes.
        todo: what to do about bytes that are no text, for errors.

    Raises:
        RecordingError: it is no file, cannot be read, has more than `MOST_TEXT` bytes, or a byte
            that is no text, which is named with its line.
    """
    refuse_unless_file(path)
    try:
        with Path(path).open("rb") as file:
            content = file.read(MOST_TEXT + 1)
    except OSError as error:
        raise unreadable(path, error) from None
    if len(content) > MOST_TEXT:
        raise RecordingError(path, f"has more than {MOST_TEXT} bytes", todo=todo)
    try:
        return content.decode(encoding)
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        column = error.start - content.rfind(b"\n", 0, error.start)
        what = f"line {line}: byte {content[error.start]:#04x} at column {column} is no text"
        raise RecordingError(path, what, todo=todo) from None


def json_of(text: str, path: str | Path, *, todo: str) -> Any:
    """What a JSON text says.

    Args:
        text: the JSON.
        path: where it is from, for errors.
        todo: what to do about it, for errors.

    Raises:
        RecordingError: it is no JSON, nested too deep, has a number that is too long, or names a
            key of one object twice.
    """

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) < len(pairs):
            names = [name for name, _ in pairs]
            twice = next(name for name in names if names.count(name) > 1)
            raise RecordingError(path, f"names {twice!r} twice", todo=todo)
        return found

    try:
        return json.loads(text, object_pairs_hook=once)
    except json.JSONDecodeError as error:
        what = f"line {error.lineno}: is not valid JSON ({error.msg})"
    except RecursionError:
        what = "is not valid JSON (nested too deep)"
    except ValueError:
        what = "is not valid JSON (a number is too long)"
    raise RecordingError(path, what, todo=todo)
