"""A recording alone, in the tables that a replay predicts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pandas as pd

from pagealloc_model.allocator.sites import CAUSES, MEASURED
from pagealloc_model.base.arrays import parts
from pagealloc_model.base.text import count_of
from pagealloc_model.measured.contention import (
    NO_TIMES,
    Contention,
    announced_contention,
    announced_holds,
    contended_releases,
    measured_contention,
)
from pagealloc_model.measured.folios import counted_folios, recorded_falls, recorded_folios
from pagealloc_model.measured.rules import recorded_rules
from pagealloc_model.measured.stream import (
    allocator_stream,
)
from pagealloc_model.measured.transactions import (
    UNKNOWN_ORDER,
    RunRules,
    inferred_transactions,
    named,
    probed_transactions,
    zone_columns,
)
from pagealloc_model.recording.machine import NUMBERED_EVERYWHERE
from pagealloc_model.recording.recording import Recording
from pagealloc_model.recording.sampling import refuse_sampled
from pagealloc_model.recording.snapshot import Snapshot
from pagealloc_model.recording.trace import tracepoints as tp
from pagealloc_model.recording.trace.columns import Event, Trace
from pagealloc_model.recording.trace.formats import stable_gfp_bits
from pagealloc_model.recording.zone_map import ZoneMap

FALLBACK_KINDS = ("claim_block", "claim", "steal")


def fallbacks_table(
    trace: Trace,
    *,
    migratetypes: Sequence[str],
    pageblock_order: int,
    before_ns: float = np.inf,
) -> pd.DataFrame:
    """Fallback operations before an instant by requested and found type and order (T6)."""
    names = ["alloc_migratetype", "fallback_migratetype", "alloc_order", "fallback_order"]
    table = trace.tables.get(tp.PAGE_ALLOC_EXTFRAG, {})
    none = np.zeros(0, np.int64)
    known = np.asarray(table.get("time_ns", none)) < before_ns
    columns = {name: np.asarray(table.get(name, none), np.int64)[known] for name in names}
    owned = np.asarray(table.get("change_ownership", none))[known] != 0
    kind = np.where(columns["fallback_order"] >= pageblock_order, 0, np.where(owned, 1, 2))
    frame = pd.DataFrame({**columns, "kind": kind})
    counted = frame.groupby([*names, "kind"]).size().reset_index(name="count")
    for name, words in (*((name, migratetypes) for name in names[:2]), ("kind", FALLBACK_KINDS)):
        counted[name] = named(counted[name].to_numpy(), words)
    return counted


def outcomes_table(trace: Trace, *, pmd_order: int, reclaim_recorded: bool) -> pd.DataFrame:
    """Calls of the core allocator by class and order; one user request may make several (T2).

    `stalled` counts calls during which their task entered direct reclaim.
    """
    keys = ["class", "order", "asked", "failed", "stalled"]
    stalled = _stalled(trace, tp.DIRECT_RECLAIM_BEGIN)
    pieces = [pd.DataFrame(np.zeros((0, len(keys)), np.int64), columns=keys)]
    for part in parts(len(trace)):
        allocs = np.flatnonzero(trace.event[part] == Event.ALLOC) + part.start
        order = trace.order[allocs]
        request_class = request_classes(
            trace.gfp[allocs], order, bits=trace.gfp_bits, pmd_order=pmd_order
        )
        stalls = np.zeros(len(allocs), bool)
        if len(allocs):
            begin, end = np.searchsorted(stalled, [allocs[0], allocs[-1] + 1])
            stalls[np.searchsorted(allocs, stalled[begin:end])] = True
        # classes are few, and so are orders: one number for both
        both = order.astype(np.int64) * len(REQUEST_CLASSES) + request_class
        least = int(both.min(initial=0))
        counts = [
            np.bincount(both[chosen] - least, minlength=int(both.max(initial=0)) - least + 1)
            for chosen in (slice(None), trace.pfn[allocs] < 0, stalls)
        ]
        seen = np.flatnonzero(counts[0])
        order, request_class = np.divmod(seen + least, len(REQUEST_CLASSES))
        columns = (request_class, order, *(count[seen] for count in counts))
        pieces.append(pd.DataFrame(dict(zip(keys, columns, strict=True))))
    counted = pd.concat(pieces).groupby(keys[:2], as_index=False).sum().astype("Int64")
    counted["succeeded"] = counted["asked"] - counted["failed"]
    counted["class"] = named(counted["class"].to_numpy(np.int64), REQUEST_CLASSES)
    counted["reason"] = ""
    if not reclaim_recorded:
        counted["stalled"] = pd.array([pd.NA] * len(counted), "Int64")
        counted["reason"] = f"stalled: {tp.DIRECT_RECLAIM_BEGIN} was not recorded"
    columns = ["class", "order", "asked", "succeeded", "failed", "stalled", "reason"]
    return counted[columns].astype({"order": "int64", "reason": "str"})


def _stalled(trace: Trace, name: str) -> np.ndarray:
    """Rows, ascending, of allocations whose task had an event since its allocation before.

    Only requests that may reclaim count: an interrupt's requests carry the task's id too.
    """
    begins = trace.tables.get(name)
    if begins is None or not len(begins["pid"]):
        return np.zeros(0, np.int64)
    tasks_that_reclaim = np.unique(begins["pid"])
    waits = np.uint32(trace.gfp_bits.get("__GFP_DIRECT_RECLAIM", _GFP["__GFP_DIRECT_RECLAIM"]))
    requests = [np.zeros(0, np.int64)]
    for part in parts(len(trace)):
        waiting = (trace.event[part] == Event.ALLOC) & ((trace.gfp[part] & waits) != 0)
        waiting &= np.isin(trace.pid[part], tasks_that_reclaim)
        requests.append(np.flatnonzero(waiting) + part.start)
    rows = np.concatenate(requests)
    allocs, reclaims = (
        pd.DataFrame({"time_ns": times, "pid": tasks.astype(np.int64)}).sort_values(
            "time_ns", kind="stable"
        )
        for times, tasks in (
            (trace.time_ns[rows], trace.pid[rows]),
            (begins["time_ns"], begins["pid"]),
        )
    )
    later = {"direction": "forward", "allow_exact_matches": False}
    allocs = allocs.assign(row=rows[allocs.index])
    following = pd.merge_asof(reclaims, allocs, on="time_ns", by="pid", **later)
    return np.unique(following["row"].dropna()).astype(np.int64)


def bin_start(frame: pd.DataFrame, start_ns: int, bin_ns: int) -> pd.Series:
    """The start of the bin that each row's `time_ns` lies in."""
    return start_ns + (frame["time_ns"] - start_ns) // bin_ns * bin_ns


