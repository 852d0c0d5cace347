"""Carries a state that was read while its machine went on to one instant, by the events meanwhile.

Pages were read one piece after the other. What each became until the instant its events tell, and
the links that it had when it was read tell its place beside the pages that no event names.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from pagealloc_model.base.errors import UsageError
from pagealloc_model.base.jit import entry, inner
from pagealloc_model.recording.page_frames import LARGEST_ORDER
from pagealloc_model.recording.record.machine_state import (
    HUGE_ORDER,
    PCP_ORDERS,
    Pages,
    lru_lists_of,
)
from pagealloc_model.recording.state_file import (
    ON_FREE_LIST,
    ON_LRU_LIST,
    ON_PCP_LIST,
    MachineState,
)
from pagealloc_model.recording.state_instant import counts_before
from pagealloc_model.recording.trace.bulk import BULK_RETURN, bulk_pages
from pagealloc_model.recording.trace.columns import Event, Trace

ABSENT, USED, BUDDY, LISTLESS, PCP = range(5)
"""Where a page frame is: nowhere, in use, a free buddy, free on no known list, a per-CPU list."""
_TAKE, _POP, _PUSH, _BATCHED, _DRAIN = range(5)
_OPERATIONS = {
    Event.ALLOC: _POP,
    Event.FREE: _PUSH,
    Event.FREE_BATCHED: _BATCHED,
    Event.ZONE_LOCKED: _TAKE,
    Event.PCPU_DRAIN: _DRAIN,
    Event.EXTFRAG: _TAKE,
}
_MOVABLE, _PCP_TYPES = 1, 3
_LAG_NS = 5_000_000
"""How far an event may be from what it tells, as where its task lost the CPU between the two."""
_MOST_HOPS = 4096
LARGEST_MERGED = 10
"""Order of the largest buddies (MAX_PAGE_ORDER, S1.1)."""
_SPAN_ORDER = 9
"""Order of what is read in one piece at least."""
_NOWHERE = -1
_HEADS = -2
"""Links to lists' heads: minus two and less."""

POSITION = "pages whose place in their list is not known"
LISTLESS_PAGES = "free pages whose list is not known"
ALLOCATED = "pages allocated meanwhile, whose flags are not known"
LRU_POSITION = "pages whose place in their LRU list is not known"
AGAINST = "pages of which events and reading contradict each other"
FREE_COUNT = "pages by which free lists and counters differ"
PCP_COUNT = "pages by which per-CPU lists and counters differ"
LOST = "events lost meanwhile"


class ListHead(NamedTuple):
    """A list's head: its address, and the list's kind, zone, CPU, order and type."""

    address: int
    row: tuple[int, int, int, int, int]


@dataclass(frozen=True, kw_only=True, eq=False)
class MovingReading:
    """A state read while its machine went on.

    Attributes:
        state: without lists; all but its pages was read at the instant.
        pages: read before the instant, piece after piece.
        heads: of all lists.
        isolated: migratetype of isolated pageblocks, -1 for none.
        instant_ns: the instant that pages are carried to, when the last piece had been read.
        reader: thread that read it.
    """

    state: MachineState
    pages: Pages
    heads: tuple[ListHead, ...]
    isolated: int
    instant_ns: int
    reader: int


class _Frames(NamedTuple):
    """By page frame: where it is, and what is known of the entry that begins there.

    `order` is a free buddy's, `list_order` a per-CPU entry's, both -1 where none begins; `cpu` and
    `type` are a per-CPU entry's. `stamp` is one more than the step that put it on its list, 0 if it
    lay there before; `tail` is 1 if at the tail. `touched` is 1 from the first step after the
    page was read.
    """

    where: np.ndarray
    order: np.ndarray
    list_order: np.ndarray
    cpu: np.ndarray
    type: np.ndarray
    stamp: np.ndarray
    tail: np.ndarray
    touched: np.ndarray


_STEP = np.dtype(
    [
        ("time_ns", np.int64),
        ("pfn", np.int64),
        ("operation", np.int8),
        ("order", np.int8),
        ("type", np.int8),
        ("cpu", np.int16),
    ]
)


