"""Waits for zone->lock and holds of it, as lock events say (T8).

lock:contention_begin and _end name no locks. A zone's lock shows by what its holder does next: the
events that the allocator emits under zone->lock follow on the same CPU at once. The waiting
function shows by its return address in the call chain, and by what followed most often where that
address waited. zone->lock's own tracepoints announce holds of refills, drains and direct frees.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd

from pagealloc_model.allocator.sites import MEASURED, MOVING
from pagealloc_model.base.text import count_of
from pagealloc_model.measured.spinlocks import SPIN, has_paravirtual_spinlocks
from pagealloc_model.measured.stream import (
    Probe,
    Stream,
    begun_and_ended,
)
from pagealloc_model.measured.transactions import (
    UNKNOWN_ORDER,
    Transactions,
    drain_causes,
    in_time_order,
    named,
    partial_claim_duplicates,
    refilled_removals,
    transactions_at,
    zone_columns,
)
from pagealloc_model.recording.trace import tracepoints as tp
from pagealloc_model.recording.trace.columns import Event, Trace
from pagealloc_model.recording.zone_map import UNKNOWN_ZONE, ZoneMap

NEXT_EVENT_NS = 50_000
"""A CPU does under a lock, or right after, all that it does within this time of getting it."""

UNDER_LOCK = (Event.ZONE_LOCKED, Event.PCPU_DRAIN, Event.EXTFRAG)
OTHER = len(MOVING)
WAITING = (*MOVING, "other")
"""Sites of waits; "other" are functions that no site of the model stands for."""
_LOCK_FRAMES = 2
"""Frames above the caller in a spinlock's chain: the slow path and the lock function itself."""
_CONTEXT_MARKERS = np.uint64(0xFFFFFFFFFFFFF000)


@dataclass(frozen=True, kw_only=True, eq=False)
class Contention:
    """Contended acquisitions of the zones' locks.

    Attributes:
        known: whether the recording can show them at all.
        waits: time_ns (when the wait began), node, zone, cpu, site, wait_ns; one row each. Empty
            where not known.
        notes: how they were recognised, or why they cannot be known; one line each.
    """

    known: bool
    waits: pd.DataFrame
    notes: tuple[str, ...]


def _zones_table(
    time_ns: np.ndarray, zone: np.ndarray, cpu: np.ndarray, site: np.ndarray, zones: ZoneMap
) -> pd.DataFrame:
    columns = {"time_ns": time_ns, **zone_columns(zone, zones), "cpu": cpu.astype(np.int64)}
    frame = pd.DataFrame({**columns, "site": np.array(WAITING, object)[site]})
    return frame.astype({"node": "int64"})


def measured_contention(trace: Trace, zones: ZoneMap) -> Contention:
    """Contended acquisitions of the zones' locks in a recording."""
    begins, ends = map(trace.tables.get, tp.CONTENTION)
    if begins is None or ends is None:
        return _unknown(f"{' and '.join(tp.CONTENTION)} were not recorded")
    spin = np.flatnonzero(np.asarray(begins["flags"]) & SPIN)
    if not len(spin):
        return _unknown(
            "no spinlock ever appears contended: a guest without paravirtual spinlocks takes them "
            "by test-and-set and emits nothing (T8)"
        )
    # a contention ends with its CPU's next end at that address
    begin, end, wait_ns = begun_and_ended(trace, *tp.CONTENTION, ("lock_addr", "cpu"), spin)
    following = _next_events(trace, ends, end)
    address = np.asarray(begins["lock_addr"])[begin]
    zone, votes = _zone_of_address(trace, zones, address, following)
    inside = zone != UNKNOWN_ZONE
    nothing = (
        f"none of {len(address)} contended acquisitions was of a lock that allocator events "
        "followed"
    )
    if not inside.any() and not has_paravirtual_spinlocks(trace):
        return _unknown(
            f"{nothing}, and who waits for a native spinlock behind its holder alone emits nothing "
            "(T8)"
        )
    begin, following, zone = begin[inside], following[inside], zone[inside]
    site = _sites(trace, begins, begin, following)
    started, cpu = (np.asarray(begins[name])[begin] for name in ("time_ns", "cpu"))
    waits = _zones_table(started, zone, cpu, site, zones).assign(wait_ns=wait_ns[inside])
    note = f"{nothing}: zone->lock was never seen contended"
    if len(waits):
        note = (
            f"{len(waits)} of {len(address)} contended acquisitions were of zone->lock, recognised "
            f"by the {votes} that an event under the lock followed on the same CPU"
        )
    return Contention(known=True, waits=waits, notes=(note,))


def _unknown(reason: str) -> Contention:
    columns = ["time_ns", "node", "zone", "cpu", "site", "wait_ns"]
    note = f"contended acquisitions of zone->lock cannot be known: {reason}"
    return Contention(known=False, waits=pd.DataFrame(columns=columns), notes=(note,))


