"""Checks of a recording: what it is of, whether its parts agree, whether it can be believed."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from pagealloc_model.base.arrays import parts
from pagealloc_model.base.errors import RecordingError
from pagealloc_model.base.text import count_of
from pagealloc_model.recording.machine import PAGE_KB
from pagealloc_model.recording.page_frames import SECTION
from pagealloc_model.recording.proc.pages import BUDDY
from pagealloc_model.recording.recording import Recording, most_words
from pagealloc_model.recording.sampling import COMPLETE, sampled_words
from pagealloc_model.recording.trace.columns import EVENT_NAMES, Event, Trace
from pagealloc_model.recording.trace.perf_arguments import (
    SCOPES,
    WHOLE,
    WITHOUT_PERF,
    recorded_scope,
)

if TYPE_CHECKING:
    from pagealloc_model.recording.proc.zoneinfo import ZoneInfoZone
    from pagealloc_model.recording.snapshot import Snapshot

    _Usable = Sequence[tuple[Snapshot, tuple[ZoneInfoZone, ...]]]

USABLE, DOUBT, REFUSED = LEVELS = ("usable", "usable with doubt", "refused")


@dataclass(frozen=True)
class ProvenanceCheck:
    """One check: its name, its level of `LEVELS`, what the recording shows, what to do about it."""

    check: str
    level: str
    found: str
    todo: str = ""

    def to_dict(self) -> dict[str, str]:
        """As `info --json` prints it."""
        todo = {"todo": self.todo} if self.todo else {}
        return {"check": self.check, "level": self.level, "found": self.found, **todo}

    def __str__(self) -> str:
        return f"{self.check}: {self.found}" + (f"; {self.todo}" if self.todo else "")


def worst(checks: Sequence[ProvenanceCheck]) -> str:
    """The level of all checks together."""
    return max((check.level for check in checks), key=LEVELS.index, default=USABLE)


def believed_words(checks: Sequence[ProvenanceCheck]) -> str:
    """One line: whether a recording can be believed, and what speaks against it."""
    odd = [check for check in checks if check.level != USABLE]
    if not odd:
        return f"can be believed: all {len(checks)} checks passed"
    names = ", ".join(check.check for check in odd)
    verdict = "cannot be believed" if worst(odd) == REFUSED else "can be believed with doubt"
    return f"{verdict}: {names}; pagealloc info says why"


MOST_LOST = 0.05
"""Share of events lost above which no figure is given for a whole recording: what was freed unseen
is missing for the rest of the replay, and soon decides it."""
_NEAR_S, _FAR_S = 5.0, 60.0
"""Seconds between the events and the nearest snapshot: more than the first is doubted, more than
the second refused."""
_SAME_SIZE = 0.02
"""Share by which two accounts of the same memory may differ."""
_FLAGS_OFF = 0.1
"""Share of memory by which kpageflags and a snapshot read within `_BESIDE_NS` may differ in what is
free; in recordings it is up to 0.006."""
_BESIDE_NS = 2_000_000_000
_MOST_HIDDEN = 0.05
"""Share of allocations that nothing recorded above which a replay is in doubt."""
_HALF = 0.5
"""The same share above which it is refused: it then replays more guesses than requests."""
_SHORT_S = 0.5
_LONG_GAP_S = 3600
"""Seconds without any event of a whole machine that make its times doubtful."""
_MAX_ORDER = 10
"""Largest order of a free list (S1.1)."""
_MEM_TOTAL = re.compile(r"^MemTotal:\s+(\d{1,15}) kB", re.MULTILINE)
_ONLY_GROW = re.compile(
    "(pgfree|pgfault|pgmajfault|pgactivate|pgpgin|pgpgout)$|pgalloc_|pgsteal_|pgscan_"
)
_OF_ONE_RUN = "take snapshots and events in one run, as pagealloc record does"
_AFTER_BOOT = "wait until deferred initialisation is over, then record"
_ENOUGH, _ENOUGH_FOR_TYPES = 100, 5000
_ORDERS = 64
"""Events of a kind from which on it tells that none is of an order, of most CPUs, or of a type."""
_KERNEL_THREAD = re.compile(
    r"^(swapper|kworker|ksoftirqd|rcu_|kswapd|kcompactd|migration|khugepaged)"
)


_Found = tuple[str, str] | tuple[str, str, str]
"""The level, what was found, and what to do about it."""


def provenance(recording: Recording) -> tuple[ProvenanceCheck, ...]:
    """All checks that need no replay; kept while the recording lives."""
    return recording.remembered(
        "provenance",
        lambda: tuple(ProvenanceCheck(name, *outcome) for name, outcome in _checks(recording)),
    )


def _checks(recording: Recording) -> Iterator[tuple[str, _Found]]:
    trace = recording.trace
    usable = [
        (snapshot, snapshot.zoneinfo.zones)
        for snapshot in recording.dated_snapshots
        if snapshot.zoneinfo is not None
    ]
    yield "recorded", _scope(recording)
    if trace.sampled:
        yield "sampled", (REFUSED, sampled_words(trace), COMPLETE)
    counts = {"alloc": trace.count(Event.ALLOC), "free": trace.count(Event.FREE)}
    missing = " and ".join(f"kmem:mm_page_{name}" for name, count in counts.items() if not count)
    words = f"{count_of(counts['alloc'], 'allocation')}, {count_of(counts['free'], 'free')}"
    level, todo = (REFUSED, f"record {missing}") if missing else (USABLE, "")
    yield "allocations and frees", (level, words, todo)
    level, words, todo = USABLE, "CLOCK_MONOTONIC, as the snapshots'", ""
    if trace.clock != "monotonic":
        words = f"{trace.clock} clock" if trace.clock else "unknown clock"
        if recording.snapshots:
            level, words = DOUBT, f"{words}: where snapshots stand among the events is not sure"
            todo = "record with perf record -k CLOCK_MONOTONIC"
        else:
            words += "; there is no snapshot to place by it"
    yield "clock", (level, words, todo)
    lost, share = trace.losses.total, lost_share(trace)
    level, words, todo = USABLE, "no event", ""
    if lost:
        level, words = DOUBT, f"{count_of(lost, 'event')} ({share:.1%})"
        todo = "record with larger buffers (perf record -m), or use a loss-free window"
    yield "lost", (REFUSED if share > MOST_LOST else level, words, todo)
    for gap in long_gap(trace):
        yield "time without events", (DOUBT, gap, "trim to the part that was recorded at a time")
    whole, used = len(recording.whole_trace), len(trace)
    words = f"all {whole} recorded"
    if whole != used:
        words = (
            f"{used} of {whole} recorded: those before the first snapshot in their time are left "
            "out, since they turned the free lists over"
        )
    yield "events replayed", (USABLE, words)
    yield "page frames", _page_frames(trace, usable)
    if recording.snapshots:
        yield "snapshots' boot", _boot(recording.snapshots)
        yield "kernel", _kernel(recording)
        yield "snapshots' time", _near(trace, usable)
        yield "memory and CPUs", _sizes(recording, usable)
        with suppress(RecordingError):  # a damaged file is refused where it is needed
            if (odd := _odd_page_flags(recording, usable)) is not None:
                yield "page flags", (DOUBT, odd, f"{_OF_ONE_RUN}; or delete kpageflags")


def demand_checks(counts: Mapping[str, int], allocations: int) -> tuple[ProvenanceCheck, ...]:
    """Checks of what a replay has to guess, from its divergence and the allocations recorded."""
    hidden, grown = counts["hidden_allocations"], counts["grown_pages"]
    share = hidden / max(hidden + allocations, 1)
    words = "the machine's memory was the same throughout"
    if grown:
        words = f"{count_of(grown, 'page')} came to the machine during the recording"
    doubted = share > _MOST_HIDDEN
    return (
        ProvenanceCheck(
            "hidden allocations",
            REFUSED if share > _HALF else DOUBT if doubted else USABLE,
            f"{hidden} of {hidden + allocations} allocations are known only by their frees "
            f"({share:.1%})",
            "record bulk allocations too: all of kmem:*, all CPUs" if doubted else "",
        ),
        ProvenanceCheck(
            "memory that came", DOUBT if grown else USABLE, words, _AFTER_BOOT if grown else ""
        ),
    )


def long_gap(trace: Trace) -> Iterator[str]:
    """The longest time between two events, if it is longer than a whole machine is silent."""
    gap_s = 0.0
    for part in parts(len(trace)):
        times = trace.time_ns[part.start : part.stop + 1]
        gap_s = max(gap_s, int(np.diff(times).max(initial=0)) / 1e9)
    if gap_s > _LONG_GAP_S:
        yield f"{gap_s:,.0f} s between two events, {gap_s / 86_400:,.1f} days"


def lost_share(trace: Trace) -> float:
    """The events lost as a share of all that happened."""
    others = (
        len(table["time_ns"]) for name, table in trace.tables.items() if name not in EVENT_NAMES
    )
    lost = trace.losses.total
    return lost / max(lost + len(trace) + sum(others), 1)


def _scope(recording: Recording) -> _Found:
    """What was recorded, by perf's arguments, else by what events there are."""
    words = [str(word) for word in recording.meta.get("perf") or ()]
    trace = recording.trace
    level, line = USABLE, ""
    scope = recorded_scope(words, _nr_cpus(recording)) or trace.scope
    if scope in SCOPES:
        level = {WHOLE: USABLE, WITHOUT_PERF: DOUBT}.get(scope, REFUSED)
        line = f"{scope}, by perf's arguments"
    if level != REFUSED and (missing := _missing_orders(trace)):
        level, line = REFUSED, missing
    if not line:
        level, line = _scope_by_events(recording)
    if level == USABLE and (missing := _missing_type(trace)):
        level, line = DOUBT, missing
    todo = "" if level == USABLE else "record with perf record -a, or with pagealloc record"
    return level, line, todo


