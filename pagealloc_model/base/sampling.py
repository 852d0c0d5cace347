"""The instants at which predicted and measured tables are taken."""

from __future__ import annotations

import numpy as np

BINS_WANTED = 200
_STEPS = (1, 2, 5)


def bin_width_ns(span_ns: int) -> int:
    """Width of the regular grid's bins, 1, 2 or 5 times a power of ten: about BINS_WANTED fit."""
    smallest = max(span_ns // BINS_WANTED, 1)
    power = 1
    while True:
        for step in _STEPS:
            if step * power >= smallest:
                return step * power
        power *= 10


def bin_edges(start_ns: int, end_ns: int) -> np.ndarray:
    """int64 edges of the bins that cover [start_ns, end_ns]; the first edge is start_ns."""
    width = bin_width_ns(end_ns - start_ns)
    count = (end_ns - start_ns) // width + 1
    return start_ns + width * np.arange(count + 1, dtype=np.int64)
