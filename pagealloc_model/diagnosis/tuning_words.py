"""Bounds of a pageset's hidden words: high, count, alloc_factor, free_count.

No event shows them, nor a zone's BELOW_HIGH. So the words stand twice: in the state as they are if
the lists overflow as early as the events allow (the lower bound), and in the notes as they are if
they overflow as late as that (the upper bound). The model's own rules move both. Where both say the
same, a choice is judged; where they differ it is not, and what the kernel did narrows the bounds.
"""

from __future__ import annotations

from pagealloc_model.allocator import layout as at
from pagealloc_model.allocator.layout import zone_at
from pagealloc_model.allocator.lists import list_add, list_add_tail, list_del
from pagealloc_model.allocator.page_alloc import zone_may_serve
from pagealloc_model.allocator.pcp import decay_size, leave_below_high
from pagealloc_model.base.jit import inner
from pagealloc_model.diagnosis import true_state as true
from pagealloc_model.diagnosis.true_state import (
    Judged,
    count_repair,
    notes_at,
    zone_notes_at,
)

FREE_SLACK = 1024
"""Pages by which a zone's free pages may be off: zoneinfo is read while events go on, CPUs keep
deltas back (S1.10), compaction holds pages that no event names."""


@inner
def swap(m: at.Arrays, word: int, other: int) -> None:
    """Exchange two words."""
    m.st[word], m.st[other] = m.st[other], m.st[word]


@inner
def swap_zone_words(m: at.Arrays, zone: int) -> None:
    """Exchange the bounds of a zone's words."""
    region = zone_at(zone)
    notes = zone_notes_at(m, zone)
    swap(m, region + at.ZONE_BELOW_HIGH, notes + true.ZONE_NOTE_BELOW_HIGH)
    swap(m, region + at.ZONE_RECLAIM_ACTIVE, notes + true.ZONE_NOTE_RECLAIM_ACTIVE)


@inner
def swap_bounds(m: at.Arrays, pcp: int, zone: int) -> None:
    """Exchange the bounds: the state's words and the notes'."""
    notes = notes_at(m, pcp)
    swap(m, pcp + at.PCP_HIGH, notes + true.NOTE_HIGH)
    swap(m, pcp + at.PCP_ALLOC_FACTOR, notes + true.NOTE_ALLOC_FACTOR)
    swap(m, pcp + at.PCP_FREE_COUNT, notes + true.NOTE_FREE_COUNT)
    swap(m, pcp + at.PCP_PREV_FREE_HIGH_ORDER, notes + true.NOTE_PREV_FREE_HIGH_ORDER)
    m.st[pcp + at.PCP_COUNT] -= m.st[notes + true.NOTE_SLACK]
    m.st[notes + true.NOTE_SLACK] = -m.st[notes + true.NOTE_SLACK]
    swap_zone_words(m, zone)


@inner
def join_bounds(m: at.Arrays, pcp: int, zone: int) -> None:
    """Make the upper bound the lower one, but for the count."""
    notes = notes_at(m, pcp)
    m.st[notes + true.NOTE_HIGH] = m.st[pcp + at.PCP_HIGH]
    m.st[notes + true.NOTE_ALLOC_FACTOR] = m.st[pcp + at.PCP_ALLOC_FACTOR]
    m.st[notes + true.NOTE_FREE_COUNT] = m.st[pcp + at.PCP_FREE_COUNT]
    m.st[notes + true.NOTE_PREV_FREE_HIGH_ORDER] = m.st[pcp + at.PCP_PREV_FREE_HIGH_ORDER]
    region = zone_at(zone)
    of_zone = zone_notes_at(m, zone)
    m.st[of_zone + true.ZONE_NOTE_BELOW_HIGH] = m.st[region + at.ZONE_BELOW_HIGH]
    m.st[of_zone + true.ZONE_NOTE_RECLAIM_ACTIVE] = m.st[region + at.ZONE_RECLAIM_ACTIVE]


