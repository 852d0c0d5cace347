"""State files of /proc as they were at one instant, when they were really read, and the start."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TypeVar

import numpy as np

from pagealloc_model.base.arrays import parts
from pagealloc_model.base.errors import RecordingError
from pagealloc_model.base.files import copy_file, is_given, text_of
from pagealloc_model.base.text import count_of
from pagealloc_model.recording.machine import DEFAULT_MIGRATETYPES
from pagealloc_model.recording.proc import counts
from pagealloc_model.recording.proc import pages as flags
from pagealloc_model.recording.proc.zoneinfo import parse_zoneinfo
from pagealloc_model.recording.trace.columns import Event, Trace
from pagealloc_model.recording.trace.side_tables import events_from

SNAPSHOT_FILES = ("buddyinfo", "pagetypeinfo", "zoneinfo", "vmstat")
FOLIO_STATS_FILE = "hugepages_stats"
"""Counters of `transparent_hugepage/hugepages-SIZE/stats`, a line each; old recordings lack it."""
_TIME_FILES = (counts.PRESSURE_FILE, counts.CPU_TIMES_FILE)
KNOWN_FILES = (*SNAPSHOT_FILES, FOLIO_STATS_FILE, *_TIME_FILES, counts.READ_TIMES_FILE)

_State = TypeVar("_State")


def _parsed(name: str, parser: Callable[[str, Path], _State]) -> cached_property[_State | None]:
    """The content of a state file, parsed on first use."""

    def parse(snapshot: Snapshot) -> _State | None:
        text = snapshot.text(name) if snapshot.has(name) else None
        try:
            return None if text is None else parser(text, snapshot.directory / name)
        except RecordingError as error:
            snapshot._problems[name] = str(error)
            return None

    return cached_property(parse)


@dataclass(frozen=True, kw_only=True, eq=False)
class Snapshot:
    """State files read one after the other; each is parsed on first use and kept.

    A file that is absent or cannot be parsed is None; `problems` says why.

    Attributes:
        time_ns: CLOCK_MONOTONIC at the start of the read.
        directory: where the files are.
    """

    time_ns: int
    directory: Path
    _problems: dict[str, str] = field(default_factory=dict, init=False, repr=False)

    buddyinfo = _parsed("buddyinfo", counts.parse_buddyinfo)
    pagetypeinfo = _parsed("pagetypeinfo", counts.parse_pagetypeinfo)
    zoneinfo = _parsed("zoneinfo", parse_zoneinfo)
    vmstat = _parsed("vmstat", counts.parse_vmstat)
    pressure = _parsed(counts.PRESSURE_FILE, counts.parse_pressure)
    system_s = _parsed(counts.CPU_TIMES_FILE, counts.parse_system_time)
    folio_stats = _parsed(FOLIO_STATS_FILE, counts.parse_vmstat)
    read_ns = _parsed(counts.READ_TIMES_FILE, counts.parse_read_times)
    """CLOCK_MONOTONIC before and after each file's own read; old recordings lack it."""

    @cached_property
    def problems(self) -> Mapping[str, str]:
        """Files that are there but cannot be used: file name -> the error in one line."""
        for name in (*SNAPSHOT_FILES, "pressure", "system_s", "folio_stats", "read_ns"):
            getattr(self, name)
        return self._problems

    def names(self) -> list[str]:
        """Names of all that its directory holds."""
        return sorted(os.listdir(self.directory))

    def has(self, name: str) -> bool:
        """True where the file was copied, readable or not."""
        return is_given(self.directory / name)

    def text(self, name: str) -> str | None:
        """A file's text, None if it cannot be read; `problems` then says why."""
        path = self.directory / name
        todo = "copy the file from /proc again"
        try:
            return text_of(path, "ascii", todo=todo, below=self.directory.parents[1])
        except RecordingError as error:
            self._problems[name] = str(error)
            return None

    def copy_to(self, destination: Path) -> tuple[str, ...]:
        """Copy the state files into a new directory; returns names of all else, which is left."""
        destination.mkdir(parents=True)
        left = [name for name in self.names() if name not in KNOWN_FILES]
        for name in self.names():
            if name in KNOWN_FILES:
                copy, below = destination / name, self.directory.parents[1]
                try:
                    copy_file(self.directory / name, copy, below=below)
                except RecordingError:
                    copy.unlink(missing_ok=True)
                    left.append(name)
        return tuple(left)


