"""Transactions as the kernel's own functions bound them: the kprobes of a recording."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from pagealloc_model.base.text.counts import count_of
from pagealloc_model.measured.stream import Probe, Stream
from pagealloc_model.measured.transactions import (
    SITES,
    UNKNOWN_ORDER,
    Transactions,
    drain_causes,
    single_page_transactions,
)
from pagealloc_model.recording.trace.columns import Event
from pagealloc_model.recording.zone_map import UNKNOWN_ZONE, ZoneMap


def probed_transactions(
    stream: Stream, zones: ZoneMap, comms: Mapping[int, str]
) -> tuple[Transactions, tuple[str, ...]]:
    """Refills, drains, direct frees and direct buddy allocations, with notes on what is unsure.

    A refill is a call of the bulk allocator with its return value. A drain is a call of the bulk
    free; what it freed are the pcpu_drain events up to the CPU's next call. An allocation event
    under the lock that no open refill accounts for is a direct buddy allocation.
    """
    pages_zone = zones.codes(stream.pfn)
    by_address = _zone_by_address(stream, pages_zone)
    refills, returns, opened = _refill_calls(stream)
    drains, drain_notes = _drains(stream, by_address, comms)
    freed = np.flatnonzero(stream.is_kind(Probe.FREE_ONE))
    direct = _direct_allocations(stream, opened)
    parts = (
        _refills(stream, refills, returns, by_address),
        drains,
        single_page_transactions(stream, freed, pages_zone[freed], "direct_free"),
        single_page_transactions(stream, direct, pages_zone[direct], "buddy_alloc"),
    )
    unreturned = int(np.count_nonzero(returns < 0))
    notes = drain_notes
    if unreturned:
        notes += (
            f"{count_of(unreturned, 'refill has', 'refills have')} no recorded return: "
            "size unknown",
        )
    return Transactions.joined(parts), notes


@dataclass(frozen=True, kw_only=True, eq=False)
class ZoneDrains:
    """Calls that empty what one CPU's lists hold of one zone (S4.9), in time order.

    Attributes:
        time_ns: int64.
        cpu: int16, the CPU that runs it.
        drained: int64, the CPU whose lists are emptied.
        zone: int8, code of a `ZoneMap`.
    """

    time_ns: np.ndarray
    cpu: np.ndarray
    drained: np.ndarray
    zone: np.ndarray


def zone_drains(stream: Stream, zones: ZoneMap) -> ZoneDrains:
    """Return the recorded calls of drain_pages_zone() in zones that are known.

    Args:
        stream: events and probes by CPU and time.
        zones: of the recording's machine.
    """
    zone = _zone_by_address(stream, zones.codes(stream.pfn))
    calls = np.flatnonzero(stream.is_kind(Probe.DRAIN_ZONE) & (zone != UNKNOWN_ZONE))
    calls = calls[np.argsort(stream.time_ns[calls], kind="stable")]
    return ZoneDrains(
        time_ns=stream.time_ns[calls],
        cpu=stream.cpu[calls],
        drained=stream.value[calls],
        zone=zone[calls],
    )


def _zone_by_address(stream: Stream, pages_zone: np.ndarray) -> np.ndarray:
    """Zone code of each row's zone pointer: the zone most pages moved under that pointer lie in.

    A page belongs to its own pointer (direct frees), else to the CPU's latest call.
    """
    calls = stream.is_kind(Probe.BULK_ALLOC, Probe.BULK_FREE)
    latest = np.maximum.accumulate(np.where(calls, np.arange(len(stream)), 0))
    moved = stream.is_kind(Event.ZONE_LOCKED, Event.PCPU_DRAIN) & (stream.cpu[latest] == stream.cpu)
    moved &= calls[latest]
    own = stream.is_kind(Probe.FREE_ONE)
    address = np.where(moved, stream.zone_address[latest], stream.zone_address)
    votes = (moved | own) & (pages_zone != UNKNOWN_ZONE)
    pointers, inverse = np.unique(address, return_inverse=True)
    tally = np.zeros((len(pointers), max(int(pages_zone.max(initial=0)) + 1, 1)), np.int64)
    np.add.at(tally, (inverse[votes], pages_zone[votes]), 1)
    winner = np.where(tally.any(axis=1), tally.argmax(axis=1), UNKNOWN_ZONE).astype(np.int8)
    known = stream.zone_address != 0
    return np.where(known, winner[np.searchsorted(pointers, stream.zone_address)], UNKNOWN_ZONE)


def _refill_calls(stream: Stream) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Calls, the return of each (-1 if none), and a mask of rows inside a call that returned.

    Calls nest where an interrupt refills another list, so they are matched like brackets.
    """
    call = stream.is_kind(Probe.BULK_ALLOC)
    back = stream.is_kind(Probe.BULK_ALLOC_RETURN)
    depth = np.cumsum(call.astype(np.int64) - back)
    events = np.flatnonzero(call | back)
    level = depth[events] + back[events]
    order = np.lexsort((events, level, stream.cpu[events]))
    sorted_events, sorted_level = events[order], level[order]
    pair = (
        call[sorted_events[:-1]]
        & back[sorted_events[1:]]
        & (sorted_level[:-1] == sorted_level[1:])
        & (stream.cpu[sorted_events[:-1]] == stream.cpu[sorted_events[1:]])
    )
    calls = np.flatnonzero(call)
    returns = np.full(len(calls), -1, np.int64)
    returns[np.searchsorted(calls, sorted_events[:-1][pair])] = sorted_events[1:][pair]
    returned = returns >= 0
    edge = np.zeros(len(stream) + 1, np.int64)
    np.add.at(edge, calls[returned], 1)
    np.add.at(edge, returns[returned], -1)
    return calls, returns, np.cumsum(edge[:-1]) > 0


