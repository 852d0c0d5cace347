"""Every row of docs/formats.md names a test that is there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import pagealloc_model as pm
from pagealloc_model.base.errors import RecordingError
from pagealloc_model.recording.exporting import export_recording

_ROW = re.compile(r"^\| (?P<format>.+?) \| (?P<verdict>read|refused) \| .+ \| `(?P<test>\S+)` \|$")
SAMPLES = Path(__file__).parent / "trace/samples"


def test_every_row_is_a_test(checkout: Path) -> None:
    lines = (checkout / "docs/formats.md").read_text().splitlines()
    start = next(number for number, line in enumerate(lines) if line.startswith("| format"))
    rows = [line for line in lines[start + 2 :][: lines[start:].index("") - 2]]
    matches = [_ROW.match(row) for row in rows]
    assert len(rows) >= 19 and all(matches), [row for row in rows if not _ROW.match(row)]
    files = {path.name: path.read_text() for path in (checkout / "tests/recording").rglob("*.py")}
    for row in matches:
        assert row is not None
        module, _, function = row["test"].partition("::")
        assert module in files, row["test"]
        assert f"def {function}(" in files[module] or not function, row["test"]


def test_parquet_is_refused(tmp_path: Path) -> None:
    result = export_recording(pm.open(SAMPLES / "small.dat"), tmp_path / "events", "parquet")
    with pytest.raises(RecordingError, match=r"is a Parquet table.*what it was made from"):
        _ = pm.open(result.path / "events.parquet").trace
