"""Moving pages as the recording says they moved, whatever the model would have done.

Beside the state stands one `TRACK` record per page frame, and behind the state's words come one
region per pageset with what is noted of it, one per zone, then the counts of repairs.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from pagealloc_model.allocator import layout as at
from pagealloc_model.allocator.buddy import (
    __add_to_free_list,
    __del_page_from_free_list,
    __free_one_page,
    change_pageblock_range,
    move_freepages_block,
)
from pagealloc_model.allocator.lists import list_add, list_add_tail, list_del
from pagealloc_model.allocator.pcp import order_to_pindex
from pagealloc_model.allocator.watermark import account_freepages
from pagealloc_model.base.jit import entry, inner

STEP = at.record(
    "int32 row pfn objects pages asked pid; uint32 gfp; int16 time_bin cpu; uint16 flags; "
    "int8 operation order migratetype zone highest fate found_order found_type",
    align=True,
)
"""A recorded row as a move between true states.

`row` is the trace's row, or for steps made of other sources the row they come before. `objects`
and `pages` are what is left of the run of removals or drains that the step is part of, itself
included; a PUSH has those of the run of drains that follows it. `asked`, where a kprobe tells it,
is what the kernel asked for in the run of removals that begins here. SNAPSHOT and SNAPSHOT_END
have pcp->count and pcp->high in `objects` and `pages`. FREE_READ has the zone's free pages in
`pages`, those of reserved blocks in `objects` (-1 if unknown) and its boost in `asked`. `highest`
is the highest zone type that a request may use and `gfp` its word, also of the request that a run
of removals serves. `fate` is the operation that moves the page's first frame next, NOTHING if none
does. `found_order` and `found_type` are a fallback's (T6); in a run of drains, and the push before
it, `found_order` is that of its last page; pushes and drains have the type of the list that the
page is next taken from in `found_type`.
"""

NOTHING, POP, PUSH, REMOVE, DRAIN, FAILED, BATCHED, DEFERRED = range(8)
SNAPSHOT, SNAPSHOT_END, FREE_READ, TICK_OPENS, TICK_OVER = range(8, 13)
RECLAIM_STARTS, RECLAIM_STOPS = 13, 14
ISOLATED = 15
"""ISOLATED: compaction takes `pages` free pages of the zone (T7)."""

RUN_FIRST = 1
"""A run begins with this step."""
USED_AT_ONCE = 2
"""The CPU's first event after the run is the allocation of this very page."""
AFTER_PUSH = 4
"""The run of drains follows a push by the same task on the same CPU and zone."""
KWORKER = 8
"""The task is a kworker."""
FALLBACK = 16
"""Taken from another type's list (T6)."""
OWNERSHIP = 32
"""The fallback made the block the requester's."""
UNSEEN = 64
"""A free without an event of its own, known from what happens to the page next."""
NESTED = 128
"""An interrupt's, while its CPU was putting a batch on lists of its zone: locked ones (S4.10)."""
DIRECT = 256
"""A kprobe shows that the page went past the lists."""
ALL_FLAGS = 511


@entry
def match_batched(steps: np.ndarray, last_free: np.ndarray) -> None:
    """Move a batched free's push to its mm_page_free_batched row (T3).

    Args:
        steps: mm_page_free as PUSH, mm_page_free_batched as BATCHED. A matched pair becomes
            DEFERRED and PUSH with BATCHED in `fate`, a BATCHED without a free NOTHING.
        last_free: int32 zeros, one per page frame.
    """
    for number in range(len(steps)):
        operation = int(steps[number]["operation"])
        pfn = int(steps[number]["pfn"])
        if operation == PUSH:
            last_free[pfn] = number + 1
        elif operation == BATCHED:
            freed = int(last_free[pfn]) - 1
            steps[number]["operation"] = NOTHING
            if freed >= 0:
                steps[number]["operation"] = PUSH
                steps[number]["fate"] = BATCHED
                steps[number]["order"] = steps[freed]["order"]
                steps[freed]["operation"] = DEFERRED
                last_free[pfn] = 0


