"""What is prepared of a recording."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import pagealloc_model as pm
from pagealloc_model.cli import main
from pagealloc_model.predicted.prepared import recorded_demand, replayed_machine
from tests.small_recordings import write_recording

CLAIMED = 1 << 30
"""Page frames: 4 TiB."""


def _claiming(recording: Path) -> Path:
    """A recording whose zoneinfo, some kilobytes of text, claims 4 TiB."""
    for file in recording.glob("snapshots/*/zoneinfo"):
        head, _, last = file.read_text().rpartition("zone   Normal")
        for name in ("spanned", "present", "managed"):
            last = re.sub(rf"(\n\s+{name}\s+)\d+", rf"\g<1>{CLAIMED}", last, count=1)
        file.write_text(f"{head}zone   Normal{last}")
    return recording


@pytest.mark.parametrize("files", [(), ("kpageflags.u64.gz",)])
def test_memory_that_only_zones_claim_is_not_taken(tmp_path: Path, files: tuple[str, ...]) -> None:
    """Zones end, for a replay, where pageblocks are counted, flags or events seen."""
    small = write_recording(tmp_path / "small")
    large = _claiming(write_recording(tmp_path / "large"))
    for name in files:
        (small / name).unlink(missing_ok=True)
        (large / name).unlink(missing_ok=True)
    usual, claimed = (replayed_machine(pm.open(each)) for each in (small, large))
    assert claimed.end_pfn < 8 * usual.end_pfn
    free, expected = (pm.replay(pm.open(each)).free_pages for each in (large, small))
    assert free["pages"].tolist() == expected["pages"].tolist()
    assert main(["validate", str(large)]) == 0


def test_memory_that_counts_of_pageblocks_claim_too_is_refused(tmp_path: Path) -> None:
    """A replay has room for each page frame of those: one line; to describe it takes no memory."""
    recording = _claiming(write_recording(tmp_path / "small"))
    for file in recording.glob("snapshots/*/pagetypeinfo"):
        file.unlink()
    (recording / "kpageflags.u64.gz").unlink(missing_ok=True)
    for run in (pm.replay, pm.validate):
        with pytest.raises(pm.UsageError, match=r"page frames: .* GiB of memory, more than"):
            run(pm.open(recording))
    assert recorded_demand(pm.open(recording)).grown_pages == 0
    assert main(["info", str(recording)]) == 0
