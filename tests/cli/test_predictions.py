"""pagealloc replay: tables are written once, nothing is shown without a terminal."""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from pagealloc_model.cli import main
from tests.cli.test_main import Capture, refusal, run_pagealloc

Shipped = Callable[[str], Path]


def test_single_rules_can_be_changed(shipped: Shipped, capsys: Capture) -> None:
    path = str(shipped("kbuild"))
    assert main(["replay", path, "--rules", "6.18,free_batched=true", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["rules"] == "6.18,free_batched=true"


def test_replay_writes_tables_once(shipped: Shipped, tmp_path: Path, capsys: Capture) -> None:
    path, out = str(shipped("kbuild")), tmp_path / "predicted"
    command = ["replay", path, "--set", "pcp_batch=31", "-o", str(out)]
    assert main(command) == 0
    assert "pcp_batch=31" in capsys.readouterr().out
    with (out / "free_pages.csv").open() as file:
        first = next(csv.DictReader(file))
    assert set(first) == {"time_ns", "node", "zone", "order", "migratetype", "buddies", "pages"}
    assert json.loads((out / "provenance.json").read_text())["changed"] == {"pcp_batch": 31}
    assert os.listdir(tmp_path) == ["predicted"]
    assert "is not empty" in refusal(capsys, *command)


def test_no_progress_without_a_terminal(shipped: Shipped) -> None:
    answer = run_pagealloc("replay", str(shipped("kbuild")))
    assert (answer.returncode, answer.stderr) == (0, "")


def test_a_closed_pipe_is_quiet(shipped: Shipped) -> None:
    command = f"{sys.executable} -m pagealloc_model.cli replay {shipped('kbuild')} --json"
    pipe = f"({command}; echo $? >&2) | head -c 1"
    answer = subprocess.run(["bash", "-c", pipe], capture_output=True, text=True, check=True)
    assert answer.stderr == "141\n"
