"""Intervals of loss where only the times of the loss records are known, not their place."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from pagealloc_model.recording.trace.columns import Losses

_CONTEXTS = 4
"""Task, softirq, hardirq and NMI: what can be under way at once on a CPU."""
_BACK = _CONTEXTS + 1


def losses_by_time(
    records: Iterable[tuple[int, int, int]], time_ns: np.ndarray, cpu: np.ndarray
) -> Losses:
    """Each loss starts five events of its CPU before its record.

    The kernel writes the record in front of the first event that has room again, and has taken
    that event's time a moment before the record's. The same holds for an event of each context
    that this one interrupted. The fifth is before the gap for certain.

    Args:
        records: (cpu, time in ns, events lost) of each loss record.
        time_ns: times of the main events, ascending.
        cpu: their CPUs.
    """
    rows = sorted(records, key=lambda record: record[1])
    times_of = {number: time_ns[cpu == number] for number in {row[0] for row in rows}}
    starts = []
    for number, end_ns, _ in rows:
        before = int(np.searchsorted(times_of[number], end_ns, "right"))
        first_ns = int(time_ns[0]) if len(time_ns) else end_ns
        start_ns = int(times_of[number][before - _BACK]) if before >= _BACK else first_ns
        starts.append(min(start_ns, end_ns))
    return Losses(
        cpu=np.array([row[0] for row in rows], np.int16),
        start_ns=np.array(starts, np.int64),
        end_ns=np.array([row[1] for row in rows], np.int64),
        count=np.array([row[2] for row in rows], np.int64),
        event=("",) * len(rows),
    )
