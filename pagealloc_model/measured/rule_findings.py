"""Rules shown by what the allocator did: checks, which no free-running prediction may use."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from pagealloc_model.allocator.sites import CAUSES
from pagealloc_model.base.jit import entry, inner
from pagealloc_model.base.text import count_of
from pagealloc_model.measured.stream import PROBE_EVENTS, Probe, Stream, allocator_stream
from pagealloc_model.measured.transactions import drain_causes, run_shape, run_starts
from pagealloc_model.policy.policy import PCP_BATCH_SCALE_MAX
from pagealloc_model.recording.machine import PMD_ORDER
from pagealloc_model.recording.trace.columns import Event, Trace
from pagealloc_model.recording.zone_map import ZoneMap

if TYPE_CHECKING:
    from pagealloc_model.recording.recording import Recording
    from pagealloc_model.recording.snapshot import Snapshot

DRAIN_PROBE, RESERVE_PROBE, REFILL_PROBE = "pa:pcp_bulk_free", "pa:ha_reserve", "pa:pcp_bulk_alloc"

ALLOC, FREE, FREE_BATCHED, ZONE_LOCKED, PCPU_DRAIN = 0, 1, 2, 3, 4
"""Values of `Event`."""
HIGHATOMIC = 3
LARGEST_LISTED_ORDER = 3

ENTERS, ANNOUNCED = -1, 100
"""A free that enters a list itself; one that only announces a batched event. Of a batched event
whose free is known, its order is noted instead."""

LIST = np.dtype(
    [("count", np.int64), ("rise", np.int64), ("lowest", np.int64), ("after_high", np.int8)],
    align=True,
)
"""A pageset: free_count, to which frees add up to a cap, and which requests halve (S4.5, S4.6);
pages on it, and the fewest, since the trace begins; whether its last free was of order 1 to 3."""
CPU = np.dtype([("open_batch", np.int64), ("waits", np.int8)], align=True)
"""A CPU: frees announced and not yet in a list; whether its next event decides on a chance."""
KPROBE = np.dtype([("row", np.int64), ("cpu", np.int64), ("flushes", np.int8)], align=True)
"""A kprobe's event: the trace's row it comes before; whether it is a drain."""


@entry
def _match_batches(
    event: np.ndarray, pfn: np.ndarray, order: np.ndarray, announced: np.ndarray, role: np.ndarray
) -> None:
    """Note which frees enter a list at a later batched event, and that event's order (T3)."""
    for row in range(len(event)):
        page = pfn[row]
        if page < 0 or page >= len(announced):
            continue
        if event[row] == FREE:
            announced[page] = row + 1
        elif event[row] == FREE_BATCHED and announced[page] > 0:
            before = announced[page] - 1
            role[row] = order[before]
            role[before] = ANNOUNCED
            announced[page] = 0


@inner
def zone_of(page: int, starts: np.ndarray, ends: np.ndarray) -> int:
    """Return the code of a page's zone, -1 outside all zones."""
    for code in range(len(starts) - 1, -1, -1):
        if page >= starts[code]:
            return code if page < ends[code] else -1
    return -1


@inner
def move(lists: np.ndarray, number: int, pages: int) -> None:
    """Count pages that enter a pageset, or leave it if negative."""
    lists[number]["rise"] += pages
    lists[number]["lowest"] = min(lists[number]["lowest"], lists[number]["rise"])


