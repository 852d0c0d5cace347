"""Free buddies placed in zones so that the start snapshot's counts are met."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pagealloc_model.allocator import layout as at
from pagealloc_model.allocator.state import maximal_buddies
from pagealloc_model.predicted.start.evidence import KERNEL_ONLY, PageEvidence, StartCounts
from pagealloc_model.recording.machine import Machine
from pagealloc_model.recording.proc import pages as flags

_SIZES = np.int64(1) << np.arange(at.ORDERS)


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
    """Choose free pages whose maximal buddies are those wanted, from the largest order down.

    A node is an aligned run of pages. An open node holds a page that is not free, so that no two
    free halves can merge; each open node therefore gives room to one free half at most.

    Args:
        usable: bool per page frame: may be free.
        preferred: per page frame: how much speaks for its being free.
        memory: bool per pageblock: has memory.
        evidence: int64, shape (migratetypes, blocks): how much speaks for each type.
        wanted: int64, shape (orders, migratetypes).
        blocks: int64 by migratetype: pageblocks.
        pageblock_order: of a pageblock.
        max_order: of the largest buddy; the arrays begin and end at a multiple of it.
        random: decides what nothing else does.
    """
    wanted, unmet = wanted.copy(), np.zeros_like(wanted)
    free, preferred = np.zeros(len(usable), bool), preferred.astype(np.int8)

    def score_of(nodes: np.ndarray, order: int) -> np.ndarray:
        """How much speaks for nodes, given by their number, -1 where one cannot be free."""
        fits = usable.reshape(-1, 1 << order)[nodes].all(axis=-1)
        known = preferred.reshape(-1, 1 << order)[nodes].sum(axis=-1, dtype=np.int64)
        return np.where(fits, known + random.random(nodes.shape), -1.0)

    def place(starts: np.ndarray, score: np.ndarray, order: int, kinds: np.ndarray) -> np.ndarray:
        """Free the best nodes, one for each kind; what finds no room is placed as halves."""
        able = np.flatnonzero(score >= 0) if len(kinds) else np.zeros(0, np.int64)
        chosen = starts[able[np.argsort(-score[able], kind="stable")[: len(kinds)]]]
        free.reshape(-1, 1 << order)[chosen >> order] = True
        missing = np.bincount(kinds[len(chosen) :], minlength=at.MIGRATETYPES)
        unmet[order] += missing
        if order > 0:
            wanted[order - 1] += 2 * missing
        return chosen

    def better_halves(parents: np.ndarray, order: int) -> tuple[np.ndarray, np.ndarray]:
        """The better half of each open node, and how much speaks for it."""
        lower = parents >> order
        halves = np.stack([lower, lower + 1])
        score = score_of(halves, order)
        best = score.argmax(axis=0), np.arange(len(parents))
        return halves[best] << order, score[best]

    types = np.full(len(memory), -1, np.int8)
    left = blocks.astype(np.int64).copy()
    parents = np.arange(0, len(usable), 1 << max_order)
    for order in range(max_order, pageblock_order - 1, -1):
        if order == max_order:
            starts, children = parents, parents
            score = score_of(parents >> order, order)
        else:
            starts, score = better_halves(parents, order)
            children = np.concatenate([parents, parents + (1 << order)])
        kinds = np.repeat(np.arange(at.MIGRATETYPES), wanted[order])
        chosen = place(starts, score, order, kinds)
        kinds, width = kinds[: len(chosen)], 1 << (order - pageblock_order)
        of_blocks = ((chosen >> pageblock_order)[:, None] + np.arange(width)).ravel()
        types[of_blocks] = np.repeat(kinds, width)
        left -= np.bincount(kinds, minlength=at.MIGRATETYPES) * width
        parents = np.setdiff1d(children, chosen, assume_unique=True)
    open_blocks = parents[memory[parents >> pageblock_order]] >> pageblock_order
    room = usable.reshape(-1, 1 << pageblock_order).sum(axis=1)[open_blocks]
    needed = (wanted[:pageblock_order] * _SIZES[:pageblock_order, None]).sum(axis=0)
    types[open_blocks] = _dealt_types(evidence[:, open_blocks], room, left, needed, random)
    for migratetype in range(at.MIGRATETYPES):
        parents = open_blocks[types[open_blocks] == migratetype] << pageblock_order
        for order in range(pageblock_order - 1, -1, -1):
            kinds = np.full(int(wanted[order, migratetype]), migratetype)
            chosen = place(*better_halves(parents, order), order, kinds)
            children = np.concatenate([parents, parents + (1 << order)])
            parents = np.setdiff1d(children, chosen, assume_unique=True)
    return ZonePlacement(free=free, block_types=types, unmet=unmet)


def _dealt_types(
    evidence: np.ndarray,
    room: np.ndarray,
    left: np.ndarray,
    needed: np.ndarray,
    random: np.random.Generator,
) -> np.ndarray:
    """Types of blocks, int8: each type goes to the blocks for which most speaks; rest Movable.

    As few as possible of these, the last first, make way for blocks in which the type's free pages
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
        best, others = np.split(ranked, [int(left[migratetype])])
        others = others[np.argsort(-room[others], kind="stable")]
        most = min(len(best), len(others))
        kept = np.concatenate([[0], np.cumsum(room[best])])[len(best) - np.arange(most + 1)]
        total = kept + np.concatenate([[0], np.cumsum(room[others[:most]])])
        enough = np.flatnonzero(total >= int(needed[migratetype]))
        changed = int(enough[0]) if len(enough) else int(np.argmax(total))
        chosen = np.concatenate([best[: len(best) - changed], others[:changed]])
        types[chosen] = migratetype
        dealt[chosen] = True
    return types


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
    wanted = np.zeros((at.ORDERS, at.MIGRATETYPES), np.int64)
    if counts.free_buddies is None or counts.other_buddies is None:
        _change_by(wanted[:, at.MOVABLE], free_pages, machine.max_order)
        return wanted, f"{name}: {free_pages} free pages, their orders unknown: large ones"
    wanted = counts.free_buddies[zone].copy()
    movable = wanted[:, at.MOVABLE]
    missing = free_pages - int((wanted.sum(axis=1) * _SIZES).sum())
    difference = counts.other_buddies[zone, :, at.MOVABLE] - movable
    sign, left = 1 if missing >= 0 else -1, abs(missing)
    for order in range(len(movable) - 1, -1, -1):
        moved = min(max(sign * int(difference[order]), 0), left >> order)
        movable[order] += sign * moved
        left -= moved << order
    _change_by(movable, sign * left, machine.max_order)
    return wanted, (
        f"{name}: {free_pages} pages free in the buddy, {on_lists} on per-CPU lists; "
        f"{abs(missing)} pages {'more' if missing >= 0 else 'fewer'} in the buddy than the nearest "
        "snapshot's free lists show, put into or taken from Movable ones"
    )


