"""The start of an elastic replay besides pages: LRU lists, kswapd and kcompactd at work (S10.5)."""

from __future__ import annotations

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
from pagealloc_model.predicted.start.evidence import pages_of
from pagealloc_model.recording.machine import Machine
from pagealloc_model.recording.proc import pages as flags
from pagealloc_model.recording.trace import tracepoints as tp
from pagealloc_model.recording.trace.columns import Event, Trace


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
    """The work of each node's daemons, by the events before the start.

    Kswapd's run is under way if it freed pages shortly before. Kcompactd sleeps until it is woken
    or its sleep ends; of a long one no event tells.
    """

    def last_before(name: str, node: int) -> tuple[int, int]:
        """Row and time of a node's last event before the start, -1 if there is none."""
        table = trace.tables.get(name)
        if table is None:
            return -1, -1
        rows = np.flatnonzero((table["nid"] == node) & (table["time_ns"] < start_ns))
        return (int(rows[-1]), int(table["time_ns"][rows[-1]])) if len(rows) else (-1, -1)

    shrunk = trace.tables.get(tp.LRU_SHRINK_INACTIVE)
    daemons = []
    for node in machine.nodes:
        run, looks_ns = None, None
        row, begun_ns = last_before(tp.KSWAPD_WAKE, node)
        if row >= 0 and shrunk is not None and last_before(tp.KSWAPD_SLEEP, node)[1] <= begun_ns:
            runs = trace.tables[tp.KSWAPD_WAKE]
            own = (shrunk["pid"] == runs["pid"][row]) & (shrunk["time_ns"] < start_ns)
            active_ns = max([begun_ns, *shrunk["time_ns"][own][-1:].tolist()])
            if active_ns + NAP_NS > start_ns:
                run = int(runs["order"][row]), int(runs["zid"][row])
        asleep, since_ns = last_before(tp.KCOMPACTD_SLEEP, node)
        if asleep >= 0 and last_before(tp.KCOMPACTD_WAKE, node)[1] <= since_ns:
            looks_ns = since_ns + CHECK_NS if since_ns + CHECK_NS > start_ns else None
        daemons.append(DaemonsAtStart(node=node, start_ns=start_ns, run=run, looks_ns=looks_ns))
    return tuple(daemons)


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


ACTIVE = np.uint64(1 << 6)
RECLAIMED_LAST = 1024
"""Pages freed by reclaim before the start that tell whether it goes by address."""
REACH = 512
"""Pages that one page freed by reclaim may lie behind the last, in memory read in order."""


def lru_at_start(movable: np.ndarray, page_flags: np.ndarray | None) -> np.ndarray:
    """The LRU list of each page frame at the start, plus one; 0 for none (T12.5).

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
    """The page frames that reclaim took as they lay at the start, in that order."""
    begin = int(np.searchsorted(trace.time_ns, start_ns))
    pfn = trace.pfn[begin:]
    inside = (pfn >= 0) & (pfn < pages)
    rows = begin + np.flatnonzero(inside & (trace.event[begin:] == Event.FREE))
    rows = rows[ElasticRows(trace).freed_by_reclaim(rows)]
    asked = begin + np.flatnonzero(inside & (trace.event[begin:] == Event.ALLOC))
    first_asked = np.full(pages, len(trace.pfn), np.int64)
    first_asked[trace.pfn[asked[::-1]].astype(np.int64)] = asked[::-1]
    rows = rows[rows < first_asked[trace.pfn[rows].astype(np.int64)]]
    shrunk = trace.tables.get(tp.LRU_SHRINK_INACTIVE)
    if backwards and shrunk is not None:
        # those of each cluster in reverse order
        cluster, pid = np.zeros(len(rows), np.int64), trace.pid[rows]
        for task in np.unique(pid):
            ends, own = shrunk["time_ns"][shrunk["pid"] == task], pid == task
            cluster[own] = np.searchsorted(ends, trace.time_ns[rows[own]])
        _, first, of = np.unique(
            np.stack([pid, cluster]), axis=1, return_index=True, return_inverse=True
        )
        rows = rows[np.lexsort((-rows, rows[first][of.ravel()]))]
    freed = trace.pfn[rows].astype(np.int64)
    return freed[np.sort(np.unique(freed, return_index=True)[1])]


def with_cached_pages(demand: Demand, lru: np.ndarray, seed: int) -> Demand:
    """The demand with objects for the pages that were in the page cache throughout (T10.15).

    Where such a page lies no event tells: each is one of the page cache's pages at the start that
    no object has, drawn. Uses beyond those are left out.
    """
    if not demand.unplaced_pages:
        return demand
    is_cached = (lru == pr.INACTIVE_FILE + 1) | (lru == pr.ACTIVE_FILE + 1)
    at_start = demand.objects[demand.at_start]
    is_cached[pages_of(at_start["pfn"], at_start["order"])] = False
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
    """Put the pages at the start on the LRU lists of an elastic replay's first state."""
    numbers = demand.at_start
    state.folios["object"][demand.objects["pfn"][numbers]] = numbers + 1
    heads = np.flatnonzero(state.pages["where"] == at.ALLOCATED).astype(np.int32)
    heads = heads[(lru[heads] > 0) & (state.pages["tag"][heads] == 1)]
    heads = heads[np.argsort(order[heads], kind="stable")]
    lists = lru[heads] - 1
    place_on_lists(state.arrays(), heads, lists.astype(np.int8))
