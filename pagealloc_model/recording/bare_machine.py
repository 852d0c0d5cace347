"""A machine for recordings that hold events alone: what x86-64 with 4 KiB pages always has."""

from __future__ import annotations

import numpy as np

from pagealloc_model.base.errors import UsageError
from pagealloc_model.recording.machine import Machine, Zone
from pagealloc_model.recording.made_up_machine import DMA32_END
from pagealloc_model.recording.trace.columns import Trace

MAX_ORDER = 10
"""Zones are taken to end where the largest buddy may."""


def bare_machine(trace: Trace) -> Machine:
    """Zones by address, CPUs as they occur; watermarks and limits of per-CPU lists unknown.

    Args:
        trace: the recording's events.

    Raises:
        UsageError: no event has a page.
    """
    known = trace.pfn >= 0
    if not known.any():
        raise UsageError(f"{trace.source}: no event names a page")
    last = int((trace.pfn[known] + (np.int64(1) << trace.order[known].astype(np.int64))).max())
    end = -(-last >> MAX_ORDER) << MAX_ORDER
    bounds = {"DMA32": (0, min(end, DMA32_END)), "Normal": (DMA32_END, end)}
    zones = [
        Zone(
            name=name,
            start_pfn=first,
            spanned=last - first,
            present=last - first,
            managed=last - first,
            min=0,
            low=0,
            high=0,
        )
        for name, (first, last) in bounds.items()
        if last > first
    ]
    return Machine(zones=tuple(zones), nr_cpus=max(int(trace.cpu.max()) + 1, trace.nr_cpus))
