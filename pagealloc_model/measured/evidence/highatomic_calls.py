"""Rules of the highatomic reserve, from the kprobes on it and from what it grew to (S7)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from pagealloc_model.measured.evidence.finding import Finding
from pagealloc_model.measured.stream import Stream
from pagealloc_model.recording.trace.columns import Event

if TYPE_CHECKING:
    from pagealloc_model.recording.snapshot import Snapshot

RESERVE_PROBE = "pa:ha_reserve"
REFILL_PROBE = "pa:pcp_bulk_alloc"
ALLOC_HIGHATOMIC = 0x200
"""The allocator's internal flag of requests that may use the reserve (6.1 to 7.2)."""
CALLS_MIN = 20
LISTED_SHARE = 0.1
CAP_SEEN_MIN = 3

Tables = Mapping[str, Mapping[str, np.ndarray]]


def reserve_after_list(stream: Stream, tables: Tables) -> Finding | None:
    """Whether requests that a per-CPU list served try to grow the reserve (S7.1).

    The request's own allocation event follows the call; just before it, a page taken from the
    buddy is announced, one that lay on a list is not.
    """
    if RESERVE_PROBE not in tables:
        return None
    main = stream.take(stream.kind <= max(Event))
    request = _first_rows_from(main, tables[RESERVE_PROBE])
    request = request[main.kind[request] == Event.ALLOC]
    if len(request) < CALLS_MIN:
        return None
    announced = main.is_kind(Event.ZONE_LOCKED, Event.EXTFRAG)[np.maximum(request - 1, 0)]
    listed = int(np.count_nonzero(~announced))
    line = f"{listed} of {len(request)} attempts to reserve follow a page from a per-CPU list"
    return Finding(value=listed > LISTED_SHARE * len(request), line=line)


def _first_rows_from(main: Stream, calls: Mapping[str, np.ndarray]) -> np.ndarray:
    """The first row of each call's CPU at or after it; calls without one are left out."""
    rows = []
    for cpu in np.unique(calls["cpu"]):
        begin, end = np.searchsorted(main.cpu, [cpu, cpu + 1])
        times = calls["time_ns"][calls["cpu"] == cpu]
        found = begin + np.searchsorted(main.time_ns[begin:end], times)
        rows.append(found[found < end])
    return np.concatenate(rows) if rows else np.zeros(0, np.int64)


def refills_for_highatomic(tables: Tables) -> Finding | None:
    """Whether requests that may use the reserve refill a per-CPU list (S4.4)."""
    calls = tables.get(REFILL_PROBE, {})
    if "flags" not in calls or len(tables.get(RESERVE_PROBE, {}).get("time_ns", ())) < CALLS_MIN:
        return None
    refills = int(np.count_nonzero(calls["flags"] & ALLOC_HIGHATOMIC))
    line = f"{refills} of {len(calls['flags'])} refills are for requests that may use the reserve"
    return Finding(value=refills > 0, line=line)


def cap(snapshots: Sequence[Snapshot]) -> Finding | None:
    """Which cap the reserve stopped at: the share rounded up to blocks, or a block more (S7.2)."""
    seen: dict[tuple[int, str], list[int]] = {}
    rounded: dict[tuple[int, str], int] = {}
    for snapshot in snapshots:
        types, zoneinfo = snapshot.pagetypeinfo, snapshot.zoneinfo
        if types is None or zoneinfo is None or "HighAtomic" not in types.migratetypes:
            continue
        column = types.migratetypes.index("HighAtomic")
        managed = {(zone.node, zone.name): zone.managed for zone in zoneinfo.zones}
        for row in types.pageblocks:
            key = (row.node, row.zone)
            seen.setdefault(key, []).append(row.blocks[column])
            rounded[key] = -(-(managed.get(key, 0) // 100) >> types.pageblock_order)
    for key, blocks in seen.items():
        if rounded[key] and max(blocks) > rounded[key]:
            line = f"{max(blocks)} HighAtomic blocks in zone {key[1]}, 1 % is {rounded[key]}"
            return Finding(value=False, line=line)
    for key, blocks in seen.items():
        if rounded[key] and blocks.count(rounded[key]) >= CAP_SEEN_MIN:
            line = f"HighAtomic stays at {rounded[key]} blocks, 1 %, in zone {key[1]}"
            return Finding(value=True, line=line)
    return None
