"""What is prepared of a recording."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import pagealloc_model as pm
from pagealloc_model.cli import main
from tests.small_recordings import write_recording


def test_memory_that_a_recording_claims_is_not_taken(tmp_path: Path) -> None:
    """Zones of 4 TiB in some kilobytes of text: one line, and no memory."""
    recording = write_recording(tmp_path / "small")
    for file in recording.glob("snapshots/*/zoneinfo"):
        head, _, last = file.read_text().rpartition("zone   Normal")
        for name in ("spanned", "present", "managed"):
            last = re.sub(rf"(\n\s+{name}\s+)\d+", rf"\g<1>{1 << 30}", last, count=1)
        file.write_text(f"{head}zone   Normal{last}")
    for run in (pm.replay, pm.validate):
        with pytest.raises(pm.UsageError, match=r"page frames: .* GiB of memory, more than"):
            run(pm.open(recording))
    assert main(["info", str(recording)]) == 0
