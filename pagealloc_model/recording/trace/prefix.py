"""The part of a Trace up to an instant, for recordings whose end is not whole."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from pagealloc_model.recording.trace.columns import COLUMN_TYPES, Losses, Trace


def events_until(trace: Trace, last_ns: int, note: str) -> Trace:
    """A trace without the events after an instant.

    Args:
        trace: the trace.
        last_ns: time of the last event to keep.
        note: why, for `notes`.
    """
    rows = int(np.searchsorted(trace.time_ns, last_ns, "right"))
    tables = {}
    for name, table in trace.tables.items():
        kept = int(np.searchsorted(table["time_ns"], last_ns, "right"))
        if kept:
            tables[name] = {column: values[:kept] for column, values in table.items()}
    return replace(
        trace,
        **{name: getattr(trace, name)[:rows] for name in COLUMN_TYPES},
        tables=tables,
        losses=_losses_until(trace.losses, last_ns),
        notes=(*trace.notes, note),
    )


def _losses_until(losses: Losses, last_ns: int) -> Losses:
    """Those that began by then, with all they lost: when within them is not known."""
    kept = np.flatnonzero(losses.start_ns <= last_ns)
    return Losses(
        cpu=losses.cpu[kept],
        start_ns=losses.start_ns[kept],
        end_ns=np.minimum(losses.end_ns[kept], last_ns),
        count=losses.count[kept],
        event=tuple(losses.event[index] for index in kept.tolist()),
    )
