"""Pages that recorded compaction moved: in an elastic replay they stay in use (T10.14).

A recording shows a move as the free of its source; where the page went, and that it is the same
memory, it does not show. Taken as it stands, each move would give an elastic replay a page.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from pagealloc_model.allocator.core import layout as at
from pagealloc_model.allocator.core import objects as resolved
from pagealloc_model.allocator.core import pressure_layout as pr
from pagealloc_model.base.column_space import NewArray, in_memory
from pagealloc_model.base.working_arrays import parts
from pagealloc_model.predicted.demand.event_order import HiddenAllocations

_UNSEEN, _OF_SOURCE, _OF_TARGET = 1, 2, 3
"""Frees: of a page whose allocation was not seen; of a source and of a target by compaction."""


@dataclass(frozen=True, kw_only=True, eq=False)
class WithoutMoves:
    """Demand without what recorded compaction freed.

    Attributes:
        events: `layout.EVENT` records, those left.
        hidden: hidden allocations left; ranks are among the events left.
        hold_ranks: int64, as given, among the events left.
        stayed_pages: pages whose free was the source of a move.
        moved_frees: frees found to be of pages that compaction had moved.
    """

    events: np.ndarray
    hidden: HiddenAllocations
    hold_ranks: np.ndarray
    stayed_pages: int
    moved_frees: int


def without_moves(
    events: np.ndarray,
    hidden: HiddenAllocations,
    hold_ranks: np.ndarray,
    objects: np.ndarray,
    new_array: NewArray = in_memory,
) -> WithoutMoves:
    """Leave out the frees of recorded compaction; what it moved lives on as the same object.

    - The free of a source goes: its object stays.
    - A page that came by a hidden allocation and is freed by compaction was the target of a move,
      or a target not used: allocation and free go.
    - A hidden allocation freed by anybody else was such a target if there was a move of a page of
      its size before that free: the free is that of the page moved last of those not yet found
      again. Which of them it was, no event tells.
    - A piece above order 0 that was never seen before is a target not used: its free stays.

    Args:
        events: `layout.EVENT` records without hidden allocations; changed, those left move up.
        hidden: hidden allocations.
        hold_ranks: int64, how many events stand before each of some others.
        objects: `objects.OBJECT` records.
        new_array: makes what is as long as events, objects or hidden allocations.
    """
    marked = new_array(len(events), np.int8)
    if not _mark_frees(events, objects, marked):
        return WithoutMoves(
            events=events, hidden=hidden, hold_ranks=hold_ranks, stayed_pages=0, moved_frees=0
        )
    gone = new_array(len(objects), np.bool_)
    gone[:] = False
    stayed = 0
    for part in parts(len(events)):
        numbers = events["object"][part]
        gone[numbers[marked[part] == _OF_TARGET]] = True
        orders = events["order"][part][marked[part] == _OF_SOURCE]
        stayed += int((np.int64(1) << orders.astype(np.int64)).sum())
    moved_frees = 0
    for again, moved in _found_again(events, marked, gone):
        gone[events["object"][again]] = True
        events["object"][again] = events["object"][moved]
        moved_frees += 1
    kept = 0
    holds, ranks = (new_array(rows, np.int64) for rows in (len(hold_ranks), len(hidden.events)))
    before = ((hold_ranks, holds), (hidden.ranks, ranks))
    done = [0, 0]
    for part in parts(len(events)):
        stays = marked[part] < _OF_SOURCE
        count = np.concatenate([np.full(1, kept), kept + np.cumsum(stays)])
        for which, (old, new) in enumerate(before):
            end = int(np.searchsorted(old, part.stop, side="right"))
            here = slice(done[which], end)
            new[here], done[which] = count[old[here] - part.start], end
        left = events[part][stays]
        events[kept : kept + len(left)] = left
        kept += len(left)
    return WithoutMoves(
        events=events[:kept],
        hidden=_remaining(hidden, ranks, gone, new_array),
        hold_ranks=holds,
        stayed_pages=stayed,
        moved_frees=moved_frees,
    )


def _mark_frees(events: np.ndarray, objects: np.ndarray, marked: np.ndarray) -> bool:
    """Tell what each event is to moves (int8 by event); returns whether compaction freed any."""
    any_freed = False
    for part in parts(len(events)):
        bits = events["bits"][part] & np.uint32(pr.FREED_BY_RECLAIM)
        is_free = events["operation"][part] == at.FREE
        by_compaction = is_free & (bits == np.uint32(pr.FREED_BY_COMPACTION))
        kinds = np.where(is_free, objects["kind"][np.maximum(events["object"][part], 0)], -1)
        dropped = by_compaction & ((kinds != resolved.AT_START) | (events["order"][part] == 0))
        is_hidden = kinds == resolved.HIDDEN
        marked[part] = np.select(
            [dropped & is_hidden, dropped, is_hidden], [_OF_TARGET, _OF_SOURCE, _UNSEEN], 0
        )
        any_freed |= bool(by_compaction.any())
    return any_freed


def _remaining(
    hidden: HiddenAllocations, ranks: np.ndarray, gone: np.ndarray, new_array: NewArray
) -> HiddenAllocations:
    """Hidden allocations of objects that are not gone."""
    rows = len(hidden.events)
    count = sum(int(np.count_nonzero(~gone[hidden.events["object"][part]])) for part in parts(rows))
    left = HiddenAllocations(
        events=new_array(count, hidden.events.dtype),
        ranks=new_array(count, np.int64),
        freed_ns=new_array(count, np.int64),
    )
    end = 0
    for part in parts(rows):
        stays = ~gone[hidden.events["object"][part]]
        begin, end = end, end + int(np.count_nonzero(stays))
        left.events[begin:end] = hidden.events[part][stays]
        left.ranks[begin:end] = ranks[part][stays]
        left.freed_ns[begin:end] = hidden.freed_ns[part][stays]
    return left


def _found_again(
    events: np.ndarray, marked: np.ndarray, gone: np.ndarray
) -> Iterator[tuple[int, int]]:
    """Frees of moved pages, and the source of each: the last before it not yet taken.

    Args:
        events: `layout.EVENT` records.
        marked: as `_mark_frees` leaves them.
        gone: bool by object: a target of a move that compaction itself freed.
    """
    waiting: dict[int, array[int]] = {}
    for part in parts(len(events)):
        kinds = marked[part]
        unseen = (kinds == _UNSEEN) & ~gone[np.maximum(events["object"][part], 0)]
        places = np.flatnonzero((kinds == _OF_SOURCE) | unseen)
        orders = events["order"][part][places].tolist()
        is_source = (kinds[places] == _OF_SOURCE).tolist()
        for place, order, source in zip(places.tolist(), orders, is_source, strict=True):
            alike = waiting.setdefault(order, array("q"))
            if source:
                alike.append(part.start + place)
            elif alike:
                yield part.start + place, alike.pop()
