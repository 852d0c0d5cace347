"""`pagealloc stalls`: the largest totals, and what it says where there are none."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pagealloc_model.cli.main import main
from tests.measured.test_task_stalls import TRACE


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    path = tmp_path / "trace.txt"
    path.write_text(TRACE)
    return path


def test_the_command_prints_the_largest_totals(
    trace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["stalls", str(trace), "--top", "2"]) == 0
    first, *_, last = capsys.readouterr().out.splitlines()
    assert first == "4 stalls of 2 tasks, 1,501.2 ms in all"
    assert last == "1 further row (--top)"
    assert main(["stalls", str(trace), "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["stalls"]
    assert [row["pid"] for row in rows] == [8, 7, 7]


def test_a_trace_without_stalls_says_what_to_record(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "trace.txt"
    path.write_text("  t-1  [000] ....  1.000001: mm_page_free: page=0x1 pfn=0x1 order=0\n")
    assert main(["stalls", str(path)]) == 2
    assert "record with -e vmscan:mm_vmscan_direct_reclaim_begin" in capsys.readouterr().err
