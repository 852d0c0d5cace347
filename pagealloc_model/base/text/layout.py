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
    """The text of a `Table` of such rows, for scripts that have no columns of their own."""
    from pagealloc_model.base.table import Table

    texts = [[row.heading, row.label, *row.cells] for row in (header, *rows)]
    return Table(texts[0], texts[1:]).to_text(width)


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
