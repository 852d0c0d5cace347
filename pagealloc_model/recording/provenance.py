"""Whether a recording can carry a conclusion: what it is of, whether its parts agree."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

import numpy as np

from pagealloc_model.base.arrays import parts
from pagealloc_model.base.errors import RecordingError
from pagealloc_model.base.text.counts import count_of
from pagealloc_model.recording.proc.pages import BUDDY
from pagealloc_model.recording.sampling import COMPLETE, sampled_words
from pagealloc_model.recording.trace.columns import EVENT_NAMES, Event, Trace

if TYPE_CHECKING:
    from pagealloc_model.recording.recording import Recording
    from pagealloc_model.recording.snapshot import Snapshot


USABLE, DOUBT, REFUSED = "usable", "usable with doubt", "refused"
LEVELS = (USABLE, DOUBT, REFUSED)


@dataclass(frozen=True)
class ProvenanceCheck:
    """What was checked and what came of it.

    Attributes:
        check: its name.
        level: "usable", "usable with doubt" or "refused".
        found: what the recording shows.
        todo: what to do about it, "" if there is nothing to do.
    """

    check: str
    level: str
    found: str
    todo: str = ""

    def to_dict(self) -> dict[str, str]:
        """As `info --json` prints it."""
        todo = {"todo": self.todo} if self.todo else {}
        return {"check": self.check, "level": self.level, "found": self.found, **todo}

    def __str__(self) -> str:
        """One line."""
        return f"{self.check}: {self.found}" + (f"; {self.todo}" if self.todo else "")


def worst(checks: Sequence[ProvenanceCheck]) -> str:
    """Return the level of all checks together."""
    return max((each.level for each in checks), key=LEVELS.index, default=USABLE)


def believed_words(checks: Sequence[ProvenanceCheck]) -> str:
    """Return one line: whether a recording can be believed, and what speaks against it."""
    odd = [each for each in checks if each.level != USABLE]
    if not odd:
        return f"can be believed: all {len(checks)} checks passed"
    names = ", ".join(each.check for each in odd)
    if worst(odd) == REFUSED:
        return f"cannot be believed: {names}; pagealloc info says why"
    return f"can be believed with doubt: {names}; pagealloc info says why"


NEAR_S, FAR_S = 5.0, 60.0
"""Seconds between the events and the nearest snapshot: more than the first is doubted, more than
the second refused."""
SAME_SIZE = 0.02
"""Share by which two accounts of the same memory may differ."""
FLAGS_OFF = 0.1
"""Share of memory by which kpageflags and a snapshot read within `_BESIDE_NS` may differ in what is
free; in recordings it is up to 0.006."""
_BESIDE_NS = 2_000_000_000
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
    yield from _page_flags(recording, usable)


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
                return ProvenanceCheck("snapshots' boot", REFUSED, found, _OF_ONE_RUN)
            before[name] = values[name]
    if not before:
        found = "no counter tells whether they are of one boot"
        return ProvenanceCheck("snapshots' boot", USABLE, found)
    return ProvenanceCheck("snapshots' boot", USABLE, "their counters only grow: one boot")


def _kernel(recording: Recording) -> ProvenanceCheck:
    uname = recording.meta.get("uname")
    named = {str(uname[2])} if uname else set()
    if recording.trace.release:
        named.add(recording.trace.release)
    if len(named) > 1:
        found = f"events are of {recording.trace.release}, snapshots of {uname[2]}"  # type: ignore[index]
        return ProvenanceCheck("kernel", REFUSED, found, _OF_ONE_RUN)
    counters = {
        frozenset(each.vmstat.values) for each in recording.snapshots if each.vmstat is not None
    }
    if len(counters) > 1:
        found = "vmstat has other counters in some snapshots than in others"
        return ProvenanceCheck("kernel", DOUBT, found, _OF_ONE_RUN)
    if not named:
        return ProvenanceCheck("kernel", DOUBT, "nothing names it", "name it with --rules")
    return ProvenanceCheck("kernel", USABLE, f"{named.pop()}, of events and snapshots")


def _near(recording: Recording, usable: Sequence[Snapshot]) -> ProvenanceCheck:
    """The start state is that of the nearest snapshot."""
    name = "snapshots' time"
    if not usable:
        return ProvenanceCheck(name, REFUSED, "no snapshot has a usable zoneinfo", _OF_ONE_RUN)
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
    return ProvenanceCheck(name, level, found, "" if level == USABLE else _OF_ONE_RUN)


def _away(time_ns: int, first_ns: int) -> str:
    seconds = (time_ns - first_ns) / 1e9
    return f"{abs(seconds):.1f} s {'after' if seconds > 0 else 'before'} the first event"


def _sizes(recording: Recording, usable: Sequence[Snapshot]) -> ProvenanceCheck:
    """Accounts of the machine's memory and CPUs: zoneinfo, meminfo, pagetypeinfo, kpageflags."""
    name, odd = "memory and CPUs", list(_odd_sizes(recording, usable))
    if not usable:
        return ProvenanceCheck(name, REFUSED, "no snapshot tells them", _OF_ONE_RUN)
    if odd:
        return ProvenanceCheck(name, REFUSED, "; ".join(odd), _OF_ONE_RUN)
    zones = usable[0].zoneinfo.zones if usable[0].zoneinfo else ()
    managed = sum(zone.managed for zone in zones)
    gib = managed * _PAGE_KB / (1 << 20)
    total = _mem_total(recording) or managed
    if total > managed * (1 + SAME_SIZE):
        found = f"{gib:.2f} GiB managed at the start, but meminfo has {total * _PAGE_KB >> 20} GiB"
        todo = "wait until deferred initialisation is over, then record"
        return ProvenanceCheck(name, DOUBT, found, todo)
    return ProvenanceCheck(name, USABLE, f"{gib:.2f} GiB managed; all files agree")


