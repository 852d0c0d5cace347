"""A study as a directory of files: notebook, page, figures, post."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import nbformat

from pagealloc_model.base.errors import UsageError
from pagealloc_model.base.progress_bar import Report
from pagealloc_model.notebook.headless.execution import executed
from pagealloc_model.notebook.headless.outputs import figures_of, post_text
from pagealloc_model.notebook.headless.page import offline_page
from pagealloc_model.show.figures.files import write_figures

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
