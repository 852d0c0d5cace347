"""What the kernel did, from a recording alone, in the tables a replay predicts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import pandas as pd

from pagealloc_model.base.text.counts import count_of
from pagealloc_model.measured import events
from pagealloc_model.measured import snapshots as states
from pagealloc_model.measured.announced_holds import NO_TIMES, AnnouncedHolds, announced_holds
from pagealloc_model.measured.block_types import block_types_table
from pagealloc_model.measured.contended_releases import contended_releases
from pagealloc_model.measured.contention import Contention, measured_contention
from pagealloc_model.measured.evidence.choice import recorded_rules
from pagealloc_model.measured.probes import probed_transactions
from pagealloc_model.measured.runs import RunRules, inferred_transactions
from pagealloc_model.measured.stream import (
    LOCKED_EVENT,
    REFILL_EVENT,
    UNLOCKED_EVENT,
    allocator_stream,
)
from pagealloc_model.measured.transactions import Transactions
from pagealloc_model.recording.recording import Recording
from pagealloc_model.recording.sampling import refuse_sampled
from pagealloc_model.recording.trace.columns import Trace
from pagealloc_model.recording.zone_map import ZoneMap

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
        return events.transactions_table(self.transactions_full)

    @cached_property
    def lock(self) -> pd.DataFrame:
        """Acquisitions, objects and pages by time_ns (bin start), node, zone and site.

        hold_ns, wait_ns and max_hold_ns are NA but for `holds`: no other event shows them (T8).
        """
        return events.lock_table(
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
        free_pages=states.free_pages_table(recording.dated_snapshots),
        pageblocks=states.pageblocks_table(recording.dated_snapshots),
        pcp=states.pcp_table(recording.dated_snapshots),
        boosts=states.boosts_table(recording.dated_snapshots),
        vmstat=states.vmstat_table(recording.dated_snapshots),
        fallbacks=events.fallbacks_table(
            trace, migratetypes=migratetypes, pageblock_order=pageblock_order
        ),
        outcomes=events.outcomes_table(
            trace,
            pmd_order=pageblock_order,
            reclaim_recorded=_recorded(recording, events.DIRECT_RECLAIM),
        ),
        transactions_full=events.transactions_full_table(
            transactions, zones, migratetypes=migratetypes
        ),
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
    rules = replace(run_rules(recording), pageblock_order=pageblock_order)
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


def run_rules(recording: Recording) -> RunRules:
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