@entry
def note_nesting(steps: np.ndarray, waiting: np.ndarray, opened: np.ndarray) -> None:
    """Flag what an interrupt allocates or frees during a batch.

    Its CPU is putting a batch on lists of that zone. A batch locks the lists of one zone at a time,
    those of the page it puts there (S4.11).

    Args:
        steps: in time order, batched frees matched.
        waiting: int32 zeros, one per CPU.
        opened: int8 zeros, one per CPU; becomes one more than the zone of the lists locked.
    """
    for number in range(len(steps)):
        operation = int(steps[number]["operation"])
        cpu = int(steps[number]["cpu"])
        if operation == DEFERRED:
            waiting[cpu] = 1 if opened[cpu] else waiting[cpu] + 1
            opened[cpu] = 0
        elif operation == PUSH and int(steps[number]["fate"]) == BATCHED:
            waiting[cpu] -= 1
            opened[cpu] = steps[number]["zone"] + 1 if waiting[cpu] > 0 else 0
        elif opened[cpu] == steps[number]["zone"] + 1 and POP <= operation <= REMOVE:
            steps[number]["flags"] |= NESTED


@entry
def note_fates(steps: np.ndarray, upcoming: np.ndarray, upcoming_type: np.ndarray) -> None:
    """Write every step's `fate`.

    Pushes and drains get the type that the page is next taken as.

    Args:
        steps: in time order.
        upcoming: int8 zeros, one per page frame; at the end the first operation of each frame.
        upcoming_type: int8, one per page frame, filled with -1; that operation's type.
    """
    for number in range(len(steps) - 1, -1, -1):
        operation = int(steps[number]["operation"])
        if operation < POP or operation > DRAIN:
            continue
        pfn = int(steps[number]["pfn"])
        steps[number]["fate"] = upcoming[pfn]
        if operation in (PUSH, DRAIN):
            steps[number]["found_type"] = upcoming_type[pfn]
        for page in range(pfn, pfn + (1 << int(steps[number]["order"]))):
            upcoming[page] = operation
            upcoming_type[page] = steps[number]["migratetype"]


@inner
def same_owner(steps: np.ndarray, number: int, after: int) -> bool:
    """Return whether two steps are of one task and zone."""
    same_task = int(steps[after]["pid"]) == int(steps[number]["pid"])
    return same_task and int(steps[after]["zone"]) == int(steps[number]["zone"])


@entry
def note_runs(steps: np.ndarray, following: np.ndarray, ends: np.ndarray) -> None:
    """Measure runs of removals and of drains on each CPU.

    It writes `objects`, `pages`, `flags`.

    Args:
        steps: in time order; only rows of the trace among them.
        following: int64, filled with -1, one per CPU.
        ends: int32, filled with -1, one per step; room for the step after each run.
    """
    for number in range(len(steps) - 1, -1, -1):
        operation = int(steps[number]["operation"])
        order = int(steps[number]["order"])
        cpu = int(steps[number]["cpu"])
        after = following[cpu]
        following[cpu] = number
        is_related = after >= 0 and same_owner(steps, number, after)
        if operation == PUSH and is_related and int(steps[after]["operation"]) == DRAIN:
            steps[number]["objects"] = steps[after]["objects"]
            steps[number]["pages"] = steps[after]["pages"]
            steps[number]["found_order"] = steps[after]["found_order"]
            steps[after]["flags"] |= AFTER_PUSH
        if operation != REMOVE and operation != DRAIN:
            continue
        steps[number]["objects"] = 1
        steps[number]["pages"] = 1 << order
        steps[number]["flags"] |= RUN_FIRST
        if operation == DRAIN:
            steps[number]["found_order"] = order
        end = after
        alike = operation == DRAIN or (after >= 0 and int(steps[after]["order"]) == order)
        if is_related and alike and int(steps[after]["operation"]) == operation:
            steps[number]["objects"] += steps[after]["objects"]
            steps[number]["pages"] += steps[after]["pages"]
            steps[after]["flags"] &= ALL_FLAGS - RUN_FIRST
            if operation == DRAIN:
                steps[number]["found_order"] = steps[after]["found_order"]
            end = int(ends[after])
        ends[number] = end
        if (
            end >= 0
            and int(steps[end]["operation"]) == POP
            and int(steps[end]["pfn"]) == int(steps[number]["pfn"])
            and int(steps[end]["order"]) == order
        ):
            steps[number]["flags"] |= USED_AT_ONCE
            steps[number]["highest"] = steps[end]["highest"]
            steps[number]["gfp"] = steps[end]["gfp"]


