import ast
import re
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

from pagealloc_model.base.errors import RecordingError
from pagealloc_model.recording.recording import open_recording

NOTEBOOKS = sorted((Path(__file__).parents[2] / "notebooks").glob("*.ipynb"))
CELL_TIMEOUT_S = 600
WIDGET, FIGURE = "application/vnd.jupyter.widget-view+json", "application/vnd.plotly.v1+json"
LOGIC = (ast.FunctionDef, ast.ClassDef, ast.For, ast.While, ast.If, ast.Try, ast.Lambda)


def read(path: Path) -> nbformat.NotebookNode:
    return nbformat.read(path, as_version=4)


def code_cells(notebook: nbformat.NotebookNode) -> list[nbformat.NotebookNode]:
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def is_one_expression(node: ast.AST) -> bool:
    """Whether it is a function that only returns something: a hook."""
    return isinstance(node, ast.FunctionDef) and [type(line) for line in node.body] == [ast.Return]


def text_of(notebook: nbformat.NotebookNode, tag: str) -> str:
    """What cells with a tag have printed."""
    return "".join(
        output.get("text", "")
        for cell in code_cells(notebook)
        if tag in cell.metadata.get("tags", ())
        for output in cell.outputs
    )


def recordings_named_in(notebook: nbformat.NotebookNode) -> list[str]:
    return re.findall(r'^\w*recording = "(.+)"$', code_cells(notebook)[0].source, re.MULTILINE)


@pytest.fixture(params=NOTEBOOKS, ids=lambda path: path.stem)
def path(request: pytest.FixtureRequest) -> Path:
    return request.param


def test_the_first_cell_of_code_names_the_recording(path: Path) -> None:
    first = code_cells(read(path))[0]
    assert first.metadata.tags == ["parameters"]
    assert first.source.startswith("recording = ")


def test_committed_without_outputs(path: Path) -> None:
    for cell in code_cells(read(path)):
        assert cell.outputs == []
        assert cell.execution_count is None


def test_cells_hold_no_logic(path: Path) -> None:
    for cell in code_cells(read(path)):
        logic = [node for node in ast.walk(ast.parse(cell.source)) if isinstance(node, LOGIC)]
        if "hook" in cell.metadata.get("tags", ()):
            logic = [node for node in logic if not is_one_expression(node)]
        assert not logic, cell.source


@pytest.mark.parametrize("path", NOTEBOOKS[1:], ids=lambda path: path.stem)
def test_runs_from_top_to_bottom(path: Path) -> None:
    """All but 00_start_here, which tests/browser/test_lab.py runs."""
    notebook = read(path)
    for name in recordings_named_in(notebook):
        try:
            open_recording(name)
        except RecordingError as error:
            pytest.skip(str(error))
    client = NotebookClient(notebook, timeout=CELL_TIMEOUT_S, resources={})
    client.execute(cwd=str(path.parent))
    outputs = [output for cell in code_cells(notebook) for output in cell.outputs]
    assert all(output.output_type != "error" for output in outputs)
    shown = [output.get("data", {}) for output in outputs]
    sources = [cell.source for cell in code_cells(notebook)]
    has_widgets = "widgets" in sources[1] or any("pm.explore(" in source for source in sources)
    wanted = WIDGET if has_widgets else FIGURE
    assert any(wanted in data for data in shown)
    assert not [output for output in outputs if output.get("name") == "stderr"]
    assert "different" not in text_of(notebook, "hook") + text_of(notebook, "kernel-build")
    if path.stem == "01_highatomic":
        assert text_of(notebook, "hook").startswith(("identical: ", "skipped: "))
        built = text_of(notebook, "kernel-build")
        assert "identical: " in built or built.startswith("skipped: ")