def _next_events(
    trace: Trace, table: Mapping[str, np.ndarray], rows: np.ndarray, *, before: bool = False
) -> np.ndarray:
    """Trace row of the event next to each of a table's rows, by its CPU and task; -1: none near."""
    events = np.full(len(rows), -1, np.int64)
    time, cpu, task = (np.asarray(table[name])[rows] for name in ("time_ns", "cpu", "pid"))
    for number in np.unique(cpu):
        of_cpu = np.flatnonzero(trace.cpu == number)
        own = np.flatnonzero(cpu == number)
        place = np.searchsorted(trace.time_ns[of_cpu], time[own]) - before
        inside = (place >= 0) & (place < len(of_cpu))
        own, event = own[inside], of_cpu[place[inside]]
        near = np.abs(trace.time_ns[event] - time[own]) <= NEXT_EVENT_NS
        near &= trace.pid[event] == task[own]
        events[own[near]] = event[near]
    return events


def _zone_of_address(
    trace: Trace, zones: ZoneMap, address: np.ndarray, following: np.ndarray
) -> tuple[np.ndarray, int]:
    """Zone code of each contention's lock, and the number of events that show it.

    A lock is a zone's if, of the contentions that some event is next to, most are next to one under
    zone->lock: the zone of most of those events' pages.
    """
    events = np.where(following >= 0, trace.event[following].astype(np.int16), -1)
    under_lock = np.isin(events, np.array(UNDER_LOCK))
    pages_zone = zones.codes(trace.pfn[following])
    zone = np.full(len(address), UNKNOWN_ZONE, np.int8)
    votes = 0
    for lock in np.unique(address[under_lock]):
        same = address == lock
        shown = same & under_lock
        codes = pages_zone[shown & (pages_zone != UNKNOWN_ZONE)]
        if shown.sum() * 2 > (events[same] >= 0).sum() and len(codes):
            zone[same] = np.bincount(codes).argmax()
            votes += int(shown.sum())
    return zone, votes


def _sites(
    trace: Trace, begins: Mapping[str, np.ndarray], rows: np.ndarray, following: np.ndarray
) -> np.ndarray:
    """Site of each contention: what most often follows where the same function waits."""
    # return addresses into the functions that took the lock; 0 without a call chain
    callers = np.zeros(len(rows), np.uint64)
    for index, row in enumerate(rows if "callchain_start" in begins else ()):
        start, length = int(begins["callchain_start"][row]), int(begins["callchain_len"][row])
        chain = trace.callchains[start : start + length]
        frames = chain[chain < _CONTEXT_MARKERS]
        if len(frames) > _LOCK_FRAMES:
            callers[index] = frames[_LOCK_FRAMES]
    single = _sites_by_event(trace, following)
    site = np.full(len(rows), OTHER)
    for caller in np.unique(callers):
        same = callers == caller
        known = single[same & (single != OTHER)]
        if len(known) * 2 > same.sum():
            site[same] = np.bincount(known).argmax()
    return site


def _sites_by_event(trace: Trace, following: np.ndarray) -> np.ndarray:
    """Sites as the event next to each contention alone says."""
    last = len(trace) - 1
    event = np.where(following >= 0, trace.event[following].astype(np.int16), -1)
    site = np.full(len(following), OTHER)
    site[event == Event.PCPU_DRAIN] = WAITING.index("drain")
    site[event == Event.FREE] = WAITING.index("direct_free")
    for index in np.flatnonzero(np.isin(event, (Event.ZONE_LOCKED, Event.EXTFRAG))):
        row = following[index]
        later = row + 1
        while later < last and trace.cpu[later] != trace.cpu[row]:
            later += 1
        direct = later <= last and trace.event[later] == Event.ALLOC
        direct = direct and trace.pfn[later] == trace.pfn[row]
        site[index] = WAITING.index("buddy_alloc" if direct else "refill")
    return site


_HOLD = {"time_ns": "int64", "node": "int64", "zone": "str", "cpu": "int64", "site": "str"}


