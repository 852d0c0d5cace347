"""Pages are read first, in pieces; then, at once, all that is where it was found before."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from pagealloc_model.base.errors import UsageError
from pagealloc_model.recording.record import moving_state
from pagealloc_model.recording.record.carried_state import ListHead
from pagealloc_model.recording.record.kernel_memory import Place

PLACE = (4096, 8)
ROW = (0, 1, -1, 3, 1)


class Memory:
    """A memory that says in which order it is read."""

    def __init__(self) -> None:
        self.log: list[object] = []
        self.types = SimpleNamespace(enumerators=lambda _: {"MIGRATE_ISOLATE": 4})

    def kept_from(self, places: tuple[Place, ...]) -> SimpleNamespace:
        self.log.append(places)
        return SimpleNamespace(kept=dict.fromkeys(places))


def patched(monkeypatch: pytest.MonkeyPatch, pieces: int) -> Memory:
    memory = Memory()

    def read_state(kept: SimpleNamespace, order: int, *, pages: Any, lists: Any) -> tuple[int, int]:
        kept.kept[PLACE] = b"word"
        lists.add(64, 128, "a list", ROW)
        lists.add(80, 0, "a list that cannot be read", ROW)
        return order, len(pages.pieces)

    def read_pages(_: Memory, piece: int) -> SimpleNamespace:
        memory.log.append(piece)
        return SimpleNamespace(pieces=np.zeros((pieces, 4), np.int64))

    monkeypatch.setattr(moving_state, "read_machine_state", read_state)
    monkeypatch.setattr(moving_state, "read_pages_in_pieces", read_pages)
    return memory


def test_what_is_no_page_is_read_at_once_behind_the_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    memory = patched(monkeypatch, 5)
    reading = moving_state.read_while_it_goes_on(memory, 9)  # type: ignore[arg-type]
    assert memory.log == [(), 1024, (PLACE,)]
    assert reading.state == (9, 5)
    assert reading.heads == (ListHead(64, ROW),)
    assert reading.isolated == 4
    assert reading.instant_ns > 0


def test_a_memory_without_pages_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    memory = patched(monkeypatch, 0)
    with pytest.raises(UsageError, match="no struct page could be read"):
        moving_state.read_while_it_goes_on(memory, 9)  # type: ignore[arg-type]
