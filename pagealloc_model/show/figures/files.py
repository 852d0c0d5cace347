"""Figures as PNG, SVG and PDF, drawn by the Chromium of this machine."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import plotly.graph_objects as go

from pagealloc_model.base.errors import UsageError
from pagealloc_model.recording.record.children import python_words

FORMATS = ("png", "svg", "pdf")
ATTEMPTS = 3
START_SECONDS, FILE_SECONDS = 60, 20
"""What an attempt may take, Chromium's start and each file; a file takes a second or less."""
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
    for file in figures:
        file.unlink(missing_ok=True)
    pending = dict(figures)
    cause, attempts = "", 0
    while pending and attempts < ATTEMPTS:
        attempts += 1
        cause = draw(pending) or cause
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


def draw(figures: Mapping[Path, go.Figure]) -> str:
    """Draw figures into files in a process of their own, which is ended when it takes too long.

    Returns:
        Why not all were drawn, "" if nothing is known.
    """
    seconds = START_SECONDS + FILE_SECONDS * len(figures)
    child = subprocess.Popen(
        python_words("pagealloc_model.show.drawing"),
        cwd="/",  # Chromium's libraries read files of the working directory
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        asked = "\n".join(_line(file, figure) for file, figure in figures.items())
        _, said = child.communicate(asked, timeout=seconds)
    except subprocess.TimeoutExpired:
        return f"Chromium was not done in {seconds} s"
    finally:
        if child.poll() is None:
            _end(child.pid)
        child.wait()
    return said.strip().rpartition("\n")[2][:200] if child.returncode else ""


def _end(process: int) -> None:
    """End a process and all that it started: Chromium has a session of its own."""
    tasks = Path(f"/proc/{process}/task").glob("*/children")
    started = [int(number) for file in tasks for number in file.read_text().split()]
    with suppress(ProcessLookupError):
        os.kill(process, signal.SIGKILL)
    for number in started:
        _end(number)


def without_pattern(trace: dict[str, Any]) -> dict[str, Any]:
    """A trace whose hatched bars are outlined: in a PDF a hatch is megabytes of small shapes."""
    marker = trace.get("marker", {})
    if "pattern" not in marker:
        return trace
    plain = {name: part for name, part in marker.items() if name != "pattern"}
    shapes, colour = marker["pattern"].get("shape", ""), marker.get("color")
    if shapes and isinstance(shapes, str):
        plain |= {"color": "white", "line": {"color": colour, "width": 1.5}}
    elif not isinstance(shapes, str):
        plain |= {"color": ["white" if shape else colour for shape in shapes]}
    return trace | {"marker": plain}


def _line(file: Path, figure: go.Figure) -> str:
    """What `drawing` reads of a figure: menus and what they hold are left out."""
    parts = json.loads(figure.to_json(validate=False))
    layout = {name: part for name, part in parts["layout"].items() if name != "meta"}
    shown = {"data": parts["data"], "layout": layout}
    if file.suffix == ".pdf":
        shown["data"] = [without_pattern(trace) for trace in parts["data"]]
    height = int(layout.get("height") or HEIGHT)
    return json.dumps(
        {"file": str(file.absolute()), "figure": shown, "width": WIDTH, "height": height}
    )
