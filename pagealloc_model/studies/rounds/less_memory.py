"""A recorded machine with less memory: blocks that nothing held on to were never there."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from pagealloc_model.allocator import pressure_layout as pr
from pagealloc_model.base.errors import UsageError
from pagealloc_model.base.text.counts import count_of
from pagealloc_model.policy.kernel_rules import KernelRules
from pagealloc_model.policy.policy import Policy
from pagealloc_model.predicted.prepared import Prepared
from pagealloc_model.recording.machine import Machine
from pagealloc_model.recording.made_up_machine import GIB_PAGES, min_free_kbytes_at_boot


def with_less_memory(prepared: Prepared, gib: float, rules: KernelRules) -> Prepared:
    """Return a recording made ready on a machine of so much memory.

    Pageblocks are taken out of the zones as if they were holes: free ones first, then those with
    pages of files beside free ones only, those with most free pages first; of equals the highest.
    What files had there is not cached then. Watermarks are what the smaller machine has at boot;
    the per-CPU lists' limits stay.

    Args:
        prepared: of an elastic replay.
        gib: memory that the zones manage, GiB.
        rules: for the watermarks.

    Raises:
        UsageError: more than was recorded, or less than the start has in use otherwise.
    """
    machine, image = prepared.machine, prepared.image
    managed = sum(zone.managed for zone in machine.zones)
    goal = managed - int(gib * GIB_PAGES)
    if goal < 0:
        raise UsageError(
            f"{gib} GiB is more than the {managed / GIB_PAGES:.2f} GiB that was recorded"
        )
    block_pages = 1 << machine.pageblock_order
    free, removable = _removable(prepared, block_pages)
    blocks = np.flatnonzero(removable)
    by_free = np.lexsort((-blocks, -free[blocks]))
    chosen = blocks[by_free[: -(-goal // block_pages)]]
    if len(chosen) * block_pages < goal:
        least = (managed - len(blocks) * block_pages) / GIB_PAGES
        raise UsageError(
            f"{gib} GiB is too little: the recording begins with {least:.2f} GiB in use; ask for "
            "more"
        )
    gone = np.zeros(len(image.block_types), bool)
    gone[chosen] = True
    pages = np.repeat(gone, block_pages)[: len(image.free)]
    listed = image.listed[~pages[image.listed["pfn"]]]
    kept = ~pages[image.allocated_pfn]
    smaller = replace(
        image,
        free=image.free & ~pages,
        movable=image.movable & ~pages,
        block_types=np.where(gone, -1, image.block_types).astype(np.int8),
        listed=listed,
        allocated_pfn=image.allocated_pfn[kept],
        allocated_order=image.allocated_order[kept],
        origin=(*image.origin, f"{count_of(len(chosen), 'pageblock')} taken out, {gib:g} GiB left"),
    )
    lru = np.where(pages[: len(prepared.lru)], 0, prepared.lru).astype(np.int8)
    shrunk = _smaller_machine(machine, chosen << machine.pageblock_order, block_pages, rules)
    return replace(prepared, machine=shrunk, image=smaller, lru=lru)


def _removable(prepared: Prepared, block_pages: int) -> tuple[np.ndarray, np.ndarray]:
    """Return free pages by block, and whether it holds nothing but these and pages of files."""
    image, demand = prepared.image, prepared.demand
    blocks = len(image.block_types)
    file_pages = (prepared.lru == pr.INACTIVE_FILE + 1) | (prepared.lru == pr.ACTIVE_FILE + 1)
    file_pages = file_pages[: len(image.free)] & image.movable
    file_pages[demand.objects["pfn"][demand.at_start]] = False
    free = _by_block(image.free, blocks, block_pages)
    spare = free + _by_block(file_pages, blocks, block_pages)
    return free, (spare == block_pages) & (image.block_types >= 0)


def _by_block(pages: np.ndarray, blocks: int, block_pages: int) -> np.ndarray:
    """Return how many pages of each block are marked, int64."""
    whole = np.zeros(blocks * block_pages, bool)
    whole[: len(pages)] = pages
    return whole.reshape(blocks, block_pages).sum(axis=1)


def _smaller_machine(
    machine: Machine, firsts: np.ndarray, block_pages: int, rules: KernelRules
) -> Machine:
    """Return the machine without some blocks, with the watermarks that it has at boot."""
    zones = []
    for zone in machine.zones:
        own = (firsts >= zone.start_pfn) & (firsts < zone.end_pfn)
        lost = int(own.sum()) * block_pages
        zones.append(replace(zone, managed=zone.managed - lost, present=zone.present - lost))
    smaller = replace(machine, zones=tuple(zones))
    factor = machine.watermark_scale_factor
    sizes = Policy(min_free_kbytes=min_free_kbytes_at_boot(smaller), watermark_scale_factor=factor)
    return smaller.with_watermarks(sizes, rules)
