"""Notebooks run without a person: parameters, outputs that last, one page that is live offline."""

from __future__ import annotations

import atexit
import copy
import html
import json
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import nbformat
import plotly.graph_objects as go
import plotly.io
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, DeadKernelError
from nbconvert import HTMLExporter
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_output
from plotly.offline import get_plotlyjs
from pygments.formatters import HtmlFormatter

from pagealloc_model.base.errors import UsageError
from pagealloc_model.base.progress_bar import Report, progress
from pagealloc_model.base.text import WIDTH, ascii_only, folded
from pagealloc_model.notebook import page_file
from pagealloc_model.notebook.own_jupyter import OVER_SOCKETS, own_jupyter
from pagealloc_model.notebook.static_output import PLOTLY_MIME, TAG
from pagealloc_model.show.figures.files import write_figures

PARAMETERS, INJECTED, POST = "parameters", "injected-parameters", "post"
"""Tags of cells."""
LONGEST_NAME = 48
"""Characters of a figure's title in the name of its file."""
FIRST_CELL = """\
from pagealloc_model.notebook.static_output import show_statically
show_statically()
del show_statically"""
"""Run before the notebook's own cells; no part of the executed copy."""


def executed(notebook: Path, parameters: Mapping[str, object]) -> NotebookNode:
    """A copy of a notebook with outputs, in which widgets are figures and text.

    Args:
        notebook: an .ipynb file with one cell tagged "parameters".
        parameters: values that replace those of that cell.

    Raises:
        UsageError: no such cell, no such parameter, or a cell that failed.
    """
    copy, name = nbformat.read(notebook, as_version=4), notebook.stem
    if parameters:
        defaults = next(iter(_tagged_cells(copy, PARAMETERS)), None)
        if defaults is None:
            raise UsageError(f"notebook {name}: no cell is tagged {PARAMETERS!r}")
        lines = defaults.source.splitlines()
        known = [line.partition("=")[0].strip() for line in lines if "=" in line]
        for parameter in parameters:
            if parameter not in known:
                raise UsageError(
                    f"notebook {name} has no parameter {parameter!r}; it has {', '.join(known)}"
                )
        settings = "\n".join(f"{parameter} = {value!r}" for parameter, value in parameters.items())
        cell = new_code_cell(settings, metadata={"tags": [INJECTED]})
        copy.cells.insert(copy.cells.index(defaults) + 1, cell)
    copy.cells.insert(0, new_code_cell(FIRST_CELL))
    with progress(f"running {name}", len(copy.cells), "cells") as advance:
        _run(copy, name, advance)
    del copy.cells[0]
    for cell in copy.cells:  # the notebook's own are counted from 1
        for part in (cell, *cell.get("outputs", ())):
            if part.get("execution_count") is not None:
                part["execution_count"] -= 1
    return copy


def _tagged_cells(notebook: NotebookNode, tag: str) -> list[NotebookNode]:
    """Code cells with a tag."""
    code = (cell for cell in notebook.cells if cell.cell_type == "code")
    return [cell for cell in code if tag in cell.metadata.get("tags", ())]


def _run(copy: NotebookNode, name: str, report: Report | None) -> None:
    """Execute all cells in place; a kernel that does not start has run nothing, so another may."""
    current = -1

    def begins(cell: NotebookNode, cell_index: int) -> None:
        nonlocal current
        current = cell_index
        if report is not None:
            report(cell_index / len(copy.cells))

    for is_last in (False, True):
        client = NotebookClient(
            copy,
            timeout=None,
            store_widget_state=False,
            record_timing=False,
            on_cell_start=begins,
            extra_arguments=["--log-level=ERROR"],
            config=OVER_SOCKETS,
            resources={"metadata": {"path": os.getcwd()}},
        )
        try:
            with own_jupyter():
                client.execute()
            return
        except CellExecutionError as error:
            failure = f"{error.ename}: {' '.join(error.evalue.split())}"
            raise UsageError(f"notebook {name}, cell {current}: {failure}") from None
        except DeadKernelError:
            raise UsageError(f"notebook {name}, cell {current}: its kernel died") from None
        except RuntimeError as error:
            if current >= 0:
                raise
            # else nbclient cleans up once more when Python ends, and finds nothing to clean
            atexit.unregister(client._cleanup_kernel)
            if is_last:
                raise UsageError(
                    f"notebook {name}: its kernel did not start ({error}); run it again"
                ) from None


