"""What the kernel did, from a recording alone, in the tables a replay predicts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import pandas as pd

from pagealloc_model.base.arrays import parts
from pagealloc_model.base.text.counts import count_of
from pagealloc_model.measured.announced_holds import NO_TIMES, AnnouncedHolds, announced_holds
from pagealloc_model.measured.contention import Contention, contended_releases, measured_contention
from pagealloc_model.measured.rules import recorded_rules
from pagealloc_model.measured.stream import (
    LOCKED_EVENT,
    REFILL_EVENT,
    UNLOCKED_EVENT,
    allocator_stream,
)
from pagealloc_model.measured.transactions import (
    CAUSES,
    SITES,
    UNKNOWN_ORDER,
    RunRules,
    Transactions,
    inferred_transactions,
    probed_transactions,
)
from pagealloc_model.recording.recording import Recording
from pagealloc_model.recording.sampling import refuse_sampled
from pagealloc_model.recording.snapshot import Snapshot
from pagealloc_model.recording.trace.columns import Event, Trace
from pagealloc_model.recording.trace.formats import stable_gfp_bits
from pagealloc_model.recording.zone_map import ZoneMap

FALLBACK_KINDS = ("claim_block", "claim", "steal")
_EXTFRAG = "kmem:mm_page_alloc_extfrag"
DIRECT_RECLAIM = "vmscan:mm_vmscan_direct_reclaim_begin"


def _fallbacks_table(
    trace: Trace, *, migratetypes: Sequence[str], pageblock_order: int
) -> pd.DataFrame:
    """Fallback operations by requested and found type and order (T6).

    A buddy of at least pageblock order is a whole block claimed; below, the block changed owner
    (claim) or one page was taken (steal). One refill can make many.
    """
    names = ("alloc_migratetype", "fallback_migratetype", "alloc_order", "fallback_order")
    table = trace.tables.get(_EXTFRAG, {})
    none = np.zeros(0, np.int64)
    columns = {name: np.asarray(table.get(name, none), np.int64) for name in names}
    owned = np.asarray(table.get("change_ownership", none)) != 0
    kind = np.where(columns["fallback_order"] >= pageblock_order, 0, np.where(owned, 1, 2))
    frame = pd.DataFrame({**columns, "kind": kind})
    counted = frame.groupby([*names, "kind"]).size().reset_index(name="count")
    for name in names[:2]:
        counted[name] = _named(counted[name].to_numpy(), migratetypes)
    counted["kind"] = _named(counted["kind"].to_numpy(), FALLBACK_KINDS)
    return counted


def outcomes_table(trace: Trace, *, pmd_order: int, reclaim_recorded: bool) -> pd.DataFrame:
    """Calls of the core allocator by class and order; one user request may make several (T2).

    `stalled` counts calls during which their task entered direct reclaim.
    """
    stalled = _stalled(trace)
    pieces = [pd.DataFrame(np.zeros((0, 5), np.int64), columns=_OUTCOMES)]
    for part in parts(len(trace)):
        allocs = np.flatnonzero(trace.event[part] == Event.ALLOC) + part.start
        order = trace.order[allocs]
        request_class = request_classes(
            trace.gfp[allocs], order, bits=trace.gfp_bits, pmd_order=pmd_order
        )
        # classes are few, and so are orders: one number for both
        both = order.astype(np.int64) * len(REQUEST_CLASSES) + request_class
        least = int(both.min(initial=0))
        counts = [
            np.bincount(both[chosen] - least, minlength=int(both.max(initial=0)) - least + 1)
            for chosen in (slice(None), trace.pfn[allocs] < 0, _is_among(allocs, stalled))
        ]
        seen = np.flatnonzero(counts[0])
        order, request_class = np.divmod(seen + least, len(REQUEST_CLASSES))
        columns = (request_class, order, *(each[seen] for each in counts))
        pieces.append(pd.DataFrame(dict(zip(_OUTCOMES, columns, strict=True))))
    frame = pd.concat(pieces)
    counted = frame.groupby(["class", "order"], as_index=False).sum().astype("Int64")
    counted["succeeded"] = counted["asked"] - counted["failed"]
    counted["class"] = _named(counted["class"].to_numpy(np.int64), REQUEST_CLASSES)
    counted["reason"] = ""
    if not reclaim_recorded:
        counted["stalled"] = pd.array([pd.NA] * len(counted), "Int64")
        counted["reason"] = f"stalled: {DIRECT_RECLAIM} was not recorded"
    columns = ["class", "order", "asked", "succeeded", "failed", "stalled", "reason"]
    return counted[columns].astype({"order": "int64", "reason": "str"})


_OUTCOMES = ["class", "order", "asked", "failed", "stalled"]


def _is_among(rows: np.ndarray, chosen: np.ndarray) -> np.ndarray:
    """Which of ascending rows are among ascending others (bool)."""
    found = np.zeros(len(rows), bool)
    if len(rows):
        begin, end = np.searchsorted(chosen, [rows[0], rows[-1] + 1])
        found[np.searchsorted(rows, chosen[begin:end])] = True
    return found


def _stalled(trace: Trace) -> np.ndarray:
    """Rows, ascending, of allocations whose task began direct reclaim since its allocation before.

    Only requests that may reclaim count: an interrupt's requests carry the task's id too.
    """
    begins = trace.tables.get(DIRECT_RECLAIM)
    if begins is None or not len(begins["pid"]):
        return np.zeros(0, np.int64)
    tasks_that_reclaim = np.unique(begins["pid"])
    found = [np.zeros(0, np.int64)]
    for part in parts(len(trace)):
        asked = trace.event[part] == Event.ALLOC
        asked &= _may_direct_reclaim(trace.gfp[part], trace.gfp_bits)
        asked &= np.isin(trace.pid[part], tasks_that_reclaim)
        found.append(np.flatnonzero(asked) + part.start)
    rows = np.concatenate(found)
    times = np.concatenate([trace.time_ns[rows], begins["time_ns"]])
    tasks = np.concatenate([trace.pid[rows], begins["pid"]])
    row = np.concatenate([rows, np.full(len(begins["pid"]), -1)])
    sequence = np.lexsort((times, tasks))
    row, tasks = row[sequence], tasks[sequence]
    is_alloc = row >= 0
    last = len(row) - 1
    following = np.minimum.accumulate(np.where(is_alloc, np.arange(last + 1), last)[::-1])[::-1]
    begin = np.flatnonzero(~is_alloc)
    ends = following[begin]
    same = is_alloc[ends] & (tasks[ends] == tasks[begin])
    return np.unique(row[ends[same]])


def _transactions_full_table(
    transactions: Transactions, zones: ZoneMap, *, migratetypes: Sequence[str]
) -> pd.DataFrame:
    """One row per transaction; NA for what its events do not say."""
    order = pd.array(transactions.order, "Int64")
    order[transactions.order == UNKNOWN_ORDER] = pd.NA
    return pd.DataFrame(
        {
            "time_ns": transactions.time_ns,
            **_zone_columns(transactions.zone, zones),
            "cpu": transactions.cpu.astype(np.int64),
            "site": _named(transactions.site, SITES),
            "cause": _named(transactions.cause, CAUSES),
            "objects": _unknown_below_zero(transactions.objects),
            "pages": _unknown_below_zero(transactions.pages),
            "order": order,
            "migratetype": _named(transactions.migratetype, migratetypes),
        }
    )


def _transactions_table(full: pd.DataFrame) -> pd.DataFrame:
    """Histogram of transaction sizes by zone, CPU, site and cause."""
    keys = ["node", "zone", "cpu", "site", "cause", "objects"]
    return full.groupby(keys, dropna=False).size().reset_index(name="transactions")


def _lock_table(
    full: pd.DataFrame, holds: pd.DataFrame, *, start_ns: int, bin_ns: int
) -> pd.DataFrame:
    """Lock holds, objects and pages by bin of time, zone and site."""
    keys = ["time_ns", "node", "zone", "site"]
    table = full.assign(time_ns=bin_start(full, start_ns, bin_ns)).groupby(keys, dropna=False)
    sums = table[["objects", "pages"]].sum(min_count=1)
    sums.insert(0, "acquisitions", table.size())
    holds = holds.assign(time_ns=bin_start(holds, start_ns, bin_ns))
    return sums.join(announced_times(holds, keys)).reset_index()


def bin_start(frame: pd.DataFrame, start_ns: int, bin_ns: int) -> pd.Series:
    """The start of the bin that each row's `time_ns` lies in."""
    return start_ns + (frame["time_ns"] - start_ns) // bin_ns * bin_ns