def announced_times(holds: pd.DataFrame, keys: list[str]) -> pd.DataFrame:
    """hold_ns, wait_ns and max_hold_ns of announced holds by some of their columns."""
    grouped = holds.groupby(keys, dropna=False)
    times = grouped[["hold_ns", "wait_ns"]].sum(min_count=1)
    times["max_hold_ns"] = grouped["hold_ns"].max()
    return times.astype("Float64")


REQUEST_CLASSES = ("thp", "atomic", "nowait", "movable", "reclaimable", "kernel")


_GFP = stable_gfp_bits(None)


def request_classes(
    gfp: np.ndarray, order: np.ndarray, *, bits: Mapping[str, int], pmd_order: int = 9
) -> np.ndarray:
    """The class of each request, as an index into `REQUEST_CLASSES`, the first that fits.

    thp: movable huge page of `pmd_order`; atomic: HIGH without direct reclaim; nowait: without.
    """
    names = ("HIGH", "DIRECT_RECLAIM", "MOVABLE", "COMP", "NOMEMALLOC", "RECLAIMABLE")
    high, waits, movable, compound, no_reserves, reclaimable = (
        (gfp & np.uint32(bits.get(name, _GFP[name]))) != 0
        for name in (f"__GFP_{name}" for name in names)
    )
    thp = movable & compound & no_reserves & (order == pmd_order)
    conditions = [thp, high & ~waits, ~waits, movable, reclaimable]
    kernel = len(conditions)
    return np.select(conditions, list(range(kernel)), kernel).astype(np.int8)


