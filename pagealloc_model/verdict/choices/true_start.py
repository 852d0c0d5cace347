"""Where pages were when a recording began, with the help of all that follows."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from pagealloc_model.allocator import layout as at
from pagealloc_model.allocator.choices import true_state as rec
from pagealloc_model.allocator.state import LISTED, StartImage, maximal_buddies
from pagealloc_model.predicted.start.evidence import MIGRATABLE, StartCounts
from pagealloc_model.predicted.start.placement import TOO_OLD, buddy_table, wanted_buddies
from pagealloc_model.recording.machine import Machine
from pagealloc_model.recording.proc import pages as flags


def drop_uncounted(
    machine: Machine,
    counts: StartCounts,
    listed_pages: np.ndarray,
    known: np.ndarray,
    free: np.ndarray,
    block_types: np.ndarray,
) -> list[str]:
    """Leave out, zone by zone, what flags show free beyond what the counts leave room for.

    Only in zones that would have more free pages than counted (by the share TOO_OLD of
    `old_flags`). Free buddies that events show count first; of the others, as many stay of each
    order and type as the counts have more, those at the end of the zone first, where the kernel
    hands memory out last. A block without events is taken for Movable here as elsewhere.
    """
    lines: list[str] = []
    if counts.free_buddies is None:
        return lines
    sure = buddy_table(machine, known, block_types)
    pfns, orders = maximal_buddies(
        free & ~known, block_types, machine.pageblock_order, machine.max_order
    )
    for index, zone in enumerate(machine.zones):
        if not zone.managed:
            continue
        wanted, _ = wanted_buddies(machine, counts, index, int(listed_pages[index]))
        counted = int((wanted.sum(axis=1) << np.arange(at.ORDERS)).sum())
        if int(free[zone.start_pfn : zone.end_pfn].sum()) <= counted * (1 + TOO_OLD):
            continue
        room = np.maximum(wanted - sure[index], 0)
        dropped = 0
        mine = np.flatnonzero((pfns >= zone.start_pfn) & (pfns < zone.end_pfn))
        for place in mine[::-1].tolist():
            pfn, order = int(pfns[place]), int(orders[place])
            cell = order, int(block_types[pfn >> machine.pageblock_order])
            if room[cell] > 0:
                room[cell] -= 1
            else:
                free[pfn : pfn + (1 << order)] = False
                dropped += 1 << order
        lines.append(
            f"{machine.zone_title(index)}: {dropped} pages that page flags show free and no event "
            "touches are left out: the flags are older than the start snapshot, which has no room "
            "for them"
        )
    return lines


def true_start(
    machine: Machine,
    steps: np.ndarray,
    first: np.ndarray,
    page_flags: np.ndarray | None,
    counts: StartCounts | None = None,
    other_types: np.ndarray | None = None,
) -> StartImage:
    """A start image by look-ahead: what a page's first event says of it is what it was.

    A page first taken from the buddy was there; one first allocated was on the list it was
    allocated from, one first drained on the list it was drained from; one first freed was
    allocated. Untouched pages are free if page flags say so and, where these are too old, the start
    snapshot counts as many; what was free when flags were read and is in use by now moves if its
    block is Movable. Blocks are of the type that their first event shows, others Movable.
    """
    moves = steps[(steps["operation"] >= rec.POP) & (steps["operation"] <= rec.DRAIN)]
    words = np.zeros(len(first), np.uint64)
    if page_flags is not None:
        known = min(len(page_flags), len(words))
        words[:known] = page_flags[:known]
    free = (words & flags.BUDDY) != 0
    free[first != rec.NOTHING] = False
    free[first == rec.REMOVE] = True
    types = _block_types(machine, moves, other_types)
    heads = _first_moves(moves, first)
    live = heads[heads["operation"] == rec.PUSH]
    listed = _listed(machine, heads)
    lines: list[str] = []
    if counts is not None:
        on_lists = pages_on_lists(machine, listed)
        lines = drop_uncounted(machine, counts, on_lists, first == rec.REMOVE, free, types)
    of_block = np.repeat(types, 1 << machine.pageblock_order)[: len(words)]
    taken_since = ((words & flags.BUDDY) != 0) & ~free & (of_block == at.MOVABLE)
    return StartImage(
        free=free,
        movable=(((words & MIGRATABLE) != 0) | taken_since) & ~free,
        block_types=types,
        listed=listed,
        pcp_high=np.zeros((len(machine.zones), machine.nr_cpus), np.int64),
        allocated_pfn=live["pfn"].astype(np.int32),
        allocated_order=live["order"].astype(np.int8),
        origin=tuple(lines),
    )


def pages_on_lists(machine: Machine, listed: np.ndarray) -> np.ndarray:
    """int64 by zone: pages on per-CPU lists, of `LISTED` records."""
    sizes = np.int64(1) << listed["order"].astype(np.int64)
    count = np.bincount(listed["zone"], weights=sizes, minlength=len(machine.zones))
    return count.astype(np.int64)


def _first_moves(moves: np.ndarray, first: np.ndarray) -> np.ndarray:
    """The first move of each page, where no earlier one moved a frame of it as part of another.

    Else two pages would share the frame at the start. Order is that of the moves.
    """
    number = np.arange(len(moves))
    _, heads = np.unique(moves["pfn"], return_index=True)
    heads = np.sort(heads)

    def by_order(rows: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Some of the rows, and each one's page frames."""
        for order in np.unique(moves["order"][rows]):
            chosen = rows[moves["order"][rows] == order]
            frames = moves["pfn"][chosen].astype(np.int64)[:, None] + np.arange(1 << int(order))
            yield chosen, frames

    touched_by = np.full(len(first), len(moves), np.int64)
    for rows, frames in by_order(number):
        np.minimum.at(touched_by, frames.ravel(), np.repeat(rows, frames.shape[1]))
    whole = [
        rows[(touched_by[frames] == rows[:, None]).all(axis=1)] for rows, frames in by_order(heads)
    ]
    return moves[np.sort(np.concatenate([*whole, heads[:0]]))]


