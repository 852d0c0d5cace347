"""Events that perf sampled (`-c`, `-F`): what they can tell; all else is refused."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from pagealloc_model.base.errors import UsageError
from pagealloc_model.recording.trace.columns import EVENT_NAMES, Event, Trace

if TYPE_CHECKING:
    import pandas as pd

COMPLETE = "record every event with perf record -c 1, or with pagealloc record"
ORDER_COLUMNS = ["event", "order", "migratetype", "samples", "events", "events_per_s", "error"]


def sampled_words(trace: Trace) -> str:
    """The events that were sampled, and their rates."""
    return "; ".join(
        f"{name}: one of {period}" if period else f"{name}: by frequency, shares alone can be told"
        for name, period in trace.sampled.items()
    )


def refuse_sampled(trace: Trace) -> None:
    """Refuse what needs every event with a UsageError if page-allocator events were sampled."""
    if trace.sampled:
        raise UsageError(
            f"{trace.source}: {', '.join(trace.sampled)}: sampled, so that pages cannot be "
            f"followed; pagealloc info and stacks say what can be had; {COMPLETE}"
        )


def sampled_rates(trace: Trace) -> pd.DataFrame:
    """Rates at which pages were asked for and freed, by order and type, scaled by the period.

    Args:
        trace: with events that were sampled, one of so many; the others count as they are.

    Returns:
        event, order (-1 where the event has none), migratetype (number, -1 where the event has
        none), samples, events (samples times the period; NaN where the period varies),
        events_per_s, error (of `events`, one standard deviation of samples taken at random).
        perf counts each CPU's events apart, so that up to a period of each CPU is missing.
    """
    import pandas as pd

    first, last = trace.span_ns
    seconds = max((last - first) / 1e9, 1e-9)
    rows = []
    for name, event in EVENT_NAMES.items():
        chosen = trace.event == event
        period = trace.sampled.get(name, 1) or np.nan
        orders = trace.order[chosen].astype(np.int64)
        if event is Event.FREE_BATCHED:
            orders[:] = -1
        pairs = np.stack([orders, trace.migratetype[chosen].astype(np.int64)], axis=1)
        kinds, counts = np.unique(pairs, axis=0, return_counts=True)
        for (order, migratetype), samples in zip(kinds.tolist(), counts.tolist(), strict=True):
            error = 0.0 if period == 1 else period * samples**0.5
            events = samples * period
            rows.append((name, order, migratetype, samples, events, events / seconds, error))
    return pd.DataFrame(rows, columns=ORDER_COLUMNS)
