"""Whether snapshots are of the boot, kernel, machine and time of a recording's events."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from pagealloc_model.recording.provenance_check import DOUBT, REFUSED, USABLE, ProvenanceCheck

if TYPE_CHECKING:
    from pagealloc_model.recording.recording import Recording
    from pagealloc_model.recording.snapshot import Snapshot

NEAR_S, FAR_S = 5.0, 60.0
"""Seconds between the events and the nearest snapshot: more than the first is doubted, more than
the second refused."""
SAME_SIZE = 0.02
"""Share by which two accounts of the same memory may differ."""
_MEM_TOTAL = re.compile(r"^MemTotal:\s+(\d+) kB", re.MULTILINE)
_ONLY_GROW = ("pgfree", "pgfault", "pgmajfault", "pgactivate", "pgpgin", "pgpgout")
_PAGE_KB = 4
_OF_ONE_RUN = "take snapshots and events in one run, as pagealloc record does"


def snapshot_checks(recording: Recording) -> Iterator[ProvenanceCheck]:
    """Check what the snapshots say against one another, meta.json and the events.

    Returns:
        A check of each; nothing without a snapshot, which `missing` names.
    """
    if not recording.snapshots:
        return
    usable = [each for each in recording.dated_snapshots if each.zoneinfo is not None]
    yield _boot(recording.dated_snapshots)
    yield _kernel(recording)
    yield _near(recording, usable)
    yield _sizes(recording, usable)


def _check(check: str, level: str, found: str, todo: str = "") -> ProvenanceCheck:
    return ProvenanceCheck(check=check, level=level, found=found, todo=todo)


def _boot(snapshots: Sequence[Snapshot]) -> ProvenanceCheck:
    """Counters of one boot only grow."""
    before: dict[str, int] = {}
    for snapshot in snapshots:
        if snapshot.vmstat is None:
            continue
        values = snapshot.vmstat.values
        for name in values:
            grows = name in _ONLY_GROW or name.startswith(("pgalloc_", "pgsteal_", "pgscan_"))
            if not grows:
                continue
            if values[name] < before.get(name, 0):
                found = f"{name} fell from {before[name]} to {values[name]}: not of one boot"
                return _check("snapshots' boot", REFUSED, found, _OF_ONE_RUN)
            before[name] = values[name]
    if not before:
        found = "no counter tells whether they are of one boot"
        return _check("snapshots' boot", USABLE, found)
    return _check("snapshots' boot", USABLE, "their counters only grow: one boot")


def _kernel(recording: Recording) -> ProvenanceCheck:
    uname = recording.meta.get("uname")
    named = {str(uname[2])} if uname else set()
    if recording.trace.release:
        named.add(recording.trace.release)
    if len(named) > 1:
        found = f"events are of {recording.trace.release}, snapshots of {uname[2]}"  # type: ignore[index]
        return _check("kernel", REFUSED, found, _OF_ONE_RUN)
    counters = {
        frozenset(each.vmstat.values) for each in recording.snapshots if each.vmstat is not None
    }
    if len(counters) > 1:
        found = "vmstat has other counters in some snapshots than in others"
        return _check("kernel", DOUBT, found, _OF_ONE_RUN)
    if not named:
        return _check("kernel", DOUBT, "nothing names it", "name it with --rules")
    return _check("kernel", USABLE, f"{named.pop()}, of events and snapshots")


def _near(recording: Recording, usable: Sequence[Snapshot]) -> ProvenanceCheck:
    """The start state is that of the nearest snapshot."""
    name = "snapshots' time"
    if not usable:
        return _check(name, REFUSED, "no snapshot has a usable zoneinfo", _OF_ONE_RUN)
    first, last = recording.trace.demand_span_ns
    times = [each.time_ns for each in usable]
    inside = sum(first <= time <= last for time in times)
    gap = min(max(first - time, 0) if time <= last else time - last for time in times) / 1e9
    level = REFUSED if gap > FAR_S else DOUBT if gap > NEAR_S or not inside else USABLE
    if inside:
        nearest = min(times, key=lambda time: abs(time - first))
        found = f"{inside} among the events, the nearest to the first {_away(nearest, first)}"
    else:
        found = f"none among the events, the nearest {gap:.1f} s away"
    return _check(name, level, found, "" if level == USABLE else _OF_ONE_RUN)


def _away(time_ns: int, first_ns: int) -> str:
    seconds = (time_ns - first_ns) / 1e9
    return f"{abs(seconds):.1f} s {'after' if seconds > 0 else 'before'} the first event"


def _sizes(recording: Recording, usable: Sequence[Snapshot]) -> ProvenanceCheck:
    """Accounts of the machine's memory and CPUs: zoneinfo, meminfo, pagetypeinfo, kpageflags."""
    name, odd = "memory and CPUs", list(_odd_sizes(recording, usable))
    if not usable:
        return _check(name, REFUSED, "no snapshot tells them", _OF_ONE_RUN)
    if odd:
        return _check(name, REFUSED, "; ".join(odd), _OF_ONE_RUN)
    zones = usable[0].zoneinfo.zones if usable[0].zoneinfo else ()
    managed = sum(zone.managed for zone in zones)
    gib = managed * _PAGE_KB / (1 << 20)
    total = _mem_total(recording) or managed
    if total > managed * (1 + SAME_SIZE):
        found = f"{gib:.2f} GiB managed at the start, but meminfo has {total * _PAGE_KB >> 20} GiB"
        todo = "wait until deferred initialisation is over, then record"
        return _check(name, DOUBT, found, todo)
    return _check(name, USABLE, f"{gib:.2f} GiB managed; all files agree")


def _mem_total(recording: Recording) -> int:
    """Pages that meminfo has, 0 if it was not recorded."""
    found = _MEM_TOTAL.search(str(recording.meta.get("meminfo") or ""))
    return int(found[1]) // _PAGE_KB if found else 0


def _odd_sizes(recording: Recording, usable: Sequence[Snapshot]) -> Iterator[str]:
    for snapshot in usable[:1]:
        zones = snapshot.zoneinfo.zones if snapshot.zoneinfo else ()
        managed = sum(zone.managed for zone in zones)
        total = _mem_total(recording) or managed
        if total < managed * (1 - SAME_SIZE):
            yield f"meminfo has {total} pages, zoneinfo {managed} managed ones"
        spans = {(zone.node, zone.name): zone.spanned for zone in zones}
        cpus = max((each.cpu + 1 for zone in zones for each in zone.pagesets), default=0)
        told = recording.meta.get("nr_cpus") or recording.trace.nr_cpus
        if told and cpus and told > cpus:
            yield f"{told} CPUs, but zoneinfo lists {cpus}"
        types = snapshot.pagetypeinfo
        for row in types.pageblocks if types else ():
            blocks = sum(row.blocks)
            spanned = spans.get((row.node, row.zone), 0)
            if types and blocks * types.pages_per_block > spanned + 2 * types.pages_per_block:
                yield f"pagetypeinfo has {blocks} blocks in zone {row.zone} of {spanned} pages"
    layouts = {
        tuple((zone.node, zone.name, zone.start_pfn) for zone in each.zoneinfo.zones)
        for each in usable
        if each.zoneinfo
    }
    if len(layouts) > 1:
        yield "zones begin elsewhere in some snapshots than in others"
