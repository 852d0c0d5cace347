"""Per-CPU lists at the start, chosen so that the model meets the start snapshot.

Setting a recording up allocates its ring buffers through the very lists whose length the earlier
snapshot shows. The start snapshot, taken during the recording, shows them afterwards; in between,
the model itself says what a list that began so much longer or shorter would have become.
"""

from __future__ import annotations

import numpy as np

from pagealloc_model.allocator import layout as at
from pagealloc_model.allocator.initial import StartImage, install
from pagealloc_model.allocator.replay import advance
from pagealloc_model.allocator.state import State, make_state
from pagealloc_model.demand import Demand
from pagealloc_model.kernel_rules import KernelRules
from pagealloc_model.machine import Machine
from pagealloc_model.policy import Assumptions, Policy
from pagealloc_model.snapshot import Snapshot
from pagealloc_model.start_image import StartCounts, make_start_image

ROUNDS = 3
CLOSE_ENOUGH = 64
"""Pages, about one batch: differences below it end the search."""


def calibrated_image(
    machine: Machine,
    demand: Demand,
    counts: StartCounts,
    page_flags: np.ndarray | None,
    start: Snapshot | None,
    *,
    rules: KernelRules,
    policy: Policy,
    assumptions: Assumptions,
    seed: int,
) -> StartImage:
    """The start image whose replay comes closest to the start snapshot's per-CPU counts.

    Args:
        machine: its pagesets hold the counts of the snapshot before the first event.
        demand: what was asked for and freed; only what precedes the start snapshot is replayed.
        counts: what the image should meet.
        page_flags: kpageflags words, None if the recording has none.
        start: the start snapshot; None if none was taken during the recording, then the earlier
            counts stand.
        rules: the recorded kernel's.
        policy: the recorded one.
        assumptions: ours.
        seed: for choices that nothing settles.
    """
    wanted = None if start is None else _counts_of(machine, start)
    listed = np.array(
        [
            [
                next((each.count for each in zone.pagesets if each.cpu == cpu), 0)
                for cpu in range(machine.nr_cpus)
            ]
            for zone in machine.zones
        ],
        np.int64,
    )
    image = make_start_image(machine, demand, counts, page_flags, listed, seed=seed)
    if wanted is None or start is None:
        return image
    best, best_gap = image, np.inf
    for _ in range(ROUNDS):
        state = begun_state(machine, demand, image, rules, policy, assumptions)
        stop = int(np.searchsorted(demand.events["time_ns"], start.time_ns))
        _advance(state, demand, stop)
        gap = state.pcp_words(at.PCP_COUNT, 1)[:, :, 0] - wanted
        if np.abs(gap).sum() < best_gap:
            best, best_gap = image, np.abs(gap).sum()
        if np.abs(gap).max() < CLOSE_ENOUGH:
            break
        listed = np.maximum(listed - gap, 0)
        image = make_start_image(machine, demand, counts, page_flags, listed, seed=seed)
    return best


def begun_state(
    machine: Machine,
    demand: Demand,
    image: StartImage,
    rules: KernelRules,
    policy: Policy,
    assumptions: Assumptions,
) -> State:
    """A state ready for the first event of a demand."""
    state = make_state(machine, rules, policy, assumptions, start_ns=demand.first_ns)
    install(state, image)
    state.st[at.KSWAPD_RECORDED] = demand.kswapd_recorded
    state.st[at.DIRECT_RECLAIM_RECORDED] = demand.direct_reclaim_recorded
    return state


def _counts_of(machine: Machine, snapshot: Snapshot) -> np.ndarray:
    counts = np.zeros((len(machine.zones), machine.nr_cpus), np.int64)
    for zone in snapshot.zoneinfo.zones if snapshot.zoneinfo else ():
        index = machine.zone_index(zone.node, zone.name)
        for pageset in zone.pagesets:
            if pageset.cpu < machine.nr_cpus:
                counts[index, pageset.cpu] = pageset.count
    return counts


def _advance(state: State, demand: Demand, stop: int) -> None:
    places = demand.starting_places()
    position = 0
    while position < stop:
        position = advance(
            state.pages,
            state.blocks,
            state.st,
            state.log,
            demand.events,
            places,
            position,
            stop,
            -1,
        )
        state.st[at.LOG_ROWS] = 0
