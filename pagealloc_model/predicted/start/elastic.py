"""What an elastic replay begins with besides: LRU lists, kswapd and kcompactd at work (S10.5)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from pagealloc_model.allocator import layout as at
from pagealloc_model.allocator import objects as resolved
from pagealloc_model.allocator import pressure_layout as pr
from pagealloc_model.allocator.kcompactd import CHECK_NS
from pagealloc_model.allocator.kswapd import NAP_NS
from pagealloc_model.allocator.lru import place_on_lists
from pagealloc_model.allocator.state import State
from pagealloc_model.base.arrays import parts, working_arrays
from pagealloc_model.predicted.demand.demand import Demand
from pagealloc_model.predicted.demand.elastic import ElasticRows
from pagealloc_model.predicted.demand.event_order import joined
from pagealloc_model.predicted.demand.reclaim import SHRUNK
from pagealloc_model.recording.machine import Machine
from pagealloc_model.recording.proc import pages as flags
from pagealloc_model.recording.trace.columns import Event, Trace

RUN = "vmscan:mm_vmscan_kswapd_wake"
SLEEP = "vmscan:mm_vmscan_kswapd_sleep"

COMPACTOR_SLEEP = "compaction:mm_compaction_kcompactd_sleep"
COMPACTOR_WAKE = "compaction:mm_compaction_kcompactd_wake"


@dataclass(frozen=True, kw_only=True)
class DaemonsAtStart:
    """The daemons of one node when a replay begins.

    Attributes:
        node: its number.
        start_ns: when the replay begins.
        run: order and highest zone type of kswapd's run under way; None: it sleeps or naps, or no
            event tells.
        looks_ns: when kcompactd's sleep ends; None if no event tells.
    """

    node: int
    start_ns: int
    run: tuple[int, int] | None
    looks_ns: int | None


def daemons_at_start(trace: Trace, machine: Machine, start_ns: int) -> tuple[DaemonsAtStart, ...]:
    """Return what each node's daemons were doing, by the events before the start.

    Args:
        trace: all recorded events; those from the start on are not read.
        machine: whose nodes are asked about.
        start_ns: when the replay begins.
    """
    return tuple(
        DaemonsAtStart(
            node=node,
            start_ns=start_ns,
            run=_run_under_way(trace, node, start_ns),
            looks_ns=_end_of_sleep(trace, node, start_ns),
        )
        for node in machine.nodes
    )


def with_daemons(state: State, daemons: tuple[DaemonsAtStart, ...]) -> State:
    """A state in which daemons go on with what they were doing; its words are changed.

    A run under way begins anew: how far it had come no event tells.
    """
    machine = state.machine
    nodes = int(state.st[int(state.st[at.PRESSURE_BASE]) + pr.NODES_BASE])
    for each in daemons:
        first = nodes + machine.nodes.index(each.node) * pr.NODE_WORDS
        words = state.st[first : first + pr.NODE_WORDS]
        if each.looks_ns is not None:
            words[pr.PROACTIVE_DUE] = each.looks_ns
        if each.run is not None:
            order, highest = each.run
            words[pr.KSWAPD_WANTED_ORDER] = order
            words[pr.KSWAPD_WANTED_HIGHEST] = min(highest, len(machine.zone_types) - 1)
            words[pr.KSWAPD_WOKEN] = 1
            words[pr.KSWAPD_DUE] = each.start_ns
    return state


def _run_under_way(trace: Trace, node: int, start_ns: int) -> tuple[int, int] | None:
    """Return order and highest zone type of kswapd's run, if it freed pages shortly before."""
    runs, shrunk = trace.tables.get(RUN), trace.tables.get(SHRUNK)
    last = _last_before(runs, node, start_ns)
    if runs is None or shrunk is None or last is None:
        return None
    begun_ns = int(runs["time_ns"][last])
    slept = _last_before(trace.tables.get(SLEEP), node, start_ns)
    if slept is not None and int(trace.tables[SLEEP]["time_ns"][slept]) > begun_ns:
        return None
    mine = (shrunk["pid"] == runs["pid"][last]) & (shrunk["time_ns"] < start_ns)
    active_ns = max([begun_ns, *shrunk["time_ns"][mine][-1:].tolist()])
    if active_ns + NAP_NS <= start_ns:
        return None
    return int(runs["order"][last]), int(runs["zid"][last])