@entry
def _count_chances(
    event: np.ndarray,
    cpu: np.ndarray,
    pfn: np.ndarray,
    order: np.ndarray,
    migratetype: np.ndarray,
    role: np.ndarray,
    probes: np.ndarray,
    zones: np.ndarray,
    lists: np.ndarray,
    cpus: np.ndarray,
    counts: np.ndarray,
) -> None:
    """Count frees of order 1 to 3 that tell two thresholds of free_count apart."""
    starts, ends = zones[0], zones[1]
    cap = counts[0]
    counts[0] = 0
    probe = 0
    for row in range(len(event)):
        while probe < len(probes) and probes[probe]["row"] <= row:
            by = probes[probe]["cpu"]
            if 0 <= by < len(cpus):
                counts[1] += cpus[by]["waits"] * probes[probe]["flushes"]
                cpus[by]["waits"] = 0
            probe += 1
        here = int(cpu[row])
        if here < 0:
            continue
        kind = event[row]
        if kind == PCPU_DRAIN:
            counts[1] += cpus[here]["waits"]
        cpus[here]["waits"] = 0
        page = pfn[row]
        zone = zone_of(page, starts, ends) if page >= 0 else -1
        if zone < 0:
            continue
        number = here * zones.shape[1] + zone
        moved = int(order[row])
        enters = False
        if kind == FREE:
            enters = role[row] != ANNOUNCED
            if not enters:
                cpus[here]["open_batch"] += 1
        elif kind == FREE_BATCHED and role[row] != ENTERS:
            cpus[here]["open_batch"] -= 1
            moved = int(role[row])
            enters = True
        if kind == PCPU_DRAIN:
            move(lists, number, -(1 << moved))
        elif LARGEST_LISTED_ORDER < moved != PMD_ORDER:
            continue
        elif kind == ALLOC:
            lists[number]["count"] >>= 1
            move(lists, number, -(1 << moved))
        elif kind == ZONE_LOCKED and migratetype[row] != HIGHATOMIC:
            move(lists, number, 1 << moved)
        elif enters:
            is_high = 1 <= moved <= LARGEST_LISTED_ORDER
            follows = is_high and lists[number]["after_high"] != 0
            lists[number]["after_high"] = is_high
            move(lists, number, 1 << moved)
            if follows and cpus[here]["open_batch"] <= 0:
                counts[2 + zone] = 1
                count = lists[number]["count"]
                on_list = lists[number]["rise"] - min(lists[number]["lowest"], 0)
                batch = zones[2, zone]
                if batch <= count < zones[3, zone] and on_list > batch:
                    counts[0] += 1
                    cpus[here]["waits"] = 1
            lists[number]["count"] = min(lists[number]["count"] + (1 << moved), cap)


