"""Holds of zone->lock that lock events announce: their begin, end, CPU and wait."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd

from pagealloc_model.base.text.counts import count_of
from pagealloc_model.measured.contention import Contention
from pagealloc_model.measured.stream import LOCKED_EVENT, UNLOCKED_EVENT, Probe, Stream
from pagealloc_model.measured.transactions import (
    SITES,
    UNKNOWN_ORDER,
    Transactions,
    drain_causes,
    partial_claim_duplicates,
    refilled_removals,
    single_page_transactions,
)
from pagealloc_model.recording.trace.columns import Event, Trace
from pagealloc_model.recording.zone_map import UNKNOWN_ZONE, ZoneMap

COVERED_SITES = ("refill", "drain", "direct_free")
"""Whose holds these tracepoints announce; a direct buddy allocation takes the lock unannounced."""

_REFILL, _DRAIN, _FREE = (SITES.index(site) for site in COVERED_SITES)
_EMPTY = SITES.index("empty_refill")
_OUTSIDE, _UNSURE = -1, -2
_NODE_FIELDS, _NAME_FIELDS = ("node_id", "nid"), ("name", "zone_name")

NO_TIMES = pd.DataFrame(
    {
        "time_ns": pd.array([], "int64"),
        "node": pd.array([], "Int64"),
        "zone": pd.array([], "str"),
        "cpu": pd.array([], "int64"),
        "site": pd.array([], "str"),
        "hold_ns": pd.array([], "Int64"),
        "wait_ns": pd.array([], "int64"),
    }
)
"""`AnnouncedHolds.times` of a recording without these tracepoints."""


@dataclass(frozen=True, kw_only=True, eq=False)
class AnnouncedHolds:
    """Holds of zone->lock by refills, drains and direct frees.

    Attributes:
        transactions: one row for each hold, with the direct buddy allocations, which show by the
            removals outside all holds. A refill that found nothing is an empty refill.
        times: time_ns (when the lock was had), node, zone, cpu, site, hold_ns (NA where the release
            was lost), wait_ns (0 without contention); one row for each announced hold.
        notes: what limits them, one line each.
    """

    transactions: Transactions
    times: pd.DataFrame
    notes: tuple[str, ...]

    def contention(self, inferred: Contention) -> Contention:
        """Return the announced waits, and of direct allocations those that lock events show."""
        waited = self.times[self.times["wait_ns"] > 0]
        waits = waited.drop(columns="hold_ns").assign(time_ns=waited.time_ns - waited.wait_ns)
        others = inferred.waits[inferred.waits["site"] == "buddy_alloc"]
        parts = [each for each in (waits, others) if len(each)] or [waits]
        note = (
            f"{len(waits)} of {len(self.times)} acquisitions of zone->lock by refills, drains and "
            f"direct frees waited, as {LOCKED_EVENT} says"
        )
        return Contention(
            known=True,
            waits=pd.concat(parts, ignore_index=True).sort_values("time_ns", ignore_index=True),
            notes=(note,),
        )


def announced_holds(trace: Trace, stream: Stream, zones: ZoneMap) -> AnnouncedHolds:
    """Read the holds that the lock tracepoints announce.

    Which function held the lock shows by what it moved. Where it moved nothing, its call site
    tells, by what other holds of that site moved: of a refill that found nothing, or else of a
    direct free, which no event under the lock shows.

    Args:
        trace: the events.
        stream: the same CPU by CPU, with the lock events.
        zones: which zone a page belongs to.
    """
    stream = stream.take(~partial_claim_duplicates(stream))
    begin = np.flatnonzero(stream.is_kind(Probe.LOCKED))
    table = trace.tables[LOCKED_EVENT]
    number = stream.value[begin]
    end, owner = _spans(stream, begin)
    removal = stream.is_kind(Event.ZONE_LOCKED, Event.EXTFRAG)
    again = refilled_removals(stream)
    refilled = stream.is_kind(Probe.REFILLED) | (removal & ~again)
    taken, taken_pages, first_taken = _sums(stream, owner, refilled, len(begin))
    drained, drained_pages, first_drained = _sums(
        stream, owner, stream.is_kind(Event.PCPU_DRAIN), len(begin)
    )
    caller = np.asarray(table["caller"])[number] if "caller" in table else None
    site = _sites(taken, drained, caller)
    freed = _freed_before(stream, begin)
    pages_zone = zones.codes(stream.pfn)
    shown = np.select([taken > 0, drained > 0, site == _FREE], [first_taken, first_drained, freed])
    zone = _named_zones(table, number, zones)
    zone = np.where((zone == UNKNOWN_ZONE) & (shown >= 0), pages_zone[shown], zone).astype(np.int8)
    is_free, is_drain, unknown = site == _FREE, site == _DRAIN, end < 0
    freed_pages = np.where(freed >= 0, np.int64(1) << np.maximum(stream.order[freed], 0), -1)
    cause = np.zeros(len(begin), np.int8)
    cause[is_drain] = drain_causes(stream, begin[is_drain], trace.comms)
    holds = Transactions(
        time_ns=stream.time_ns[begin],
        zone=zone,
        cpu=stream.cpu[begin],
        site=np.where((site == _REFILL) & (taken == 0) & ~unknown, _EMPTY, site).astype(np.int8),
        cause=cause,
        objects=np.select([is_free, unknown, is_drain], [1, -1, drained], taken),
        pages=np.select(
            [is_free, unknown, is_drain], [freed_pages, -1, drained_pages], taken_pages
        ),
        order=np.where(is_drain | (shown < 0), UNKNOWN_ORDER, stream.order[shown]).astype(np.int8),
        migratetype=np.where(
            (site == _REFILL) & (shown >= 0), stream.migratetype[shown], -1
        ).astype(np.int8),
    )
    direct = np.flatnonzero(removal & ~again & (owner == _OUTSIDE))
    allocations = single_page_transactions(stream, direct, pages_zone[direct], "buddy_alloc")
    hold_ns = np.where(end >= 0, stream.time_ns[end] - stream.time_ns[begin], -1)
    times = _times_table(holds, zones, hold_ns, _wait_ns(trace, stream, begin, number))
    return AnnouncedHolds(
        transactions=Transactions.joined((holds, allocations)),
        times=times,
        notes=tuple(_notes(end)),
    )


def _notes(end: np.ndarray) -> list[str]:
    notes = [
        "refills, drains and direct frees are those that zone->lock's own tracepoints bound; other "
        "holders are not announced"
    ]
    open_ended = int(np.count_nonzero(end < 0))
    if open_ended:
        notes.append(
            f"{count_of(open_ended, 'hold has', 'holds have')} no recorded {UNLOCKED_EVENT}: "
            "what was moved is unknown"
        )
    return notes


def _spans(stream: Stream, begin: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Row of each hold's release (-1: none), and of each row the number of its hold.

    What follows a hold whose release was lost may lie inside it or not: `_UNSURE`.
    """
    marks = np.flatnonzero(stream.is_kind(Probe.LOCKED, Probe.UNLOCKED))
    locked = stream.kind[marks] == Probe.LOCKED
    paired = np.zeros(len(marks), bool)
    paired[:-1] = locked[:-1] & ~locked[1:] & (stream.cpu[marks[1:]] == stream.cpu[marks[:-1]])
    end = np.full(len(begin), -1, np.int64)
    end[paired[locked]] = marks[np.flatnonzero(paired) + 1]
    rows = np.arange(len(stream))
    latest = np.searchsorted(begin, rows, "right") - 1
    if not len(begin):
        return end, np.full(len(stream), _OUTSIDE)
    after = (latest >= 0) & (stream.cpu[begin[latest]] == stream.cpu)
    unsure = after & (end[latest] < 0)
    return end, np.select([after & (rows <= end[latest]), unsure], [latest, _UNSURE], _OUTSIDE)