def announced_times(holds: pd.DataFrame, keys: list[str]) -> pd.DataFrame:
    """hold_ns, wait_ns and max_hold_ns of announced holds by some of their columns."""
    grouped = holds.groupby(keys, dropna=False)
    times = grouped[["hold_ns", "wait_ns"]].sum(min_count=1)
    times["max_hold_ns"] = grouped["hold_ns"].max()
    return times.astype("Float64")


def _zone_columns(code: np.ndarray, zones: ZoneMap) -> Mapping[str, object]:
    node = pd.array([*(zone.node for zone in zones.zones), pd.NA], "Int64")
    return {"node": node[code], "zone": _named(code, [zone.name for zone in zones.zones])}


def _named(code: np.ndarray, names: Sequence[str]) -> pd.Series:
    """Names by number, NA for numbers without one."""
    known = (code >= 0) & (code < len(names))
    place = np.where(known, code, len(names))
    return pd.Series(np.array([*names, None], object)[place], dtype="str")


def _unknown_below_zero(values: np.ndarray) -> pd.arrays.IntegerArray:
    return pd.arrays.IntegerArray(values.astype(np.int64), values < 0)


REQUEST_CLASSES = ("thp", "atomic", "nowait", "movable", "reclaimable", "kernel")


def request_classes(
    gfp: np.ndarray, order: np.ndarray, *, bits: Mapping[str, int], pmd_order: int = 9
) -> np.ndarray:
    """The class of each request, as an index into `REQUEST_CLASSES`.

    thp: movable huge page of `pmd_order`; atomic: HIGH without direct reclaim; nowait: no direct
    reclaim otherwise; then by mobility, movable, reclaimable and kernel.
    """

    def has(name: str) -> np.ndarray:
        return _has(gfp, name, bits)

    waits, movable = _may_direct_reclaim(gfp, bits), has("__GFP_MOVABLE")
    conditions = [
        movable & has("__GFP_COMP") & has("__GFP_NOMEMALLOC") & (order == pmd_order),
        has("__GFP_HIGH") & ~waits,
        ~waits,
        movable,
        has("__GFP_RECLAIMABLE"),
    ]
    kernel = len(conditions)
    return np.select(conditions, list(range(kernel)), kernel).astype(np.int8)


