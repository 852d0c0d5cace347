"""What /proc/zoneinfo says of zones and of CPUs' page lists, as values (T12.3)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, kw_only=True)
class PageSet:
    """One CPU's page lists (PCP) of a zone (S4.1); counts are base pages.

    Attributes:
        cpu: CPU number.
        count: pages on the lists.
        high: count above which a free drains.
        batch: the zone's batch (S4.2).
        high_min: lower bound of `high`, None where the kernel does not print it.
        high_max: upper bound of `high`, None where the kernel does not print it.
        vm_stats_threshold: per-CPU counter delta that is folded at once (S1.10), None if absent.
    """

    cpu: int
    count: int
    high: int
    batch: int
    high_min: int | None = None
    high_max: int | None = None
    vm_stats_threshold: int | None = None


@dataclass(frozen=True, kw_only=True)
class ZoneInfoZone:
    """One zone; sizes in base pages, None where this kernel does not print the field.

    `min`, `low`, `high` and `promo` are stored as printed, and the kernel prints them with the
    momentary boost added: subtract `boost` for the watermarks of S1.6.

    Attributes:
        node: NUMA node.
        name: zone name.
        free: pages on the free lists, without those on per-CPU lists.
        boost: watermark boost (S1.7).
        min: min watermark, boost included.
        low: low watermark, boost included.
        high: high watermark, boost included.
        promo: promotion watermark, boost included.
        spanned: page frames between the zone's first and last.
        present: page frames that exist.
        managed: page frames given to the allocator; 0 for a zone that is only a name.
        cma: pages reserved for contiguous allocation.
        protection: lowmem_reserve against requests for zone 0, 1, ... (S1.8).
        start_pfn: first page frame; None for a zone without pages.
        reserved_highatomic: pages of HIGHATOMIC pageblocks, free or not (S7).
        free_highatomic: free pages among them.
        vm_stats_threshold: the largest of the CPUs' thresholds (S1.10).
        counters: zone counters such as "nr_free_pages" under the kernel's names.
        pagesets: the CPUs' page lists, empty for a zone without pages.
    """

    node: int
    name: str
    free: int
    boost: int | None = None
    min: int
    low: int
    high: int
    promo: int | None = None
    spanned: int
    present: int
    managed: int
    cma: int | None = None
    protection: tuple[int, ...] = ()
    start_pfn: int | None = None
    reserved_highatomic: int | None = None
    free_highatomic: int | None = None
    vm_stats_threshold: int | None = None
    counters: Mapping[str, int] = field(default_factory=dict)
    pagesets: tuple[PageSet, ...] = ()

    @property
    def end_pfn(self) -> int | None:
        """First page frame behind the zone, None for a zone without pages."""
        return None if self.start_pfn is None else self.start_pfn + self.spanned


@dataclass(frozen=True, kw_only=True)
class ZoneInfo:
    """All zones in the order the kernel prints them: by node, then by zone index.

    Attributes:
        zones: the zones, those with no page included.
        node_counters: the per-node counters by node.
    """

    zones: tuple[ZoneInfoZone, ...]
    node_counters: Mapping[int, Mapping[str, int]]
