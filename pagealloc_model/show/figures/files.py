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

SCALE = 1.5
"""Pixels of a PNG per pixel of the layout."""


def write_figures(figures: Mapping[str, go.Figure], directory: Path) -> list[Path]:
    """Write every figure as NAME.png, NAME.svg and NAME.pdf.

    Args:
        figures: by file name without its ending; menus are left out.
        directory: is there.

    Raises:
        UsageError: kaleido is not installed, or finds no Chromium, or some could not be drawn.
    """
    if not figures:
        return []
    pending = {
        directory / f"{name}.{kind}": _without_points(figure)
        for name, figure in figures.items()
        for kind in FORMATS
    }
    why = _not_drawn(pending)
    if why:
        raise UsageError(why)
    return list(pending)


def write_figure(figure: go.Figure, file: Path) -> None:
    """Write one figure; the file's ending says as what.

    Raises:
        UsageError: an ending other than those of `FORMATS`, or it could not be drawn.
    """
    if file.suffix[1:] not in FORMATS:
        raise UsageError(f"{file}: a figure is {', '.join(f'.{each}' for each in FORMATS)}")
    if not file.parent.is_dir():
        raise UsageError(f"{file}: there is no directory {file.parent}")
    why = _not_drawn({file: _without_points(figure)})
    if why:
        raise UsageError(why)


def _not_drawn(wanted: Mapping[Path, go.Figure]) -> str:
    """Draw figures; return why some could not be drawn, "" if all were.

    A busy machine's Chromium may start too late or end early, hence several attempts. kaleido goes
    on after a failure and leaves an empty file. What lay there before is no figure of these.
    """
    pending, cause = dict(wanted), ""
    for file in wanted:
        file.unlink(missing_ok=True)
    for _ in range(ATTEMPTS):
        heights = [int(figure.layout.height or HEIGHT) for figure in pending.values()]
        try:
            plotly.io.write_images(
                list(pending.values()), list(pending), width=WIDTH, height=heights, scale=SCALE
            )
        except (ValueError, RuntimeError) as error:
            cause = _cause(error)
        pending = {file: each for file, each in pending.items() if not _is_drawn(file)}
        if not pending:
            return ""
    for file in pending:
        file.unlink(missing_ok=True)
    names = ", ".join(file.name for file in pending)
    return cause or f"{names}: Chromium did not draw this in {ATTEMPTS} attempts"


def _is_drawn(file: Path) -> bool:
    return file.is_file() and file.stat().st_size > 0


def _without_points(figure: go.Figure) -> go.Figure:
    parts = figure.to_plotly_json()
    layout = {name: part for name, part in parts["layout"].items() if name != "meta"}
    return go.Figure({"data": parts["data"], "layout": layout})


def _cause(error: Exception) -> str:
    if "Chrome" in str(error):
        return (
            "no PNG, SVG or PDF was written: no Chromium or Chrome was found; install one "
            "(Debian: chromium), or name it in BROWSER_PATH"
        )
    if "Kaleido" in str(error) or "kaleido" in str(error):
        return "no PNG, SVG or PDF was written: kaleido is not installed; pip install kaleido"
    return f"no PNG, SVG or PDF was written: {' '.join(str(error).split())[:200]}"
