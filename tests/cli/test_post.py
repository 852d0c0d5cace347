"""pagealloc post: a figure and its caption in files."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from itertools import pairwise, product
from pathlib import Path

import pytest
from pagealloc_model.notebooks.studies.others.reply_figures import reply_figure

from pagealloc_model.cli import main

replay_module = import_module("pagealloc_model.predicted.replay")


@pytest.fixture(autouse=True)
def without_chromium(monkeypatch: pytest.MonkeyPatch) -> None:
    def draw(asked: Mapping[Path, object]) -> str:
        for file in asked:
            file.write_text("x")
        return ""

    monkeypatch.setattr("pagealloc_model.show.figures.files.draw", draw)


def test_the_command_writes_the_figure_and_its_caption(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "mine.svg"
    words = ["post", "highatomic_gate3", "--patch", "pcp_batch=7", "--figure", str(file)]
    assert main(words) == 0
    assert capsys.readouterr().out.split() == [str(file), f"{file}.txt"]
    caption = (tmp_path / "mine.svg.txt").read_text()
    for part in (
        "pcp_batch: as recorded -> 7",
        "highatomic_gate3 (kernel ",
        " by the null model (no change",
        "pagealloc post highatomic_gate3 --patch pcp_batch=7 --figure FILE",
    ):
        assert part in caption
    assert main([*words, "--no-validation"]) == 2


@pytest.mark.parametrize(
    ("name", "lines"),
    [
        ("highatomic", {"score: free reserved blocks count as whole", "begins above 90"}),
        ("defrag_mode", {"vanilla", "defrag_mode"}),
    ],
)
def test_a_reply_has_a_figure_of_its_own(
    name: str, lines: set[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "reply.svg"
    assert main(["post", "--reply", name, "--figure", str(file)]) == 0
    assert capsys.readouterr().out.split() == [str(file), f"{file}.txt"]
    figure, caption = reply_figure(name)
    assert (tmp_path / "reply.svg.txt").read_text() == f"{caption}\n"
    assert figure.layout.annotations[-1].text.replace("<br>", " ") == caption
    drawn = {trace.name: trace for trace in figure.data if not trace.fill}
    assert lines <= set(drawn)
    for one, two in pairwise(drawn.values()):  # told apart in grey
        assert one.line.dash != two.line.dash
    values = [trace.y for trace in figure.data if trace.name == "begins above 90"]
    assert all(list(each) == [90, 90] for each in values)


def test_figures_of_replies_take_no_recording(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["post", "kbuild", "--reply", "highatomic", "--figure", "x.svg"]) == 2
    assert "leave out PATH" in capsys.readouterr().err


@pytest.mark.parametrize("base", ["", "pcp_batch=31"])
def test_each_seed_of_a_policy_is_replayed_once(
    base: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The recorded policy's replays are held to the recording, and the base if none is given."""
    asked = []
    answer = replay_module._answer
    monkeypatch.setattr(
        replay_module,
        "_answer",
        lambda question, prepared: (
            asked.append((str(question.asked), question.seed)) or answer(question, prepared)
        ),
    )
    words = ["post", "highatomic_gate3", "--patch", "pcp_batch=7", "--seeds", "2"]
    assert main([*words, *(["--base", base] if base else [])]) in (0, 1)
    capsys.readouterr()
    policies = {"as recorded", "pcp_batch=7", *([base] if base else [])}
    assert sorted(asked) == sorted(product(policies, range(2)))
