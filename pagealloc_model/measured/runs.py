"""Transactions inferred from runs of events on one CPU, where no kprobe marks them (T11)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from pagealloc_model.measured.probes import partial_claim_duplicates
from pagealloc_model.measured.stream import Probe, Stream
from pagealloc_model.measured.transactions import (
    CAUSES,
    SITES,
    UNKNOWN_ORDER,
    Transactions,
    drain_causes,
    single_page_transactions,
)
from pagealloc_model.recording.trace.columns import Event
from pagealloc_model.recording.zone_map import ZoneMap

HIGHATOMIC = 3
LARGEST_REFILLED_ORDER = 3
BATCH_SCALE_MAX = 5
"""CONFIG_PCP_BATCH_SCALE_MAX: a refill is at most batch << this objects (S4.4)."""


@dataclass(frozen=True, kw_only=True)
class RunRules:
    """What the inference has to be told; these are the kernel's rules, not measurements.

    Attributes:
        pageblock_order: the one order above 3 that per-CPU lists hold (S1.9).
        every_removal_announced: before 6.12, zone_locked fires after a fallback too, so fallback
            events are no objects of their own (T4).
        free_batched: overflow drains hold the lock for one batch at a time (S4.7).
        decay_batched: so do periodic drains (S4.8).
    """

    pageblock_order: int = 9
    every_removal_announced: bool = False
    free_batched: bool = False
    decay_batched: bool = True


def inferred_transactions(
    stream: Stream, zones: ZoneMap, comms: Mapping[int, str], rules: RunRules
) -> Transactions:
    """Refills, drains, direct allocations and frees from runs of events.

    A refill is a run of removals of one order, list and zone by one task on one CPU, ended by any
    other event of that CPU or the largest size the rules allow. A run of one, followed by the
    allocation of that very page, is a direct buddy allocation, except at pageblock order, where
    refills bring one or two objects. A drain is a run of pcpu_drain events of one task and zone,
    cut into batches where the kernel drops the lock between them. Direct frees are seen only for
    orders that no per-CPU list holds.

    Where the kernel announces each object that a refill brings (`Probe.REFILLED`), refills are runs
    of those, and every other removal is a direct buddy allocation: nothing is guessed but where one
    refill ends and the next begins.

    Pauses do not end a run: inside a lock hold a virtual CPU can be preempted for longer than two
    holds are apart, and recordings with kprobes show that cutting at pauses splits far more holds
    than it separates.
    """
    if rules.every_removal_announced:
        stream = stream.take(stream.kind != Event.EXTFRAG)
    else:
        stream = stream.take(~partial_claim_duplicates(stream))
    if stream.is_kind(Probe.REFILLED).any():
        stream = stream.take(~refilled_removals(stream))
    zone = zones.codes(stream.pfn)
    batches = zones.batches()
    refills, direct = _removals(stream, zone, batches, rules)
    freed = np.flatnonzero(stream.is_kind(Event.FREE) & ~_on_lists(stream.order, rules))
    return Transactions.joined(
        (
            refills,
            _drains(stream, zone, batches, comms, rules),
            single_page_transactions(stream, direct, zone[direct], "buddy_alloc"),
            single_page_transactions(stream, freed, zone[freed], "direct_free"),
        )
    )


def refilled_removals(stream: Stream) -> np.ndarray:
    """Return the mask of removals that a refill's own event follows at once, for the same page."""
    refilled = np.zeros(len(stream), bool)
    refilled[:-1] = (
        stream.is_kind(Event.ZONE_LOCKED, Event.EXTFRAG)[:-1]
        & (stream.kind[1:] == Probe.REFILLED)
        & (stream.pfn[1:] == stream.pfn[:-1])
        & (stream.cpu[1:] == stream.cpu[:-1])
    )
    return refilled


def _on_lists(order: np.ndarray, rules: RunRules) -> np.ndarray:
    """Whether per-CPU lists hold an order (S1.9)."""
    return (order <= LARGEST_REFILLED_ORDER) | (order == rules.pageblock_order)


def run_starts(stream: Stream, member: np.ndarray, zone: np.ndarray) -> np.ndarray:
    """Mask of the members that begin a run: consecutive rows of one CPU, task and zone."""
    continues = np.zeros(len(stream), bool)
    continues[1:] = (
        member[1:]
        & member[:-1]
        & (stream.cpu[1:] == stream.cpu[:-1])
        & (stream.pid[1:] == stream.pid[:-1])
        & (zone[1:] == zone[:-1])
    )
    return member & ~continues