def _block_types(machine: Machine, moves: np.ndarray, other_types: np.ndarray | None) -> np.ndarray:
    """int8 per pageblock. What leaves a block tells its type; a free, the list of its page."""
    types = np.full(-(-machine.end_pfn >> machine.pageblock_order), -1, np.int8)
    for zone in machine.zones:
        if zone.managed:
            first = zone.start_pfn >> machine.pageblock_order
            types[first : -(-zone.end_pfn >> machine.pageblock_order)] = at.MOVABLE
    if other_types is not None:
        types[:] = other_types
    shows = (moves["operation"] == rec.REMOVE) | (moves["operation"] == rec.DRAIN)
    shows |= (moves["operation"] == rec.PUSH) & (moves["fate"] == rec.POP)
    moves = moves[shows]
    elsewhere = (moves["flags"] & rec.FALLBACK != 0) | (moves["operation"] == rec.PUSH)
    shown = np.where(elsewhere, moves["found_type"], moves["migratetype"])
    blocks, index = np.unique(moves["pfn"] >> machine.pageblock_order, return_index=True)
    known = shown[index] >= 0
    types[blocks[known]] = shown[index][known]
    return types


def _listed(machine: Machine, heads: np.ndarray) -> np.ndarray:
    """`LISTED` records: pages popped first, then pages drained, the last one drained first."""
    eligible = (heads["order"] <= 3) | (heads["order"] == machine.pageblock_order)
    popped = heads[(heads["operation"] == rec.POP) & eligible]
    drained = heads[(heads["operation"] == rec.DRAIN) & eligible][::-1]
    both = np.concatenate([popped, drained])
    records = np.zeros(len(both), LISTED)
    for name in ("pfn", "zone", "order", "cpu"):
        records[name] = both[name]
    kind = both["migratetype"]
    records["migratetype"] = np.where(kind < at.PCP_TYPES, kind, at.MOVABLE)
    return records
