"""When a recorded machine's vmstat workers ran: they decay per-CPU lists (S4.8)."""

from __future__ import annotations

import numpy as np

from pagealloc_model.diagnosis import true_state as rec
from pagealloc_model.recording.trace.columns import Trace

PERIOD_NS = 1_000_000_000
OPEN_NS = 40_000_000
"""A tick may come this much before or after its time: workers wait for their turn."""


def tick_phases(trace: Trace, steps: np.ndarray) -> dict[int, int]:
    """Nanoseconds after the first event, modulo the period, at which each known CPU's ticks come.

    Pages that a worker drains without having freed any show a tick.
    """
    flags = steps["flags"]
    decays = (steps["operation"] == rec.DRAIN) & (flags & rec.RUN_FIRST != 0)
    decays &= (flags & rec.KWORKER != 0) & (flags & rec.AFTER_PUSH == 0)
    since = trace.time_ns[steps["row"][decays]] - trace.demand_span_ns[0]
    angles = since % PERIOD_NS * (2 * np.pi / PERIOD_NS)
    phases = {}
    for cpu in np.unique(cpus := steps["cpu"][decays]):
        own = angles[cpus == cpu]
        mean = np.arctan2(np.sin(own).mean(), np.cos(own).mean()) % (2 * np.pi)
        phases[int(cpu)] = round(mean * PERIOD_NS / (2 * np.pi))
    return phases


def tick_steps(trace: Trace, phases: dict[int, int], nr_cpus: int) -> np.ndarray:
    """TICK_OPENS and TICK_OVER steps around every tick; `row` is the row they come before.

    Where a CPU's phase is unknown, its tick may come at any time of each period.
    """
    first, last = trace.demand_span_ns
    parts = []
    for cpu in range(nr_cpus):
        opens = np.arange(first + phases.get(cpu, 0), last, PERIOD_NS)
        before, after = (OPEN_NS, OPEN_NS) if cpu in phases else (0, PERIOD_NS - 1)
        for operation, times in ((rec.TICK_OVER, opens + after), (rec.TICK_OPENS, opens - before)):
            steps = np.zeros(len(times), rec.STEP)
            steps["row"] = np.searchsorted(trace.time_ns, times)
            steps["cpu"] = cpu
            steps["operation"] = operation
            parts.append(steps)
    return np.concatenate(parts)
