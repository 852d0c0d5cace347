"""When the vmstat ticks of each CPU came: no event shows them, but what they do is seen (S4.8)."""

from __future__ import annotations

import numpy as np

from pagealloc_model.allocator import recorded_steps as rec
from pagealloc_model.allocator.tick_search import count_misfits
from pagealloc_model.trace.columns import Trace

PERIOD_NS = 1_000_000_000
CANDIDATES = 25
OPEN_NS = 40_000_000
"""A tick may come this much before or after its time: workers wait for their turn."""


def tick_phases(trace: Trace, steps: np.ndarray, st: np.ndarray, nr_cpus: int) -> dict[int, int]:
    """Nanoseconds after the first event, modulo the period, at which each CPU's ticks come.

    Pages that a worker drains without having freed any show a tick. Where a CPU has none, the
    phase is taken under which later snapshots' `high` are best explained.

    Args:
        trace: the recording's events.
        steps: in time order, with the snapshots' steps.
        st: a state's words with notes behind them; not changed.
        nr_cpus: CPUs.

    Returns:
        Phases by CPU; a CPU for which nothing tells is left out.
    """
    phases = _seen_phases(trace, steps)
    if len(phases) < nr_cpus and (steps["operation"] == rec.SNAPSHOT).any():
        phases = _fitted_phases(trace, steps, st, nr_cpus) | phases
    return phases


def _seen_phases(trace: Trace, steps: np.ndarray) -> dict[int, int]:
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


def _fitted_phases(trace: Trace, steps: np.ndarray, st: np.ndarray, nr_cpus: int) -> dict[int, int]:
    candidates = np.arange(CANDIDATES) * (PERIOD_NS // CANDIDATES)
    misfits = np.zeros((CANDIDATES, nr_cpus), np.int64)
    for index, phase in enumerate(candidates):
        phases = dict.fromkeys(range(nr_cpus), int(phase))
        rows, cpus, _ = _tick_rows(trace, phases)
        numbers = np.searchsorted(steps["row"], rows)
        ticks = np.stack([numbers, cpus], axis=1).astype(np.int64)
        count_misfits(st.copy(), steps, ticks, misfits[index])
    phases = {}
    for cpu in range(nr_cpus):
        best = misfits[:, cpu].min()
        if best < misfits[:, cpu].max():
            phases[cpu] = _circular_mean(candidates[misfits[:, cpu] == best])
    return phases


def _tick_rows(
    trace: Trace, phases: dict[int, int], shift_ns: int = 0
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows before which ticks fall, their CPUs and times, in order of time."""
    first, last = trace.demand_span_ns
    times, cpus = [], []
    for cpu, phase in phases.items():
        ticks = np.arange(first + phase, last, PERIOD_NS) + shift_ns
        times.append(ticks)
        cpus.append(np.full(len(ticks), cpu))
    if not times:
        empty = np.zeros(0, np.int64)
        return empty, empty, empty
    when, whose = np.concatenate(times), np.concatenate(cpus)
    order = np.argsort(when, kind="stable")
    return np.searchsorted(trace.time_ns, when[order]), whose[order], when[order]


def tick_steps(trace: Trace, phases: dict[int, int]) -> np.ndarray:
    """TICK_OPENS and TICK_OVER steps around every tick; `row` is the row they come before."""
    parts = []
    for operation, shift_ns in ((rec.TICK_OPENS, -OPEN_NS), (rec.TICK_OVER, OPEN_NS)):
        rows, cpus, _ = _tick_rows(trace, phases, shift_ns)
        steps = np.zeros(len(rows), rec.STEP)
        steps["row"] = rows
        steps["cpu"] = cpus
        steps["operation"] = operation
        parts.append(steps)
    return np.concatenate(parts)
