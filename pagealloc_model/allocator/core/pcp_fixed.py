"""Per-CPU lists of a fixed length, whose drains double while pages are freed in a row (S4.6)."""

from __future__ import annotations

from pagealloc_model.allocator.core import layout as at
from pagealloc_model.allocator.core.arithmetic import clamp
from pagealloc_model.allocator.core.offsets import zone_at
from pagealloc_model.base.jit import inner


@inner
def overflow_of_fixed(m: at.MachineArrays, pcp: int, zone: int, order: int) -> int:
    """nr_pcp_high() and nr_pcp_free(): account for one freed page, `high` being fixed (S4.6).

    Returns how many pages to drain, or -1.
    """
    count = m.st[pcp + at.PCP_COUNT] + (1 << order)
    m.st[pcp + at.PCP_COUNT] = count
    base = m.st[pcp + at.PCP_BATCH]
    factor = m.st[pcp + at.PCP_FREE_FACTOR]
    if factor > 0 and 0 < order <= m.st[at.POLICY_COSTLY_ORDER]:
        return count
    limit = m.st[pcp + at.PCP_HIGH]
    if m.st[zone_at(zone) + at.ZONE_RECLAIM_ACTIVE]:
        limit = min(base << 2, limit)
    if count < limit:
        return -1
    if limit < base:
        return 1
    most = limit - base
    wanted = base << factor
    if wanted < most and factor < m.st[at.POLICY_PCP_BATCH_SCALE_MAX]:
        m.st[pcp + at.PCP_FREE_FACTOR] = factor + 1
    return clamp(wanted, base, most)