def _sums(
    stream: Stream, owner: np.ndarray, member: np.ndarray, holds: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Objects and pages of each hold's members, and the row of the first (-1: none)."""
    rows = np.flatnonzero(member & (owner >= 0))
    mine = owner[rows]
    pages = np.bincount(mine, weights=1 << stream.order[rows].astype(np.int64), minlength=holds)
    first = np.full(holds, -1, np.int64)
    first[mine[::-1]] = rows[::-1]
    return np.bincount(mine, minlength=holds), pages.astype(np.int64), first


def _sites(taken: np.ndarray, drained: np.ndarray, caller: np.ndarray | None) -> np.ndarray:
    """Site of each hold: what it moved, else what its call site's other holds moved."""
    shown = np.select([taken > 0, drained > 0], [_REFILL, _DRAIN], _FREE)
    if caller is None:
        return shown
    site = shown.copy()
    for each in np.unique(caller):
        same = caller == each
        moved = shown[same & (shown != _FREE)]
        if len(moved):
            site[same & (shown == _FREE)] = np.bincount(moved).argmax()
    return site


def _freed_before(stream: Stream, begin: np.ndarray) -> np.ndarray:
    """Row of the last free by the same CPU and task before each hold, -1 if there is none."""
    rows = np.where(stream.is_kind(Event.FREE), np.arange(len(stream)), -1)
    latest = np.maximum.accumulate(rows)[begin]
    same = (latest >= 0) & (stream.cpu[latest] == stream.cpu[begin])
    return np.where(same & (stream.pid[latest] == stream.pid[begin]), latest, -1)


def _named_zones(table: Mapping[str, np.ndarray], number: np.ndarray, zones: ZoneMap) -> np.ndarray:
    """Zone code of each hold by the tracepoint's node and name, where it has them."""
    node = next((table[name] for name in _NODE_FIELDS if name in table), None)
    name = next((table[name] for name in _NAME_FIELDS if name in table), None)
    if node is None or name is None:
        return np.full(len(number), UNKNOWN_ZONE, np.int8)
    code = {(zone.node, zone.name): place for place, zone in enumerate(zones.zones)}
    keys = zip(node[number].tolist(), name[number].tolist(), strict=True)
    return np.array([code.get(key, UNKNOWN_ZONE) for key in keys], np.int8)


def _wait_ns(trace: Trace, stream: Stream, begin: np.ndarray, number: np.ndarray) -> np.ndarray:
    """How long each hold's CPU had waited: as the event says, else since it found the lock held."""
    table = trace.tables[LOCKED_EVENT]
    if "wait_ns" in table:
        return np.asarray(table["wait_ns"])[number].astype(np.int64)
    marks = np.flatnonzero(stream.is_kind(Probe.CONTENDED, Probe.LOCKED))
    before = marks[np.maximum(np.searchsorted(marks, begin) - 1, 0)] if len(marks) else begin
    waited = (stream.kind[before] == Probe.CONTENDED) & (stream.cpu[before] == stream.cpu[begin])
    return np.where(waited, stream.time_ns[begin] - stream.time_ns[before], 0)


def _times_table(
    holds: Transactions, zones: ZoneMap, hold_ns: np.ndarray, wait_ns: np.ndarray
) -> pd.DataFrame:
    node = pd.array([*(zone.node for zone in zones.zones), pd.NA], "Int64")
    name = np.array([*(zone.name for zone in zones.zones), None], object)
    return pd.DataFrame(
        {
            "time_ns": holds.time_ns,
            "node": node[holds.zone],
            "zone": pd.Series(name[holds.zone], dtype="str"),
            "cpu": holds.cpu.astype(np.int64),
            "site": pd.Series(np.array(SITES, object)[holds.site], dtype="str"),
            "hold_ns": pd.arrays.IntegerArray(hold_ns.astype(np.int64), hold_ns < 0),
            "wait_ns": wait_ns.astype(np.int64),
        }
    )
