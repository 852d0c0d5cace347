"""Holds of zone->lock that lock events announce: their begin, end, CPU and wait."""

from __future__ import annotations

import numpy as np
import pandas as pd

from pagealloc_model.base.text import count_of
from pagealloc_model.measured.contention import Contention
from pagealloc_model.measured.stream import LOCKED_EVENT, UNLOCKED_EVENT, Probe, Stream
from pagealloc_model.measured.transactions import (
    SITES,
    UNKNOWN_ORDER,
    Transactions,
    drain_causes,
    list_transactions,
    named,
    partial_claim_duplicates,
    refilled_removals,
    zone_columns,
)
from pagealloc_model.recording.trace.columns import Event, Trace
from pagealloc_model.recording.zone_map import UNKNOWN_ZONE, ZoneMap

COVERED_SITES = ("refill", "drain", "direct_free")
"""Whose holds these tracepoints announce; a direct buddy allocation takes the lock unannounced."""

_REFILL, _DRAIN, _FREE = (SITES.index(site) for site in COVERED_SITES)
_EMPTY = SITES.index("empty_refill")
_OUTSIDE, _UNSURE = -1, -2

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


def announced_contention(times: pd.DataFrame, inferred: Contention) -> Contention:
    """The announced waits, and of direct allocations those that lock events show."""
    waited = times[times["wait_ns"] > 0]
    waits = waited.drop(columns="hold_ns").assign(time_ns=waited.time_ns - waited.wait_ns)
    others = inferred.waits[inferred.waits["site"] == "buddy_alloc"]
    parts = [part for part in (waits, others) if len(part)] or [waits]
    note = (
        f"{len(waits)} of {len(times)} acquisitions of zone->lock by refills, drains and "
        f"direct frees waited, as {LOCKED_EVENT} says"
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

    Which function held the lock shows by what it moved. Where it moved nothing, its call site
    tells, by what other holds of that site moved: of a refill that found nothing, or else of a
    direct free, which no event under the lock shows.

    Returns:
        One transaction for each hold, with the direct buddy allocations, which show by the removals
        outside all holds, and empty refills; the announced holds' times as in `NO_TIMES`, time_ns
        when the lock was had, hold_ns NA where the release was lost, wait_ns 0 without contention;
        and what limits them, one line each.
    """
    stream = stream.take(~partial_claim_duplicates(stream))
    begin = stream.rows_of(Probe.LOCKED)
    holds = len(begin)
    table = trace.tables[LOCKED_EVENT]
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
    caller = np.asarray(table["caller"])[number] if "caller" in table else None
    site = _sites(taken, drained, caller)
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
        code = {(each.node, each.name): place for place, each in enumerate(zones.zones)}
        keys = zip(
            table[node_field][number].tolist(), table[name_field][number].tolist(), strict=True
        )
        zone = np.array([code.get(key, UNKNOWN_ZONE) for key in keys], np.int8)
    zone = np.where((zone == UNKNOWN_ZONE) & (shown >= 0), pages_zone[shown], zone).astype(np.int8)
    is_free, is_drain, unknown = site == _FREE, site == _DRAIN, end < 0
    freed_pages = np.where(freed >= 0, np.int64(1) << np.maximum(stream.order[freed], 0), -1)
    cause = np.zeros(holds, np.int8)
    cause[is_drain] = drain_causes(stream, begin[is_drain], trace.comms)
    transactions = Transactions(
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
            "site": named(transactions.site, SITES),
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
            f"{count_of(open_ended, 'hold has', 'holds have')} no recorded {UNLOCKED_EVENT}: "
            "what was moved is unknown"
        )
    direct = np.flatnonzero(removal & (owner == _OUTSIDE))
    allocations = list_transactions(stream, direct, pages_zone[direct], "buddy_alloc")
    return Transactions.joined((transactions, allocations)), times, tuple(notes)


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