def _end_of_sleep(trace: Trace, node: int, start_ns: int) -> int | None:
    """Return when kcompactd's sleep ends, if it sleeps and the sleep is not a long one."""
    asleep = _last_before(trace.tables.get(COMPACTOR_SLEEP), node, start_ns)
    if asleep is None:
        return None
    since_ns = int(trace.tables[COMPACTOR_SLEEP]["time_ns"][asleep])
    woken = _last_before(trace.tables.get(COMPACTOR_WAKE), node, start_ns)
    if woken is not None and int(trace.tables[COMPACTOR_WAKE]["time_ns"][woken]) > since_ns:
        return None
    ends_ns = since_ns + CHECK_NS
    return ends_ns if ends_ns > start_ns else None


def _last_before(table: Mapping[str, np.ndarray] | None, node: int, start_ns: int) -> int | None:
    """Return the row of a node's last event before a time, None if there is none."""
    if table is None:
        return None
    rows = np.flatnonzero((table["nid"] == node) & (table["time_ns"] < start_ns))
    return int(rows[-1]) if len(rows) else None


ACTIVE = np.uint64(1 << 6)
RECLAIMED_LAST = 1024
"""Pages freed by reclaim before the start that tell whether it goes by address."""
REACH = 512
"""Pages that one page freed by reclaim may lie behind the last, in memory read in order."""


def lru_at_start(movable: np.ndarray, page_flags: np.ndarray | None) -> np.ndarray:
    """The LRU list of each page frame at the start, plus one; 0 for none (T12.5).

    Args:
        movable: bool by page frame: allocated and migratable.
        page_flags: kpageflags words; None if they were not recorded: movable pages then count as
            inactive pages of files.

    Returns:
        int8, one per page frame.
    """
    lists = np.where(movable, pr.INACTIVE_FILE + 1, 0).astype(np.int8)
    if page_flags is None:
        return lists
    words = np.zeros(len(movable), np.uint64)
    known = min(len(page_flags), len(movable))
    words[:known] = page_flags[:known]
    is_anon = (words & np.uint64(flags.ANON)) != 0
    kind = np.where(is_anon, pr.INACTIVE_ANON, pr.INACTIVE_FILE)
    lists[:] = kind + ((words & ACTIVE) != 0) + 1
    lists[~movable | ((words & np.uint64(flags.LRU)) == 0)] = 0
    return lists


def reclaim_position(trace: Trace, start_ns: int) -> int:
    """The page frame behind the last one that recorded reclaim freed before a replay begins.

    Files that are read one after the other fill memory as it becomes free, so that reclaim goes
    through it by address: what lies behind the page freed last is oldest, what lies before it was
    read anew (S10.5). Only events before the start are read.
    """
    end = int(np.searchsorted(trace.time_ns, start_ns))
    freed = np.zeros(0, np.int64)
    marks = ElasticRows(trace) if end else None
    for part in reversed(list(parts(end))):
        if marks is None or len(freed) >= RECLAIMED_LAST:
            break
        rows = np.flatnonzero((trace.event[part] == Event.FREE) & (trace.pfn[part] >= 0))
        rows += part.start
        freed = np.concatenate([trace.pfn[rows[marks.freed_by_reclaim(rows)]], freed])
    steps = np.diff(freed[-RECLAIMED_LAST:])
    follows = (steps > 0) & (steps < REACH)
    if not follows.any() or follows.mean() <= 0.5:
        return 0
    last = len(follows) - int(np.argmax(follows[::-1]))
    return int(freed[-RECLAIMED_LAST:][last]) + 1


def reclaim_order(
    trace: Trace, start_ns: int, pages: int, *, as_recorded: bool, backwards: bool = False
) -> np.ndarray:
    """Return the order in which reclaim takes the pages of one list at the start.

    By address from `reclaim_position` on; what recorded reclaim took as it lay at the start is
    older than all else, if that is asked for, in the order in which it was taken (S10.5).

    Args:
        trace: all recorded events.
        start_ns: when the replay begins.
        pages: page frames.
        as_recorded: read the recorded reclaim behind the start.
        backwards: of each cluster it freed the last page taken first (S10.6).

    Returns:
        int64 by page frame, the lower, the older.
    """
    order = (np.arange(pages) - reclaim_position(trace, start_ns)) % max(pages, 1)
    if as_recorded:
        taken = _taken_by_reclaim(trace, start_ns, pages, backwards)
        order[taken] = np.arange(len(taken)) - len(taken)
    return order


