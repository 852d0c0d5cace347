"""A zone's free-page counters, exact or lagging behind what each CPU has not passed on (S1.10)."""

from __future__ import annotations

from pagealloc_model.allocator.core import layout as at
from pagealloc_model.allocator.core.offsets import pcp_at, zone_at
from pagealloc_model.base.jit import inner

QUIET_TICKS = 3
"""Ticks without a change after which a remote list's pages are returned (S4.8)."""


@inner
def count_free(m: at.MachineArrays, zone: int, migratetype: int, change: int) -> None:
    """No kernel function: count pages of the start image, which no CPU has yet to pass on."""
    if migratetype == m.st[at.ISOLATE]:
        return
    region = zone_at(zone)
    m.st[region + at.ZONE_FREE] += change
    if migratetype == at.HIGHATOMIC:
        m.st[region + at.ZONE_FREE_HIGHATOMIC] += change
    elif migratetype == m.st[at.CMA]:
        m.st[region + at.ZONE_FREE_CMA] += change


@inner
def account_freepages(m: at.MachineArrays, zone: int, migratetype: int, change: int) -> None:
    """account_freepages(): count pages that entered the buddy, or left it if negative (S5.3).

    Isolated pages do not count.
    """
    if migratetype == m.st[at.ISOLATE]:
        return
    account_total(m, zone, change)
    account_part(m, zone, migratetype, change)


@inner
def refill_counts_at_end(m: at.MachineArrays) -> bool:
    """Part of rmqueue_bulk(): return whether pages taken are counted once all are (S4.4)."""
    return m.st[at.RULE_REFILL_COUNTED_AT_END] != 0


@inner
def account_taken(m: at.MachineArrays, zone: int, migratetype: int, order: int) -> None:
    """Part of account_freepages(): count a page that a request takes from the buddy.

    Kernels that count it when zone->lock is about to be released do so in `count_at_end`.
    """
    if not refill_counts_at_end(m):
        account_total(m, zone, -(1 << order))
    account_part(m, zone, migratetype, -(1 << order))


@inner
def account_claimed(
    m: at.MachineArrays, zone: int, old_type: int, new_type: int, found_order: int, order: int
) -> None:
    """Part of try_to_claim_block(): count a buddy of whole blocks that changes its type.

    A page of the order asked for is taken from it.
    """
    left = (1 << found_order) - (1 << order)
    if not refill_counts_at_end(m):
        account_total(m, zone, -(1 << found_order))
        account_total(m, zone, left)
    account_part(m, zone, old_type, -(1 << found_order))
    account_part(m, zone, new_type, left)


@inner
def count_at_end(m: at.MachineArrays, zone: int, taken: int) -> None:
    """Part of rmqueue_bulk(): count the pages taken in one hold, if that was put off."""
    if refill_counts_at_end(m):
        account_total(m, zone, -taken)


@inner
def account_total(m: at.MachineArrays, zone: int, change: int) -> None:
    """Part of account_freepages(): add the share of a change that concerns all types.

    The CPU of the event makes it. A change by 0 is one too: it passes on a delta that a lowered
    threshold no longer allows.
    """
    region = zone_at(zone)
    m.st[region + at.ZONE_FREE] += change
    if m.st[at.COUNTS_BY_CPU]:
        pcp = pcp_at(m, zone, m.st[at.EVENT_CPU])
        if change != 0 and m.st[region + at.ZONE_THRESHOLD] == 0:
            m.st[pcp + at.PCP_TOUCHED] = 1
        __mod_zone_page_state(m, region, at.ZONE_FREE_UNFOLDED, pcp + at.PCP_FREE_DELTA, change)


