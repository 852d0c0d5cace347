"""Transactions of the zone lock: refills, drains, direct allocations and frees, one row each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from pagealloc_model.allocator.sites import CAUSES, MEASURED
from pagealloc_model.base.text import count_of
from pagealloc_model.measured.stream import Probe, Stream
from pagealloc_model.policy.policy import PCP_BATCH_SCALE_MAX
from pagealloc_model.recording.trace.columns import Event
from pagealloc_model.recording.zone_map import UNKNOWN_ZONE, ZoneMap

if TYPE_CHECKING:
    import pandas as pd

UNKNOWN_ORDER = -1

_KWORKER_FREE_NS = 1_000_000
"""A kworker's drain this long after its last free is not that free's: it is a decay (S4.8)."""


TRANSACTION = np.dtype(
    [("time_ns", np.int64), ("objects", np.int64), ("pages", np.int64), ("cpu", np.int16)]
    + [(name, np.int8) for name in ("zone", "site", "cause", "order", "migratetype")]
)
"""A hold of zone->lock: when it began; buddies and base pages moved, -1 where unknown; the
CPU that ran it; code of a `ZoneMap`; indices into `MEASURED` and `CAUSES`; `UNKNOWN_ORDER` for
drains, which mix orders; number of the list, -1 for drains and frees."""
Transactions = np.recarray


def transactions_at(
    stream: Stream, rows: np.ndarray, zone: np.ndarray, site: str | np.ndarray, **columns: Any
) -> Transactions:
    """Transactions that begin with rows of the stream, one object of its order and type each.

    `columns` are what they have otherwise.
    """
    order = stream.order[rows].astype(np.int64)
    objects = columns.get("objects", np.ones(len(rows), np.int64))
    columns = {
        "time_ns": stream.time_ns[rows],
        "objects": objects,
        "pages": np.where(objects >= 0, objects << np.maximum(order, 0), -1),
        "cpu": stream.cpu[rows],
        "zone": zone,
        "site": MEASURED.index(site) if isinstance(site, str) else site,
        "cause": 0,
        "order": order,
        "migratetype": stream.migratetype[rows],
    } | columns
    transactions = np.recarray(len(rows), TRANSACTION)
    for name, values in columns.items():
        transactions[name] = values
    return transactions


MIXED = {"order": UNKNOWN_ORDER, "migratetype": -1}
"""Columns of drains."""


def in_time_order(*parts: Transactions) -> Transactions:
    """All parts as one."""
    together = np.concatenate(parts).view(np.recarray)
    return together[np.argsort(together["time_ns"], kind="stable")]


def named(code: np.ndarray, names: Sequence[str]) -> pd.Series:
    """Names by number, NA for numbers without one."""
    import pandas as pd  # `info` does without

    known = (code >= 0) & (code < len(names))
    return pd.Series(np.array([*names, None], object)[np.where(known, code, -1)], dtype="str")


def zone_columns(code: np.ndarray, zones: ZoneMap) -> dict[str, object]:
    """Columns `node` and `zone` of a table, by zone code; NA for an unknown zone."""
    import pandas as pd

    node = pd.array([*(zone.node for zone in zones.zones), pd.NA], "Int64")
    return {"node": node[code], "zone": named(code, [zone.name for zone in zones.zones])}


def drain_causes(stream: Stream, first: np.ndarray, comms: Mapping[int, str]) -> np.ndarray:
    """The cause of each drain, as an index into `CAUSES`; "" where nothing says so (T11).

    The nearest earlier free or whole-zone drain of the same CPU and task; a kworker without a free
    just before is the periodic decay.
    """
    nearest = stream.latest(first, Event.FREE, Event.FREE_BATCHED, Probe.DRAIN_ZONE)
    same_task = (nearest >= 0) & (stream.cpu[nearest] == stream.cpu[first])
    same_task &= stream.pid[nearest] == stream.pid[first]
    whole_zone = same_task & (stream.kind[nearest] == Probe.DRAIN_ZONE)
    recent = stream.time_ns[first] - stream.time_ns[nearest] < _KWORKER_FREE_NS
    workers = [pid for pid, comm in comms.items() if comm.startswith("kworker")]
    worker = np.isin(stream.pid[first], np.array(workers, np.int32))
    from_list_start = (stream.kind[first] != Probe.BULK_FREE) | (stream.value[first] == 0)
    decay = worker & ~(same_task & recent) & ~whole_zone & from_list_start
    causes = [CAUSES.index(cause) for cause in ("drain_all", "decay", "commit")]
    return np.select([whole_zone, decay, same_task], causes, 0).astype(np.int8)


def probed_transactions(
    stream: Stream, zones: ZoneMap, comms: Mapping[int, str]
) -> tuple[Transactions, tuple[str, ...]]:
    """Refills, drains, direct frees and direct buddy allocations, with notes on what is unsure.

    A refill is a call of the bulk allocator with its return value. A drain is a call of the bulk
    free with the pcpu_drain events up to the CPU's next call. Other removals are direct buddy
    allocations; so is, inside a refill, that of an interrupt, which the allocation of the same page
    follows at once.
    """
    pages_zone = zones.codes(stream.pfn)
    by_address = _zone_by_address(stream, pages_zone)
    # calls nest where an interrupt refills another list, so they are matched like brackets
    call, back = stream.is_kind(Probe.BULK_ALLOC), stream.is_kind(Probe.BULK_ALLOC_RETURN)
    depth = np.cumsum(call.astype(np.int64) - back)
    events = np.flatnonzero(call | back)
    level = depth[events] + back[events]
    order = np.lexsort((events, level, stream.cpu[events]))
    events, level = events[order], level[order]
    before, after = events[:-1], events[1:]
    pair = call[before] & back[after] & (level[:-1] == level[1:])
    pair &= stream.cpu[before] == stream.cpu[after]
    calls = np.flatnonzero(call)
    returns = np.full(len(calls), -1, np.int64)
    returns[np.searchsorted(calls, before[pair])] = after[pair]
    edge = np.zeros(len(stream) + 1, np.int64)
    edge[calls[returns >= 0]] = 1
    edge[returns[returns >= 0]] = -1
    opened = np.cumsum(edge[:-1]) > 0
    objects = np.where(returns >= 0, stream.value[returns], -1)
    site = np.where(objects == 0, MEASURED.index("empty_refill"), MEASURED.index("refill"))
    refills = transactions_at(stream, calls, by_address[calls], site, objects=objects)
    # calls of the bulk free with what each freed
    frees, drained = stream.rows_of(Probe.BULK_FREE), stream.rows_of(Event.PCPU_DRAIN)
    owner = np.searchsorted(frees, drained) - 1
    owned = owner >= 0
    owned[owned] = stream.cpu[frees[owner[owned]]] == stream.cpu[drained[owned]]
    owner = owner[owned]
    pages = np.int64(1) << stream.order[drained[owned]].astype(np.int64)
    drained_at = {
        "objects": np.bincount(owner, minlength=len(frees)),
        "pages": np.bincount(owner, weights=pages, minlength=len(frees)),
        "cause": drain_causes(stream, frees, comms),
    }
    drains = transactions_at(stream, frees, by_address[frees], "drain", **drained_at, **MIXED)
    duplicate = partial_claim_duplicates(stream)
    rows = np.flatnonzero(~duplicate)
    used = np.zeros(len(stream), bool)
    used[rows[:-1]] = (stream.kind[rows[1:]] == Event.ALLOC) & stream.is_same_page(
        rows[1:], rows[:-1]
    )
    removal = stream.is_kind(Event.ZONE_LOCKED, Event.EXTFRAG) & ~duplicate
    singles = (
        transactions_at(stream, rows, pages_zone[rows], site)
        for site, rows in (
            ("direct_free", stream.rows_of(Probe.FREE_ONE)),
            ("buddy_alloc", np.flatnonzero(removal & (~opened | used))),
        )
    )
    notes = []
    if strays := len(drained) - len(owner):
        notes.append(
            f"{count_of(strays, 'drained object precedes', 'drained objects precede')} "
            "the first call on a CPU: left out"
        )
    if unreturned := int(np.count_nonzero(returns < 0)):
        notes.append(
            f"{count_of(unreturned, 'refill has', 'refills have')} no recorded return: size unknown"
        )
    return in_time_order(refills, drains, *singles), tuple(notes)


def zone_drains(stream: Stream, zones: ZoneMap) -> tuple[Stream, np.ndarray]:
    """Recorded calls of drain_pages_zone() in known zones, by time, and int8 zone code of each.

    `cpu` ran the call and `value` is the CPU whose lists it emptied (S4.9).
    """
    zone = _zone_by_address(stream, zones.codes(stream.pfn))
    calls = np.flatnonzero(stream.is_kind(Probe.DRAIN_ZONE) & (zone != UNKNOWN_ZONE))
    calls = calls[np.argsort(stream.time_ns[calls], kind="stable")]
    return stream.take(calls), zone[calls]


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


def partial_claim_duplicates(stream: Stream) -> np.ndarray:
    """Mask of fallback events whose page the event before already announced (T4, T6)."""
    duplicate = np.zeros(len(stream), bool)
    rows = stream.rows_of(Event.EXTFRAG)
    rows = rows[rows > 0]
    duplicate[rows] = stream.kind[rows - 1] == Event.ZONE_LOCKED
    duplicate[rows] &= stream.is_same_page(rows, rows - 1)
    return duplicate


HIGHATOMIC = 3
LARGEST_REFILLED_ORDER = 3


@dataclass(frozen=True, kw_only=True)
class RunRules:
    """The kernel's rules that the inference rests on.

    Attributes:
        pageblock_order: the one order above 3 that per-CPU lists hold (S1.9).
        every_removal_announced: before 6.12, zone_locked fires after a fallback too (T4).
        free_batched: overflow drains hold the lock for one batch at a time (S4.7).
        decay_batched: so do periodic drains (S4.8).
        pcp_auto_tuned: refills grow, those of a list whose batch is 1 too (S4.4).
    """

    pageblock_order: int = 9
    every_removal_announced: bool = False
    free_batched: bool = False
    decay_batched: bool = True
    pcp_auto_tuned: bool = True


def inferred_transactions(
    stream: Stream, zones: ZoneMap, comms: Mapping[int, str], rules: RunRules
) -> Transactions:
    """Refills, drains, direct allocations and frees from runs of events.

    A refill is a run of removals of one order, list and zone by one task on one CPU, ended by any
    other event of that CPU or the largest size the rules allow. A run of one, followed by the
    allocation of that very page, is a direct buddy allocation, except at pageblock order. A drain
    is a run of pcpu_drain events of one task and zone, cut into batches where the kernel drops the
    lock between them. Direct frees are seen only for orders that no per-CPU list holds. Where the
    kernel announces each object that a refill brings, refills are runs of those.

    Pauses do not end a run: cutting at them splits far more holds than it separates.
    """
    if rules.every_removal_announced:
        stream = stream.take(stream.kind != Event.EXTFRAG)
    twice = partial_claim_duplicates(stream)
    if len(stream.rows_of(Probe.REFILLED)):
        stream = stream.take(~twice)
        stream = stream.take(~refilled_removals(stream))
        twice = np.zeros(len(stream), bool)
    # orders that per-CPU lists hold (S1.9)
    listed = (stream.order <= LARGEST_REFILLED_ORDER) | (stream.order == rules.pageblock_order)
    freed = np.flatnonzero(stream.is_kind(Event.FREE) & ~listed)
    removed = np.flatnonzero(stream.is_kind(Event.ZONE_LOCKED, Event.EXTFRAG) & ~twice)
    announced = stream.rows_of(Probe.REFILLED)
    refillable = listed[removed] & (stream.migratetype[removed] != HIGHATOMIC)
    refillable &= len(announced) == 0
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
    # most objects that one refill can bring (S4.4)
    wide = order.astype(np.int64)
    limit = np.where(wide == 0, batch << PCP_BATCH_SCALE_MAX, np.maximum(batch >> wide, 2))
    limit = np.where((batch > 1) | ((wide == 0) & rules.pcp_auto_tuned), limit, 1)
    run = _cut(np.cumsum(starts) - 1, np.ones(len(members), np.int64), limit)
    begins, objects = run_shape(np.arange(len(members)), run)
    first, last = members[begins], len(stream) - 1
    following = np.minimum(first + 1, last)
    following = np.minimum(following + twice[following], last)
    is_direct = (stream.kind[following] == Event.ALLOC) & stream.is_same_page(following, first)
    is_direct &= (stream.order[following] == stream.order[first]) & (objects == 1)
    is_direct &= (order[begins] != rules.pageblock_order) & (batch[begins] > 1)
    is_direct &= stream.kind[first] != Probe.REFILLED
    refills, refilled = first[~is_direct], {"objects": objects[~is_direct]}
    direct = np.sort(np.concatenate([first[is_direct], removed[~refillable]]))
    singles = (
        transactions_at(stream, rows, zones.codes(stream.pfn[rows]), site)
        for site, rows in (("buddy_alloc", direct), ("direct_free", freed))
    )
    return in_time_order(
        transactions_at(stream, refills, zone[begins][~is_direct], "refill", **refilled),
        _inferred_drains(stream, zones, comms, rules),
        *singles,
    )


def refilled_removals(stream: Stream) -> np.ndarray:
    """Return the mask of removals that a refill's own event follows at once, for the same page."""
    refilled = stream.is_kind(Event.ZONE_LOCKED, Event.EXTFRAG)
    refilled[-1:] = False
    refilled[:-1] &= stream.kind[1:] == Probe.REFILLED
    refilled[:-1] &= stream.is_same_page(slice(1, None), slice(-1))
    return refilled