_SNAPSHOT_TABLES = {
    "free_pages": "time_ns node zone order migratetype buddies pages",
    "pageblocks": "time_ns node zone migratetype blocks",
    "pcp": "time_ns node zone cpu count high",
    "boosts": "time_ns node zone pages",
    "vmstat": "name time_ns value",
}
_TYPES = dict.fromkeys(("name", "zone", "migratetype"), "str") | {"high": "Float64"}


def snapshot_tables(snapshots: Iterable[Snapshot]) -> dict[str, pd.DataFrame]:
    """Tables by name of what snapshots print, in the columns that `Measured` names.

    A cell the kernel printed as `>100000` is only a lower bound, so `buddies` and `pages` are NA.
    """
    rows: dict[str, list[tuple[object, ...]]] = {name: [] for name in _SNAPSHOT_TABLES}
    for snapshot in snapshots:
        at, types = snapshot.time_ns, snapshot.pagetypeinfo
        for row in types.free_lists if types else ():
            cells = zip(row.buddies, row.lower_bound, strict=True)
            rows["free_pages"] += (
                (at, row.node, row.zone, order, row.migratetype)
                + ((pd.NA, pd.NA) if bound else (count, count << order))
                for order, (count, bound) in enumerate(cells)
            )
        for row in types.pageblocks if types else ():
            rows["pageblocks"] += (
                (at, row.node, row.zone, *cell)
                for cell in zip(types.migratetypes, row.blocks, strict=True)
            )
        for zone in snapshot.zoneinfo.zones if snapshot.zoneinfo else ():
            rows["pcp"] += (
                (at, zone.node, zone.name, pageset.cpu, pageset.count, pageset.high)
                for pageset in zone.pagesets
            )
            if zone.boost is not None:
                rows["boosts"].append((at, zone.node, zone.name, zone.boost))
        counters = snapshot.vmstat.values if snapshot.vmstat else {}
        rows["vmstat"] += ((name, at, value) for name, value in counters.items())
    tables = {}
    for name, words in _SNAPSHOT_TABLES.items():
        columns = words.split()
        kinds = {column: _TYPES.get(column, "int64") for column in columns}
        if name == "free_pages":
            kinds |= {"buddies": "Int64", "pages": "Int64"}
        tables[name] = pd.DataFrame.from_records(rows[name], columns=columns).astype(kinds)
    return tables


PROBE = "pa:block_type"
_TYPE_BITS = 7
_PAGE_BYTES = 64
"""Size of struct page on x86, where a page's place in vmemmap is its frame number."""
_BASE_ALIGNMENT = 1 << 30
"""Of vmemmap. An anonymised recording's base has lost it: frame numbers are then unknown."""