@inner
def is_settled(m: at.Arrays, pcp: int) -> bool:
    """Return whether limits are known and events tell of all moves."""
    return m.st[notes_at(m, pcp) + true.NOTE_UNSURE] == 0


@inner
def visit(m: at.Arrays, zone: int, order: int, highest_type: int) -> None:
    """Test a zone's high mark, which may set BELOW_HIGH (S3.1)."""
    region = zone_at(zone)
    m.st[region + at.ZONE_FREE_UNFOLDED] += FREE_SLACK
    zone_may_serve(m, zone, order, highest_type, at.WMARK_LOW)
    m.st[region + at.ZONE_FREE_UNFOLDED] -= 2 * FREE_SLACK
    swap_zone_words(m, zone)
    zone_may_serve(m, zone, 0, highest_type, at.WMARK_LOW)
    swap_zone_words(m, zone)
    m.st[region + at.ZONE_FREE_UNFOLDED] += FREE_SLACK


@inner
def leave_low_memory(m: at.Arrays, zone: int) -> None:
    """End a drain by a free, which may clear BELOW_HIGH (S4.6)."""
    region = zone_at(zone)
    m.st[region + at.ZONE_FREE_UNFOLDED] += FREE_SLACK
    leave_below_high(m, zone)
    m.st[region + at.ZONE_FREE_UNFOLDED] -= 2 * FREE_SLACK
    swap_zone_words(m, zone)
    leave_below_high(m, zone)
    swap_zone_words(m, zone)
    m.st[region + at.ZONE_FREE_UNFOLDED] += FREE_SLACK


@inner
def begin_snapshot(m: at.Arrays, pcp: int) -> None:
    """Begin a snapshot, which reads words as they are from now on."""
    notes = notes_at(m, pcp)
    listed = m.st[pcp + at.PCP_COUNT] - m.st[notes + true.NOTE_REMAINDER]
    m.st[notes + true.NOTE_READING] = 1
    m.st[notes + true.NOTE_LISTED_LEAST] = listed
    m.st[notes + true.NOTE_LISTED_MOST] = listed
    m.st[notes + true.NOTE_HIGH_LEAST] = m.st[pcp + at.PCP_HIGH]
    m.st[notes + true.NOTE_HIGH_MOST] = m.st[notes + true.NOTE_HIGH]


@inner
def follow_snapshot(m: at.Arrays, pcp: int) -> None:
    """Note what the words come to while a snapshot is being read."""
    notes = notes_at(m, pcp)
    if m.st[notes + true.NOTE_READING] == 0:
        return
    listed = m.st[pcp + at.PCP_COUNT] - m.st[notes + true.NOTE_REMAINDER]
    m.st[notes + true.NOTE_LISTED_LEAST] = min(m.st[notes + true.NOTE_LISTED_LEAST], listed)
    m.st[notes + true.NOTE_LISTED_MOST] = max(m.st[notes + true.NOTE_LISTED_MOST], listed)
    low, high = m.st[pcp + at.PCP_HIGH], m.st[notes + true.NOTE_HIGH]
    is_at_rest = min(low, high) == m.st[notes + true.NOTE_HIGH_LEAST]
    if not is_at_rest or max(low, high) != m.st[notes + true.NOTE_HIGH_MOST]:
        m.st[notes + true.NOTE_READING] = 2