def _taken_by_reclaim(trace: Trace, start_ns: int, pages: int, backwards: bool) -> np.ndarray:
    """Return the page frames that reclaim took as they lay at the start, in that order."""
    begin = int(np.searchsorted(trace.time_ns, start_ns))
    pfn = trace.pfn[begin:]
    inside = (pfn >= 0) & (pfn < pages)
    rows = begin + np.flatnonzero(inside & (trace.event[begin:] == Event.FREE))
    rows = rows[ElasticRows(trace).freed_by_reclaim(rows)]
    asked = begin + np.flatnonzero(inside & (trace.event[begin:] == Event.ALLOC))
    first_asked = np.full(pages, len(trace.pfn), np.int64)
    first_asked[trace.pfn[asked[::-1]].astype(np.int64)] = asked[::-1]
    rows = rows[rows < first_asked[trace.pfn[rows].astype(np.int64)]]
    if backwards:
        rows = _clusters_reversed(trace, rows)
    freed = trace.pfn[rows].astype(np.int64)
    _, first = np.unique(freed, return_index=True)
    return freed[np.sort(first)]


def _clusters_reversed(trace: Trace, rows: np.ndarray) -> np.ndarray:
    """Return rows of frees by reclaim with those of each cluster in reverse order."""
    shrunk = trace.tables.get(SHRUNK)
    if shrunk is None:
        return rows
    cluster = np.zeros(len(rows), np.int64)
    pid = trace.pid[rows]
    for task in np.unique(pid):
        ends = shrunk["time_ns"][shrunk["pid"] == task]
        mine = pid == task
        cluster[mine] = np.searchsorted(ends, trace.time_ns[rows[mine]])
    _, first, of = np.unique(
        np.stack([pid, cluster]), axis=1, return_index=True, return_inverse=True
    )
    return rows[np.lexsort((-rows, rows[first][of.ravel()]))]


def with_cached_pages(demand: Demand, lru: np.ndarray, seed: int) -> Demand:
    """The demand with objects for the pages that were in the page cache throughout (T10.15).

    Where such a page lies no event tells: each is one of the page cache's pages at the start that
    no object has, drawn. Uses beyond those are left out.

    Args:
        demand: with uses of such pages.
        lru: as `lru_at_start` makes it.
        seed: of the draws.
    """
    if not demand.unplaced_pages:
        return demand
    is_cached = (lru == pr.INACTIVE_FILE + 1) | (lru == pr.ACTIVE_FILE + 1)
    known = demand.objects["pfn"][demand.at_start].astype(np.int64)
    sizes = np.int64(1) << demand.objects["order"][demand.at_start].astype(np.int64)
    within = np.arange(int(sizes.sum())) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    is_cached[np.repeat(known, sizes) + within] = False
    pfns = np.random.default_rng((seed, 3)).permutation(np.flatnonzero(is_cached))
    pfns = pfns[: demand.unplaced_pages]
    first = len(demand.objects)
    new_array = working_arrays(len(demand.events))
    added = np.zeros(len(pfns), demand.objects.dtype)
    added["pfn"] = pfns
    added["kind"] = resolved.AT_START
    events = new_array(len(demand.events), demand.events.dtype)
    kept = 0
    for part in parts(len(events)):
        own = demand.events[part]
        own = own[(own["operation"] != at.USE) | (own["object"] >= -len(pfns))]
        unplaced = (own["operation"] == at.USE) & (own["object"] < 0)
        own["object"][unplaced] = first - 1 - own["object"][unplaced]
        events[kept : kept + len(own)] = own
        kept += len(own)
    return replace(
        demand,
        events=events[:kept],
        objects=joined(demand.objects, added, new_array),
        leads=joined(demand.leads, np.full(len(pfns), -1, np.int32), new_array),
    )


def put_on_lru_lists(state: State, demand: Demand, lru: np.ndarray, order: np.ndarray) -> None:
    """Put the pages at the start on the LRU lists of an elastic replay's first state.

    Args:
        state: where pages are at the start, with words for reclaim; changed.
        demand: whose objects live at the start.
        lru: as `lru_at_start` makes it.
        order: as `reclaim_order` makes it.
    """
    numbers = demand.at_start
    state.folios["object"][demand.objects["pfn"][numbers]] = numbers + 1
    heads = np.flatnonzero(state.pages["where"] == at.ALLOCATED).astype(np.int32)
    heads = heads[(lru[heads] > 0) & (state.pages["tag"][heads] == 1)]
    heads = heads[np.argsort(order[heads], kind="stable")]
    lists = lru[heads] - 1
    place_on_lists(state.arrays(), heads, lists.astype(np.int8))
