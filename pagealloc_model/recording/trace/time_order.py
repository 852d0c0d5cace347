"""The time order of rows that lie nearly in order, found in bounded memory."""

from __future__ import annotations

import numpy as np

from pagealloc_model.base.column_space import NewArray, in_memory

_BLOCK = 1 << 18


def time_order(
    time_ns: np.ndarray, new_array: NewArray = in_memory, block: int = _BLOCK
) -> np.ndarray | None:
    """Row numbers in time order, ties in file order, int64; None if the rows are in order.

    perf reads one CPU's buffer after the other, round by round, so a row is out of place by two
    rounds at most. Rows are held back only until no later row can precede them, whatever the
    rounds were; what is held back bounds the memory used.

    Args:
        time_ns: int64, times in file order.
        new_array: makes the result.
        block: rows looked at together.
    """
    least, in_order = _block_minima(time_ns, block)
    if in_order:
        return None
    least_later = np.append(np.minimum.accumulate(least[::-1])[::-1][1:], np.iinfo(np.int64).max)
    order = new_array(len(time_ns), np.int64)
    held = np.zeros(0, np.int64)
    begin = filled = 0
    while begin < len(least):
        # As many new rows as are held back, so that each row is sorted a few times only.
        end = min(begin + max(len(held) // block, 1), len(least))
        new = np.arange(begin * block, min(end * block, len(time_ns)), dtype=np.int64)
        held = np.concatenate([held, new])
        times = time_ns[held]
        by_time = np.argsort(times, kind="stable")
        certain = int(np.searchsorted(times[by_time], least_later[end - 1], "right"))
        order[filled : filled + certain] = held[by_time[:certain]]
        filled += certain
        held = held[by_time[certain:]]
        begin = end
    return order


def _block_minima(time_ns: np.ndarray, block: int) -> tuple[np.ndarray, bool]:
    """The least time of each block, and whether all times ascend."""
    least = []
    in_order = True
    for start in range(0, len(time_ns), block):
        times = time_ns[start : start + block + 1]
        in_order = in_order and bool(np.all(times[1:] >= times[:-1]))
        least.append(times[:block].min())
    return np.array(least, np.int64), in_order
