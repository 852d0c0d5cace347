"""Plain text for mailing lists: ASCII, spaces only, no line wider than asked for."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import NamedTuple

WIDTH = 72
NOT_AVAILABLE = "NA"
INDENT = "  "
COLUMN_GAP = "  "


class Row(NamedTuple):
    """One line of a table for `text_table`: its heading, its own words, its cells."""

    heading: str
    label: str
    cells: tuple[str, ...]


def text_table(header: Row, rows: Sequence[Row], *, width: int = WIDTH) -> str:
    """The text of a table of such rows."""
    titles, *texts = ([row.heading, row.label, *row.cells] for row in (header, *rows))
    return aligned(titles, texts, width, is_grouped=True)


def aligned(
    titles: Sequence[str], rows: Sequence[Sequence[str]], width: int, *, is_grouped: bool
) -> str:
    """Cells in columns, flush right behind the row's name, which has its own line if it is long.

    Args:
        titles: one for each column.
        rows: with a text for each column.
        width: characters per line at most.
        is_grouped: rows of the same first text stand below it as a heading, and the second names
            them.
    """
    names = 2 if is_grouped else 1
    cells_of = zip(*(row[names:] for row in (titles, *rows)), strict=True)
    sizes = [max(map(len, cells)) for cells in cells_of]
    gap = COLUMN_GAP if sum(sizes) + len(COLUMN_GAP) * len(sizes) <= width else " "
    room = max(width - sum(sizes) - len(gap) * len(sizes), 0)
    indent = INDENT if is_grouped else ""
    longest = max((len(indent + row[names - 1]) for row in rows), default=0)
    title = ", ".join(each for each in titles[:names] if each)
    size = max(min(room, longest), min(room, len(title)))

    def lines(words: str, cells: Sequence[str]) -> list[str]:
        numbers = [cell.rjust(each) for cell, each in zip(cells, sizes, strict=True)]
        if len(words) <= size:
            return [gap.join([words.ljust(size), *numbers]).rstrip()]
        return [words, gap.join([" " * size, *numbers]).rstrip()]

    first = lines(title, titles[names:])
    shown = [*first, "-" * max(map(len, first))]
    if not is_grouped:
        return "\n".join([*shown, *(each for row in rows for each in lines(row[0], row[1:]))])
    for heading in dict.fromkeys(row[0] for row in rows):
        shown += textwrap.wrap(heading, width)
        for row in rows:
            if row[0] == heading:
                shown += lines(indent + row[1], row[2:])
    return "\n".join(shown)


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