def flush_chances(trace: Trace, zones: ZoneMap) -> tuple[int, int]:
    """High-order frees that flush if the threshold is `batch`, not if it is batch + high_min/2.

    Such a free follows another one of order 1-3, more than a batch is on the list, free_count is
    between the thresholds, and no folio batch is open on the CPU: inside one, an interrupt finds
    the list locked. Returns their number, and of how many a drain follows at once.
    """
    if not zones.zones or not len(trace):
        return 0, 0
    batches = zones.batches()[:-1]
    high_mins = []
    for zone in zones.zones:
        batch, high_min = 1, None
        if zone.pagesets:
            batch, high_min = zone.pagesets[0].batch, zone.pagesets[0].high_min
        if high_min is None:  # not printed (S4.3)
            high_min = max(zone.low // max(len(zone.pagesets), 1), 4 * batch)
        high_mins.append(high_min)
    starts = [zone.start_pfn or 0 for zone in zones.zones]
    ends = [zone.end_pfn for zone in zones.zones]
    limits = np.array([starts, ends, batches, batches + np.array(high_mins) // 2], np.int64)
    batched = trace.pfn[trace.event == Event.FREE_BATCHED]
    pages = min(int(limits[1].max()), int(batched.max(initial=-1)) + 1)
    role = np.full(len(trace), ENTERS, np.int8)
    _match_batches(trace.event, trace.pfn, trace.order, np.zeros(max(pages, 1), np.int32), role)
    parts = [(np.zeros(0, np.int64), np.zeros(0, KPROBE))]
    for name, probe in PROBE_EVENTS.items():
        table = trace.tables.get(name)
        if table is not None:
            part = np.zeros(len(table["row"]), KPROBE)
            part["row"], part["cpu"] = table["row"], table["cpu"]
            part["flushes"] = probe == Probe.BULK_FREE
            parts.append((table["time_ns"], part))
    times, probes = (np.concatenate(column) for column in zip(*parts, strict=True))
    probes = probes[np.lexsort((times, probes["row"]))]
    nr_cpus = int(trace.cpu.max()) + 1
    cap_of = int(batches.max())
    while True:
        counts = np.zeros(2 + len(batches), np.int64)
        counts[0] = cap_of << PCP_BATCH_SCALE_MAX
        _count_chances(
            trace.event,
            trace.cpu,
            trace.pfn,
            trace.order,
            trace.migratetype,
            role,
            probes,
            limits,
            np.zeros(nr_cpus * len(batches), LIST),
            np.zeros(nr_cpus, CPU),
            counts,
        )
        seen = batches[counts[2:] > 0]
        if not len(seen) or int(seen.max()) == cap_of:
            return int(counts[0]), int(counts[1])
        cap_of = int(seen.max())


CALLS_MIN = 20
LARGER_SHARE = 0.1
"""Share of calls for more than a batch from which on a drain is one hold; causes are read off
neighbouring events, so a few calls belong to another one (recordings: 1 % against 40 %)."""
BATCHED_STEPS_MIN, SINGLE_STEPS_MIN = 30, 300
_STEP_BITS = 48
"""A step of more ns, three days, counts as one of these."""
LONGER_STEP = 1.05
"""A step between two holds takes at least this much longer than any inside one."""
ALLOC_HIGHATOMIC = 0x200
"""The allocator's internal flag of requests that may use the reserve (6.1 to 7.2)."""
LISTED_SHARE = 0.1
CAP_SEEN_MIN = 3
FALLBACKS_MIN = 10
ANNOUNCED_SHARE = 0.1
CHANCES_MIN = 20
FLUSHED_SHARE, KEPT_SHARE = 0.25, 0.1
"""Of 6.12.117's chances 35 % flush, of 7.2.13's 3 % drain for another reason; the rest of the
former are frees that missed the list, which events do not show (S4.10)."""
DECAYS_MIN = 3
RETYPED_DRAINS_MIN = 10


class Finding(NamedTuple):
    """One rule's value as a source shows it, and what shows it in one line."""

    value: bool
    line: str


@dataclass(frozen=True, eq=False)
class Answers:
    """Answers of the allocator in one recording; a method for each rule, None if they say nothing.

    Attributes:
        trace: its events.
        zones: of the first snapshot that has a usable zoneinfo.
        snapshots: all of them.
    """

    trace: Trace
    zones: ZoneMap
    snapshots: Sequence[Snapshot] = ()

    @staticmethod
    def of(recording: Recording) -> Answers:
        """The answers that a recording has."""
        zoneinfo = next((s.zoneinfo for s in recording.snapshots if s.zoneinfo), None)
        return Answers(recording.trace, ZoneMap.of(zoneinfo), recording.snapshots)

    @cached_property
    def stream(self) -> Stream:
        """The events CPU by CPU, kprobes included."""
        return allocator_stream(self.trace, with_probes=True)

    @cached_property
    def steps(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, int]:
        """Steps from page to page inside drains of single pages, of more than a batch.

        int8 cause, int64 place of the page within a batch, int64 ns; and the largest pcp->batch.
        """
        stream, members = self.stream, self.stream.rows_of(Event.PCPU_DRAIN)
        zone = self.zones.codes(stream.pfn[members])
        batches = self.zones.batches()[zone]
        batch = int(batches.max(initial=0))
        if batch <= 1:
            nothing = np.zeros(0, np.int64)
            return nothing, nothing, nothing, batch
        starts = run_starts(stream, members, zone)
        run = np.cumsum(starts) - 1
        first, sizes = run_shape(members, run)
        wanted = (sizes > batch) & (batches[starts] == batch)
        wanted &= np.bincount(run, weights=stream.order[members], minlength=len(first)) == 0
        position = members - first[run]
        inside = wanted[run] & (position > 0)
        rows = members[inside]
        step = stream.time_ns[rows] - stream.time_ns[rows - 1]
        causes = drain_causes(stream, first, self.trace.comms)
        return causes[run[inside]], position[inside] % batch, step, batch

    @cached_property
    def highs(self) -> dict[tuple[str, int], list[int]]:
        """pcp->high of every snapshot in time order, by zone and CPU."""
        highs: dict[tuple[str, int], list[int]] = {}
        for snapshot in self.snapshots:
            for zone in snapshot.zoneinfo.zones if snapshot.zoneinfo else ():
                for pageset in zone.pagesets:
                    key = (f"{zone.node}/{zone.name}", pageset.cpu)
                    highs.setdefault(key, []).append(pageset.high)
        return highs

    def free_batched(self) -> Finding | None:
        """Drains of an overflowing list hold the lock for one batch at a time."""
        return self._drains_batched("commit")

    def decay_batched(self) -> Finding | None:
        """So do periodic drains."""
        return self._drains_batched("decay")

    def _drains_batched(self, cause: str) -> Finding | None:
        """From the bulk free's own `count` argument, exact but for the cause; else from pauses.

        Dropping and retaking the lock lengthens the step from page k * batch - 1 to k * batch. Its
        median is held against the medians of the other offsets within a batch, in drains of single
        pages, whose holds end at exactly a batch.
        """
        table, stream = self.trace.tables.get(DRAIN_PROBE), self.stream
        if table is not None:
            batch = int(self.zones.batches()[:-1].max(initial=0))
            pages = table["count"][np.argsort(table["cpu"], kind="stable")]
            causes = drain_causes(stream, stream.rows_of(Probe.BULK_FREE), self.trace.comms)
            pages = pages[causes == CAUSES.index(cause)]
            if len(pages) < CALLS_MIN or not batch:
                return None
            larger = int(np.count_nonzero(pages > batch))
            line = f"{larger} of {len(pages)} {cause} calls free more than batch {batch} in a hold"
            return Finding(larger < LARGER_SHARE * len(pages), line)
        causes, offset, step, batch = self.steps
        wanted = causes == CAUSES.index(cause)
        offset, step = offset[wanted], step[wanted]
        boundary = step[offset == 0]
        if len(boundary) < BATCHED_STEPS_MIN:
            return None
        # sorted by offset, then step, in one word
        together = np.sort((offset << _STEP_BITS) + np.minimum(step, (1 << _STEP_BITS) - 1))
        offset, step = together >> _STEP_BITS, together & ((1 << _STEP_BITS) - 1)
        first, counts = np.unique(offset, return_index=True, return_counts=True)[1:]
        inside = step[first + counts // 2][offset[first] != 0]
        if not len(inside):
            return None
        middle, longest = float(np.median(boundary)), float(inside.max())
        line = (
            f"{cause} drains: a step at {batch} pages takes {middle:.0f} ns, "
            f"elsewhere {inside.min():.0f}-{longest:.0f} ns"
        )
        if middle > LONGER_STEP * longest:
            return Finding(True, line)
        is_even = len(boundary) >= SINGLE_STEPS_MIN and middle <= longest
        return Finding(False, line) if is_even else None

    def high_order_flush_adds_half_high_min(self) -> Finding | None:
        """The threshold that the kernel has by its `flush_chances`; nothing if events were lost."""
        if self.trace.losses.total:
            return None
        chances, flushed = flush_chances(self.trace, self.zones)
        if chances < CHANCES_MIN or KEPT_SHARE < flushed / chances < FLUSHED_SHARE:
            return None
        line = f"{flushed} of {chances} high-order frees above the lower threshold flush"
        return Finding(flushed / chances <= KEPT_SHARE, line)

    def pcp_auto_tuned(self) -> Finding | None:
        """A list's limit has several values."""
        values = {key: set(highs) for key, highs in self.highs.items()}
        key = max(values, key=lambda key: len(values[key]), default=("", 0))
        most = values.get(key, ())
        if len(most) < DECAYS_MIN:
            return None
        line = f"pcp->high of zone {key[0]}, CPU {key[1]}, has {len(most)} values, "
        return Finding(True, f"{line}{min(most)}-{max(most)}")

    def pcp_decays(self) -> Finding | None:
        """Limits fall by exactly an eighth."""
        ticks = sum(
            after == before - (before >> 3)
            for row in self.highs.values()
            for before, after in pairwise(row)
            if before > min(row)
        )
        line = f"pcp->high fell by exactly an eighth {count_of(ticks, 'time')}"
        return Finding(True, line) if ticks >= DECAYS_MIN else None

    def fallback_from_largest(self) -> Finding | None:
        """A fallback moves the largest buddy (6.1's rule), or claims, then steals.

        6.1 announces the buddy it falls back to, then takes a page from the requester's own list:
        often zone_locked of the same page follows. With claim and steal it precedes, or is absent.
        """
        stream, fallbacks = self.stream, self.stream.rows_of(Event.EXTFRAG)
        if len(fallbacks) < FALLBACKS_MIN:
            return None
        following = np.minimum(fallbacks + 1, len(stream) - 1)
        taken_after = stream.is_kind(Event.ZONE_LOCKED)[following]
        taken_after &= stream.is_same_page(following, fallbacks)
        count = int(np.count_nonzero(taken_after))
        line = f"{count} of {len(fallbacks)} fallbacks are announced before their page is taken"
        return Finding(count > ANNOUNCED_SHARE * len(fallbacks), line)

    def lists_match_blocks(self) -> Finding | None:
        """Pages that were refilled as another type leave a list as HIGHATOMIC.

        A page freed in between would say nothing: before 6.10 it carries its block's type from then
        on (S5.6).
        """
        trace = self.trace
        is_reserve = (trace.event == Event.PCPU_DRAIN) & (trace.migratetype == HIGHATOMIC)
        drained = trace.pfn[is_reserve & (trace.pfn >= 0)]
        rows = np.flatnonzero(np.isin(trace.pfn, drained)) if len(drained) else drained
        by_page = rows[np.lexsort((rows, trace.pfn[rows]))]
        same_page = trace.pfn[by_page[1:]] == trace.pfn[by_page[:-1]]
        before, after = by_page[:-1][same_page], by_page[1:][same_page]
        refilled = trace.event[before] == Event.ZONE_LOCKED
        refilled &= trace.migratetype[before] < HIGHATOMIC
        pages = int(np.count_nonzero(refilled & is_reserve[after]))
        line = f"{pages} pages refilled as another type were drained, unused, as HighAtomic"
        return Finding(True, line) if pages >= RETYPED_DRAINS_MIN else None

    def highatomic_from_pcp(self) -> Finding | None:
        """Requests that a per-CPU list served try to grow the reserve (S7.1).

        The request's own allocation event follows the call; just before it, a page taken from the
        buddy is announced, one that lay on a list is not.
        """
        calls = self.trace.tables.get(RESERVE_PROBE)
        if calls is None:
            return None
        main = self.stream.take(self.stream.kind <= max(Event))
        following = [np.zeros(0, np.int64)]
        for cpu in np.unique(calls["cpu"]):
            begin, end = np.searchsorted(main.cpu, [cpu, cpu + 1])
            times = calls["time_ns"][calls["cpu"] == cpu]
            rows = begin + np.searchsorted(main.time_ns[begin:end], times)
            following.append(rows[rows < end])
        request = np.concatenate(following)
        request = request[main.kind[request] == Event.ALLOC]
        if len(request) < CALLS_MIN:
            return None
        announced = main.is_kind(Event.ZONE_LOCKED, Event.EXTFRAG)[np.maximum(request - 1, 0)]
        listed = int(np.count_nonzero(~announced))
        line = f"{listed} of {len(request)} attempts to reserve follow a page from a per-CPU list"
        return Finding(listed > LISTED_SHARE * len(request), line)

    def highatomic_refills_pcp(self) -> Finding | None:
        """Requests that may use the reserve refill a per-CPU list (S4.4)."""
        flags = self.trace.tables.get(REFILL_PROBE, {}).get("flags")
        calls = self.trace.tables.get(RESERVE_PROBE, {}).get("time_ns", ())
        if flags is None or len(calls) < CALLS_MIN:
            return None
        refills = int(np.count_nonzero(flags & ALLOC_HIGHATOMIC))
        line = f"{refills} of {len(flags)} refills are for requests that may use the reserve"
        return Finding(refills > 0, line)

    def reserve_cap_rounded(self) -> Finding | None:
        """The cap the reserve stopped at: the share rounded up to blocks, or one more (S7.2)."""
        seen: dict[tuple[int, str], list[int]] = {}
        rounded: dict[tuple[int, str], int] = {}
        for snapshot in self.snapshots:
            types, zoneinfo = snapshot.pagetypeinfo, snapshot.zoneinfo
            if types is None or zoneinfo is None or "HighAtomic" not in types.migratetypes:
                continue
            column = types.migratetypes.index("HighAtomic")
            managed = {(zone.node, zone.name): zone.managed for zone in zoneinfo.zones}
            for row in types.pageblocks:
                key = (row.node, row.zone)
                seen.setdefault(key, []).append(row.blocks[column])
                rounded[key] = -(-(managed.get(key, 0) // 100) >> types.pageblock_order)
        known = [(zone, blocks, rounded[zone]) for zone, blocks in seen.items() if rounded[zone]]
        for (_, name), blocks, cap in known:
            if max(blocks) > cap:
                line = f"{max(blocks)} HighAtomic blocks in zone {name}, 1 % is {cap}"
                return Finding(False, line)
        for (_, name), blocks, cap in known:
            if blocks.count(cap) >= CAP_SEEN_MIN:
                return Finding(True, f"HighAtomic stays at {cap} blocks, 1 %, in zone {name}")
        return None


ANSWERED = (
    *("free_batched", "decay_batched", "high_order_flush_adds_half_high_min", "pcp_auto_tuned"),
    *("pcp_decays", "fallback_from_largest", "lists_match_blocks", "highatomic_from_pcp"),
    *("highatomic_refills_pcp", "reserve_cap_rounded"),
)
"""Fields of `KernelRules` that have a method of `Answers`; the others cannot be checked."""


def answer_findings(recording: Recording) -> dict[str, Finding]:
    """Findings from the allocator's answers, by rule; kept while the recording lives."""

    def find() -> dict[str, Finding]:
        answers = Answers.of(recording)
        findings = ((rule, getattr(answers, rule)()) for rule in ANSWERED)
        return {rule: finding for rule, finding in findings if finding is not None}

    return recording.remembered("answer findings", find)
