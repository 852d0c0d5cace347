"""States by the load's own progress, the share of its requests served: both sides alike."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from pagealloc_model.numbers.values import States, Window
from pagealloc_model.recording.trace.columns import Event

if TYPE_CHECKING:
    from pagealloc_model.recording.recording import Recording

PLACES = 100
"""Places of equal distance in a load's progress at which sides are compared."""
MISSED = "missed instants"
"""Name of the share of instants that a run's reader missed, among the run's numbers."""
TOLD_FROM = 0.2
"""Such a share from which on a run is named."""


def served_at(recording: Recording) -> np.ndarray:
    """When the recorded requests were served, int64, ns, ascending."""
    trace = recording.trace
    return np.asarray(trace.time_ns[(trace.event == Event.ALLOC) & (trace.pfn >= 0)])


def at_progress(states: States, window: Window, served_ns: np.ndarray) -> States:
    """States at `PLACES` places of a load's progress, straight between those around each.

    A reader that load starves has most of its instants where the load rests: their mean is of the
    rests. The states used are those inside the window, the last before and the first after it.

    Args:
        states: of snapshots, or of a replay's samples at such.
        window: first and last event, ns.
        served_ns: when requests were served, int64, ascending; none: progress is time.
    """
    time_ns = states.time_ns
    inside = (time_ns >= window[0]) & (time_ns <= window[1])
    before, after = np.flatnonzero(time_ns < window[0]), np.flatnonzero(time_ns > window[1])
    inside[before[-1:]] = inside[after[:1]] = True
    known = states.at(time_ns[inside])
    served = served_ns if len(served_ns) else np.linspace(*window, PLACES + 1)
    progress = np.searchsorted(served, known.time_ns, "right") / len(served)
    places = (np.arange(PLACES) + 0.5) / PLACES

    def between(part: np.ndarray) -> np.ndarray:
        flat = part.reshape(len(part), -1).astype(float)
        told = ~np.isnan(flat).any(axis=1)
        if not told.any():
            return np.full((PLACES, *part.shape[1:]), np.nan)
        columns = [np.interp(places, progress[told], column) for column in flat[told].T]
        return np.stack(columns, axis=1).reshape(PLACES, *part.shape[1:])

    parts = [between(part) for name, part in vars(known).items() if name != "time_ns"]
    return States(np.interp(places, progress, known.time_ns).astype(np.int64), *parts)


def missed_instants(recording: Recording) -> float:
    """Share of its instants that the reader of state files missed; NaN where no interval is known.

    One is missed if no snapshot was read within its interval, from when the command began.
    """
    meta = recording.meta
    begin_ns, end_ns, interval_s = (meta.get(name) for name in ("start_ns", "end_ns", "interval_s"))
    if not (begin_ns and end_ns and interval_s):
        return float("nan")
    interval_ns = interval_s * 1e9
    wanted = int((end_ns - begin_ns) // interval_ns) + 1
    times = np.array([each.time_ns for each in recording.snapshots])
    cells = np.unique((times[times >= begin_ns] - begin_ns) // interval_ns)
    return 1 - int((cells < wanted).sum()) / wanted
