"""Notebooks run without a person: parameters, outputs that last, one page that is live offline."""

from __future__ import annotations

import atexit
import copy
import html
import json
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import ipywidgets
import nbformat
import plotly.graph_objects as go
import plotly.io
from IPython import get_ipython
from IPython.display import publish_display_data
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, DeadKernelError
from nbconvert import HTMLExporter
from nbformat.v4 import new_code_cell, new_output
from plotly.offline import get_plotlyjs
from pygments.formatters import HtmlFormatter
from tqdm.notebook import TqdmHBox

from pagealloc_model.base.errors import UsageError
from pagealloc_model.base.progress_bar import Report, progress
from pagealloc_model.base.text import WIDTH, ascii_only, folded
from pagealloc_model.notebook.picture import Picture
from pagealloc_model.show.figures.files import write_figures

if TYPE_CHECKING:
    from nbformat import NotebookNode


PARAMETERS, INJECTED = "parameters", "injected-parameters"
FIRST_CELL = """\
import os, sys
os.environ.pop("PYTHONSAFEPATH", None)
from pagealloc_model.notebook.headless import show_statically
show_statically()
sys.path.append(os.getcwd())
del os, show_statically, sys"""
"""Run before the notebook's own cells; no part of the executed copy. Modules of the working
directory come last, so that none stands in for an installed one of the same name."""
NO_SHADOWS = ("--IPKernelApp.ignore_cwd=True",)
"""What keeps IPython from putting the working directory before installed modules."""


def executed(
    notebook: Path, parameters: Mapping[str, object], report: Report | None = None
) -> nbformat.NotebookNode:
    """A copy of a notebook with outputs, in which widgets are figures and text.

    Args:
        notebook: an .ipynb file with one cell tagged "parameters".
        parameters: values that replace those of that cell.
        report: called with the share of cells done, 0 to 1; None shows a bar where one is seen.

    Raises:
        UsageError: no such cell, no such parameter, or a cell that failed.
    """
    copy = nbformat.read(notebook, as_version=4)
    if parameters:
        _inject(copy, parameters, notebook.stem)
    copy.cells.insert(0, new_code_cell(FIRST_CELL))
    with progress(f"running {notebook.stem}", len(copy.cells), "cells", given=report) as told:
        _run(copy, notebook.stem, told)
    del copy.cells[0]
    for cell in copy.cells:
        _as_if_first_cell_had_not_been(cell)
    return copy


def tagged_cells(notebook: nbformat.NotebookNode, tag: str) -> list[nbformat.NotebookNode]:
    """Code cells with a tag."""
    return [
        cell
        for cell in notebook.cells
        if cell.cell_type == "code" and tag in cell.metadata.get("tags", ())
    ]


def _inject(copy: nbformat.NotebookNode, parameters: Mapping[str, object], name: str) -> None:
    """Add a cell that sets the parameters, behind the one with their defaults."""
    found = tagged_cells(copy, PARAMETERS)
    if not found:
        raise UsageError(f"notebook {name}: no cell is tagged {PARAMETERS!r}")
    lines = found[0].source.splitlines()
    known = [line.partition("=")[0].strip() for line in lines if "=" in line]
    for parameter in parameters:
        if parameter not in known:
            raise UsageError(
                f"notebook {name} has no parameter {parameter!r}; it has {', '.join(known)}"
            )
    settings = "\n".join(f"{parameter} = {value!r}" for parameter, value in parameters.items())
    cell = new_code_cell(settings, metadata={"tags": [INJECTED]})
    copy.cells.insert(copy.cells.index(found[0]) + 1, cell)


def _run(copy: nbformat.NotebookNode, name: str, told: Report | None) -> None:
    """Execute all cells in place; a kernel that does not start has run nothing, so another may."""
    current = -1

    def begins(cell: nbformat.NotebookNode, cell_index: int) -> None:
        nonlocal current
        current = cell_index
        if told is not None:
            told(cell_index / len(copy.cells))

    for last in (False, True):
        client = NotebookClient(
            copy,
            timeout=None,
            store_widget_state=False,
            record_timing=False,
            on_cell_start=begins,
            extra_arguments=["--log-level=ERROR", *NO_SHADOWS],
            resources={"metadata": {"path": os.getcwd()}},
        )
        try:
            client.execute(env=os.environ | {"PYTHONSAFEPATH": "1"})
            return
        except CellExecutionError as error:
            words = " ".join(error.evalue.split())
            raise UsageError(f"notebook {name}, cell {current}: {error.ename}: {words}") from None
        except DeadKernelError:
            raise UsageError(f"notebook {name}, cell {current}: its kernel died") from None
        except RuntimeError as error:
            if current >= 0:
                raise
            # else nbclient cleans up once more when Python ends, and finds nothing to clean
            atexit.unregister(client._cleanup_kernel)
            if last:
                raise UsageError(
                    f"notebook {name}: its kernel did not start ({error}); run it again"
                ) from None


def _as_if_first_cell_had_not_been(cell: nbformat.NotebookNode) -> None:
    """Count the notebook's own cells from 1."""
    for each in (cell, *cell.get("outputs", ())):
        if each.get("execution_count") is not None:
            each["execution_count"] -= 1


PLOTLY_MIME = "application/vnd.plotly.v1+json"
_TAG = re.compile(r"<[^>]+>")


def show_statically() -> None:
    """From now on this process's notebook shows every widget as its figures and text."""
    plotly.io.renderers.default = "plotly_mimetype"
    formatter = get_ipython().display_formatter.ipython_display_formatter
    formatter.for_type(ipywidgets.Widget, _publish)
    formatter.for_type(TqdmHBox, lambda _: None)


