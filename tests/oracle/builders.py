"""Small machines for the tests, and shorthand to ask an oracle things."""

from __future__ import annotations

from dataclasses import replace

from tests.oracle import (
    RULES,
    Bits,
    Migratetype,
    Oracle,
    OracleAssumptions,
    OracleMachine,
    OraclePolicy,
    OracleZone,
)

BLOCK = 512
"""Pages in a pageblock."""

KERNEL = Bits.DIRECT_RECLAIM | Bits.KSWAPD
"""The bits of GFP_KERNEL that matter here."""

ATOMIC = Bits.HIGH | Bits.KSWAPD
"""The bits of GFP_ATOMIC that matter here (S2.4)."""

WITH_CMA = ("Unmovable", "Movable", "Reclaimable", "HighAtomic", "CMA", "Isolate")
"""Types of a kernel with CMA (S1.3)."""


def zone(name: str, first_block: int, blocks: int, **changes: object) -> OracleZone:
    """A zone of whole blocks, all present and managed, with watermarks 0 unless given."""
    pages = blocks * BLOCK
    plain = OracleZone(
        name=name,
        start_pfn=first_block * BLOCK,
        spanned=pages,
        present=pages,
        managed=pages,
        min=0,
        low=0,
        high=0,
    )
    return replace(plain, **changes)


def one_zone(blocks: int = 4, *, nr_cpus: int = 1, **changes: object) -> OracleMachine:
    """A machine with a single zone, not named Normal, so that nothing avoids fragmentation."""
    return OracleMachine(zones=(zone("DMA32", 0, blocks, **changes),), nr_cpus=nr_cpus)


def two_nodes(**changes: object) -> OracleMachine:
    """A CPU on each of two nodes: DMA32 and Normal on node 0, Normal on node 1, 4 blocks each."""
    plain = OracleMachine(
        zones=(
            zone("DMA32", 0, 4),
            zone("Normal", 4, 4),
            zone("DMA32", 0, 0, node=1),
            zone("Normal", 8, 4, node=1),
        ),
        nr_cpus=2,
        cpu_nodes=(0, 1),
    )
    return replace(plain, **changes)


def oracle(
    machine: OracleMachine,
    rules: str = "6.12",
    policy: OraclePolicy | None = None,
    assumptions: OracleAssumptions | None = None,
) -> Oracle:
    """An oracle without pages."""
    return Oracle(machine, RULES[rules], policy or OraclePolicy(), assumptions)


def put_free_blocks(target: Oracle, first: int, count: int, migratetype: int = 1) -> None:
    """Wholly free blocks of one type, as order-9 buddies, ascending."""
    for block in range(first, first + count):
        target.set_block_type(block, migratetype)
        target.put_free(block * BLOCK, 9, migratetype)


def put_free_memory(target: Oracle, zone_index: int) -> None:
    """A whole zone free and MOVABLE, in the largest buddies that are aligned."""
    spec = target.machine.zones[zone_index]
    pfn = spec.start_pfn
    while pfn < spec.end_pfn:
        order = target.machine.max_order
        while pfn % (1 << order) or pfn + (1 << order) > spec.end_pfn:
            order -= 1
        target.put_free(pfn, order, Migratetype.MOVABLE)
        pfn += 1 << order


def events_named(target: Oracle, name: str) -> list[tuple[object, ...]]:
    """The events of one kind, oldest first."""
    return [event for event in target.events if event[0] == name]
