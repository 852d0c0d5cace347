"""pagealloc experiment: recordings in place of guests, its sides, what it refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pagealloc_model.cli import main
from pagealloc_model.guests import runs as runs_module
from pagealloc_model.numbers.statistics import (
    TOO_FEW,
)
from tests.guests.small_plan import FakeGuests, write_plan
from tests.guests.test_experiment import FRACTION, SHIPPED


def test_the_command_takes_recordings(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Two recordings that ship, one a side: values and predictions, but no interval."""
    plan = write_plan(tmp_path, SHIPPED)
    words = ["experiment", str(plan), "-o", str(tmp_path / "out"), "--json", "--measured"]
    assert main([*words, "A=highatomic_stock", "B=highatomic_gate3"]) == 0
    printed = json.loads(capsys.readouterr().out)
    added = next(
        row
        for row in printed["changes"]
        if row["metric"] == "HighAtomic blocks added" and row["mode"] == "elastic"
    )
    assert (added["before"], added["after"], added["verdict"]) == (15, 0, TOO_FEW)
    assert added["predicted"] < 0
    assert {row["status"] for row in printed["runs"]} == {"measured"}
    assert (tmp_path / "out/predicted_changes.html").exists()


def test_the_command_prints_sides_and_complains_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = write_plan(tmp_path)
    assert main(["experiment", str(plan), "-o", str(tmp_path / "out"), "--sides"]) == 0
    assert capsys.readouterr().out.startswith(f"A: kernel bzImage, {FRACTION} 0\nB: {FRACTION} 8\n")
    for words, said in (
        ([str(plan), "--measured", "A"], "--measured A: write SIDE=PATH, such as A=mine"),
        ([str(plan), "--measured", "Z=kbuild"], "--measured Z=...: there is no such side"),
        ([str(tmp_path / "none.toml")], "none.toml: cannot be read"),
        ([str(plan), "--kernel", str(tmp_path / "none")], "no such kernel; name a bzImage"),
    ):
        assert main(["experiment", *words, "-o", str(tmp_path / "out")]) == 2
        complaint = capsys.readouterr().err
        assert said in complaint and complaint.count("\n") == 1


def test_a_failed_run_is_exit_code_1(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    guests = FakeGuests(lambda boot: boot.order.environment["SEED"] == "2")
    monkeypatch.setattr(runs_module, "VirtmeGuests", lambda: guests)
    words = ["experiment", str(write_plan(tmp_path)), "-o", str(tmp_path / "out")]
    assert main(words) == 1
    assert "run A2 failed: the guest ended before it was done" in capsys.readouterr().err
