"""Reads the state of this machine while it goes on: its pages in one pass, all else at the end."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping

import numpy as np

from pagealloc_model.base.errors import UsageError
from pagealloc_model.recording.record.carried_state import ListHead, MovingReading
from pagealloc_model.recording.record.kernel_memory import KernelMemory
from pagealloc_model.recording.record.machine_state import (
    Pages,
    read_machine_state,
    read_pages_in_pieces,
)

_PIECE = 1 << 10
"""Page frames that are read at once: those of the largest buddies (S1.1)."""


class _Heads:
    """Notes the heads of lists without following them."""

    def __init__(self) -> None:
        self.found: list[ListHead] = []

    def add(self, head: int, first: int, _what: str, row: tuple[int, int, int, int, int]) -> None:
        """Note a head that can be read."""
        if first:
            self.found.append(ListHead(head, row))

    def arrays(self) -> tuple[np.ndarray, Mapping[str, np.ndarray]]:
        """No pages, and no lists."""
        names = ("kind", "zone", "cpu", "order", "type", "length")
        return np.zeros(0, np.int32), {f"list_{name}": np.zeros(0, np.int64) for name in names}


def read_while_it_goes_on(memory: KernelMemory, pageblock_order: int) -> MovingReading:
    """Read a state that `carried_state` makes one of.

    Zones, pagesets, counters and heads of lists are read at once after the last piece of pages;
    where they are is found before the first one.

    Raises:
        UsageError: the kernel lacks what is read.
    """
    kept = memory.kept_from(())
    read_machine_state(kept, pageblock_order, pages=_no_pages(), lists=_Heads())
    places = tuple(kept.kept or ())
    pages = read_pages_in_pieces(memory, _PIECE)
    if not len(pages.pieces):
        raise UsageError("no struct page could be read")
    instant_ns = time.monotonic_ns()
    heads = _Heads()
    state = read_machine_state(memory.kept_from(places), pageblock_order, pages=pages, lists=heads)
    return MovingReading(
        state=state,
        pages=pages,
        heads=tuple(heads.found),
        isolated=memory.types.enumerators("migratetype").get("MIGRATE_ISOLATE", -1),
        instant_ns=instant_ns,
        reader=os.getpid(),
    )


def _no_pages() -> Pages:
    none = np.zeros(0, np.uint64)
    orders, pieces = np.zeros(0, np.int8), np.zeros((0, 4), np.int64)
    return Pages(0, 64, 8, none, none, none, np.zeros(0, np.int32), orders, pieces)