@entry
def find_unseen_frees(
    m: at.Arrays,
    steps: np.ndarray,
    live: np.ndarray,
    pushed: np.ndarray,
    anchors: np.ndarray,
    drained: np.ndarray,
    found: np.ndarray,
) -> int:
    """Find frees that no event shows.

    Allocated pages that are allocated or drained again were freed without an event. A page popped
    was pushed after the list's last visible operation, or with the unseen page popped just before;
    a page drained was pushed after the page drained just before it.

    Args:
        m: the machine, for the number of lists.
        steps: in time order, fates noted.
        live: bool, one per page frame, all false.
        pushed: int32, one per page frame, filled with -1: the step that pushed it last.
        anchors: int32, one per pageset and list: the step after which an unseen push fell.
        drained: int32, one per CPU, filled with -1: the same for the last page drained.
        found: int32, shape (room, 2): filled with step and anchor.

    Returns:
        How many were found; those beyond the room are not kept.
    """
    count = 0
    for number in range(len(steps)):
        operation = int(steps[number]["operation"])
        if operation < POP or operation > DRAIN:
            continue
        pfn = int(steps[number]["pfn"])
        cpu = int(steps[number]["cpu"])
        order = int(steps[number]["order"])
        migratetype = int(steps[number]["migratetype"])
        if operation == PUSH:
            migratetype = int(steps[number]["found_type"])
        index = -1
        if 0 <= migratetype < at.PCP_TYPES:
            index = order_to_pindex(m, order, migratetype)
        place = (int(steps[number]["zone"]) * m.st[at.NR_CPUS] + cpu) * at.PCP_LISTS_MAX + index
        takes = operation in (POP, DRAIN)
        if takes and live[pfn] and index >= 0:
            anchor = anchors[place] if operation == POP else drained[cpu]
            if anchor >= 0:
                if count < len(found):
                    found[count, 0] = number
                    found[count, 1] = anchor
                count += 1
        elif operation == DRAIN:
            drained[cpu] = pushed[pfn]
        elif index >= 0 and operation != REMOVE:
            anchors[place] = number
            if operation == PUSH:
                pushed[pfn] = number
        for page in range(pfn, pfn + (1 << order)):
            live[page] = operation == POP
    return min(count, len(found))


TRACK = at.record("int32 next prev null_list mark; int8 fate unsure passed null_type")
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

NOTE_REFILLED, NOTE_RUN_LISTED, NOTE_TICK, NOTE_DRAIN_INDEX, NOTE_DRAIN_FROM = range(5)
NOTE_UNSURE, NOTE_HIGH, NOTE_ALLOC_FACTOR, NOTE_FREE_COUNT = range(5, 9)
NOTE_PREV_FREE_HIGH_ORDER, NOTE_SLACK, NOTE_REMAINDER, NOTE_READING = range(9, 13)
NOTE_LISTED_LEAST, NOTE_LISTED_MOST, NOTE_HIGH_LEAST, NOTE_HIGH_MOST = range(13, 17)
NOTE_FREE_HELD = 17
NOTE_WORDS = 24
NOTE_STRIDE = NOTE_WORDS + at.PCP_LISTS_MAX * at.LIST_WORDS
"""What is noted of a pageset, then the null model's lists. REFILLED: one more than the page frame
whose allocation caused the last refill; TICK: as below; DRAIN_INDEX and DRAIN_FROM: list and
pageset that the run of drains going on has come to; UNSURE: what is not known of its limits, and
pages on the lists that came or go without an event, hence at a time unknown; HIGH to
PREV_FREE_HIGH_ORDER: the words at their upper bound (see `tuning_words`); REMAINDER: at most how
many counted pages never move; SLACK: how many fewer these may be; READING: 1 while a snapshot is
read, 2 if `high` has moved meanwhile; LISTED and HIGH: what the words were within meanwhile;
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
of the last fallback. Then the zone's words at their upper bound; its free pages as snapshots and
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
REPAIR_OTHER_LIST, REPAIR_OTHER_CPU, REPAIR_IN_BUDDY, REPAIR_NOWHERE = range(4)
REPAIR_HIDDEN, REPAIR_START, REPAIR_TYPE, REPAIR_TUNING, REPAIR_ASTRAY, REPAIRS = range(4, 10)


class Judged(NamedTuple):
    """The recording, and what judging knows and counts; judging functions call it `j`.

    Attributes:
        steps: `STEP` records in time order; a push's migratetype is written.
        track: `TRACK` records, one per page frame.
        tally: int64, shape (choices, slots, OUTCOMES); added to.
        misses: int64, shape (choices, MISSES_KEPT + 1, MISS_COLUMNS); added to.
    """

    steps: np.ndarray
    track: np.ndarray
    tally: np.ndarray
    misses: np.ndarray


class Step(NamedTuple):
    """One step's columns, see `STEP`, and its number; judging functions call it `s`."""

    number: int
    pfn: int
    objects: int
    pages: int
    asked: int
    gfp: int
    cpu: int
    flags: int
    operation: int
    order: int
    migratetype: int
    zone: int
    highest: int
    fate: int
    found_order: int
    found_type: int


