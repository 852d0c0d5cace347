"""What is known of a pageset's hidden words: high, count, alloc_factor, free_count.

No event shows them, nor a zone's BELOW_HIGH. So the words stand twice: in the state as they are if
the lists overflow as early as the events allow (the lower world), and in the notes as they are if
they overflow as late as that (the upper world). The model's own rules move both. Where both say the
same, a choice is judged; where they differ it is not, and what the kernel did narrows the worlds.
"""

from __future__ import annotations

import numpy as np

from pagealloc_model.allocator.choices import true_state as true
from pagealloc_model.allocator.choices.true_state import count_repair, notes_at, zone_notes_at
from pagealloc_model.allocator.core import layout as at
from pagealloc_model.allocator.core.offsets import zone_at
from pagealloc_model.allocator.core.pcp import decay_size, leave_below_high
from pagealloc_model.allocator.core.request import zone_may_serve
from pagealloc_model.base.jit import inner

FREE_SLACK = 1024
"""Pages by which a zone's free pages may be off: zoneinfo is read while events go on, CPUs keep
deltas back (S1.10), compaction holds pages that no event names."""


@inner
def swap(st: np.ndarray, word: int, other: int) -> None:
    """Exchange two words."""
    kept = st[word]
    st[word] = st[other]
    st[other] = kept


@inner
def swap_zone_words(st: np.ndarray, zone: int) -> None:
    """Exchange the two worlds' words of a zone."""
    region = zone_at(zone)
    notes = zone_notes_at(st, zone)
    swap(st, region + at.ZONE_BELOW_HIGH, notes + true.ZONE_NOTE_BELOW_HIGH)
    swap(st, region + at.ZONE_RECLAIM_ACTIVE, notes + true.ZONE_NOTE_RECLAIM_ACTIVE)


@inner
def swap_worlds(st: np.ndarray, pcp: int, zone: int) -> None:
    """Exchange the two worlds: the state's words of a pageset and its zone with the notes'."""
    notes = notes_at(st, pcp)
    swap(st, pcp + at.PCP_HIGH, notes + true.NOTE_HIGH)
    swap(st, pcp + at.PCP_ALLOC_FACTOR, notes + true.NOTE_ALLOC_FACTOR)
    swap(st, pcp + at.PCP_FREE_COUNT, notes + true.NOTE_FREE_COUNT)
    swap(st, pcp + at.PCP_PREV_FREE_HIGH_ORDER, notes + true.NOTE_PREV_FREE_HIGH_ORDER)
    st[pcp + at.PCP_COUNT] -= st[notes + true.NOTE_SLACK]
    st[notes + true.NOTE_SLACK] = -st[notes + true.NOTE_SLACK]
    swap_zone_words(st, zone)


@inner
def make_worlds_one(st: np.ndarray, pcp: int, zone: int) -> None:
    """The upper world is as the lower one, but for the count."""
    notes = notes_at(st, pcp)
    st[notes + true.NOTE_HIGH] = st[pcp + at.PCP_HIGH]
    st[notes + true.NOTE_ALLOC_FACTOR] = st[pcp + at.PCP_ALLOC_FACTOR]
    st[notes + true.NOTE_FREE_COUNT] = st[pcp + at.PCP_FREE_COUNT]
    st[notes + true.NOTE_PREV_FREE_HIGH_ORDER] = st[pcp + at.PCP_PREV_FREE_HIGH_ORDER]
    region = zone_at(zone)
    of_zone = zone_notes_at(st, zone)
    st[of_zone + true.ZONE_NOTE_BELOW_HIGH] = st[region + at.ZONE_BELOW_HIGH]
    st[of_zone + true.ZONE_NOTE_RECLAIM_ACTIVE] = st[region + at.ZONE_RECLAIM_ACTIVE]