def carried_state(reading: MovingReading, trace: Trace) -> MachineState:
    """The state at a reading's instant.

    What no event tells is named and counted in `about["carried"]`.

    Args:
        reading: what was read.
        trace: events from before the reading on; its clock is CLOCK_MONOTONIC.

    Raises:
        UsageError: the events begin after the reading.
    """
    state, pages = reading.state, reading.pages
    begin_ns = int(pages.pieces[:, 2].min(initial=reading.instant_ns))
    rows = trace.time_ns.searchsorted([begin_ns, reading.instant_ns])
    if not len(trace) or int(trace.time_ns[0]) > reading.instant_ns:
        raise UsageError("no event was recorded before the state had been read")
    frames = _as_read(reading)
    as_read = frames.where.copy(), frames.order.copy()
    odd = np.zeros(1, np.int64)
    steps = _steps(trace, slice(*rows.tolist()))
    blocks = state.block_type.astype(np.int64)
    table = np.array([head.row for head in reading.heads], np.int64).reshape(-1, 5)
    has_huge = bool(((table[:, 0] == ON_PCP_LIST) & (table[:, 3] == HUGE_ORDER)).any())
    words = state.pageblock_order, HUGE_ORDER if has_huge else -1, reading.isolated
    advance(
        steps,
        _times_of_spans(pages),
        frames,
        blocks,
        np.array(words, np.int64),
        np.full(len(frames.where), -1, np.int8),
        odd,
    )
    in_flight = _in_flight(trace, int(rows[1]), frames)
    frames.where[in_flight] = USED
    frames.list_order[in_flight] = -1
    listed, columns, losses = _lists(reading, frames, as_read, table)
    losses[AGAINST] += int(odd[0])
    flags, refcount, orders, allocated = _words(state, frames, as_read[0], steps)
    losses[ALLOCATED] = allocated
    lost = trace.losses
    overlaps = (lost.start_ns < reading.instant_ns) & (lost.end_ns > begin_ns)
    losses[LOST] = int(lost.take(np.flatnonzero(overlaps)).total)
    carried = replace(
        state,
        page_flags=flags,
        page_refcount=refcount,
        page_order=orders,
        **columns,
        listed_pfn=listed,
        event_count=counts_before(trace, state, reading.instant_ns),
    )
    carried, differences = _reconciled(carried)
    losses |= differences
    about = {
        **state.about,
        "read_ns": reading.instant_ns - begin_ns,
        "carried": {
            "instant_ns": reading.instant_ns,
            "events": len(steps),
            "own_pages": _allocated_by(reading.reader, trace, slice(*rows.tolist())),
            "losses": {name: count for name, count in losses.items() if count},
        },
    }
    return replace(carried, about=about)


def _steps(trace: Trace, rows: slice) -> np.ndarray:
    """Events as steps, in time order."""
    operations = np.full(max(Event) + 1, -1, np.int8)
    operations[list(_OPERATIONS)] = list(_OPERATIONS.values())
    steps = np.zeros(len(trace.time_ns[rows]), _STEP)
    for name in ("time_ns", "pfn", "order", "cpu"):
        steps[name] = getattr(trace, name)[rows]
    steps["operation"] = operations[trace.event[rows]]
    steps["type"] = trace.migratetype[rows]
    bulk = _bulk_steps(trace, *trace.time_ns[rows][[0, -1]].tolist()) if len(steps) else steps
    steps = np.concatenate([steps, bulk])
    steps = steps[steps["pfn"] >= 0]
    return steps[np.argsort(steps["time_ns"], kind="stable")]


def _bulk_steps(trace: Trace, begin_ns: int, end_ns: int) -> np.ndarray:
    """Pages that alloc_pages_bulk() took, where a probe shows which."""
    returns = trace.tables.get(BULK_RETURN)
    if returns is None:
        return np.zeros(0, _STEP)
    times = np.asarray(returns["time_ns"])
    rows = np.flatnonzero((times >= begin_ns) & (times <= end_ns)).tolist()
    pages = [(row, pfn) for row in rows for pfn in bulk_pages(returns, row)]
    numbers, pfns = np.array(pages, np.int64).reshape(-1, 2).T
    steps = np.zeros(len(numbers), _STEP)
    steps["time_ns"], steps["cpu"] = times[numbers], np.asarray(returns["cpu"])[numbers]
    steps["pfn"], steps["operation"] = trace.frames.indices(pfns), _POP
    return steps


def _allocated_by(thread: int, trace: Trace, rows: slice) -> int:
    """Pages that a thread asked for."""
    own = (trace.pid[rows] == thread) & (trace.event[rows] == Event.ALLOC)
    orders = np.clip(trace.order[rows][own], 0, LARGEST_ORDER)
    return int((np.int64(1) << orders.astype(np.int64)).sum())


def _times_of_spans(pages: Pages) -> np.ndarray:
    """When the piece with each span of 2^9 page frames was read: before, after; (spans, 2)."""
    spans = -(-len(pages.flags) >> _SPAN_ORDER)
    times = np.full((spans, 2), np.iinfo(np.int64).max)
    for first, count, before, after in pages.pieces.tolist():
        times[first >> _SPAN_ORDER : -(-(first + count) >> _SPAN_ORDER)] = before, after
    return times


