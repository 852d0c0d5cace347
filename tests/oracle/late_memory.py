"""Memory that a machine gets while it runs: which, and in which pieces."""

from __future__ import annotations

import random
from collections.abc import Iterable

from tests.oracle.machine import OracleMachine, OracleZone
from tests.oracle.steps import Grow

LATE_BLOCKS = (0, 1, 2, 2)
"""Pageblocks of a zone that come later."""


def late_memory(rng: random.Random, machine: OracleMachine) -> tuple[Grow, ...]:
    """Memory at the ends of zones that comes while the machine runs, piece by piece, ascending."""
    found: list[Grow] = []
    for number, zone in enumerate(machine.zones):
        pages = rng.choice(LATE_BLOCKS) * machine.pages_per_block
        if pages * 2 <= zone.spanned:
            found += _pieces(rng, machine, number, zone, pages)
    return tuple(found)


def _pieces(
    rng: random.Random, machine: OracleMachine, number: int, zone: OracleZone, pages: int
) -> list[Grow]:
    """The last pages of a zone, from the start of a block on, cut into aligned buddies."""
    found = []
    pfn = -(-(zone.end_pfn - pages) // machine.pages_per_block) * machine.pages_per_block
    while pages and pfn < zone.end_pfn:
        order = rng.choice((machine.max_order, machine.pageblock_order, rng.randrange(3, 8)))
        while pfn % (1 << order) or pfn + (1 << order) > zone.end_pfn:
            order -= 1
        found.append(Grow(number, pfn, order, rng.randrange(machine.nr_cpus)))
        pfn += 1 << order
    return found


def blocks_of(late: Iterable[Grow], block_order: int) -> set[int]:
    """Numbers of the pageblocks that such memory lies in."""
    return {
        pfn >> block_order
        for each in late
        for pfn in range(each.pfn, each.pfn + (1 << each.order), 1 << min(block_order, each.order))
    }
