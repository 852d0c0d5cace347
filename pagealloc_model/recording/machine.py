"""The machine a replay runs on: zones, watermarks, CPUs, pageblock geometry."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate, pairwise

import numpy as np

from pagealloc_model.base.errors import PolicyError, UsageError
from pagealloc_model.policy.kernel_rules import KernelRules
from pagealloc_model.policy.policy import Policy
from pagealloc_model.recording.proc.zoneinfo import PageSet, ZoneInfo

PAGE_KB = 4
PMD_ORDER = 9
"""Order of a transparent huge page (S1.9)."""
LOCAL_DISTANCE, REMOTE_DISTANCE = 10, 20
ZONES_MAX, ZONE_TYPES_MAX = 126, 8
DEFAULT_MIGRATETYPES = ("Unmovable", "Movable", "Reclaimable", "HighAtomic", "Isolate")


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
    min: int = 0
    low: int = 0
    high: int = 0
    boost: int = 0
    lowmem_reserve: tuple[int, ...] = ()
    pagesets: tuple[PageSet, ...] = ()

    @property
    def end_pfn(self) -> int:
        """First page frame behind the zone."""
        return self.start_pfn + self.spanned


@dataclass(frozen=True, kw_only=True)
class Machine:
    """Zones node by node, each node with the same zone types, empty ones included.

    A zone's number is its place in `zones`; its type is its place within its node, so that
    lowmem_reserve's columns fit. A node's index is its place among the node numbers.

    Attributes:
        zones: all zones, by node number and zone type.
        nr_cpus: CPUs, numbered from 0; those offline in between count too.
        cpu_nodes: node number of each CPU; empty puts all CPUs on the first node.
        distances: between nodes, by node index, as in /sys/devices/system/node/node*/distance;
            empty means 10 within a node and 20 between nodes.
        pageblock_order: S1.2.
        max_order: largest buddy order (S1.1).
        migratetypes: names in numeric order, from pagetypeinfo's rows (S1.3).
        thp: the kernel has PMD-order per-CPU lists (S1.9).
        watermark_scale_factor: the sysctl the watermarks were computed with (S1.6).
    """

    zones: tuple[Zone, ...]
    nr_cpus: int
    cpu_nodes: tuple[int, ...] = ()
    distances: tuple[tuple[int, ...], ...] = ()
    pageblock_order: int = 9
    max_order: int = 10
    migratetypes: tuple[str, ...] = DEFAULT_MIGRATETYPES
    thp: bool = True
    watermark_scale_factor: int = 10

    def __post_init__(self) -> None:
        """Refuse machines the model has no rules for.

        Raises:
            UsageError: zones, CPUs or distances that do not fit the nodes, zones that overlap, no
                populated zone, or a geometry out of range.
        """
        self._check_nodes()
        self._check_spans()
        if not any(zone.managed for zone in self.zones):
            raise UsageError("no zone of the machine has managed pages")
        if not 0 < self.pageblock_order <= self.max_order <= 14:
            raise UsageError(
                f"pageblock order {self.pageblock_order} and largest order {self.max_order} "
                "are outside what the model knows (1 to 14)"
            )

    def _check_nodes(self) -> None:
        wanted = [(node, name) for node in self.nodes for name in self.zone_types]
        if [(zone.node, zone.name) for zone in self.zones] != wanted:
            raise UsageError(
                "zones must be listed node by node, each node with the same zones in the same order"
            )
        if len(self.zone_types) > ZONE_TYPES_MAX or len(self.zones) > ZONES_MAX:
            raise UsageError(
                f"the machine has {len(self.zones)} zones of {len(self.zone_types)} types; "
                f"the model knows at most {ZONES_MAX} of {ZONE_TYPES_MAX}"
            )
        strange = set(self.cpu_nodes) - set(self.nodes)
        if strange or len(self.cpu_nodes) not in (0, self.nr_cpus):
            raise UsageError(
                f"cpu_nodes must give one of the nodes {', '.join(map(str, self.nodes))} for each "
                f"of {self.nr_cpus} CPUs"
            )
        rows = len(self.nodes)
        if self.distances and [len(row) for row in self.distances] != [rows] * rows:
            raise UsageError(f"node distances must be {rows} rows of {rows} numbers")

    def _check_spans(self) -> None:
        managed = [index for index, zone in enumerate(self.zones) if zone.managed]
        managed.sort(key=lambda index: self.zones[index].start_pfn)
        for index, following in pairwise(managed):
            if self.zones[index].end_pfn > self.zones[following].start_pfn:
                raise UsageError(
                    f"{self.zone_title(index)} and {self.zone_title(following)} overlap: which of "
                    "them a page is in cannot be told"
                )

    @property
    def end_pfn(self) -> int:
        """First page frame behind every populated zone."""
        return max(zone.end_pfn for zone in self.zones if zone.managed)

    @cached_property
    def nodes(self) -> tuple[int, ...]:
        """Node numbers, ascending."""
        return tuple(sorted({zone.node for zone in self.zones}))

    @cached_property
    def zone_types(self) -> tuple[str, ...]:
        """Names of the zones that every node has, lowest first."""
        first = self.zones[0].node if self.zones else 0
        return tuple(zone.name for zone in self.zones if zone.node == first)

    @cached_property
    def cpu_node_indices(self) -> tuple[int, ...]:
        """Index of each CPU's node."""
        if not self.cpu_nodes:
            return (0,) * self.nr_cpus
        return tuple(self.nodes.index(node) for node in self.cpu_nodes)

    def cpus_of_node(self, node: int) -> int:
        """Number of CPUs of the node with this index."""
        return self.cpu_node_indices.count(node)

    def distance(self, node: int, other: int) -> int:
        """Distance between two nodes, by index."""
        if self.distances:
            return self.distances[node][other]
        return LOCAL_DISTANCE if node == other else REMOTE_DISTANCE

    def type_index(self, name: str) -> int:
        """Place of a zone type within a node, -1 if the machine has none of that name."""
        return self.zone_types.index(name) if name in self.zone_types else -1

    def zone_index(self, node: int, name: str) -> int:
        """Number of a zone by node number and name, -1 if the machine has no such zone."""
        if node not in self.nodes or name not in self.zone_types:
            return -1
        return self.nodes.index(node) * len(self.zone_types) + self.type_index(name)

    def zones_of_pages(self, pfn: np.ndarray) -> np.ndarray:
        """Return the number of the populated zone of each page frame, int64; -1 for none."""
        numbers = np.full(len(pfn), -1, np.int64)
        for number, zone in enumerate(self.zones):
            if zone.managed:
                numbers[(pfn >= zone.start_pfn) & (pfn < zone.end_pfn)] = number
        return numbers

    def zone_title(self, index: int) -> str:
        """A zone as sentences name it, its node added where there are several."""
        zone = self.zones[index]
        node = f"node {zone.node}, " if len(self.nodes) > 1 else ""
        return f"{node}zone {zone.name}"

    def with_watermarks(self, policy: Policy, rules: KernelRules) -> Machine:
        """The machine with watermarks recomputed where the policy changes their inputs (S1.6).

        Args:
            policy: only `min_free_kbytes` and `watermark_scale_factor` are read; the one that is
                None is taken back from the recorded watermarks.
            rules: say whether ZONE_MOVABLE has a share of min_free_kbytes.
        """
        if policy.min_free_kbytes is None and policy.watermark_scale_factor is None:
            return self
        capped = ("HighMem", "Movable") if rules.movable_min_capped else ("HighMem",)
        normal = [zone for zone in self.zones if zone.name not in capped]
        managed = sum(zone.managed for zone in normal)
        if policy.min_free_kbytes is None:
            min_pages = sum(zone.min for zone in normal)
        else:
            min_pages = policy.min_free_kbytes // PAGE_KB
        factor = policy.watermark_scale_factor
        if factor is None:
            factor = self.watermark_scale_factor
        return replace(
            self,
            zones=tuple(
                _rescaled(zone, min_pages, managed, factor, zone.name in capped)
                for zone in self.zones
            ),
        )

    def with_lowmem_reserve(self, policy: Policy) -> Machine:
        """Return the machine with what zones keep from requests recomputed by the policy (S1.8).

        Args:
            policy: only `lowmem_reserve_ratio` is read: a number for each zone type, lowest first;
                types that it has none for keep what they had, all of them if it is None.

        Raises:
            PolicyError: more numbers than the machine has zone types.
        """
        if policy.lowmem_reserve_ratio is None:
            return self
        ratios = [int(word) for word in policy.lowmem_reserve_ratio.split()]
        types = self.zone_types
        if len(ratios) > len(types):
            raise PolicyError(
                f"policy lowmem_reserve_ratio={policy.lowmem_reserve_ratio}: the machine has "
                f"{len(types)} zones on a node ({', '.join(types)}); give no more numbers"
            )
        return replace(
            self,
            zones=tuple(
                self._reserving(index, ratios[index % len(types)])
                if index % len(types) < len(ratios)
                else zone
                for index, zone in enumerate(self.zones)
            ),
        )

    def _reserving(self, index: int, ratio: int) -> Zone:
        """Return a zone that keeps 1/ratio of the zones above it, of its node, from requests."""
        zone, types = self.zones[index], len(self.zone_types)
        first = index - index % types
        sizes = [each.managed for each in self.zones[index + 1 : first + types]]
        divisor = ratio if zone.managed else 0
        kept = [above // divisor if divisor else 0 for above in accumulate(sizes)]
        return replace(zone, lowmem_reserve=(0,) * (index - first + 1) + tuple(kept))


def _rescaled(zone: Zone, min_pages: int, managed: int, scale_factor: int, capped: bool) -> Zone:
    if not zone.managed:
        return zone
    share = min_pages * zone.managed // managed
    minimum = min(max(zone.managed // 1024, 32), 128) if capped else share
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

    zoneinfo prints watermarks with the boost included (T12.3); it is taken off here. It does not
    say which CPU is on which node, nor how far nodes are apart, see `topology`.

    Raises:
        UsageError: no populated zone, or zones the model has no rules for.
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
            pagesets=zone.pagesets,
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
