"""pagealloc post: a figure and its caption in files."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from pagealloc_model.cli import main


def test_the_command_writes_the_figure_and_its_caption(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def draw(asked: Mapping[Path, object]) -> str:
        for file in asked:
            file.write_text("x")
        return ""

    monkeypatch.setattr("pagealloc_model.show.figures.files.draw", draw)
    file = tmp_path / "mine.svg"
    words = ["post", "highatomic_gate3", "--patch", "pcp_batch=7", "--figure", str(file)]
    assert main(words) == 0
    assert capsys.readouterr().out.split() == [str(file), f"{file}.txt"]
    caption = (tmp_path / "mine.svg.txt").read_text()
    for part in (
        "pcp_batch: as recorded -> 7",
        "highatomic_gate3 (kernel ",
        " for the null model (nothing changes",
        "pagealloc post highatomic_gate3 --patch pcp_batch=7 --figure FILE",
    ):
        assert part in caption
    assert main([*words, "--no-validation"]) == 2
