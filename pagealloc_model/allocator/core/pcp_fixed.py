"""Per-CPU lists of a fixed length, whose drains double while pages are freed in a row (S4.6)."""

from __future__ import annotations

import numpy as np

from pagealloc_model.allocator.core import layout as at
from pagealloc_model.allocator.core.arithmetic import clamp
from pagealloc_model.allocator.core.offsets import zone_at
from pagealloc_model.base.jit import inner


@inner
def overflow_of_fixed(st: np.ndarray, pcp: int, zone: int, order: int) -> int:
    """Count a page just pushed; pages to return, -1 without overflow (S4.6)."""
    count = st[pcp + at.PCP_COUNT] + (1 << order)
    st[pcp + at.PCP_COUNT] = count
    base = st[pcp + at.PCP_BATCH]
    factor = st[pcp + at.PCP_FREE_FACTOR]
    if factor > 0 and 0 < order <= st[at.COSTLY_ORDER]:
        return count
    limit = st[pcp + at.PCP_HIGH]
    if st[zone_at(zone) + at.ZONE_RECLAIM_ACTIVE]:
        limit = min(base << 2, limit)
    if count < limit:
        return -1
    if limit < base:
        return 1
    most = limit - base
    wanted = base << factor
    if wanted < most and factor < st[at.BATCH_SCALE_MAX]:
        st[pcp + at.PCP_FREE_FACTOR] = factor + 1
    return clamp(wanted, base, most)