_WITH_FLAGS = ("__GFP_NOWARN", "__GFP_NORETRY", "__GFP_IO", "__GFP_FS")
_WITHOUT_FLAGS = ("__GFP_MOVABLE", "__GFP_HIGHMEM", "__GFP_ZERO")
_READERS = ("pagealloc", "python")
"""Names of recorders begin with one of these."""
_NEVER = 1 << 62
_SOON_NS = 1_000_000_000
"""A snapshot that is not read a second after its name's time says nothing of when it was."""


def dated_snapshots(snapshots: Sequence[Snapshot], trace: Trace) -> tuple[Snapshot, ...]:
    """The snapshots, each dated at the read of its zoneinfo; only their times differ.

    The name is that of the moment at which the recorder began, which on a machine under pressure
    may be some hundred milliseconds before the read. Where the recorder kept when it began to read
    each file (`Snapshot.read_ns`), that is the time. Older ones read the files in the order of
    `SNAPSHOT_FILES`: where the kernel allocates seq_file's buffer as whole pages, the recorder's
    task allocates the same number of them, one or two, at the begin of each read (fs/seq_file.c,
    `seq_buf_alloc()`), and the trace shows when. Of several tasks that might be the recorder's, it
    is the one that allocates least. Snapshots of which neither is known keep their name's time.
    """
    if not snapshots:
        return ()
    if any(snapshot.read_ns for snapshot in snapshots):
        read = [(snapshot, (snapshot.read_ns or {}).get("zoneinfo")) for snapshot in snapshots]
        ends = [*(snapshot.time_ns for snapshot in snapshots[1:]), _NEVER]
        return tuple(
            replace(one, time_ns=span[0]) if span and one.time_ns <= span[0] < end else one
            for (one, span), end in zip(read, ends, strict=True)
        )
    rows = np.zeros(0, np.int64)
    if trace.gfp_bits.keys() >= {*_WITH_FLAGS, *_WITHOUT_FLAGS}:
        # What may be buffers: single pages for the kernel, not tried hard for.
        wanted = sum(trace.gfp_bits[name] for name in _WITH_FLAGS)
        looked_at = wanted | sum(trace.gfp_bits[name] for name in _WITHOUT_FLAGS)
        for part in parts(len(trace)):
            single = (trace.event[part] == Event.ALLOC) & (trace.order[part] == 0)
            single &= (trace.gfp[part] & looked_at) == wanted
            rows = np.append(rows, part.start + np.flatnonzero(single))
    time_ns, pid = trace.time_ns[rows], trace.pid[rows]
    named_ns = np.array([snapshot.time_ns for snapshot in snapshots], np.int64)
    snapshot = np.searchsorted(named_ns, time_ns, side="right") - 1
    soon = (snapshot >= 0) & (time_ns < named_ns[snapshot] + _SOON_NS)
    time_ns, pid, snapshot = time_ns[soon], pid[soon], snapshot[soon]
    first_ns, last_ns = trace.demand_span_ns
    during = np.flatnonzero((named_ns > first_ns) & (named_ns + _SOON_NS < last_ns))
    counts_of = {}
    for task in sorted(set(pid.tolist())):
        counts = np.bincount(snapshot[pid == task], minlength=len(snapshots))
        often = 4 * (counts[during] >= len(SNAPSHOT_FILES)).sum() >= 3 * max(len(during), 1)
        if often and trace.comms.get(task, "").startswith(_READERS):
            counts_of[task] = counts
    if not counts_of:
        return tuple(snapshots)
    reader = min(counts_of, key=lambda task: np.median(counts_of[task][during]))
    counts, times, snapshot = counts_of[reader], time_ns[pid == reader], snapshot[pid == reader]
    starts = np.cumsum(counts) - counts
    # The last snapshot's own: what is read after another interval would be the next one's.
    own = times < named_ns[snapshot] + min([_SOON_NS, *np.diff(named_ns[:2])])
    owned = np.bincount(snapshot[own], minlength=len(snapshots))
    a_file = 2 if np.median(owned[during]) >= 2 * len(SNAPSHOT_FILES) else 1
    zoneinfo = (SNAPSHOT_FILES.index("zoneinfo") + 1) * a_file - 1
    return tuple(
        replace(named, time_ns=int(times[start + zoneinfo]))
        if count >= a_file * len(SNAPSHOT_FILES)
        else named
        for named, start, count in zip(snapshots, starts, counts, strict=True)
    )


