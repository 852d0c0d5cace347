"""Of a trace, the events around drains and fallbacks: all that rules without kprobes rest on."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from pagealloc_model.base.jit import entry
from pagealloc_model.measured.by_cpu import CPUS
from pagealloc_model.measured.evidence.highatomic_calls import RESERVE_PROBE
from pagealloc_model.measured.stream import PROBE_EVENTS, Stream, allocator_stream
from pagealloc_model.recording.trace.columns import COLUMN_TYPES, Trace

FREE, FREE_BATCHED, PCPU_DRAIN, EXTFRAG = 1, 2, 4, 5
"""Values of `Event`."""


def evidence_stream(trace: Trace) -> Stream:
    """Return the events by CPU and time that tell a kernel's rules.

    Where kprobes were recorded these are all. Else they are the drains and the fallbacks, what
    stands on their CPU before the first of several drains and after a fallback, and the last free
    before a drain: events that are neighbours here are neighbours in the whole stream, too.

    Args:
        trace: the recording's events.
    """
    if trace.tables.keys() & {*PROBE_EVENTS, RESERVE_PROBE}:
        return allocator_stream(trace, with_probes=True)
    is_wanted = np.zeros(len(trace), bool)
    mark_drains_and_fallbacks(
        trace.event, trace.cpu, is_wanted, np.full(CPUS, -1), np.full(CPUS, -1)
    )
    rows = np.flatnonzero(is_wanted)
    columns = {name: getattr(trace, name)[rows] for name in COLUMN_TYPES}
    return allocator_stream(replace(trace, **columns, tables={}), with_probes=False)


@entry
def mark_drains_and_fallbacks(
    event: np.ndarray,
    cpu: np.ndarray,
    is_wanted: np.ndarray,
    last: np.ndarray,
    last_free: np.ndarray,
) -> None:
    """Mark drains, fallbacks, and the events beside them that say what they are.

    Args:
        event: uint8, the trace's.
        cpu: int16, the trace's.
        is_wanted: bool, False, as long: set.
        last: int64, `CPUS` long, filled with -1: working space.
        last_free: likewise.
    """
    for row in range(len(event)):
        here = int(cpu[row]) & (CPUS - 1)
        before = last[here]
        last[here] = row
        kind = event[row]
        if kind == PCPU_DRAIN:
            is_wanted[row] = True
            if before >= 0 and event[before] != PCPU_DRAIN:
                is_wanted[before] = True
                if last_free[here] >= 0:
                    is_wanted[last_free[here]] = True
        elif kind in (FREE, FREE_BATCHED):
            last_free[here] = row
        if kind == EXTFRAG or (before >= 0 and event[before] == EXTFRAG):
            is_wanted[row] = True