def _as_read(reading: MovingReading) -> _Frames:
    """Page frames as they were when each was read; a list is not yet known of any."""
    pages = reading.pages
    length = len(pages.flags)
    bits = reading.state.about["flags"]
    reserved = np.uint64(1) << np.uint64(bits.get("reserved", 63))
    where = np.full(length, USED, np.int8)
    where[pages.refcount < 0] = ABSENT
    loose = (pages.refcount == 0) & (pages.next & np.uint64(1) == 0) & (pages.flags & reserved == 0)
    # links that lead to themselves were never on a list
    nodes = np.arange(length, dtype=np.uint64) * np.uint64(pages.size)
    loose &= pages.next != nodes + np.uint64(pages.base + pages.link_offset)
    where[loose] = LISTLESS
    order = pages.free_order.copy()
    cover_buddies(order, where)
    return _Frames(
        where=where,
        order=order,
        list_order=np.full(length, -1, np.int8),
        cpu=np.zeros(length, np.int16),
        type=np.zeros(length, np.int8),
        stamp=np.zeros(length, np.int64),
        tail=np.zeros(length, np.int8),
        touched=np.zeros(length, np.int8),
    )


@entry
def cover_buddies(order: np.ndarray, where: np.ndarray) -> None:
    """No kernel function: mark the page frames of free buddies; what lies in another is none."""
    end = 0
    for pfn in range(len(order)):
        size = 1 << max(int(order[pfn]), 0)
        fits = order[pfn] <= LARGEST_ORDER and pfn & (size - 1) == 0 and pfn + size <= len(order)
        if order[pfn] >= 0 and (pfn < end or not fits):
            order[pfn] = -1
        if order[pfn] >= 0:
            end = pfn + size
        if pfn < end:
            where[pfn] = BUDDY


@inner
def _settle(frames: _Frames, pfn: int, order: int, place: int) -> None:
    """Move the frames of a page; it is on no list then."""
    for frame in range(pfn, min(pfn + (1 << order), len(frames.where))):
        frames.where[frame] = place
        frames.touched[frame] = 1
    frames.list_order[pfn] = -1
    frames.stamp[pfn] = 0


@inner
def _take_out(frames: _Frames, pfn: int, order: int, number: int) -> bool:
    """Take a page out of the buddy that it is part of; the other parts head their lists (S5.2)."""
    for above in range(order, LARGEST_ORDER + 1):
        first = pfn & ~((1 << above) - 1)
        if frames.order[first] != above:
            continue
        frames.order[first] = -1
        frames.stamp[first] = 0
        for half in range(above - 1, order - 1, -1):
            other = (pfn & ~((1 << half) - 1)) ^ (1 << half)
            frames.order[other] = half
            frames.stamp[other] = number + 1
            frames.tail[other] = 0
        return True
    for frame in range(pfn, min(pfn + (1 << order), len(frames.order))):
        frames.order[frame] = -1
    return False


@inner
def _give_back(
    frames: _Frames, blocks: np.ndarray, block_order: int, pfn: int, order: int, number: int
) -> None:
    """Free a page to the buddy allocator, merged as types allow (S5.3)."""
    _settle(frames, pfn, order, BUDDY)
    length = len(frames.order)
    while order < LARGEST_MERGED:
        buddy = pfn ^ (1 << order)
        if buddy >= length or frames.order[buddy] != order:
            break
        if order >= block_order:
            one, other = blocks[pfn >> block_order], blocks[buddy >> block_order]
            if one != other and max(one, other) >= _PCP_TYPES:
                break
        frames.order[buddy] = -1
        frames.stamp[buddy] = 0
        pfn &= ~(1 << order)
        order += 1
    frames.order[pfn] = order
    frames.stamp[pfn] = number + 1
    above = (pfn & ~(1 << order)) ^ (1 << (order + 1))
    likely = order < LARGEST_MERGED - 1 and above < length and frames.order[above] == order + 1
    frames.tail[pfn] = likely


