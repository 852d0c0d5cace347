"""Pages of a range that a kernel frees together: they go to the lists in chunks (S4.11)."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from pagealloc_model.allocator import layout as at
from pagealloc_model.base.arrays import parts, working_arrays
from pagealloc_model.predicted.demand.demand import Demand
from pagealloc_model.predicted.demand.event_order import rows_where


def with_ranges_freed_whole(demand: Demand) -> Demand:
    """The demand in which an allocation that was split and freed as a range is freed whole.

    Such a range shows as frees of single pages: all pages of one allocation, in order, one right
    after the other on a CPU and in no folio batch (T10.8). An interrupt that allocates or frees
    amid them leaves them single. The free stands where the last one was.
    """
    events, objects = demand.events, demand.objects

    def is_piece(part: slice) -> np.ndarray:
        own = events[part]
        found = (own["operation"] == at.FREE) & (own["order"] == 0)
        found &= (own["bits"] & at.FREED_IN_BATCH) == 0
        found[found] = objects["order"][own["object"][found]] > 0
        return found

    rows = rows_where(len(events), is_piece)
    rows = rows[np.argsort(events["object"][rows], kind="stable")]
    starts = np.flatnonzero(np.diff(events["object"][rows], prepend=-1))
    merged, left_out = [], []
    for own in np.split(rows, starts[1:]) if len(rows) else []:
        pages = 1 << int(objects["order"][events["object"][own[0]]])
        if len(own) != pages or not _is_in_turn(events[own[0] : own[-1] + 1], pages):
            continue
        merged.append(own[-1])
        left_out.append(own[:-1])
    if not merged:
        return demand
    stays = np.ones(len(events), bool)
    stays[np.concatenate(left_out)] = False
    kept = working_arrays(len(events))(int(stays.sum()), events.dtype)
    whole = np.zeros(len(events), bool)
    whole[merged] = True
    filled = 0
    for part in parts(len(events)):
        own = events[part][stays[part]]
        last = whole[part][stays[part]]
        own["order"][last] = objects["order"][own["object"][last]]
        own["offset"][last] = 0
        kept[filled : filled + len(own)] = own
        filled += len(own)
    return replace(demand, events=kept)


def _is_in_turn(events: np.ndarray, pages: int) -> bool:
    """Tell whether a CPU frees an allocation's pages, in order, and does nothing else meanwhile."""
    first = events[0]
    own = events[events["cpu"] == first["cpu"]]
    return (
        len(own) == pages
        and bool((own["object"] == first["object"]).all())
        and bool((own["offset"] == np.arange(pages)).all())
    )