def _page_flags(recording: Recording, usable: Sequence[Snapshot]) -> Iterator[ProvenanceCheck]:
    """Whether kpageflags are of another machine: as many free pages as the snapshot beside them."""
    at_ns = recording.kpageflags_at_ns
    beside = [each for each in usable if abs(each.time_ns - (at_ns or 0)) < _BESIDE_NS]
    with suppress(RecordingError):  # a damaged file is refused where it is needed
        if at_ns is None or not beside or recording.kpageflags is None:
            return
        nearest = min(beside, key=lambda each: abs(each.time_ns - at_ns))
        zones = nearest.zoneinfo.zones if nearest.zoneinfo else ()
        free = sum(zone.free for zone in zones)
        flagged = int(np.count_nonzero(recording.kpageflags & BUDDY))
        if abs(flagged - free) > FLAGS_OFF * sum(zone.managed for zone in zones):
            found = f"{flagged} pages are free by kpageflags, {free} by the snapshot beside them"
            yield ProvenanceCheck(
                "page flags", DOUBT, found, f"{_OF_ONE_RUN}; or delete kpageflags"
            )


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


MOST_LOST = 0.05
"""Share of events lost above which no figure is given for a whole recording: what was freed unseen
is missing for the rest of the replay, and soon decides it."""
MAX_ORDER = 10
"""Largest order of a free list (S1.1)."""
MOST_MADE_UP = 0.05
"""Share of allocations that nothing recorded above which a replay is in doubt."""
HALF = 0.5
"""The same share above which it is refused: it then replays more guesses than requests."""
SHORT_S = 0.5
_TO_SYSTEM_WIDE = "record with perf record -a, or with pagealloc record"
_ONE_TASK = re.compile(r"^(-p|--pid|-t|--tid|-u|--uid|-G|--cgroup)")
_ALL_CPUS = ("-a", "--all-cpus")
_SOME_CPUS = ("-C", "--cpu")
_KERNEL_THREAD = re.compile(
    r"^(swapper|kworker|ksoftirqd|rcu_|kswapd|kcompactd|migration|khugepaged)"
)