@entry
def advance(
    steps: np.ndarray,
    times: np.ndarray,
    frames: _Frames,
    blocks: np.ndarray,
    words: np.ndarray,
    freed_order: np.ndarray,
    odd: np.ndarray,
) -> None:
    """No kernel function: apply to each page what happened to it after it was read.

    Earlier steps say only on which list a page lies that was read there, and since when. A step
    that is near the reading may have been seen by it, so that it may find itself done.

    Args:
        steps: the events of the reading in time order.
        times: before and after the reading of each span.
        frames: as they were read; becomes what they are at the end.
        blocks: migratetype of each pageblock.
        words: order of a pageblock, of huge pages with per-CPU lists (-1: none), migratetype of
            isolated blocks.
        freed_order: -1 by page frame; room for the order of its last free.
        odd: becomes the pages that a step took from where they were not.
    """
    block_order, huge_order, isolated = int(words[0]), int(words[1]), int(words[2])
    for number in range(len(steps)):
        step = steps[number]
        pfn, order, operation = int(step["pfn"]), int(step["order"]), int(step["operation"])
        if operation == _PUSH and pfn < len(freed_order):
            freed_order[pfn] = order
        if operation == _BATCHED and pfn < len(freed_order):
            order = int(freed_order[pfn])
        if order < 0 or order > LARGEST_MERGED or pfn + (1 << order) > len(frames.where):
            continue
        if pfn & ((1 << order) - 1):
            continue
        kind = int(blocks[pfn >> block_order])
        by_list = order < PCP_ORDERS or order == huge_order
        if operation in (_PUSH, _BATCHED):
            by_list = by_list and kind != isolated
        else:
            kind = int(step["type"])
        kind = kind if 0 <= kind < _PCP_TYPES else _MOVABLE
        is_seen = int(step["time_ns"]) < times[pfn >> _SPAN_ORDER, 0] - _LAG_NS
        if operation in (_TAKE, _PUSH, _BATCHED) and by_list:
            if not is_seen:
                if frames.where[pfn] == BUDDY and not _take_out(frames, pfn, order, number):
                    odd[0] += 1 << order
                _settle(frames, pfn, order, PCP)
            frames.list_order[pfn] = order
            frames.cpu[pfn] = step["cpu"]
            frames.type[pfn] = kind
            frames.stamp[pfn] = number + 1
            frames.tail[pfn] = operation == _TAKE
        elif is_seen:
            if frames.list_order[pfn] >= 0:
                frames.stamp[pfn] = 0
            frames.list_order[pfn] = -1
        elif operation in (_TAKE, _POP):
            if frames.where[pfn] == BUDDY and not _take_out(frames, pfn, order, number):
                odd[0] += 1 << order
            _settle(frames, pfn, order, USED)
        elif frames.where[pfn] != BUDDY:
            _give_back(frames, blocks, block_order, pfn, order, number)


def _in_flight(trace: Trace, row: int, frames: _Frames) -> np.ndarray:
    """Pages that were freed before a row, and are put on a list behind it (T3)."""
    end = int(trace.time_ns.searchsorted(trace.time_ns[row] + _LAG_NS)) if row < len(trace) else row
    pfns, first = np.unique(trace.pfn[row:end], return_index=True)
    waiting = pfns[trace.event[row:end][first] == Event.FREE_BATCHED]
    waiting = waiting[(waiting >= 0) & (waiting < len(frames.where))]
    return waiting[(frames.list_order[waiting] >= 0) & (frames.tail[waiting] == 0)]


def _words(
    state: MachineState, frames: _Frames, where_read: np.ndarray, steps: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray, int]:
    """Flags, reference counts and orders of folios; and pages allocated after they were read."""
    moved = frames.touched != 0
    low = np.uint64((1 << (max(state.about["flags"].values(), default=0) + 1)) - 1)
    flags = np.where(moved, state.page_flags & ~low, state.page_flags)
    is_used = frames.where == USED
    refcount = np.where(moved, is_used, state.page_refcount)
    orders = np.where(moved, 0, state.page_order).astype(np.int8)
    asked = steps[(steps["operation"] == _POP) & (steps["order"] > 0)]
    asked = asked[(asked["pfn"] < len(orders)) & (asked["order"] <= LARGEST_ORDER)]
    pfns = asked["pfn"]
    still = moved[pfns] & is_used[pfns]
    orders[pfns[still]] = asked["order"][still]
    return flags, refcount, orders, int((moved & is_used).sum())


class _Entries(NamedTuple):
    """Entries of lists: first page frame, number of the list, and what they are sorted by.

    `part` is 0 for what came to the head meanwhile, 1 for what lay there, 2 for what came to the
    tail; `place` and `within` order what is of one part.
    """

    pfn: np.ndarray
    row: np.ndarray
    part: np.ndarray
    place: np.ndarray
    within: np.ndarray


