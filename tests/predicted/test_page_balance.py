"""The balance of pages: it holds in replays, and says which event breaks it."""

from __future__ import annotations

import numpy as np
import pytest
from pytest import MonkeyPatch

from pagealloc_model.allocator import layout as at
from pagealloc_model.base.errors import CorruptStateError
from pagealloc_model.predicted import page_balance as balance
from pagealloc_model.predicted.carrier import ModelCarrier
from pagealloc_model.predicted.page_balance import PageBalance
from tests.allocator.event_sequence import random_events, start_state

EVENTS = 3000
CULPRIT = 1234


class LeakyCarrier(ModelCarrier):
    """Kernels that forget a free page at one event."""

    def advance(
        self, events: np.ndarray, places: np.ndarray, low: int, high: int, until_ns: int
    ) -> int:
        stopped = super().advance(events, places, low, high, until_ns)
        if low <= CULPRIT < stopped:
            self.state.pcp_region(0, 0)[at.PCP_COUNT] -= 1
        return stopped


def run(carrier: ModelCarrier) -> PageBalance:
    """All events, with a look at the balance every 1000."""
    events, places = random_events(EVENTS), np.full(EVENTS, -1, np.int32)
    found = PageBalance(carrier, places)
    for position in range(0, EVENTS, 1000):
        assert carrier.advance(events, places, position, position + 1000, -1) == position + 1000
        carrier.state.st[at.LOG_ROWS] = 0
        found.check(events, position + 1000)
    return found


def test_no_page_is_lost() -> None:
    assert run(ModelCarrier(start_state())).lost == 0


def test_what_is_lost_is_counted(monkeypatch: MonkeyPatch) -> None:
    monkeypatch.setattr(balance, "IS_STRICT", False)
    assert run(LeakyCarrier(start_state())).lost == 1


def test_tests_refuse_a_lost_page() -> None:
    with pytest.raises(CorruptStateError, match="lost 1 pages between events 1000 and 2000"):
        run(LeakyCarrier(start_state()))


# Tables on per-CPU lists' locks and pageblock ownership, and how broken up memory is