def _publish(widget: ipywidgets.Widget) -> None:
    for figure in _figures(widget):
        publish_display_data(as_output(figure))
    text = "\n\n".join(_texts(widget))
    if text:
        publish_display_data({"text/plain": text})


def as_output(figure: go.Figure) -> dict[str, object]:
    """What a cell shows for a figure, by MIME type.

    Missing numbers are null, as plotly writes them: notebooks' JSON has no NaN.
    """
    shown = json.loads(plotly.io.to_json(figure, validate=False))
    return {PLOTLY_MIME: shown, "text/plain": "figure"}


def _figures(widget: ipywidgets.Widget) -> Iterator[go.Figure]:
    if isinstance(widget, Picture):
        yield widget.figure
    elif isinstance(widget, go.FigureWidget):
        yield go.Figure(widget)
    else:
        for child in getattr(widget, "children", ()):
            yield from _figures(child)


def _texts(widget: ipywidgets.Widget) -> Iterator[str]:
    if isinstance(widget, ipywidgets.HTML) and widget.value:
        yield html.unescape(_TAG.sub("", widget.value)).rstrip()
    for child in getattr(widget, "children", ()):
        yield from _texts(child)


POST = "post"
_NOT_IN_NAMES = re.compile(r"[^a-z0-9]+")
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


NOTHING_FROM_ELSEWHERE = (
    "default-src 'none'; script-src 'unsafe-inline' 'unsafe-eval'; style-src 'unsafe-inline'; "
    "img-src data: blob:; font-src data:; worker-src blob:"
)
"""Browsers that read this refuse to load anything that is not in the file."""

STYLE = """
body { font: 16px/1.5 "DejaVu Sans", Arial, sans-serif; color: #222222; background: white;
  max-width: 1100px; margin: 2em auto; padding: 0 1em; }
pre { font: 13px/1.35 "DejaVu Sans Mono", monospace; overflow-x: auto; margin: 0.4em 0; }
div.input_area, div.highlight { background: #f6f6f6; padding: 0 0.6em; border-radius: 3px; }
div.prompt, a.anchor-link { display: none; }
table { border-collapse: collapse; font-size: 13px; }
th, td { border: 1px solid #d9d9d9; padding: 0.2em 0.6em; text-align: right; }
a { color: #00538a; }
"""

PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width">
<title>{title}</title>
<style>{style}</style>
<script>{plotly}</script>
</head>
<body>
{body}
</body>
</html>
"""


def offline_page(notebook: NotebookNode, title: str) -> str:
    """One HTML file with text, code, results and live figures; it loads nothing else.

    Args:
        notebook: executed.
        title: of the page.
    """
    shown = copy.deepcopy(notebook)
    figures = 0
    for cell in shown.cells:
        for position, output in enumerate(cell.get("outputs", ())):
            figure = output.get("data", {}).get(PLOTLY_MIME)
            if figure is not None:
                figures += 1
                cell.outputs[position] = _live(figure, f"figure-{figures}")
    body, _ = HTMLExporter(template_name="basic").from_notebook_node(shown)
    return PAGE.format(
        policy=NOTHING_FROM_ELSEWHERE,
        title=html.escape(title),
        style=STYLE + HtmlFormatter().get_style_defs(".highlight"),
        plotly=get_plotlyjs(),
        body=body,
    )


def _live(figure: dict[str, object], name: str) -> NotebookNode:
    """An output whose script draws the figure where it stands."""
    parts = {key: figure[key] for key in ("data", "layout")}
    parts["config"] = {"responsive": True, "displaylogo": False}
    drawn = plotly.io.to_json(parts, validate=False).replace("</", "<\\/")
    script = f"Plotly.newPlot({json.dumps(name)}, {drawn})"
    text = f'<div id="{name}"></div>\n<script>{script}</script>'
    return new_output("display_data", {"text/html": text})


FIGURES = "figures"


@dataclass(frozen=True, kw_only=True)
class Study:
    """What was written.

    Attributes:
        figures: how many the notebook shows.
        files: all files, relative to the directory.
        not_written: why figures are missing as files, "" if none is.
    """

    figures: int
    files: tuple[str, ...]
    not_written: str


def write_study(
    notebook: Path, parameters: Mapping[str, object], directory: Path, report: Report | None = None
) -> Study:
    """Run a notebook and write what it shows.

    Args:
        notebook: an .ipynb file.
        parameters: values that replace those of its first cell.
        directory: is there, and empty.
        report: called with the share of cells done, 0 to 1.

    Raises:
        UsageError: the notebook cannot be run with these parameters.
    """
    done = executed(notebook, parameters, report)
    name = notebook.stem
    nbformat.write(done, directory / f"{name}.ipynb")
    (directory / f"{name}.html").write_text(offline_page(done, name), encoding="utf-8")
    (directory / "post.txt").write_text(post_text(done), encoding="ascii")
    figures = figures_of(done)
    not_written = ""
    try:
        (directory / FIGURES).mkdir()
        write_figures(figures, directory / FIGURES)
    except UsageError as error:
        not_written = str(error)
    if not any((directory / FIGURES).iterdir()):
        (directory / FIGURES).rmdir()
    files = sorted(str(path.relative_to(directory)) for path in directory.rglob("*.*"))
    return Study(figures=len(figures), files=tuple(files), not_written=not_written)
