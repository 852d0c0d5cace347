"""The log a replay leaves: every zone->lock transaction and, on request, every page moved."""

from __future__ import annotations

from pagealloc_model.allocator import layout as at
from pagealloc_model.base.jit import inner


@inner
def forget_work(m: at.Arrays) -> None:
    """Begin counting the work of another hold of zone->lock."""
    for unit in range(at.WORK_UNITS):
        m.st[at.WORK + unit] = 0


@inner
def count_hold(m: at.Arrays, site: int, zone: int, cpu: int, objects: int, page_count: int) -> None:
    """Count a CPU's hold of zone->lock at a site, with its work (S11.1)."""
    region = m.st[at.PCP_BASE] + (zone * m.st[at.NR_CPUS] + cpu) * at.PCP_STRIDE
    counters = region + at.PCP_SITES + site * at.SITE_WORDS
    m.st[counters + at.SITE_ACQUISITIONS] += 1
    m.st[counters + at.SITE_OBJECTS] += objects
    m.st[counters + at.SITE_PAGES] += page_count
    for unit in range(at.WORK_UNITS):
        m.st[counters + at.SITE_WORK + unit] += m.st[at.WORK + unit]


@inner
def log_hold(
    m: at.Arrays,
    site: int,
    zone: int,
    cpu: int,
    order: int,
    migratetype: int,
    objects: int,
    page_count: int,
) -> None:
    """Log one hold of zone->lock, by its list's CPU, with its work."""
    row = m.st[at.LOG_ROWS]
    if row >= m.log.shape[0]:
        m.st[at.LOG_DROPPED] += 1
        forget_work(m)
        return
    m.log[row, 0] = site
    m.log[row, 1] = m.st[at.NOW]
    m.log[row, 2] = zone
    m.log[row, 3] = cpu
    m.log[row, 4] = order
    m.log[row, 5] = migratetype
    m.log[row, 6] = objects
    m.log[row, 7] = page_count
    for unit in range(at.WORK_UNITS):
        m.log[row, at.LOG_WORK + unit] = m.st[at.WORK + unit]
    m.log[row, at.LOG_RAN_ON] = m.st[at.EVENT_CPU]
    forget_work(m)
    m.st[at.LOG_ROWS] = row + 1


@inner
def count_transaction(
    m: at.Arrays,
    site: int,
    zone: int,
    cpu: int,
    order: int,
    migratetype: int,
    objects: int,
    page_count: int,
) -> None:
    """Count and log one hold of zone->lock by its list's CPU (S11.1)."""
    count_hold(m, site, zone, cpu, objects, page_count)
    log_hold(m, site, zone, cpu, order, migratetype, objects, page_count)


@inner
def log_page(
    m: at.Arrays,
    kind: int,
    zone: int,
    pfn: int,
    order: int,
    migratetype: int,
) -> None:
    """Log one page that moved under zone->lock, as in T4 or T5."""
    if not m.st[at.LOG_PAGES]:
        return
    row = m.st[at.LOG_ROWS]
    if row >= m.log.shape[0]:
        m.st[at.LOG_DROPPED] += 1
        return
    m.log[row, 0] = kind
    m.log[row, 1] = m.st[at.NOW]
    m.log[row, 2] = zone
    m.log[row, 3] = m.st[at.EVENT_CPU]
    m.log[row, 4] = pfn
    m.log[row, 5] = order
    m.log[row, 6] = migratetype
    for column in range(7, at.LOG_COLUMNS):
        m.log[row, column] = 0
    m.st[at.LOG_ROWS] = row + 1


@inner
def log_extfrag(
    m: at.Arrays,
    zone: int,
    pfn: int,
    order: int,
    migratetype: int,
    fallback_order: int,
    fallback_type: int,
    owned: bool,
) -> None:
    """Log a fallback to a buddy of another type, as in T6."""
    row = m.st[at.LOG_ROWS]
    log_page(m, at.LOG_EXTFRAG, zone, pfn, order, migratetype)
    if m.st[at.LOG_ROWS] > row:
        m.log[row, 7] = fallback_order
        m.log[row, 8] = fallback_type
        m.log[row, 9] = owned


@inner
def log_list_free(m: at.Arrays, zone: int, list_cpu: int, order: int, is_taken: bool) -> None:
    """Log a free to a CPU's lists where blocks are owned, and whether it took their pcp->lock."""
    row = m.st[at.LOG_ROWS]
    if row >= m.log.shape[0]:
        m.st[at.LOG_DROPPED] += 1
        return
    for column in range(at.LOG_COLUMNS):
        m.log[row, column] = 0
    m.log[row, 0] = at.LOG_LIST_FREE
    m.log[row, 1] = m.st[at.NOW]
    m.log[row, 2] = zone
    m.log[row, 3] = list_cpu
    m.log[row, 4] = order
    m.log[row, 6] = is_taken
    m.log[row, at.LOG_RAN_ON] = m.st[at.EVENT_CPU]
    m.st[at.LOG_ROWS] = row + 1
