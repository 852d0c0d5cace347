"""What pageblocks hold at each round's begin, from copies of page flags and the recording."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

import pagealloc_model as pm
from pagealloc_model.recording.proc import pages as flag
from pagealloc_model.recording.trace.columns import Event, Trace

PER_BLOCK = 512
RECLAIMABLE = 2
FREE, LISTED, CACHE, ANON, HUGE, SLAB, TABLES, OTHER, SHRUNK, NONE = range(10)
CLASSES = (
    "free",
    "on per-CPU lists",
    "page cache",
    "anonymous",
    "huge page",
    "unmovable slab",
    "page tables",
    "other kernel memory",
    "reclaimable kernel memory",
    "no memory",
)
KERNEL = [SLAB, TABLES, OTHER, SHRUNK]
FEW = 8


class LastEvents:
    """The last allocation or free of each page frame, up to a time."""

    def __init__(self, trace: Trace, frames: int) -> None:
        self.time = np.asarray(trace.time_ns)
        self.kind = np.asarray(trace.event)
        self.pfn = np.asarray(trace.pfn)
        self.order = np.asarray(trace.order)
        self.migratetype = np.asarray(trace.migratetype)
        self.last = np.full(frames, -1, np.int64)
        self._next = 0

    def advance(self, time_ns: int) -> None:
        """Take in all events up to a time."""
        end = int(np.searchsorted(self.time, time_ns))
        rows = np.arange(self._next, end)
        rows = rows[np.isin(self.kind[rows], (Event.ALLOC, Event.FREE))]
        counts = 1 << self.order[rows].astype(np.int64)
        each = np.repeat(rows, counts)
        within = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
        pages = self.pfn[each] + within
        known = (pages >= 0) & (pages < len(self.last))
        self.last[pages[known]] = each[known]
        self._next = end

    def allocated(self) -> np.ndarray:
        """Return for each frame whether its last event was an allocation."""
        return (self.last >= 0) & (self.kind[self.last] == Event.ALLOC)


def pages_by_round(
    recording: pm.Recording, marks: Path, begins: list[int]
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """What blocks hold at the end of each round, 0 for the first one's begin."""
    words = [np.fromfile(marks / f"{i:02d}.kpageflags", "<u8") for i in range(len(begins))]
    events = LastEvents(recording.trace, len(words[0]))
    everywhere, former = [], []
    empty = np.zeros(0, bool)
    for number, (time, word) in enumerate(zip(begins, words, strict=True)):
        events.advance(time)
        kinds = page_kinds(word, events)
        blocks = kinds[: len(kinds) // PER_BLOCK * PER_BLOCK].reshape(-1, PER_BLOCK)
        if not number:
            empty = np.isin(blocks, (FREE, LISTED)).all(axis=1)
        everywhere.append(_of_blocks(blocks).assign(round=number))
        known = events.allocated() & ~np.isin(kinds, (FREE, LISTED, NONE))
        orders = np.where(known, events.order[events.last], -1)
        orders = orders[: blocks.size].reshape(blocks.shape)
        table = pd.DataFrame({"kind": blocks[empty].ravel(), "order": orders[empty].ravel()})
        counts = table.groupby(["kind", "order"]).size().reset_index(name="pages")
        former.append(counts.assign(round=number, blocks=int(empty.sum())))
    first, second = pd.concat(everywhere), pd.concat(former)
    second.insert(0, "holds", [CLASSES[kind] for kind in second["kind"]])
    return (
        first[["round", "holds", "pages", "blocks"]],
        second[["round", "blocks", "holds", "order", "pages"]],
    )


def page_kinds(words: np.ndarray, events: LastEvents) -> np.ndarray:
    """Return what each frame holds, an index of `CLASSES`.

    A page without flags whose last event was a free is on a per-CPU list; others are the kernel's.
    """
    head = np.maximum.accumulate(
        np.where(words & flag.COMPOUND_TAIL, 0, np.arange(len(words), dtype=np.int64))
    )
    whole = words[head]  # flags of a folio are on its head
    reclaimable = events.allocated() & (events.migratetype[events.last] == RECLAIMABLE)
    freed = (events.last >= 0) & ~events.allocated()
    kinds = np.full(len(words), OTHER, np.int8)
    kinds[reclaimable] = SHRUNK
    kinds[freed] = LISTED
    kinds[(whole & flag.SLAB) != 0] = SLAB
    kinds[((whole & flag.SLAB) != 0) & reclaimable] = SHRUNK
    kinds[(whole & flag.PGTABLE) != 0] = TABLES
    kinds[(whole & flag.LRU) != 0] = CACHE
    kinds[(whole & flag.ANON) != 0] = ANON
    kinds[((whole & flag.THP) != 0) & ((whole & flag.ANON) != 0)] = HUGE
    kinds[(words & flag.BUDDY) != 0] = FREE
    kinds[(words & flag.NOPAGE) != 0] = NONE
    return kinds


def _of_blocks(blocks: np.ndarray) -> pd.DataFrame:
    """Pages and blocks by what they hold; and blocks by how much of it is the kernel's."""
    rows = [
        (CLASSES[kind], int((blocks == kind).sum()), int((blocks == kind).any(axis=1).sum()))
        for kind in range(len(CLASSES) - 1)
    ]
    memory = blocks[(blocks != NONE).any(axis=1)]
    kernel = np.isin(memory, KERNEL).sum(axis=1)
    free = np.isin(memory, (FREE, LISTED)).sum(axis=1)
    for name, chosen in (
        ("blocks wholly free", free == PER_BLOCK),
        ("blocks of no kernel page", (kernel == 0) & (free < PER_BLOCK)),
        (f"blocks of 1 to {FEW} kernel pages", (kernel > 0) & (kernel <= FEW)),
        (f"blocks of {FEW + 1} to 64 kernel pages", (kernel > FEW) & (kernel <= 64)),
        ("blocks of more", kernel > 64),
    ):
        rows.append((name, int(free[chosen].sum()), int(chosen.sum())))
    return pd.DataFrame(rows, columns=["holds", "pages", "blocks"])