@inner
def step_at(j: Judged, number: int) -> Step:
    """Return a step."""
    return Step(
        number,
        int(j.steps[number]["pfn"]),
        int(j.steps[number]["objects"]),
        int(j.steps[number]["pages"]),
        int(j.steps[number]["asked"]),
        int(j.steps[number]["gfp"]),
        int(j.steps[number]["cpu"]),
        int(j.steps[number]["flags"]),
        int(j.steps[number]["operation"]),
        int(j.steps[number]["order"]),
        int(j.steps[number]["migratetype"]),
        int(j.steps[number]["zone"]),
        int(j.steps[number]["highest"]),
        int(j.steps[number]["fate"]),
        int(j.steps[number]["found_order"]),
        int(j.steps[number]["found_type"]),
    )


@inner
def notes_at(m: at.Arrays, pcp: int) -> int:
    """Return the offset of what is noted of the pageset at `pcp`."""
    pagesets = m.st[at.NR_ZONES] * m.st[at.NR_CPUS]
    first = m.st.shape[0] - REPAIRS - m.st[at.NR_ZONES] * ZONE_NOTES - pagesets * NOTE_STRIDE
    return first + (pcp - m.st[at.PCP_BASE]) // at.PCP_STRIDE * NOTE_STRIDE


@inner
def zone_notes_at(m: at.Arrays, zone: int) -> int:
    """Return the offset of what is noted of a zone."""
    return m.st.shape[0] - REPAIRS - (m.st[at.NR_ZONES] - zone) * ZONE_NOTES


@inner
def count_repair(m: at.Arrays, kind: int) -> None:
    """Count a correction of the state that no event explains."""
    m.st[m.st.shape[0] - REPAIRS + kind] += 1


@inner
def pageset_of_list(m: at.Arrays, lst: int) -> int:
    """Return the offset of the pageset that a list belongs to."""
    base = m.st[at.PCP_BASE]
    return base + (lst - base) // at.PCP_STRIDE * at.PCP_STRIDE


@inner
def put_on_list(
    m: at.Arrays, j: Judged, lst: int, pfn: int, order: int, fate: int, tail: bool
) -> None:
    """Put a page at a per-CPU list's head or tail; the caller counts."""
    m.pages[pfn]["order"] = order
    m.pages[pfn]["where"] = at.ON_PCP
    j.track[pfn]["mark"] = lst
    j.track[pfn]["fate"] = fate
    j.track[pfn]["unsure"] = 0
    j.track[pfn]["passed"] = 0
    if tail:
        list_add_tail(m.pages, m.st, lst, pfn)
    else:
        list_add(m.pages, m.st, lst, pfn)


@inner
def is_listed(m: at.Arrays, pfn: int, order: int) -> bool:
    """Return whether a page of this order is on a per-CPU list."""
    return int(m.pages[pfn]["where"]) == at.ON_PCP and int(m.pages[pfn]["order"]) == order