@inner
def end_snapshot(m: at.Arrays, pcp: int, count: int, high: int) -> None:
    """Take up a snapshot: pages that never move, a `high` at rest."""
    notes = notes_at(m, pcp)
    follow_snapshot(m, pcp)
    most = m.st[notes + true.NOTE_REMAINDER]
    least = most - m.st[notes + true.NOTE_SLACK]
    lowest = max(count - m.st[notes + true.NOTE_LISTED_MOST], 0)
    highest = max(count - m.st[notes + true.NOTE_LISTED_LEAST], lowest)
    if lowest > most or highest < least:
        count_repair(m, true.REPAIR_TUNING)
        most = highest
        least = lowest
    most = min(most, highest)
    least = max(least, lowest)
    m.st[pcp + at.PCP_COUNT] += most - m.st[notes + true.NOTE_REMAINDER]
    m.st[notes + true.NOTE_REMAINDER] = most
    m.st[notes + true.NOTE_SLACK] = most - least
    if m.st[notes + true.NOTE_READING] == 1:
        if high < m.st[pcp + at.PCP_HIGH] or high > m.st[notes + true.NOTE_HIGH]:
            count_repair(m, true.REPAIR_TUNING)
        m.st[pcp + at.PCP_HIGH] = high
        m.st[notes + true.NOTE_HIGH] = high
        if m.st[notes + true.NOTE_TICK] == true.TICK_OPEN:
            decay_lower(m, pcp)
    m.st[notes + true.NOTE_READING] = 0


@inner
def decay_lower(m: at.Arrays, pcp: int) -> int:
    """Let the lower bound of `high` sink furthest; returns pages above it."""
    slack = m.st[notes_at(m, pcp) + true.NOTE_SLACK]
    m.st[pcp + at.PCP_COUNT] -= slack
    excess = decay_size(m, pcp) + slack
    m.st[pcp + at.PCP_COUNT] += slack
    return excess


@inner
def decay_upper(m: at.Arrays, pcp: int, zone: int) -> int:
    """Let the upper bound of `high` sink least; returns pages above it."""
    swap_bounds(m, pcp, zone)
    excess = decay_lower(m, pcp)
    swap_bounds(m, pcp, zone)
    return excess


@inner
def tick_opens(m: at.Arrays, pcp: int) -> None:
    """Note that the tick may come from now on, if it has not been seen."""
    notes = notes_at(m, pcp)
    if m.st[notes + true.NOTE_TICK] == true.TICK_DONE:
        return
    m.st[notes + true.NOTE_TICK] = true.TICK_OPEN
    decay_lower(m, pcp)


@inner
def tick_is_over(m: at.Arrays, pcp: int, zone: int) -> None:
    """Note that the tick has come, at the latest now."""
    notes = notes_at(m, pcp)
    if m.st[notes + true.NOTE_TICK] == true.TICK_OPEN:
        decay_upper(m, pcp, zone)
    m.st[notes + true.NOTE_TICK] = 0


@inner
def tick_seen(m: at.Arrays, pcp: int, zone: int) -> tuple[int, int]:
    """Take up a tick; returns how many pages exceed both bounds of `high`."""
    notes = notes_at(m, pcp)
    if m.st[notes + true.NOTE_TICK] == true.TICK_OPEN:
        lower = m.st[pcp + at.PCP_COUNT] - m.st[pcp + at.PCP_HIGH]
    else:
        lower = decay_lower(m, pcp)
    m.st[notes + true.NOTE_TICK] = true.TICK_DONE
    return lower, decay_upper(m, pcp, zone)


@inner
def fit_count(m: at.Arrays, pcp: int, limit: int, drained: int) -> bool:
    """Let a free bound the pages that never move, if they explain it."""
    notes = notes_at(m, pcp)
    slack = m.st[notes + true.NOTE_SLACK]
    off = m.st[pcp + at.PCP_COUNT] - limit
    if drained == 0 and slack > 0 and off >= 0 and off < slack:
        m.st[pcp + at.PCP_COUNT] -= off + 1
        m.st[notes + true.NOTE_REMAINDER] -= off + 1
        m.st[notes + true.NOTE_SLACK] -= off + 1
        return True
    if drained > 0 and slack < 0 and off < 0 and off >= slack:
        m.st[pcp + at.PCP_COUNT] -= off
        m.st[notes + true.NOTE_SLACK] -= off
        return True
    return False


