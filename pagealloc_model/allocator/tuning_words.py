"""What is known of a pageset's hidden words: high, count, alloc_factor, free_count.

No event shows them. They follow from events once enough of those have passed, from snapshots and
from the sizes of refills and drains; a choice that rests on words still unknown is not judged.
"""

from __future__ import annotations

import numpy as np

from pagealloc_model.allocator import layout as at
from pagealloc_model.allocator import true_state as true
from pagealloc_model.allocator.offsets import zone_at
from pagealloc_model.allocator.pcp import decay_size
from pagealloc_model.allocator.true_state import count_repair, notes_at
from pagealloc_model.jit import inner

ALLOCATIONS_TO_SETTLE = 12
"""Halvings after which free_count no longer depends on what it was."""
FREES_TO_SETTLE = 3
"""The same for alloc_factor."""
COUNT_SLACK = 4096
"""Pages by which a count taken from a snapshot may be off: it was read while events went on."""


@inner
def is_settled(st: np.ndarray, pcp: int) -> bool:
    """Whether high, alloc_factor and free_count follow from events, not from a guess."""
    notes = notes_at(st, pcp)
    return (
        st[notes + true.NOTE_HIGH_KNOWN] != 0
        and st[notes + true.NOTE_UNSURE] == 0
        and st[notes + true.NOTE_ALLOCATIONS] >= ALLOCATIONS_TO_SETTLE
        and st[notes + true.NOTE_FREES] >= FREES_TO_SETTLE
    )


@inner
def is_size_known(st: np.ndarray, pcp: int, order: int) -> bool:
    """Whether a refill's size follows: for order 0 from hidden words, else from batch (S4.4)."""
    if order == 0:
        return is_settled(st, pcp)
    return st[notes_at(st, pcp) + true.NOTE_HIGH_KNOWN] != 0


@inner
def is_plain(st: np.ndarray, zone: int) -> bool:
    """Whether a drain begins at pcp->high: no reclaim, zone above its high watermark (S4.6)."""
    region = zone_at(zone)
    return not st[region + at.ZONE_BELOW_HIGH] and not st[region + at.ZONE_RECLAIM_ACTIVE]


@inner
def note_high(st: np.ndarray, pcp: int) -> None:
    """Tick a snapshot's `high` off once the state's has its value."""
    notes = notes_at(st, pcp)
    if st[pcp + at.PCP_HIGH] == st[notes + true.NOTE_HIGH_READ]:
        st[notes + true.NOTE_HIGH_READ] = 0


@inner
def read_snapshot(st: np.ndarray, pcp: int, count: int, high: int) -> None:
    """A snapshot begins: its words are the first known, or what the state's should come to."""
    notes = notes_at(st, pcp)
    if st[notes + true.NOTE_HIGH_KNOWN]:
        st[notes + true.NOTE_HIGH_READ] = high
        note_high(st, pcp)
        return
    st[notes + true.NOTE_HIGH_KNOWN] = 1
    st[pcp + at.PCP_HIGH] = high
    st[pcp + at.PCP_COUNT] = count


@inner
def end_snapshot(st: np.ndarray, pcp: int, high: int) -> None:
    """A snapshot has been read: a `high` that the state's never came to is put right."""
    notes = notes_at(st, pcp)
    if st[notes + true.NOTE_HIGH_READ] == high:
        count_repair(st, true.REPAIR_TUNING)
        st[pcp + at.PCP_HIGH] = high
    st[notes + true.NOTE_HIGH_READ] = 0


@inner
def tick_opens(st: np.ndarray, pcp: int) -> None:
    """From now on the tick may come at any time, unless it has already been seen."""
    notes = notes_at(st, pcp)
    seen = st[notes + true.NOTE_TICK] == true.TICK_DONE
    st[notes + true.NOTE_TICK] = 0 if seen else true.TICK_OPEN


@inner
def tick_is_over(st: np.ndarray, pcp: int) -> None:
    """The tick has come, at the latest now."""
    notes = notes_at(st, pcp)
    if st[notes + true.NOTE_TICK] == true.TICK_OPEN:
        decay_size(st, pcp)
        note_high(st, pcp)
    st[notes + true.NOTE_TICK] = 0


