"""What reclaim costs on the machine of a recording, as its direct reclaims show it (T7)."""

from __future__ import annotations

import numpy as np

from pagealloc_model.policy.assumptions import Assumptions, ElasticAssumptions
from pagealloc_model.recording.snapshot import Snapshot
from pagealloc_model.recording.trace.columns import Trace


def at_recorded_cost(trace: Trace, start: Snapshot | None = None) -> Assumptions:
    """Elastic reclaim; freeing a page takes as long as in the recorded direct reclaims, if any.

    Args:
        trace: the recording's events.
        start: the snapshot that a replay begins with: what reclaim and compaction find is then as
            in the time before it, see `shares_before`.
    """
    cost = recorded_reclaim_ns(trace)
    known = shares_before(start) if start is not None else {}
    if cost is not None:
        known["reclaim_free_ns"] = cost
    return Assumptions(reclaim="elastic", elastic=ElasticAssumptions(**known))


def shares_before(start: Snapshot) -> dict[str, int]:
    """Shares of pages that reclaim scanned and did not free before a time.

    What compaction did not move is not among them: `pgmigrate_fail` counts attempts, several at
    the same folio, and the model wants to know how many folios cannot be moved (S9.9).

    Args:
        start: a snapshot; its vmstat counts since the machine booted.

    Returns:
        By field of `ElasticAssumptions`, per mille, rounded: pages of files that were scanned and
        not freed count as in use, none as dirty. Without such counters, or with none scanned yet,
        the fields are left out.
    """
    if start.vmstat is None:
        return {}
    scanned, stolen = (start.vmstat.get(name) or 0 for name in ("pgscan_file", "pgsteal_file"))
    shares = {}
    if scanned:
        kept = round(1000 * (scanned - stolen) / scanned)
        shares |= {"file_referenced_per_mille": min(max(kept, 0), 1000), "file_dirty_per_mille": 0}
    return shares


def recorded_reclaim_ns(trace: Trace) -> int | None:
    """Median time of a recorded direct reclaim per page that it freed, ns; None without any.

    It includes what interrupts and other tasks took of the CPU meanwhile, and the recording itself.

    Args:
        trace: the recording's events.
    """
    begins = trace.tables.get("vmscan:mm_vmscan_direct_reclaim_begin")
    ends = trace.tables.get("vmscan:mm_vmscan_direct_reclaim_end")
    if begins is None or ends is None:
        return None
    count = len(begins["pid"])
    pid = np.concatenate([begins["pid"], ends["pid"]]).astype(np.int64)
    time_ns = np.concatenate([begins["time_ns"], ends["time_ns"]])
    is_end = np.arange(len(pid)) >= count
    ranked = np.lexsort((is_end, time_ns, pid))
    before, after = ranked[:-1], ranked[1:]
    pairs = ~is_end[before] & is_end[after] & (pid[before] == pid[after])
    before, after = before[pairs], after[pairs]
    freed = np.asarray(ends["nr_reclaimed"], np.int64)[after - count]
    lasted = (time_ns[after] - time_ns[before])[freed > 0]
    return int(np.median(lasted / freed[freed > 0])) if len(lasted) else None
