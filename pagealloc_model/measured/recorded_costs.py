"""What reclaim, kswapd and compaction cost on the machine of a recording, as events show (T7)."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from pagealloc_model.policy.assumptions import Assumptions, ElasticAssumptions
from pagealloc_model.recording.snapshot import Snapshot
from pagealloc_model.recording.trace.columns import Event, Trace
from pagealloc_model.recording.trace.formats import stable_gfp_bits


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

    Args:
        start: a snapshot; its vmstat counts since the machine booted.

    Returns:
        By field of `ElasticAssumptions`, per mille, rounded: pages of files that were scanned and
        not freed count as in use, none as dirty. Without such counters, or with none scanned yet,
        the fields are left out.
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
    pairs = _begun_and_ended(trace, *_RECLAIM)
    if pairs is None:
        return None
    _, after, lasted = pairs
    freed = np.asarray(trace.tables[_RECLAIM[1]]["nr_reclaimed"], np.int64)[after]
    lasted, freed = lasted[freed > 0], freed[freed > 0]
    return int(np.median(lasted / freed)) if len(lasted) else None


def recorded_migrate_ns(trace: Trace) -> int | None:
    """Median time of a recorded run of compaction per page that it moved, ns; None without any.

    It includes the scans for these pages and what else the CPU did meanwhile, as that of reclaim.

    Args:
        trace: the recording's events.
    """
    pairs = _begun_and_ended(trace, *_COMPACTION)
    moves = trace.tables.get("compaction:mm_compaction_migratepages")
    if pairs is None or moves is None:
        return None
    before, _, lasted = pairs
    begins = trace.tables[_COMPACTION[0]]
    moved = np.zeros(len(before), np.int64)
    for pid in np.unique(begins["pid"][before]):
        runs = np.flatnonzero(begins["pid"][before] == pid)
        mine = moves["pid"] == pid
        begun_ns = begins["time_ns"][before[runs]]
        run = np.searchsorted(begun_ns, moves["time_ns"][mine], side="right") - 1
        inside = run >= 0
        inside[inside] = moves["time_ns"][mine][inside] <= (begun_ns + lasted[runs])[run[inside]]
        pages = np.asarray(moves["nr_migrated"], np.int64)[mine][inside]
        np.add.at(moved, runs[run[inside]], pages)
    return int(np.median(lasted[moved > 0] / moved[moved > 0])) if (moved > 0).any() else None


def recorded_contention_per_mille(trace: Trace) -> int | None:
    """How often asynchronous compaction met others at a lock; None if it isolated nothing.

    Per mille of the blocks that recorded asynchronous runs isolated pages of: those after which a
    run gave way. One that got its page nevertheless does not show that it met anybody.

    Args:
        trace: the recording's events.
    """
    pairs = _begun_and_ended(trace, *_COMPACTION)
    isolated = trace.tables.get("compaction:mm_compaction_isolate_migratepages")
    if pairs is None or isolated is None:
        return None
    before, after, _ = pairs
    begins, ends = trace.tables[_COMPACTION[0]], trace.tables[_COMPACTION[1]]
    asynchronous = begins["sync"][before] == 0
    before, after = before[asynchronous], after[asynchronous]
    blocks = 0
    for pid in np.unique(begins["pid"][before]):
        runs = np.flatnonzero(begins["pid"][before] == pid)
        mine = (isolated["pid"] == pid) & (isolated["nr_taken"] > 0)
        times = isolated["time_ns"][mine]
        run = np.searchsorted(begins["time_ns"][before[runs]], times, side="right") - 1
        inside = run >= 0
        inside[inside] = times[inside] <= ends["time_ns"][after[runs]][run[inside]]
        found = isolated["start_pfn"][mine][inside].astype(np.int64) // _BLOCK_PAGES
        blocks += len(np.unique(np.stack([run[inside], found]), axis=1).T)
    gave_way = int((ends["status"][after] == _CONTENDED).sum())
    return min(round(1000 * gave_way / blocks), 1000) if blocks else None


def recorded_base_pages(trace: Trace) -> int | None:
    """Median base pages that tasks asked for behind a refused huge page; None if none was refused.

    They are a task's movable requests of order 0 until it asks for the next huge page, the page
    cache's left out. With none behind it a refusal was a first attempt, and another followed.
    khugepaged has its pages already.

    Args:
        trace: the recording's events.
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


def _begun_and_ended(
    trace: Trace, begin_name: str, end_name: str
) -> tuple[np.ndarray, np.ndarray, np.ndarray] | None:
    """Rows of beginnings and of the ends that follow them in the same task, and ns between.

    By task and then by time; None where either event was not recorded.
    """
    begins, ends = trace.tables.get(begin_name), trace.tables.get(end_name)
    if begins is None or ends is None:
        return None
    count = len(begins["pid"])
    pid = np.concatenate([begins["pid"], ends["pid"]]).astype(np.int64)
    time_ns = np.concatenate([begins["time_ns"], ends["time_ns"]])
    is_end = np.arange(len(pid)) >= count
    ranked = np.lexsort((is_end, time_ns, pid))
    before, after = ranked[:-1], ranked[1:]
    pairs = ~is_end[before] & is_end[after] & (pid[before] == pid[after])
    before, after = before[pairs], after[pairs]
    return before, after - count, time_ns[after] - time_ns[before]


def recorded_kswapd_ns(trace: Trace) -> dict[str, int]:
    """Return what kswapd's recorded runs took, by field of `ElasticAssumptions`, ns.

    `kswapd_free_ns` is the time of all runs, each from its wake to its last pages, by the pages
    that they freed; `kswapd_wake_ns` the median time from the first wake that a run answers to the
    run. Both include what interrupts and other tasks took of the CPU meanwhile. What was not
    recorded is left out.

    Args:
        trace: the recording's events.
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
