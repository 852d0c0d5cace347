"""Random operations without end on a small machine: is every page in exactly one place?"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from pagealloc_model.notebooks.studies.random_operations import RandomOperations

from pagealloc_model.allocator import layout as at
from pagealloc_model.allocator.events import advance
from pagealloc_model.allocator.invariants import broken_invariants
from pagealloc_model.allocator.state import State, make_state
from pagealloc_model.policy.kernel_rules import KernelRules
from pagealloc_model.policy.policy import Policy
from pagealloc_model.recording.machine import Machine, Zone
from pagealloc_model.studies.workload.run import free_everything

BLOCK_ORDER = 6
BLOCKS = 64
PAGES = BLOCKS << BLOCK_ORDER
"""Pages of the machine: two zones, the first with a quarter of them."""
NR_CPUS = 4
SLOTS = 1600
"""Objects that may be live at once: half of them are, and at times memory runs out."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Conservation:
    """What random operations left.

    Attributes:
        operations: how many were done.
        checks: how often the whole state was looked at.
        broken: what was wrong, one line each, at the first check that found anything.
        state: as it was then, or at the end.
    """

    operations: int
    checks: int
    broken: tuple[str, ...]
    state: State


def small_machine() -> Machine:
    """Four CPUs and two zones, pageblocks of 64 pages."""
    quarter = PAGES // 4
    sizes = {"DMA32": (0, quarter, 20), "Normal": (quarter, PAGES - quarter, 100)}
    zones = tuple(
        Zone(
            name=name,
            start_pfn=first,
            spanned=pages,
            present=pages,
            managed=pages,
            min=mark,
            low=mark * 3 // 2,
            high=mark * 2,
        )
        for name, (first, pages, mark) in sizes.items()
    )
    return Machine(zones=zones, nr_cpus=NR_CPUS, pageblock_order=BLOCK_ORDER, max_order=8)


def conserve(
    policy: Policy,
    *,
    operations: int,
    chunk: int,
    seed: int = 0,
    rules: str = "7.2",
    progress: Callable[[int], None] | None = None,
) -> Conservation:
    """Do random operations, looking at every page after each chunk; stops at what is wrong.

    Args:
        policy: what to run under; lists are made long enough for a few blocks.
        operations: how many allocations, frees and the rest.
        chunk: of how many each.
        seed: of all draws.
        rules: name of a preset.
        progress: called after each chunk with the operations done.

    Raises:
        PolicyError: no such preset, or ownership in a kernel that it cannot be added to.
    """
    sized = Policy(
        pcp_batch=7, pcp_high_min=40, pcp_high_max=400, highatomic_reserve_percent=10
    ).changed_by(policy)
    state = make_state(small_machine(), KernelRules.preset(rules), sized)
    free_everything(state)
    random = RandomOperations(
        nr_cpus=NR_CPUS, slots=SLOTS, highest_type=1, block_order=BLOCK_ORDER, seed=seed
    )
    places = np.full(SLOTS, -1, np.int32)
    done = checks = 0
    broken: list[str] = []
    for events in random.chunks(operations, chunk):
        _apply(state, events, places)
        done += len(events)
        checks += 1
        broken = broken_invariants(state) + misplaced_pages(state)
        if broken:
            break
        if progress is not None:
            progress(done)
    return Conservation(operations=done, checks=checks, broken=tuple(broken), state=state)


def _apply(state: State, events: np.ndarray, places: np.ndarray) -> None:
    position, end = 0, len(events)
    while position < end:
        position = advance(state.arrays(places), events, position, end, -1)
        state.st[at.LOG_ROWS] = 0


def misplaced_pages(state: State) -> list[str]:
    """Pages of a machine without holes that are not once free, on a per-CPU list or in use."""
    heads = np.flatnonzero(state.pages["where"] != at.NOWHERE)
    size = 1 << state.pages["order"][heads].astype(np.int64)
    edges = np.zeros(len(state.pages) + 1, np.int64)
    np.add.at(edges, heads, 1)
    np.add.at(edges, heads + size, -1)
    held = np.cumsum(edges[:-1])
    return [f"page {pfn} is in {held[pfn]} places" for pfn in np.flatnonzero(held != 1)[:5]]