def _nr_cpus(recording: Recording) -> int:
    """CPUs online when recorded, 0 if unknown."""
    return int(recording.meta.get("nr_cpus") or recording.trace.nr_cpus)


def _missing_orders(trace: Trace) -> str:
    """Why events were left out by their order.

    Every machine allocates and frees single pages, and what leaves the free lists one by one
    (mm_page_alloc_zone_locked) is for allocations of its order.
    """
    names = {Event.ALLOC: "allocation", Event.FREE: "free", Event.ZONE_LOCKED: "removal"}
    counts = {event: np.zeros(_ORDERS, np.int64) for event in names}
    for part in parts(len(trace)):
        for event, count in counts.items():
            order = trace.order[part][trace.event[part] == event]
            count += np.bincount(np.clip(order, 0, _ORDERS - 1), minlength=_ORDERS)
    for event in (Event.ALLOC, Event.FREE):
        count = int(counts[event].sum())
        if count >= _ENOUGH and not counts[event][0]:
            return f"a part of the events: none of {count_of(count, names[event])} is of order 0"
    removed = (counts[Event.ZONE_LOCKED] >= _ENOUGH) & (counts[Event.ALLOC] == 0)
    for order in np.flatnonzero(removed[: _MAX_ORDER + 1]).tolist():
        count = count_of(int(counts[Event.ZONE_LOCKED][order]), names[Event.ZONE_LOCKED])
        return f"a part of the events: {count} of order {order}, and no allocation of it"
    return ""