_checked: WeakKeyDictionary[Recording, tuple[ProvenanceCheck, ...]] = WeakKeyDictionary()


def provenance(recording: Recording) -> tuple[ProvenanceCheck, ...]:
    """All checks that need no replay; kept while the recording lives.

    Args:
        recording: an opened recording.

    Raises:
        RecordingError: the event file cannot be read.
    """
    if recording not in _checked:
        _checked[recording] = tuple(_checks(recording))
    return _checked[recording]


def _checks(recording: Recording) -> Iterator[ProvenanceCheck]:
    yield from [
        _scope(recording),
        *_sampling(recording.trace),
        _frees(recording.trace),
        _clock(recording),
        _losses(recording.trace),
        _left_out(recording),
        _zones(recording),
    ]
    yield from snapshot_checks(recording)


def demand_checks(counts: Mapping[str, int], allocations: int) -> tuple[ProvenanceCheck, ...]:
    """Checks of what a replay has to make up.

    Args:
        counts: the replay's divergence.
        allocations: that were recorded.
    """
    hidden = counts["hidden_allocations"]
    share = hidden / max(hidden + allocations, 1)
    level = DOUBT if share > MOST_MADE_UP else USABLE
    grown = counts["grown_pages"]
    return (
        ProvenanceCheck(
            "hidden allocations",
            REFUSED if share > HALF else level,
            f"{hidden} of {hidden + allocations} allocations are known only by their frees "
            f"({share:.1%})",
            "" if level == USABLE else "record bulk allocations too: all of kmem:*, all CPUs",
        ),
        ProvenanceCheck(
            "memory that came",
            DOUBT if grown else USABLE,
            f"{count_of(grown, 'page')} came to the machine during the recording"
            if grown
            else "the machine's memory was the same throughout",
            "wait until deferred initialisation is over, then record" if grown else "",
        ),
    )


def lost_share(trace: Trace) -> float:
    """Return the events lost as a share of all that happened."""
    others = (
        len(table["time_ns"]) for name, table in trace.tables.items() if name not in EVENT_NAMES
    )
    lost = trace.losses.total
    return lost / max(lost + len(trace) + sum(others), 1)


def _scope(recording: Recording) -> ProvenanceCheck:
    """System-wide or a task: by perf's arguments, else by whether kernel threads have events."""
    words = [str(word) for word in recording.meta.get("perf") or ()]
    options = words[: words.index("--")] if "--" in words else words
    trace = recording.trace
    level, found = USABLE, "all tasks of all CPUs, by perf's arguments"
    if any(_ONE_TASK.match(word) for word in options) or (
        options and not any(word in _ALL_CPUS or word in _SOME_CPUS for word in options)
    ):
        level, found = REFUSED, "single tasks, by perf's arguments"
    elif any(word.startswith(_SOME_CPUS) for word in options):
        level, found = REFUSED, "some CPUs, by perf's arguments"
    elif not options:
        level, found = _scope_by_events(trace)
    return ProvenanceCheck("recorded", level, found, "" if level == USABLE else _TO_SYSTEM_WIDE)


def _scope_by_events(trace: Trace) -> tuple[str, str]:
    found = [np.unique(trace.pid[part]) for part in parts(len(trace))]
    pids = np.unique(np.concatenate([np.zeros(0, np.int32), *found])).tolist()
    names = [trace.comms.get(pid, "") for pid in pids]
    first, last = trace.span_ns
    if 0 in pids or any(_KERNEL_THREAD.match(name) for name in names):
        return USABLE, "all tasks: threads of the kernel have events too"
    seconds = (last - first) / 1e9
    if seconds < SHORT_S:
        return (
            DOUBT,
            f"{count_of(len(pids), 'thread')} in {seconds:.3f} s, too short to tell whether all",
        )
    return DOUBT, f"{count_of(len(pids), 'thread')} in {seconds:.1f} s, none of the kernel's"