def run_starts(
    stream: Stream, members: np.ndarray, zone: np.ndarray, twice: np.ndarray | None = None
) -> np.ndarray:
    """Return which members begin a run: consecutive rows of one CPU, task and zone."""
    starts = np.ones(len(members), bool)
    before = members[1:] - 1
    if twice is not None:
        before -= twice[before]
    starts[1:] = before != members[:-1]
    for column in (stream.cpu[members], stream.pid[members], zone):
        starts[1:] |= column[1:] != column[:-1]
    return starts


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


def _inferred_drains(
    stream: Stream, zones: ZoneMap, comms: Mapping[int, str], rules: RunRules
) -> Transactions:
    members = stream.rows_of(Event.PCPU_DRAIN)
    zone = zones.codes(stream.pfn[members])
    run = np.cumsum(run_starts(stream, members, zone)) - 1
    whole, sizes = run_shape(members, run)
    causes = drain_causes(stream, whole, comms)
    # a CPU drains pages that another one freed or refilled last only when all lists are (S4.9, T11)
    rows = stream.rows_of(Event.FREE, Event.ZONE_LOCKED, Probe.REFILLED, Event.PCPU_DRAIN)
    rows = rows[np.isin(stream.pfn[rows], stream.pfn[members])]
    rows = rows[np.argsort(stream.time_ns[rows], kind="stable")]
    # sorted by page, then time, in one word
    bits = len(rows).bit_length()
    together = np.sort((stream.pfn[rows] << bits) + np.arange(len(rows)))
    rows = rows[together & ((1 << bits) - 1)]
    before, after = rows[:-1], rows[1:]
    is_drain, elsewhere = stream.is_kind(Event.PCPU_DRAIN), np.zeros(len(stream), bool)
    elsewhere[after] = is_drain[after] & ~is_drain[before]
    elsewhere[after] &= stream.pfn[after] == stream.pfn[before]
    elsewhere[after] &= stream.cpu[after] != stream.cpu[before]
    remote = np.bincount(run, weights=elsewhere[members], minlength=len(whole))
    causes[remote > sizes / 2] = CAUSES.index("drain_all")
    pages = np.int64(1) << stream.order[members].astype(np.int64)
    # a drain that is a single hold has no limit (S4.7, S4.8)
    chunked = (causes[run] == CAUSES.index("commit")) & rules.free_batched
    chunked |= (causes[run] == CAUSES.index("decay")) & rules.decay_batched
    batch = np.maximum(zones.batches()[zone], 1)
    parts = _cut(run, pages, np.where(chunked, batch, np.iinfo(np.int64).max))
    begins, objects = run_shape(np.arange(len(members)), parts)
    moved = np.bincount(parts, weights=pages, minlength=len(begins))
    drained = {"objects": objects, "pages": moved, "cause": causes[run[begins]]}
    return transactions_at(stream, members[begins], zone[begins], "drain", **drained, **MIXED)