@inner
def leave_list(m: at.Arrays, j: Judged, pfn: int) -> None:
    """Take a page off its per-CPU list and out of the pageset's count."""
    lst = abs(int(j.track[pfn]["mark"]))
    if int(j.track[pfn]["fate"]) != ASTRAY:
        list_del(m.pages, m.st, lst, pfn)
    pcp = pageset_of_list(m, lst)
    m.st[pcp + at.PCP_COUNT] -= 1 << int(m.pages[pfn]["order"])
    if int(j.track[pfn]["unsure"]):
        j.track[pfn]["unsure"] = 0
        notes = notes_at(m, pcp)
        m.st[notes + NOTE_UNSURE] -= 1
        m.st[notes + NOTE_FREE_COUNT] += 1 << int(m.pages[pfn]["order"])
        m.st[pcp + at.PCP_ALLOC_FACTOR] >>= 1
    m.pages[pfn]["where"] = at.NOWHERE
    j.track[pfn]["mark"] = KNOWN


@inner
def list_at(pcp: int, index: int) -> int:
    """Return the offset of a pageset's list."""
    return pcp + at.PCP_LISTS + index * at.LIST_WORDS


@inner
def drop_hidden(m: at.Arrays, j: Judged, end: int, pfn: int) -> int:
    """Drop what left a list's end unseen (T9).

    These are the pages before `pfn` that no event takes off it. `end` is the offset of the list's
    head or tail. A list longer than counted, or with a page that is no list's, is corrupt:
    `st[CORRUPT_AT]` says where.
    """
    dropped = 0
    page = m.st[end]
    first = pageset_of_list(m, end) + at.PCP_LISTS
    left = m.st[end - (end - first) % at.LIST_WORDS + at.ENTRIES]
    while page >= 0 and page != pfn:
        if dropped >= left or int(m.pages[page]["where"]) != at.ON_PCP:
            m.st[at.CORRUPT_AT] = page + 1
            break
        fate = int(j.track[page]["fate"])
        if fate in (POP, DRAIN):
            break
        leave_list(m, j, page)
        count_repair(m, REPAIR_HIDDEN)
        dropped += 1
        page = m.st[end]
    return dropped


@inner
def note_fate(j: Judged, s: Step) -> None:
    """Note the operation that moves pages next, as they return to the buddy."""
    is_retyped = s.fate == REMOVE and s.found_type >= at.PCP_TYPES
    for page in range(s.pfn, s.pfn + (1 << s.order)):
        j.track[page]["fate"] = RETYPED if is_retyped else s.fate


@inner
def leaves_unseen(m: at.Arrays, j: Judged, head: int) -> bool:
    """Return whether a free buddy's pages next appear elsewhere (T9)."""
    for page in range(head, head + (1 << int(m.pages[head]["order"]))):
        fate = int(j.track[page]["fate"])
        if fate in (POP, PUSH, DRAIN, RETYPED):
            return True
    return False


@inner
def pass_over(m: at.Arrays, j: Judged, pfn: int) -> None:
    """Note that the kernel passed a page over; unlinked the second time."""
    if not int(j.track[pfn]["passed"]):
        j.track[pfn]["passed"] = 1
        return
    list_del(m.pages, m.st, abs(int(j.track[pfn]["mark"])), pfn)
    j.track[pfn]["fate"] = ASTRAY
    count_repair(m, REPAIR_ASTRAY)


@inner
def containing_buddy(m: at.Arrays, pfn: int, order: int) -> int:
    """Return the free buddy that holds `1 << order` pages at `pfn`, or -1."""
    for current in range(order, m.st[at.MAX_ORDER] + 1):
        head = pfn & ~((1 << current) - 1)
        if int(m.pages[head]["where"]) == at.BUDDY and int(m.pages[head]["order"]) >= current:
            return head
    return -1


