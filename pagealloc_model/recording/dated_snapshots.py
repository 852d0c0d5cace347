"""When the files of a snapshot were really read.

A snapshot is named after the moment at which its recorder begins. On a machine under pressure the
recorder waits for a CPU between two files, so that zoneinfo can be some hundred milliseconds
younger than the name says, and by then thousands of pages were allocated or freed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from pagealloc_model.base.arrays import parts
from pagealloc_model.recording.snapshot import SNAPSHOT_FILES, Snapshot
from pagealloc_model.recording.trace.columns import Event, Trace

_WITH_FLAGS = ("__GFP_NOWARN", "__GFP_NORETRY", "__GFP_IO", "__GFP_FS")
_WITHOUT_FLAGS = ("__GFP_MOVABLE", "__GFP_HIGHMEM", "__GFP_ZERO")
_READERS = ("pagealloc", "python")
"""Names of recorders begin with one of these."""
_SOON_NS = 1_000_000_000
"""A snapshot that is not read a second after its name's time says nothing of when it was."""


def dated_snapshots(snapshots: Sequence[Snapshot], trace: Trace) -> tuple[Snapshot, ...]:
    """The snapshots, each dated at the read of its zoneinfo.

    Where the recorder kept when it began to read each file (`Snapshot.read_ns`), that is the time.
    Older ones read the files in the order of `SNAPSHOT_FILES`: where the kernel allocates
    seq_file's buffer as whole pages, the recorder's task allocates the same number of them, one or
    two, at the begin of each read (fs/seq_file.c, `seq_buf_alloc()`), and the trace shows when. Of
    several tasks that might be the recorder's, it is the one that allocates least.
    Snapshots of which neither is known keep the time of their name.

    Args:
        snapshots: in time order.
        trace: the recording's events.

    Returns:
        As many snapshots in the same order; only their times differ.
    """
    if any(each.read_ns for each in snapshots):
        return tuple(_dated_by_recorder(each) for each in snapshots)
    if not snapshots:
        return ()
    time_ns, pid = _buffers(trace)
    named_ns = np.array([each.time_ns for each in snapshots], np.int64)
    snapshot = np.searchsorted(named_ns, time_ns, side="right") - 1
    soon = (snapshot >= 0) & (time_ns < named_ns[snapshot] + _SOON_NS)
    time_ns, pid, snapshot = time_ns[soon], pid[soon], snapshot[soon]
    first_ns, last_ns = trace.demand_span_ns
    during = np.flatnonzero((named_ns > first_ns) & (named_ns + _SOON_NS < last_ns))
    found = {}
    for reader in sorted(set(pid.tolist())):
        if trace.comms.get(reader, "").startswith(_READERS):
            counts = np.bincount(snapshot[pid == reader], minlength=len(snapshots))
            if 4 * (counts[during] >= len(SNAPSHOT_FILES)).sum() >= 3 * max(len(during), 1):
                found[reader] = counts
    if not found:
        return tuple(snapshots)
    reader = min(found, key=lambda each: np.median(found[each][during]))
    counts, times = found[reader], time_ns[pid == reader]
    starts = np.cumsum(counts) - counts
    # The last snapshot's own: what is read after another interval would be the next one's.
    own = times < named_ns[snapshot[pid == reader]] + min([_SOON_NS, *np.diff(named_ns[:2])])
    owned = np.bincount(snapshot[pid == reader][own], minlength=len(snapshots))
    a_file = 2 if np.median(owned[during]) >= 2 * len(SNAPSHOT_FILES) else 1
    zoneinfo = (SNAPSHOT_FILES.index("zoneinfo") + 1) * a_file - 1
    return tuple(
        replace(each, time_ns=int(times[start + zoneinfo]))
        if count >= a_file * len(SNAPSHOT_FILES)
        else each
        for each, start, count in zip(snapshots, starts, counts, strict=True)
    )


def _dated_by_recorder(snapshot: Snapshot) -> Snapshot:
    """The snapshot at the begin of its zoneinfo's read, where its recorder kept that."""
    span = (snapshot.read_ns or {}).get("zoneinfo")
    return snapshot if span is None else replace(snapshot, time_ns=span[0])


def _buffers(trace: Trace) -> tuple[np.ndarray, np.ndarray]:
    """Times and tasks of what may be buffers: single pages for the kernel, not tried hard for."""
    if not trace.gfp_bits.keys() >= {*_WITH_FLAGS, *_WITHOUT_FLAGS}:
        return np.zeros(0, np.int64), np.zeros(0, np.int32)
    wanted = sum(trace.gfp_bits[name] for name in _WITH_FLAGS)
    unwanted = sum(trace.gfp_bits[name] for name in _WITHOUT_FLAGS)
    rows = [
        part.start
        + np.flatnonzero(
            (trace.event[part] == Event.ALLOC)
            & (trace.order[part] == 0)
            & ((trace.gfp[part] & (wanted | unwanted)) == wanted)
        )
        for part in parts(len(trace.event))
    ]
    found = np.concatenate([*rows, np.zeros(0, np.int64)]).astype(np.int64)
    return trace.time_ns[found], trace.pid[found]