def contended_releases(trace: Trace, zones: ZoneMap) -> pd.DataFrame:
    """Releases of the zones' locks that somebody waited for; empty without such events.

    A lock is a zone's, and a hold is a site's, by what its CPU did just before it let go. `waiting`
    are the CPUs that had begun to wait for that lock and not ended, NA if waits were not recorded.
    """
    table = trace.tables.get(tp.CONTENDED_RELEASE)
    if table is None:
        return _empty(_HOLD | {"waiting": "Int64"})
    preceding = _next_events(trace, table, np.arange(len(table["time_ns"])), before=True)
    address = np.asarray(table["lock_addr"])
    zone, _ = _zone_of_address(trace, zones, address, preceding)
    rows = np.flatnonzero(zone != UNKNOWN_ZONE)
    time_ns, address = np.asarray(table["time_ns"])[rows], address[rows]
    site = _sites_by_event(trace, preceding[rows])
    releases = _zones_table(time_ns, zone[rows], np.asarray(table["cpu"])[rows], site, zones)
    # waits for each release's lock that had begun before it and not ended
    waiting = pd.array([pd.NA] * len(rows), "Int64")
    begins, ends = map(trace.tables.get, tp.CONTENTION)
    if begins is not None and ends is not None:
        spins = (np.asarray(begins["flags"]) & SPIN) != 0
        for lock in np.unique(address):
            same = address == lock
            begun = np.asarray(begins["time_ns"])[spins & (begins["lock_addr"] == lock)]
            ended = np.asarray(ends["time_ns"])[np.asarray(ends["lock_addr"]) == lock]
            count = np.searchsorted(begun, time_ns[same]) - np.searchsorted(ended, time_ns[same])
            waiting[np.flatnonzero(same)] = np.maximum(count, 0)
    return releases.assign(waiting=waiting).astype(_HOLD)


def _empty(columns: Mapping[str, str]) -> pd.DataFrame:
    return pd.DataFrame({name: pd.array([], kind) for name, kind in columns.items()})


COVERED_SITES = ("refill", "drain", "direct_free")
"""Whose holds these tracepoints announce; a direct buddy allocation takes the lock unannounced."""

_REFILL, _DRAIN, _FREE = (MEASURED.index(site) for site in COVERED_SITES)
_EMPTY = MEASURED.index("empty_refill")
_OUTSIDE, _UNSURE = -1, -2

NO_TIMES = _empty(_HOLD | {"node": "Int64", "hold_ns": "Int64", "wait_ns": "int64"})
"""Times of announced holds, of a recording without these tracepoints."""


def announced_contention(times: pd.DataFrame, inferred: Contention) -> Contention:
    """The announced waits, and of direct allocations those that lock events show."""
    waited = times[times["wait_ns"] > 0]
    waits = waited.drop(columns="hold_ns").assign(time_ns=waited.time_ns - waited.wait_ns)
    others = inferred.waits[inferred.waits["site"] == "buddy_alloc"]
    parts = [part for part in (waits, others) if len(part)] or [waits]
    note = (
        f"{len(waits)} of {len(times)} acquisitions of zone->lock by refills, drains and "
        f"direct frees waited, as {tp.ZONE_LOCKED} says"
    )
    return Contention(
        known=True,
        waits=pd.concat(parts, ignore_index=True).sort_values("time_ns", ignore_index=True),
        notes=(note,),
    )