def _change_by(buddies: np.ndarray, pages: int, max_order: int) -> None:
    """Add pages to, or take them from, buddies by order, the largest first; in place."""
    for order in range(max_order, -1, -1):
        if pages > 0:
            buddies[order] += pages >> order
            pages &= (1 << order) - 1
        elif pages < 0:
            taken = min(int(buddies[order]), -(pages >> order))
            buddies[order] -= taken
            pages += taken << order
            if pages > 0:
                _change_by(buddies, pages, max_order)
                return


def place_zone(
    machine: Machine,
    counts: StartCounts,
    index: int,
    on_lists: int,
    *,
    usable: np.ndarray,
    preferred: np.ndarray,
    blocks: np.ndarray,
    evidence: np.ndarray,
    free: np.ndarray,
    block_types: np.ndarray,
    random: np.random.Generator,
) -> list[str]:
    """Place one zone's free buddies by the counts; how they were had, and which counts are met."""
    wanted, note = wanted_buddies(machine, counts, index, on_lists)
    zone, order, step = machine.zones[index], machine.pageblock_order, 1 << machine.max_order
    first, last = zone.start_pfn // step * step, -(-zone.end_pfn // step) * step
    first_block = first >> order
    memory = np.zeros((last - first) >> order, bool)
    memory[blocks - first_block] = True

    def span_of(mask: np.ndarray) -> np.ndarray:
        part = mask[first:last]
        return np.concatenate([part, np.zeros(last - first - len(part), mask.dtype)])

    frames = np.arange(first, last)
    inside = (frames >= zone.start_pfn) & (frames < zone.end_pfn)
    inside &= np.repeat(memory, 1 << order) & span_of(usable)
    block_counts = np.zeros(at.MIGRATETYPES, np.int64)
    block_counts[at.MOVABLE] = int(memory.sum())
    near = np.zeros((at.MIGRATETYPES, len(memory)), np.int64)
    known = evidence[:, first_block : last >> order]
    near[:, : known.shape[1]] = known
    placed = place_exactly(
        inside,
        span_of(preferred),
        memory,
        near,
        wanted,
        block_counts if counts.blocks is None else counts.blocks[index],
        order,
        machine.max_order,
        random,
    )
    end = min(last, len(free))
    free[first:end] |= placed.free[: end - first]
    types = placed.block_types[: (end >> order) - first_block]
    block_types[first_block : end >> order][types >= 0] = types[types >= 0]
    off = []
    if placed.unmet.any():
        split = int((placed.unmet.sum(axis=1) * _SIZES)[1:].sum())
        lost = int(placed.unmet[0].sum())
        off.append(f"{split} pages found no room at their order, {lost} none at all")
    if counts.blocks is not None:
        types = placed.block_types[placed.block_types >= 0].astype(np.int64)
        by_type = np.bincount(types, minlength=at.MIGRATETYPES)
        others = int(np.abs(by_type - counts.blocks[index]).sum()) // 2
        if others:
            off.append(f"{others} pageblocks have another type than counted")
    name, total = machine.zone_title(index), int(wanted.sum())
    if off:
        return [note, f"{name}: of {total} free buddies by order and type, {'; '.join(off)}"]
    met = f"{name}: {total} free buddies by order and type, and blocks by type: all met"
    return [note, met]


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
    types = _type_evidence(machine, evidence)
    for index in np.flatnonzero(shares > TOO_OLD).tolist():
        zone = machine.zones[index]
        free[zone.start_pfn : zone.end_pfn] = False
        lines.append(
            f"{machine.zone_title(index)}: what page flags show is too old, "
            f"{100 * shares[index]:.0f} % of its free pages would stand in another cell of order "
            "and type than the counts ask for; placed by the counts instead"
        )
        lines += place_zone(
            machine,
            counts,
            index,
            int(listed_pages[index]),
            usable=usable,
            preferred=weight,
            blocks=evidence.memory_blocks[index],
            evidence=types,
            free=free,
            block_types=block_types,
            random=random,
        )
    return lines


