"""Figures as PNG, SVG and PDF, drawn by the Chromium of this machine."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import plotly.graph_objects as go
import plotly.io

from pagealloc_model.errors import UsageError

FORMATS = ("png", "svg", "pdf")
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
        UsageError: kaleido is not installed, or finds no Chromium.
    """
    if not figures:
        return []
    drawn = [_without_menus(figure) for figure in figures.values() for _ in FORMATS]
    files = [directory / f"{name}.{kind}" for name in figures for kind in FORMATS]
    heights = [int(figure.layout.height or HEIGHT) for figure in drawn]
    try:
        plotly.io.write_images(drawn, files, width=WIDTH, height=heights, scale=SCALE)
    except (ValueError, RuntimeError) as error:
        raise UsageError(_cause(error)) from None
    return files


def _without_menus(figure: go.Figure) -> go.Figure:
    parts = figure.to_plotly_json()
    layout = {name: part for name, part in parts["layout"].items() if name != "updatemenus"}
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
