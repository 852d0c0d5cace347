"""Costs of work on a recording's machine, as its events show: holds of zone->lock and reclaim."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from pagealloc_model.measured.cpu_spans import CpuSpans, Running
from pagealloc_model.measured.stream import Stream, allocator_stream, begun_and_ended
from pagealloc_model.policy.lock_costs import Cost, LockCosts
from pagealloc_model.recording.lock_profile import LockProfile
from pagealloc_model.recording.snapshot import Snapshot
from pagealloc_model.recording.trace import tracepoints as tp
from pagealloc_model.recording.trace.columns import Event, Trace
from pagealloc_model.recording.trace.formats import stable_gfp_bits

if TYPE_CHECKING:
    from pagealloc_model.recording.recording import Recording


FEWEST_STEPS = 2000
"""Steps from one event to the next below which nothing is fitted."""
FEWEST_SAMPLES = 30
"""Samples of a profile at a site below which it tells nothing of the site's costs."""
STEPS_USED = 200_000
RESAMPLES = 60
LARGEST_RULER = 6
_FEWEST_OF_A_LENGTH = 50
_QUARTILE = 25
_INTERVAL = (2.5, 97.5)


def recorded_costs(recording: Recording, *, with_intervals: bool = True) -> LockCosts:
    """Costs of a recording, with its profile where it has one, as `fit_lock_costs` takes them."""
    return fit_lock_costs(
        recording.trace, recording.name, recording.lock_profile, with_intervals=with_intervals
    )