def _may_direct_reclaim(gfp: np.ndarray, bits: Mapping[str, int]) -> np.ndarray:
    """Mask of the gfp words that allow direct reclaim."""
    return _has(gfp, "__GFP_DIRECT_RECLAIM", bits)


def _has(gfp: np.ndarray, name: str, bits: Mapping[str, int]) -> np.ndarray:
    mask = bits[name] if name in bits else stable_gfp_bits(None)[name]
    return (gfp & np.uint32(mask)) != 0


FREE_PAGES = ("time_ns", "node", "zone", "order", "migratetype", "buddies", "pages")
PAGEBLOCKS = ("time_ns", "node", "zone", "migratetype", "blocks")
BOOSTS = ("time_ns", "node", "zone", "pages")
PCP = ("time_ns", "node", "zone", "cpu", "count", "high")
VMSTAT = ("name", "time_ns", "value")


def free_pages_table(snapshots: Iterable[Snapshot]) -> pd.DataFrame:
    """Free buddies by zone, order and migratetype.

    A cell the kernel printed as `>100000` is only a lower bound, so `buddies` and `pages` are NA.
    """
    return _table(
        FREE_PAGES,
        (row for snapshot in snapshots for row in _free_lists(snapshot)),
        nullable=("buddies", "pages"),
    )


def _free_lists(snapshot: Snapshot) -> Iterator[tuple[object, ...]]:
    info = snapshot.pagetypeinfo
    for row in info.free_lists if info else ():
        key = (snapshot.time_ns, row.node, row.zone)
        for order, (count, bound) in enumerate(zip(row.buddies, row.lower_bound, strict=True)):
            values = (pd.NA, pd.NA) if bound else (count, count << order)
            yield (*key, order, row.migratetype, *values)


def pageblocks_table(snapshots: Iterable[Snapshot]) -> pd.DataFrame:
    """Pageblocks by zone and type."""
    return _table(
        PAGEBLOCKS, (row for snapshot in snapshots for row in _pageblocks(snapshot)), nullable=()
    )


def _pageblocks(snapshot: Snapshot) -> Iterator[tuple[object, ...]]:
    info = snapshot.pagetypeinfo
    if info is None:
        return
    for row in info.pageblocks:
        for migratetype, blocks in zip(info.migratetypes, row.blocks, strict=True):
            yield (snapshot.time_ns, row.node, row.zone, migratetype, blocks)