def _lists(
    reading: MovingReading,
    frames: _Frames,
    as_read: tuple[np.ndarray, np.ndarray],
    table: np.ndarray,
) -> tuple[np.ndarray, dict[str, np.ndarray], dict[str, int]]:
    """Entries of all lists in order, the lists' columns, and what is not known of them."""
    state, pages = reading.state, reading.pages
    zones = _zones_of(state)
    links = _links(reading, frames, as_read, zones)
    loose, losses = _loose_entries(reading, frames, links, zones, table)
    parts = [loose]
    number_of = {head.row: number for number, head in enumerate(reading.heads)}
    # what was put on a list meanwhile
    for kind in (ON_FREE_LIST, ON_PCP_LIST):
        is_free = kind == ON_FREE_LIST
        order = frames.order if is_free else frames.list_order
        pfns = np.flatnonzero((order >= 0) & (frames.stamp > 0))
        place = BUDDY if is_free else PCP
        pfns = pfns[
            (frames.where[pfns] == place) | (not is_free and frames.where[pfns] == LISTLESS)
        ]
        frames.where[pfns] = place
        types = frames.type[pfns]
        if is_free:
            types = state.block_type[pfns >> state.pageblock_order]
        elif len(pfns):
            huge = order[pfns] == HUGE_ORDER
            several = (table[:, 0] == ON_PCP_LIST) & (table[:, 3] == HUGE_ORDER) & (table[:, 4] > 0)
            types = np.where(huge, (types == _MOVABLE) & several.any(), types)
        cpus = np.full(len(pfns), -1) if is_free else frames.cpu[pfns]
        keys = zip(
            zones[pfns].tolist(), cpus.tolist(), order[pfns].tolist(), types.tolist(), strict=True
        )
        row = np.array([number_of.get((kind, *key), -1) for key in keys], np.int64)
        at_tail = frames.tail[pfns] != 0
        stamp = np.where(at_tail, frames.stamp[pfns], -frames.stamp[pfns])
        part = np.where(at_tail, 2, 0)
        parts.append(_Entries(pfns, row, part, stamp, np.zeros(len(pfns), np.int64)))
    merged = _Entries(*(np.concatenate(column) for column in zip(*parts, strict=True)))
    known = merged.row >= 0
    merged = _Entries(*(column[known] for column in merged))
    merged, dropped = _apart(merged, table, len(pages.flags))
    losses[AGAINST] = dropped
    losses[LISTLESS_PAGES] = _left_over(merged, table, frames)
    by_place = np.lexsort((merged.within, merged.place, merged.part, merged.row))
    numbers, lengths = np.unique(merged.row[by_place], return_counts=True)
    names = ("kind", "zone", "cpu", "order", "type")
    columns = {f"list_{name}": table[numbers, place] for place, name in enumerate(names)}
    columns["list_length"] = lengths
    return merged.pfn[by_place].astype(np.int32), columns, losses


def _zones_of(state: MachineState) -> np.ndarray:
    """Number of the zone of each page frame, -1 for none."""
    zones = np.full(len(state.page_flags), -1, np.int16)
    for number in np.flatnonzero(state.zone_spanned > 0).tolist():
        first = int(state.zone_start[number])
        zones[first : first + int(state.zone_spanned[number])] = number
    return zones


def _apart(entries: _Entries, table: np.ndarray, length: int) -> tuple[_Entries, int]:
    """Entries of which none lies in another one; and the pages of those left out."""
    is_lru = table[entries.row, 0] == ON_LRU_LIST
    sizes = np.int64(1) << np.maximum(table[entries.row, 3], 0)
    keep = np.ones(len(entries.pfn), bool)
    for numbers in (np.flatnonzero(is_lru), np.flatnonzero(~is_lru)):
        by_pfn = numbers[np.argsort(entries.pfn[numbers], kind="stable")]
        apart = np.zeros(len(by_pfn), np.int8)
        keep_apart(entries.pfn[by_pfn], sizes[by_pfn], length, apart)
        keep[by_pfn] = apart != 0
    return _Entries(*(column[keep] for column in entries)), int(sizes[~keep].sum())


@entry
def keep_apart(firsts: np.ndarray, sizes: np.ndarray, length: int, apart: np.ndarray) -> None:
    """No kernel function: mark the ascending ranges that begin behind all marked before them."""
    end = 0
    for number in range(len(firsts)):
        if firsts[number] >= end and firsts[number] + sizes[number] <= length:
            apart[number] = 1
            end = firsts[number] + sizes[number]


