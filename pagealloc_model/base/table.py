"""Tables of cells, shown as text, HTML, Markdown or CSV."""

from __future__ import annotations

import io
import math
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from pagealloc_model.base.text import INDENT, NOT_AVAILABLE, WIDTH, ascii_only, number

GOOD, BAD, DIM, PLAIN = "pa-good", "pa-bad", "pa-dim", ""
"""Kinds of cells, as the style of a notebook names them."""


@dataclass(frozen=True, kw_only=True)
class Markup:
    """HTML that is complete and escaped."""

    html: str


@dataclass(frozen=True, kw_only=True)
class Column:
    """A column of a table.

    Attributes:
        title: its heading, "" for none.
        words: its cells are words, which stand on the left.
        long: its cells may have several lines.
        picture: its cells are markup, which only HTML shows.
    """

    title: str
    words: bool = False
    long: bool = False
    picture: bool = False


def word_columns(*titles: str) -> list[Column]:
    """Columns of words."""
    return [Column(title=title, words=True) for title in titles]


@dataclass(frozen=True, kw_only=True)
class Cell:
    """A cell of a table.

    Attributes:
        shown: text, or markup.
        number: what the column is sorted by, and what CSV holds; None: the text, NaN: unknown.
        kind: of `GOOD`, `BAD`, `DIM`, `PLAIN`.
    """

    shown: str | Markup
    number: float | None = None
    kind: str = PLAIN


@dataclass(frozen=True)
class Table:
    """Rows of cells; a text or a number is a cell of no kind, a plain title a column of numbers.

    Attributes:
        columns: in order; the first names the rows.
        rows: with a cell for each column.
        caption: what the table is, for those who hear it.
        grouped: in text, rows of the same first cell stand below it as a heading, and the second
            column names them.
    """

    columns: Sequence[Column | str]
    rows: Sequence[Sequence[Cell | str | float]]
    caption: str = ""
    grouped: bool = True

    def to_text(self, width: int = WIDTH) -> str:
        """Lines of ASCII, numbers flush right; a name too long for its column has its own line."""
        texts = [[ascii_only(str(cell)) for cell in row] for row in self._shown(numbers=False)]
        titles, *rows = texts
        names = 2 if self.grouped else 1
        sizes = [
            max(map(len, cells)) for cells in zip(*(row[names:] for row in texts), strict=True)
        ]
        gap = "  " if sum(sizes) + 2 * len(sizes) <= width else " "
        room = max(width - sum(sizes) - len(gap) * len(sizes), 0)
        indent = INDENT if self.grouped else ""
        longest = max((len(indent + row[names - 1]) for row in rows), default=0)
        title = ", ".join(filter(None, titles[:names]))
        size = max(min(room, longest), min(room, len(title)))

        def lines(words: str, cells: Sequence[str]) -> list[str]:
            numbers = [cell.rjust(size) for cell, size in zip(cells, sizes, strict=True)]
            if len(words) <= size:
                return [gap.join([words.ljust(size), *numbers]).rstrip()]
            return [words, gap.join([" " * size, *numbers]).rstrip()]

        shown = lines(title, titles[names:])
        shown.append("-" * max(map(len, shown)))
        for heading in dict.fromkeys(row[0] for row in rows) if self.grouped else [""]:
            shown += textwrap.wrap(heading, width)
            for row in rows:
                if not self.grouped or row[0] == heading:
                    shown += lines(indent + row[names - 1], row[names:])
        return "\n".join(shown)

    def to_markdown(self) -> str:
        """A table in pipes."""
        titles, *rows = (
            [str(cell).replace("|", "\\|") for cell in row] for row in self._shown(numbers=False)
        )
        columns = [column for column in self._columns if not column.picture]
        rule = [":--" if column.words or column.long else "--:" for column in columns]
        lines = (f"| {' | '.join(row)} |" for row in (titles, rule, *rows))
        return ascii_only("\n".join(lines) + "\n")

    def to_csv(self) -> str:
        """Numbers as they are, all else as it is shown."""
        import csv

        written = io.StringIO()
        csv.writer(written, lineterminator="\n").writerows(self._shown(numbers=True))
        return written.getvalue()

    def to_html(self) -> Markup:
        """A table that sorts and filters where scripts run, and stands as it is elsewhere."""
        head = "".join(
            f'<th scope="col"{class_of("pa-words" * column.words)}>{escape(column.title)}</th>'
            for column in self._columns
        )
        body = "".join(
            f"<tr>{''.join(map(_html_cell, self._columns, map(_cell, row)))}</tr>"
            for row in self.rows
        )
        return Markup(
            html=f'<div class="pa-scroll"><table aria-label="{escape(self.caption)}"><thead><tr>'
            f"{head}</tr></thead><tbody>{body}</tbody></table></div>"
        )

    @property
    def _columns(self) -> list[Column]:
        return [Column(title=title) if isinstance(title, str) else title for title in self.columns]

    def _shown(self, *, numbers: bool) -> list[list[str | float]]:
        """Titles, then rows, without pictures; numbers as they are, or as they are shown."""
        places = [place for place, column in enumerate(self._columns) if not column.picture]
        rows: list[list[str | float]] = [[self._columns[place].title for place in places]]
        for row in self.rows:
            rows.append([])
            for cell in (_cell(row[place]) for place in places):
                if numbers and cell.number is not None:
                    rows[-1].append("" if math.isnan(cell.number) else cell.number)
                else:
                    rows[-1].append(cell.shown if isinstance(cell.shown, str) else "")
        return rows


def _cell(value: Cell | str | float) -> Cell:
    if isinstance(value, Cell):
        return value
    if isinstance(value, str):
        return Cell(shown=value)
    shown = number(value)
    return Cell(shown=shown, number=math.nan if shown == NOT_AVAILABLE else float(value))


def _html_cell(column: Column, cell: Cell) -> str:
    shape = "pa-long" if column.long else "pa-words" if column.words else ""
    sort = ""
    if cell.number is not None:
        sort = f' data-sort="{cell.number:.9g}"' if math.isfinite(cell.number) else ' data-sort=""'
    shown = cell.shown.html if isinstance(cell.shown, Markup) else escape(cell.shown)
    return f"<td{class_of(f'{shape} {cell.kind}'.strip())}{sort}>{shown}</td>"


def class_of(names: str) -> str:
    """The attribute that names classes, "" for none."""
    return f' class="{names}"' if names else ""
