"""pagealloc replay: tables are written once, nothing is shown without a terminal."""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pagealloc_model as pm
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


def test_a_chain_of_functions_is_one_line(capsys: Capture) -> None:
    """Stacks that differ farther out are added; the sums are those of all of them."""
    assert main(["stacks", "build_stacks", "--top", "1000"]) == 0
    title, columns, *lines = capsys.readouterr().out.splitlines()
    assert columns.split() == ["events", "pages"]
    chains = [line.split(maxsplit=2) for line in lines]
    assert len({chain for _, _, chain in chains}) == len(chains) < int(title.split()[4])
    assert f" {sum(int(pages) for _, pages, _ in chains):,} pages; " in title


def test_events_are_counted_as_posts_count_them(capsys: Capture) -> None:
    assert main(["info", "matrix_A1"]) == 0
    said = f"events     {len(pm.open('matrix_A1').trace):,} of the page allocator, "
    assert said in capsys.readouterr().out


def test_no_progress_without_a_terminal(shipped: Shipped) -> None:
    answer = run_pagealloc("replay", str(shipped("kbuild")))
    assert (answer.returncode, answer.stderr) == (0, "")


def test_a_closed_pipe_is_quiet(shipped: Shipped) -> None:
    command = f"{sys.executable} -m pagealloc_model.cli replay {shipped('kbuild')} --json"
    pipe = f"({command}; echo $? >&2) | head -c 1"
    answer = subprocess.run(["bash", "-c", pipe], capture_output=True, text=True, check=True)
    assert answer.stderr == "141\n"
