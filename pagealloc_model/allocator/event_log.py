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
def new_row(m: at.Arrays, kind: int, zone: int, cpu: int, order: int, migratetype: int) -> int:
    """Begin a row of the log with what all kinds have, the rest 0; returns its number or -1."""
    row = m.st[at.LOG_ROWS]
    if row >= m.log.shape[0]:
        m.st[at.LOG_DROPPED] += 1
        return -1
    entry = m.log[row]
    entry["kind"] = kind
    entry["time_ns"] = m.st[at.NOW]
    entry["zone"] = zone
    entry["cpu"] = cpu
    entry["order"] = order
    entry["migratetype"] = migratetype
    entry["pfn"] = 0
    entry["fallback_order"] = 0
    entry["fallback_migratetype"] = 0
    entry["change_ownership"] = 0
    entry["takes_lock"] = 0
    entry["ran_on"] = 0
    entry["objects"] = 0
    entry["pages"] = 0
    entry["splits"] = 0
    entry["merges"] = 0
    entry["inserts"] = 0
    entry["scanned"] = 0
    m.st[at.LOG_ROWS] = row + 1
    return row


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
    row = new_row(m, site, zone, cpu, order, migratetype)
    if row >= 0:
        hold = m.log[row]
        hold["ran_on"] = m.st[at.EVENT_CPU]
        hold["objects"] = objects
        hold["pages"] = page_count
        hold["splits"] = m.st[at.WORK_SPLITS]
        hold["merges"] = m.st[at.WORK_MERGES]
        hold["inserts"] = m.st[at.WORK_INSERTS]
        hold["scanned"] = m.st[at.WORK_SCANNED]
    forget_work(m)


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
) -> int:
    """Log one page that moved under zone->lock, as in T4 or T5; returns the row, -1 if none."""
    if not m.st[at.LOG_PAGES]:
        return -1
    row = new_row(m, kind, zone, m.st[at.EVENT_CPU], order, migratetype)
    if row >= 0:
        m.log[row]["pfn"] = pfn
    return row


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
    row = log_page(m, at.LOG_EXTFRAG, zone, pfn, order, migratetype)
    if row >= 0:
        page = m.log[row]
        page["fallback_order"] = fallback_order
        page["fallback_migratetype"] = fallback_type
        page["change_ownership"] = owned


@inner
def log_list_free(m: at.Arrays, zone: int, list_cpu: int, order: int, is_taken: bool) -> None:
    """Log a free to a CPU's lists where blocks are owned, and whether it took their pcp->lock."""
    row = new_row(m, at.LOG_LIST_FREE, zone, list_cpu, order, 0)
    if row >= 0:
        m.log[row]["ran_on"] = m.st[at.EVENT_CPU]
        m.log[row]["takes_lock"] = is_taken
