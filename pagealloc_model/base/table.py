"""One table, shown as text, HTML, Markdown or CSV: columns, cells, and what may be said first."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape

from pagealloc_model.base.text.layout import (
    NOT_AVAILABLE,
    WIDTH,
    aligned,
    ascii_only,
    number,
)

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
        words: whether its cells are words, which stand on the left.
        long: whether its cells may have several lines.
        picture: whether its cells are markup, which only HTML shows.
    """

    title: str
    words: bool = False
    long: bool = False
    picture: bool = False


def word_columns(*titles: str) -> list[Column]:
    """Columns of words."""
    return [Column(title=each, words=True) for each in titles]


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

    @property
    def text(self) -> str:
        """What is shown where there is no markup."""
        return self.shown if isinstance(self.shown, str) else ""


@dataclass(frozen=True)
class Table:
    """Rows of cells; a text or a number is a cell of no kind, a plain title a column of numbers.

    Attributes:
        columns: in order; the first names the rows.
        rows: with a cell for each column.
        caption: what the table is, for those who hear it.
        grouped: whether in text rows of the same first cell stand below it as a heading, and the
            second column names them.
    """

    columns: Sequence[Column | str]
    rows: Sequence[Sequence[Cell | str | float]]
    caption: str = ""
    grouped: bool = True

    def to_text(self, width: int = WIDTH) -> str:
        """Lines of ASCII, numbers flush right; a name too long for its column has its own line.

        Args:
            width: characters per line at most.
        """
        titles, *rows = self._texts()
        return aligned(titles, rows, width, is_grouped=self.grouped)

    def to_markdown(self) -> str:
        """A table in pipes."""
        titles, *rows = self._texts()
        columns = [each for each in self._columns if not each.picture]
        rule = [":--" if each.words or each.long else "--:" for each in columns]
        return "\n".join(f"| {' | '.join(row)} |" for row in (titles, rule, *rows)) + "\n"

    def to_csv(self) -> str:
        """Numbers as they are, all else as it is shown."""
        shown = [place for place, each in enumerate(self._columns) if not each.picture]
        written = io.StringIO()
        writer = csv.writer(written, lineterminator="\n")
        writer.writerow([self._columns[place].title for place in shown])
        for row in self._cells:
            cells = [row[place] for place in shown]
            writer.writerow([_value(cell) for cell in cells])
        return written.getvalue()

    def to_html(self) -> Markup:
        """A table that sorts and filters where scripts run, and stands as it is elsewhere."""
        head = "".join(
            f'<th scope="col"{class_of("pa-words" if each.words else "")}>{escape(each.title)}</th>'
            for each in self._columns
        )
        body = "".join(
            f"<tr>{''.join(map(_html_cell, self._columns, row))}</tr>" for row in self._cells
        )
        return Markup(
            html=f'<div class="pa-scroll"><table aria-label="{escape(self.caption)}"><thead><tr>'
            f"{head}</tr></thead><tbody>{body}</tbody></table></div>"
        )

    @property
    def _columns(self) -> list[Column]:
        return [Column(title=each) if isinstance(each, str) else each for each in self.columns]

    @property
    def _cells(self) -> Iterator[list[Cell]]:
        for row in self.rows:
            yield [each if isinstance(each, Cell) else _plain_cell(each) for each in row]

    def _texts(self) -> Iterator[list[str]]:
        """Titles, then rows, without pictures."""
        shown = [place for place, each in enumerate(self._columns) if not each.picture]
        yield [ascii_only(self._columns[place].title) for place in shown]
        for row in self._cells:
            yield [ascii_only(row[place].text) for place in shown]


def _plain_cell(value: str | float) -> Cell:
    if isinstance(value, str):
        return Cell(shown=value)
    shown = number(value)
    return Cell(shown=shown, number=math.nan if shown == NOT_AVAILABLE else float(value))


def _value(cell: Cell) -> str | float:
    if cell.number is None:
        return cell.text
    return "" if math.isnan(cell.number) else cell.number


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
