"""What reclaim costs on the machine of a recording, as its direct reclaims show it (T7)."""

from __future__ import annotations

import numpy as np

from pagealloc_model.policy.assumptions import Assumptions, ElasticAssumptions
from pagealloc_model.recording.trace.columns import Trace


def at_recorded_cost(trace: Trace) -> Assumptions:
    """Elastic reclaim; freeing a page takes as long as in the recorded direct reclaims, if any.

    Args:
        trace: the recording's events.
    """
    cost = recorded_reclaim_ns(trace)
    elastic = ElasticAssumptions() if cost is None else ElasticAssumptions(reclaim_free_ns=cost)
    return Assumptions(reclaim="elastic", elastic=elastic)


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
