"""The log a replay leaves: every zone->lock transaction and, on request, every page moved."""

from __future__ import annotations

import numpy as np

from pagealloc_model.allocator.core import layout as at
from pagealloc_model.base.jit import inner


@inner
def forget_work(st: np.ndarray) -> None:
    """What follows belongs to another hold of zone->lock."""
    for unit in range(at.WORK_UNITS):
        st[at.WORK + unit] = 0


@inner
def count_hold(
    st: np.ndarray, site: int, zone: int, cpu: int, objects: int, page_count: int
) -> None:
    """Count one hold of zone->lock at a site of S11.1, with the work since the last, for a CPU."""
    region = st[at.PCP_BASE] + (zone * st[at.NR_CPUS] + cpu) * at.PCP_STRIDE
    counters = region + at.PCP_SITES + site * at.SITE_WORDS
    st[counters + at.SITE_ACQUISITIONS] += 1
    st[counters + at.SITE_OBJECTS] += objects
    st[counters + at.SITE_PAGES] += page_count
    for unit in range(at.WORK_UNITS):
        st[counters + at.SITE_WORK + unit] += st[at.WORK + unit]


@inner
def log_hold(
    st: np.ndarray,
    log: np.ndarray,
    site: int,
    zone: int,
    cpu: int,
    order: int,
    migratetype: int,
    objects: int,
    page_count: int,
) -> None:
    """Log one hold of zone->lock, with the work since the last; `cpu` is that of the list."""
    row = st[at.LOG_ROWS]
    if row >= log.shape[0]:
        st[at.LOG_DROPPED] += 1
        forget_work(st)
        return
    log[row, 0] = site
    log[row, 1] = st[at.NOW]
    log[row, 2] = zone
    log[row, 3] = cpu
    log[row, 4] = order
    log[row, 5] = migratetype
    log[row, 6] = objects
    log[row, 7] = page_count
    for unit in range(at.WORK_UNITS):
        log[row, at.LOG_WORK + unit] = st[at.WORK + unit]
    log[row, at.LOG_RAN_ON] = st[at.EVENT_CPU]
    forget_work(st)
    st[at.LOG_ROWS] = row + 1


@inner
def count_transaction(
    st: np.ndarray,
    log: np.ndarray,
    site: int,
    zone: int,
    cpu: int,
    order: int,
    migratetype: int,
    objects: int,
    page_count: int,
) -> None:
    """Count one hold of zone->lock at a site of S11.1 for the CPU of its list, and log it."""
    count_hold(st, site, zone, cpu, objects, page_count)
    log_hold(st, log, site, zone, cpu, order, migratetype, objects, page_count)


@inner
def log_page(
    st: np.ndarray,
    log: np.ndarray,
    kind: int,
    zone: int,
    pfn: int,
    order: int,
    migratetype: int,
    fallback_order: int,
    fallback_type: int,
    change_ownership: int,
) -> None:
    """Log one page that moved under zone->lock, with the fields of T4, T5 or T6."""
    if not st[at.LOG_PAGES]:
        return
    row = st[at.LOG_ROWS]
    if row >= log.shape[0]:
        st[at.LOG_DROPPED] += 1
        return
    log[row, 0] = kind
    log[row, 1] = st[at.NOW]
    log[row, 2] = zone
    log[row, 3] = st[at.EVENT_CPU]
    log[row, 4] = pfn
    log[row, 5] = order
    log[row, 6] = migratetype
    log[row, 7] = fallback_order
    log[row, 8] = fallback_type
    log[row, 9] = change_ownership
    for column in range(10, at.LOG_COLUMNS):
        log[row, column] = 0
    st[at.LOG_ROWS] = row + 1