def _refills(
    stream: Stream, calls: np.ndarray, returns: np.ndarray, zone: np.ndarray
) -> Transactions:
    objects = np.where(returns >= 0, stream.value[returns], -1)
    order = stream.order[calls].astype(np.int64)
    return Transactions(
        time_ns=stream.time_ns[calls],
        zone=zone[calls],
        cpu=stream.cpu[calls],
        site=np.where(objects == 0, SITES.index("empty_refill"), SITES.index("refill")).astype(
            np.int8
        ),
        cause=np.zeros(len(calls), np.int8),
        objects=objects,
        pages=np.where(objects >= 0, objects << order, -1),
        order=stream.order[calls],
        migratetype=stream.migratetype[calls],
    )


def _direct_allocations(stream: Stream, opened: np.ndarray) -> np.ndarray:
    """Removals outside refills, and those of an interrupt inside one.

    No allocation event belongs to a refill, so a removal inside one that is at once followed by
    the allocation of the same page is another request's.
    """
    duplicate = partial_claim_duplicates(stream)
    removal = stream.is_kind(Event.ZONE_LOCKED, Event.EXTFRAG) & ~duplicate
    rows = np.flatnonzero(~duplicate)
    used = np.zeros(len(stream), bool)
    used[rows[:-1]] = (
        (stream.kind[rows[1:]] == Event.ALLOC)
        & (stream.pfn[rows[1:]] == stream.pfn[rows[:-1]])
        & (stream.cpu[rows[1:]] == stream.cpu[rows[:-1]])
    )
    return np.flatnonzero(removal & (~opened | used))


def partial_claim_duplicates(stream: Stream) -> np.ndarray:
    """Mask of fallback events whose page the event before already announced (T4, T6)."""
    duplicate = np.zeros(len(stream), bool)
    rows = stream.rows_of(Event.EXTFRAG)
    rows = rows[rows > 0]
    duplicate[rows] = (
        (stream.kind[rows - 1] == Event.ZONE_LOCKED)
        & (stream.pfn[rows] == stream.pfn[rows - 1])
        & (stream.cpu[rows] == stream.cpu[rows - 1])
    )
    return duplicate


def _drains(
    stream: Stream, zone: np.ndarray, comms: Mapping[int, str]
) -> tuple[Transactions, tuple[str, ...]]:
    calls = np.flatnonzero(stream.is_kind(Probe.BULK_FREE))
    drained = np.flatnonzero(stream.is_kind(Event.PCPU_DRAIN))
    owner = np.searchsorted(calls, drained) - 1
    owned = owner >= 0
    owned[owned] = stream.cpu[calls[owner[owned]]] == stream.cpu[drained[owned]]
    owner, drained_owned = owner[owned], drained[owned]
    pages = np.int64(1) << stream.order[drained_owned].astype(np.int64)
    count = len(calls)
    transactions = Transactions(
        time_ns=stream.time_ns[calls],
        zone=zone[calls],
        cpu=stream.cpu[calls],
        site=np.full(count, SITES.index("drain"), np.int8),
        cause=drain_causes(stream, calls, comms),
        objects=np.bincount(owner, minlength=count).astype(np.int64),
        pages=np.bincount(owner, weights=pages, minlength=count).astype(np.int64),
        order=np.full(count, UNKNOWN_ORDER, np.int8),
        migratetype=np.full(count, -1, np.int8),
    )
    strays = len(drained) - len(drained_owned)
    if not strays:
        return transactions, ()
    return transactions, (
        f"{count_of(strays, 'drained object precedes', 'drained objects precede')} "
        "the first call on a CPU: left out",
    )
