"""Part `notebooks`: what each cell of each notebook shows when it is run from top to bottom."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import nbformat
from nbclient import NotebookClient

from tests.golden.digests import CHECKOUT, hash_of_bytes, normal_text

TIMEOUT_S = 1200
OF_THE_MACHINE = ("doctor_text", "live_text", "kernel-build", ".to_pandas().head")
"""Words in the source or tags of cells whose output depends on the machine or the time."""
HEXADECIMAL_ID = re.compile(r"[0-9a-f]{32}|[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
ADDRESS = re.compile(r"0x[0-9a-f]{6,}")
TIMED = re.compile(r"\b[\d.,]+ m?s\b")
FIGURE, HTML = "application/vnd.plotly.v1+json", "text/html"
WIDGET = "application/vnd.jupyter.widget-view+json"
PROGRESS, LOOKS = "FloatProgressModel", ("LayoutModel", "StyleModel")
PROGRAM = ("_esm", "_css", "_anywidget_id")  # a widget's own JavaScript, style sheet and class
REFERENCE = "IPY_MODEL_"
WIDGET_STATE = "application/vnd.jupyter.widget-state+json"


def cases(full: bool) -> Iterator[str]:
    yield from sorted(path.stem for path in (CHECKOUT / "notebooks").glob("*.ipynb"))


def run(case: str) -> dict[str, str]:
    """A text or hash for each output of each cell of code, and a hash for each kind of widget."""
    path = CHECKOUT / "notebooks" / f"{case}.ipynb"
    notebook = nbformat.read(path, as_version=4)
    NotebookClient(notebook, timeout=TIMEOUT_S).execute(cwd=str(path.parent))
    found: dict[str, str] = {}
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    for place, cell in enumerate(cells):
        about = cell.source + " ".join(cell.metadata.get("tags", ()))
        if not any(word in about for word in OF_THE_MACHINE):
            found |= _cell(f"cell {place:02}", cell.outputs)
    return found | _widgets(notebook.metadata.get("widgets", {}).get(WIDGET_STATE, {}))


def _cell(name: str, outputs: list[Any]) -> dict[str, str]:
    """What a cell printed, all together, and what it showed, in order; widgets are looked at once.

    A bar of progress is shown where a step takes long, and parts what is printed.
    """
    found: dict[str, str] = {}
    shown = [output for output in outputs if "data" in output and WIDGET not in output.data]
    for stream in ("stdout", "stderr"):
        printed = [output.text for output in outputs if output.get("name") == stream]
        if printed:
            found[f"{name} {stream}"] = normal_text(_without_ids("".join(printed)))
    for error in (output for output in outputs if output.output_type == "error"):
        found[f"{name} error"] = f"{error.ename}: {error.evalue}"
    for number, output in enumerate(shown):
        found |= _shown(f"{name} output {number}", output.data)
    return found


def _shown(name: str, data: dict[str, Any]) -> dict[str, str]:
    if FIGURE in data:
        figure = data[FIGURE]
        return {
            f"{name} figure layout": _hash(figure["layout"]),
            f"{name} figure data": _hash(figure["data"]),
        }
    if HTML in data:
        return {f"{name} html": normal_text(_without_ids(data[HTML].replace("><", ">\n<")))}
    return {f"{name} text": normal_text(_without_ids(data.get("text/plain", "")))}


def _widgets(shown: dict[str, Any]) -> dict[str, str]:
    """A hash for each kind of widget: the states of all of its kind, in any order.

    Bars of progress, and the boxes that hold them, are left out, as is how widgets are laid out.
    """
    widgets: dict[str, Any] = shown.get("state", {})
    kinds: dict[str, list[str]] = {}
    left_out: set[str] = set()
    for name, widget in widgets.items():
        children = [child.removeprefix(REFERENCE) for child in widget["state"].get("children", ())]
        if any(widgets[child]["model_name"] == PROGRESS for child in children):
            left_out |= {name, *children}
    for name, widget in widgets.items():
        kind = widget["model_name"]
        if name not in left_out and kind != PROGRESS and not kind.endswith(LOOKS):
            state = {key: value for key, value in widget["state"].items() if key not in PROGRAM}
            text = TIMED.sub("TIME", _spelled({"state": state, "buffers": widget.get("buffers")}))
            kinds.setdefault(kind, []).append(text)
    found = {}
    for kind, texts in kinds.items():
        states = hash_of_bytes(*(text.encode() for text in sorted(texts)))
        found[f"widgets {kind}"] = f"{len(texts)} {states}"
    return found


def _spelled(value: Any) -> str:
    return normal_text(_without_ids(json.dumps(value, sort_keys=True)))


def _hash(value: Any) -> str:
    return hash_of_bytes(_spelled(value).encode())


def _without_ids(text: str) -> str:
    return ADDRESS.sub("ADDRESS", HEXADECIMAL_ID.sub("ID", text))