@inner
def is_settled(st: np.ndarray, pcp: int) -> bool:
    """Whether limits are known, and no page came or goes at a time that no event tells."""
    return st[notes_at(st, pcp) + true.NOTE_UNSURE] == 0


@inner
def visit(st: np.ndarray, zone: int, order: int, highest_type: int) -> None:
    """A request tests a zone's high watermark, which may set BELOW_HIGH (S3.1)."""
    region = zone_at(zone)
    st[region + at.ZONE_FREE_UNFOLDED] += FREE_SLACK
    zone_may_serve(st, zone, order, highest_type, at.WMARK_LOW)
    st[region + at.ZONE_FREE_UNFOLDED] -= 2 * FREE_SLACK
    swap_zone_words(st, zone)
    zone_may_serve(st, zone, 0, highest_type, at.WMARK_LOW)
    swap_zone_words(st, zone)
    st[region + at.ZONE_FREE_UNFOLDED] += FREE_SLACK


@inner
def leave_low_memory(st: np.ndarray, zone: int) -> None:
    """A drain by a free is over, which may clear BELOW_HIGH (S4.6)."""
    region = zone_at(zone)
    st[region + at.ZONE_FREE_UNFOLDED] += FREE_SLACK
    leave_below_high(st, zone)
    st[region + at.ZONE_FREE_UNFOLDED] -= 2 * FREE_SLACK
    swap_zone_words(st, zone)
    leave_below_high(st, zone)
    swap_zone_words(st, zone)
    st[region + at.ZONE_FREE_UNFOLDED] += FREE_SLACK


@inner
def begin_snapshot(st: np.ndarray, pcp: int) -> None:
    """A snapshot begins: from now on the words pass through what it reads."""
    notes = notes_at(st, pcp)
    listed = st[pcp + at.PCP_COUNT] - st[notes + true.NOTE_REMAINDER]
    st[notes + true.NOTE_READING] = 1
    st[notes + true.NOTE_LISTED_LEAST] = listed
    st[notes + true.NOTE_LISTED_MOST] = listed
    st[notes + true.NOTE_HIGH_LEAST] = st[pcp + at.PCP_HIGH]
    st[notes + true.NOTE_HIGH_MOST] = st[notes + true.NOTE_HIGH]


@inner
def follow_snapshot(st: np.ndarray, pcp: int) -> None:
    """Note what the words come to while a snapshot is being read."""
    notes = notes_at(st, pcp)
    if st[notes + true.NOTE_READING] == 0:
        return
    listed = st[pcp + at.PCP_COUNT] - st[notes + true.NOTE_REMAINDER]
    st[notes + true.NOTE_LISTED_LEAST] = min(st[notes + true.NOTE_LISTED_LEAST], listed)
    st[notes + true.NOTE_LISTED_MOST] = max(st[notes + true.NOTE_LISTED_MOST], listed)
    least = min(st[pcp + at.PCP_HIGH], st[notes + true.NOTE_HIGH])
    most = max(st[pcp + at.PCP_HIGH], st[notes + true.NOTE_HIGH])
    moved = least != st[notes + true.NOTE_HIGH_LEAST] or most != st[notes + true.NOTE_HIGH_MOST]
    if moved:
        st[notes + true.NOTE_READING] = 2