def _boosts_table(snapshots: Iterable[Snapshot]) -> pd.DataFrame:
    """Watermark boosts by zone, where the kernel prints them."""
    return _table(
        BOOSTS,
        (
            (snapshot.time_ns, zone.node, zone.name, zone.boost)
            for snapshot in snapshots
            for zone in (snapshot.zoneinfo.zones if snapshot.zoneinfo else ())
            if zone.boost is not None
        ),
        nullable=(),
    )


def _pcp_table(snapshots: Iterable[Snapshot]) -> pd.DataFrame:
    """Pages on per-CPU lists and their limit, by zone and CPU."""
    table = _table(PCP, (row for snapshot in snapshots for row in _pagesets(snapshot)), nullable=())
    return table.astype({"high": "Float64"})


def _pagesets(snapshot: Snapshot) -> Iterator[tuple[object, ...]]:
    info = snapshot.zoneinfo
    for zone in info.zones if info else ():
        for pageset in zone.pagesets:
            key = (snapshot.time_ns, zone.node, zone.name)
            yield (*key, pageset.cpu, pageset.count, pageset.high)


def _vmstat_table(snapshots: Iterable[Snapshot]) -> pd.DataFrame:
    """The kernel's counters under its own names."""
    return _table(
        VMSTAT,
        (
            (name, snapshot.time_ns, value)
            for snapshot in snapshots
            for name, value in (snapshot.vmstat.values if snapshot.vmstat else {}).items()
        ),
        nullable=(),
    )


_TEXT = ("name", "zone", "migratetype")


def _table(
    columns: tuple[str, ...], rows: Iterable[tuple[object, ...]], *, nullable: tuple[str, ...]
) -> pd.DataFrame:
    types = {
        name: "str" if name in _TEXT else "Int64" if name in nullable else "int64"
        for name in columns
    }
    return pd.DataFrame.from_records(list(rows), columns=list(columns)).astype(types)


PROBE = "pa:block_type"
_TYPE_BITS = 7
_PAGE_BYTES = 64
"""Size of struct page on x86, where a page's place in vmemmap is its frame number."""
_BASE_ALIGNMENT = 1 << 30
"""Of vmemmap. An anonymised recording's base has lost it: frame numbers are then unknown."""


def block_types_table(trace: Trace, zones: ZoneMap, *, migratetypes: Sequence[str]) -> pd.DataFrame:
    """Every setting of a pageblock's type while the probe was on."""
    table = trace.tables.get(PROBE, {})
    number = np.asarray(table.get("mt", np.zeros(0)), np.int64)
    rows = np.arange(len(number))
    if "mask" in table:
        rows = np.flatnonzero(np.asarray(table["mask"]) & _TYPE_BITS)
    pfn = _frames(table, len(number))[rows]
    code = zones.codes(pfn)
    node = pd.array([*(zone.node for zone in zones.zones), pd.NA], "Int64")
    zone = np.array([*(zone.name for zone in zones.zones), None], object)
    names = np.array([*migratetypes, None], object)
    type_bits = number[rows] & _TYPE_BITS
    empty = np.zeros(0, np.int64)
    return pd.DataFrame(
        {
            "time_ns": np.asarray(table.get("time_ns", empty))[rows],
            "node": node[code],
            "zone": pd.Series(zone[code], dtype="str"),
            "cpu": np.asarray(table.get("cpu", empty)).astype(np.int64)[rows],
            "pfn": pd.arrays.IntegerArray(pfn, pfn < 0),
            "migratetype": pd.Series(names[np.minimum(type_bits, len(migratetypes))], dtype="str"),
        }
    )


