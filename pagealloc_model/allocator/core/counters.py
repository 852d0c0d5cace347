"""A zone's free-page counters, exact or lagging behind what each CPU has not passed on (S1.10)."""

from __future__ import annotations

import numpy as np

from pagealloc_model.allocator.core import layout as at
from pagealloc_model.allocator.core.offsets import pcp_at, zone_at
from pagealloc_model.base.jit import inner

QUIET_TICKS = 3
"""Ticks without a change after which a remote list's pages are returned (S4.8)."""


@inner
def count_free(st: np.ndarray, zone: int, migratetype: int, change: int) -> None:
    """Count pages of the start image, which no CPU has yet to pass on."""
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
    """Count pages that entered (or, negative, left) the buddy, isolated ones excepted (S5.3)."""
    if migratetype == st[at.ISOLATE]:
        return
    if st[at.REFILLING]:
        st[at.REFILLED] += change
    else:
        account_total(st, zone, change)
    account_part(st, zone, migratetype, change)


@inner
def account_total(st: np.ndarray, zone: int, change: int) -> None:
    """The share of a change that concerns all types, by the event's CPU.

    A change by 0 is one too: it passes on a delta that a lowered threshold no longer allows.
    """
    region = zone_at(zone)
    st[region + at.ZONE_FREE] += change
    if st[at.COUNTS_BY_CPU]:
        pcp = pcp_at(st, zone, st[at.EVENT_CPU])
        if change != 0 and st[region + at.ZONE_THRESHOLD] == 0:
            st[pcp + at.PCP_TOUCHED] = 1
        hold_back(st, region, at.ZONE_FREE_UNFOLDED, pcp + at.PCP_FREE_DELTA, change)


@inner
def account_part(st: np.ndarray, zone: int, migratetype: int, change: int) -> None:
    """The share of a change that concerns the one type that is counted apart."""
    region = zone_at(zone)
    if migratetype == at.HIGHATOMIC:
        st[region + at.ZONE_FREE_HIGHATOMIC] += change
    elif migratetype == st[at.CMA]:
        st[region + at.ZONE_FREE_CMA] += change
        if st[at.COUNTS_BY_CPU]:
            delta = pcp_at(st, zone, st[at.EVENT_CPU]) + at.PCP_FREE_CMA_DELTA
            hold_back(st, region, at.ZONE_FREE_CMA_UNFOLDED, delta, change)


@inner
def account_move(st: np.ndarray, zone: int, old_type: int, new_type: int, moved: int) -> None:
    """Count free pages that change lists.

    The total stays, but where lists match blocks it is updated twice, which may make the CPU pass
    on what it held back.
    """
    if st[at.LISTS_MATCH_BLOCKS] and st[at.COUNTS_BY_CPU]:
        region = zone_at(zone)
        delta = pcp_at(st, zone, st[at.EVENT_CPU]) + at.PCP_FREE_DELTA
        hold_back(st, region, at.ZONE_FREE_UNFOLDED, delta, -moved)
        hold_back(st, region, at.ZONE_FREE_UNFOLDED, delta, moved)
    account_part(st, zone, old_type, -moved)
    account_part(st, zone, new_type, moved)


@inner
def begin_refill(st: np.ndarray) -> None:
    """From here on pages leave the total only at the refill's end, in kernels that do so."""
    st[at.REFILLING] = st[at.REFILL_COUNTED_AT_END]
    st[at.REFILLED] = 0


@inner
def end_refill(st: np.ndarray, zone: int) -> None:
    """Count what a refill took, if that was put off."""
    if st[at.REFILLING]:
        st[at.REFILLING] = 0
        account_total(st, zone, st[at.REFILLED])


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
    """Pass a CPU's deltas of a zone on, as its tick does; a change puts off expiry (S4.8).

    Counters that do not lag leave no delta; there, any change since the last tick counts.
    """
    region = zone_at(zone)
    pcp = pcp_at(st, zone, cpu)
    free, cma = st[pcp + at.PCP_FREE_DELTA], st[pcp + at.PCP_FREE_CMA_DELTA]
    st[region + at.ZONE_FREE_UNFOLDED] -= free
    st[region + at.ZONE_FREE_CMA_UNFOLDED] -= cma
    st[pcp + at.PCP_FREE_DELTA] = 0
    st[pcp + at.PCP_FREE_CMA_DELTA] = 0
    changed = st[pcp + at.PCP_TOUCHED] != 0 or free != 0 or cma != 0
    st[pcp + at.PCP_TOUCHED] = 0
    if changed and st[at.NR_NODES] > 1:
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
