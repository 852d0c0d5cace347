"""Free buddies placed in zones so that the start snapshot's counts are met."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pagealloc_model.allocator import layout as at
from pagealloc_model.allocator.state import maximal_buddies
from pagealloc_model.predicted.start.evidence import KERNEL_ONLY, PageEvidence, StartCounts
from pagealloc_model.recording.machine import Machine
from pagealloc_model.recording.proc import pages as flags


@dataclass(frozen=True, kw_only=True, eq=False)
class ZonePlacement:
    """Where a zone's free buddies were put.

    Attributes:
        free: bool per page frame of the zone's aligned span.
        block_types: int8 per pageblock of the span, -1 where there is no memory.
        unmet: int64, shape (orders, migratetypes): buddies that found no room at their order and
            were put into halves.
    """

    free: np.ndarray
    block_types: np.ndarray
    unmet: np.ndarray


@dataclass
class _Search:
    """A zone being filled, from the largest order down.

    A node is an aligned run of pages. An open node holds a page that is not free, so that no two
    free halves can merge; each open node therefore gives room to one free half at most.
    """

    usable: np.ndarray
    preferred: np.ndarray
    random: np.random.Generator
    free: np.ndarray
    unmet: np.ndarray

    def candidates(self, parents: np.ndarray, order: int) -> tuple[np.ndarray, np.ndarray]:
        """The better half of each open node that can be free, and how much speaks for it."""
        lower = parents >> order
        halves = np.stack([lower, lower + 1])
        fits = self.usable.reshape(-1, 1 << order)[halves].all(axis=2)
        known = self.preferred.reshape(-1, 1 << order)[halves].sum(axis=2, dtype=np.int64)
        score = np.where(fits, known + self.random.random(halves.shape), -1.0)
        best = score.argmax(axis=0)
        columns = np.arange(len(parents))
        return halves[best, columns] << order, score[best, columns]

    def take(self, starts: np.ndarray, score: np.ndarray, wanted: int) -> np.ndarray:
        """Numbers of the best `wanted` candidates, fewer if there are not so many."""
        able = np.flatnonzero(score >= 0) if wanted else np.zeros(0, np.int64)
        return able[np.argsort(-score[able], kind="stable")[:wanted]]

    def set_free(self, starts: np.ndarray, order: int) -> None:
        """Mark whole nodes free."""
        self.free.reshape(-1, 1 << order)[starts >> order] = True


def place_exactly(
    usable: np.ndarray,
    preferred: np.ndarray,
    memory: np.ndarray,
    evidence: np.ndarray,
    wanted: np.ndarray,
    blocks: np.ndarray,
    pageblock_order: int,
    max_order: int,
    random: np.random.Generator,
) -> ZonePlacement:
    """Choose free pages whose maximal buddies are those wanted."""
    search = _Search(
        usable=usable,
        preferred=preferred.astype(np.int8),
        random=random,
        free=np.zeros(len(usable), bool),
        unmet=np.zeros_like(wanted),
    )
    wanted = wanted.copy()
    types = np.full(len(memory), -1, np.int8)
    left = blocks.astype(np.int64).copy()
    parents = np.arange(0, len(usable), 1 << max_order)
    for order in range(max_order, pageblock_order - 1, -1):
        parents = _place_whole_blocks(
            search, parents, order, order == max_order, wanted, left, types, pageblock_order
        )
    open_blocks = parents[memory[parents >> pageblock_order]] >> pageblock_order
    room = usable.reshape(-1, 1 << pageblock_order).sum(axis=1)[open_blocks]
    sizes = np.int64(1) << np.arange(pageblock_order)
    needed = (wanted[:pageblock_order] * sizes[:, None]).sum(axis=0)
    types[open_blocks] = _dealt_types(evidence[:, open_blocks], room, left, needed, random)
    for migratetype in range(at.MIGRATETYPES):
        mine = open_blocks[types[open_blocks] == migratetype] << pageblock_order
        for order in range(pageblock_order - 1, -1, -1):
            mine = _place_in_blocks(search, mine, order, migratetype, wanted)
    return ZonePlacement(free=search.free, block_types=types, unmet=search.unmet)


def _place_whole_blocks(
    search: _Search,
    parents: np.ndarray,
    order: int,
    largest: bool,
    wanted: np.ndarray,
    left: np.ndarray,
    types: np.ndarray,
    pageblock_order: int,
) -> np.ndarray:
    """Place buddies of at least a pageblock; returns the open nodes of this order."""
    count = int(wanted[order].sum())
    if largest:
        size = 1 << order
        fits = search.usable.reshape(-1, size).all(axis=1)
        known = search.preferred.reshape(-1, size).sum(axis=1, dtype=np.int64)
        starts, score = parents, np.where(fits, known + search.random.random(len(fits)), -1.0)
        children = parents
    else:
        starts, score = search.candidates(parents, order)
        children = np.concatenate([parents, parents + (1 << order)])
    chosen = starts[search.take(starts, score, count)]
    kinds = np.repeat(np.arange(at.MIGRATETYPES), wanted[order])
    _hand_down(search, wanted, order, kinds[len(chosen) :])
    kinds = kinds[: len(chosen)]
    search.set_free(chosen, order)
    width = 1 << (order - pageblock_order)
    first = chosen >> pageblock_order
    types[(first[:, None] + np.arange(width)).ravel()] = np.repeat(kinds, width)
    left -= np.bincount(kinds, minlength=at.MIGRATETYPES) * width
    return np.setdiff1d(children, chosen, assume_unique=True)


def _place_in_blocks(
    search: _Search, parents: np.ndarray, order: int, migratetype: int, wanted: np.ndarray
) -> np.ndarray:
    """Place one type's buddies of one order below a pageblock's; returns the open nodes."""
    count = int(wanted[order, migratetype])
    starts, score = search.candidates(parents, order)
    chosen = starts[search.take(starts, score, count)]
    _hand_down(search, wanted, order, np.full(count - len(chosen), migratetype))
    search.set_free(chosen, order)
    children = np.concatenate([parents, parents + (1 << order)])
    return np.setdiff1d(children, chosen, assume_unique=True)


def _hand_down(search: _Search, wanted: np.ndarray, order: int, kinds: np.ndarray) -> None:
    """Have buddies for which there is no room placed as halves, order 0 not at all."""
    missing = np.bincount(kinds.astype(np.int64), minlength=at.MIGRATETYPES)
    search.unmet[order] += missing
    if order > 0:
        wanted[order - 1] += 2 * missing


def _dealt_types(
    evidence: np.ndarray,
    room: np.ndarray,
    left: np.ndarray,
    needed: np.ndarray,
    random: np.random.Generator,
) -> np.ndarray:
    """Types of blocks, int8: each type goes to the blocks for which most speaks; rest Movable.

    As many of these as must, the last first, make way for blocks in which the type's free pages
    fit: what is full speaks most for a type, and yet has no room for the pages it has free.
    No page's use speaks for HighAtomic, whose pages are mostly free: it goes where there is room.
    """
    nr_blocks = evidence.shape[1]
    types = np.full(nr_blocks, at.MOVABLE, np.int8)
    dealt = np.zeros(nr_blocks, bool)
    for migratetype in np.argsort(left, kind="stable"):
        if migratetype == at.MOVABLE or left[migratetype] <= 0:
            continue
        score = evidence[migratetype] - evidence[at.MOVABLE] + random.random(nr_blocks)
        if migratetype >= at.PCP_TYPES:
            score = room + random.random(nr_blocks)
        ranked = np.argsort(-score, kind="stable")
        ranked = ranked[~dealt[ranked]]
        chosen = _with_room(ranked, room, int(left[migratetype]), int(needed[migratetype]))
        types[chosen] = migratetype
        dealt[chosen] = True
    return types


def _with_room(ranked: np.ndarray, room: np.ndarray, count: int, needed: int) -> np.ndarray:
    """Return the first `count` blocks, as few as possible changed for later ones with more room."""
    best, others = ranked[:count], ranked[count:]
    others = others[np.argsort(-room[others], kind="stable")]
    most = min(len(best), len(others))
    kept = np.concatenate([[0], np.cumsum(room[best])])[len(best) - np.arange(most + 1)]
    total = kept + np.concatenate([[0], np.cumsum(room[others[:most]])])
    enough = np.flatnonzero(total >= needed)
    changed = int(enough[0]) if len(enough) else int(np.argmax(total))
    return np.concatenate([best[: len(best) - changed], others[:changed]])


def wanted_buddies(
    machine: Machine, counts: StartCounts, zone: int, on_lists: int
) -> tuple[np.ndarray, str]:
    """Free buddies by order and type at the first event, and how they were had.

    What the snapshot's free lists have too few or too many is given to, or taken from, Movable
    buddies: those by which the other snapshot of the start differs, large ones first, then the
    largest.

    Args:
        machine: zones and geometry.
        counts: what the snapshots count.
        zone: index of the zone.
        on_lists: pages on its per-CPU lists.

    Returns:
        int64, shape (orders, migratetypes), and one line.
    """
    name = machine.zone_title(zone)
    free_pages = int(counts.free_pages[zone]) - on_lists
    sizes = np.int64(1) << np.arange(at.ORDERS)
    wanted = np.zeros((at.ORDERS, at.MIGRATETYPES), np.int64)
    if counts.free_buddies is None or counts.other_buddies is None:
        _change_by(wanted[:, at.MOVABLE], free_pages, machine.max_order)
        return wanted, f"{name}: {free_pages} free pages, their orders unknown: large ones"
    wanted = counts.free_buddies[zone].copy()
    missing = free_pages - int((wanted.sum(axis=1) * sizes).sum())
    difference = counts.other_buddies[zone, :, at.MOVABLE] - wanted[:, at.MOVABLE]
    left = _move_towards(wanted[:, at.MOVABLE], difference, missing)
    _change_by(wanted[:, at.MOVABLE], left, machine.max_order)
    return wanted, (
        f"{name}: {free_pages} pages free in the buddy, {on_lists} on per-CPU lists; "
        f"{abs(missing)} pages {'more' if missing >= 0 else 'fewer'} in the buddy than the nearest "
        "snapshot's free lists show, put into or taken from Movable ones"
    )


def _move_towards(buddies: np.ndarray, difference: np.ndarray, pages: int) -> int:
    """Change buddies by order in the direction and at most by the amount given; in place."""
    sign = 1 if pages >= 0 else -1
    left = abs(pages)
    for order in range(len(buddies) - 1, -1, -1):
        moved = min(max(sign * int(difference[order]), 0), left >> order)
        buddies[order] += sign * moved
        left -= moved << order
    return sign * left


def _change_by(buddies: np.ndarray, pages: int, max_order: int) -> None:
    """Add pages to, or take them from, buddies by order, the largest first; in place."""
    order = max_order
    while pages > 0:
        buddies[order] += pages >> order
        pages &= (1 << order) - 1
        order -= 1
    pages = -pages
    for order in range(max_order, -1, -1):
        if pages <= 0:
            break
        taken = min(int(buddies[order]), -(-pages >> order))
        buddies[order] -= taken
        pages -= taken << order
    if pages < 0:
        _change_by(buddies, -pages, max_order)


def place_zone(
    machine: Machine,
    index: int,
    usable: np.ndarray,
    preferred: np.ndarray,
    blocks: np.ndarray,
    evidence: np.ndarray,
    wanted: np.ndarray,
    counts: StartCounts,
    random: np.random.Generator,
) -> ZonePlacement:
    """One zone's free buddies, in arrays that begin and end at a multiple of the largest order.

    Args:
        machine: zones and geometry.
        index: the zone.
        usable: bool per page frame of the machine: may be free.
        preferred: per page frame: how much speaks for its being free.
        blocks: numbers of the zone's pageblocks with memory.
        evidence: int64, shape (migratetypes, blocks of the machine).
        wanted: from `wanted_buddies`.
        counts: pageblocks by type.
        random: decides what nothing else does.
    """
    first, last = _span(machine, index)
    order = machine.pageblock_order
    memory = np.zeros((last - first) >> order, bool)
    memory[blocks - (first >> order)] = True
    zone = machine.zones[index]
    frames = np.arange(first, last)
    inside = (frames >= zone.start_pfn) & (frames < zone.end_pfn)
    inside &= np.repeat(memory, 1 << order)
    inside &= _filled_up(usable, first, last)
    block_counts = np.zeros(at.MIGRATETYPES, np.int64)
    block_counts[at.MOVABLE] = int(memory.sum())
    if counts.blocks is not None:
        block_counts = counts.blocks[index]
    near = np.zeros((at.MIGRATETYPES, len(memory)), np.int64)
    found = evidence[:, first >> order : last >> order]
    near[:, : found.shape[1]] = found
    return place_exactly(
        inside,
        _filled_up(preferred, first, last),
        memory,
        near,
        wanted,
        block_counts,
        order,
        machine.max_order,
        random,
    )


def _span(machine: Machine, index: int) -> tuple[int, int]:
    zone, step = machine.zones[index], 1 << machine.max_order
    return zone.start_pfn // step * step, -(-zone.end_pfn // step) * step


def _filled_up(mask: np.ndarray, first: int, last: int) -> np.ndarray:
    """Part of an array by page frame; 0 behind its end."""
    part = np.zeros(last - first, mask.dtype)
    found = mask[first:last]
    part[: len(found)] = found
    return part


def put_placement(
    machine: Machine,
    index: int,
    placed: ZonePlacement,
    free: np.ndarray,
    block_types: np.ndarray,
) -> None:
    """Enter one zone's placement into the machine's arrays."""
    first, last = _span(machine, index)
    last = min(last, len(free))
    free[first:last] |= placed.free[: last - first]
    order = machine.pageblock_order
    mine = placed.block_types[: (last >> order) - (first >> order)]
    part = block_types[first >> order : last >> order]
    part[mine >= 0] = mine[mine >= 0]


def placement_line(
    machine: Machine, wanted: np.ndarray, placed: ZonePlacement, counts: StartCounts, index: int
) -> str:
    """One line: which counts of a zone are met, which are not."""
    name = machine.zone_title(index)
    off = []
    sizes = np.int64(1) << np.arange(at.ORDERS)
    split = int((placed.unmet.sum(axis=1) * sizes)[1:].sum())
    if placed.unmet.any():
        lost = int(placed.unmet[0].sum())
        off.append(f"{split} pages found no room at their order, {lost} none at all")
    if counts.blocks is not None:
        found = np.bincount(
            placed.block_types[placed.block_types >= 0].astype(np.int64),
            minlength=at.MIGRATETYPES,
        )
        blocks = int(np.abs(found - counts.blocks[index]).sum()) // 2
        if blocks:
            off.append(f"{blocks} pageblocks have another type than counted")
    total = int(wanted.sum())
    if not off:
        return f"{name}: {total} free buddies by order and type, and blocks by type: all met"
    return f"{name}: of {total} free buddies by order and type, {'; '.join(off)}"


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
