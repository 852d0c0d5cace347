"""Moving pages as the recording says they moved, whatever the model would have done.

Beside the state stands one `TRACK` record per page frame, and behind the state's words come one
region per pageset with what is noted of it, one per zone, then the counts of repairs.
"""

from __future__ import annotations

import numpy as np

from pagealloc_model.allocator.choices import recorded_steps as rec
from pagealloc_model.allocator.core import layout as at
from pagealloc_model.allocator.core.buddy import (
    add_buddy,
    free_to_buddy,
    move_block_free_pages,
    push_head,
    push_tail,
    remove_buddy,
    set_block_types,
    unlink,
)
from pagealloc_model.allocator.core.counters import account_free
from pagealloc_model.base.jit import inner

TRACK = np.dtype(
    [
        ("next", np.int32),
        ("prev", np.int32),
        ("null_list", np.int32),
        ("mark", np.int32),
        ("fate", np.int8),
        ("unsure", np.int8),
        ("passed", np.int8),
        ("null_type", np.int8),
    ]
)
"""`mark`: of a free buddy, KNOWN or SINCE_START; of a page on a per-CPU list, the list's offset in
`st`, negative if no event tells its place there. `fate`: the operation by which a page leaves the
per-CPU list or the buddy. `unsure`: 1 if it came or will go without an event; `passed`: 1 if the
kernel took another in its place. The other fields are the null model's links and list, and the
type the page was last requested as."""

KNOWN, SINCE_START = 0, 1
ASTRAY = 100
"""`fate` of a page that is on a per-CPU list, but not where the state had it."""
RETYPED = 101
"""`fate` of a free page that is next taken from the reserve's or another such list."""

(
    NOTE_REFILLED,
    NOTE_RUN_LISTED,
    NOTE_TICK,
    NOTE_DRAIN_INDEX,
    NOTE_DRAIN_FROM,
    NOTE_UNSURE,
    NOTE_HIGH,
    NOTE_ALLOC_FACTOR,
    NOTE_FREE_COUNT,
    NOTE_PREV_FREE_HIGH_ORDER,
    NOTE_SLACK,
    NOTE_REMAINDER,
    NOTE_READING,
    NOTE_LISTED_LEAST,
    NOTE_LISTED_MOST,
    NOTE_HIGH_LEAST,
    NOTE_HIGH_MOST,
    NOTE_FREE_HELD,
) = range(18)
NOTE_WORDS = 24
NOTE_STRIDE = NOTE_WORDS + at.PCP_LISTS_MAX * at.LIST_WORDS
"""What is noted of a pageset, then the null model's lists. REFILLED: one more than the page frame
whose allocation caused the last refill; TICK: as below; DRAIN_INDEX and DRAIN_FROM: list and
pageset that the run of drains going on has come to; UNSURE: what is not known of its limits, and
pages on the lists that came or go without an event, hence at a time unknown; HIGH to
PREV_FREE_HIGH_ORDER: the words in the upper world (see `tuning_words`); REMAINDER: at most how many
counted pages never move; SLACK: how many fewer these may be; READING: 1 while a snapshot is read,
2 if `high` has moved meanwhile; LISTED and HIGH, within what bounds the words were meanwhile;
FREE_HELD: what the CPU has not passed on of the zone's free pages (S1.10)."""

TICK_DONE, TICK_OPEN = 1, 2
"""A tick's time is known to some hundredths of a second: it is open until seen or over."""

ZONE_NOTE_BELOW_HIGH = at.MIGRATETYPES + 1
ZONE_NOTE_RECLAIM_ACTIVE = at.MIGRATETYPES + 2
ZONE_NOTE_FREE = at.MIGRATETYPES + 3
ZONE_NOTE_FREE_KNOWN = at.MIGRATETYPES + 4
ZONE_NOTE_FREE_HELD = at.MIGRATETYPES + 5
ZONE_NOTES = at.MIGRATETYPES + 6
"""What the null models note of a zone: the page frame after the last one taken, by type; the kind
of the last fallback. Then the zone's words in the upper world; its free pages as snapshots and
moves tell them, whether a snapshot has told them yet, and what CPUs have not passed on of them."""