@inner
def tick_seen(st: np.ndarray, pcp: int) -> int:
    """The tick comes now; pages that exceed the lowered `high`."""
    notes = notes_at(st, pcp)
    opened = st[notes + true.NOTE_TICK] == true.TICK_OPEN
    st[notes + true.NOTE_TICK] = 0 if opened else true.TICK_DONE
    excess = decay_size(st, pcp)
    note_high(st, pcp)
    return excess


@inner
def lowest_limit(st: np.ndarray, pcp: int) -> int:
    """`high` as it would be if a tick that may have come has come."""
    high = st[pcp + at.PCP_HIGH]
    if st[notes_at(st, pcp) + true.NOTE_TICK] != true.TICK_OPEN:
        return high
    decay_size(st, pcp)
    lowered = st[pcp + at.PCP_HIGH]
    st[pcp + at.PCP_HIGH] = high
    return lowered


@inner
def is_limit_known(st: np.ndarray, pcp: int, zone: int, order: int, drained: int) -> bool:
    """Whether count and high before a free are known well enough to judge it.

    They are where the lists are far from full. A drain of so many pages that followed shows what
    they were: the tick has come where only the lowered high explains the drain, and count meets
    high where it was not known. Flushes by high-order frees show neither.
    """
    notes = notes_at(st, pcp)
    shows = is_plain(st, zone) and (order == 0 or order > st[at.COSTLY_ORDER])
    lowest = lowest_limit(st, pcp)
    after = st[pcp + at.PCP_COUNT] + (1 << order)
    if shows and drained == 0 and after + COUNT_SLACK < lowest:
        return st[notes + true.NOTE_HIGH_KNOWN] != 0
    known = is_settled(st, pcp)
    if lowest < st[pcp + at.PCP_HIGH] and after >= lowest:
        if shows and drained > 0 and after < st[pcp + at.PCP_HIGH]:
            tick_seen(st, pcp)
        known = False
    if st[notes + true.NOTE_COUNT_KNOWN] == 0:
        if shows and st[notes + true.NOTE_HIGH_KNOWN] != 0:
            learn_count(st, pcp, 1 << order, drained)
        known = False
    return known


@inner
def learn_count(st: np.ndarray, pcp: int, size: int, drained: int) -> None:
    """Keep an uncertain count below high until a drain shows that it has come to it."""
    high = st[pcp + at.PCP_HIGH]
    after = st[pcp + at.PCP_COUNT] + size
    if drained > 0:
        st[pcp + at.PCP_COUNT] = max(after, high) - size
        st[notes_at(st, pcp) + true.NOTE_COUNT_KNOWN] = 1
    elif after >= high:
        st[pcp + at.PCP_COUNT] = high - 1 - size


@inner
def fit_count(st: np.ndarray, pcp: int, high: int, drained: int) -> None:
    """After a drain that came too early, or not at all: count is what fits, or unknown again."""
    count_repair(st, true.REPAIR_TUNING)
    st[pcp + at.PCP_COUNT] = high if drained > 0 else high - 1
    st[notes_at(st, pcp) + true.NOTE_COUNT_KNOWN] = 1 if drained > 0 else 0


@inner
def fit_flush(st: np.ndarray, pcp: int, high: int, drained: int) -> None:
    """After a high-order free that flushed though not due to, or the reverse: words that fit.

    `high` is what it was before the free, when the rule had lowered it (S4.6).
    """
    count_repair(st, true.REPAIR_TUNING)
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
        count_repair(st, true.REPAIR_TUNING)
        st[pcp + at.PCP_FREE_COUNT] = drained


@inner
def fit_alloc_factor(st: np.ndarray, pcp: int, predicted: int, objects: int) -> None:
    """Set alloc_factor, and what high grew by, to fit a refill of so many order-0 pages (S4.4)."""
    base = st[pcp + at.PCP_BATCH]
    factor = 0
    while base << factor < objects and factor < st[at.BATCH_SCALE_MAX]:
        factor += 1
    if base << factor == objects:
        count_repair(st, true.REPAIR_TUNING)
        st[pcp + at.PCP_HIGH] += objects - predicted
        st[pcp + at.PCP_ALLOC_FACTOR] = min(factor + 1, st[at.BATCH_SCALE_MAX])