def _left_over(entries: _Entries, table: np.ndarray, frames: _Frames) -> int:
    """Free pages that are on no list, of those that belong on one."""
    left = (frames.where == LISTLESS) | (frames.where == PCP) | (frames.where == BUDDY)
    rows = table[entries.row]
    for order in np.unique(rows[rows[:, 0] != ON_LRU_LIST, 3]):
        pfns = entries.pfn[(rows[:, 0] != ON_LRU_LIST) & (rows[:, 3] == order)]
        left[(pfns[:, None] + np.arange(1 << int(order))).ravel()] = False
    return int(left.sum())


class _Links(NamedTuple):
    """What lies on one list, and what each page's links say.

    Attributes:
        group: by page frame, what may lie on one list with an entry that only its links place; -1
            where none begins.
        loose: the group of pages of per-CPU lists; those above it are of LRU lists.
        following: links as read, see `_decoded`.
        before: those to the other side.
        after_left: neighbours that are still there, see `neighbours`.
        before_left: those on the other side.
        after_gone: the page that left, of which nothing more is known, where there is no such one.
        before_gone: the same on the other side.
    """

    group: np.ndarray
    loose: int
    following: np.ndarray
    before: np.ndarray
    after_left: np.ndarray
    before_left: np.ndarray
    after_gone: np.ndarray
    before_gone: np.ndarray


def _links(
    reading: MovingReading,
    frames: _Frames,
    as_read: tuple[np.ndarray, np.ndarray],
    zones: np.ndarray,
) -> _Links:
    """Links between the entries that no event put where they are."""
    state, pages = reading.state, reading.pages
    where_read, order_read = as_read
    lru = _lru_numbers(state, zones)
    loose = (int(zones.max(initial=0)) + 1) * (LARGEST_ORDER + 1)
    groups = [_buddy_groups(zones, order) for order in (frames.order, order_read)]
    groups[0][frames.stamp > 0] = -1
    for group, where in zip(groups, (frames.where, where_read), strict=True):
        group[where == LISTLESS] = loose
        on_lru = (lru >= 0) & (where == USED)
        if where is frames.where:
            on_lru &= frames.touched == 0
            group[(where == LISTLESS) & (frames.list_order >= 0)] = -1
        group[on_lru] = loose + 1 + lru[on_lru]
    addresses = np.array([head.address for head in reading.heads], np.uint64)
    by_address = np.argsort(addresses, kind="stable")
    sides, left, gone = [], [], []
    for words in (pages.next, pages.prev):
        sides.append(_decoded(words, pages, addresses[by_address], by_address))
        left.append(np.full(len(words), _NOWHERE, np.int64))
        gone.append(np.full(len(words), _NOWHERE, np.int64))
        neighbours(sides[-1], *groups, left[-1], gone[-1])
    return _Links(groups[0], loose, *sides, *left, *gone)


def _buddy_groups(zones: np.ndarray, order: np.ndarray) -> np.ndarray:
    """Number of each free buddy's zone and order, -1 where none begins."""
    return np.where(order >= 0, zones.astype(np.int32) * (LARGEST_ORDER + 1) + order, -1)