REPAIR_NAMES = (
    "pages on another list of the CPU",
    "pages on another CPU's list",
    "pages free in the buddy that an event shows elsewhere",
    "pages not known to be free",
    "pages that left a per-CPU list without an event",
    "free pages passed over that were not there",
    "block types learnt late",
    "high, count, alloc_factor, free_count or BELOW_HIGH set to fit",
    "pages passed over, hence not where the list had them",
)
(
    REPAIR_OTHER_LIST,
    REPAIR_OTHER_CPU,
    REPAIR_IN_BUDDY,
    REPAIR_NOWHERE,
    REPAIR_HIDDEN,
    REPAIR_START,
    REPAIR_TYPE,
    REPAIR_TUNING,
    REPAIR_ASTRAY,
) = range(len(REPAIR_NAMES))
REPAIRS = len(REPAIR_NAMES)


@inner
def notes_at(st: np.ndarray, pcp: int) -> int:
    """Offset of what is noted of the pageset at `pcp`."""
    pagesets = st[at.NR_ZONES] * st[at.NR_CPUS]
    first = st.shape[0] - REPAIRS - st[at.NR_ZONES] * ZONE_NOTES - pagesets * NOTE_STRIDE
    return first + (pcp - st[at.PCP_BASE]) // at.PCP_STRIDE * NOTE_STRIDE


@inner
def zone_notes_at(st: np.ndarray, zone: int) -> int:
    """Offset of what is noted of a zone."""
    return st.shape[0] - REPAIRS - (st[at.NR_ZONES] - zone) * ZONE_NOTES


@inner
def count_repair(st: np.ndarray, kind: int) -> None:
    """Count a correction of the state that no event explains."""
    st[st.shape[0] - REPAIRS + kind] += 1


@inner
def pageset_of_list(st: np.ndarray, lst: int) -> int:
    """Offset of the pageset that a list belongs to."""
    base = st[at.PCP_BASE]
    return base + (lst - base) // at.PCP_STRIDE * at.PCP_STRIDE


@inner
def put_on_list(
    pages: np.ndarray,
    st: np.ndarray,
    track: np.ndarray,
    lst: int,
    pfn: int,
    order: int,
    fate: int,
    tail: bool,
) -> None:
    """Put a page at the head or tail of a per-CPU list; the count is the caller's business."""
    pages[pfn]["order"] = order
    pages[pfn]["where"] = at.ON_PCP
    track[pfn]["mark"] = lst
    track[pfn]["fate"] = fate
    track[pfn]["unsure"] = 0
    track[pfn]["passed"] = 0
    if tail:
        push_tail(pages, st, lst, pfn)
    else:
        push_head(pages, st, lst, pfn)


@inner
def is_listed(pages: np.ndarray, pfn: int, order: int) -> bool:
    """Whether a page of this order is on a per-CPU list."""
    return int(pages[pfn]["where"]) == at.ON_PCP and int(pages[pfn]["order"]) == order


@inner
def leave_list(pages: np.ndarray, st: np.ndarray, track: np.ndarray, pfn: int) -> None:
    """Take a page off its per-CPU list and out of the pageset's count."""
    lst = abs(int(track[pfn]["mark"]))
    if int(track[pfn]["fate"]) != ASTRAY:
        unlink(pages, st, lst, pfn)
    pcp = pageset_of_list(st, lst)
    st[pcp + at.PCP_COUNT] -= 1 << int(pages[pfn]["order"])
    if int(track[pfn]["unsure"]):
        track[pfn]["unsure"] = 0
        notes = notes_at(st, pcp)
        st[notes + NOTE_UNSURE] -= 1
        st[notes + NOTE_FREE_COUNT] += 1 << int(pages[pfn]["order"])
        st[pcp + at.PCP_ALLOC_FACTOR] >>= 1
    pages[pfn]["where"] = at.NOWHERE
    track[pfn]["mark"] = KNOWN


