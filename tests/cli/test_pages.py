"""Commands that open pages: where notebooks are found and copied to."""

from __future__ import annotations

from pathlib import Path

import pytest

from pagealloc_model.cli.pages import writable_notebooks


def test_lab_in_a_checkout_opens_the_notebooks_in_place(checkout: Path, tmp_path: Path) -> None:
    assert writable_notebooks(tmp_path) == checkout / "notebooks"


def test_lab_elsewhere_copies_the_notebooks_once(
    checkout: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed = tmp_path / "site" / "notebooks"
    installed.mkdir(parents=True)
    for notebook in (checkout / "notebooks").glob("*.ipynb"):
        (installed / notebook.name).write_bytes(notebook.read_bytes())
    monkeypatch.setattr("pagealloc_model.cli.pages.shipped_notebooks", lambda: installed)
    copies = writable_notebooks(tmp_path)
    assert copies == tmp_path / "notebooks"
    link = copies / "01_highatomic.ipynb"
    link.unlink()
    link.symlink_to(tmp_path / "elsewhere")
    (copies / "00_start_here.ipynb").write_text("mine")
    writable_notebooks(tmp_path)
    assert (copies / "00_start_here.ipynb").read_text() == "mine"
    assert not (tmp_path / "elsewhere").exists()
