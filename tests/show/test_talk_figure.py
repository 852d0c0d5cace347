"""The figure for a mail or a talk: what it draws, its caption, and the command that writes it."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

import pagealloc_model as pm
from pagealloc_model.base.errors import UsageError
from pagealloc_model.cli import main
from pagealloc_model.show import figures
from pagealloc_model.show.figures import files
from pagealloc_model.show.figures.predictions_judged import LARGEST, MOST_ROWS, shown_rows
from pagealloc_model.verdict.comparison import BELIEVED
from tests.small_recordings import shipped_recording


def judged(*rows: tuple[str, float, float, float, float, str]) -> pd.DataFrame:
    columns = ["metric", "base", "patch", "change_low", "change_high", "verdict"]
    return pd.DataFrame(rows, columns=columns).assign(scope="all")


def test_believed_rows_come_first_and_what_says_nothing_is_left_out() -> None:
    rows = judged(
        ("unsure", 100, 110, -20, 40, "within error"),
        ("null", 100, 300, 150, 250, "fails null"),
        ("few", 3, 30, 20, 30, "worse"),
        ("halved", 100, 50, -60, -40, "better"),
        ("huge", 100, 9000, 8000, 9900, "worse"),
    )
    shown = shown_rows(rows).set_index("name")
    assert list(shown.index) == ["halved", "huge", "unsure"]
    assert shown.loc["halved", ["ratio", "from_ratio", "to_ratio"]].tolist() == [0.5, 0.4, 0.6]
    assert shown.loc["huge", ["ratio", "from_ratio", "to_ratio"]].tolist() == [LARGEST] * 3


def test_the_figure_has_marks_for_each_kind_and_its_caption() -> None:
    recording = shipped_recording("highatomic_gate3")
    validation = pm.validate(recording)
    comparison = pm.compare(validation.replay, pm.replay(recording, pm.Policy(pcp_batch=7)))
    figure = figures.talk_figure(
        comparison.rows, validation.errors, validation.snapshots, "title", "the caption"
    )
    traces = {trace.name: trace for trace in figure.data if trace.xaxis == "x"}
    drawn = shown_rows(comparison.rows)
    assert 0 < len(drawn) <= MOST_ROWS
    assert list(traces["changed by more than the model's error"].y) == list(
        drawn.loc[drawn["verdict"].isin(BELIEVED), "name"]
    )
    right = {t.name: t.marker.symbol for t in figure.data if t.xaxis == "x2" and t.marker.symbol}
    assert len(set(right.values())) == len(right) > 2
    assert figure.layout.annotations[-1].text == "the caption"


def test_a_file_of_another_kind_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"a figure is \.png, \.svg, \.pdf"):
        files.write_figure(figures.fallbacks(None, None), tmp_path / "figure.gif")


def test_the_command_writes_the_figure_and_its_caption(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "plotly.io.write_images",
        lambda _figures, drawn, **_options: [each.write_text("x") for each in drawn],
    )
    file = tmp_path / "mine.svg"
    words = ["post", "highatomic_gate3", "--patch", "pcp_batch=7", "--figure", str(file)]
    assert main(words) == 0
    assert capsys.readouterr().out.split() == [str(file), f"{file}.txt"]
    caption = (tmp_path / "mine.svg.txt").read_text()
    for part in (
        "pcp_batch: as recorded -> 7",
        "highatomic_gate3 (kernel ",
        "within 25 % of what was measured, of null models ",
        "pagealloc post highatomic_gate3 --patch pcp_batch=7 --figure FILE",
    ):
        assert part in caption
    assert main([*words, "--no-validation"]) == 2


def test_validate_in_brief_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["validate", "highatomic_gate3", "--brief"]) == 0
    printed = capsys.readouterr().out
    assert printed.count("\n") == 1
    assert printed.startswith("highatomic_gate3: ")
    assert "within 25 % of what was measured, of null models " in printed
    assert main(["validate", "highatomic_gate3", "--brief", "--json"]) == 2