@inner
def list_at(pcp: int, index: int) -> int:
    """Offset of a pageset's list."""
    return pcp + at.PCP_LISTS + index * at.LIST_WORDS


@inner
def drop_hidden(pages: np.ndarray, st: np.ndarray, track: np.ndarray, end: int, pfn: int) -> int:
    """Drop what left a list's end unseen: pages before `pfn` that no event takes off it (T9).

    `end` is the offset of the list's head or tail.
    """
    dropped = 0
    page = st[end]
    while page >= 0 and page != pfn:
        fate = int(track[page]["fate"])
        if fate == rec.POP or fate == rec.DRAIN:
            break
        leave_list(pages, st, track, page)
        count_repair(st, REPAIR_HIDDEN)
        dropped += 1
        page = st[end]
    return dropped


@inner
def note_fate(track: np.ndarray, steps: np.ndarray, number: int) -> None:
    """Note the operation that moves pages next which a step has just returned to the buddy."""
    pfn = int(steps[number]["pfn"])
    order = int(steps[number]["order"])
    fate = int(steps[number]["fate"])
    if fate == rec.REMOVE and int(steps[number]["found_type"]) >= at.PCP_TYPES:
        fate = RETYPED
    for page in range(pfn, pfn + (1 << order)):
        track[page]["fate"] = fate


@inner
def leaves_unseen(pages: np.ndarray, track: np.ndarray, head: int) -> bool:
    """Whether a free buddy's pages, or some of them, are next seen elsewhere than leaving it (T9).

    Compaction isolates free pages, the reserve takes blocks over, at times that no event tells.
    """
    for page in range(head, head + (1 << int(pages[head]["order"]))):
        fate = int(track[page]["fate"])
        if fate == rec.POP or fate == rec.PUSH or fate == rec.DRAIN or fate == RETYPED:
            return True
    return False


@inner
def note_unsure(st: np.ndarray, track: np.ndarray, pcp: int, pfn: int) -> None:
    """Note that a page just listed came, or will go, at a time that no event tells."""
    track[pfn]["unsure"] = 1
    st[notes_at(st, pcp) + NOTE_UNSURE] += 1


@inner
def pass_over(pages: np.ndarray, st: np.ndarray, track: np.ndarray, pfn: int) -> None:
    """The kernel took another page than this: one passed over twice is unlinked, but counted."""
    if not int(track[pfn]["passed"]):
        track[pfn]["passed"] = 1
        return
    unlink(pages, st, abs(int(track[pfn]["mark"])), pfn)
    track[pfn]["fate"] = ASTRAY
    count_repair(st, REPAIR_ASTRAY)


@inner
def containing_buddy(pages: np.ndarray, st: np.ndarray, pfn: int, order: int) -> int:
    """First page of the free buddy that holds `1 << order` pages at `pfn`; -1 if none does."""
    for current in range(order, st[at.MAX_ORDER] + 1):
        head = pfn & ~((1 << current) - 1)
        if int(pages[head]["where"]) == at.BUDDY and int(pages[head]["order"]) >= current:
            return head
    return -1


@inner
def take_exactly(
    pages: np.ndarray, st: np.ndarray, track: np.ndarray, zone: int, head: int, pfn: int, order: int
) -> None:
    """Cut `1 << order` pages at `pfn` out of the free buddy at `head`, rest to list heads (S5.2).

    The kernel always takes a buddy's low end. Where the pages lie elsewhere in one that has been
    there since the start, its lower part was not free, or apart: it is left out until an event
    shows it.
    """
    current = int(pages[head]["order"])
    migratetype = int(pages[head]["tag"])
    guessed = track[head]["mark"] == SINCE_START
    remove_buddy(pages, st, zone, head)
    track[head]["mark"] = KNOWN
    account_free(st, zone, migratetype, -(1 << current))
    while current > order:
        current -= 1
        other = (pfn & ~((1 << current) - 1)) ^ (1 << current)
        if other < pfn and guessed:
            count_repair(st, REPAIR_START)
            continue
        add_buddy(pages, st, zone, other, current, migratetype, False)
        track[other]["mark"] = KNOWN
        account_free(st, zone, migratetype, 1 << current)


