"""Costs of work on a recording's machine, as its events show: holds of zone->lock and reclaim."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from pagealloc_model.allocator.choices import true_state as rec
from pagealloc_model.measured.stream import Stream, allocator_stream, begun_and_ended
from pagealloc_model.policy.assumptions import Assumptions, ElasticAssumptions
from pagealloc_model.policy.lock_costs import Cost, LockCosts
from pagealloc_model.recording.lock_profile import LockProfile
from pagealloc_model.recording.snapshot import Snapshot
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


@dataclass(frozen=True, kw_only=True, eq=False)
class _Steps:
    """Steps between consecutive events of one task on one CPU: length and units of work."""

    length_ns: np.ndarray
    units: np.ndarray
    is_ruled: np.ndarray


def recorded_costs(recording: Recording, *, with_intervals: bool = True) -> LockCosts:
    """Costs of a recording, with its profile where it has one.

    Args:
        recording: the recording.
        with_intervals: as `fit_lock_costs` takes it.
    """
    return fit_lock_costs(
        recording.trace, recording.name, recording.lock_profile, with_intervals=with_intervals
    )


def fit_lock_costs(
    trace: Trace,
    name: str,
    profile: LockProfile | None = None,
    *,
    with_intervals: bool = True,
) -> LockCosts:
    """Costs as far as a recording shows them; the others stay assumed.

    Fitted are `object` and `split` (refills), `merge` and `insert` (drains) and `event`, what the
    tracing adds. `acquire`, `scan` and `handoff` leave no pair of events to measure.
    """
    stream = allocator_stream(trace, with_probes=False)
    taken, freed, batched = (
        _steps(stream, event) for event in (Event.ZONE_LOCKED, Event.PCPU_DRAIN, Event.FREE_BATCHED)
    )
    if min(len(each.length_ns) for each in (taken, freed, batched)) < FEWEST_STEPS:
        return LockCosts()
    rng = np.random.default_rng(0)
    drawn = [_estimates(taken, freed, batched)]
    for _ in range(RESAMPLES if with_intervals else 0):
        drawn.append(_estimates(*(_resampled(each, rng) for each in (taken, freed, batched))))
    names = ("object", "split", "merge", "insert", "event")
    table = np.array(drawn)
    low, high = np.percentile(table[1:] if with_intervals else table, _INTERVAL, axis=0)
    origin = f"fitted from {name}"
    fitted = {
        each: Cost(
            ns=float(table[0, column]),
            low_ns=float(low[column]),
            high_ns=float(high[column]),
            origin=origin,
        )
        for column, each in enumerate(names)
    }
    costs = replace(LockCosts(), **fitted)
    if profile is None:
        return costs
    return _apportioned(costs, trace, profile, name, _mean_units(taken), _mean_units(freed))


def _mean_units(steps: _Steps) -> float:
    return float(steps.units[steps.is_ruled].mean()) if steps.is_ruled.any() else 0.0


def _apportioned(
    costs: LockCosts, trace: Trace, profile: LockProfile, name: str, splits: float, merges: float
) -> LockCosts:
    """Costs that add up to the time the profile has under the lock, site by site.

    What is traced lasts as long as before: what an object costs less, its event costs more.
    """
    refilled = int((trace.percpu_refill[trace.event == Event.ZONE_LOCKED] == 1).sum())
    drained = int((trace.event == Event.PCPU_DRAIN).sum())
    first, last = trace.demand_span_ns
    length = 1.0 if profile.repeats_command else profile.seconds * 1e9 / max(last - first, 1)
    object_cost, insert = costs.object, costs.insert
    if profile.samples.get("refill", 0) >= FEWEST_SAMPLES and refilled:
        others = splits * costs.split.ns
        object_cost = _remainder(profile, "refill", refilled * length, others, name)
    if profile.samples.get("drain", 0) >= FEWEST_SAMPLES and drained:
        others = object_cost.ns + merges * costs.merge.ns
        insert = _remainder(profile, "drain", drained * length, others, name)
    event_ns = max(costs.event.ns + costs.object.ns - object_cost.ns, 0.0)
    shift = event_ns - costs.event.ns
    event = replace(
        costs.event,
        ns=event_ns,
        low_ns=max(costs.event.low_ns + shift, 0.0),
        high_ns=max(costs.event.high_ns + shift, 0.0),
    )
    return replace(costs, object=object_cost, insert=insert, event=event)


def _remainder(
    profile: LockProfile, site: str, objects: float, others_ns: float, name: str
) -> Cost:
    """Time per object at a site less what else it costs; samples are counted, hence their error."""
    per_object = profile.held_ns(site) / objects
    error = 1.96 / profile.samples[site] ** 0.5
    value, low, high = (
        max(per_object * factor - others_ns, 0.0) for factor in (1.0, 1 - error, 1 + error)
    )
    origin = f"apportioned from the profile of {name}"
    return Cost(ns=value, low_ns=low, high_ns=high, origin=origin)


def _steps(stream: Stream, event: Event) -> _Steps:
    """Steps between events of one kind in a row; the first `STEPS_USED`.

    Units are known where pages follow each other in the way that splitting or merging prescribes:
    the page after its neighbour was split off as often as its number is even (S5.2), and freeing it
    merges as often as the numbers before it were odd (S5.3).
    """
    is_kind = stream.is_kind(event)
    follows = is_kind[1:] & is_kind[:-1]
    follows &= (stream.cpu[1:] == stream.cpu[:-1]) & (stream.pid[1:] == stream.pid[:-1])
    after = (np.flatnonzero(follows) + 1)[:STEPS_USED]
    time_ns, pfn, page_order = stream.time_ns, stream.pfn, stream.order
    single = (page_order[after] == 0) & (page_order[after - 1] == 0)
    neighbour = single & (np.abs(pfn[after] - pfn[after - 1]) == 1)
    rising = pfn[after] > pfn[after - 1]
    if event == Event.ZONE_LOCKED:
        units, is_ruled = _times_even(pfn[after]), neighbour & rising
    else:
        units = np.where(rising, _times_even(pfn[after] + 1), _times_even(pfn[after]))
        is_ruled = neighbour
    return _Steps(length_ns=time_ns[after] - time_ns[after - 1], units=units, is_ruled=is_ruled)


def _times_even(number: np.ndarray) -> np.ndarray:
    """How often each number can be halved, up to `LARGEST_RULER`."""
    times = np.zeros(len(number), np.int64)
    for power in range(1, LARGEST_RULER + 1):
        times += number % (1 << power) == 0
    return times


def _resampled(steps: _Steps, rng: np.random.Generator) -> _Steps:
    rows = rng.integers(0, len(steps.length_ns), min(len(steps.length_ns), STEPS_USED // 8))
    return _Steps(
        length_ns=steps.length_ns[rows], units=steps.units[rows], is_ruled=steps.is_ruled[rows]
    )


def _estimates(taken: _Steps, freed: _Steps, batched: _Steps) -> tuple[float, ...]:
    """Object, split, merge, insert and event, in ns, none below 0."""
    bare = float(np.percentile(batched.length_ns, _QUARTILE))
    split = _slope(taken)
    merge = _slope(freed)
    object_ns = max(float(np.percentile(taken.length_ns, _QUARTILE)) - bare, 0.0)
    insert = float(np.percentile(freed.length_ns, _QUARTILE)) - bare - object_ns
    traced = float(np.mean(np.minimum(taken.length_ns, np.percentile(taken.length_ns, 99.9))))
    return object_ns, split, merge, max(insert, 0.0), max(traced - object_ns, 0.0)


def _slope(steps: _Steps) -> float:
    """Ns per unit: a line through the lower quartiles of steps with 0, 1, 2, ... units."""
    units, heights, weights = [], [], []
    for count in range(LARGEST_RULER + 1):
        lengths = steps.length_ns[steps.is_ruled & (steps.units == count)]
        if len(lengths) >= _FEWEST_OF_A_LENGTH:
            units.append(count)
            heights.append(np.percentile(lengths, _QUARTILE))
            weights.append(np.sqrt(len(lengths)))
    if len(units) < 2:
        return LockCosts().split.ns
    return max(float(np.polyfit(units, heights, 1, w=weights)[0]), 0.0)


def at_recorded_cost(trace: Trace, start: Snapshot | None = None) -> Assumptions:
    """Elastic reclaim; freeing and moving a page take as long as in the recording, if it shows any.

    Direct reclaim and kswapd have a cost each: kswapd shares CPUs with all that runs meanwhile.
    Where no run of kswapd was recorded, its cost is that of direct reclaim.

    Args:
        trace: the recording's events.
        start: the snapshot that a replay begins with: what reclaim and compaction find is then as
            in the time before it, see `shares_before`.
    """
    cost = recorded_reclaim_ns(trace)
    known = shares_before(start) if start is not None else {}
    if cost is not None:
        known |= {"reclaim_free_ns": cost, "kswapd_free_ns": cost}
    known |= recorded_kswapd_ns(trace)
    moving = recorded_migrate_ns(trace)
    if moving is not None:
        known["compact_migrate_ns"] = moving
    contended = recorded_contention_per_mille(trace)
    if contended is not None:
        known["compaction_contended_per_mille"] = contended
    touched = recorded_base_pages(trace)
    if touched is not None:
        known["base_pages_per_huge"] = touched
    return Assumptions(reclaim="elastic", elastic=ElasticAssumptions(**known))


def shares_before(start: Snapshot) -> dict[str, int]:
    """Shares of pages that reclaim scanned and did not free before a time.

    What compaction did not move is not among them: `pgmigrate_fail` counts attempts, several at
    the same folio, and the model wants to know how many folios cannot be moved (S9.9).
    """
    if start.vmstat is None:
        return {}
    scanned, stolen = (start.vmstat.get(name) or 0 for name in ("pgscan_file", "pgsteal_file"))
    shares = {}
    if scanned:
        kept = round(1000 * (scanned - stolen) / scanned)
        shares |= {"file_referenced_per_mille": min(max(kept, 0), 1000), "file_dirty_per_mille": 0}
    return shares


def recorded_reclaim_ns(trace: Trace) -> int | None:
    """Median time of a recorded direct reclaim per page that it freed, ns; None without any.

    It includes what interrupts and other tasks took of the CPU meanwhile, and the recording itself.

    Args:
        trace: the recording's events.
    """
    pairs = begun_and_ended(trace, *_RECLAIM)
    if pairs is None:
        return None
    _, after, lasted = pairs
    freed = np.asarray(trace.tables[_RECLAIM[1]]["nr_reclaimed"], np.int64)[after]
    lasted, freed = lasted[freed > 0], freed[freed > 0]
    return int(np.median(lasted / freed)) if len(lasted) else None


def recorded_migrate_ns(trace: Trace) -> int | None:
    """Median time of a recorded run of compaction per page that it moved, ns; None without any.

    It includes the scans for these pages and what else the CPU did meanwhile, as that of reclaim.
    """
    pairs = begun_and_ended(trace, *_COMPACTION)
    moves = trace.tables.get("compaction:mm_compaction_migratepages")
    if pairs is None or moves is None:
        return None
    before, _, lasted = pairs
    moved = np.zeros(len(before), np.int64)
    run = _run_of_rows(trace.tables[_COMPACTION[0]], before, lasted, moves)
    np.add.at(moved, run[run >= 0], np.asarray(moves["nr_migrated"], np.int64)[run >= 0])
    return int(np.median(lasted[moved > 0] / moved[moved > 0])) if (moved > 0).any() else None


def _run_of_rows(
    begins: Mapping[str, np.ndarray],
    runs: np.ndarray,
    lasted: np.ndarray,
    table: Mapping[str, np.ndarray],
) -> np.ndarray:
    """Number of the run of its task that each row of a table lies in, -1 outside all.

    Args:
        begins: table of the events that begin runs.
        runs: its row for each run.
        lasted: ns of each run.
        table: of what may happen in a run.
    """
    found = np.full(len(table["pid"]), -1)
    pid, begun_ns = begins["pid"][runs], begins["time_ns"][runs]
    for each in np.unique(pid):
        of_task, rows = np.flatnonzero(pid == each), np.flatnonzero(table["pid"] == each)
        times = table["time_ns"][rows]
        run = of_task[np.searchsorted(begun_ns[of_task], times, side="right") - 1]
        inside = (begun_ns[run] <= times) & (times <= begun_ns[run] + lasted[run])
        found[rows[inside]] = run[inside]
    return found


def recorded_contention_per_mille(trace: Trace) -> int | None:
    """How often asynchronous compaction met others at a lock; None if it isolated nothing.

    Per mille of the blocks that recorded asynchronous runs isolated pages of: those after which a
    run gave way. One that got its page nevertheless does not show that it met anybody.

    Args:
        trace: the recording's events.
    """
    pairs = begun_and_ended(trace, *_COMPACTION)
    isolated = trace.tables.get("compaction:mm_compaction_isolate_migratepages")
    if pairs is None or isolated is None:
        return None
    begins, ends = trace.tables[_COMPACTION[0]], trace.tables[_COMPACTION[1]]
    asynchronous = begins["sync"][pairs[0]] == 0
    before, after, lasted = (each[asynchronous] for each in pairs)
    run = _run_of_rows(begins, before, lasted, isolated)
    taken = (run >= 0) & (isolated["nr_taken"] > 0)
    block = isolated["start_pfn"].astype(np.int64) // _BLOCK_PAGES
    blocks = len(np.unique(np.stack([run[taken], block[taken]]), axis=1).T)
    gave_way = int((ends["status"][after] == _CONTENDED).sum())
    return min(round(1000 * gave_way / blocks), 1000) if blocks else None


def recorded_base_pages(trace: Trace) -> int | None:
    """Median base pages that tasks asked for behind a refused huge page; None if none was refused.

    They are a task's movable requests of order 0 until it asks for the next huge page, the page
    cache's left out. With none behind it a refusal was a first attempt, and another followed.
    khugepaged has its pages already.
    """
    asked = np.flatnonzero((trace.event == Event.ALLOC) & (trace.gfp & _MOVABLE != 0))
    order, gfp = trace.order[asked], trace.gfp[asked]
    is_huge = (order == _HUGE_ORDER) & (gfp & _NOMEMALLOC != 0)
    collapsing = [pid for pid, name in trace.comms.items() if name == "khugepaged"]
    refused = is_huge & (trace.pfn[asked] < 0) & ~np.isin(trace.pid[asked], collapsing)
    is_cache = (gfp & (_NORETRY | _WRITE) != 0) | (gfp & _FS == 0)
    is_base = (order == 0) & ~is_cache
    if not refused.any():
        return None
    pid = trace.pid[asked]
    mine = np.flatnonzero((is_huge | is_base) & np.isin(pid, pid[refused]))
    mine = mine[np.lexsort((mine, pid[mine]))]
    heads = np.flatnonzero(is_huge[mine])
    follow = np.append(heads[1:], len(mine)) - heads - 1
    same = pid[mine]
    last = np.searchsorted(same, same[heads], side="right")
    follow = np.minimum(follow, last - heads - 1)
    touched = follow[refused[mine[heads]]]
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
_RECLAIM = ("vmscan:mm_vmscan_direct_reclaim_begin", "vmscan:mm_vmscan_direct_reclaim_end")
_COMPACTION = ("compaction:mm_compaction_begin", "compaction:mm_compaction_end")


def recorded_kswapd_ns(trace: Trace) -> dict[str, int]:
    """Return what kswapd's recorded runs took, by field of `ElasticAssumptions`, ns.

    `kswapd_free_ns` is the time of all runs, each from its wake to its last pages, by the pages
    that they freed; `kswapd_wake_ns` the median time from the first wake that a run answers to the
    run. Both include what interrupts and other tasks took of the CPU meanwhile. What was not
    recorded is left out.
    """
    runs = trace.tables.get("vmscan:mm_vmscan_kswapd_wake")
    found = {}
    if runs is not None and "vmscan:mm_vmscan_lru_shrink_inactive" in trace.tables:
        lasted, freed = _kswapd_runs(runs, trace.tables["vmscan:mm_vmscan_lru_shrink_inactive"])
        if freed:
            found["kswapd_free_ns"] = lasted // freed
    if runs is not None and "vmscan:mm_vmscan_wakeup_kswapd" in trace.tables:
        waits = _until_next(trace.tables["vmscan:mm_vmscan_wakeup_kswapd"], runs)
        if len(waits):
            found["kswapd_wake_ns"] = int(np.median(waits))
    return found


def _kswapd_runs(
    runs: Mapping[str, np.ndarray], shrunk: Mapping[str, np.ndarray]
) -> tuple[int, int]:
    """Return the time of all runs of all nodes' kswapd, ns, and the pages that they freed."""
    lasted = freed = 0
    for pid in np.unique(runs["pid"]):
        begins = runs["time_ns"][runs["pid"] == pid]
        mine = shrunk["pid"] == pid
        times, pages = shrunk["time_ns"][mine], shrunk["nr_reclaimed"][mine].astype(np.int64)
        run = np.searchsorted(begins, times, "right") - 1
        times, pages, run = times[run >= 0], pages[run >= 0], run[run >= 0]
        last = np.zeros(len(begins), np.int64)
        np.maximum.at(last, run, times)
        lasted += int((last - begins)[last > 0].sum())
        freed += int(pages.sum())
    return lasted, freed