def _missing_type(trace: Trace) -> str:
    """Which type no allocation is of, "" if kernel and user memory are both there."""
    counts = np.zeros(2, np.int64)
    for part in parts(len(trace)):
        wanted = (trace.event[part] == Event.ALLOC) & (trace.migratetype[part] >= 0)
        migratetype = trace.migratetype[part][wanted]
        counts += [int((migratetype != 1).sum()), int((migratetype == 1).sum())]
    if counts.sum() < _ENOUGH_FOR_TYPES or counts.all():
        return ""
    name = "for user memory (Movable)" if counts[0] else "for the kernel's memory (Unmovable)"
    return f"none of {counts.sum():,} allocations is {name}: perhaps they were left out"


def _scope_by_events(recording: Recording) -> tuple[str, str]:
    """System-wide or a part, by whether threads of the kernel, and most CPUs, have events."""
    trace = recording.trace
    threads = [np.unique(trace.pid[part]) for part in parts(len(trace))]
    pids = np.unique(np.concatenate([np.zeros(0, np.int32), *threads])).tolist()
    cpus = [np.unique(trace.cpu[part]) for part in parts(len(trace))]
    cpus_seen = len(np.unique(np.concatenate([np.zeros(0, np.int16), *cpus])))
    first, last = trace.span_ns
    seconds, count = (last - first) / 1e9, count_of(len(pids), "thread")
    nr_cpus = _nr_cpus(recording)
    if 2 * cpus_seen <= nr_cpus and len(trace) >= _ENOUGH * nr_cpus:
        return DOUBT, f"events of {cpus_seen} of {nr_cpus} CPUs: perhaps the others were left out"
    if 0 in pids or any(_KERNEL_THREAD.match(trace.comms.get(pid, "")) for pid in pids):
        return USABLE, "all tasks: threads of the kernel have events too"
    if seconds < _SHORT_S:
        return DOUBT, f"{count} in {seconds:.3f} s, too short to tell whether all"
    return DOUBT, f"{count} in {seconds:.1f} s, none of the kernel's"