@inner
def drop_buddy(pages: np.ndarray, st: np.ndarray, track: np.ndarray, zone: int, head: int) -> None:
    """Take a free buddy out of the state."""
    account_free(st, zone, int(pages[head]["tag"]), -(1 << int(pages[head]["order"])))
    remove_buddy(pages, st, zone, head)
    track[head]["mark"] = KNOWN


@inner
def vacate(
    pages: np.ndarray, st: np.ndarray, track: np.ndarray, zone: int, pfn: int, order: int
) -> None:
    """Take pages out of wherever the state has them; counts what that repairs."""
    for current in range(order, st[at.MAX_ORDER] + 1):
        head = pfn & ~((1 << current) - 1)
        if int(pages[head]["order"]) >= current:
            if int(pages[head]["where"]) == at.BUDDY:
                count_repair(st, REPAIR_IN_BUDDY)
                take_exactly(pages, st, track, zone, head, pfn, order)
                return
            if int(pages[head]["where"]) == at.ON_PCP:
                count_repair(st, REPAIR_OTHER_LIST)
                leave_list(pages, st, track, head)
                return
    for page in range(pfn, pfn + (1 << order)):
        if int(pages[page]["where"]) == at.BUDDY:
            count_repair(st, REPAIR_IN_BUDDY)
            drop_buddy(pages, st, track, zone, page)
        elif int(pages[page]["where"]) == at.ON_PCP:
            count_repair(st, REPAIR_OTHER_LIST)
            leave_list(pages, st, track, page)
        pages[page]["where"] = at.NOWHERE


@inner
def return_exactly(
    pages: np.ndarray,
    blocks: np.ndarray,
    st: np.ndarray,
    track: np.ndarray,
    zone: int,
    pfn: int,
    order: int,
    migratetype: int,
) -> None:
    """Free pages to the buddy by the model's rule; what they merge into has a known place."""
    free_to_buddy(pages, blocks, st, zone, pfn, order, migratetype)
    head = containing_buddy(pages, st, pfn, order)
    part = pfn
    for current in range(order, int(pages[head]["order"])):
        track[part ^ (1 << current)]["mark"] = KNOWN
        part &= ~(1 << current)
    track[pfn]["mark"] = KNOWN
    track[head]["mark"] = KNOWN


@inner
def return_directly(
    pages: np.ndarray,
    blocks: np.ndarray,
    st: np.ndarray,
    track: np.ndarray,
    zone: int,
    pfn: int,
    order: int,
) -> None:
    """Free pages that no list takes, block by block (S5.4)."""
    block_order = st[at.PAGEBLOCK_ORDER]
    piece = min(order, block_order)
    for number in range(1 << (order - piece)):
        first = pfn + (number << piece)
        pages[first]["where"] = at.NOWHERE
        migratetype = int(blocks[first >> block_order]["migratetype"])
        return_exactly(pages, blocks, st, track, zone, first, piece, migratetype)


@inner
def learn_block_type(
    pages: np.ndarray, blocks: np.ndarray, st: np.ndarray, zone: int, pfn: int, migratetype: int
) -> None:
    """Retag a pageblock to the type an event shows; its free pages go to that type's tails."""
    block_order = st[at.PAGEBLOCK_ORDER]
    block = pfn >> block_order
    if int(blocks[block]["migratetype"]) == migratetype:
        return
    count_repair(st, REPAIR_TYPE)
    head = containing_buddy(pages, st, block << block_order, block_order)
    if head < 0:
        move_block_free_pages(pages, blocks, st, zone, block, migratetype)
        return
    order = int(pages[head]["order"])
    account_free(st, zone, int(pages[head]["tag"]), -(1 << order))
    remove_buddy(pages, st, zone, head)
    set_block_types(blocks, st, head, order, migratetype)
    add_buddy(pages, st, zone, head, order, migratetype, True)
    account_free(st, zone, migratetype, 1 << order)