def buddy_table(machine: Machine, free: np.ndarray, block_types: np.ndarray) -> np.ndarray:
    """Free buddies of an image, int64, shape (zones, orders, migratetypes)."""
    pfns, orders = maximal_buddies(free, block_types, machine.pageblock_order, machine.max_order)
    types = block_types[pfns >> machine.pageblock_order].astype(np.int64)
    table = np.zeros((len(machine.zones), at.ORDERS, at.MIGRATETYPES), np.int64)
    for index, zone in enumerate(machine.zones):
        inside = (pfns >= zone.start_pfn) & (pfns < zone.end_pfn) & (types >= 0)
        np.add.at(table[index], (orders[inside].astype(np.int64), types[inside]), 1)
    return table


def misplaced(
    machine: Machine,
    counts: StartCounts,
    listed_pages: np.ndarray,
    free: np.ndarray,
    block_types: np.ndarray,
) -> np.ndarray:
    """Share of each zone's free pages that are in another cell than counted, shape (zones,)."""
    table = buddy_table(machine, free, block_types)
    shares = np.zeros(len(machine.zones))
    for index, zone in enumerate(machine.zones):
        if zone.managed:
            wanted, _ = wanted_buddies(machine, counts, index, int(listed_pages[index]))
            off = int((np.abs(table[index] - wanted).sum(axis=1) * _SIZES).sum()) / 2
            shares[index] = off / max(int((wanted.sum(axis=1) * _SIZES).sum()), 1)
    return shares


def _type_evidence(machine: Machine, evidence: PageEvidence) -> np.ndarray:
    """How many pages speak for each type of a block, int64, shape (migratetypes, blocks)."""
    pages = 1 << machine.pageblock_order
    slab, plain, movable = (
        mask.reshape(-1, pages).sum(axis=1)
        for mask in (
            (evidence.words & flags.SLAB) != 0,
            evidence.plain,
            evidence.migratable | evidence.free,
        )
    )
    table = np.zeros((at.MIGRATETYPES, len(slab)), np.int64)
    table[at.UNMOVABLE] = slab + plain
    table[at.RECLAIMABLE] = 2 * slab
    table[at.MOVABLE] = movable
    for migratetype in range(at.MIGRATETYPES):
        table[migratetype][evidence.block_types == migratetype] += 4 * pages
    return table
