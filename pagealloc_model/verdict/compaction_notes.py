"""What a recording cannot tell of the pages that compaction took (T7, T12.4)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from pagealloc_model.base.text.counts import count_of

if TYPE_CHECKING:
    from pagealloc_model.predicted.demand.demand import Demand
    from pagealloc_model.recording.recording import Recording

MOVED = "pgmigrate_success"
TABLE = "compaction:mm_compaction_migratepages"


def compaction_notes(recording: Recording, demand: Demand) -> Iterator[str]:
    """Say which pages that compaction took rest on less than the events of its scans.

    Args:
        recording: an opened recording.
        demand: what its replay asked for.
    """
    if demand.isolated_unseen:
        yield (
            f"{demand.isolated_unseen} of {demand.isolated_pages} free pages that compaction took "
            "show only in what it moved (mm_compaction_migratepages): the fast search leaves no "
            "event before 6.12, or scans were not recorded"
        )
    first, last = recording.trace.demand_span_ns
    counts = [
        each.vmstat.get(MOVED)
        for each in recording.dated_snapshots
        if first <= each.time_ns <= last and each.vmstat is not None
    ]
    known = [count for count in counts if count is not None]
    moved = known[-1] - known[0] if known else 0
    if moved and not demand.isolated_pages and TABLE not in recording.trace.tables:
        yield (
            f"{count_of(moved, 'page was', 'pages were')} migrated ({MOVED} in vmstat) and "
            "the recording has no events of "
            "compaction: up to as many free pages too many are predicted; record compaction:*"
        )
