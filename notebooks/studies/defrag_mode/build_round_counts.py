"""Counters of a guest in each round of `build_rounds`, and what its pages were at each begin.

What a run has decides what can be said: copies of page flags tell what memory holds at the begin of
each round; events tell how many huge pages were served, and what daemons did; the rest are counters
of /proc, read at the snapshots nearest to a round's begin and end. What a run lacks is missing.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
import pandas as pd

import pagealloc_model as pm
from pagealloc_model.recording.proc import pages as flag
from pagealloc_model.recording.snapshot import Snapshot
from pagealloc_model.recording.trace.columns import Event, Trace

COUNTED = {
    "served": "thp_fault_alloc",
    "refused": "thp_fault_fallback",
    "direct_compactions": "compact_stall",
    "failed_compactions": "compact_fail",
    "kcompactd_scanned": "compact_daemon_migrate_scanned",
    "pages_migrated": "pgmigrate_success",
    "kswapd_scanned": "pgscan_kswapd",
}
BY_EVENTS = ("served", "refused", "pages_migrated", "kswapd_scanned")
"""Those of them that events tell as well, and at the very times of a round."""
HELD = {"slab_reclaimable": "nr_slab_reclaimable", "slab_unreclaimable": "nr_slab_unreclaimable"}
PER_BLOCK = 512
HUGE_ORDER = 9
SKIPPED, SUCCESS = 1, 8
KCOMPACTD = {
    "kswapd_found_too_few_free": ("suitable", "kswapd", "ret", SKIPPED),
    "kcompactd_woken_for_blocks": ("kcompactd_wake", "", "order", 9),
    "deferred": ("deferred", "kcompactd", "order", 9),
    "kcompactd_runs": ("end", "kcompactd", "", 0),
    "successful_runs": ("end", "kcompactd", "status", SUCCESS),
}
"""Column: event of compaction, thread ("" for any), and the column and value that are counted."""


def recording_of(run: Path) -> pm.Recording | None:
    """Return a run's recording; None where only page flags were kept."""
    return pm.open(run / "recording") if (run / "recording" / "perf.data").exists() else None


def is_whole(run: Path) -> bool:
    """Return whether a run's recording has snapshots, without which none can be replayed."""
    return (run / "recording" / "snapshots").is_dir()


def by_round(run: Path, recording: pm.Recording | None, begins: list[int]) -> pd.DataFrame:
    """Counters in each round; pages, and pageblocks by type, at its end; fallbacks by kind."""
    table = pd.DataFrame({"round": range(1, len(begins))})
    table["seconds"] = np.diff(begins) / 1e9
    at_end = [pages_at(run, number) for number in range(1, len(begins))]
    table = table.join(pd.DataFrame(at_end))
    if recording is None:
        return table
    table = table.assign(**_of_events(recording.trace, begins))
    return table.join(_of_snapshots(recording, begins)) if is_whole(run) else table


