"""When each CPU's vmstat tick ran, as recorded: the times at which per-CPU lists decay (S4.8).

They are demand: when work runs on a CPU, not what it finds there. A tick is re-armed only while the
CPU's counters change, so under another policy an idle CPU might tick once more or less.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from pagealloc_model.allocator.core import layout as at
from pagealloc_model.recording.machine import Machine
from pagealloc_model.recording.trace.columns import Trace

TICK_EVENT = "workqueue:workqueue_execute_start"
TICK_FILTER = "function == vmstat_update"
"""As `pagealloc record` spells perf's filter in meta.json."""


def recorded_ticks(trace: Trace, meta: Mapping[str, object], machine: Machine) -> np.ndarray | None:
    """TICK events in time order; None if the recording has none.

    Args:
        trace: the recording's events.
        meta: meta.json: only the filter it names tells that the work is the tick's.
        machine: its CPUs.
    """
    table = trace.tables.get(TICK_EVENT)
    words = meta.get("perf")
    if table is None or not isinstance(words, list) or TICK_FILTER not in words:
        return None
    is_known = np.asarray(table["cpu"]) < machine.nr_cpus
    ticks = np.zeros(int(is_known.sum()), at.EVENT)
    ticks["time_ns"] = np.asarray(table["time_ns"])[is_known]
    ticks["cpu"] = np.asarray(table["cpu"])[is_known]
    ticks["operation"] = at.TICK
    ticks["object"] = -1
    return ticks if len(ticks) else None