@inner
def end_snapshot(st: np.ndarray, pcp: int, count: int, high: int) -> None:
    """A snapshot has been read: it bounds the pages that never move, and shows a `high` at rest."""
    notes = notes_at(st, pcp)
    follow_snapshot(st, pcp)
    most = st[notes + true.NOTE_REMAINDER]
    least = most - st[notes + true.NOTE_SLACK]
    lowest = max(count - st[notes + true.NOTE_LISTED_MOST], 0)
    highest = max(count - st[notes + true.NOTE_LISTED_LEAST], lowest)
    if lowest > most or highest < least:
        count_repair(st, true.REPAIR_TUNING)
        most = highest
        least = lowest
    most = min(most, highest)
    least = max(least, lowest)
    st[pcp + at.PCP_COUNT] += most - st[notes + true.NOTE_REMAINDER]
    st[notes + true.NOTE_REMAINDER] = most
    st[notes + true.NOTE_SLACK] = most - least
    if st[notes + true.NOTE_READING] == 1:
        if high < st[pcp + at.PCP_HIGH] or high > st[notes + true.NOTE_HIGH]:
            count_repair(st, true.REPAIR_TUNING)
        st[pcp + at.PCP_HIGH] = high
        st[notes + true.NOTE_HIGH] = high
        if st[notes + true.NOTE_TICK] == true.TICK_OPEN:
            decay_lower(st, pcp)
    st[notes + true.NOTE_READING] = 0


@inner
def decay_lower(st: np.ndarray, pcp: int) -> int:
    """Let the lower world's `high` sink as one tick does, as far as any count it may have allows.

    Returns:
        Pages that now exceed it.
    """
    slack = st[notes_at(st, pcp) + true.NOTE_SLACK]
    st[pcp + at.PCP_COUNT] -= slack
    excess = decay_size(st, pcp) + slack
    st[pcp + at.PCP_COUNT] += slack
    return excess


@inner
def decay_upper(st: np.ndarray, pcp: int, zone: int) -> int:
    """The same for the upper world's `high`, which sinks as little as it can."""
    swap_worlds(st, pcp, zone)
    excess = decay_lower(st, pcp)
    swap_worlds(st, pcp, zone)
    return excess


@inner
def tick_opens(st: np.ndarray, pcp: int) -> None:
    """From now on the tick may come at any time, unless it has already been seen."""
    notes = notes_at(st, pcp)
    if st[notes + true.NOTE_TICK] == true.TICK_DONE:
        return
    st[notes + true.NOTE_TICK] = true.TICK_OPEN
    decay_lower(st, pcp)


@inner
def tick_is_over(st: np.ndarray, pcp: int, zone: int) -> None:
    """The tick has come, at the latest now."""
    notes = notes_at(st, pcp)
    if st[notes + true.NOTE_TICK] == true.TICK_OPEN:
        decay_upper(st, pcp, zone)
    st[notes + true.NOTE_TICK] = 0


@inner
def tick_seen(st: np.ndarray, pcp: int, zone: int) -> tuple[int, int]:
    """The tick comes now; pages that exceed the lowered `high` in the lower and upper world."""
    notes = notes_at(st, pcp)
    if st[notes + true.NOTE_TICK] == true.TICK_OPEN:
        lower = st[pcp + at.PCP_COUNT] - st[pcp + at.PCP_HIGH]
    else:
        lower = decay_lower(st, pcp)
    st[notes + true.NOTE_TICK] = true.TICK_DONE
    return lower, decay_upper(st, pcp, zone)


@inner
def fit_count(st: np.ndarray, pcp: int, limit: int, drained: int) -> bool:
    """Let a free bound the pages that never move, if these explain what it did.

    Returns:
        Whether the count of the world in `st` may be what its limit asks for.
    """
    notes = notes_at(st, pcp)
    slack = st[notes + true.NOTE_SLACK]
    off = st[pcp + at.PCP_COUNT] - limit
    if drained == 0 and slack > 0 and off >= 0 and off < slack:
        st[pcp + at.PCP_COUNT] -= off + 1
        st[notes + true.NOTE_REMAINDER] -= off + 1
        st[notes + true.NOTE_SLACK] -= off + 1
        return True
    if drained > 0 and slack < 0 and off < 0 and off >= slack:
        st[pcp + at.PCP_COUNT] -= off
        st[notes + true.NOTE_SLACK] -= off
        return True
    return False