def fit_lock_costs(
    trace: Trace, name: str, profile: LockProfile | None = None, *, with_intervals: bool = True
) -> LockCosts:
    """Costs as far as a recording shows them; the others stay assumed.

    Fitted are `object` and `split` (refills), `merge` and `insert` (drains) and `event`, what the
    tracing adds. `acquire`, `scan` and `handoff` leave no pair of events to measure.
    """
    stream = allocator_stream(trace, with_probes=False)
    kinds = (Event.ZONE_LOCKED, Event.PCPU_DRAIN, Event.FREE_BATCHED)
    steps = [_steps(stream, event) for event in kinds]
    if min(table.shape[1] for table in steps) < FEWEST_STEPS:
        return LockCosts()
    rng = np.random.default_rng(0)
    drawn = [_estimates(*steps)]
    for _ in range(RESAMPLES if with_intervals else 0):
        counts = [(step, min(step.shape[1], STEPS_USED // 8)) for step in steps]
        drawn.append(
            _estimates(*(step[:, rng.integers(0, step.shape[1], count)] for step, count in counts))
        )
    table = np.array(drawn)
    low, high = np.percentile(table[1:] if with_intervals else table, _INTERVAL, axis=0).tolist()
    origin = f"fitted from {name}"
    names = ("object", "split", "merge", "insert", "event")
    fitted = {
        part: Cost(ns=ns, low_ns=low_ns, high_ns=high_ns, origin=origin)
        for part, ns, low_ns, high_ns in zip(names, drawn[0], low, high, strict=True)
    }
    costs = replace(LockCosts(), **fitted)
    return costs if profile is None else _apportioned(costs, trace, profile, name, *steps[:2])


def _apportioned(
    costs: LockCosts,
    trace: Trace,
    profile: LockProfile,
    name: str,
    taken: np.ndarray,
    freed: np.ndarray,
) -> LockCosts:
    """Costs that add up to the time the profile has under the lock, site by site.

    What an object costs less, its event costs more.
    """
    splits, merges = (
        float(units[ruled != 0].mean()) if ruled.any() else 0.0
        for _, units, ruled in (taken, freed)
    )
    refilled = int((trace.percpu_refill[trace.event == Event.ZONE_LOCKED] == 1).sum())
    drained = int((trace.event == Event.PCPU_DRAIN).sum())
    first, last = trace.demand_span_ns
    length = 1.0 if profile.repeats_command else profile.seconds * 1e9 / max(last - first, 1)

    def remainder(site: str, objects: int, others_ns: float, fitted: Cost) -> Cost:
        """Time per object at a site less what else it costs; its error is the samples'."""
        samples = profile.samples.get(site, 0)
        if samples < FEWEST_SAMPLES or not objects:
            return fitted
        per_object = profile.held_ns(site) / (objects * length)
        error = 1.96 / samples**0.5
        value, low, high = (
            max(per_object * factor - others_ns, 0.0) for factor in (1.0, 1 - error, 1 + error)
        )
        origin = f"apportioned from the profile of {name}"
        return Cost(ns=value, low_ns=low, high_ns=high, origin=origin)

    object_cost = remainder("refill", refilled, splits * costs.split.ns, costs.object)
    others_ns = object_cost.ns + merges * costs.merge.ns
    insert = remainder("drain", drained, others_ns, costs.insert)
    event_ns = max(costs.event.ns + costs.object.ns - object_cost.ns, 0.0)
    shift = event_ns - costs.event.ns
    event = replace(
        costs.event,
        ns=event_ns,
        low_ns=max(costs.event.low_ns + shift, 0.0),
        high_ns=max(costs.event.high_ns + shift, 0.0),
    )
    return replace(costs, object=object_cost, insert=insert, event=event)


def _steps(stream: Stream, event: Event) -> np.ndarray:
    """Steps between events of one kind in a row, of one task on one CPU; the first `STEPS_USED`.

    Units are known where pages follow each other as splitting or merging prescribes: the page after
    its neighbour was split off as often as its number is even (S5.2), and freeing it merges as
    often as the numbers before it were odd (S5.3).

    Returns:
        int64 of three rows: length in ns, units of work, and 1 where these are known.
    """
    is_kind = stream.is_kind(event)
    follows = is_kind[1:] & is_kind[:-1]
    follows &= (stream.cpu[1:] == stream.cpu[:-1]) & (stream.pid[1:] == stream.pid[:-1])
    after = (np.flatnonzero(follows) + 1)[:STEPS_USED]
    page, before = stream.pfn[after], stream.pfn[after - 1]
    is_ruled = (stream.order[after] == 0) & (stream.order[after - 1] == 0)
    is_ruled &= np.abs(page - before) == 1
    rising = page > before
    if event == Event.ZONE_LOCKED:
        is_ruled &= rising
    else:
        page = page + rising
    powers = 1 << np.arange(1, LARGEST_RULER + 1)
    units = sum((page % power == 0 for power in powers.tolist()), np.zeros(len(page), np.int64))
    return np.stack([stream.time_ns[after] - stream.time_ns[after - 1], units, is_ruled])


def _estimates(taken: np.ndarray, freed: np.ndarray, batched: np.ndarray) -> tuple[float, ...]:
    """Object, split, merge, insert and event, in ns, none below 0."""
    bare, quick, slow = (
        float(np.percentile(steps[0], _QUARTILE)) for steps in (batched, taken, freed)
    )
    object_ns = max(quick - bare, 0.0)
    traced = float(np.mean(np.minimum(taken[0], np.percentile(taken[0], 99.9))))
    insert, event = max(slow - bare - object_ns, 0.0), max(traced - object_ns, 0.0)
    return object_ns, _slope(taken), _slope(freed), insert, event


def _slope(steps: np.ndarray) -> float:
    """Ns per unit: a line through the lower quartiles of steps with 0, 1, 2, ... units."""
    length, units, is_ruled = steps
    points = []
    for count in range(LARGEST_RULER + 1):
        lengths = length[(is_ruled != 0) & (units == count)]
        if len(lengths) >= _FEWEST_OF_A_LENGTH:
            points.append((count, np.percentile(lengths, _QUARTILE), np.sqrt(len(lengths))))
    if len(points) < 2:
        return LockCosts().split.ns
    counts, heights, weights = zip(*points, strict=True)
    return max(float(np.polyfit(counts, heights, 1, w=weights)[0]), 0.0)


def recorded_elastic_costs(trace: Trace, start: Snapshot | None = None) -> dict[str, int | None]:
    """Costs of reclaim and compaction in a recording, by field of `ElasticAssumptions`.

    None, or no entry, where it shows none. Without a recorded run of kswapd, its cost is that of
    direct reclaim. Without recorded clusters of reclaim, `start`, the snapshot that a replay begins
    with, has the share of files' pages that reclaim scanned and did not free before; its
    `pgmigrate_fail` counts attempts, so it does not say what cannot be moved (S9.9).
    """
    known = {
        "kswapd_free_ns": recorded_reclaim_ns(trace),
        **recorded_kswapd_ns(trace),
        **_compaction(trace),
        "base_pages_per_huge": recorded_base_pages(trace),
    }
    if start is not None and start.vmstat is not None:
        scanned, stolen = (start.vmstat.get(name) or 0 for name in ("pgscan_file", "pgsteal_file"))
        if scanned:
            share = round(1000 * (scanned - stolen) / scanned)
            known["file_referenced_per_mille"] = min(max(share, 0), 1000)
            known["file_dirty_per_mille"] = 0
    return known | recorded_use(trace)


_IN_USE = ("nr_activate0", "nr_activate1", "nr_ref_keep")
"""What a cluster kept because it was in use: activated, anonymous and of files; kept once more."""
_FILE_CLUSTER = 2
"""Bit of `reclaim_flags`: RECLAIM_WB_FILE, without it RECLAIM_WB_ANON (vmscan.h, 6.12)."""


def recorded_use(trace: Trace) -> dict[str, int]:
    """Shares of scanned pages that recorded reclaim found in use, by `ElasticAssumptions`' fields.

    They are of the clusters of `shrink_inactive_list()`; a kind of which none was scanned has none.
    """
    shrunk = trace.tables.get(tp.LRU_SHRINK_INACTIVE, {})
    if not {*_IN_USE, "nr_scanned", "reclaim_flags"} <= shrunk.keys():
        return {}
    known = {}
    used = sum(shrunk[name].astype(np.int64) for name in _IN_USE)
    is_file = shrunk["reclaim_flags"].astype(np.int64) & _FILE_CLUSTER != 0
    for kind, own in (("file", is_file), ("anon", ~is_file)):
        if scanned := int(shrunk["nr_scanned"][own].astype(np.int64).sum()):
            known[f"{kind}_referenced_per_mille"] = round(1000 * int(used[own].sum()) / scanned)
            if kind == "file":
                known["file_dirty_per_mille"] = 0
    return known


def recorded_reclaim_ns(trace: Trace) -> int | None:
    """Median time of a recorded direct reclaim per page that it freed, ns; None without any."""
    pairs = begun_and_ended(trace, *tp.DIRECT_RECLAIM)
    if pairs is None:
        return None
    _, after, lasted = pairs
    freed = np.asarray(trace.tables[tp.DIRECT_RECLAIM_END]["nr_reclaimed"], np.int64)[after]
    return _median_per_page(lasted, freed)


def _median_per_page(lasted: np.ndarray, pages: np.ndarray) -> int | None:
    some = pages > 0
    return int(np.median(lasted[some] / pages[some])) if some.any() else None


def _compaction(trace: Trace) -> dict[str, int | None]:
    """Compaction's costs as its recorded runs show them, by field of `ElasticAssumptions`.

    `compact_migrate_ns` is the median time of a run per page that it moved, with the scans for
    these pages. `compaction_contended_per_mille` is the rate at which asynchronous runs met others
    at a lock: of the blocks that they isolated pages of, those after which a run gave way.
    """
    pairs = begun_and_ended(trace, *tp.COMPACTION)
    if pairs is None:
        return {}
    costs: dict[str, int | None] = {}
    begins, ends = (trace.tables[name] for name in tp.COMPACTION)
    before, after, lasted = pairs
    if tp.MIGRATEPAGES in trace.tables:
        costs["compact_migrate_ns"] = recorded_migrate_ns(trace)
    isolated = trace.tables.get(tp.ISOLATE_MIGRATEPAGES)
    if isolated is not None:
        asynchronous = begins["sync"][before] == 0
        run = _run_of_rows(begins, before[asynchronous], lasted[asynchronous], isolated)
        taken = (run >= 0) & (isolated["nr_taken"] > 0)
        block = isolated["start_pfn"].astype(np.int64) // _BLOCK_PAGES
        blocks = len(np.unique(np.stack([run[taken], block[taken]]), axis=1).T)
        gave_way = int((ends["status"][after[asynchronous]] == _CONTENDED).sum())
        rate = min(round(1000 * gave_way / blocks), 1000) if blocks else None
        costs["compaction_contended_per_mille"] = rate
    return costs


def recorded_migrate_ns(trace: Trace, running: Running | None = None) -> int | None:
    """Median time of a recorded compaction per page that it moved, with its scans, ns.

    With `running` it is the time for which the task was on a CPU meanwhile. None where the
    recording shows no run or no moves.
    """
    pairs, moves = begun_and_ended(trace, *tp.COMPACTION), trace.tables.get(tp.MIGRATEPAGES)
    if pairs is None or moves is None:
        return None
    begins, (before, _, lasted) = trace.tables[tp.COMPACTION_BEGIN], pairs
    run = _run_of_rows(begins, before, lasted, moves)
    moved = np.zeros(len(before), np.int64)
    np.add.at(moved, run[run >= 0], np.asarray(moves["nr_migrated"], np.int64)[run >= 0])
    if running is not None:
        pid, begun_ns = begins["pid"][before], np.asarray(begins["time_ns"])[before]
        for task in np.unique(pid).tolist():
            rows, spans = np.flatnonzero(pid == task), CpuSpans.of(running, task)
            if spans is not None:
                ends = spans.ran_until(begun_ns[rows] + lasted[rows])
                lasted[rows] = ends - spans.ran_until(begun_ns[rows])
    return _median_per_page(lasted, moved)


def _run_of_rows(
    begins: Mapping[str, np.ndarray],
    runs: np.ndarray,
    lasted: np.ndarray,
    table: Mapping[str, np.ndarray],
) -> np.ndarray:
    """Number of the run of its task that each row of a table lies in, -1 outside all."""
    number = np.full(len(table["pid"]), -1)
    pid, begun_ns = begins["pid"][runs], begins["time_ns"][runs]
    for task in np.unique(pid):
        of_task, rows = np.flatnonzero(pid == task), np.flatnonzero(table["pid"] == task)
        times = table["time_ns"][rows]
        run = of_task[np.searchsorted(begun_ns[of_task], times, side="right") - 1]
        inside = (begun_ns[run] <= times) & (times <= begun_ns[run] + lasted[run])
        number[rows[inside]] = run[inside]
    return number


def recorded_base_pages(trace: Trace) -> int | None:
    """Median base pages that tasks asked for behind a refused huge page; None if none was refused.

    They are a task's movable requests of order 0 until it asks for the next huge page, without the
    page cache's. khugepaged has its pages already.
    """
    requests = np.flatnonzero((trace.event == Event.ALLOC) & (trace.gfp & _MOVABLE != 0))
    order, gfp, pid = trace.order[requests], trace.gfp[requests], trace.pid[requests]
    is_huge = (order == _HUGE_ORDER) & (gfp & _NOMEMALLOC != 0)
    collapsing = [pid for pid, name in trace.comms.items() if name == "khugepaged"]
    refused = is_huge & (trace.pfn[requests] < 0) & ~np.isin(pid, collapsing)
    is_cache = (gfp & (_NORETRY | _WRITE) != 0) | (gfp & _FS == 0)
    is_base = (order == 0) & ~is_cache
    rows = np.flatnonzero((is_huge | is_base) & np.isin(pid, pid[refused]))
    rows = rows[np.lexsort((rows, pid[rows]))]
    heads = np.flatnonzero(is_huge[rows])
    of_task = np.searchsorted(pid[rows], pid[rows][heads], side="right")
    touched = np.minimum(np.append(heads[1:], len(rows)), of_task) - heads - 1
    touched = touched[refused[rows[heads]]]
    touched = touched[touched > 0]
    return min(int(np.median(touched)), _BLOCK_PAGES) if len(touched) else None


_HUGE_ORDER = 9
_MOVABLE, _FS, _WRITE, _NORETRY, _NOMEMALLOC = (
    np.uint32(stable_gfp_bits(None)[f"__GFP_{name}"])
    for name in ("MOVABLE", "FS", "WRITE", "NORETRY", "NOMEMALLOC")
)
_BLOCK_PAGES = 512
"""Of a huge page's block; where blocks are larger, some count twice."""
_CONTENDED = 7
"""Status of a run that gave way."""


def recorded_kswapd_ns(trace: Trace) -> dict[str, int]:
    """Times that kswapd's recorded runs took, by field of `ElasticAssumptions`, ns.

    `kswapd_free_ns` is the time of all runs, each from its wake to its last pages, by the pages
    that they freed; `kswapd_wake_ns` the median time from the first wake that a run answers to it.
    """
    runs, shrunk, wakes = (
        trace.tables.get(name)
        for name in (tp.KSWAPD_WAKE, tp.LRU_SHRINK_INACTIVE, tp.WAKEUP_KSWAPD)
    )
    costs = {}
    if runs is None:
        return costs
    if shrunk is not None:
        lasted = freed = 0
        for pid in np.unique(runs["pid"]):
            begins = runs["time_ns"][runs["pid"] == pid]
            rows = np.flatnonzero(shrunk["pid"] == pid)
            run = np.searchsorted(begins, shrunk["time_ns"][rows], "right") - 1
            rows, run = rows[run >= 0], run[run >= 0]
            last = np.zeros(len(begins), np.int64)
            np.maximum.at(last, run, shrunk["time_ns"][rows])
            lasted += int((last - begins)[last > 0].sum())
            freed += int(shrunk["nr_reclaimed"][rows].astype(np.int64).sum())
        if freed:
            costs["kswapd_free_ns"] = lasted // freed
    if wakes is not None:
        waits = [np.zeros(0, np.int64)]
        for node in np.unique(runs["nid"]):
            begins = runs["time_ns"][runs["nid"] == node]
            woken = wakes["time_ns"][wakes["nid"] == node]
            following = np.searchsorted(begins, woken)
            answered = (np.diff(following, prepend=-1) > 0) & (following < len(begins))
            waits.append(begins[following[answered]] - woken[answered])
        if len(waits_ns := np.concatenate(waits)):
            costs["kswapd_wake_ns"] = int(np.median(waits_ns))
    return costs
