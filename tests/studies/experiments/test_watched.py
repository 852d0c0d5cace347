"""What a run's folder takes."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pagealloc_model.studies.experiments.guest import folder_bytes


def test_a_folder_is_sized_while_one_in_it_is_renamed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A recorder renames its folder when it is done."""
    (tmp_path / "kept").write_bytes(bytes(8192))
    (tmp_path / "going").mkdir()
    look = os.scandir

    def scandir(path: str) -> object:
        if str(path).endswith("going") and (tmp_path / "going").exists():
            (tmp_path / "going").rename(tmp_path / "gone")
        return look(path)

    monkeypatch.setattr(os, "scandir", scandir)
    assert folder_bytes(tmp_path) >= 8192
    assert (tmp_path / "gone").exists()
