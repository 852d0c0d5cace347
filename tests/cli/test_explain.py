"""`pagealloc explain`: what it reads, prints and refuses."""

from __future__ import annotations

import io
import json
import re
import sys
from pathlib import Path

import pytest

from pagealloc_model.cli.main import main
from tests.memory_reports import MadeZone, report

LOG = report([MadeZone(blocks={"Movable": (4000, 1000)})])


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "dmesg.txt"
    path.write_text(LOG + report([MadeZone(blocks={"Movable": (4000,)})], order=9))
    return path


def test_the_sentence_comes_first(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", str(log)]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("Order 4 failed for fragmentation: Normal has free memory")
    assert "report 1 of 2" in printed and "order 1 instead: served by Normal" in printed
    assert main(["explain", str(log), "--report", "2"]) == 0
    assert capsys.readouterr().out.startswith("Order 9 failed")
    assert main(["explain", str(log), "--report", "3"]) == 2
    assert "number 3 is none of them" in capsys.readouterr().err


def test_a_log_on_standard_input(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO(LOG))
    assert main(["explain", "-", "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["request"]["order"] == 4 and printed["zones"][0]["why"] == "no block"
    assert {row["order"] for row in printed["free_blocks"]} == {0, 1}


def test_this_machine_is_asked(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "--here", "--order", "0"]) == 0
    assert capsys.readouterr().out.startswith("Order 0 is served by zone ")


@pytest.mark.parametrize("words", [("--order", "4"), ("--order", "9", "--gfp", "GFP_TRANSHUGE")])
def test_larger_orders_are_asked_of_this_machine(
    words: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    """Whatever it answers: by its zones, which the kernel's own file names."""
    assert main(["explain", "--here", *words]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith(f"Order {words[1]} ")
    assert f"Free blocks of order {words[1]} and above" in printed
    assert main(["explain", "--here", *words, "--json"]) == 0
    zones = {row["zone"] for row in json.loads(capsys.readouterr().out)["zones"]}
    named = re.findall(r"^Node \d+, zone +(\w+)", Path("/proc/zoneinfo").read_text(), re.M)
    assert zones and zones <= set(named)


def test_a_figure_is_written_beside_the_answer(
    log: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = log.with_name("free.svg")
    assert main(["explain", str(log), "--figure", str(file)]) == 0
    assert capsys.readouterr().out.startswith("Order 4 failed")
    drawn = file.read_text()
    assert drawn.lstrip().startswith("<svg") and "Normal" in drawn
    assert main(["explain", str(log), "--figure", str(log.with_name("free.gif"))]) == 2
    assert "png" in capsys.readouterr().err


def test_what_cannot_be_asked(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for words, message in (
        ([], "give either PATH or --here"),
        ([str(log), "--here"], "give either PATH or --here"),
        ([str(log), "--order", "77"], "this kernel has orders 0 to 10"),
        ([str(log), "--patch", "pcp_batch=3"], "changes nothing for memory as it stands"),
    ):
        assert main(["explain", *words]) == 2
        assert message in capsys.readouterr().err
