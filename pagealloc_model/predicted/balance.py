"""The balance of pages: what a replay took and did not free is in use, or counted as missing.

No page is lost silently (S10.4). Where the balance breaks, the pages are a count of `divergence`;
with PAGEALLOC_STRICT set, as tests set it, the replay ends with an error, and with
PAGEALLOC_CHECKED (see `base.jit`) that names the first event which breaks it.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import numpy as np

from pagealloc_model.allocator import layout as at
from pagealloc_model.allocator import pressure_layout as pr
from pagealloc_model.base.errors import CorruptStateError
from pagealloc_model.base.jit import CHECKED
from pagealloc_model.predicted.carrier import Carrier, ModelCarrier

if TYPE_CHECKING:
    from pagealloc_model.allocator.state import State

IS_STRICT = CHECKED or bool(os.environ.get("PAGEALLOC_STRICT"))

_SIGN = np.zeros(128, np.int64)
_SIGN[[at.ALLOC, at.HIDDEN_ALLOC, at.ALLOC_IN_ZONE, at.HIDDEN_ALLOC_IN_ZONE]] = 1
_SIGN[[at.ISOLATE_FREE, at.CAPTURE]] = 1
_SIGN[[at.FREE, at.GROW]] = -1


def taken_pages(events: np.ndarray) -> int:
    """Pages that events take from a literal replay's memory, less those that they give it.

    Args:
        events: `layout.EVENT` records.
    """
    return int((_SIGN[events["operation"]] << events["order"].astype(np.int64)).sum())


def kept_pages(state: State) -> int:
    """Pages of the allocator: free, on per-CPU lists, and held by compaction.

    Args:
        state: settled.
    """
    free = state.free_buddies().sum(axis=(0, 2)) << np.arange(at.ORDERS)
    held = int(state.st[at.ISOLATED_PAGES])
    if state.is_elastic:
        first = int(state.st[int(state.st[at.PRESSURE_BASE]) + pr.COMPACTORS_BASE])
        runs = first + np.arange(1 + len(state.machine.nodes)) * pr.COMPACTOR_WORDS
        held += int(state.st[runs + pr.RUN_HELD].sum())
    return int(free.sum()) + int(state.pcp_words(at.PCP_COUNT, 1).sum()) + held


def pages_in_use(state: State) -> int:
    """Pages that allocations have; all pages are looked at."""
    orders = state.pages["order"][state.pages["where"] == at.ALLOCATED]
    return int((np.int64(1) << orders.astype(np.int64)).sum())


class PageBalance:
    """The balance of one replay, held against its events step by step.

    A literal replay's pages are held against what its events ask for and free. An elastic one
    decides that itself: its pages are those of the allocator and those in use, together constant
    but for memory that comes.

    Attributes:
        lost: pages that the replay has fewer than it should have, or minus what it has too many.
    """

    def __init__(self, carrier: Carrier, places: np.ndarray, position: int) -> None:
        """Begin where a replay begins.

        Args:
            carrier: about to take events.
            places: where each object lives.
            position: the first event.
        """
        self._carrier, self._places = carrier, places
        self.lost = 0
        self._pages = self._count()
        self._position = position
        self._keep()

    def check(self, events: np.ndarray, position: int) -> None:
        """Hold the state against the events up to one.

        Args:
            events: all of the replay's.
            position: one past the last that was taken.

        Raises:
            CorruptStateError: pages were lost, or came from nowhere, and IS_STRICT.
        """
        lost = self._lost(events, position)
        if lost and IS_STRICT:
            where = f"between events {self._position} and {position}"
            if self._kept:
                where = self._first_to_break(events, position)
            raise CorruptStateError(f"the replay lost {lost} pages {where}: please report it")
        self.lost += lost
        self._pages -= lost
        self._pages += self._due(events, position)
        self._position = position
        self._keep()

    def _count(self) -> int:
        """Pages of the allocator, with those in use of an elastic replay, without missing ones."""
        state = self._carrier.state
        self._carrier.settle()
        if state.is_elastic:
            return kept_pages(state) + pages_in_use(state)
        return kept_pages(state) - int(state.st[at.MISSING_PAGES])

    def _due(self, events: np.ndarray, position: int) -> int:
        """By how much events up to one change what is counted."""
        part = events[self._position : position]
        if self._carrier.state.is_elastic:
            part = part[part["operation"] == at.GROW]
        return -taken_pages(part)

    def _lost(self, events: np.ndarray, position: int) -> int:
        return self._pages + self._due(events, position) - self._count()

    def _keep(self) -> None:
        """Remember the state, so that the event which breaks the balance can be found."""
        self._kept: tuple[np.ndarray, ...] = ()
        if CHECKED and isinstance(self._carrier, ModelCarrier):
            self._kept = tuple(each.copy() for each in self._arrays())

    def _arrays(self) -> tuple[np.ndarray, ...]:
        state = self._carrier.state
        return state.pages, state.blocks, state.st, state.folios, self._places

    def _first_to_break(self, events: np.ndarray, end: int) -> str:
        """Take events once more, one by one, from the last balance on; names the one at fault."""
        for array, kept in zip(self._arrays(), self._kept, strict=True):
            array[:] = kept
        for position in range(self._position, end):
            self._carrier.advance(events, self._places, position, position + 1, -1)
            self._carrier.state.st[at.LOG_ROWS] = 0
            if self._lost(events, position + 1):
                event = events[position]
                words = ", ".join(f"{name} {event[name]}" for name in event.dtype.names)
                return f"at event {position} ({words})"
        return f"in ticks between events {self._position} and {end}"