@inner
def take_exactly(m: at.Arrays, j: Judged, zone: int, head: int, pfn: int, order: int) -> None:
    """Cut `1 << order` pages at `pfn` out of a free buddy (S5.2).

    The buddy is at `head`; the rest goes to list heads. The kernel always takes a buddy's low end.
    Where the pages lie elsewhere in one that has been there since the start, its lower part was not
    free, or apart: it is left out until an event shows it.
    """
    current = int(m.pages[head]["order"])
    migratetype = int(m.pages[head]["tag"])
    guessed = j.track[head]["mark"] == SINCE_START
    __del_page_from_free_list(m, zone, head)
    j.track[head]["mark"] = KNOWN
    account_freepages(m, zone, migratetype, -(1 << current))
    while current > order:
        current -= 1
        other = (pfn & ~((1 << current) - 1)) ^ (1 << current)
        if other < pfn and guessed:
            count_repair(m, REPAIR_START)
            continue
        __add_to_free_list(m, zone, other, current, migratetype, False)
        j.track[other]["mark"] = KNOWN
        account_freepages(m, zone, migratetype, 1 << current)


@inner
def drop_buddy(m: at.Arrays, j: Judged, zone: int, head: int) -> None:
    """Take a free buddy out of the state."""
    account_freepages(m, zone, int(m.pages[head]["tag"]), -(1 << int(m.pages[head]["order"])))
    __del_page_from_free_list(m, zone, head)
    j.track[head]["mark"] = KNOWN


@inner
def vacate(m: at.Arrays, j: Judged, zone: int, pfn: int, order: int) -> None:
    """Take pages out of wherever the state has them; count repairs."""
    for current in range(order, m.st[at.MAX_ORDER] + 1):
        head = pfn & ~((1 << current) - 1)
        where = int(m.pages[head]["where"])
        if int(m.pages[head]["order"]) < current:
            continue
        if where == at.BUDDY:
            count_repair(m, REPAIR_IN_BUDDY)
            take_exactly(m, j, zone, head, pfn, order)
            return
        if where == at.ON_PCP:
            count_repair(m, REPAIR_OTHER_LIST)
            leave_list(m, j, head)
            return
    for page in range(pfn, pfn + (1 << order)):
        if int(m.pages[page]["where"]) == at.BUDDY:
            count_repair(m, REPAIR_IN_BUDDY)
            drop_buddy(m, j, zone, page)
        elif int(m.pages[page]["where"]) == at.ON_PCP:
            count_repair(m, REPAIR_OTHER_LIST)
            leave_list(m, j, page)
        m.pages[page]["where"] = at.NOWHERE


@inner
def return_exactly(
    m: at.Arrays, j: Judged, zone: int, pfn: int, order: int, migratetype: int
) -> None:
    """Free pages to the buddy by the model's rule; their place is known."""
    __free_one_page(m, zone, pfn, order, migratetype, False)
    head = containing_buddy(m, pfn, order)
    part = pfn
    for current in range(order, int(m.pages[head]["order"])):
        j.track[part ^ (1 << current)]["mark"] = KNOWN
        part &= ~(1 << current)
    j.track[pfn]["mark"] = KNOWN
    j.track[head]["mark"] = KNOWN


@inner
def return_directly(m: at.Arrays, j: Judged, zone: int, pfn: int, order: int) -> None:
    """Free pages that no list takes, block by block (S5.4)."""
    block_order = m.st[at.PAGEBLOCK_ORDER]
    piece = min(order, block_order)
    for number in range(1 << (order - piece)):
        first = pfn + (number << piece)
        m.pages[first]["where"] = at.NOWHERE
        migratetype = int(m.blocks[first >> block_order]["migratetype"])
        return_exactly(m, j, zone, first, piece, migratetype)


@inner
def learn_block_type(m: at.Arrays, zone: int, pfn: int, migratetype: int) -> None:
    """Retag a block to the type an event shows, free pages to its tails."""
    block_order = m.st[at.PAGEBLOCK_ORDER]
    block = pfn >> block_order
    if int(m.blocks[block]["migratetype"]) == migratetype:
        return
    count_repair(m, REPAIR_TYPE)
    head = containing_buddy(m, block << block_order, block_order)
    if head < 0:
        move_freepages_block(m, zone, block, migratetype)
        return
    order = int(m.pages[head]["order"])
    account_freepages(m, zone, int(m.pages[head]["tag"]), -(1 << order))
    __del_page_from_free_list(m, zone, head)
    change_pageblock_range(m, head, order, migratetype)
    __add_to_free_list(m, zone, head, order, migratetype, True)
    account_freepages(m, zone, migratetype, 1 << order)
