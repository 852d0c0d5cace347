"""Spinlocks that are waited for, as the tracepoints of contention show them (T8)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from pagealloc_model.recording.trace import tracepoints as tp

if TYPE_CHECKING:
    from pagealloc_model.recording.trace.columns import Trace

SPIN = 1
"""Bit of `flags` that spinlocks set."""


def has_paravirtual_spinlocks(trace: Trace) -> bool:
    """True if contended spinlocks show although no more than two CPUs can contend (T8).

    Native ones show from the second waiter on, so larger machines leave this open: False.
    """
    begins = trace.tables.get(tp.CONTENTION_BEGIN)
    cpus = trace.nr_cpus or int(trace.cpu.max(initial=0)) + 1
    return begins is not None and cpus <= 2 and bool((np.asarray(begins["flags"]) & SPIN).any())
