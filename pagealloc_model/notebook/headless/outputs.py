"""What an executed notebook shows: its figures, and the text of the post it ends in."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

import plotly.graph_objects as go

from pagealloc_model.base.text.layout import WIDTH, ascii_only, folded
from pagealloc_model.notebook.headless.execution import tagged_cells
from pagealloc_model.notebook.headless.static_widgets import PLOTLY_MIME

if TYPE_CHECKING:
    from nbformat import NotebookNode

POST = "post"
_NOT_IN_NAMES = re.compile(r"[^a-z0-9]+")
_TAG = re.compile(r"<[^>]+>")
_LONGEST_NAME = 48


def figures_of(notebook: NotebookNode) -> dict[str, go.Figure]:
    """All figures in order, by names such as "03_pageblocks_by_migratetype"."""
    found: dict[str, go.Figure] = {}
    for cell in notebook.cells:
        for output in cell.get("outputs", ()):
            shown = output.get("data", {}).get(PLOTLY_MIME)
            if shown is not None:
                figure = go.Figure({name: shown[name] for name in ("data", "layout")})
                found[f"{len(found) + 1:02d}_{_name(figure)}"] = figure
    return found


def post_text(notebook: NotebookNode) -> str:
    """What the cells tagged "post" print or show; without such cells, all that is printed.

    Lines are folded at 72 columns, and nothing but ASCII is left.
    """
    tagged = tagged_cells(notebook, POST)
    cells = tagged or [cell for cell in notebook.cells if cell.cell_type == "code"]
    shown = _printed_or_shown if tagged else _printed
    printed = "\n".join(text for cell in cells for text in shown(cell))
    return ascii_only("\n".join(folded(line, WIDTH) for line in printed.splitlines())) + "\n"


def _printed(cell: NotebookNode) -> Iterator[str]:
    for output in cell.outputs:
        if output.output_type == "stream" and output.name == "stdout":
            yield output.text


def _printed_or_shown(cell: NotebookNode) -> Iterator[str]:
    """What a cell prints, and the text of the result that it ends in, unless that is a figure."""
    yield from _printed(cell)
    for output in cell.outputs:
        if output.output_type == "execute_result" and PLOTLY_MIME not in output.data:
            yield output.data.get("text/plain", "")


def _name(figure: go.Figure) -> str:
    """The figure's title, or its first note's words, as part of a file name."""
    notes = [note.text for note in figure.layout.annotations if note.text]
    title = figure.layout.title.text or (notes[0] if notes else "figure")
    words = _NOT_IN_NAMES.sub("_", _TAG.sub("", title).lower()).strip("_")
    return words[:_LONGEST_NAME].rstrip("_")
