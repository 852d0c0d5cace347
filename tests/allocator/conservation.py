"""Random operations without end on a small machine: is every page in exactly one place?

They are allocations and frees on slots that are filled and emptied in turn. Every CPU frees what
any CPU allocated; now and then all lists are drained, a CPU's tick comes, or a CPU goes offline for
a while.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np

import pagealloc_model as pm
from tests.allocator.invariants import broken_invariants

GFP, DO, TYPE = pm.synthetic.Gfp, pm.synthetic.Operation, pm.synthetic.Migratetype

SMALL_ORDERS = (0,) * 24 + (1, 1, 1, 2, 2, 3, 3, 4)
"""Orders asked for, each as often as it stands here, beside one request for a whole pageblock."""

TYPES = np.array([TYPE.MOVABLE] * 5 + [TYPE.UNMOVABLE] * 2 + [TYPE.RECLAIMABLE], np.int8)
"""Migratetypes, likewise."""

REQUESTS = np.array([GFP.RECLAIM] * 6 + [GFP.ATOMIC, GFP.HIGH], np.uint32)
"""gfp bits of requests, likewise; those without direct reclaim may reserve blocks (S7)."""

STEP_NS = 1_000
SPELL_SHARE = 16
"""One CPU is offline for one in so many of a chunk's operations."""


@dataclass(kw_only=True)
class RandomOperations:
    """An endless sequence of resolved events; the objects are slots, numbered from 0."""

    nr_cpus: int
    slots: int
    highest_type: int
    block_order: int
    seed: int

    def __post_init__(self) -> None:
        """Begin with all slots empty."""
        self._random = np.random.default_rng(self.seed)
        self._now = 0
        self._asked = np.array((*SMALL_ORDERS, self.block_order), np.int8)
        self.orders = np.zeros(self.slots, np.int8)
        self.is_live = np.zeros(self.slots, bool)

    def chunks(self, operations: int, chunk: int) -> Iterator[np.ndarray]:
        """The next `operations` events in pieces, `layout.EVENT` records; may be called again."""
        while operations > 0:
            size = min(chunk, operations)
            yield self._chunk(size)
            operations -= size

    def _chunk(self, size: int) -> np.ndarray:
        draw = self._random
        events = np.zeros(size, pm.synthetic.EVENT)
        events["time_ns"] = self._now + STEP_NS * np.arange(size)
        self._now += STEP_NS * size
        events["object"] = draw.integers(0, self.slots, size)
        events["cpu"] = draw.integers(0, self.nr_cpus, size)
        rare = draw.random(size)
        events["operation"] = np.select(
            [rare < 2e-5, rare < 2e-4], [DO.DRAIN_ALL, DO.TICK], DO.ALLOC
        )
        if size >= 4 * SPELL_SHARE:
            self._take_one_offline(events)
        self._fill_and_empty(events)
        return events

    def _take_one_offline(self, events: np.ndarray) -> None:
        """A CPU is dead for some of the events; others do its work meanwhile."""
        spell = len(events) // SPELL_SHARE
        first = int(self._random.integers(0, len(events) - spell))
        dead = int(self._random.integers(0, self.nr_cpus))
        other = (dead + 1) % self.nr_cpus
        part = events[first : first + spell]
        part["cpu"][part["cpu"] == dead] = other
        for event, operation in ((part[:1], DO.CPU_DIES), (part[-1:], DO.CPU_RETURNS)):
            event["operation"] = operation
            event["offset"] = dead

    def _fill_and_empty(self, events: np.ndarray) -> None:
        """Turn every other visit to a slot into the free of what the visit before allocated."""
        draw = self._random
        visits = np.flatnonzero(events["operation"] == DO.ALLOC)
        count = len(visits)
        slot = events["object"][visits]
        by_slot = np.argsort(slot, kind="stable")
        slot = slot[by_slot]
        begins = np.r_[True, slot[1:] != slot[:-1]]
        rank = np.arange(count) - np.maximum.accumulate(np.where(begins, np.arange(count), 0))
        frees = (rank + self.is_live[slot]) % 2 == 1
        order = self._asked[draw.integers(0, len(self._asked), count)]
        carried = frees & begins
        order[carried] = self.orders[slot[carried]]
        later = np.flatnonzero(frees & ~begins)
        order[later] = order[later - 1]
        ends = np.r_[begins[1:], True]
        self.is_live[slot[ends]] = ~frees[ends]
        self.orders[slot[ends]] = order[ends]
        rows = visits[by_slot]
        events["operation"][rows] = np.where(frees, DO.FREE, DO.ALLOC)
        events["order"][rows] = order
        events["zone"] = self.highest_type
        events["migratetype"] = TYPES[draw.integers(0, len(TYPES), len(events))]
        bits = REQUESTS[draw.integers(0, len(REQUESTS), len(events))]
        batched = (draw.random(len(events)) < 0.5).astype(np.uint32) * np.uint32(GFP.FREED_IN_BATCH)
        events["bits"] = np.where(events["operation"] == DO.FREE, batched, bits)


BLOCK_ORDER = 6
BLOCKS = 64
PAGES = BLOCKS << BLOCK_ORDER
"""Pages of the machine: two zones, the first with a quarter of them."""
NR_CPUS = 4
SLOTS = 1600
"""Objects that may be live at once: half of them are, and at times memory runs out."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Conservation:
    """State that random operations left."""

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
        broken.extend(broken_invariants(state) + misplaced_pages(state))
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
