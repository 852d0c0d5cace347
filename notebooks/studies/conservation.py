"""Random operations without end on a small machine: is every page in exactly one place?"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
from pagealloc_model.notebooks.studies.random_operations import STEP_NS, RandomOperations

import pagealloc_model as pm

BLOCK_ORDER = 6
BLOCKS = 64
PAGES = BLOCKS << BLOCK_ORDER
"""Pages of the machine: two zones, the first with a quarter of them."""
NR_CPUS = 4
SLOTS = 1600
"""Objects that may be live at once: half of them are, and at times memory runs out."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Conservation:
    """What random operations left."""

    operations: int
    checks: int
    broken: tuple[str, ...]
    state: Any


def small_machine() -> pm.synthetic.Machine:
    """Four CPUs and two zones, pageblocks of 64 pages."""
    quarter = PAGES // 4
    sizes = {"DMA32": (0, quarter, 20), "Normal": (quarter, PAGES - quarter, 100)}
    zones = tuple(
        pm.synthetic.Zone(
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
    return pm.synthetic.Machine(
        zones=zones, nr_cpus=NR_CPUS, pageblock_order=BLOCK_ORDER, max_order=8
    )


def conserve(
    policy: pm.Policy,
    *,
    operations: int,
    chunk: int,
    seed: int = 0,
    rules: str = "7.2",
    progress: Callable[[int], None] | None = None,
) -> Conservation:
    """Do random operations, looking at every page after each chunk; stops at what is wrong."""
    sized = pm.Policy(
        pcp_batch=7, pcp_high_min=40, pcp_high_max=400, highatomic_reserve_percent=10
    ).changed_by(policy)
    random = RandomOperations(
        nr_cpus=NR_CPUS, slots=SLOTS, highest_type=1, block_order=BLOCK_ORDER, seed=seed
    )
    looked: list[Any] = []
    broken: list[str] = []

    def look(state: Any) -> None:
        looked.append(state)
        broken.extend(pm.synthetic.broken_invariants(state) + misplaced_pages(state))
        if progress is not None:
            progress(min(len(looked) * chunk, operations))

    ends = [*range(chunk, operations, chunk), operations]
    demand = pm.synthetic.Demand(
        name="random operations",
        machine=small_machine(),
        parts=lambda: random.chunks(operations, chunk),
        count=operations,
        objects=SLOTS,
        start_ns=0,
    )
    with suppress(pm.Cancelled):
        pm.synthetic.run(
            demand,
            sized,
            rules=rules,
            at_ns=[end * STEP_NS - STEP_NS + 1 for end in ends],
            look=look,
            keep_holds=False,
            cancel=lambda: bool(broken),
        )
    checks = len(looked)
    done = ends[checks - 1]
    return Conservation(operations=done, checks=checks, broken=tuple(broken), state=looked[-1])


def misplaced_pages(state: Any) -> list[str]:
    """Pages of a machine without holes that are not once free, on a per-CPU list or in use."""
    heads = np.flatnonzero(state.pages["where"])
    size = 1 << state.pages["order"][heads].astype(np.int64)
    edges = np.zeros(len(state.pages) + 1, np.int64)
    np.add.at(edges, heads, 1)
    np.add.at(edges, heads + size, -1)
    held = np.cumsum(edges[:-1])
    return [f"page {pfn} is in {held[pfn]} places" for pfn in np.flatnonzero(held != 1)[:5]]
