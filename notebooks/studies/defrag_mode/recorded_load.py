"""A recording made ready to be gone through again: its demand, its start, less memory."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

import pagealloc_model as pm
from pagealloc_model.allocator.objects import AT_START, GROWN
from pagealloc_model.allocator.pressure_layout import ACTIVE_FILE, INACTIVE_FILE
from pagealloc_model.base.text import count_of
from pagealloc_model.measured.rules import choose_rules
from pagealloc_model.predicted.carrier import ModelCarrier
from pagealloc_model.predicted.demand.demand import Demand as RecordedDemand
from pagealloc_model.predicted.elastic_values import elastic_values
from pagealloc_model.predicted.prepared import Prepared, prepare
from pagealloc_model.predicted.reclaim_mode import in_force
from pagealloc_model.recording.machine import GIB_PAGES, Machine, min_free_kbytes_at_boot
from pagealloc_model.recording.recorded_machine import effective_policy
from pagealloc_model.recording.trace.columns import Event

TABLE_GFP = 0x400100
"""__GFP_ACCOUNT and __GFP_ZERO: page tables of tasks, pages of order 0 that cannot be moved."""
UNLIKE_TABLES = 0x18
"""__GFP_MOVABLE and __GFP_RECLAIMABLE."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Recorded:
    """A recording made ready for runs by the model's own reclaim and compaction.

    Attributes:
        prepared: its machine, demand and start.
        policy: the effective policy.
        seed: of what nothing settles.
    """

    recording: pm.Recording
    prepared: Prepared
    policy: pm.Policy
    rules: pm.KernelRules
    assumptions: pm.Assumptions
    seed: int

    @property
    def machine(self) -> Machine:
        """The machine that it runs on."""
        return self.prepared.machine

    @property
    def demand(self) -> RecordedDemand:
        """Recorded requests: `EVENT` records, objects and their leads."""
        return self.prepared.demand

    @cached_property
    def is_from_start(self) -> np.ndarray:
        """Objects that lived at the start, or came with added memory: bool by object."""
        return np.isin(self.demand.objects["kind"], (AT_START, GROWN))

    @property
    def page_tables_ns(self) -> np.ndarray:
        """Return when page tables of tasks were asked for, int64.

        As include/asm-generic/pgalloc.h, 7.3, asks for them. Other zeroed pages that are charged to
        a task are among them, which end with it as well.
        """
        trace = self.recording.trace
        is_table = (trace.gfp & np.uint32(TABLE_GFP | UNLIKE_TABLES)) == np.uint32(TABLE_GFP)
        return trace.time_ns[is_table & (trace.event == Event.ALLOC) & (trace.order == 0)]

    @property
    def free_pages(self) -> int:
        """Pages that are free when the recording begins."""
        return int(self.prepared.image.free.sum())

    def with_less_memory(self, gib: float) -> Recorded:
        """The same on a machine of so much memory: see `with_less_memory`."""
        return replace(self, prepared=with_less_memory(self.prepared, gib, self.rules))

    def begin(self, places: np.ndarray, leads: np.ndarray) -> ModelCarrier:
        """The state that the recording begins with, ready for events; writes objects' places."""
        starting = self.demand.starting_places()
        places[: len(starting)] = starting
        state = self.prepared.state(self.rules, self.policy, self.assumptions, self.seed)
        return ModelCarrier(state, leads)


def recorded(
    recording: pm.Recording,
    policy: pm.Policy | None = None,
    *,
    rules: pm.KernelRules | str | None = None,
    assumptions: pm.Assumptions | None = None,
    seed: int = 0,
) -> Recorded:
    """Make a recording ready."""
    if assumptions is None:
        assumptions = elastic_values(recording).costs_alone
    assumptions = in_force(replace(assumptions, reclaim="elastic"), recording)
    chosen = choose_rules(recording, rules).rules
    return Recorded(
        recording=recording,
        prepared=prepare(recording, chosen, assumptions, seed),
        policy=effective_policy(recording, policy, elastic=True),
        rules=chosen,
        assumptions=assumptions,
        seed=seed,
    )


def with_less_memory(prepared: Prepared, gib: float, rules: pm.KernelRules) -> Prepared:
    """Return a recording made ready on a machine of so much memory.

    Pageblocks are taken out of the zones as if they were holes: free ones first, then those with
    pages of files beside free ones only, those with most free pages first; of equals the highest.
    Their pages of files are not cached then. Watermarks are what the smaller machine has at boot;
    the per-CPU lists' limits stay.
    """
    machine, image = prepared.machine, prepared.image
    managed = sum(zone.managed for zone in machine.zones)
    goal = managed - int(gib * GIB_PAGES)
    if goal < 0:
        raise pm.UsageError(
            f"{gib} GiB is more than the {managed / GIB_PAGES:.2f} GiB that was recorded"
        )
    block_pages = 1 << machine.pageblock_order
    file_pages = (prepared.lru == INACTIVE_FILE + 1) | (prepared.lru == ACTIVE_FILE + 1)
    file_pages = file_pages[: len(image.free)] & image.movable
    file_pages[prepared.demand.objects["pfn"][prepared.demand.at_start]] = False
    whole = np.zeros((2, len(image.block_types) * block_pages), bool)
    whole[:, : len(image.free)] = image.free, file_pages
    free, cached = whole.reshape(2, -1, block_pages).sum(axis=2)
    blocks = np.flatnonzero((free + cached == block_pages) & (image.block_types >= 0))
    by_free = np.lexsort((-blocks, -free[blocks]))
    chosen = blocks[by_free[: -(-goal // block_pages)]]
    if len(chosen) * block_pages < goal:
        least = (managed - len(blocks) * block_pages) / GIB_PAGES
        raise pm.UsageError(
            f"{gib} GiB is too little: the recording begins with {least:.2f} GiB in use; ask for "
            "more"
        )
    gone = np.zeros(len(image.block_types), bool)
    gone[chosen] = True
    pages = np.repeat(gone, block_pages)[: len(image.free)]
    stays = ~pages[image.allocated_pfn]
    smaller = replace(
        image,
        free=image.free & ~pages,
        movable=image.movable & ~pages,
        block_types=np.where(gone, -1, image.block_types).astype(np.int8),
        listed=image.listed[~pages[image.listed["pfn"]]],
        allocated_pfn=image.allocated_pfn[stays],
        allocated_order=image.allocated_order[stays],
        origin=(*image.origin, f"{count_of(len(chosen), 'pageblock')} taken out, {gib:g} GiB left"),
    )
    zones = []
    for zone in machine.zones:
        firsts = chosen << machine.pageblock_order
        lost = int(((firsts >= zone.start_pfn) & (firsts < zone.end_pfn)).sum()) * block_pages
        zones.append(replace(zone, managed=zone.managed - lost, present=zone.present - lost))
    shrunk = replace(machine, zones=tuple(zones))
    watermarks = pm.Policy(
        min_free_kbytes=min_free_kbytes_at_boot(shrunk),
        watermark_scale_factor=machine.watermark_scale_factor,
    )
    return replace(
        prepared,
        machine=shrunk.with_watermarks(watermarks, rules),
        image=smaller,
        lru=np.where(pages[: len(prepared.lru)], 0, prepared.lru).astype(np.int8),
    )