def _loose_entries(
    reading: MovingReading, frames: _Frames, links: _Links, zones: np.ndarray, table: np.ndarray
) -> tuple[_Entries, dict[str, int]]:
    """Entries that no event put where they are, chained by their links; and what is not known.

    What follows what, the links say across entries that left since. Where all links between two
    chains are lost, the chains of a list stand by page frame between its head and its tail.
    """
    group, length = links.group, len(links.group)
    follower, leader = np.full(length, -1, np.int64), np.full(length, -1, np.int64)
    roots = np.arange(length)
    chain(links.after_left, links.before_left, group, follower, leader, roots)
    ahead = np.full(length, -1, np.int64)
    chain_across(links.after_gone, links.before_gone, group, follower, leader, roots, ahead)
    firsts = np.flatnonzero((group >= 0) & (leader < 0))
    pfns, fragment = np.empty(length, np.int64), np.empty(length, np.int64)
    count = walk(follower, firsts, pfns, fragment)
    pfns, fragment = pfns[:count], fragment[:count]
    lasts = pfns[np.flatnonzero(np.diff(fragment, append=len(firsts)) > 0)]
    sizes = np.bincount(fragment, minlength=len(firsts))
    own = _rows_of(reading.state, group[firsts], firsts, zones, table, links.loose)
    heads, tails = links.before_left[firsts], links.after_left[lasts]
    is_loose, is_lru = group[firsts] == links.loose, group[firsts] > links.loose

    def row_of(ends: np.ndarray) -> np.ndarray:
        """List that a link to a head names; one to a head of another kind or order is old."""
        row = np.where(ends <= _HEADS, _HEADS - ends, -1)
        alike = (table[row] == table[own])[:, (0, 1, 3)].all(axis=1) & (own >= 0)
        fits = np.where(is_loose, table[row, 0] == ON_PCP_LIST, alike)
        return np.where((row >= 0) & fits, row, -1)

    by_head, by_tail = row_of(heads), row_of(tails)
    row = np.where(by_head >= 0, by_head, np.where(by_tail >= 0, by_tail, own))
    part, place = np.ones(len(firsts), np.int64), np.arange(len(firsts))
    place += np.where(by_head >= 0, -len(firsts), np.where(by_tail >= 0, len(firsts), 0))
    is_known = (by_head >= 0) | (by_tail >= 0)
    # what came before it was read, but after an entry that an event put there
    placed = _buddy_groups(zones, frames.order)
    for side, ends, links_to in ((2, firsts, links.before), (0, lasts, links.following)):
        beside = links_to[ends]
        is_at = (beside >= 0) & (placed[beside] == group[ends]) & (frames.stamp[beside] > 0)
        is_at &= (frames.tail[beside] != 0) == (side == 2)
        part[is_at] = side
        place[is_at] = frames.stamp[beside[is_at]] * (1 if side == 2 else -1)
        is_known |= is_at
    _, of_row, per_row = np.unique(row, return_inverse=True, return_counts=True)
    is_known |= (per_row[of_row.ravel()] == 1) | (row < 0)
    # between head and tail the largest of the others has its place
    by_size = np.flatnonzero(~is_known)
    by_size = by_size[np.lexsort((sizes[by_size], row[by_size]))]
    is_known[by_size[np.diff(row[by_size], append=-1) != 0]] = True
    unsure = np.where(is_known, 0, sizes << np.maximum(table[row, 3], 0))
    losses = {POSITION: int(unsure[~is_lru].sum()), LRU_POSITION: int(unsure[is_lru].sum())}
    found = row[fragment]
    is_pcp = (found >= 0) & is_loose[fragment]
    frames.list_order[pfns[is_pcp]] = table[found[is_pcp], 3]
    within = np.arange(count) + 1
    within = np.where(part[fragment] == 0, within - count - 1, within)
    return _Entries(pfns, found, part[fragment], place[fragment], within), losses


def _lru_numbers(state: MachineState, zones: np.ndarray) -> np.ndarray:
    """Number of the LRU list that each page's flags say, by node and list; -1 for none."""
    kinds = lru_lists_of(state.page_flags, state.about["flags"])
    nodes = zones.astype(np.int32) // max(len(state.about["zones"]), 1)
    return np.where((kinds >= 0) & (zones >= 0), nodes * _LRU_KINDS + kinds, -1)


_LRU_KINDS = 8


def _rows_of(
    state: MachineState,
    groups: np.ndarray,
    pfns: np.ndarray,
    zones: np.ndarray,
    table: np.ndarray,
    loose: int,
) -> np.ndarray:
    """Number of the list that each page belongs on, by its pageblock or its flags; -1 unknown."""
    number_of: dict[tuple[int, ...], int] = {}
    for number, row in enumerate(table.tolist()):
        number_of.setdefault(tuple(row), number)
    types = state.block_type[pfns >> state.pageblock_order].astype(np.int64)
    is_lru, is_loose = groups > loose, groups == loose
    node, kind = np.divmod(groups - loose - 1, _LRU_KINDS)
    columns = (
        np.where(is_lru, ON_LRU_LIST, np.where(is_loose, -1, ON_FREE_LIST)),
        np.where(is_lru, node, zones[pfns]),
        np.full(len(pfns), -1),
        np.where(is_lru, -1, groups % (LARGEST_ORDER + 1)),
        np.where(is_lru, kind, types),
    )
    keys, of_key = np.unique(np.stack(columns), axis=1, return_inverse=True)
    numbers = [number_of.get(tuple(key), -1) for key in keys.T.tolist()]
    return np.array(numbers, np.int64)[of_key.ravel()]


def _decoded(
    words: np.ndarray, pages: Pages, addresses: np.ndarray, numbers: np.ndarray
) -> np.ndarray:
    """Links as page frames, -2 minus a head's number, or -1 for neither."""
    offset = words - np.uint64(pages.base + pages.link_offset)
    frame = offset // np.uint64(pages.size)
    is_page = (offset % np.uint64(pages.size) == 0) & (frame < np.uint64(len(words)))
    links = np.where(is_page, frame, 0).astype(np.int64)
    others = np.flatnonzero(~is_page)
    place = np.minimum(addresses.searchsorted(words[others]), max(len(addresses) - 1, 0))
    links[others] = _NOWHERE
    if len(addresses):
        is_head = addresses[place] == words[others]
        links[others[is_head]] = _HEADS - numbers[place[is_head]]
    return links


