"""Notebooks without a person: parameters, outputs, files; a small notebook stands for all."""

from __future__ import annotations

import json
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

from pagealloc_model.base.errors import UsageError
from pagealloc_model.cli import main
from pagealloc_model.cli.pages import find_notebook
from pagealloc_model.notebook.headless import (
    executed,
    figures_of,
    offline_page,
    post_text,
)

EXPLORER = """\
import plotly.graph_objects as go
from pagealloc_model.notebook.controls import PolicyControls
from pagealloc_model.notebook.view import Explorer, View
def compute(policy, progress, cancelled):
    line = go.Scatter(x=[0, 1], y=[0, policy.pcp_batch or 0], meta="line")
    figure = go.Figure(line, {"title": {"text": "A <b>line</b>"}})
    return View(figure=figure, words=lambda: "in words")
Explorer("title", PolicyControls(["pcp_batch"], recorded={"pcp_batch": 63}), compute)"""


def notebook(folder: Path, *cells: nbformat.NotebookNode) -> Path:
    parameters = new_code_cell('recording = "none"\nother = 1', metadata={"tags": ["parameters"]})
    path = folder / "small.ipynb"
    nbformat.write(new_notebook(cells=[new_markdown_cell("# Small"), parameters, *cells]), path)
    return path


def posted(text: str) -> nbformat.NotebookNode:
    return new_code_cell(text, metadata={"tags": ["post"]})


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> nbformat.NotebookNode:
    path = notebook(
        tmp_path_factory.mktemp("small"),
        new_code_cell(EXPLORER),
        new_code_cell("print('not posted', other)"),
        posted("print(recording, 80 * 'x ')\nprint('Gr\\u00fc\\u00dfe')"),
    )
    return executed(path, {"recording": "mine"})


def test_parameters_replace_those_of_the_first_cell(done: nbformat.NotebookNode) -> None:
    injected = done.cells[2]
    assert injected.metadata.tags == ["injected-parameters"]
    assert injected.source == "recording = 'mine'"
    assert done.cells[4].outputs[0].text == "not posted 1\n"


def test_cells_are_counted_as_if_nothing_had_been_added(done: nbformat.NotebookNode) -> None:
    counts = [cell.execution_count for cell in done.cells if cell.cell_type == "code"]
    assert counts == [1, 2, 3, 4, 5]
    assert "show_statically" not in nbformat.writes(done)


def test_a_widget_is_its_figure_and_its_words(done: nbformat.NotebookNode) -> None:
    assert list(figures_of(done)) == ["01_a_line"]
    text = [output.data["text/plain"] for output in done.cells[3].outputs]
    assert "in words" in text[-1]


def test_the_post_is_what_tagged_cells_print_in_72_columns(done: nbformat.NotebookNode) -> None:
    text = post_text(done)
    assert text.startswith("mine x x")
    assert "not posted" not in text
    assert text.isascii()
    assert max(map(len, text.splitlines())) <= 72


def test_without_a_tagged_cell_all_that_is_printed_is_the_post() -> None:
    cell = new_code_cell("", outputs=[new_output("stream", name="stdout", text="shown\n")])
    assert post_text(new_notebook(cells=[cell])) == "shown\n"


def test_the_page_loads_nothing_and_holds_its_figures(done: nbformat.NotebookNode) -> None:
    page = offline_page(done, "small")
    head, _, body = page.partition("<body>")
    assert "default-src 'none'" in head
    assert "<script src" not in page
    assert "<link" not in page
    assert 'Plotly.newPlot("figure-1", ' in body
    assert "in words" in body


def test_a_failing_cell_is_named(tmp_path: Path) -> None:
    path = notebook(tmp_path, new_code_cell("1 / 0"))
    with pytest.raises(UsageError, match="small, cell 3: ZeroDivisionError: division by zero"):
        executed(path, {})


def test_files_beside_it_stand_in_for_no_installed_module(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor is any other module of the directory found."""
    for name in ("attr", "numpy", "plotly", "runpy", "scope"):
        (tmp_path / f"{name}.py").write_text("raise RuntimeError('not this one')\n")
    (tmp_path / "mine.py").write_text("answer = 42\n")
    monkeypatch.chdir(tmp_path)
    cell = new_code_cell(
        "import attr, numpy, plotly\n"
        "from importlib.util import find_spec\nfind_spec('mine') is None"
    )
    done = executed(notebook(tmp_path, cell), {})
    assert done.cells[-1].outputs[0].data["text/plain"] == "True"


@pytest.mark.parametrize("failures", [1, 2])
def test_a_kernel_that_does_not_start_is_started_once_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failures: int
) -> None:
    """It has run nothing; a second one that does not start either is refused in one line."""
    starts = NotebookClient.async_start_new_kernel_client
    failed = []

    async def sometimes(client: NotebookClient) -> object:
        if len(failed) == failures:
            return await starts(client)
        failed.append(client)
        await client._async_cleanup_kernel()
        raise RuntimeError("no answer")

    monkeypatch.setattr(NotebookClient, "async_start_new_kernel_client", sometimes)
    if failures == 1:
        assert executed(notebook(tmp_path, new_code_cell("1 + 1")), {}).cells[-1].outputs
    else:
        with pytest.raises(UsageError, match=r"kernel did not start \(no answer\); run it again"):
            executed(notebook(tmp_path), {})
    assert len(failed) == failures


def test_an_unknown_parameter_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no parameter 'seeds'; it has recording, other"):
        executed(notebook(tmp_path), {"seeds": 2})


def test_notebooks_are_found_by_file_name_and_number(checkout: Path) -> None:
    wanted = checkout / "notebooks" / "01_highatomic.ipynb"
    assert find_notebook("01_highatomic") == find_notebook("01") == wanted
    assert find_notebook(str(wanted)) == wanted
    with pytest.raises(UsageError, match="00_start_here"):
        find_notebook("nonsense")


def test_the_command_writes_all_it_can_without_chromium(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("BROWSER_PATH", str(tmp_path / "no-browser"))
    path = notebook(tmp_path, new_code_cell("go_on = 1"), new_code_cell(EXPLORER))
    assert main(["notebook", str(path), "--parameter", "other=[1, 2]", "-o", f"{tmp_path}/o"]) == 0
    printed = capsys.readouterr()
    assert printed.err.count("\n") == 1
    assert "no Chromium" in printed.err
    assert sorted(file.name for file in (tmp_path / "o").iterdir()) == [
        "post.txt",
        "small.html",
        "small.ipynb",
    ]
    assert (
        "other = [1, 2]"
        in json.loads((tmp_path / "o/small.ipynb").read_text())["cells"][2]["source"]
    )


def test_a_recording_that_is_not_there_is_refused_before_anything_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["notebook", "00", "--recording", "/no/such", "-o", str(tmp_path / "out")]
    assert main(arguments) == 2
    assert capsys.readouterr().err.startswith("pagealloc: /no/such: does not exist")
    assert not (tmp_path / "out").exists()
