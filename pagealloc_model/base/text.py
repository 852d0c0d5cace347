"""Plain text for mailing lists and terminals: ASCII, spaces only, no line wider than asked for."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path
from typing import Any, TextIO

WIDTH, TERMINAL = 72, 79
NOT_AVAILABLE = "NA"
INDENT = "  "
_TERMINAL = [*range(9), *range(11, 32), *range(127, 160)]
_DIRECTION = [0x061C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A)]
_SURROGATES = range(0xD800, 0xE000)
_SHOWN = dict.fromkeys((*_TERMINAL, *_DIRECTION, 0x2028, 0x2029, *_SURROGATES), "?")
_SHOWN_WITH_RETURN = {code: shown for code, shown in _SHOWN.items() if code != ord("\r")}


def _escape_of(code: int) -> str:
    return f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}"


_UNPRINTABLE = {code: _escape_of(code) for code in (*_SHOWN, 9, 10, 0x85)}
LONGEST_NAME = 64
"""Characters of a name; a kernel's names of threads have 15, those of its workers up to 63."""
LONGEST_TEXT = 1 << 16
"""Characters of a text in an event's field; a ring buffer's page holds less."""


def paragraph(text: str, *, width: int = WIDTH, label: str = "") -> str:
    """Words wrapped to the width, hanging under a label such as "policy: "."""
    return textwrap.fill(
        ascii_only(text),
        width,
        initial_indent=label,
        subsequent_indent=" " * len(label),
        break_on_hyphens=False,
    )


def folded(line: str, width: int = WIDTH) -> str:
    """A line as it is, or folded below its own indentation where it is too long."""
    if len(line) <= width:
        return line
    indent = line[: len(line) - len(line.lstrip())]
    return textwrap.fill(line.strip(), width, initial_indent=indent, subsequent_indent=indent)


def ascii_only(text: str) -> str:
    """Text with anything outside ASCII replaced by "?"; mailing lists get no encoding surprises."""
    return text.encode("ascii", "replace").decode("ascii")


def _is_unknown(value: object) -> bool:
    # what has no tables to print need not wait for pandas
    import pandas as pd

    return bool(pd.isna(value))


def number(value: object) -> str:
    """A value in at most ten characters or so; NA if it is not known."""
    if _is_unknown(value):
        return NOT_AVAILABLE
    amount = float(value)  # type: ignore[arg-type]
    if amount == int(amount) and abs(amount) < 1e12:
        return f"{int(amount)}"
    if abs(amount) >= 1000:
        return f"{amount:.0f}"
    return f"{amount:.2f}" if abs(amount) >= 1 else f"{amount:.4f}"


def rounded(value: object) -> str:
    """A value in three digits, or all those of a whole number; NA if it is not known."""
    if _is_unknown(value):
        return NOT_AVAILABLE
    amount = float(value)  # type: ignore[arg-type]
    is_whole = abs(amount) >= 100 or amount == round(amount)
    return f"{amount:,.0f}" if is_whole else f"{amount:.3g}"


def percent(value: object) -> str:
    """A ratio such as -0.25 as "-25.0%", with its sign, from 11 times on as "11 x".

    NA if it is not known.
    """
    if _is_unknown(value):
        return NOT_AVAILABLE
    if float(value) >= 10:  # type: ignore[arg-type]
        return times(1 + float(value))  # type: ignore[arg-type]
    return f"{100 * float(value):+.1f}%"  # type: ignore[arg-type]


def times(factor: float) -> str:
    """A factor such as "3.5 x", from 10 on a whole one: "8,421 x"."""
    return f"{factor:,.0f} x" if factor >= 10 else f"{factor:.2g} x"


def count_of(count: int, one: str, more: str = "") -> str:
    """A count and its noun: "1 event", "2,000 events"; `more` is the plural, else with an "s"."""
    return f"{count:,} {one if count == 1 else more or one + 's'}"


def zone_scope(node: int, zone: str, nodes: Collection[int]) -> str:
    """A zone in a table's rows: "zone=Normal", of several nodes "node=1,zone=Normal"."""
    return f"zone={zone}" if len(nodes) == 1 else f"node={node},zone={zone}"


def cleaned(text: str, *, carriage_return: bool = False) -> str:
    """A text with a question mark for each escape, control and direction character.

    `carriage_return` keeps these, with which bars of progress are drawn.
    """
    if text.isascii() and text.isprintable():
        return text
    return text.translate(_SHOWN_WITH_RETURN if carriage_return else _SHOWN)


def as_name(text: str, most: int = LONGEST_NAME) -> str:
    r"""A recording's string as a name on one line: what cannot be printed is shown as in "\x0a".

    Names go through here where a recording is read, so that none can add a line, a tab or an escape
    sequence to what is printed, posted or exported. A name that has gone through stays as it is.
    """
    if len(text) <= most and text.isascii() and text.isprintable():
        return text
    return text.translate(_UNPRINTABLE)[:most]


def as_path(path: str | Path) -> str:
    """A path on one line, of any length: a stranger's directory may have any name."""
    return str(path).translate(_UNPRINTABLE)


_NO_PART_OF_A_WORD = re.compile(r"[^!-~]")


def as_word(text: str) -> str:
    r"""A recording's string as one word of ASCII, such as a kernel's release: a blank is "\x20"."""
    return as_name(_NO_PART_OF_A_WORD.sub(lambda part: _escape_of(ord(part[0])), text))


_ESCAPED = re.compile(rb"\\x([0-9a-f]{2})")


def escaped(text: str, unsafe: str) -> str:
    r"""A text with each part that a pattern calls unsafe, and "\x", as their bytes: "\x20"."""

    def bytes_of(part: re.Match[str]) -> str:
        return "".join(f"\\x{byte:02x}" for byte in part[0].encode("utf-8", "replace"))

    return re.sub(rf"\\(?=x)|{unsafe}", bytes_of, text)


def unescaped(text: str) -> str:
    """The text that `escaped` was given."""
    if "\\x" not in text:
        return text
    plain = text.encode("utf-8", "replace")
    return _ESCAPED.sub(lambda part: bytes.fromhex(part[1].decode()), plain).decode(
        "utf-8", "replace"
    )


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
        return getattr(self._stream, name)
