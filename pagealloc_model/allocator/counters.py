"""A zone's free-page counters, exact or lagging behind what each CPU has not passed on (S1.10)."""

from __future__ import annotations

import numpy as np

from pagealloc_model.allocator import layout as at
from pagealloc_model.allocator.offsets import pcp_at, zone_at
from pagealloc_model.jit import inner

QUIET_TICKS = 3
"""Ticks without a change after which a remote list's pages are returned (S4.8)."""


@inner
def count_free(st: np.ndarray, zone: int, migratetype: int, change: int) -> None:
    """Count pages that entered (or, negative, left) the buddy, isolated ones excepted (S5.3)."""
    if migratetype == st[at.ISOLATE]:
        return
    region = zone_at(zone)
    st[region + at.ZONE_FREE] += change
    if migratetype == at.HIGHATOMIC:
        st[region + at.ZONE_FREE_HIGHATOMIC] += change
    elif migratetype == st[at.CMA]:
        st[region + at.ZONE_FREE_CMA] += change


@inner
def account_free(st: np.ndarray, zone: int, migratetype: int, change: int) -> None:
    """`count_free` by the event's CPU, which may pass the change on later."""
    count_free(st, zone, migratetype, change)
    if st[at.COUNTS_BY_CPU] and migratetype != st[at.ISOLATE]:
        pcp = pcp_at(st, zone, st[at.EVENT_CPU])
        st[pcp + at.PCP_TOUCHED] = 1
        region = zone_at(zone)
        hold_back(st, region, at.ZONE_FREE_UNFOLDED, pcp + at.PCP_FREE_DELTA, change)
        if migratetype == st[at.CMA]:
            hold_back(st, region, at.ZONE_FREE_CMA_UNFOLDED, pcp + at.PCP_FREE_CMA_DELTA, change)


@inner
def account_taken(st: np.ndarray, zone: int, migratetype: int, taken: int) -> None:
    """Count pages taken from the buddy, or leave NR_FREE to the end of the refill (S1.10)."""
    if not st[at.REFILLING]:
        account_free(st, zone, migratetype, -taken)
        return
    count_free(st, zone, migratetype, -taken)
    region = zone_at(zone)
    st[region + at.ZONE_FREE_UNFOLDED] -= taken
    if st[at.COUNTS_BY_CPU] and migratetype == st[at.CMA]:
        delta = pcp_at(st, zone, st[at.EVENT_CPU]) + at.PCP_FREE_CMA_DELTA
        hold_back(st, region, at.ZONE_FREE_CMA_UNFOLDED, delta, -taken)


@inner
def begin_refill(st: np.ndarray) -> None:
    """Kernels whose lists are loose count a refill as a whole (S1.10)."""
    st[at.REFILLING] = not st[at.LISTS_MATCH_BLOCKS]


@inner
def end_refill(st: np.ndarray, zone: int, taken: int) -> None:
    """Count the pages that a refill took, if that was left to its end.

    Even none is an update: it passes a delta on that has come to exceed the threshold.
    """
    if not st[at.REFILLING]:
        return
    st[at.REFILLING] = 0
    region = zone_at(zone)
    st[region + at.ZONE_FREE_UNFOLDED] += taken
    if st[at.COUNTS_BY_CPU]:
        pcp = pcp_at(st, zone, st[at.EVENT_CPU])
        if taken > 0:
            st[pcp + at.PCP_TOUCHED] = 1
        hold_back(st, region, at.ZONE_FREE_UNFOLDED, pcp + at.PCP_FREE_DELTA, -taken)


@inner
def account_move(st: np.ndarray, zone: int, old_type: int, new_type: int, moved: int) -> None:
    """Count free pages that change lists; kernels whose lists are loose count nothing (S6.5)."""
    if st[at.LISTS_MATCH_BLOCKS]:
        account_free(st, zone, old_type, -moved)
        account_free(st, zone, new_type, moved)
    else:
        recount_highatomic(st, zone, old_type, new_type, moved)


@inner
def recount_highatomic(st: np.ndarray, zone: int, old_type: int, new_type: int, moved: int) -> None:
    """Keep count of the pages on HIGHATOMIC lists where the kernel has no such counter."""
    region = zone_at(zone)
    if old_type == at.HIGHATOMIC:
        st[region + at.ZONE_FREE_HIGHATOMIC] -= moved
    if new_type == at.HIGHATOMIC:
        st[region + at.ZONE_FREE_HIGHATOMIC] += moved


@inner
def hold_back(st: np.ndarray, region: int, unfolded: int, delta: int, change: int) -> None:
    """Add a change to a CPU's delta and pass that on once it exceeds the zone's threshold."""
    held = st[delta] + change
    if abs(held) > st[region + at.ZONE_THRESHOLD]:
        held = 0
    st[region + unfolded] += held - st[delta]
    st[delta] = held


@inner
def fold_counters(st: np.ndarray, zone: int, cpu: int) -> None:
    """Pass a CPU's deltas of a zone on, as its tick does; a change postpones expiry (S4.8)."""
    region = zone_at(zone)
    pcp = pcp_at(st, zone, cpu)
    st[region + at.ZONE_FREE_UNFOLDED] -= st[pcp + at.PCP_FREE_DELTA]
    st[region + at.ZONE_FREE_CMA_UNFOLDED] -= st[pcp + at.PCP_FREE_CMA_DELTA]
    st[pcp + at.PCP_FREE_DELTA] = 0
    st[pcp + at.PCP_FREE_CMA_DELTA] = 0
    if st[pcp + at.PCP_TOUCHED]:
        st[pcp + at.PCP_TOUCHED] = 0
        st[pcp + at.PCP_EXPIRE] = QUIET_TICKS


@inner
def seen_free(st: np.ndarray, zone: int) -> int:
    """Free pages of a zone as watermark tests read them."""
    region = zone_at(zone)
    return max(st[region + at.ZONE_FREE] - st[region + at.ZONE_FREE_UNFOLDED], 0)


@inner
def seen_free_cma(st: np.ndarray, zone: int) -> int:
    """Free pages in CMA blocks of a zone as watermark tests read them."""
    region = zone_at(zone)
    return max(st[region + at.ZONE_FREE_CMA] - st[region + at.ZONE_FREE_CMA_UNFOLDED], 0)


@inner
def carefully_seen_free(st: np.ndarray, zone: int) -> int:
    """Free pages as kswapd reads them: exactly, where the lag could hide a shortage (S1.10)."""
    seen = seen_free(st, zone)
    region = zone_at(zone)
    if seen < st[region + at.ZONE_DRIFT_MARK]:
        return st[region + at.ZONE_FREE]
    return seen
