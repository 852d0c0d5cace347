"""What kswapd and kcompactd were doing when a recording's replay begins (S10.5)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from pagealloc_model.allocator.core import layout as at
from pagealloc_model.allocator.core import pressure_layout as pr
from pagealloc_model.allocator.core.state import State
from pagealloc_model.allocator.pressure.kcompactd import CHECK_NS
from pagealloc_model.allocator.pressure.kswapd import NAP_NS
from pagealloc_model.recording.machine import Machine
from pagealloc_model.recording.trace.columns import Trace

RUN = "vmscan:mm_vmscan_kswapd_wake"
SLEEP = "vmscan:mm_vmscan_kswapd_sleep"
SHRUNK = "vmscan:mm_vmscan_lru_shrink_inactive"
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