def _frames(table: Mapping[str, np.ndarray], rows: int) -> np.ndarray:
    """Page frame number of each setting, int64, -1 where unknown."""
    if "pfn" in table:
        return np.asarray(table["pfn"]).astype(np.int64)
    if "base" not in table:
        return np.full(rows, -1, np.int64)
    page, base = np.asarray(table["page"], np.uint64), np.asarray(table["base"], np.uint64)
    known = (base % np.uint64(_BASE_ALIGNMENT) == 0) & (page >= base)
    frames = ((page - base) // np.uint64(_PAGE_BYTES)).astype(np.int64)
    return np.where(known, frames, -1)


DEFAULT_BIN_NS = 1_000_000_000
DEFAULT_PAGEBLOCK_ORDER = 9
_NOTED_PART_NS = 100_000_000
_NUMBERED_EVERYWHERE = ("Unmovable", "Movable", "Reclaimable", "HighAtomic")
WITHOUT_EVENTS = ("reserve", "unreserve", "boost_reset", "empty_buddy_alloc")
"""Sites of zone->lock that no event shows."""
_BOUNDARY_PROBES = ("pa:pcp_bulk_alloc", "pa:pcp_bulk_alloc_ret", "pa:pcp_bulk_free")
_DIRECT_FREE_PROBE = "pa:free_one"


@dataclass(frozen=True, kw_only=True, eq=False)
class Measured:
    """Measured tables, in the schema of a replay's predicted ones; NA is "cannot be known".

    Exact: `free_pages`, `pageblocks`, `pcp` and `vmstat`, each at the instant its file was read
    (pagetypeinfo is not atomic, T12.2); `fallbacks`; `outcomes`, which count calls of the core
    allocator, not user requests.

    With `boundaries` "kprobes", `transactions`, `transactions_full` and `lock` rest on the calls
    of the kernel's own functions: sizes of refills, drains and direct frees are exact; only the
    cause of a drain is read off the event before it.

    With "lock tracepoints", holds of refills, drains and direct frees are the kernel's own too,
    with their times: `lock` then has hold and wait times (T8).

    With "refill events", which objects refills and direct allocations took is the kernel's word;
    where one refill ends and the next begins is inferred, as drains and direct frees are.

    With "inferred", they rest on runs of events (T11), hence on the batching rules under test.
    Totals of objects and pages stay exact. Refills of orders 0 to 3 and direct allocations are
    told apart by size and use; a whole-list drain is told from an overflow by whose pages it
    frees; direct frees of orders that per-CPU lists hold cannot be seen.

    A refill that found no page is a site of its own, "empty_refill": kprobes show it, events do
    not. A request that then found nothing in the buddy, "empty_buddy_alloc", nothing shows.

    Reservations and unreservations of HIGHATOMIC blocks have no event of their own; `pageblocks`
    shows their effect, and `block_types` each block that changed where a kprobe showed it. Events
    lost by the recorder are missing everywhere: see `notes`.

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
        transactions_full: time_ns, node, zone, cpu, site, cause, objects, pages, order,
            migratetype; one row per hold of zone->lock.
        bin_ns: width of the bins of `lock`.
        start_ns: start of its first bin: the first allocation or free.
        boundaries: "lock tracepoints", "kprobes", "refill events" or "inferred".
        holds: time_ns, node, zone, cpu, site, hold_ns, wait_ns of each acquisition that the kernel
            announced; empty without its lock tracepoints.
        contention: contended acquisitions of zone->lock, where they can be known.
        contended_releases: time_ns, node, zone, cpu, site, waiting; one row for each release of
            zone->lock that the kernel says somebody waited for.
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
        return _transactions_table(self.transactions_full)

    @cached_property
    def lock(self) -> pd.DataFrame:
        """Acquisitions, objects and pages by time_ns (bin start), node, zone and site.

        hold_ns, wait_ns and max_hold_ns are NA but for `holds`: no other event shows them (T8).
        """
        return _lock_table(
            self.transactions_full, self.holds, start_ns=self.start_ns, bin_ns=self.bin_ns
        )


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
    migratetypes = types.migratetypes if types else _NUMBERED_EVERYWHERE
    pageblock_order = types.pageblock_order if types else DEFAULT_PAGEBLOCK_ORDER
    announced = _announced(recording, zones)
    probed = all(_recorded(recording, name) for name in _BOUNDARY_PROBES) and not announced
    contention = measured_contention(trace, zones)
    if announced:
        boundaries = "lock tracepoints"
        transactions, notes = announced.transactions, announced.notes
        contention = announced.contention(contention)
    elif probed:
        boundaries = "kprobes"
        transactions, notes = _probed(recording, zones)
    else:
        boundaries = "refill events" if REFILL_EVENT in trace.tables else "inferred"
        transactions, notes = _inferred(recording, zones, pageblock_order)
    return Measured(
        free_pages=free_pages_table(recording.dated_snapshots),
        pageblocks=pageblocks_table(recording.dated_snapshots),
        pcp=_pcp_table(recording.dated_snapshots),
        boosts=_boosts_table(recording.dated_snapshots),
        vmstat=_vmstat_table(recording.dated_snapshots),
        fallbacks=_fallbacks_table(
            trace, migratetypes=migratetypes, pageblock_order=pageblock_order
        ),
        outcomes=outcomes_table(
            trace,
            pmd_order=pageblock_order,
            reclaim_recorded=_recorded(recording, DIRECT_RECLAIM),
        ),
        transactions_full=_transactions_full_table(transactions, zones, migratetypes=migratetypes),
        block_types=block_types_table(trace, zones, migratetypes=migratetypes),
        bin_ns=bin_ns,
        start_ns=trace.demand_span_ns[0],
        boundaries=boundaries,
        holds=announced.times if announced else NO_TIMES,
        contention=contention,
        contended_releases=contended_releases(trace, zones),
        unseen_sites=(
            *WITHOUT_EVENTS,
            *(() if probed or announced else ("empty_refill",)),
            *(() if announced else _unseen_direct_frees(recording, probed=probed)),
        ),
        notes=(*notes, *_notes(recording, zones, has_types=types is not None)),
    )


def _announced(recording: Recording, zones: ZoneMap) -> AnnouncedHolds | None:
    """The holds that lock tracepoints bound, None without them."""
    trace = recording.trace
    if not {LOCKED_EVENT, UNLOCKED_EVENT} <= trace.tables.keys():
        return None
    stream = allocator_stream(trace, with_probes=False, with_lock_events=True)
    return announced_holds(trace, stream, zones)


def _probed(recording: Recording, zones: ZoneMap) -> tuple[Transactions, tuple[str, ...]]:
    trace = recording.trace
    stream = allocator_stream(trace, with_probes=True)
    transactions, notes = probed_transactions(stream, zones, trace.comms)
    if _unseen_direct_frees(recording, probed=True):
        notes += (f"{_DIRECT_FREE_PROBE} was not recorded: direct frees are left out",)
    return transactions, notes


def _inferred(
    recording: Recording, zones: ZoneMap, pageblock_order: int
) -> tuple[Transactions, tuple[str, ...]]:
    trace = recording.trace
    stream = allocator_stream(trace, with_probes=False, with_lock_events=True)
    rules = replace(_run_rules(recording), pageblock_order=pageblock_order)
    note = (
        "transactions are inferred from runs of events: no kprobes recorded; where the kernel "
        "drops the lock inside a drain is taken from its rules"
    )
    if REFILL_EVENT in trace.tables:
        note += f"; what refills took is {REFILL_EVENT}'s word, not inferred"
    return inferred_transactions(stream, zones, trace.comms, rules), (note,)


def _unseen_direct_frees(recording: Recording, *, probed: bool) -> tuple[str, ...]:
    """Only a probe tells a direct free; other events show those of orders that no list holds."""
    return () if probed and _recorded(recording, _DIRECT_FREE_PROBE) else ("direct_free",)


def _recorded(recording: Recording, name: str) -> bool:
    """A tracepoint that never fired leaves no table; the recorder's arguments still name it."""
    return name in recording.trace.tables or name in (recording.meta.get("perf") or ())


def _run_rules(recording: Recording) -> RunRules:
    """How the recorded kernel batches its drains, by all that the recording shows of it."""
    rules = recorded_rules(recording, with_answers=True).rules
    switch = recording.meta.get("sysctl", {}).get("pcp_free_batched")
    return RunRules(
        every_removal_announced=rules.fallback_from_largest,
        free_batched=rules.free_batched if switch is None else switch != "0",
        decay_batched=rules.decay_batched,
    )


def _notes(recording: Recording, zones: ZoneMap, *, has_types: bool) -> Iterator[str]:
    trace = recording.trace
    yield from trace.notes
    if trace.losses.total:
        yield _loss_note(trace)
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
    start, end = trace.span_ns
    if recording.snapshots and not any(start <= s.time_ns <= end for s in recording.snapshots):
        yield "no snapshot was taken while events were recorded"


def _loss_note(trace: Trace) -> str:
    start, end = trace.span_ns
    begins = np.arange(start, end + 1, _NOTED_PART_NS)
    lossy = int(trace.losses.overlap(begins, begins + _NOTED_PART_NS - 1).sum())
    return (
        f"{count_of(trace.losses.total, 'event was', 'events were')} lost, in {lossy} of "
        f"{len(begins)} parts of "
        f"{_NOTED_PART_NS // 1_000_000} ms: transactions and totals are lower bounds there"
    )
