"""When the vmstat ticks of each CPU came: no event shows them, but what they do is seen (S4.8)."""

from __future__ import annotations

import numpy as np

from pagealloc_model.allocator.choices import recorded_steps as rec
from pagealloc_model.recording.trace.columns import Trace

PERIOD_NS = 1_000_000_000
OPEN_NS = 40_000_000
"""A tick may come this much before or after its time: workers wait for their turn."""


def tick_phases(trace: Trace, steps: np.ndarray) -> dict[int, int]:
    """Nanoseconds after the first event, modulo the period, at which each CPU's ticks come.

    Pages that a worker drains without having freed any show a tick.

    Args:
        trace: the recording's events.
        steps: in time order.

    Returns:
        Phases by CPU; a CPU for which nothing tells is left out.
    """
    flags = steps["flags"]
    decays = (steps["operation"] == rec.DRAIN) & (flags & rec.RUN_FIRST != 0)
    decays &= (flags & rec.KWORKER != 0) & (flags & rec.AFTER_PUSH == 0)
    found = steps[decays]
    since = trace.time_ns[found["row"]] - trace.demand_span_ns[0]
    return {int(cpu): _circular_mean(since[found["cpu"] == cpu]) for cpu in np.unique(found["cpu"])}


def _circular_mean(times: np.ndarray) -> int:
    angles = times % PERIOD_NS * (2 * np.pi / PERIOD_NS)
    mean = np.arctan2(np.sin(angles).mean(), np.cos(angles).mean()) % (2 * np.pi)
    return round(mean * PERIOD_NS / (2 * np.pi))


def tick_steps(trace: Trace, phases: dict[int, int], nr_cpus: int) -> np.ndarray:
    """TICK_OPENS and TICK_OVER steps around every tick; `row` is the row they come before.

    Where a CPU's phase is unknown, its tick may come at any time of each period.
    """
    first, last = trace.demand_span_ns
    parts = []
    for cpu in range(nr_cpus):
        known = cpu in phases
        opens = np.arange(first + phases.get(cpu, 0), last, PERIOD_NS)
        before, after = (OPEN_NS, OPEN_NS) if known else (0, PERIOD_NS - 1)
        for operation, times in ((rec.TICK_OVER, opens + after), (rec.TICK_OPENS, opens - before)):
            steps = np.zeros(len(times), rec.STEP)
            steps["row"] = np.searchsorted(trace.time_ns, times)
            steps["cpu"] = cpu
            steps["operation"] = operation
            parts.append(steps)
    return np.concatenate(parts)
