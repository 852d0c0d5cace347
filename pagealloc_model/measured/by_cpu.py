"""Kernels that put a trace's columns in order of CPU, and follow pages from CPU to CPU."""

from __future__ import annotations

import numpy as np

from pagealloc_model.base.jit import entry

CPUS = 1 << 16
"""What a CPU's number, an int16, can be; working space by CPU is as long."""
LOWEST_CPU = -(1 << 15)


@entry
def count_by_cpu(cpu: np.ndarray, places: np.ndarray) -> None:
    """Find where each CPU's rows begin once rows are in order of CPU.

    Args:
        cpu: int16.
        places: int64, `CPUS` long, zeros: filled, by CPU from `LOWEST_CPU` on.
    """
    for row in range(len(cpu)):
        places[int(cpu[row]) - LOWEST_CPU] += 1
    before = 0
    for each in range(CPUS):
        count = places[each]
        places[each] = before
        before += count


@entry
def scatter_by_cpu(
    cpu: np.ndarray,
    time_ns: np.ndarray,
    pid: np.ndarray,
    event: np.ndarray,
    pfn: np.ndarray,
    order: np.ndarray,
    migratetype: np.ndarray,
    percpu_refill: np.ndarray,
    places: np.ndarray,
    to_cpu: np.ndarray,
    to_time_ns: np.ndarray,
    to_pid: np.ndarray,
    to_kind: np.ndarray,
    to_pfn: np.ndarray,
    to_order: np.ndarray,
    to_migratetype: np.ndarray,
    to_percpu_refill: np.ndarray,
) -> None:
    """Copy a trace's columns in order of CPU; rows of one CPU keep theirs.

    Args:
        cpu: int16, the trace's, as are the next seven.
        time_ns: int64.
        pid: int32.
        event: uint8.
        pfn: int64.
        order: int8.
        migratetype: int8.
        percpu_refill: int8.
        places: of `count_by_cpu`; changed.
        to_cpu: int16: filled, as are all behind it.
        to_time_ns: int64.
        to_pid: int32.
        to_kind: int8, from `event`.
        to_pfn: int64.
        to_order: int8.
        to_migratetype: int8.
        to_percpu_refill: int8.
    """
    for row in range(len(cpu)):
        here = int(cpu[row]) - LOWEST_CPU
        place = places[here]
        places[here] = place + 1
        to_cpu[place] = cpu[row]
        to_time_ns[place] = time_ns[row]
        to_pid[place] = pid[row]
        to_kind[place] = event[row]
        to_pfn[place] = pfn[row]
        to_order[place] = order[row]
        to_migratetype[place] = migratetype[row]
        to_percpu_refill[place] = percpu_refill[row]


@entry
def mark_from_elsewhere(
    by_time: np.ndarray,
    cpu: np.ndarray,
    pfn: np.ndarray,
    is_drained: np.ndarray,
    first_page: int,
    last_row: np.ndarray,
    found: np.ndarray,
) -> None:
    """Mark drained pages that another CPU had freed or refilled last.

    Args:
        by_time: int64: rows in time order.
        cpu: int16, by row of a stream.
        pfn: int64, likewise.
        is_drained: bool, one for each of `by_time`: a drain, no free or refill.
        first_page: least page frame of these rows.
        last_row: int32, one for each page frame from that on, zeros: working space.
        found: bool, one for each of `by_time`, False: set.
    """
    for number in range(len(by_time)):
        row = by_time[number]
        page = pfn[row] - first_page
        before = int(last_row[page]) - 1
        last_row[page] = number + 1
        if before >= 0 and is_drained[number] and not is_drained[before]:
            found[number] = cpu[by_time[before]] != cpu[row]
