"""`pagealloc bench`: its parts, and what becomes of those that cannot be measured."""

from __future__ import annotations

import importlib
import subprocess
from functools import partial
from pathlib import Path
from types import ModuleType

import pandas as pd
import pytest

from pagealloc_model.cli.main import build_parser, main


@pytest.fixture
def bench(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """benchmarks/bench.py, which is no part of the package."""
    if not (checkout / "benchmarks").exists():
        pytest.skip("benchmarks are not in this checkout")
    monkeypatch.syspath_prepend(str(checkout / "benchmarks"))
    return importlib.import_module("bench")


def test_the_command_names_the_parts_there_are(
    bench: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    parts = list(bench.PARTS)
    assert parts == list(bench.PEERS)
    assert build_parser().parse_args(["bench", "--only", *parts]).only == parts
    with pytest.raises(SystemExit):
        main(["bench", "--help"])
    assert f"[{{{','.join(parts)}}} ...]" in capsys.readouterr().out


def test_a_part_that_cannot_be_measured_is_one_line(
    bench: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def without_chromium(_path: str) -> pd.DataFrame:
        monkeypatch.setenv("PATH", "")
        return bench._slider("kbuild")

    def failing(_path: str) -> pd.DataFrame:
        raise subprocess.CalledProcessError(1, "python", stderr="Traceback\nValueError: odd\n")

    table = pd.DataFrame({"what": ["threads"]})
    parts = {"slider": without_chromium, "start": failing, "sweep": lambda _path: table}
    monkeypatch.setattr(bench, "PARTS", parts)
    assert bench.measured(list(parts), "kbuild") == {"sweep": table}
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "1 of 3: slider"
    assert lines[1] == "slider: left out: no Chromium (Debian: chromium)"
    assert lines[3] == "start: left out: ValueError: odd"
    assert lines[4] == "3 of 3: sweep"
    assert len(lines) == 6


def test_a_tool_of_perf_that_fails_leaves_the_others(
    bench: ModuleType,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture,
) -> None:
    reading = importlib.import_module("reading")
    (tmp_path / "perf").write_text("#!/bin/sh\nkill -SEGV $$\n")
    (tmp_path / "perf").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    tool = partial(reading.perf_seconds, ["kmem"], str(tmp_path))
    assert reading.in_turns({"ours": lambda: 1.0, "kmem": tool}) == {"ours": [1.0, 1.0]}
    said = capsys.readouterr().err
    assert said == "kmem: left out: it ended with signal 11 on this file\n"


def test_every_wait_is_timed(bench: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    waits = importlib.import_module("waits")
    monkeypatch.setattr(waits, "_output", lambda cache, *words: "2.0 1.0")
    monkeypatch.setattr(waits, "KERNELS", {})
    rows = waits.measured(["xfree"]).set_index("step")
    assert list(rows.index[[0, 1, -1]]) == ["reading", "open", "another policy"]
    assert rows["s"]["reading"] == 2.0
    assert rows["CPU s"]["another policy"] == 1.0
