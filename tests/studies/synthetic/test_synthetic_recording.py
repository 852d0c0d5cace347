"""A made-up load written by the command opens and replays like a recording."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import pagealloc_model as pm
from pagealloc_model.cli.main import main


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("synth") / "exit"
    words = ["synth", "exit", "-o", str(path), "--cpus", "2", "--gib", "1", "--rules", "6.18"]
    assert main([*words, "--set", "pages=3000"]) == 0
    return path


def test_it_opens_and_replays(written: Path) -> None:
    recording = pm.open(written)
    assert len(recording.trace) == 2 * 2 * 3000
    assert recording.snapshots[0].problems == {}
    replay = pm.replay(recording)
    assert replay.rules.name == "6.18"
    assert replay.divergence["failed"] == replay.divergence["orphan_frees"] == 0


def test_the_model_holds_the_lock_as_in_the_scenario(written: Path) -> None:
    """The same machine, demand and start: the same refills and drains."""
    scenario = pm.synthetic.scenario("exit", gib=1, nr_cpus=2, rules="6.18", pages=3000)
    run = pm.synthetic.run(scenario, rules="6.18")
    replay = pm.replay(pm.open(written))
    first = int(scenario.events["time_ns"][0])
    assert replay.log[0, 1] == run.log[0, 1] == first
    refills = [log[log[:, 0] == 0][:, 6] for log in (replay.log, run.log)]
    assert np.array_equal(*refills)


def test_it_does_not_write_over_anything(written: Path, capsys: pytest.CaptureFixture) -> None:
    assert main(["synth", "churn", "-o", str(written), "--cpus", "1", "--gib", "1"]) == 2
    assert "not empty" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--set", "pages"], "NUMBER=VALUE"),
        (["--set", "sheep=3"], "takes pages"),
        (["--gib", "0"], "more than 0"),
    ],
)
def test_wrong_numbers_are_refused(
    tmp_path: Path, words: list[str], said: str, capsys: pytest.CaptureFixture
) -> None:
    assert main(["synth", "exit", "-o", str(tmp_path / "x"), *words]) == 2
    assert said in capsys.readouterr().err