def _removals(
    stream: Stream, zone: np.ndarray, batches: np.ndarray, rules: RunRules
) -> tuple[Transactions, np.ndarray]:
    """Refills, and the stream rows of direct buddy allocations."""
    removal = stream.is_kind(Event.ZONE_LOCKED, Event.EXTFRAG)
    announced = stream.is_kind(Probe.REFILLED)
    refillable = announced
    if not announced.any():
        refillable = removal & _on_lists(stream.order, rules)
        refillable &= stream.migratetype != HIGHATOMIC
    starts = run_starts(stream, refillable, zone)
    changes = np.zeros(len(stream), bool)
    changes[1:] = (stream.order[1:] != stream.order[:-1]) | (
        (stream.migratetype[1:] != stream.migratetype[:-1])
        & (stream.migratetype[1:] <= HIGHATOMIC)
        & (stream.migratetype[:-1] <= HIGHATOMIC)
    )
    members = np.flatnonzero(refillable)
    run = np.cumsum((starts | (changes & refillable))[members]) - 1
    run = _cut(run, np.ones(len(run), np.int64), _refill_limit(stream, zone, batches)[members])
    first, objects = run_shape(members, run)
    direct_run = (objects == 1) & _used_at_once(stream, first)
    direct_run &= (stream.order[first] != rules.pageblock_order) & (batches[zone[first]] > 1)
    direct_run &= ~announced[first]
    refills, objects = first[~direct_run], objects[~direct_run]
    direct = np.sort(np.concatenate([first[direct_run], np.flatnonzero(removal & ~refillable)]))
    count = len(refills)
    transactions = Transactions(
        time_ns=stream.time_ns[refills],
        zone=zone[refills],
        cpu=stream.cpu[refills],
        site=np.full(count, SITES.index("refill"), np.int8),
        cause=np.zeros(count, np.int8),
        objects=objects,
        pages=objects << stream.order[refills].astype(np.int64),
        order=stream.order[refills],
        migratetype=stream.migratetype[refills],
    )
    return transactions, direct


def _refill_limit(stream: Stream, zone: np.ndarray, batches: np.ndarray) -> np.ndarray:
    """Most objects one refill can bring (S4.4)."""
    batch = batches[zone]
    order = stream.order.astype(np.int64)
    scaled = np.where(order == 0, batch << BATCH_SCALE_MAX, np.maximum(batch >> order, 2))
    return np.where(batch > 1, scaled, 1)


def _used_at_once(stream: Stream, rows: np.ndarray) -> np.ndarray:
    """Whether the CPU's next event is the allocation of the row's page."""
    following = np.minimum(rows + 1, len(stream) - 1)
    return (
        (stream.kind[following] == Event.ALLOC)
        & (stream.pfn[following] == stream.pfn[rows])
        & (stream.order[following] == stream.order[rows])
        & (stream.cpu[following] == stream.cpu[rows])
    )


def _cut(run: np.ndarray, size: np.ndarray, limit: np.ndarray) -> np.ndarray:
    """Split runs so that a part ends once it holds `limit`; renumbers the runs."""
    if not len(run):
        return run
    before = np.cumsum(size) - size
    first = np.searchsorted(run, run, "left")
    part = (before - before[first]) // limit
    fresh = np.ones(len(run), bool)
    fresh[1:] = (run[1:] != run[:-1]) | (part[1:] != part[:-1])
    return np.cumsum(fresh) - 1


def run_shape(members: np.ndarray, run: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """First row and number of members of each run."""
    if not len(members):
        return members, np.zeros(0, np.int64)
    _, first, counts = np.unique(run, return_index=True, return_counts=True)
    return members[first], counts.astype(np.int64)


def _drains(
    stream: Stream,
    zone: np.ndarray,
    batches: np.ndarray,
    comms: Mapping[int, str],
    rules: RunRules,
) -> Transactions:
    drained = stream.is_kind(Event.PCPU_DRAIN)
    members = np.flatnonzero(drained)
    run = np.cumsum(run_starts(stream, drained, zone)[members]) - 1
    whole, sizes = run_shape(members, run)
    causes = drain_causes(stream, whole, comms)
    remote = np.bincount(run, weights=_came_from_elsewhere(stream)[members], minlength=len(whole))
    causes[remote > sizes / 2] = CAUSES.index("drain_all")
    pages = np.int64(1) << stream.order[members].astype(np.int64)
    chunk = _drain_limit(causes[run], batches[zone[members]], rules)
    parts = _cut(run, pages, chunk)
    first, objects = run_shape(members, parts)
    count = len(first)
    return Transactions(
        time_ns=stream.time_ns[first],
        zone=zone[first],
        cpu=stream.cpu[first],
        site=np.full(count, SITES.index("drain"), np.int8),
        cause=causes[run[np.searchsorted(members, first)]],
        objects=objects,
        pages=np.bincount(parts, weights=pages, minlength=count).astype(np.int64),
        order=np.full(count, UNKNOWN_ORDER, np.int8),
        migratetype=np.full(count, -1, np.int8),
    )


def _came_from_elsewhere(stream: Stream) -> np.ndarray:
    """Mask of drained pages that another CPU had freed or refilled last (T11).

    A CPU drains another's lists only when all lists are drained (S4.9).
    """
    moves = (Event.FREE, Event.ZONE_LOCKED, Probe.REFILLED, Event.PCPU_DRAIN)
    rows = np.flatnonzero(stream.is_kind(*moves))
    rows = rows[np.lexsort((stream.time_ns[rows], stream.pfn[rows]))]
    elsewhere = np.zeros(len(stream), bool)
    elsewhere[rows[1:]] = (
        (stream.kind[rows[1:]] == Event.PCPU_DRAIN)
        & (stream.kind[rows[:-1]] != Event.PCPU_DRAIN)
        & (stream.pfn[rows[1:]] == stream.pfn[rows[:-1]])
        & (stream.cpu[rows[1:]] != stream.cpu[rows[:-1]])
    )
    return elsewhere


def _drain_limit(cause: np.ndarray, batch: np.ndarray, rules: RunRules) -> np.ndarray:
    """Pages of one lock hold; practically unlimited where a drain is a single hold (S4.7, S4.8)."""
    chunked = (cause == CAUSES.index("commit")) & rules.free_batched
    chunked |= (cause == CAUSES.index("decay")) & rules.decay_batched
    return np.where(chunked, np.maximum(batch, 1), np.iinfo(np.int64).max)
