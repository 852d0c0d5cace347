"""Texts without what a terminal takes for a command: escapes, control and direction characters."""

from __future__ import annotations

from contextlib import suppress
from typing import Any, TextIO

_TERMINAL = [*range(9), *range(11, 32), *range(127, 160)]
_DIRECTION = [0x061C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A)]
_SURROGATES = range(0xD800, 0xE000)
_SHOWN = dict.fromkeys((*_TERMINAL, *_DIRECTION, 0x2028, 0x2029, *_SURROGATES), "?")
_SHOWN_WITH_RETURN = {code: shown for code, shown in _SHOWN.items() if code != ord("\r")}


def cleaned(text: str, *, carriage_return: bool = False) -> str:
    """A text with a question mark for each character that is none to be read.

    `carriage_return` keeps these, with which bars of progress are drawn.
    """
    if text.isascii() and text.isprintable():
        return text
    return text.translate(_SHOWN_WITH_RETURN if carriage_return else _SHOWN)


class CleanedStream:
    """A stream that passes texts on cleaned; all else is the stream's own."""

    def __init__(self, stream: TextIO, *, carriage_return: bool = False) -> None:
        self._stream = stream
        self._carriage_return = carriage_return
        with suppress(AttributeError, ValueError):  # a stream in memory takes any character
            stream.reconfigure(errors="replace")  # type: ignore[attr-defined]

    def write(self, text: str) -> int:
        """Write a text; the number of its characters."""
        self._stream.write(cleaned(text, carriage_return=self._carriage_return))
        return len(text)

    def __getattr__(self, name: str) -> Any:
        """What the stream has."""
        return getattr(self._stream, name)
