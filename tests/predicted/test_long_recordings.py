"""Recordings larger than memory: the same replay with everything in files, under a limit."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from pytest import MonkeyPatch

import pagealloc_model as pm
from pagealloc_model.base import arrays
from pagealloc_model.cli.predictions import TABLES
from pagealloc_model.recording.trace.columns import COLUMN_TYPES, Trace
from pagealloc_model.recording.trace.store import write_store
from tests.small_recordings import ELASTIC, shipped_recording

EMPTY = pm.Assumptions(reclaim="elastic", start="empty")
SHIPPED = (
    ("xfree", pm.Assumptions()),
    ("mixed_6.1", ELASTIC),
    ("defrag_7.3", ELASTIC),
    ("matrix_A1", EMPTY),
    *(
        pytest.param(name, assumptions, marks=pytest.mark.long)
        for name in ("kbuild", "highatomic_stock", "highatomic_gate3")
        for assumptions in (pm.Assumptions(), ELASTIC)
    ),
)
"""Failed requests, pages that compaction moved, files' pages."""
LONG = "kbuild"  # repeated, it neither fills nor empties its machine
TIMES = 16
ALLOWED_MIB = 400
ROWS_TOGETHER = 1 << 16
FEW_ROWS = 1 << 12  # so that each recording has dozens of parts
LIMITED = """
import resource, sys
import pagealloc_model as pm
from pathlib import Path
from pagealloc_model.base import arrays
source, path = sys.argv[1:3]
arrays.ROWS_IN_MEMORY, arrays.ROWS_TOGETHER, allowed_mib = map(int, sys.argv[3:])
pm.replay(pm.open(source)).transactions
words = Path("/proc/self/status").read_text().split()
limit = int(words[words.index("VmData:") + 1]) * 1024 + (allowed_mib << 20)
resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
recording = pm.open(path)
run = pm.replay(recording)
print(len(recording.trace), run.transactions["transactions"].sum(), len(run.free_pages))
"""
"""Replays a recording in a process that may take so much memory more than one of a short one."""


@pytest.mark.parametrize(("name", "assumptions"), SHIPPED)
def test_a_replay_in_files_is_the_one_in_memory(
    name: str, assumptions: pm.Assumptions, tmp_path: Path, monkeypatch: MonkeyPatch
) -> None:
    recording = shipped_recording(name)
    expected = pm.replay(recording, pm.Policy(pcp_batch=31), assumptions=assumptions)
    columns = tmp_path / "columns"
    recording.to_columns(columns, compress=False)
    monkeypatch.setattr(arrays, "ROWS_IN_MEMORY", 0)
    monkeypatch.setattr(arrays, "ROWS_TOGETHER", FEW_ROWS)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    found = pm.replay(pm.open(columns), pm.Policy(pcp_batch=31), assumptions=assumptions)
    for array in ("events", "objects", "leads"):
        assert np.array_equal(getattr(found.demand, array), getattr(expected.demand, array)), array
    for array in ("log", "places", "fallback_counts"):
        assert np.array_equal(getattr(found, array), getattr(expected, array)), array
    assert found.final is not None and expected.final is not None
    for array in ("pages", "blocks", "st", "folios"):
        assert np.array_equal(getattr(found.final, array), getattr(expected.final, array)), array
    for table in (*TABLES, "transactions_full"):
        pd.testing.assert_frame_equal(getattr(found, table), getattr(expected, table))
    assert (found.divergence, found.start_state) == (expected.divergence, expected.start_state)


@pytest.fixture(scope="module")
def long_recording(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A shipped recording's events over and over, in mapped columns."""
    recording = shipped_recording(LONG)
    path = tmp_path_factory.mktemp("long") / "columns"
    recording.to_columns(path)
    trace, events = recording.trace, path / "events.arrow"
    columns = {name: np.tile(getattr(trace, name), TIMES) for name in COLUMN_TYPES}
    first, last = trace.span_ns
    columns["time_ns"] += np.repeat(np.arange(TIMES) * (last - first + 1), len(trace))
    events.unlink()
    write_store(Trace(**columns, gfp_bits=trace.gfp_bits), events, source=None, compress=False)
    return path


@pytest.mark.long
@pytest.mark.parametrize(("where", "rows_in_memory"), [("files", 0), ("memory", sys.maxsize)])
def test_memory_that_suffices_for_a_replay_in_files_only(
    where: str, rows_in_memory: int, long_recording: Path
) -> None:
    source = shipped_recording(LONG)
    words = (rows_in_memory, ROWS_TOGETHER, ALLOWED_MIB)
    command = [sys.executable, "-c", LIMITED, str(source.path), str(long_recording)]
    done = subprocess.run([*command, *map(str, words)], capture_output=True, text=True, timeout=600)
    if where == "memory":
        # the stack of a thread may be what finds no room
        assert "MemoryError" in done.stderr or "can't start new thread" in done.stderr
        return
    assert done.returncode == 0, done.stderr
    events, holds, rows = map(int, done.stdout.split())
    assert events == TIMES * len(source.trace)
    assert holds > 0 and rows > 0
