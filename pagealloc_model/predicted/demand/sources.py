"""Where recorded compaction freed its sources, and the pages in use that a replay frees there.

A run empties neighbouring pages, so that what it frees merges. The objects that it moved lie
elsewhere in a replay. Of objects alike it matters to nobody which is moved: those that a replay
has at the recorded place exchange their places with the recorded ones (T10.18).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from pagealloc_model.allocator import layout as at

if TYPE_CHECKING:
    from pagealloc_model.allocator.state import State


@dataclass(frozen=True, kw_only=True, eq=False)
class Cluster:
    """Single pages that a run moved together.

    Attributes:
        objects: int64, what they are of, in the order in which they were freed.
        pages: int64, where each lay in the recording.
    """

    objects: np.ndarray
    pages: np.ndarray


def moved_clusters(
    moved: Sequence[tuple[int, int, int, int, int]], events: np.ndarray, objects: np.ndarray
) -> tuple[Cluster, ...]:
    """The clusters that recorded compaction moved, of single pages alone."""
    clusters = []
    times = np.ascontiguousarray(events["time_ns"]) if moved else events["time_ns"][:0]
    for begin_ns, end_ns, cpu, first, end in moved:
        part = events[slice(*np.searchsorted(times, [begin_ns, end_ns + 1]))]
        part = part[(part["operation"] == at.FREE) & (part["cpu"] == cpu)]
        numbers = part["object"].astype(np.int64)
        pages = objects["pfn"][numbers].astype(np.int64)
        is_source = (objects["order"][numbers] == 0) & (pages >= first) & (pages < end)
        if is_source.any():
            clusters.append(Cluster(objects=numbers[is_source], pages=pages[is_source]))
    return tuple(clusters)


class Exchange:
    """Lets objects that recorded compaction moves lie where it found them.

    Attributes:
        due: the event before which the next cluster's places are exchanged; one past all events
            after the last.
    """

    def __init__(
        self,
        clusters: tuple[Cluster, ...],
        events: np.ndarray,
        objects: np.ndarray,
        state: State,
        places: np.ndarray,
    ) -> None:
        """Find when each object is in use, and the pages in use throughout that no object has."""
        self._places, self._pages = places, state.pages
        self._order = state.machine.pageblock_order
        self._is_single = objects["order"] == 0
        is_free = events["operation"] == at.FREE
        frees, others = np.flatnonzero(is_free), np.flatnonzero(~is_free & (events["object"] >= 0))
        self._freed = np.full(len(objects), len(events), np.int64)
        self._freed[events["object"][frees]] = frees
        self._made = np.full(len(objects), -1, np.int64)
        self._made[events["object"][others]] = others
        self._unowned = state.pages["where"] == at.ALLOCATED
        for order in np.unique(objects["order"][places >= 0]).tolist():
            own = places[(places >= 0) & (objects["order"] == order)]
            self._unowned[(own[:, None] + np.arange(1 << order)).ravel()] = False
        self._clusters = sorted(clusters, key=lambda each: self._freed[each.objects[0]])
        self._number, self._end = -1, len(events)
        self._go_on()

    def _go_on(self) -> None:
        self._number += 1
        self.due = self._end
        if self._number < len(self._clusters):
            self.due = int(self._freed[self._clusters[self._number].objects[0]])

    def make(self, position: int) -> None:
        """Exchange the places of clusters that are due.

        What finds no page in its cluster's block lies together elsewhere.
        """
        while self.due <= position < self._end:
            if self.due == position:
                cluster = self._clusters[self._number]
                whole = self._places[cluster.objects] >= 0
                left, pages = cluster.objects[whole], cluster.pages[whole]
                block = int(cluster.pages[0]) >> self._order
                tried = set()
                while len(left) and block not in tried:
                    tried.add(block)
                    left = left[self._move_into(block, left, pages, position)]
                    if len(left):
                        pages = self._places[left].astype(np.int64)
                        block = int(pages[0]) >> self._order
            self._go_on()

    def _move_into(
        self, block: int, numbers: np.ndarray, wanted: np.ndarray, position: int
    ) -> np.ndarray:
        """Give objects pages of a block: those wanted first, then the next; mask of those left."""
        first, size = block << self._order, 1 << self._order
        # the object in use at each page; none where one has several pages
        here = np.flatnonzero((self._places >= first) & (self._places < first + size))
        here = here[self._is_single[here] & (self._made[here] < position)]
        here = here[self._freed[here] >= position]
        owners = np.full(size, -1, np.int64)
        owners[self._places[here] - first] = here
        records = self._pages[first : first + size]
        suits = (records["where"] == at.ALLOCATED) & (records["order"] == 0)
        suits &= records["tag"] == 1
        suits &= self._unowned[first : first + len(records)] | (owners >= 0)[: len(records)]
        there = first + np.flatnonzero(suits)
        is_exact = np.isin(wanted, there)
        others = np.setdiff1d(there, wanted)
        others = np.concatenate([others[others >= wanted.min()], others[others < wanted.min()]])
        chosen = np.where(is_exact, wanted, -1)
        lacking = np.flatnonzero(~is_exact)[: len(others)]
        chosen[lacking] = others[: len(lacking)]
        for number, page in zip(numbers.tolist(), chosen.tolist(), strict=True):
            if page < 0:
                continue
            old, other = int(self._places[number]), int(owners[page - first])
            self._places[number] = page
            if other >= 0:
                self._places[other] = old
            else:
                self._unowned[page], self._unowned[old] = False, True
            owners[page - first] = number
            if first <= old < first + len(records):
                owners[old - first] = other
        return chosen < 0
