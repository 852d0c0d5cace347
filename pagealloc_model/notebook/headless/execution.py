"""A notebook executed from top to bottom with parameters of one's own."""

from __future__ import annotations

import atexit
import os
from collections.abc import Mapping
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, DeadKernelError
from nbformat.v4 import new_code_cell

from pagealloc_model.base.errors import UsageError
from pagealloc_model.base.progress_bar import Report, progress

PARAMETERS, INJECTED = "parameters", "injected-parameters"
FIRST_CELL = """\
import os, sys
os.environ.pop("PYTHONSAFEPATH", None)
from pagealloc_model.notebook.headless.static_widgets import show_statically
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
