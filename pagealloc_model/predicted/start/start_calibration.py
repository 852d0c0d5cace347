"""Per-CPU lists at the start, chosen so that the model meets the start snapshot.

Setting a recording up allocates its ring buffers through the very lists whose length the earlier
snapshot shows. The start snapshot, taken during the recording, shows them afterwards; in between,
the model itself says what a list that began so much longer or shorter would have become.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import replace
from functools import partial

import numpy as np

from pagealloc_model.allocator.core import layout as at
from pagealloc_model.allocator.core.initial import StartImage, install
from pagealloc_model.allocator.core.replay import advance
from pagealloc_model.allocator.core.state import State, make_state
from pagealloc_model.base.text.counts import count_of
from pagealloc_model.policy.kernel_rules import KernelRules
from pagealloc_model.policy.policy import Assumptions, Policy
from pagealloc_model.predicted.demand.demand import Demand
from pagealloc_model.predicted.growth import grown_demand
from pagealloc_model.predicted.start.page_evidence import PageEvidence, StartFiles, gather_evidence
from pagealloc_model.predicted.start.seeded_placement import seeded_image
from pagealloc_model.predicted.start.start_counts import StartCounts, pageset_values
from pagealloc_model.predicted.start.start_image import make_start_image
from pagealloc_model.recording.machine import Machine
from pagealloc_model.recording.snapshot import Snapshot

ROUNDS = 6
CLOSE_ENOUGH = 64
"""Pages, about one batch: differences below it end the search.

The limit is settled first: lists that overflow end within one drain of it, however they began, so
a count that near to it says nothing more.
"""


def calibrated_image(
    machine: Machine,
    demand: Demand,
    counts: StartCounts,
    files: StartFiles,
    start: Snapshot | None,
    *,
    rules: KernelRules,
    policy: Policy,
    assumptions: Assumptions,
    seed: int,
) -> StartImage:
    """The start image whose replay comes closest to the start snapshot's per-CPU lists.

    Args:
        machine: its pagesets hold the lists of the snapshot before the first event.
        demand: what was asked for and freed; only what precedes the start snapshot is replayed.
        counts: what the image should meet.
        files: what describes single pages.
        start: the start snapshot; None if none was taken during the recording, then the earlier
            counts and limits stand.
        rules: the recorded kernel's.
        policy: the recorded one.
        assumptions: ours.
        seed: for choices that nothing settles.
    """
    listed = pageset_values(machine, None, "count")
    high = pageset_values(machine, None, "high")
    evidence = gather_evidence(machine, demand, counts, files) if files.known else None
    make = partial(_made, machine, demand, counts, files, evidence, seed=seed)
    image = make(listed, high)
    if start is None:
        return image
    wanted, limits = (pageset_values(machine, start, name) for name in ("count", "high"))
    best, best_gap = image, np.inf
    for _ in range(ROUNDS):
        grown = grown_demand(machine, demand, image.block_types)
        state = begun_state(machine, grown, image, rules, policy, assumptions)
        _advance(state, grown, bisect_left(grown.events["time_ns"], start.time_ns))
        words = state.pcp_words(at.PCP_COUNT, 2)
        gap, limit_gap = words[:, :, 0] - wanted, words[:, :, 1] - limits
        if np.abs(gap).sum() < best_gap:
            best, best_gap = image, np.abs(gap).sum()
        if np.abs(gap).max() < CLOSE_ENOUGH and np.abs(limit_gap).max() < CLOSE_ENOUGH:
            break
        limited = np.abs(limit_gap) >= CLOSE_ENOUGH
        silent = limited | (np.maximum(np.abs(gap), limits - wanted) < _drained_at_once(state))
        before = listed, high
        listed = np.where(silent, listed, np.maximum(listed - gap, 0))
        high = np.where(limited, np.maximum(high - limit_gap, 0), high)
        if np.array_equal(before, (listed, high)):
            break
        image = make(listed, high)
    off = (
        f"off by {count_of(int(best_gap), 'page')} at the start snapshot, after replaying what "
        "precedes it"
    )
    return replace(best, origin=(*best.origin, f"per-CPU counts: {off}"))


def _drained_at_once(state: State) -> np.ndarray:
    """The most that one overflow drains, pages, shape (zones, cpus) (S4.6)."""
    return state.pcp_words(at.PCP_BATCH, 1)[:, :, 0] << state.st[at.POLICY_PCP_BATCH_SCALE_MAX]


def _made(
    machine: Machine,
    demand: Demand,
    counts: StartCounts,
    files: StartFiles,
    evidence: PageEvidence | None,
    listed: np.ndarray,
    high: np.ndarray,
    *,
    seed: int,
) -> StartImage:
    if evidence is not None:
        return make_start_image(machine, demand, counts, files, evidence, listed, high, seed=seed)
    return seeded_image(machine, demand, counts, listed, high, seed=seed)


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
    state.st[at.DRAINS_RECORDED] = demand.drains_recorded
    state.st[at.RELEASES_RECORDED] = demand.releases_recorded
    if demand.ticks_recorded:
        state.st[at.NEXT_TICK] = state.st[at.TICK_BASE] = at.NEVER
    return state


def _advance(state: State, demand: Demand, stop: int) -> None:
    places = demand.starting_places()
    position = 0
    while position < stop:
        position = advance(
            state.arrays(places),
            demand.events,
            position,
            stop,
            -1,
        )
        state.st[at.LOG_ROWS] = 0
