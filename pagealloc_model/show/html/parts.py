"""The parts that results in a notebook are made of; all text is escaped here and nowhere else."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape

from pagealloc_model.show.html.look import SCRIPT, STYLE

GOOD, BAD, DIM, PLAIN = "pa-good", "pa-bad", "pa-dim", ""
"""Kinds of cells, as the style names them."""


@dataclass(frozen=True, kw_only=True)
class Markup:
    """HTML that is complete and escaped, as the functions of this module make it."""

    html: str


@dataclass(frozen=True, kw_only=True)
class Column:
    """A column of a table.

    Attributes:
        title: its heading, "" for none.
        words: whether its cells are words, which stand on the left.
        long: whether its cells may have several lines.
    """

    title: str
    words: bool = False
    long: bool = False


@dataclass(frozen=True, kw_only=True)
class Cell:
    """A cell of a table.

    Attributes:
        shown: text, or markup made here.
        number: what the column is sorted by; None: by the text, NaN: last.
        kind: of `GOOD`, `BAD`, `DIM`, `PLAIN`.
    """

    shown: str | Markup
    number: float | None = None
    kind: str = PLAIN


def framed(*parts: Markup) -> str:
    """Return an output that carries its style and script."""
    body = "".join(part.html for part in parts)
    return f'<div class="pagealloc"><style>{STYLE}</style>{body}<script>{SCRIPT}</script></div>'


def line(text: str, *, lead: str = "", kind: str = PLAIN) -> Markup:
    """Return a paragraph.

    Args:
        text: of any length.
        lead: words in bold before it.
        kind: as of a cell.
    """
    bold = f"<b>{escape(lead)}</b> " if lead else ""
    return Markup(html=f"<p{_class(kind)}>{bold}{escape(text)}</p>")


def listed(lines: Iterable[str]) -> Markup:
    """Return a list with a point for each line."""
    return Markup(html="<ul>" + "".join(f"<li>{escape(each)}</li>" for each in lines) + "</ul>")


def folded(title: str, *parts: Markup) -> Markup:
    """Return parts behind a title that opens them."""
    body = "".join(part.html for part in parts)
    return Markup(html=f"<details><summary>{escape(title)}</summary>{body}</details>")


def table(columns: Sequence[Column], rows: Iterable[Sequence[Cell]], caption: str) -> Markup:
    """Return a table that sorts and filters where scripts run, and stands as it is elsewhere.

    Args:
        columns: in order.
        rows: a cell for each column.
        caption: what the table is, for those who hear it.
    """
    head = "".join(
        f'<th scope="col"{_class("pa-words" if each.words else "")}>{escape(each.title)}</th>'
        for each in columns
    )
    body = "".join("<tr>" + "".join(map(_cell, columns, row)) + "</tr>" for row in rows)
    return Markup(
        html=f'<div class="pa-scroll"><table aria-label="{escape(caption)}"><thead><tr>{head}'
        f"</tr></thead><tbody>{body}</tbody></table></div>"
    )


def _cell(column: Column, cell: Cell) -> str:
    shape = "pa-long" if column.long else "pa-words" if column.words else ""
    sort = ""
    if cell.number is not None:
        sort = f' data-sort="{cell.number:.9g}"' if math.isfinite(cell.number) else ' data-sort=""'
    shown = cell.shown.html if isinstance(cell.shown, Markup) else escape(cell.shown)
    return f"<td{_class(f'{shape} {cell.kind}'.strip())}{sort}>{shown}</td>"


def _class(names: str) -> str:
    return f' class="{names}"' if names else ""
