"""How far time-valued results at zone->lock depend on what work costs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd

from pagealloc_model.policy.lock_costs import SPREAD
from pagealloc_model.predicted.locks.lock_timing import LockModel, LockTimes, queued
from pagealloc_model.predicted.locks.lock_visits import NO_VISITS
from pagealloc_model.recording.machine import Machine


def with_spread(
    log: np.ndarray,
    machine: Machine,
    model: LockModel | None = None,
    visits: np.ndarray = NO_VISITS,
) -> pd.DataFrame:
    """Time-valued results for the given costs, and for costs tenfold apart around them.

    Args:
        log: every hold of zone->lock, as a replay or a scenario's run has it.
        machine: where.
        model: costs and rules of the queue.
        visits: `lock_visits.VISIT` records: what else tries the locks of lists.

    Returns:
        result, low, value, high, unit; the order of low and high is that of the costs.
    """
    model = model or LockModel()
    columns = {
        name: _time_values(
            queued(log, machine, replace(model, costs=model.costs.times(factor)), visits)
        )
        for name, factor in (("low", 1 / SPREAD), ("value", 1.0), ("high", SPREAD))
    }
    frame = pd.DataFrame(columns)
    frame.index.name = "result"
    return frame.reset_index()


def _time_values(times: LockTimes) -> dict[str, float]:
    frame = times.acquisitions
    if not len(frame):
        return {}
    values = {
        "contended acquisitions": float((frame["ahead"] > 0).sum()),
        "time waiting (ms)": float(frame["wait_ns"].sum()) / 1e6,
        "trylocks failed": float(times.trylocks[["frees", "allocations"]].sum().sum()),
        "longest wait (us)": times.longest_starvation_ns / 1e3,
        "longest spell of waits and holds (us)": float(times.stalls["longest_spell_ns"].max())
        / 1e3,
    }
    for row in times.by_site.itertuples():
        caller = f"{row.site} {row.cause}".strip()
        values[f"longest hold, {caller} (us)"] = row.max_hold_ns / 1e3
        values[f"longest wait, {caller} (us)"] = row.max_wait_ns / 1e3
    for zone, share in times.utilisation.items():
        values[f"lock of {zone} held (% of time)"] = 100 * float(share)
    return values