def block_types_table(trace: Trace, zones: ZoneMap, *, migratetypes: Sequence[str]) -> pd.DataFrame:
    """Every setting of a pageblock's type while the probe was on."""
    table = trace.tables.get(PROBE, {})
    empty = np.zeros(0, np.int64)
    number = np.asarray(table.get("mt", empty), np.int64)
    pfn = np.full(len(number), -1)
    if "pfn" in table:
        pfn = np.asarray(table["pfn"]).astype(np.int64)
    elif "base" in table:
        page, base = np.asarray(table["page"], np.uint64), np.asarray(table["base"], np.uint64)
        known = (base % np.uint64(_BASE_ALIGNMENT) == 0) & (page >= base)
        frame = ((page - base) // np.uint64(_PAGE_BYTES)).astype(np.int64)
        pfn = trace.frames.indices(np.where(known, frame, -1))
    rows = np.arange(len(number))
    if "mask" in table:
        rows = np.flatnonzero(np.asarray(table["mask"]) & _TYPE_BITS)
    pfn = pfn[rows]
    return pd.DataFrame(
        {
            "time_ns": np.asarray(table.get("time_ns", empty))[rows],
            **zone_columns(zones.codes(pfn), zones),
            "cpu": np.asarray(table.get("cpu", empty)).astype(np.int64)[rows],
            "pfn": pd.arrays.IntegerArray(trace.frames.numbers(pfn), pfn < 0),
            "migratetype": named(number[rows] & _TYPE_BITS, migratetypes),
        }
    )


DEFAULT_BIN_NS = 1_000_000_000
DEFAULT_PAGEBLOCK_ORDER = 9
_NOTED_PART_NS = 100_000_000
WITHOUT_EVENTS = ("reserve", "unreserve", "boost_reset", "empty_buddy_alloc")
"""Sites of zone->lock that no event shows."""
_BOUNDARY_PROBES = ("pa:pcp_bulk_alloc", "pa:pcp_bulk_alloc_ret", "pa:pcp_bulk_free")
_DIRECT_FREE_PROBE = "pa:free_one"


@dataclass(frozen=True, kw_only=True, eq=False)
class Measured:
    """Measured tables, in the schema of a replay's predicted ones; NA is "cannot be known".

    Exact: `free_pages`, `pageblocks`, `pcp` and `vmstat`, each at the instant its file was read
    (pagetypeinfo is not atomic, T12.2); `fallbacks`; `outcomes`, which count calls of the core
    allocator, not user requests; and totals of objects and pages.

    `transactions`, `transactions_full` and `lock` rest on `boundaries`:

    - "lock tracepoints": the kernel's own holds of refills, drains and direct frees (T8), with
      times.
    - "kprobes": calls of the kernel's own functions; only the cause of a drain is read off the
      event before it.
    - "refill events": the objects of refills and direct allocations are the kernel's word; where
      one refill ends and the next begins is inferred, as drains and direct frees are.
    - "inferred": runs of events (T11), hence the batching rules under test; direct frees of orders
      that lists hold cannot be seen.

    Nothing shows a request that found nothing in the buddy, nor reservations of HIGHATOMIC blocks.
    Events lost by the recorder are missing everywhere: see `notes`.

    Attributes:
        free_pages: time_ns, node, zone, order, migratetype, buddies, pages.
        pageblocks: time_ns, node, zone, migratetype, blocks.
        pcp: time_ns, node, zone, cpu, count, high.
        boosts: time_ns, node, zone, pages: watermark boosts.
        vmstat: name, time_ns, value.
        block_types: time_ns, node, zone, cpu, pfn, migratetype: each setting of a pageblock's type,
            empty without pa:block_type.
        fallbacks: alloc_migratetype, fallback_migratetype, alloc_order, fallback_order, kind,
            count.
        outcomes: class, order, asked, succeeded, failed, stalled, reason.
        folios: class, order, asked, at_once, after_work, failed, reason: requests for anonymous
            memory and page cache; what direct reclaim or compaction preceded is `after_work`.
        folio_falls: class, order, to, count: orders that failed ones were served with instead.
        folio_counters: time_ns, order, name, value: the kernel's own counters of each size.
        transactions_full: time_ns, node, zone, cpu, site, cause, objects, pages, order,
            migratetype; one row per hold of zone->lock.
        bin_ns: width of the bins of `lock`.
        start_ns: start of its first bin: the first allocation or free.
        boundaries: "lock tracepoints", "kprobes", "refill events" or "inferred".
        holds: time_ns, node, zone, cpu, site, hold_ns, wait_ns of each announced acquisition.
        contention: contended acquisitions of zone->lock, where they can be known.
        contended_releases: time_ns, node, zone, cpu, site, waiting: releases somebody waited for.
        unseen_sites: sites of zone->lock whose acquisitions this recording cannot show.
        notes: what limits these tables, one line each.
    """

    free_pages: pd.DataFrame
    pageblocks: pd.DataFrame
    pcp: pd.DataFrame
    boosts: pd.DataFrame
    vmstat: pd.DataFrame
    block_types: pd.DataFrame
    fallbacks: pd.DataFrame
    outcomes: pd.DataFrame
    folios: pd.DataFrame
    folio_falls: pd.DataFrame
    folio_counters: pd.DataFrame
    transactions_full: pd.DataFrame
    bin_ns: int
    start_ns: int
    boundaries: str
    holds: pd.DataFrame
    contention: Contention
    contended_releases: pd.DataFrame
    unseen_sites: tuple[str, ...]
    notes: tuple[str, ...]

    @cached_property
    def transactions(self) -> pd.DataFrame:
        """node, zone, cpu, site, cause, objects, transactions: histogram of sizes."""
        keys = ["node", "zone", "cpu", "site", "cause", "objects"]
        grouped = self.transactions_full.groupby(keys, dropna=False)
        return grouped.size().reset_index(name="transactions")

    @cached_property
    def lock(self) -> pd.DataFrame:
        """Acquisitions, objects and pages by time_ns (bin start), node, zone and site.

        hold_ns, wait_ns and max_hold_ns are NA but for `holds`: no other event shows them (T8).
        """
        keys = ["time_ns", "node", "zone", "site"]
        full, holds = (
            table.assign(time_ns=bin_start(table, self.start_ns, self.bin_ns))
            for table in (self.transactions_full, self.holds)
        )
        grouped = full.groupby(keys, dropna=False)
        sums = grouped[["objects", "pages"]].sum(min_count=1)
        sums.insert(0, "acquisitions", grouped.size())
        return sums.join(announced_times(holds, keys)).reset_index()


def measure(recording: Recording, *, bin_ns: int = DEFAULT_BIN_NS) -> Measured:
    """Take the tables of a replay from a recording alone.

    Args:
        recording: the recording.
        bin_ns: width of the bins of the `lock` table.

    Raises:
        RecordingError: the event file cannot be read.
        UsageError: its events were sampled.
    """
    trace = recording.trace
    refuse_sampled(trace)
    zoneinfo = next((s.zoneinfo for s in recording.snapshots if s.zoneinfo), None)
    types = next((s.pagetypeinfo for s in recording.snapshots if s.pagetypeinfo), None)
    zones = ZoneMap.of(zoneinfo)
    migratetypes = types.migratetypes if types else NUMBERED_EVERYWHERE
    pageblock_order = types.pageblock_order if types else DEFAULT_PAGEBLOCK_ORDER

    def recorded(name: str) -> bool:
        # a tracepoint that never fired leaves no table; the recorder's arguments still name it
        return name in trace.tables or name in (recording.meta.get("perf") or ())

    contention = measured_contention(trace, zones)
    unseen, holds = ("empty_refill", "direct_free"), NO_TIMES
    if {tp.ZONE_LOCKED, tp.ZONE_LOCK_UNLOCK} <= trace.tables.keys():
        boundaries, unseen = "lock tracepoints", ()
        stream = allocator_stream(trace, with_probes=False, with_lock_events=True)
        transactions, holds, notes = announced_holds(trace, stream, zones)
        contention = announced_contention(holds, contention)
    elif all(recorded(name) for name in _BOUNDARY_PROBES):
        boundaries, unseen = "kprobes", ()
        stream = allocator_stream(trace, with_probes=True)
        transactions, notes = probed_transactions(stream, zones, trace.comms)
        if not recorded(_DIRECT_FREE_PROBE):
            unseen = ("direct_free",)
            notes += (f"{_DIRECT_FREE_PROBE} was not recorded: direct frees are left out",)
    else:
        boundaries = "inferred"
        stream = allocator_stream(trace, with_probes=False, with_lock_events=True)
        rules = recorded_rules(recording, with_answers=True).rules
        switch = recording.meta.get("sysctl", {}).get("pcp_free_batched")
        run_rules = RunRules(
            pageblock_order=pageblock_order,
            every_removal_announced=rules.fallback_from_largest,
            free_batched=rules.free_batched if switch is None else switch != "0",
            decay_batched=rules.decay_batched,
            pcp_auto_tuned=rules.pcp_auto_tuned,
        )
        note = (
            "transactions are inferred from runs of events: no kprobes recorded; where the kernel "
            "drops the lock inside a drain is taken from its rules"
        )
        if tp.PAGE_PCPU_REFILL in trace.tables:
            boundaries = "refill events"
            note += f"; what refills took is {tp.PAGE_PCPU_REFILL}'s word, not inferred"
        transactions = inferred_transactions(stream, zones, trace.comms, run_rules)
        notes = (note,)
    order = pd.array(transactions.order, "Int64")
    order[transactions.order == UNKNOWN_ORDER] = pd.NA
    full = pd.DataFrame(
        {
            "time_ns": transactions.time_ns,
            **zone_columns(transactions.zone, zones),
            "cpu": transactions.cpu.astype(np.int64),
            "site": named(transactions.site, MEASURED),
            "cause": named(transactions.cause, CAUSES),
            "objects": pd.arrays.IntegerArray(transactions.objects, transactions.objects < 0),
            "pages": pd.arrays.IntegerArray(transactions.pages, transactions.pages < 0),
            "order": order,
            "migratetype": named(transactions.migratetype, migratetypes),
        }
    )
    stalls = (tp.DIRECT_RECLAIM_BEGIN, tp.COMPACTION_BEGIN)
    return Measured(
        **snapshot_tables(recording.dated_snapshots),
        fallbacks=fallbacks_table(
            trace, migratetypes=migratetypes, pageblock_order=pageblock_order
        ),
        outcomes=outcomes_table(
            trace, pmd_order=pageblock_order, reclaim_recorded=recorded(tp.DIRECT_RECLAIM_BEGIN)
        ),
        folios=recorded_folios(
            trace,
            np.union1d(*(_stalled(trace, name) for name in stalls)),
            known=any(map(recorded, stalls)),
        ),
        folio_falls=recorded_falls(trace),
        folio_counters=counted_folios(recording.dated_snapshots),
        transactions_full=full,
        block_types=block_types_table(trace, zones, migratetypes=migratetypes),
        bin_ns=bin_ns,
        start_ns=trace.demand_span_ns[0],
        boundaries=boundaries,
        holds=holds,
        contention=contention,
        contended_releases=contended_releases(trace, zones),
        unseen_sites=(*WITHOUT_EVENTS, *unseen),
        notes=(*notes, *_notes(recording, zones, has_types=types is not None)),
    )


def _notes(recording: Recording, zones: ZoneMap, *, has_types: bool) -> Iterator[str]:
    trace = recording.trace
    yield from trace.notes
    start, end = trace.span_ns
    if lost := trace.losses.total:
        begins = np.arange(start, end + 1, _NOTED_PART_NS)
        lossy = int(trace.losses.overlap(begins, begins + _NOTED_PART_NS - 1).sum())
        yield (
            f"{count_of(lost, 'event was', 'events were')} lost, in {lossy} of {len(begins)} parts "
            f"of {_NOTED_PART_NS // 1_000_000} ms: transactions and totals are lower bounds there"
        )
    if not zones.zones:
        yield "no zoneinfo: node and zone of events are unknown"
    elif zones.overlaps:
        yield "zones interleave: some pages may be counted for the wrong one"
    if not has_types:
        yield (
            f"no pagetypeinfo: pageblock order {DEFAULT_PAGEBLOCK_ORDER} is assumed and "
            "migratetypes above HighAtomic have no name"
        )
    if recording.snapshots and trace.clock not in ("monotonic", ""):
        yield f"events run on clock {trace.clock!r}: snapshot times do not line up with them"
    if recording.snapshots and not any(start <= s.time_ns <= end for s in recording.snapshots):
        yield "no snapshot was taken while events were recorded"
