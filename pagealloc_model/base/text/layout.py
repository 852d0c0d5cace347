"""Plain text for mailing lists: ASCII, spaces only, no line wider than asked for."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass

WIDTH = 72
NOT_AVAILABLE = "NA"
INDENT = "  "
COLUMN_GAP = "  "


@dataclass(frozen=True, kw_only=True)
class Row:
    """One line of a table: what it is about, then its cells.

    Attributes:
        heading: rows of the same heading stand together under it.
        label: the row's own words.
        cells: texts, flush right.
    """

    heading: str
    label: str
    cells: tuple[str, ...]


def text_table(header: Row, rows: Sequence[Row], *, width: int = WIDTH) -> str:
    """Rows gathered under their headings in order of first appearance, cells in columns.

    A label too long for the space before the cells gets a line of its own.

    Args:
        header: titles; its heading and label name the two levels of words.
        rows: with as many cells as the header.
        width: characters per line at most.
    """
    sizes = [
        max(len(row.cells[column]) for row in [header, *rows])
        for column in range(len(header.cells))
    ]
    gap = COLUMN_GAP if sum(sizes) + len(COLUMN_GAP) * len(sizes) <= width else " "
    titles = ", ".join(each for each in (header.heading, header.label) if each)
    room = max(width - sum(sizes) - len(gap) * len(sizes), 0)
    label_size = min(room, max((len(INDENT + row.label) for row in rows), default=0))
    label_size = max(label_size, min(room, len(titles)))
    first = _line(titles, header.cells, sizes, label_size, gap)
    lines = [*first, "-" * max(len(line) for line in first)]
    for heading in dict.fromkeys(row.heading for row in rows):
        lines += textwrap.wrap(heading, width)
        for row in rows:
            if row.heading == heading:
                lines += _line(INDENT + row.label, row.cells, sizes, label_size, gap)
    return "\n".join(lines)


def _line(
    words: str, cells: Sequence[str], sizes: Sequence[int], label_size: int, gap: str
) -> list[str]:
    numbers = [cell.rjust(size) for cell, size in zip(cells, sizes, strict=True)]
    if len(words) <= label_size:
        return [gap.join([words.ljust(label_size), *numbers]).rstrip()]
    return [words, gap.join([" " * label_size, *numbers]).rstrip()]


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
    return f"{amount:.2f}" if abs(amount) >= 1 else f"{amount:.4f}"


def percent(value: object) -> str:
    """A ratio such as -0.25 as "-25.0%", with its sign; NA if it is not known."""
    if _is_unknown(value):
        return NOT_AVAILABLE
    return f"{100 * float(value):+.1f}%"  # type: ignore[arg-type]
