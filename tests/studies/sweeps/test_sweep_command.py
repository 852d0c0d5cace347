"""`pagealloc sweep`: what it prints and writes, and what it refuses."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from pagealloc_model.cli import main
from pagealloc_model.studies.sweeps import records
from tests.show.test_post import assert_mailable
from tests.small_recordings import write_recording

Capture = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(write_recording(tmp_path_factory.mktemp("sweeps") / "small"))


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records, "cache_directory", lambda: tmp_path)


def test_a_sweep_is_written_printed_and_resumed(
    small: str, tmp_path: Path, capsys: Capture
) -> None:
    output = tmp_path / "results.parquet"
    words = ("sweep", small, "--vary", "pcp_batch=4:12:4", "-o", str(output))
    assert main([*words, "--seeds", "2"]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith(f"6 points, 0 of them known, 0 failed\nwritten to {output}\n")
    assert_mailable(printed.split("\n\n", 1)[1])
    table = pd.read_parquet(output)
    assert list(table["pcp_batch"]) == [4, 8, 12] * 2
    assert main([*words, "--vary", "costly_order=3,none"]) == 2
    assert "--resume" in capsys.readouterr().err
    assert main([*words, "--vary", "costly_order=3,none", "--resume"]) == 0
    assert capsys.readouterr().out.startswith("6 points, 3 of them known")
    assert list(pd.read_parquet(output)["costly_order"].isna()) == [False, True] * 3


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--vary", "pcp_batch"], "write FIELD=VALUE"),
        (["--vary", "pcp_batch=0"], "outside 1 to 511"),
        (["--seeds", "0"], "at least one"),
        (["--points", "3", "--one-at-a-time"], "two designs"),
        (["--pareto", "drain_pages"], "two columns"),
        (["--metrics", "speed"], "no metric 'speed'"),
    ],
)
def test_what_cannot_be_done_is_one_line(
    small: str, words: list[str], said: str, capsys: Capture
) -> None:
    assert main(["sweep", small, *words]) == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1
