"""Tables that only an elastic replay can fill: counters under the kernel's names, outcomes."""

from __future__ import annotations

import numpy as np
import pandas as pd

from pagealloc_model.allocator.core import layout as at
from pagealloc_model.allocator.core import pressure_layout as pr
from pagealloc_model.recording.machine import Machine


def vmstat(machine: Machine, time_ns: np.ndarray, counters: np.ndarray) -> pd.DataFrame:
    """Counters since the start by name and time.

    Args:
        machine: names of zone types.
        time_ns: int64, the samples' instants.
        counters: int64, shape (samples, words).
    """
    names = [*pr.COUNTER_NAMES, *(f"allocstall_{name.lower()}" for name in machine.zone_types)]
    words = [
        *range(pr.COUNTERS, pr.COUNTERS + len(pr.COUNTER_NAMES)),
        *range(pr.ALLOCSTALL, pr.ALLOCSTALL + len(machine.zone_types)),
    ]
    return pd.DataFrame(
        {
            "name": np.tile(np.array(names, object), len(time_ns)),
            "time_ns": np.repeat(time_ns, len(names)),
            "value": pd.array(counters[:, words].ravel(), dtype="Int64"),
            "reason": "",
        }
    )


def outcomes(counters: np.ndarray) -> pd.DataFrame:
    """Requests by order: asked, served as asked, failed, and those that reclaimed or compacted.

    Args:
        counters: int64, the last sample's words.
    """
    end = pr.OUTCOMES + at.ORDERS * pr.OUTCOME_WORDS
    words = counters[pr.OUTCOMES : end].reshape(at.ORDERS, pr.OUTCOME_WORDS)
    orders = np.flatnonzero(words[:, 0])
    asked, served, stalled = words[orders].T
    frame = pd.DataFrame({"class": "all", "order": orders.astype(np.int8), "asked": asked})
    columns = {"succeeded": served, "failed": asked - served, "stalled": stalled}
    for name, values in columns.items():
        frame[name] = pd.array(values, dtype="Int64")
    frame["reason"] = ""
    return frame


def divergence(counters: np.ndarray) -> dict[str, int]:
    """What the recording and an elastic replay disagreed on; empty for a literal one.

    Args:
        counters: int64 words, none of a literal replay.
    """
    if not len(counters):
        return {}
    first = pr.DROPPED_FREES
    return {name: int(counters[first + i]) for i, name in enumerate(pr.DIVERGENCE_NAMES)}
