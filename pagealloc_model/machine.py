"""The machine a replay runs on: zones, watermarks, CPUs, pageblock geometry."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pagealloc_model.errors import UsageError
from pagealloc_model.policy import Policy

if TYPE_CHECKING:
    from pagealloc_model.proc.zoneinfo import ZoneInfo

PAGE_KB = 4
DEFAULT_MIGRATETYPES = ("Unmovable", "Movable", "Reclaimable", "HighAtomic", "Isolate")


@dataclass(frozen=True, kw_only=True)
class PerCpuPages:
    """One CPU's pageset of one zone when the recording began (T12.3).

    Attributes:
        cpu: CPU number.
        count: base pages on the lists.
        high: current tuned limit, pages.
        batch: pages per transfer.
        high_min: lower bound of `high`, None where the kernel does not print it.
        high_max: upper bound of `high`, None where the kernel does not print it.
    """

    cpu: int
    count: int
    high: int
    batch: int
    high_min: int | None
    high_max: int | None


@dataclass(frozen=True, kw_only=True)
class Zone:
    """One zone; page counts unless said otherwise.

    Attributes:
        node: NUMA node.
        name: as in zoneinfo: DMA, DMA32, Normal, Movable, Device.
        start_pfn: first page frame.
        spanned: page frames spanned, holes included.
        present: pages that exist.
        managed: pages the buddy allocator manages; 0 for an empty zone.
        min: min watermark without boost; so are `low` and `high` (S1.6).
        low: low watermark.
        high: high watermark.
        boost: watermark boost (S1.7).
        lowmem_reserve: pages kept from requests whose highest zone is the index (S1.8).
        pagesets: per-CPU lists as found, empty for a made-up machine.
    """

    node: int = 0
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
    pagesets: tuple[PerCpuPages, ...] = ()

    @property
    def end_pfn(self) -> int:
        """First page frame behind the zone."""
        return self.start_pfn + self.spanned


@dataclass(frozen=True, kw_only=True)
class Machine:
    """Zones in zone-index order, empty ones included, so that lowmem_reserve's columns fit.

    Attributes:
        zones: all zones of the node.
        nr_cpus: CPUs, numbered from 0; those offline in between count too.
        pageblock_order: S1.2.
        max_order: largest buddy order (S1.1).
        migratetypes: names in numeric order, from pagetypeinfo's rows (S1.3).
        thp: the kernel has PMD-order per-CPU lists (S1.9).
        watermark_scale_factor: the sysctl the watermarks were computed with (S1.6).
    """

    zones: tuple[Zone, ...]
    nr_cpus: int
    pageblock_order: int = 9
    max_order: int = 10
    migratetypes: tuple[str, ...] = DEFAULT_MIGRATETYPES
    thp: bool = True
    watermark_scale_factor: int = 10

    def __post_init__(self) -> None:
        """Refuse machines the model has no rules for.

        Raises:
            UsageError: several NUMA nodes, no populated zone, or a geometry out of range.
        """
        if len({zone.node for zone in self.zones}) > 1:
            raise UsageError("the machine has several NUMA nodes; this version models one")
        if not any(zone.managed for zone in self.zones):
            raise UsageError("no zone of the machine has managed pages")
        if not 0 < self.pageblock_order <= self.max_order <= 14:
            raise UsageError(
                f"pageblock order {self.pageblock_order} and largest order {self.max_order} "
                "are outside what the model knows (1 to 14)"
            )

    @property
    def end_pfn(self) -> int:
        """First page frame behind every populated zone."""
        return max(zone.end_pfn for zone in self.zones if zone.managed)

    def zone_index(self, name: str) -> int:
        """Index of a zone by name, -1 if the machine has none of that name."""
        names = [zone.name for zone in self.zones]
        return names.index(name) if name in names else -1

    def with_watermarks(self, policy: Policy) -> Machine:
        """The machine with watermarks recomputed where the policy changes their inputs (S1.6).

        Args:
            policy: only `min_free_kbytes` and `watermark_scale_factor` are read; the one that is
                None is taken back from the recorded watermarks.
        """
        if policy.min_free_kbytes is None and policy.watermark_scale_factor is None:
            return self
        normal = [zone for zone in self.zones if zone.name not in ("HighMem", "Movable")]
        managed = sum(zone.managed for zone in normal)
        if policy.min_free_kbytes is None:
            min_pages = sum(zone.min for zone in normal)
        else:
            min_pages = policy.min_free_kbytes // PAGE_KB
        factor = policy.watermark_scale_factor
        if factor is None:
            factor = self.watermark_scale_factor
        return replace(
            self, zones=tuple(_rescaled(zone, min_pages, managed, factor) for zone in self.zones)
        )


def _rescaled(zone: Zone, min_pages: int, managed: int, scale_factor: int) -> Zone:
    if not zone.managed:
        return zone
    share = min_pages * zone.managed // managed
    minimum = share
    if zone.name in ("HighMem", "Movable"):
        minimum = min(max(zone.managed // 1024, 32), 128)
    gap = max(share // 4, zone.managed * scale_factor // 10000)
    return replace(zone, min=minimum, low=minimum + gap, high=minimum + 2 * gap)


def machine_from_zoneinfo(
    zoneinfo: ZoneInfo,
    *,
    pageblock_order: int = 9,
    max_order: int = 10,
    migratetypes: Sequence[str] = DEFAULT_MIGRATETYPES,
    watermark_scale_factor: int = 10,
) -> Machine:
    """The machine that a zoneinfo snapshot describes.

    zoneinfo prints watermarks with the boost included (T12.3); it is taken off here.

    Raises:
        UsageError: several nodes, or no populated zone.
    """
    zones = tuple(
        Zone(
            node=zone.node,
            name=zone.name,
            start_pfn=zone.start_pfn or 0,
            spanned=zone.spanned,
            present=zone.present,
            managed=zone.managed,
            min=zone.min - (zone.boost or 0),
            low=zone.low - (zone.boost or 0),
            high=zone.high - (zone.boost or 0),
            boost=zone.boost or 0,
            lowmem_reserve=tuple(zone.protection),
            pagesets=tuple(
                PerCpuPages(
                    cpu=each.cpu,
                    count=each.count,
                    high=each.high,
                    batch=each.batch,
                    high_min=each.high_min,
                    high_max=each.high_max,
                )
                for each in zone.pagesets
            ),
        )
        for zone in zoneinfo.zones
    )
    nr_cpus = max((each.cpu + 1 for zone in zones for each in zone.pagesets), default=0)
    return Machine(
        zones=zones,
        nr_cpus=max(nr_cpus, 1),
        pageblock_order=pageblock_order,
        max_order=max_order,
        migratetypes=tuple(migratetypes),
        watermark_scale_factor=watermark_scale_factor,
    )