@inner
def overflow_limit(st: np.ndarray, pcp: int, zone: int, high: int) -> int:
    """The count at which a free overflows in a world whose `high` was this (S4.6)."""
    region = zone_at(zone)
    if st[region + at.ZONE_RECLAIM_ACTIVE]:
        return min(st[pcp + at.PCP_BATCH] << 2, high)
    if st[region + at.ZONE_BELOW_HIGH]:
        return st[pcp + at.PCP_HIGH_MIN]
    return high


@inner
def fit_overflow(st: np.ndarray, pcp: int, zone: int, high: int, drained: int) -> None:
    """Make the words of one world allow what a free did, which they said it would not do.

    `high` is what it was before the free. No drain shows that count has not come to high, and that
    neither reclaim nor low memory lowered the limit; a drain, that count has come to high, or that
    one of these did (S4.6).
    """
    if fit_count(st, pcp, overflow_limit(st, pcp, zone, high), drained):
        return
    count = st[pcp + at.PCP_COUNT]
    region = zone_at(zone)
    if drained == 0:
        st[region + at.ZONE_BELOW_HIGH] = 0
        st[region + at.ZONE_RECLAIM_ACTIVE] = 0
        st[pcp + at.PCP_HIGH] = high
        if not fit_count(st, pcp, high, drained):
            st[pcp + at.PCP_HIGH] = min(max(high, count + 1), st[pcp + at.PCP_HIGH_MAX])
    elif count < st[pcp + at.PCP_HIGH_MIN]:
        st[region + at.ZONE_RECLAIM_ACTIVE] = 1
    else:
        st[pcp + at.PCP_HIGH] = min(st[pcp + at.PCP_HIGH], count)


@inner
def widen_high(st: np.ndarray, pcp: int, drained: int) -> None:
    """After a free that neither world allowed: `high` is no more known than the free shows."""
    if drained > 0:
        st[pcp + at.PCP_HIGH] = st[pcp + at.PCP_HIGH_MIN]
    else:
        st[notes_at(st, pcp) + true.NOTE_HIGH] = st[pcp + at.PCP_HIGH_MAX]


@inner
def fit_flush(st: np.ndarray, pcp: int, high: int, drained: int) -> None:
    """Make the words of one world allow that a high-order free flushed, or that it did not.

    `high` is what it was before the free, when the rule had lowered it (S4.6).
    """
    threshold = st[pcp + at.PCP_BATCH]
    if st[at.FLUSH_ADDS_HALF_HIGH_MIN]:
        threshold += st[pcp + at.PCP_HIGH_MIN] // 2
    if drained > 0:
        lowered = high - (st[pcp + at.PCP_BATCH] << st[at.BATCH_SCALE_MAX])
        st[pcp + at.PCP_HIGH] = max(lowered, st[pcp + at.PCP_HIGH_MIN])
        st[pcp + at.PCP_FREE_COUNT] = max(st[pcp + at.PCP_FREE_COUNT], threshold)
    else:
        st[pcp + at.PCP_HIGH] = high
        st[pcp + at.PCP_FREE_COUNT] = min(st[pcp + at.PCP_FREE_COUNT], threshold - 1)


@inner
def fit_free_count(st: np.ndarray, pcp: int, drained: int) -> None:
    """Set free_count to what explains the size of a drain (S4.6)."""
    if drained > st[pcp + at.PCP_BATCH]:
        st[pcp + at.PCP_FREE_COUNT] = drained


@inner
def fit_alloc_factor(st: np.ndarray, pcp: int, predicted: int, objects: int) -> None:
    """Set alloc_factor, and what high grew by, to fit a refill of so many order-0 pages (S4.4)."""
    base = st[pcp + at.PCP_BATCH]
    factor = 0
    while base << factor < objects and factor < st[at.BATCH_SCALE_MAX]:
        factor += 1
    if base << factor == objects:
        st[pcp + at.PCP_HIGH] += objects - predicted
        st[pcp + at.PCP_ALLOC_FACTOR] = min(factor + 1, st[at.BATCH_SCALE_MAX])