def _until_next(wakes: Mapping[str, np.ndarray], runs: Mapping[str, np.ndarray]) -> np.ndarray:
    """Return the time from the first wake that each run of a node's kswapd answers to the run, ns.

    One that has been woken and waits for the CPU may be woken again and again: it stands in its
    queue until it runs.
    """
    waits = []
    for node in np.unique(runs["nid"]):
        begins = runs["time_ns"][runs["nid"] == node]
        asked = wakes["time_ns"][wakes["nid"] == node]
        following = np.searchsorted(begins, asked)
        first = np.diff(following, prepend=-1) > 0
        answered = first & (following < len(begins))
        waits.append(begins[following[answered]] - asked[answered])
    return np.concatenate(waits) if waits else np.zeros(0, np.int64)


PERIOD_NS = 1_000_000_000
OPEN_NS = 40_000_000
"""A tick may come this much before or after its time: workers wait for their turn."""


def tick_phases(trace: Trace, steps: np.ndarray) -> dict[int, int]:
    """Nanoseconds after the first event, modulo the period, at which each CPU's ticks come.

    Pages that a worker drains without having freed any show a tick.

    Args:
        trace: the recording's events.
        steps: in time order.

    Returns:
        Phases by CPU; a CPU for which nothing tells is left out.
    """
    flags = steps["flags"]
    decays = (steps["operation"] == rec.DRAIN) & (flags & rec.RUN_FIRST != 0)
    decays &= (flags & rec.KWORKER != 0) & (flags & rec.AFTER_PUSH == 0)
    found = steps[decays]
    since = trace.time_ns[found["row"]] - trace.demand_span_ns[0]
    return {int(cpu): _circular_mean(since[found["cpu"] == cpu]) for cpu in np.unique(found["cpu"])}


def _circular_mean(times: np.ndarray) -> int:
    angles = times % PERIOD_NS * (2 * np.pi / PERIOD_NS)
    mean = np.arctan2(np.sin(angles).mean(), np.cos(angles).mean()) % (2 * np.pi)
    return round(mean * PERIOD_NS / (2 * np.pi))


def tick_steps(trace: Trace, phases: dict[int, int], nr_cpus: int) -> np.ndarray:
    """TICK_OPENS and TICK_OVER steps around every tick; `row` is the row they come before.

    Where a CPU's phase is unknown, its tick may come at any time of each period.
    """
    first, last = trace.demand_span_ns
    parts = []
    for cpu in range(nr_cpus):
        known = cpu in phases
        opens = np.arange(first + phases.get(cpu, 0), last, PERIOD_NS)
        before, after = (OPEN_NS, OPEN_NS) if known else (0, PERIOD_NS - 1)
        for operation, times in ((rec.TICK_OVER, opens + after), (rec.TICK_OPENS, opens - before)):
            steps = np.zeros(len(times), rec.STEP)
            steps["row"] = np.searchsorted(trace.time_ns, times)
            steps["cpu"] = cpu
            steps["operation"] = operation
            parts.append(steps)
    return np.concatenate(parts)