@inner
def fit_overflow(m: at.Arrays, pcp: int, zone: int, high: int, drained: int) -> None:
    """Make the words in `st` allow what a free did, which they ruled out.

    `high` is what it was before the free. No drain shows that count has not come to high, and that
    neither reclaim nor low memory lowered the limit; a drain, that count has come to high, or that
    one of these did (S4.6).
    """
    region = zone_at(zone)
    limit = high
    if m.st[region + at.ZONE_RECLAIM_ACTIVE]:
        limit = min(m.st[pcp + at.PCP_BATCH] << 2, high)
    elif m.st[region + at.ZONE_BELOW_HIGH]:
        limit = m.st[pcp + at.PCP_HIGH_MIN]
    if fit_count(m, pcp, limit, drained):
        return
    count = m.st[pcp + at.PCP_COUNT]
    if drained == 0:
        m.st[region + at.ZONE_BELOW_HIGH] = 0
        m.st[region + at.ZONE_RECLAIM_ACTIVE] = 0
        m.st[pcp + at.PCP_HIGH] = high
        if not fit_count(m, pcp, high, drained):
            m.st[pcp + at.PCP_HIGH] = min(max(high, count + 1), m.st[pcp + at.PCP_HIGH_MAX])
    elif count < m.st[pcp + at.PCP_HIGH_MIN]:
        m.st[region + at.ZONE_RECLAIM_ACTIVE] = 1
    else:
        m.st[pcp + at.PCP_HIGH] = min(m.st[pcp + at.PCP_HIGH], count)


@inner
def fit_flush(m: at.Arrays, pcp: int, high: int, drained: int) -> None:
    """Make the words in `st` allow that a high-order free flushed, or not.

    `high` is what it was before the free, when the rule had lowered it (S4.6).
    """
    threshold = m.st[pcp + at.PCP_BATCH]
    if m.st[at.RULE_HIGH_ORDER_FLUSH_ADDS_HALF_HIGH_MIN]:
        threshold += m.st[pcp + at.PCP_HIGH_MIN] // 2
    if drained > 0:
        lowered = high - (m.st[pcp + at.PCP_BATCH] << m.st[at.POLICY_PCP_BATCH_SCALE_MAX])
        m.st[pcp + at.PCP_HIGH] = max(lowered, m.st[pcp + at.PCP_HIGH_MIN])
        m.st[pcp + at.PCP_FREE_COUNT] = max(m.st[pcp + at.PCP_FREE_COUNT], threshold)
    else:
        m.st[pcp + at.PCP_HIGH] = high
        m.st[pcp + at.PCP_FREE_COUNT] = min(m.st[pcp + at.PCP_FREE_COUNT], threshold - 1)


@inner
def null_list_at(m: at.Arrays, pcp: int, index: int) -> int:
    """Return the offset of the null model's list in `st`."""
    return notes_at(m, pcp) + true.NOTE_WORDS + index * at.LIST_WORDS


@inner
def null_forget(m: at.Arrays, j: Judged, pfn: int) -> None:
    """Take a page off whatever null list it is on."""
    lst = int(j.track[pfn]["null_list"])
    if lst > 0:
        list_del(j.track, m.st, lst, pfn)
        j.track[pfn]["null_list"] = 0


@inner
def null_add(m: at.Arrays, j: Judged, pcp: int, index: int, pfn: int, tail: bool) -> None:
    """Put a refilled page at a list's tail, a freed one at its head."""
    null_forget(m, j, pfn)
    lst = null_list_at(m, pcp, index)
    j.track[pfn]["null_list"] = lst
    if tail:
        list_add_tail(j.track, m.st, lst, pfn)
    else:
        list_add(j.track, m.st, lst, pfn)


@inner
def null_pop(m: at.Arrays, j: Judged, pcp: int, index: int, pfn: int) -> bool:
    """Take the kernel's page; returns whether the null model names it."""
    lst = null_list_at(m, pcp, index)
    hit = m.st[lst + at.HEAD] == pfn
    if int(j.track[pfn]["null_list"]) == lst:
        while m.st[lst + at.HEAD] != pfn:
            null_forget(m, j, m.st[lst + at.HEAD])
    null_forget(m, j, pfn)
    return hit
