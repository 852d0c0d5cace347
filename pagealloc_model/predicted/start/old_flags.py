"""Zones whose page flags are too old: free pages placed anew by the counts."""

from __future__ import annotations

import numpy as np

from pagealloc_model.allocator.core import layout as at
from pagealloc_model.allocator.core.initial import maximal_buddies
from pagealloc_model.predicted.start.page_evidence import KERNEL_ONLY, PageEvidence
from pagealloc_model.predicted.start.start_counts import StartCounts
from pagealloc_model.predicted.start.zone_placement import (
    place_zone,
    placement_line,
    put_placement,
    wanted_buddies,
)
from pagealloc_model.recording.machine import Machine
from pagealloc_model.recording.proc import pages as flags

TOO_OLD = 0.01
"""Share of a zone's free pages in another cell of the table than in the snapshot."""


def place_where_flags_are_old(
    machine: Machine,
    counts: StartCounts,
    evidence: PageEvidence,
    on_lists: np.ndarray,
    listed_pages: np.ndarray,
    free: np.ndarray,
    block_types: np.ndarray,
    *,
    seed: int,
) -> list[str]:
    """Place a zone's free buddies by the counts if following its flags misses them; say so.

    A zone whose memory was mostly allocated or freed after the flags were read looks in the image
    as it did then. Its counts are known, so they are met, with pages that flags or first touches
    show free before others.

    Args:
        machine: zones and geometry.
        counts: what to meet; nothing is done without pagetypeinfo.
        evidence: flags of every page.
        on_lists: bool per page frame: on a per-CPU list.
        listed_pages: int64, shape (zones,): pages on per-CPU lists.
        free: bool per page frame, changed in place.
        block_types: int8 per pageblock, changed in place.
        seed: for what nothing settles.
    """
    lines: list[str] = []
    if counts.free_buddies is None:
        return lines
    random = np.random.default_rng(seed)
    shares = misplaced(machine, counts, listed_pages, free, block_types)
    if not (shares > TOO_OLD).any():
        return lines
    fresh = evidence.touched & evidence.free
    usable = ~on_lists & ~evidence.owned & (fresh | ~evidence.touched)
    usable &= (evidence.words & (KERNEL_ONLY | flags.HUGE | flags.RESERVED | flags.NOPAGE)) == 0
    weight = 2 * (fresh | evidence.taken).astype(np.int64) + evidence.free
    for index in np.flatnonzero(shares > TOO_OLD):
        wanted, note = wanted_buddies(machine, counts, int(index), int(listed_pages[index]))
        blocks = evidence.memory_blocks[index]
        placed = place_zone(
            machine,
            int(index),
            usable,
            weight,
            blocks,
            _type_evidence(machine, evidence),
            wanted,
            counts,
            random,
        )
        zone = machine.zones[index]
        free[zone.start_pfn : zone.end_pfn] = False
        put_placement(machine, int(index), placed, free, block_types)
        lines.append(
            f"{machine.zone_title(int(index))}: what page flags show is too old, "
            f"{100 * shares[index]:.0f} % of its free pages would stand in another cell of order "
            "and type than the counts ask for; placed by the counts instead"
        )
        lines += [note, placement_line(machine, wanted, placed, counts, int(index))]
    return lines


def buddy_table(machine: Machine, free: np.ndarray, block_types: np.ndarray) -> np.ndarray:
    """Free buddies of an image, int64, shape (zones, orders, migratetypes)."""
    pfns, orders = maximal_buddies(free, block_types, machine.pageblock_order, machine.max_order)
    types = block_types[pfns >> machine.pageblock_order].astype(np.int64)
    table = np.zeros((len(machine.zones), at.ORDERS, at.MIGRATETYPES), np.int64)
    for index, zone in enumerate(machine.zones):
        mine = (pfns >= zone.start_pfn) & (pfns < zone.end_pfn) & (types >= 0)
        np.add.at(table[index], (orders[mine].astype(np.int64), types[mine]), 1)
    return table


def misplaced(
    machine: Machine,
    counts: StartCounts,
    listed_pages: np.ndarray,
    free: np.ndarray,
    block_types: np.ndarray,
) -> np.ndarray:
    """Share of each zone's free pages that are in another cell than counted, shape (zones,).

    Args:
        machine: zones and geometry.
        counts: what the snapshot counts; there is a pagetypeinfo.
        listed_pages: int64, shape (zones,): pages on per-CPU lists.
        free: bool per page frame.
        block_types: int8 per pageblock.
    """
    found = buddy_table(machine, free, block_types)
    sizes = np.int64(1) << np.arange(at.ORDERS)
    shares = np.zeros(len(machine.zones))
    for index, zone in enumerate(machine.zones):
        if zone.managed:
            wanted, _ = wanted_buddies(machine, counts, index, int(listed_pages[index]))
            off = int((np.abs(found[index] - wanted).sum(axis=1) * sizes).sum()) / 2
            shares[index] = off / max(int((wanted.sum(axis=1) * sizes).sum()), 1)
    return shares


def _type_evidence(machine: Machine, evidence: PageEvidence) -> np.ndarray:
    """How many pages speak for each type of a block, int64, shape (migratetypes, blocks)."""
    pages = 1 << machine.pageblock_order
    slab = ((evidence.words & flags.SLAB) != 0).reshape(-1, pages).sum(axis=1)
    plain = evidence.plain.reshape(-1, pages).sum(axis=1)
    movable = (evidence.migratable | evidence.free).reshape(-1, pages).sum(axis=1)
    table = np.zeros((at.MIGRATETYPES, len(slab)), np.int64)
    table[at.UNMOVABLE] = slab + plain
    table[at.RECLAIMABLE] = 2 * slab
    table[at.MOVABLE] = movable
    for migratetype in range(at.MIGRATETYPES):
        table[migratetype][evidence.block_types == migratetype] += 4 * pages
    return table
