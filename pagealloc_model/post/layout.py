"""Plain text for mailing lists: ASCII, spaces only, no line wider than asked for."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

import pandas as pd

WIDTH = 72
NOT_AVAILABLE = "NA"


def columns_of_text(
    header: Sequence[str], rows: Sequence[Sequence[str]], *, left: int, width: int = WIDTH
) -> str:
    """Rows under a header, the first `left` columns flush left and the others flush right.

    A row that does not fit is broken after its left columns, and the rest is indented.

    Args:
        header: one word per column.
        rows: cells, as many per row as the header has.
        left: columns of words before the columns of numbers.
        width: characters per line at most.
    """
    everything = [list(header), *[list(row) for row in rows]]
    widths = [max(len(row[column]) for row in everything) for column in range(len(header))]
    if sum(widths) + 2 * (len(widths) - 1) <= width:
        lines = [_join(row, widths, left) for row in everything]
        rule = "-" * max(len(line) for line in lines)
        return "\n".join([lines[0], rule, *lines[1:]])
    return _stacked(everything, widths, left, width)


def _join(row: Sequence[str], widths: Sequence[int], left: int) -> str:
    cells = [
        cell.ljust(size) if column < left else cell.rjust(size)
        for column, (cell, size) in enumerate(zip(row, widths, strict=True))
    ]
    return "  ".join(cells).rstrip()


def _stacked(rows: list[list[str]], widths: list[int], left: int, width: int) -> str:
    """Words on one line, numbers below them, indented."""
    numbers = widths[left:]
    indent = max(2, width - sum(numbers) - 2 * (len(numbers) - 1))
    indent = min(indent, 4)
    lines = []
    for position, row in enumerate(rows):
        words = "  ".join(cell for cell in row[:left] if cell)
        lines += textwrap.wrap(words, width) or [""]
        line = " " * indent + _join(row[left:], numbers, 0)
        lines += [line] if len(line) <= width else _wrapped(row[left:], indent, width)
        if position == 0:
            lines.append("-" * width)
    return "\n".join(lines)


def _wrapped(cells: Sequence[str], indent: int, width: int) -> list[str]:
    margin = " " * indent
    return textwrap.wrap("  ".join(cells), width, initial_indent=margin, subsequent_indent=margin)


def paragraph(text: str, *, width: int = WIDTH, label: str = "") -> str:
    """Words wrapped to the width, hanging under a label such as "policy: "."""
    return textwrap.fill(
        ascii_only(text),
        width,
        initial_indent=label,
        subsequent_indent=" " * len(label),
        break_on_hyphens=False,
    )


def ascii_only(text: str) -> str:
    """Text with anything outside ASCII replaced by "?"; mailing lists get no encoding surprises."""
    return text.encode("ascii", "replace").decode("ascii")


def number(value: object) -> str:
    """A value in at most ten characters or so; NA if it is not known."""
    if pd.isna(value):
        return NOT_AVAILABLE
    amount = float(value)  # type: ignore[arg-type]
    if amount == int(amount) and abs(amount) < 1e12:
        return f"{int(amount)}"
    return f"{amount:.2f}" if abs(amount) >= 1 else f"{amount:.4f}"


def percent(value: object) -> str:
    """A ratio such as -0.25 as "-25.0%", with its sign; NA if it is not known."""
    if pd.isna(value):
        return NOT_AVAILABLE
    return f"{100 * float(value):+.1f}%"  # type: ignore[arg-type]