def pages_at(run: Path, number: int) -> dict[str, int]:
    """Return what page flags say at a round's begin, in pages."""
    words = np.fromfile(run / "rounds" / f"{number:02d}.kpageflags", "<u8")
    own = np.arange(len(words))
    head = np.maximum.accumulate(np.where(words & flag.COMPOUND_TAIL, 0, own))
    whole = words[head]  # flags of a folio are on its head
    free = (words & flag.BUDDY) != 0
    blocks = free[: len(free) // PER_BLOCK * PER_BLOCK].reshape(-1, PER_BLOCK)
    on_lists, anon = (whole & flag.LRU) != 0, (whole & flag.ANON) != 0
    return {
        "free": int(free.sum()),
        "free_in_whole_blocks": int(blocks.all(axis=1).sum()) * PER_BLOCK,
        "page_cache": int((on_lists & ~anon).sum()),
        "anonymous": int((anon & ((words & flag.NOPAGE) == 0)).sum()),
        "slab": int(((whole & flag.SLAB) != 0).sum()),
        "page_tables": int(((whole & flag.PGTABLE) != 0).sum()),
    }


def _of_events(trace: Trace, begins: list[int]) -> dict[str, np.ndarray]:
    """Huge pages asked for by faults, pages moved and scanned, kcompactd's wakes, fallbacks."""
    collapsing = [pid for pid, name in trace.comms.items() if name == "khugepaged"]
    huge = (trace.event == Event.ALLOC) & (trace.order == HUGE_ORDER)
    huge &= ~np.isin(trace.pid, collapsing)
    columns = {
        "served": _counts(trace.time_ns[huge & (trace.pfn >= 0)], begins),
        "refused": _counts(trace.time_ns[huge & (trace.pfn < 0)], begins),
        "pages_migrated": _sums(trace, "migrate:mm_migrate_pages", "succeeded", "", begins),
        "kswapd_scanned": _sums(
            trace, "vmscan:mm_vmscan_lru_shrink_inactive", "nr_scanned", "kswapd", begins
        ),
    } | _of_kcompactd(trace, begins)
    fallbacks = trace.tables.get("kmem:mm_page_alloc_extfrag")
    for name, owned in (("claims", True), ("steals", False)):
        rows_of = [] if fallbacks is None else (fallbacks["change_ownership"] != 0) == owned
        times = [] if fallbacks is None else fallbacks["time_ns"][rows_of]
        columns[name] = _counts(times, begins)
    return columns


def _of_snapshots(recording: pm.Recording, begins: list[int]) -> pd.DataFrame:
    """Counters that no event tells; slabs and pageblocks by type at each round's end."""
    at = [
        min(recording.snapshots, key=lambda state, time=time: abs(state.time_ns - time))
        for time in begins
    ]
    names = {name: counter for name, counter in COUNTED.items() if name not in BY_EVENTS}
    rows = []
    for before, after in pairwise(at):
        row = {name: _value(after, field) - _value(before, field) for name, field in names.items()}
        rows.append(row | {name: _value(after, gauge) for name, gauge in HELD.items()})
        rows[-1] |= _blocks(after)
    return pd.DataFrame(rows)


def _of_kcompactd(trace: Trace, begins: list[int]) -> dict[str, np.ndarray]:
    """By round: kcompactd's wakes for blocks, and what came of them."""
    columns = {}
    for name, (event, thread, column, value) in KCOMPACTD.items():
        table = trace.tables.get(f"compaction:mm_compaction_{event}")
        if table is None:
            columns[name] = _counts([], begins)
            continue
        chosen = _by_thread(trace, table["pid"], thread)
        if column:
            chosen &= table[column] == value
        columns[name] = _counts(table["time_ns"][chosen], begins)
    return columns


def _sums(trace: Trace, event: str, column: str, thread: str, begins: list[int]) -> np.ndarray:
    """Return a column's sum over an event of a thread, in each round."""
    table = trace.tables.get(event)
    if table is None:
        return _counts([], begins)
    weights = table[column] * _by_thread(trace, table["pid"], thread)
    return np.histogram(table["time_ns"], begins, weights=weights)[0].astype(np.int64)


def _by_thread(trace: Trace, pids: np.ndarray, thread: str) -> np.ndarray:
    """Return whether each task is a thread whose name begins so."""
    return np.array([trace.comms.get(int(pid), "").startswith(thread) for pid in pids], bool)


def _counts(times: Sequence[int] | np.ndarray, begins: list[int]) -> np.ndarray:
    """Return how many times fall in each round."""
    return np.histogram(times, begins)[0]


def _value(snapshot: Snapshot, name: str) -> int:
    return (snapshot.vmstat.get(name) if snapshot.vmstat else None) or 0


def _blocks(snapshot: Snapshot) -> dict[str, int]:
    """Return pageblocks by type over all zones."""
    info = snapshot.pagetypeinfo
    if info is None:
        return {}
    totals = [sum(column) for column in zip(*(row.blocks for row in info.pageblocks), strict=True)]
    wanted = ("Unmovable", "Movable", "Reclaimable")
    return {
        f"blocks_{name.lower()}": total
        for name, total in zip(info.migratetypes, totals, strict=False)
        if name in wanted
    }


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
        event = np.repeat(rows, counts)
        within = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
        pages = self.pfn[event] + within
        known = (pages >= 0) & (pages < len(self.last))
        self.last[pages[known]] = event[known]
        self._next = end

    def allocated(self) -> np.ndarray:
        """Return for each frame whether its last event was an allocation."""
        return (self.last >= 0) & (self.kind[self.last] == Event.ALLOC)


def pages_by_round(
    recording: pm.Recording, marks: Path, begins: list[int]
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Content of blocks at the end of each round, 0 for the first one's begin."""
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