def _page_frames(trace: Trace, usable: _Usable) -> _Found:
    """Events that touch memory which no snapshot knows."""
    zones = {
        (zone.start_pfn, zone.start_pfn + zone.spanned)
        for _, of_one in usable
        for zone in of_one
        if zone.start_pfn is not None and zone.spanned
    }
    if not zones:
        todo = "record with pagealloc record, which takes snapshots"
        return REFUSED, "no snapshot tells the machine's zones", todo
    outside, events = 0, 0
    for part in parts(len(trace)):
        # Allocations that succeeded, and frees.
        pfn = trace.pfn[part]
        wanted = (trace.event[part] <= Event.FREE) & (pfn >= 0)
        pfn, order = pfn[wanted], trace.order[part][wanted]
        inside = np.zeros(len(pfn), bool)
        for begin, end in zones:
            inside |= (pfn >= begin) & (pfn < end)
        inside &= order <= _MAX_ORDER
        outside += int((~inside).sum())
        events += len(pfn)
    if not outside:
        return USABLE, f"all {events} allocations and frees lie in the machine's zones"
    words = f"{outside} of {events} allocations and frees lie outside the machine's zones"
    level = REFUSED if outside / events > _HALF else DOUBT
    return level, words, "take events and snapshots from one machine"


def _boot(snapshots: Sequence[Snapshot]) -> _Found:
    """Counters of one boot only grow."""
    before: dict[str, int] = {}
    for snapshot in snapshots:
        for counter, value in snapshot.vmstat.values.items() if snapshot.vmstat else ():
            if _ONLY_GROW.match(counter):
                if value < before.get(counter, 0):
                    words = f"{counter} fell from {before[counter]} to {value}: not of one boot"
                    return REFUSED, words, _OF_ONE_RUN
                before[counter] = value
    if not before:
        return USABLE, "no counter tells whether they are of one boot"
    return USABLE, "their counters only grow: one boot"


def _kernel(recording: Recording) -> _Found:
    uname, release = recording.meta.get("uname"), recording.trace.release
    named = {str(uname[2])} if uname else set()
    if release:
        named.add(release)
    if uname and len(named) > 1:
        return REFUSED, f"events are of {release}, snapshots of {uname[2]}", _OF_ONE_RUN
    snapshots = recording.snapshots
    if len({frozenset(one.vmstat.values) for one in snapshots if one.vmstat}) > 1:
        return DOUBT, "vmstat has other counters in some snapshots than in others", _OF_ONE_RUN
    if not named:
        return DOUBT, "nothing names it", "name it with --rules"
    return USABLE, f"{named.pop()}, of events and snapshots"


