"""Free buddies placed in a zone so that every count by order and type is met exactly."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pagealloc_model.allocator.core import layout as at


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
    """Choose free pages whose maximal buddies are those wanted.

    Args:
        usable: bool per page frame of a span aligned to the largest order: may be free.
        preferred: bool or a small int per page frame: how much speaks for its being free.
        memory: bool per pageblock: has memory.
        evidence: int64, shape (migratetypes, blocks): how much speaks for each type of a block.
        wanted: int64, shape (orders, migratetypes): free buddies.
        blocks: int64 per migratetype: pageblocks.
        pageblock_order: S1.2.
        max_order: S1.1.
        random: decides what nothing else does.
    """
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

    Args:
        evidence: int64, shape (migratetypes, blocks).
        room: int64 per block: pages that may be free.
        left: int64 per migratetype: blocks of it to deal out.
        needed: int64 per migratetype: its free pages that have no place yet.
        random: breaks ties.
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
    """Return the first `count` blocks, as few as possible changed for later ones with more room.

    Args:
        ranked: numbers of blocks, the best first.
        room: int64 per block: pages that may be free.
        count: blocks to choose.
        needed: pages that they should have room for, if any choice of blocks has.
    """
    best, others = ranked[:count], ranked[count:]
    others = others[np.argsort(-room[others], kind="stable")]
    most = min(len(best), len(others))
    kept = np.concatenate([[0], np.cumsum(room[best])])[len(best) - np.arange(most + 1)]
    total = kept + np.concatenate([[0], np.cumsum(room[others[:most]])])
    enough = np.flatnonzero(total >= needed)
    changed = int(enough[0]) if len(enough) else int(np.argmax(total))
    return np.concatenate([best[: len(best) - changed], others[:changed]])
