"""The machine the oracle runs on: one node, its zones, CPUs and pageblock geometry (S1)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

PMD_ORDER = 9
"""Order of a transparent huge page with 4 KiB base pages (S1.9)."""

PAGE_SIZE = 4096
"""Bytes per base page."""


class Migratetype(IntEnum):
    """Numbers of the types every kernel has (S1.3); CMA and ISOLATE come behind, by config."""

    UNMOVABLE = 0
    MOVABLE = 1
    RECLAIMABLE = 2
    HIGHATOMIC = 3


PCP_TYPES = 3
"""Types below this have per-CPU lists, may merge with one another and may fall back (S1.3)."""


def is_mergeable(migratetype: int) -> bool:
    """Whether blocks of this type may merge with, and change into, one another (S1.3)."""
    return migratetype < PCP_TYPES


@dataclass(frozen=True, kw_only=True)
class OracleZone:
    """One zone as found; all sizes in base pages.

    Attributes:
        node: NUMA node, always 0 for now.
        name: as in zoneinfo ("DMA", "DMA32", "Normal", "Movable").
        start_pfn: first page frame.
        spanned: page frames from the first to the last, holes included.
        present: page frames that exist; 0 keeps the zone out of every zonelist.
        managed: pages the allocator owns.
        min: min watermark without boost; likewise `low` and `high` (S1.6).
        boost: watermark boost (S1.7).
        lowmem_reserve: per highest zone index of the request (S1.8); empty means all 0.
    """

    name: str
    start_pfn: int
    spanned: int
    present: int
    managed: int
    min: int
    low: int
    high: int
    boost: int = 0
    lowmem_reserve: tuple[int, ...] = ()
    node: int = 0

    @property
    def end_pfn(self) -> int:
        """First page frame behind the zone."""
        return self.start_pfn + self.spanned

    def spans(self, pfn: int) -> bool:
        """Whether the page frame lies in the zone's span."""
        return self.start_pfn <= pfn < self.end_pfn


@dataclass(frozen=True, kw_only=True)
class OracleMachine:
    """Zones in zone-index order (empty ones included) and what is common to them.

    Attributes:
        zones: see `OracleZone`; their spans do not overlap.
        nr_cpus: CPUs, all local to the node.
        pageblock_order: S1.2.
        max_order: largest buddy order (S1.1).
        migratetypes: names by number (S1.3).
        thp: whether per-CPU lists for PMD-order pages exist (S1.9).
        free_high_batch: FREE_HIGH_BATCH on every CPU: cache slice over 3 batches (S4.6).
    """

    zones: tuple[OracleZone, ...]
    nr_cpus: int
    pageblock_order: int = 9
    max_order: int = 10
    migratetypes: tuple[str, ...] = ("Unmovable", "Movable", "Reclaimable", "HighAtomic", "Isolate")
    thp: bool = True
    free_high_batch: bool = True

    @property
    def pages_per_block(self) -> int:
        """Base pages in a pageblock."""
        return 1 << self.pageblock_order

    def is_isolate(self, migratetype: int) -> bool:
        """Whether the number means ISOLATE on this machine (S1.3)."""
        return self.migratetypes[migratetype] == "Isolate"
