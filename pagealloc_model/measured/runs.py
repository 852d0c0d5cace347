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

_MOST_FRAMES = 1 << 26
"""Page frames, 256 GiB of memory, up to which pages are looked up by their number."""


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
    twice = partial_claim_duplicates(stream)
    if len(stream.rows_of(Probe.REFILLED)):
        stream = stream.take(~twice)
        stream = stream.take(~refilled_removals(stream))
        twice = np.zeros(len(stream), bool)
    refills, direct = _removals(stream, twice, zones, rules)
    freed = np.flatnonzero(stream.is_kind(Event.FREE) & ~_on_lists(stream.order, rules))
    parts = {"buddy_alloc": direct, "direct_free": freed}
    return Transactions.joined(
        (
            refills,
            _drains(stream, zones, comms, rules),
            *(
                single_page_transactions(stream, rows, zones.codes(stream.pfn[rows]), site)
                for site, rows in parts.items()
            ),
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


def run_starts(
    stream: Stream, members: np.ndarray, zone: np.ndarray, twice: np.ndarray | None = None
) -> np.ndarray:
    """Return which members begin a run: consecutive rows of one CPU, task and zone.

    Args:
        stream: events by CPU and time.
        members: int64 rows that may belong to runs, ascending.
        zone: int8 zone code of each member.
        twice: bool for each row of the stream: as if it were not there; no member is.
    """
    starts = np.ones(len(members), bool)
    before = members[1:] - 1
    if twice is not None:
        before -= twice[before]
    last = members[:-1]
    starts[1:] = (
        (before != last)
        | (stream.cpu[members[1:]] != stream.cpu[last])
        | (stream.pid[members[1:]] != stream.pid[last])
        | (zone[1:] != zone[:-1])
    )
    return starts


def _removals(
    stream: Stream, twice: np.ndarray, zones: ZoneMap, rules: RunRules
) -> tuple[Transactions, np.ndarray]:
    """Refills, and the stream rows of direct buddy allocations; `twice` are announced already."""
    removed = np.flatnonzero(stream.is_kind(Event.ZONE_LOCKED, Event.EXTFRAG) & ~twice)
    announced = stream.rows_of(Probe.REFILLED)
    refillable = _on_lists(stream.order[removed], rules)
    refillable &= (stream.migratetype[removed] != HIGHATOMIC) & (len(announced) == 0)
    members = announced if len(announced) else removed[refillable]
    order, migratetype = stream.order[members], stream.migratetype[members]
    zone = zones.codes(stream.pfn[members])
    batch = zones.batches()[zone]
    starts = run_starts(stream, members, zone, twice)
    starts[1:] |= (order[1:] != order[:-1]) | (
        (migratetype[1:] != migratetype[:-1])
        & (migratetype[1:] <= HIGHATOMIC)
        & (migratetype[:-1] <= HIGHATOMIC)
    )
    run = np.cumsum(starts) - 1
    run = _cut(run, np.ones(len(run), np.int64), _refill_limit(order, batch))
    begins, objects = run_shape(np.arange(len(members)), run)
    first = members[begins]
    direct_run = (objects == 1) & _used_at_once(stream, first, twice)
    direct_run &= (order[begins] != rules.pageblock_order) & (batch[begins] > 1)
    direct_run &= stream.kind[first] != Probe.REFILLED
    refills, objects = first[~direct_run], objects[~direct_run]
    direct = np.sort(np.concatenate([first[direct_run], removed[~refillable]]))
    count = len(refills)
    transactions = Transactions(
        time_ns=stream.time_ns[refills],
        zone=zone[begins][~direct_run],
        cpu=stream.cpu[refills],
        site=np.full(count, SITES.index("refill"), np.int8),
        cause=np.zeros(count, np.int8),
        objects=objects,
        pages=objects << stream.order[refills].astype(np.int64),
        order=stream.order[refills],
        migratetype=stream.migratetype[refills],
    )
    return transactions, direct


def _refill_limit(order: np.ndarray, batch: np.ndarray) -> np.ndarray:
    """Most objects one refill of an order and a zone's pcp->batch can bring (S4.4)."""
    order = order.astype(np.int64)
    scaled = np.where(order == 0, batch << BATCH_SCALE_MAX, np.maximum(batch >> order, 2))
    return np.where(batch > 1, scaled, 1)


def _used_at_once(stream: Stream, rows: np.ndarray, twice: np.ndarray) -> np.ndarray:
    """Whether the CPU's next event is the allocation of the row's page."""
    last = len(stream) - 1
    following = np.minimum(rows + 1, last)
    following = np.minimum(following + twice[following], last)
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
    stream: Stream, zones: ZoneMap, comms: Mapping[int, str], rules: RunRules
) -> Transactions:
    members = stream.rows_of(Event.PCPU_DRAIN)
    zone = zones.codes(stream.pfn[members])
    run = np.cumsum(run_starts(stream, members, zone)) - 1
    whole, sizes = run_shape(members, run)
    causes = drain_causes(stream, whole, comms)
    remote = np.bincount(run, weights=_came_from_elsewhere(stream, members), minlength=len(whole))
    causes[remote > sizes / 2] = CAUSES.index("drain_all")
    pages = np.int64(1) << stream.order[members].astype(np.int64)
    chunk = _drain_limit(causes[run], zones.batches()[zone], rules)
    parts = _cut(run, pages, chunk)
    begins, objects = run_shape(np.arange(len(members)), parts)
    first = members[begins]
    count = len(first)
    return Transactions(
        time_ns=stream.time_ns[first],
        zone=zone[begins],
        cpu=stream.cpu[first],
        site=np.full(count, SITES.index("drain"), np.int8),
        cause=causes[run[begins]],
        objects=objects,
        pages=np.bincount(parts, weights=pages, minlength=count).astype(np.int64),
        order=np.full(count, UNKNOWN_ORDER, np.int8),
        migratetype=np.full(count, -1, np.int8),
    )


def _came_from_elsewhere(stream: Stream, drained: np.ndarray) -> np.ndarray:
    """Return which of the drained rows are of pages another CPU had freed or refilled last (T11).

    A CPU drains another's lists only when all lists are drained (S4.9).
    """
    from pagealloc_model.measured.by_cpu import mark_from_elsewhere

    rows = stream.rows_of(Event.FREE, Event.ZONE_LOCKED, Probe.REFILLED, Event.PCPU_DRAIN)
    rows = rows[np.isin(stream.pfn[rows], stream.pfn[drained])]
    if not len(rows):
        return np.zeros(len(drained), bool)
    rows = rows[np.argsort(stream.time_ns[rows], kind="stable")]
    pages = np.ascontiguousarray(stream.pfn)
    first = int(pages[rows].min())
    frames = int(pages[rows].max()) - first + 1
    if frames > _MOST_FRAMES:
        numbered = np.zeros(len(pages), np.int64)
        numbered[rows] = np.unique(pages[rows], return_inverse=True)[1]
        pages, first, frames = numbered, 0, len(rows)
    found = np.zeros(len(rows), bool)
    mark_from_elsewhere(
        rows,
        stream.cpu,
        pages,
        stream.kind[rows] == Event.PCPU_DRAIN,
        first,
        np.zeros(frames, np.int32),
        found,
    )
    elsewhere = np.zeros(len(stream), bool)
    elsewhere[rows[found]] = True
    return elsewhere[drained]


def _drain_limit(cause: np.ndarray, batch: np.ndarray, rules: RunRules) -> np.ndarray:
    """Pages of one lock hold; practically unlimited where a drain is a single hold (S4.7, S4.8)."""
    chunked = (cause == CAUSES.index("commit")) & rules.free_batched
    chunked |= (cause == CAUSES.index("decay")) & rules.decay_batched
    return np.where(chunked, np.maximum(batch, 1), np.iinfo(np.int64).max)
