"""Pages that recorded compaction moved: in an elastic replay they stay in use (T10.14).

A recording shows a move as the free of its source; where the page went, and that it is the same
memory, it does not show. Taken as it stands, each move would give an elastic replay a page.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pagealloc_model.allocator.core import layout as at
from pagealloc_model.allocator.core import objects as resolved
from pagealloc_model.allocator.core import pressure_layout as pr
from pagealloc_model.base.column_space import NewArray, in_memory
from pagealloc_model.predicted.demand.event_order import HiddenAllocations


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
        events: `layout.EVENT` records without hidden allocations; objects of frees are changed.
        hidden: hidden allocations.
        hold_ranks: int64, how many events stand before each of some others.
        objects: `objects.OBJECT` records.
        new_array: makes the arrays of hidden allocations.
    """
    is_free = events["operation"] == at.FREE
    by_compaction = is_free & (
        events["bits"] & np.uint32(pr.FREED_BY_RECLAIM) == np.uint32(pr.FREED_BY_COMPACTION)
    )
    if not by_compaction.any():
        return WithoutMoves(
            events=events, hidden=hidden, hold_ranks=hold_ranks, stayed_pages=0, moved_frees=0
        )
    frees = np.flatnonzero(is_free)
    kinds = np.full(len(events), -1, np.int8)
    kinds[frees] = objects["kind"][events["object"][frees]]
    dropped = by_compaction & ((kinds != resolved.AT_START) | (events["order"] == 0))
    is_hidden = kinds == resolved.HIDDEN
    gone = np.zeros(len(objects), bool)
    gone[events["object"][dropped & is_hidden]] = True
    is_source = dropped & ~is_hidden
    found = np.flatnonzero(is_free & is_hidden & ~dropped)
    found = found[~gone[events["object"][found]]]
    again, moved = _found_again(events["order"], np.flatnonzero(is_source), found)
    gone[events["object"][again]] = True
    events["object"][again] = events["object"][moved]
    kept = ~dropped
    before = np.concatenate([np.zeros(1, np.int64), np.cumsum(kept)])
    remains = np.flatnonzero(~gone[hidden.events["object"]])
    left = HiddenAllocations(
        events=new_array(len(remains), hidden.events.dtype),
        ranks=new_array(len(remains), np.int64),
        freed_ns=new_array(len(remains), np.int64),
    )
    left.events[:] = hidden.events[remains]
    left.ranks[:] = before[hidden.ranks[remains]]
    left.freed_ns[:] = hidden.freed_ns[remains]
    sizes = np.int64(1) << events["order"][is_source].astype(np.int64)
    return WithoutMoves(
        events=events[kept],
        hidden=left,
        hold_ranks=before[hold_ranks],
        stayed_pages=int(sizes.sum()),
        moved_frees=len(again),
    )


def _found_again(
    order: np.ndarray, sources: np.ndarray, found: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Frees of moved pages, and the source of each: the last before it not yet taken.

    Args:
        order: int8 by event.
        sources: events that are frees of sources, ascending.
        found: frees of pages whose allocation was not seen, ascending.

    Returns:
        Events, int64: of `found`, and of `sources`.
    """
    waiting: dict[int, list[int]] = {}
    pairs: list[tuple[int, int]] = []
    together = np.concatenate([sources, found])
    is_source = np.arange(len(together)) < len(sources)
    for place in np.argsort(together, kind="stable").tolist():
        event = int(together[place])
        alike = waiting.setdefault(int(order[event]), [])
        if is_source[place]:
            alike.append(event)
        elif alike:
            pairs.append((event, alike.pop()))
    table = np.array(pairs, np.int64).reshape(-1, 2)
    return table[:, 0], table[:, 1]