@inner
def account_part(m: at.MachineArrays, zone: int, migratetype: int, change: int) -> None:
    """Part of account_freepages(): add the share that concerns the type counted apart."""
    region = zone_at(zone)
    if migratetype == at.HIGHATOMIC:
        m.st[region + at.ZONE_FREE_HIGHATOMIC] += change
    elif migratetype == m.st[at.CMA]:
        m.st[region + at.ZONE_FREE_CMA] += change
        if m.st[at.COUNTS_BY_CPU]:
            delta = pcp_at(m, zone, m.st[at.EVENT_CPU]) + at.PCP_FREE_CMA_DELTA
            __mod_zone_page_state(m, region, at.ZONE_FREE_CMA_UNFOLDED, delta, change)


@inner
def account_move(m: at.MachineArrays, zone: int, old_type: int, new_type: int, moved: int) -> None:
    """Part of move_to_free_list(): count free pages that change lists.

    The total stays, but where lists match blocks it is updated twice, which may make the CPU pass
    on what it held back.
    """
    if m.st[at.RULE_LISTS_MATCH_BLOCKS] and m.st[at.COUNTS_BY_CPU]:
        region = zone_at(zone)
        delta = pcp_at(m, zone, m.st[at.EVENT_CPU]) + at.PCP_FREE_DELTA
        __mod_zone_page_state(m, region, at.ZONE_FREE_UNFOLDED, delta, -moved)
        __mod_zone_page_state(m, region, at.ZONE_FREE_UNFOLDED, delta, moved)
    account_part(m, zone, old_type, -moved)
    account_part(m, zone, new_type, moved)


@inner
def __mod_zone_page_state(
    m: at.MachineArrays, region: int, unfolded: int, delta: int, change: int
) -> None:
    """__mod_zone_page_state(): add to a CPU's delta and pass it on beyond the zone's threshold."""
    held = m.st[delta] + change
    if abs(held) > m.st[region + at.ZONE_THRESHOLD]:
        held = 0
    m.st[region + unfolded] += held - m.st[delta]
    m.st[delta] = held


@inner
def fold_counters(m: at.MachineArrays, zone: int, cpu: int) -> None:
    """Part of refresh_cpu_vm_stats(): pass on a CPU's deltas of a zone (S4.8).

    Its tick does so, and a change puts off expiry. Counters that do not lag leave no delta; there,
    any change since the last tick counts.
    """
    region = zone_at(zone)
    pcp = pcp_at(m, zone, cpu)
    free, cma = m.st[pcp + at.PCP_FREE_DELTA], m.st[pcp + at.PCP_FREE_CMA_DELTA]
    m.st[region + at.ZONE_FREE_UNFOLDED] -= free
    m.st[region + at.ZONE_FREE_CMA_UNFOLDED] -= cma
    m.st[pcp + at.PCP_FREE_DELTA] = 0
    m.st[pcp + at.PCP_FREE_CMA_DELTA] = 0
    changed = m.st[pcp + at.PCP_TOUCHED] != 0 or free != 0 or cma != 0
    m.st[pcp + at.PCP_TOUCHED] = 0
    if changed and m.st[at.NR_NODES] > 1:
        m.st[pcp + at.PCP_EXPIRE] = QUIET_TICKS


@inner
def seen_free(m: at.MachineArrays, zone: int) -> int:
    """zone_page_state(): return the free pages of a zone as watermark tests read them."""
    region = zone_at(zone)
    return max(m.st[region + at.ZONE_FREE] - m.st[region + at.ZONE_FREE_UNFOLDED], 0)


@inner
def seen_free_cma(m: at.MachineArrays, zone: int) -> int:
    """zone_page_state(): return the free CMA pages of a zone as watermark tests read them."""
    region = zone_at(zone)
    return max(m.st[region + at.ZONE_FREE_CMA] - m.st[region + at.ZONE_FREE_CMA_UNFOLDED], 0)


@inner
def carefully_seen_free(m: at.MachineArrays, zone: int) -> int:
    """zone_page_state_snapshot(): return the free pages as kswapd reads them (S1.10).

    The count is exact where the lag could hide a shortage.
    """
    seen = seen_free(m, zone)
    region = zone_at(zone)
    if seen < m.st[region + at.ZONE_DRIFT_MARK]:
        return m.st[region + at.ZONE_FREE]
    return seen