def announced_holds(
    trace: Trace, stream: Stream, zones: ZoneMap
) -> tuple[Transactions, pd.DataFrame, tuple[str, ...]]:
    """Holds of zone->lock that the lock tracepoints announce: refills, drains and direct frees.

    The function that held the lock shows by what it moved, else by what other holds of its call
    site moved. Returns one transaction for each hold, with empty refills and the direct buddy
    allocations, which are removals outside all holds; the holds' times as in `NO_TIMES`, hold_ns NA
    where the release was lost; and what limits them, one line each.
    """
    stream = stream.take(~partial_claim_duplicates(stream))
    begin = stream.rows_of(Probe.LOCKED)
    holds = len(begin)
    table = trace.tables[tp.ZONE_LOCKED]
    number = stream.value[begin]
    # the release of each hold; -1: none
    marks = stream.rows_of(Probe.LOCKED, Probe.UNLOCKED)
    locked = stream.kind[marks] == Probe.LOCKED
    paired = np.zeros(len(marks), bool)
    paired[:-1] = locked[:-1] & ~locked[1:] & (stream.cpu[marks[1:]] == stream.cpu[marks[:-1]])
    end = np.full(holds, -1, np.int64)
    end[paired[locked]] = marks[np.flatnonzero(paired) + 1]
    # the hold of each row; what follows one whose release was lost may lie inside it or not
    rows = np.arange(len(stream))
    owner = np.full(len(stream), _OUTSIDE)
    if holds:
        latest = np.searchsorted(begin, rows, "right") - 1
        after = (latest >= 0) & (stream.cpu[begin[latest]] == stream.cpu)
        inside, unsure = after & (rows <= end[latest]), after & (end[latest] < 0)
        owner = np.select([inside, unsure], [latest, _UNSURE], _OUTSIDE)
    removal = stream.is_kind(Event.ZONE_LOCKED, Event.EXTFRAG) & ~refilled_removals(stream)

    def moved(member: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Objects and pages of each hold's members, and the row of the first (-1: none)."""
        members = np.flatnonzero(member & (owner >= 0))
        of_hold = owner[members]
        pages = 1 << stream.order[members].astype(np.int64)
        first = np.full(holds, -1, np.int64)
        first[of_hold[::-1]] = members[::-1]
        summed = np.bincount(of_hold, weights=pages, minlength=holds).astype(np.int64)
        return np.bincount(of_hold, minlength=holds), summed, first

    taken, taken_pages, first_taken = moved(stream.is_kind(Probe.REFILLED) | removal)
    drained, drained_pages, first_drained = moved(stream.is_kind(Event.PCPU_DRAIN))
    # what each hold moved, else what its call site's other holds moved
    shown = np.select([taken > 0, drained > 0], [_REFILL, _DRAIN], _FREE)
    site = shown.copy()
    callers = np.asarray(table["caller"])[number] if "caller" in table else ()
    for caller in np.unique(callers):
        same = callers == caller
        known = shown[same & (shown != _FREE)]
        if len(known):
            site[same & (shown == _FREE)] = np.bincount(known).argmax()
    # the last free by the same CPU and task before each hold; -1: none
    freed = np.maximum.accumulate(np.where(stream.is_kind(Event.FREE), rows, -1))[begin]
    freed[(stream.cpu[freed] != stream.cpu[begin]) | (stream.pid[freed] != stream.pid[begin])] = -1
    shown = np.select([taken > 0, drained > 0, site == _FREE], [first_taken, first_drained, freed])
    pages_zone = zones.codes(stream.pfn)
    zone = np.full(holds, UNKNOWN_ZONE, np.int8)
    node_field, name_field = (
        next((name for name in names if name in table), None)
        for names in (("node_id", "nid"), ("name", "zone_name"))
    )
    if node_field and name_field:
        code = {(zone.node, zone.name): place for place, zone in enumerate(zones.zones)}
        names = (table[name][number].tolist() for name in (node_field, name_field))
        keys = zip(*names, strict=True)
        zone = np.array([code.get(key, UNKNOWN_ZONE) for key in keys], np.int8)
    zone = np.where((zone == UNKNOWN_ZONE) & (shown >= 0), pages_zone[shown], zone).astype(np.int8)
    is_free, is_drain, unknown = site == _FREE, site == _DRAIN, end < 0
    freed_pages = np.where(freed >= 0, np.int64(1) << np.maximum(stream.order[freed], 0), -1)
    cause = np.zeros(holds, np.int8)
    cause[is_drain] = drain_causes(stream, begin[is_drain], trace.comms)
    kinds = [is_free, unknown, is_drain]
    transactions = transactions_at(
        stream,
        begin,
        zone,
        np.where((site == _REFILL) & (taken == 0) & ~unknown, _EMPTY, site),
        cause=cause,
        objects=np.select(kinds, [1, -1, drained], taken),
        pages=np.select(kinds, [freed_pages, -1, drained_pages], taken_pages),
        order=np.where(is_drain | (shown < 0), UNKNOWN_ORDER, stream.order[shown]),
        migratetype=np.where((site == _REFILL) & (shown >= 0), stream.migratetype[shown], -1),
    )
    # a CPU has waited as long as the event says, else since it found the lock held
    if "wait_ns" in table:
        wait_ns = np.asarray(table["wait_ns"])[number].astype(np.int64)
    else:
        before = stream.latest(begin - 1, Probe.CONTENDED, Probe.LOCKED)
        waited = (before >= 0) & (stream.kind[before] == Probe.CONTENDED)
        waited &= stream.cpu[before] == stream.cpu[begin]
        wait_ns = np.where(waited, stream.time_ns[begin] - stream.time_ns[before], 0)
    times = pd.DataFrame(
        {
            "time_ns": transactions.time_ns,
            **zone_columns(zone, zones),
            "cpu": transactions.cpu.astype(np.int64),
            "site": named(transactions.site, MEASURED),
            "hold_ns": pd.arrays.IntegerArray(
                np.where(unknown, -1, stream.time_ns[end] - stream.time_ns[begin]), unknown
            ),
            "wait_ns": wait_ns,
        }
    )
    notes = [
        "refills, drains and direct frees are those that zone->lock's own tracepoints bound; other "
        "holders are not announced"
    ]
    if open_ended := int(unknown.sum()):
        notes.append(
            f"{count_of(open_ended, 'hold has', 'holds have')} no recorded {tp.ZONE_LOCK_UNLOCK}: "
            "what was moved is unknown"
        )
    direct = np.flatnonzero(removal & (owner == _OUTSIDE))
    allocations = transactions_at(stream, direct, pages_zone[direct], "buddy_alloc")
    return in_time_order(transactions, allocations), times, tuple(notes)
