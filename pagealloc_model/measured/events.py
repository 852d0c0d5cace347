"""Tables read off the recorded events: fallbacks, outcomes, transactions and lock traffic."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from pagealloc_model.base.working_arrays import parts
from pagealloc_model.measured.transactions import CAUSES, SITES, UNKNOWN_ORDER, Transactions
from pagealloc_model.recording.trace.columns import Event, Trace
from pagealloc_model.recording.trace.formats import stable_gfp_bits
from pagealloc_model.recording.zone_map import ZoneMap

FALLBACK_KINDS = ("claim_block", "claim", "steal")
_EXTFRAG = "kmem:mm_page_alloc_extfrag"
DIRECT_RECLAIM = "vmscan:mm_vmscan_direct_reclaim_begin"


def fallbacks_table(
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

    Args:
        trace: the events.
        pmd_order: order of a huge page.
        reclaim_recorded: whether direct reclaim would show in the trace; if not, `stalled` is NA.
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
        asked &= may_direct_reclaim(trace.gfp[part], trace.gfp_bits)
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


def transactions_full_table(
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


def transactions_table(full: pd.DataFrame) -> pd.DataFrame:
    """Histogram of transaction sizes by zone, CPU, site and cause."""
    keys = ["node", "zone", "cpu", "site", "cause", "objects"]
    return full.groupby(keys, dropna=False).size().reset_index(name="transactions")


def lock_table(
    full: pd.DataFrame, holds: pd.DataFrame, *, start_ns: int, bin_ns: int
) -> pd.DataFrame:
    """Lock holds, objects and pages by bin of time, zone and site.

    Args:
        full: one row for each acquisition.
        holds: time_ns, node, zone, site, hold_ns and wait_ns of those that the kernel announced
            (T8); of all others, times are NA.
        start_ns: start of the first bin.
        bin_ns: width of the bins.
    """
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

    Args:
        gfp: uint32 gfp words.
        order: requested orders.
        bits: the recording's flag names; names it lacks have their stable bit (S2.3).
        pmd_order: order of a huge page.

    Returns:
        int8, one index per request.
    """

    def has(name: str) -> np.ndarray:
        return _has(gfp, name, bits)

    waits, movable = may_direct_reclaim(gfp, bits), has("__GFP_MOVABLE")
    conditions = [
        movable & has("__GFP_COMP") & has("__GFP_NOMEMALLOC") & (order == pmd_order),
        has("__GFP_HIGH") & ~waits,
        ~waits,
        movable,
        has("__GFP_RECLAIMABLE"),
    ]
    kernel = len(conditions)
    return np.select(conditions, list(range(kernel)), kernel).astype(np.int8)


def may_direct_reclaim(gfp: np.ndarray, bits: Mapping[str, int]) -> np.ndarray:
    """Mask of the gfp words that allow direct reclaim."""
    return _has(gfp, "__GFP_DIRECT_RECLAIM", bits)


def _has(gfp: np.ndarray, name: str, bits: Mapping[str, int]) -> np.ndarray:
    mask = bits[name] if name in bits else stable_gfp_bits(None)[name]
    return (gfp & np.uint32(mask)) != 0
