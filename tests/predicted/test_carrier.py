"""The model as a carrier of requests: a check names the event in which a page was lost."""

from __future__ import annotations

import pytest
from pytest import MonkeyPatch

from pagealloc_model.base.errors import CorruptStateError
from pagealloc_model.predicted import page_balance as balance
from tests.allocator.event_sequence import start_state
from tests.predicted.test_page_balance import CULPRIT, LeakyCarrier, run


def test_a_checked_run_names_the_event(monkeypatch: MonkeyPatch) -> None:
    monkeypatch.setattr(balance, "CHECKED", True)
    with pytest.raises(CorruptStateError, match=rf"lost 1 pages at event {CULPRIT} \(time_ns"):
        run(LeakyCarrier(start_state()))
