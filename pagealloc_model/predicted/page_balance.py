"""The balance of pages: none is lost silently (S10.4).

What a replay took and did not free is in use, or counted as missing. Where this balance breaks, the
pages are a count of `divergence`; with PAGEALLOC_STRICT set, as tests set it, the replay ends with
an error, and with PAGEALLOC_CHECKED (see `base.jit`) that names the first event which breaks it.
"""

from __future__ import annotations

import os

import numpy as np

from pagealloc_model.allocator import layout as at
from pagealloc_model.base.errors import CorruptStateError
from pagealloc_model.base.jit import CHECKED
from pagealloc_model.predicted.carrier import Carrier, ModelCarrier

IS_STRICT = CHECKED or bool(os.environ.get("PAGEALLOC_STRICT"))

_SIGN = np.zeros(128, np.int64)
_SIGN[[at.ALLOC, at.HIDDEN_ALLOC, at.ALLOC_IN_ZONE, at.HIDDEN_ALLOC_IN_ZONE]] = 1
_SIGN[[at.ISOLATE_FREE, at.CAPTURE]] = 1
_SIGN[[at.FREE, at.GROW]] = -1


def taken_pages(events: np.ndarray) -> int:
    """Pages that events take from a literal replay's memory, less those that they give it."""
    return int((_SIGN[events["operation"]] << events["order"].astype(np.int64)).sum())


class PageBalance:
    """The balance of one replay, held against its events step by step.

    A literal replay's pages are held against what its events ask for and free. An elastic one
    decides that itself: its pages are those of the allocator and those in use, together constant
    but for memory that comes.

    Attributes:
        lost: pages that the replay has fewer than it should have, or minus what it has too many.
    """

    def __init__(self, carrier: Carrier, places: np.ndarray) -> None:
        """Begin where a replay begins, before its carrier takes an event."""
        self._carrier, self._places, self._position = carrier, places, 0
        self.lost = 0
        self._pages = self._count()
        state = carrier.state
        self._arrays = (state.pages, state.blocks, state.st, state.folios, places)
        # remembered, so that the event which breaks the balance can be found
        self._kept: tuple[np.ndarray, ...] = ()
        if CHECKED and isinstance(carrier, ModelCarrier):
            self._kept = tuple(each.copy() for each in self._arrays)

    def check(self, events: np.ndarray, position: int) -> None:
        """Hold the state against the events up to one.

        Raises:
            CorruptStateError: pages were lost, or came from nowhere, and IS_STRICT.
        """
        lost = self._expected(events, position) - self._count()
        if lost and IS_STRICT:
            where = f"between events {self._position} and {position}"
            if self._kept:
                where = f"in ticks {where}"
                for array, kept in zip(self._arrays, self._kept, strict=True):
                    array[:] = kept
                for each in range(self._position, position):
                    self._carrier.advance(events, self._places, each, each + 1, -1)
                    self._carrier.state.st[at.LOG_ROWS] = 0
                    if self._expected(events, each + 1) != self._count():
                        event = events[each]
                        words = ", ".join(f"{name} {event[name]}" for name in event.dtype.names)
                        where = f"at event {each} ({words})"
                        break
            raise CorruptStateError(f"the replay lost {lost} pages {where}: please report it")
        self.lost += lost
        self._pages = self._expected(events, position) - lost
        self._position = position
        if self._kept:
            self._kept = tuple(each.copy() for each in self._arrays)

    def _count(self) -> int:
        """Pages of the allocator, with those in use of an elastic replay, without missing ones."""
        state = self._carrier.state
        self._carrier.settle()
        if not state.is_elastic:
            return state.kept_pages() - int(state.st[at.MISSING_PAGES])
        orders = state.pages["order"][state.pages["where"] == at.ALLOCATED]
        return state.kept_pages() + int((np.int64(1) << orders.astype(np.int64)).sum())

    def _expected(self, events: np.ndarray, position: int) -> int:
        """Pages that are to be counted after the events up to one."""
        part = events[self._position : position]
        if self._carrier.state.is_elastic:
            part = part[part["operation"] == at.GROW]
        return self._pages - taken_pages(part)