def start_snapshot(snapshots: Sequence[Snapshot], trace: Trace) -> Snapshot | None:
    """The snapshot that a recording begins at, None if it begins at its first event.

    The start state is that of the first snapshot while events were recorded, carried back to the
    first event. Where more pages were allocated and freed until then than a zone's lists hold at
    the snapshot, the lists before it are hardly those of the snapshot.
    """
    first_ns, last_ns = trace.demand_span_ns
    during = (one for one in snapshots if first_ns < one.time_ns <= last_ns)
    start = next((one for one in during if one.zoneinfo is not None), None)
    if start is None or start.zoneinfo is None:
        return None
    rows = _rows_before(trace, start.time_ns)
    pfn, pages = trace.pfn[rows], np.int64(1) << trace.order[rows].astype(np.int64)
    for zone in start.zoneinfo.zones:
        if zone.start_pfn is not None:
            inside = (pfn >= zone.start_pfn) & (pfn < zone.start_pfn + zone.spanned)
            if pages[inside].sum() > zone.free + sum(pageset.count for pageset in zone.pagesets):
                return start
    return None


def events_after_snapshot(trace: Trace, start: Snapshot) -> Trace:
    """The events from a snapshot on, with a note on those left out."""
    later, left_out = events_from(trace, start.time_ns)
    seconds = (start.time_ns - trace.demand_span_ns[0]) / 1e9
    note = (
        f"the first {seconds:.3f} s, {count_of(left_out, 'event')}, are left out: they turned the "
        "free lists over before the first snapshot, at which the recording begins"
    )
    return replace(later, notes=(*trace.notes, note))


def flags_at(page_flags: np.ndarray, trace: Trace, start: Snapshot) -> np.ndarray:
    """Page flags, read before the first event, changed by the events before a snapshot."""
    rows = _rows_before(trace, start.time_ns)
    sizes = np.int64(1) << trace.order[rows].astype(np.int64)
    ends = np.cumsum(sizes)
    pages = np.repeat(trace.pfn[rows] - (ends - sizes), sizes) + np.arange(int(sizes.sum()))
    movable = DEFAULT_MIGRATETYPES.index("Movable")
    in_use = np.where(trace.migratetype[rows] == movable, flags.LRU, flags.SLAB)
    words = np.where(trace.event[rows] == Event.FREE, flags.BUDDY, in_use).astype(np.uint64)
    inside = pages < len(page_flags)
    # Of a page that several events touch, the last one counts.
    pages, words = pages[inside], np.repeat(words, sizes)[inside]
    last = len(pages) - 1 - np.unique(pages[::-1], return_index=True)[1]
    changed = page_flags.copy()
    changed[pages[last]] = words[last]
    return changed


def _rows_before(trace: Trace, end_ns: int) -> np.ndarray:
    """Rows of allocations and frees of pages before a time."""
    end = int(np.searchsorted(trace.time_ns, end_ns))
    return np.flatnonzero((trace.event[:end] <= Event.FREE) & (trace.pfn[:end] >= 0))
