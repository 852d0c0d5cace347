"""Time that tasks lost to direct reclaim and compaction, by task and order."""

from __future__ import annotations

import numpy as np
import pandas as pd

from pagealloc_model.measured.memory_stalls import COMPACTION, RECLAIM, recorded_stalls
from pagealloc_model.recording.trace import tracepoints as tp
from pagealloc_model.recording.trace.columns import Trace


def stalls_by_task(trace: Trace) -> pd.DataFrame:
    """Stalls of each task by cause and order, the largest total first.

    Needs the events that begin and end direct reclaim or compaction and no others. kswapd,
    kcompactd, and what had begun before the first event or went on after the last, are left out.

    Returns:
        task, pid, cause, order, stalls, total_ns, median_ns, longest_ns. `order` is NA where the
        trace does not say (compaction without `mm_compaction_try_to_compact_pages`).
    """
    stalls = recorded_stalls(trace)
    stalls["order"] = _orders(trace, stalls)
    grouped = stalls.groupby(["pid", "cause", "order"], dropna=False)["ns"]
    table = grouped.agg(
        stalls="count", total_ns="sum", median_ns="median", longest_ns="max"
    ).reset_index()
    table.insert(0, "task", [trace.comms.get(pid, "") for pid in table["pid"]])
    table["median_ns"] = table["median_ns"].astype(np.int64)
    return table.sort_values("total_ns", ascending=False, ignore_index=True, kind="stable")


def _orders(trace: Trace, stalls: pd.DataFrame) -> pd.Series:
    """Order that each stall is for, by the task's last event that names one."""
    orders = pd.Series(pd.NA, index=stalls.index, dtype="Int64")
    sources = {RECLAIM: tp.DIRECT_RECLAIM_BEGIN, COMPACTION: tp.TRY_TO_COMPACT_PAGES}
    for cause, name in sources.items():
        events = trace.tables.get(name)
        if events is None or "order" not in events:
            continue
        named = pd.DataFrame({key: np.asarray(events[key]) for key in ("pid", "time_ns", "order")})
        for pid, own in named.sort_values("time_ns", kind="stable").groupby("pid"):
            rows = stalls.index[(stalls["cause"] == cause) & (stalls["pid"] == pid)]
            begins = stalls.loc[rows, "begin_ns"].to_numpy()
            place = np.searchsorted(own["time_ns"].to_numpy(), begins, "right") - 1
            known = place >= 0
            orders[rows[known]] = own["order"].to_numpy()[place[known]]
    return orders
