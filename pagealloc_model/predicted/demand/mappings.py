"""What lay in one mapping, read from the order in which tasks freed anonymous memory (S10.13)."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import numpy as np

from pagealloc_model.allocator import layout as at
from pagealloc_model.allocator import pressure_layout as pr
from pagealloc_model.predicted.demand.demand import Demand


class Mappings:
    """Units that lay in one mapping, by task and time.

    Attributes:
        units: rows of events.
        number: of objects, as `lead`: what they came in place of as recorded, -1 for none.
        last: by object, the row of the last free, -1 if some of it is never freed.
        rank: place in the order of addresses; comparable within a block.
        block: of each unit; those of a block were unmapped together.
        out_of_order: by block, whether its units were touched in another order than they lie in.
    """

    def __init__(self, demand: Demand, tasks: np.ndarray, units: np.ndarray) -> None:
        """Find them in a recording's demand; `tasks` by event."""
        objects, self.units = demand.objects, units
        self.number = demand.events["object"][units]
        recorded = np.full(len(objects), -1, np.int32)
        recorded[: len(demand.leads)] = demand.leads
        self.recorded, self.lead, self.task = recorded, recorded[self.number], tasks[units]
        self.last, whole = last_frees(demand)
        self.whole = whole[self.number]
        frees = self.last[self.number[self.whole]]
        every = np.concatenate([units, frees])
        order = np.lexsort((every, tasks[every]))
        is_unit = order < len(units)
        freed = order[~is_unit] - len(units)
        burst, self.rank = (np.full(len(units), -1, np.int64) for _ in range(2))
        burst[np.flatnonzero(self.whole)[freed]] = np.cumsum(is_unit)[~is_unit]
        self.rank[np.flatnonzero(self.whole)[freed]] = np.arange(len(freed))
        self.block = np.full(len(units), -1, np.int64)
        self.out_of_order: list[bool] = []
        own, at_unit = tasks[units], np.flatnonzero(self.whole)
        changes = (np.diff(burst[at_unit]) != 0) | (np.diff(own[at_unit]) != 0)
        for part in np.split(at_unit, np.flatnonzero(changes) + 1):
            for begin, end, mixed in _blocks(self.rank[part]):
                self.block[part[begin:end]] = len(self.out_of_order)
                self.out_of_order.append(mixed)
        left = np.flatnonzero(~self.whole).tolist()
        for step, places, makes in ((-1, left, False), (1, left[::-1], False), (-1, left, True)):
            for place in places:
                other = place + step
                joins = 0 <= other < len(units) and own[other] == own[place]
                joins &= self.lead[place] >= 0 and self.lead[other % len(units)] == self.lead[place]
                if self.block[place] < 0 and joins and self.block[other] >= 0:
                    self.block[place], self.rank[place] = self.block[other], self.rank[other]
                elif self.block[place] < 0 and makes:
                    self.block[place] = len(self.out_of_order)
                    self.out_of_order.append(False)
        self._find_strayed()

    def blocks(self) -> Iterator[tuple[np.ndarray, bool]]:
        """Places of a block's units by address, and whether they were touched out of order."""
        by_block = np.lexsort((self.rank, self.block))
        edges = np.flatnonzero(np.diff(self.block[by_block])) + 1
        for places in np.split(by_block, edges) if len(by_block) else []:
            yield places, self.out_of_order[self.block[places[0]]]

    def _find_strayed(self) -> None:
        """Take from failures what lies in another mapping than the first in their place."""
        self.strayed: list[int] = []
        known: dict[int, tuple[int, int]] = {}
        for place in np.flatnonzero((self.lead >= 0) & self.whole).tolist():
            here = int(self.block[place]), int(self.rank[place])
            block, rank = known.setdefault(int(self.lead[place]), here)
            if block == here[0] or rank + 1 == here[1]:
                known[int(self.lead[place])] = here
            else:
                self.strayed.append(place)
        self.lead[self.strayed] = -1


def _blocks(rank: np.ndarray) -> list[tuple[int, int, bool]]:
    """Parts of what a task asked for in turn that were freed in turn, nothing else between.

    Begin, end, and whether it is out of order: in no two parts, one behind or before the other.
    """
    found, waiting = [], [(0, len(rank))] if len(rank) else []
    while waiting:
        begin, end = waiting.pop()
        if end - begin == 1:
            found.append((begin, end, False))
            continue
        own, count = rank[begin:end], np.arange(1, end - begin)
        low, high = int(own.min()), int(own.max())
        if high - low >= len(own):
            ordered = np.sort(own)
            part = np.cumsum(np.diff(ordered, prepend=low) > 1)[np.searchsorted(ordered, own)]
            is_cut = np.diff(part) != 0
        else:
            is_cut = np.minimum.accumulate(own)[:-1] == high + 1 - count
            if not is_cut.any():
                is_cut = np.maximum.accumulate(own)[:-1] == low - 1 + count
        if is_cut.any():
            edges = [begin, *(begin + count[is_cut]).tolist(), end]
            waiting += list(pairwise(edges))
        else:
            found.append((begin, end, True))
    joined: list[tuple[int, int, bool]] = []
    for begin, end, mixed in sorted(found):
        follows = joined and not mixed and not joined[-1][2] and rank[begin] == rank[begin - 1] + 1
        first = joined.pop()[0] if follows else begin
        joined.append((first, end, mixed))
    return joined


def last_frees(demand: Demand) -> tuple[np.ndarray, np.ndarray]:
    """By object: its last free's row, -1 if some of it is never freed; whether freed whole."""
    events, objects = demand.events, demand.objects
    by_reclaim = np.uint32(pr.FREED_BY_RECLAIM)
    is_free = (events["operation"] == at.FREE) & (events["object"] >= 0)
    rows = np.flatnonzero(is_free & (events["bits"] & by_reclaim != by_reclaim))
    number = events["object"][rows]
    pages = np.bincount(number, 1 << events["order"][rows].astype(np.int64), len(objects))
    last = np.full(len(objects), -1, np.int64)
    last[number] = rows
    last[pages < 1 << objects["order"].astype(np.int64)] = -1
    return last, (np.bincount(number, minlength=len(objects)) == 1) & (last >= 0)