def _sampling(trace: Trace) -> Iterator[ProvenanceCheck]:
    """Whether perf left events out on purpose."""
    if trace.sampled:
        yield ProvenanceCheck("sampled", REFUSED, sampled_words(trace), COMPLETE)


def _frees(trace: Trace) -> ProvenanceCheck:
    allocations, frees = trace.count(Event.ALLOC), trace.count(Event.FREE)
    missing = [
        name
        for name, count in (("mm_page_alloc", allocations), ("mm_page_free", frees))
        if not count
    ]
    return ProvenanceCheck(
        "allocations and frees",
        REFUSED if missing else USABLE,
        f"{count_of(allocations, 'allocation')}, {count_of(frees, 'free')}",
        f"record {' and '.join(f'kmem:{name}' for name in missing)}" if missing else "",
    )


def _clock(recording: Recording) -> ProvenanceCheck:
    clock = recording.trace.clock
    level, found, todo = USABLE, "CLOCK_MONOTONIC, as the snapshots'", ""
    if clock != "monotonic":
        told = f"{clock} clock" if clock else "unknown clock"
        level, found = USABLE, f"{told}; there is no snapshot to place by it"
        if recording.snapshots:
            level, found = DOUBT, f"{told}: where snapshots stand among the events is not sure"
            todo = "record with perf record -k CLOCK_MONOTONIC"
    return ProvenanceCheck("clock", level, found, todo)


def _losses(trace: Trace) -> ProvenanceCheck:
    lost, share = trace.losses.total, lost_share(trace)
    level = REFUSED if share > MOST_LOST else DOUBT if lost else USABLE
    return ProvenanceCheck(
        "lost",
        level,
        f"{count_of(lost, 'event')} ({share:.1%})" if lost else "no event",
        "record with larger buffers (perf record -m), or use a loss-free window" if lost else "",
    )


def _left_out(recording: Recording) -> ProvenanceCheck:
    """Why what was recorded and what is replayed differ in number."""
    whole, used = len(recording.whole_trace), len(recording.trace)
    if whole == used:
        found = f"all {whole} recorded"
    else:
        found = (
            f"{used} of {whole} recorded: those before the first snapshot in their time are left "
            "out, since they turned the free lists over"
        )
    return ProvenanceCheck("events replayed", USABLE, found)


def _zones(recording: Recording) -> ProvenanceCheck:
    """Events that touch memory which no snapshot knows."""
    zones = {
        (zone.start_pfn, zone.start_pfn + zone.spanned)
        for snapshot in recording.snapshots
        if snapshot.zoneinfo is not None
        for zone in snapshot.zoneinfo.zones
        if zone.start_pfn is not None and zone.spanned
    }
    if not zones:
        return ProvenanceCheck(
            "page frames",
            REFUSED,
            "no snapshot tells the machine's zones",
            "record with pagealloc record, which takes snapshots",
        )
    outside, asked = 0, 0
    for pfn, order in _touched(recording.trace):
        inside = np.zeros(len(pfn), bool)
        for begin, end in zones:
            inside |= (pfn >= begin) & (pfn < end)
        inside &= order <= MAX_ORDER
        outside += int((~inside).sum())
        asked += len(pfn)
    share = outside / max(asked, 1)
    level = REFUSED if share > HALF else DOUBT if outside else USABLE
    found = f"all {asked} allocations and frees lie in the machine's zones"
    if outside:
        found = f"{outside} of {asked} allocations and frees lie outside the machine's zones"
    return ProvenanceCheck(
        "page frames", level, found, "take events and snapshots from one machine" if outside else ""
    )


def _touched(trace: Trace) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Page frames and orders of allocations that succeeded and of frees, piece by piece."""
    for part in parts(len(trace)):
        pfn = trace.pfn[part]
        wanted = (trace.event[part] <= Event.FREE) & (pfn >= 0)
        yield pfn[wanted], trace.order[part][wanted]