def figures_of(notebook: NotebookNode) -> dict[str, go.Figure]:
    """All figures in order, by names such as "03_pageblocks_by_migratetype"."""
    figures: dict[str, go.Figure] = {}
    for output in _outputs(notebook):
        shown = output.get("data", {}).get(PLOTLY_MIME)
        if shown is not None:
            figure = go.Figure({name: shown[name] for name in ("data", "layout")})
            notes = [note.text for note in figure.layout.annotations if note.text]
            title = figure.layout.title.text or (notes[0] if notes else "figure")
            words = re.sub(r"[^a-z0-9]+", "_", TAG.sub("", title).lower()).strip("_")
            name = words[:LONGEST_NAME].rstrip("_")
            figures[f"{len(figures) + 1:02d}_{name}"] = figure
    return figures


def _outputs(notebook: NotebookNode) -> Iterator[NotebookNode]:
    return (output for cell in notebook.cells for output in cell.get("outputs", ()))


def post_text(notebook: NotebookNode) -> str:
    """Text that the cells tagged "post" print or show; without such cells, all that is printed.

    Lines are folded at 72 columns, and nothing but ASCII is left.
    """
    tagged = _tagged_cells(notebook, POST)
    texts = []
    for cell in tagged or [cell for cell in notebook.cells if cell.cell_type == "code"]:
        streams = [output for output in cell.outputs if output.output_type == "stream"]
        texts += [output.text for output in streams if output.name == "stdout"]
        results = [output for output in cell.outputs if output.output_type == "execute_result"]
        for result in results if tagged else ():
            if PLOTLY_MIME not in result.data:
                texts.append(result.data.get("text/plain", ""))
    lines = "\n".join(texts).splitlines()
    return ascii_only("\n".join(folded(line, WIDTH) for line in lines)) + "\n"


NOTHING_FROM_ELSEWHERE = (
    "default-src 'none'; script-src 'unsafe-inline' 'unsafe-eval'; style-src 'unsafe-inline'; "
    "img-src data: blob:; font-src data:; worker-src blob:"
)
"""Browsers that read this refuse to load anything that is not in the file."""


def offline_page(notebook: NotebookNode, title: str) -> str:
    """One HTML file with text, code, results and live figures; it loads nothing else."""
    shown = copy.deepcopy(notebook)
    figures = 0
    for output in _outputs(shown):
        figure = output.get("data", {}).get(PLOTLY_MIME)
        if figure is not None:  # a script draws it where it stands
            figures += 1
            name = f"figure-{figures}"
            parts = {key: figure[key] for key in ("data", "layout")}
            parts["config"] = {"responsive": True, "displaylogo": False}
            drawn = plotly.io.to_json(parts, validate=False).replace("</", "<\\/")
            script = f"Plotly.newPlot({json.dumps(name)}, {drawn})"
            text = f'<div id="{name}"></div>\n<script>{script}</script>'
            output.clear()
            output.update(new_output("display_data", {"text/html": text}))
    body, _ = HTMLExporter(template_name="basic").from_notebook_node(shown)
    return page_file("offline.html").format(
        policy=NOTHING_FROM_ELSEWHERE,
        title=html.escape(title),
        style=page_file("offline.css") + HtmlFormatter().get_style_defs(".highlight"),
        plotly=get_plotlyjs(),
        body=body,
    )


class Study(NamedTuple):
    """The files of a run.

    Attributes:
        figures: how many the notebook shows.
        files: all files, relative to the directory.
        not_written: why figures are missing as files, "" if none is.
    """

    figures: int
    files: list[str]
    not_written: str


def write_study(notebook: Path, parameters: Mapping[str, object], directory: Path) -> Study:
    """Run a notebook and write what it shows.

    Args:
        notebook: an .ipynb file.
        parameters: values that replace those of its first cell.
        directory: is there, and empty.

    Raises:
        UsageError: the notebook cannot be run with these parameters.
    """
    done, name = executed(notebook, parameters), notebook.stem
    nbformat.write(done, directory / f"{name}.ipynb")
    (directory / f"{name}.html").write_text(offline_page(done, name), encoding="utf-8")
    (directory / "post.txt").write_text(post_text(done), encoding="ascii")
    figures, not_written = figures_of(done), ""
    drawn = directory / "figures"
    drawn.mkdir()
    try:
        write_figures(figures, drawn)
    except UsageError as error:
        not_written = str(error)
    if not any(drawn.iterdir()):
        drawn.rmdir()
    files = sorted(str(path.relative_to(directory)) for path in directory.rglob("*.*"))
    return Study(len(figures), files, not_written)