def _near(trace: Trace, usable: _Usable) -> _Found:
    """The start state is that of the nearest snapshot."""
    if not usable:
        return REFUSED, "no snapshot has a usable zoneinfo", _OF_ONE_RUN
    first, last = trace.demand_span_ns
    times = [snapshot.time_ns for snapshot, _ in usable]
    inside = sum(first <= time <= last for time in times)
    gap = min(max(first - time, 0) if time <= last else time - last for time in times) / 1e9
    level = REFUSED if gap > _FAR_S else DOUBT if gap > _NEAR_S or not inside else USABLE
    words = f"none among the events, the nearest {gap:.1f} s away"
    if inside:
        seconds = (min(times, key=lambda time: abs(time - first)) - first) / 1e9
        side = "after" if seconds > 0 else "before"
        words = (
            f"{inside} among the events, the nearest to the first {abs(seconds):.1f} s {side} the "
            "first event"
        )
    return level, words, "" if level == USABLE else _OF_ONE_RUN


def _sizes(recording: Recording, usable: _Usable) -> _Found:
    """Accounts of the machine's memory and CPUs: zoneinfo, meminfo, pagetypeinfo, kpageflags."""
    if not usable:
        return REFUSED, "no snapshot tells them", _OF_ONE_RUN
    first, zones = usable[0]
    managed = sum(zone.managed for zone in zones)
    recorded = _MEM_TOTAL.search(str(recording.meta.get("meminfo") or ""))
    total = int(recorded[1]) // PAGE_KB if recorded else 0
    odd = []
    if 0 < total < managed * (1 - _SAME_SIZE):
        odd.append(f"meminfo has {total} pages, zoneinfo {managed} managed ones")
    cpus = max((lists.cpu + 1 for zone in zones for lists in zone.pagesets), default=0)
    nr_cpus = _nr_cpus(recording)
    if nr_cpus and cpus and nr_cpus > cpus:
        odd.append(f"{nr_cpus} CPUs, but zoneinfo lists {cpus}")
    spans = {(zone.node, zone.name): zone.spanned for zone in zones}
    types = first.pagetypeinfo
    for row in types.pageblocks if types else ():
        blocks, spanned = sum(row.blocks), spans.get((row.node, row.zone), 0)
        if types and blocks * types.pages_per_block > spanned + 2 * types.pages_per_block:
            odd.append(f"pagetypeinfo has {blocks} blocks in zone {row.zone} of {spanned} pages")
    layouts = {
        tuple((zone.node, zone.name, zone.start_pfn) for zone in of_one) for _, of_one in usable
    }
    if len(layouts) > 1:
        odd.append("zones begin elsewhere in some snapshots than in others")
    if odd:
        return REFUSED, "; ".join(odd), _OF_ONE_RUN
    gib = managed * PAGE_KB / (1 << 20)
    if total > managed * (1 + _SAME_SIZE):
        words = f"{gib:.2f} GiB managed at the start, but meminfo has {total * PAGE_KB >> 20} GiB"
        return DOUBT, words, _AFTER_BOOT
    return USABLE, f"{gib:.2f} GiB managed; all files agree"


def _odd_page_flags(recording: Recording, usable: _Usable) -> str | None:
    """The sign that kpageflags are another machine's: their number, or how many pages are free."""
    at_ns, end = recording.kpageflags_at_ns, most_words(recording)
    words = recording.kpageflags if usable and end else None
    if words is None or end is None:
        return None
    if not end <= len(words) <= -(-end // SECTION) * SECTION:
        return f"kpageflags has {len(words)} page frames, the machine's zones end at {end}"
    nearest, zones = min(usable, key=lambda row: abs(row[0].time_ns - (at_ns or 0)))
    if at_ns is None or abs(nearest.time_ns - at_ns) >= _BESIDE_NS:
        return None
    free, flagged = sum(zone.free for zone in zones), int(np.count_nonzero(words & BUDDY))
    if abs(flagged - free) <= _FLAGS_OFF * sum(zone.managed for zone in zones):
        return None
    return f"{flagged} pages are free by kpageflags, {free} by the snapshot beside them"
