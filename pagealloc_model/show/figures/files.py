"""Figures as PNG, SVG and PDF, drawn by the Chromium of this machine."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import plotly.graph_objects as go
import plotly.io

from pagealloc_model.base.errors import UsageError

FORMATS = ("png", "svg", "pdf")
ATTEMPTS = 3
WIDTH, HEIGHT = 1000, 450
"""Pixels of the layout; a figure that has a height of its own keeps it."""


def write_figures(figures: Mapping[str, go.Figure], directory: Path) -> list[Path]:
    """Write every figure as NAME.png, NAME.svg and NAME.pdf.

    Args:
        figures: by file name without its ending; menus are left out.
        directory: is there.

    Raises:
        UsageError: kaleido is not installed, or finds no Chromium, or some could not be drawn.
    """
    files = {directory / f"{name}.{kind}": figures[name] for name in figures for kind in FORMATS}
    _write(files)
    return list(files)


def write_figure(figure: go.Figure, file: Path) -> None:
    """Write one figure; the file's ending says as what.

    Raises:
        UsageError: an ending other than those of `FORMATS`, or it could not be drawn.
    """
    if file.suffix[1:] not in FORMATS:
        raise UsageError(f"{file}: a figure is {', '.join(f'.{kind}' for kind in FORMATS)}")
    if not file.parent.is_dir():
        raise UsageError(f"{file}: there is no directory {file.parent}")
    _write({file: figure})


def _write(figures: Mapping[Path, go.Figure]) -> None:
    """Draw figures into files, all or some of them in a second or third attempt.

    A busy machine's Chromium may start too late or end early. kaleido goes on after a failure and
    leaves an empty file. What lay there before is no figure of these.
    """
    pending = {}
    for file, figure in figures.items():
        parts = figure.to_plotly_json()
        layout = {name: part for name, part in parts["layout"].items() if name != "meta"}
        pending[file] = go.Figure({"data": parts["data"], "layout": layout})
        file.unlink(missing_ok=True)
    cause, attempts = "", 0
    while pending and attempts < ATTEMPTS:
        attempts += 1
        heights = [int(figure.layout.height or HEIGHT) for figure in pending.values()]
        files = (list(pending.values()), list(pending))
        try:
            plotly.io.write_images(*files, width=WIDTH, height=heights, scale=1.5)
        except (ValueError, RuntimeError) as error:
            cause = " ".join(str(error).split())[:200]
        done = {file for file in pending if file.is_file() and file.stat().st_size}
        pending = {file: figure for file, figure in pending.items() if file not in done}
    if not pending:
        return
    for file in pending:
        file.unlink(missing_ok=True)
    if "Chrome" in cause:
        cause = (
            "no Chromium or Chrome was found; install one "
            "(Debian: chromium), or name it in BROWSER_PATH"
        )
    elif "kaleido" in cause.lower():
        cause = "kaleido is not installed; pip install kaleido"
    if cause:
        raise UsageError(f"no PNG, SVG or PDF was written: {cause}")
    names = ", ".join(file.name for file in pending)
    raise UsageError(f"{names}: Chromium did not draw this in {ATTEMPTS} attempts")
