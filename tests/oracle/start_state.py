"""Random start states: every page of a machine in use or free somewhere."""

from __future__ import annotations

import random
from collections.abc import Collection, Sequence

from tests.oracle import Migratetype, Oracle
from tests.oracle.machine import PMD_ORDER

FREED_SHARES = (0.0, 0.1, 0.5, 0.9, 1.0, 1.0)
"""Shares of a block that the start state leaves free."""

OBJECT_ORDERS = (0, 1, 3, 4, 6, 9)
"""Orders that the start state's blocks are cut into."""

BLOCK_TYPES = (0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 2, 2, 2, 2, 4, 3, 3)
"""Types the start state's blocks get: ISOLATE is rare, HIGHATOMIC last."""


def lay_out(
    oracle: Oracle,
    block_types: Sequence[int],
    rng: random.Random,
    free_share: float = 0.0,
    left_out: Collection[int] = (),
) -> None:
    """Place every page: blocks of types drawn from those given, freed in random parts.

    Args:
        oracle: without pages.
        block_types: types to draw from.
        rng: decides everything.
        free_share: share of the blocks that are wholly free, beside those drawn to be.
        left_out: blocks, by number, that have no pages yet.
    """
    pages = oracle.machine.pages_per_block
    for each in oracle.machine.zones:
        for block in range(each.start_pfn // pages, -(-each.end_pfn // pages)):
            if block in left_out:
                continue
            is_free = free_share > 0 and rng.random() < free_share
            _lay_out_block(oracle, block, block_types, rng, is_free=is_free)


def _lay_out_block(
    oracle: Oracle, block: int, block_types: Sequence[int], rng: random.Random, *, is_free: bool
) -> None:
    """Tag a block, fill it with objects of one order, and free some of them.

    The reserve never gets a block that crosses the zone's edge.
    """
    machine = oracle.machine
    start, end = block * machine.pages_per_block, (block + 1) * machine.pages_per_block
    spec = next(each for each in machine.zones if each.spans(start) or each.spans(end - 1))
    if not (spec.spans(start) and spec.spans(end - 1)):
        block_types = [each for each in block_types if each != Migratetype.HIGHATOMIC]
    oracle.set_block_type(block, rng.choice(block_types))
    order = min(rng.choice(OBJECT_ORDERS), machine.pageblock_order)
    freed_share = 1.0 if is_free else rng.choice(FREED_SHARES)
    objects = [
        pfn
        for pfn in range(start, end, 1 << order)
        if spec.spans(pfn) and spec.spans(pfn + (1 << order) - 1)
    ]
    for pfn in objects:
        oracle.put_allocated(pfn, order, movable=rng.random() < 0.5)
    for pfn in objects:
        if rng.random() < freed_share:
            oracle.free(rng.randrange(machine.nr_cpus), pfn, order)


def live_objects(oracle: Oracle) -> list[tuple[int, int]]:
    """Pages in use as (first page, order), cut into objects as large as a block can hold."""
    largest = min(PMD_ORDER, oracle.machine.pageblock_order)
    movable = {pfn: oracle.allocated.is_movable(pfn) for pfn in oracle.allocated.pages()}
    objects = []
    end = 0
    for pfn in sorted(movable):
        if pfn >= end:
            order = _largest_object(movable, pfn, largest)
            objects.append((pfn, order))
            end = pfn + (1 << order)
    random.Random(len(objects)).shuffle(objects)
    return objects


def _largest_object(movable: dict[int, bool], first: int, largest: int) -> int:
    """Largest order of aligned pages that are all as movable as the first."""
    order = 0
    while order < largest and first % (2 << order) == 0:
        upper_half = range(first + (1 << order), first + (2 << order))
        if any(movable.get(pfn) != movable[first] for pfn in upper_half):
            break
        order += 1
    return order