@entry
def neighbours(
    links: np.ndarray,
    group: np.ndarray,
    group_read: np.ndarray,
    found: np.ndarray,
    gone: np.ndarray,
) -> None:
    """No kernel function: the next entry in one direction that is still there.

    Args:
        links: of each page frame, as `_decoded`.
        group: what may lie on one list with each entry, -1 for no entry.
        group_read: the same when each page was read: those that left since are passed over.
        found: becomes a page frame, a head as in `links`, or -1.
        gone: becomes the last page passed over where it is -1.
    """
    for pfn in range(len(group)):
        if group[pfn] < 0:
            continue
        other = links[pfn]
        hops = 0
        while other >= 0 and group[other] != group[pfn] and hops < _MOST_HOPS:
            hops += 1
            gone[pfn] = other
            other = links[other] if group_read[other] == group[pfn] else _NOWHERE
        found[pfn] = other if other < 0 or group[other] == group[pfn] else _NOWHERE


@inner
def _root(roots: np.ndarray, number: int) -> int:
    while roots[number] != number:
        roots[number] = roots[roots[number]]
        number = roots[number]
    return int(number)


@inner
def _tie(one: int, other: int, follower: np.ndarray, leader: np.ndarray, roots: np.ndarray) -> None:
    if one == other or follower[one] >= 0 or leader[other] >= 0:
        return
    first, second = _root(roots, one), _root(roots, other)
    if first != second:
        follower[one] = other
        leader[other] = one
        roots[first] = second


@entry
def chain(
    after: np.ndarray,
    before: np.ndarray,
    group: np.ndarray,
    follower: np.ndarray,
    leader: np.ndarray,
    roots: np.ndarray,
) -> None:
    """No kernel function: chain entries; those that name each other first, then by one side.

    Args:
        after: neighbours on one side.
        before: those on the other one.
        group: -1 for no entry.
        follower: -1; becomes the neighbour after each in its chain.
        leader: the same before.
        roots: each number itself; room for which chain each is in.
    """
    for is_mutual in (True, False):
        for pfn in range(len(group)):
            if group[pfn] < 0:
                continue
            other = after[pfn]
            if other >= 0 and (before[other] == pfn or not is_mutual):
                _tie(pfn, other, follower, leader, roots)
            other = before[pfn]
            if other >= 0 and not is_mutual:
                _tie(other, pfn, follower, leader, roots)


@entry
def chain_across(
    after_gone: np.ndarray,
    before_gone: np.ndarray,
    group: np.ndarray,
    follower: np.ndarray,
    leader: np.ndarray,
    roots: np.ndarray,
    ahead: np.ndarray,
) -> None:
    """No kernel function: chain entries between which lay one page that had left when it was read.

    Args:
        after_gone: that page behind each entry, -1 for none.
        before_gone: that before it.
        group: -1 for no entry.
        follower: see `chain`.
        leader: the same.
        roots: as `chain` leaves them.
        ahead: -1 by page frame; room for the entry before each page that left.
    """
    for pfn in range(len(group)):
        if group[pfn] >= 0 and follower[pfn] < 0 and after_gone[pfn] >= 0:
            ahead[after_gone[pfn]] = pfn
    for pfn in range(len(group)):
        if group[pfn] >= 0 and leader[pfn] < 0 and before_gone[pfn] >= 0:
            other = ahead[before_gone[pfn]]
            if other >= 0 and group[other] == group[pfn]:
                _tie(other, pfn, follower, leader, roots)


@entry
def walk(follower: np.ndarray, firsts: np.ndarray, pfns: np.ndarray, fragment: np.ndarray) -> int:
    """No kernel function: write down chains one after another; returns the entries."""
    count = 0
    for number in range(len(firsts)):
        pfn = firsts[number]
        while pfn >= 0:
            pfns[count] = pfn
            fragment[count] = number
            count += 1
            pfn = follower[pfn]
    return count


def _reconciled(state: MachineState) -> tuple[MachineState, dict[str, int]]:
    """Pagesets with the pages that their lists have, and how far counters are from the lists."""
    free, held = state.pages_on_lists()
    differs = {
        FREE_COUNT: int(np.abs(free - state.free_counted()).sum()),
        PCP_COUNT: int(np.abs(held - np.maximum(state.pageset_count, 0)).sum()),
    }
    return replace(state, pageset_count=np.where(state.pageset_count < 0, -1, held)), differs
