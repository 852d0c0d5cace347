"""The machine a replay runs on (S1): as zoneinfo shows it, by its size, or by events alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate, pairwise
from math import isqrt
from typing import TYPE_CHECKING

import numpy as np

from pagealloc_model.base.errors import PolicyError, UsageError
from pagealloc_model.base.text import count_of
from pagealloc_model.policy.kernel_rules import KernelRules
from pagealloc_model.policy.policy import Policy
from pagealloc_model.recording.page_frames import END_OF_MEMORY, NO_HOLES, PageFrames
from pagealloc_model.recording.proc.zoneinfo import PageSet, ZoneInfo

if TYPE_CHECKING:
    from pagealloc_model.recording.trace.columns import Trace

PAGE_KB = 4
PMD_ORDER = 9
"""Order of a transparent huge page (S1.9)."""
LOCAL_DISTANCE, REMOTE_DISTANCE = 10, 20
ZONES_MAX, ZONE_TYPES_MAX = 126, 8
MIGRATETYPES = ("Unmovable", "Movable", "Reclaimable", "HighAtomic", "CMA", "Isolate")
"""Of a kernel with all of them; the first four have the same numbers in all (S1.5)."""
FALLING_BACK, NUMBERED_EVERYWHERE = MIGRATETYPES[:3], MIGRATETYPES[:4]
DEFAULT_MIGRATETYPES = (*NUMBERED_EVERYWHERE, "Isolate")


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
        boost: watermark boost (S1.7).
        lowmem_reserve: pages kept from requests whose highest zone is the index (S1.8).
        pagesets: per-CPU lists as found, empty for a synthetic machine.
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
        recorded_pageblock_order: where a policy has changed it; 0: nowhere.
        max_order: largest buddy order (S1.1).
        migratetypes: names in numeric order, from pagetypeinfo's rows (S1.3).
        thp: the kernel has PMD-order per-CPU lists (S1.9).
        watermark_scale_factor: the sysctl the watermarks were computed with (S1.6).
        percpu_pagelist_high_fraction: the sysctl pcp->high was computed with (S4.3); 0: none.
        frames: how its page frames are counted, in zones and everywhere else.
    """

    zones: tuple[Zone, ...]
    nr_cpus: int
    cpu_nodes: tuple[int, ...] = ()
    distances: tuple[tuple[int, ...], ...] = ()
    pageblock_order: int = 9
    recorded_pageblock_order: int = 0
    max_order: int = 10
    migratetypes: tuple[str, ...] = DEFAULT_MIGRATETYPES
    thp: bool = True
    watermark_scale_factor: int = 10
    percpu_pagelist_high_fraction: int = 0
    frames: PageFrames = NO_HOLES

    def __post_init__(self) -> None:
        """Refuse machines the model has no rules for with a UsageError."""
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
        managed = [index for index, zone in enumerate(self.zones) if zone.managed]
        managed.sort(key=lambda index: self.zones[index].start_pfn)
        for index, following in pairwise(managed):
            if self.zones[index].end_pfn > self.zones[following].start_pfn:
                raise UsageError(
                    f"{self.zone_title(index)} and {self.zone_title(following)} overlap: which of "
                    "them a page is in cannot be told"
                )
        if not managed:
            raise UsageError("no zone of the machine has managed pages")
        if not 0 < self.pageblock_order <= self.max_order <= 14:
            raise UsageError(
                f"pageblock order {self.pageblock_order} and largest order {self.max_order} "
                "are outside what the model knows (1 to 14)"
            )

    @property
    def counted_order(self) -> int:
        """Order of the whole blocks that quantities count, whatever the policy's pageblocks are."""
        return self.recorded_pageblock_order or self.pageblock_order

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
        zones = []
        for zone in self.zones:
            if zone.managed:
                share = min_pages * zone.managed // managed
                minimum = min(max(zone.managed // 1024, 32), 128) if zone.name in capped else share
                gap = max(share // 4, zone.managed * factor // 10000)
                zone = replace(zone, min=minimum, low=minimum + gap, high=minimum + 2 * gap)
            zones.append(zone)
        return replace(self, zones=tuple(zones))

    def with_pageblock_order(self, order: int) -> Machine:
        """The machine with pageblocks of another order (S1.2).

        Raises:
            PolicyError: an order above the largest buddy's.
        """
        if order > self.max_order:
            raise PolicyError(
                f"policy pageblock_order={order}: the largest buddy has order {self.max_order}"
            )
        return replace(self, pageblock_order=order, recorded_pageblock_order=self.counted_order)

    def at_boot(self, policy: Policy, rules: KernelRules) -> Policy:
        """A policy whose min_free_kbytes follows its pageblock_order as at boot (S1.12)."""
        order = policy.pageblock_order
        if order in (None, self.pageblock_order) or policy.min_free_kbytes is not None:
            return policy
        boot = self.with_watermarks(Policy(min_free_kbytes=min_free_kbytes_at_boot(self)), rules)
        recorded, expected = (sum(zone.min for zone in each.zones) for each in (self, boot))
        if abs(recorded - expected) > len(self.zones):
            return policy
        kbytes = min_free_kbytes_at_boot(self.with_pageblock_order(order))
        return replace(policy, min_free_kbytes=kbytes)

    def with_lowmem_reserve(self, policy: Policy) -> Machine:
        """The machine with what zones keep from requests recomputed by the policy (S1.8).

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
        zones = []
        for index, zone in enumerate(self.zones):
            own = index % len(types)
            if own < len(ratios):
                # 1/ratio of the zones above it, of its node.
                above = self.zones[index + 1 : index - own + len(types)]
                divisor = ratios[own] if zone.managed else 0
                sizes = accumulate(other.managed for other in above)
                reserves = [size // divisor if divisor else 0 for size in sizes]
                zone = replace(zone, lowmem_reserve=(0,) * (own + 1) + tuple(reserves))
            zones.append(zone)
        return replace(self, zones=tuple(zones))


def machine_from_zoneinfo(
    zoneinfo: ZoneInfo,
    *,
    pageblock_order: int = 9,
    migratetypes: Sequence[str] = DEFAULT_MIGRATETYPES,
    watermark_scale_factor: int = 10,
    percpu_pagelist_high_fraction: int = 0,
) -> Machine:
    """The machine that a zoneinfo snapshot describes.

    zoneinfo prints watermarks with the boost included (T12.3); it is taken off here. It does not
    say which CPU is on which node, nor how far nodes are apart, see `with_topology`.

    Raises:
        UsageError: memory has more page frames than a model has room for.
    """
    if too_far := beyond_page_frames(zoneinfo):
        raise UsageError(too_far)
    same = ("node", "name", "spanned", "present", "managed", "pagesets")
    zones = tuple(
        Zone(
            **{name: getattr(zone, name) for name in same},
            **{mark: getattr(zone, mark) - (zone.boost or 0) for mark in ("min", "low", "high")},
            start_pfn=zone.start_pfn or 0,
            boost=zone.boost or 0,
            lowmem_reserve=tuple(zone.protection),
        )
        for zone in zoneinfo.zones
    )
    nr_cpus = max((pageset.cpu + 1 for zone in zones for pageset in zone.pagesets), default=1)
    return Machine(
        zones=zones,
        nr_cpus=nr_cpus,
        pageblock_order=pageblock_order,
        migratetypes=tuple(migratetypes),
        watermark_scale_factor=watermark_scale_factor,
        percpu_pagelist_high_fraction=percpu_pagelist_high_fraction,
        frames=zoneinfo.frames,
    )


def beyond_page_frames(zoneinfo: ZoneInfo) -> str:
    """Why memory cannot be replayed for its size, "" if it can."""
    for zone in zoneinfo.zones:
        end = zone.end_pfn or 0
        if zone.managed and end > END_OF_MEMORY:
            return (
                f"memory up to zone {zone.name} of node {zone.node} spans {end} page frames, "
                f"without holes of 2^24 and more, and a replay has room for {END_OF_MEMORY} (8 TiB "
                "of 4 KiB pages): events and tables can be read, nothing can be replayed"
            )
    return ""


GIB_PAGES = 1 << 18
_DMA_END, _DMA32_END = 1 << 12, 1 << 20
_SPAN = 1 << 10
_MOST_GIB = 1 << 13
"""Of a synthetic machine: 8 TiB, as many page frames as the model has room for."""
_LOWMEM_RESERVE_RATIO = "256 256 32"
"""Of DMA, DMA32 and Normal (S1.8)."""


def synthetic_machine(gib: float, nr_cpus: int, rules: KernelRules, *, nodes: int = 1) -> Machine:
    """A machine with all its memory in one stretch, cut into DMA, DMA32 and Normal.

    Args:
        gib: memory, more than 16 MiB on the first node.
        nr_cpus: CPUs, spread over the nodes in turn.
        rules: for the watermarks.
        nodes: NUMA nodes of equal size.

    Raises:
        UsageError: no memory, no CPU or no node.
    """
    if not 0 < gib <= _MOST_GIB:
        raise UsageError(f"{gib:g} GiB: a machine has more than 0 and at most {_MOST_GIB} GiB")
    pages = int(gib * GIB_PAGES) // nodes // _SPAN * _SPAN if nodes > 0 else 0
    if pages <= _DMA_END or nr_cpus < 1:
        raise UsageError(
            f"{gib:g} GiB, {count_of(nr_cpus, 'CPU')} on {count_of(nodes, 'node')}: a machine "
            "needs a CPU, a node and more than 16 MiB on each node"
        )
    zones = []
    for node in range(nodes):
        first, end = node * pages, (node + 1) * pages
        bounds = {
            "DMA": (0, _DMA_END),
            "DMA32": (_DMA_END, _DMA32_END),
            "Normal": (_DMA32_END, end),
        }
        for name, (low, high) in bounds.items():
            low, high = max(low, first), min(high, end)
            managed = max(high - low, 0) // _SPAN * _SPAN
            zones.append(_zone(name, low, high, node=node, managed=managed))
    machine = Machine(
        zones=tuple(zones), nr_cpus=nr_cpus, cpu_nodes=tuple(cpu % nodes for cpu in range(nr_cpus))
    )
    policy = Policy(
        min_free_kbytes=min_free_kbytes_at_boot(machine),
        watermark_scale_factor=10,
        lowmem_reserve_ratio=_LOWMEM_RESERVE_RATIO,
    )
    return machine.with_watermarks(policy, rules).with_lowmem_reserve(policy)


def _zone(name: str, first: int, end: int, *, node: int = 0, managed: int) -> Zone:
    pages = max(end - first, 0)
    start_pfn = first if pages else 0
    return Zone(
        node=node, name=name, start_pfn=start_pfn, spanned=pages, present=pages, managed=managed
    )


def min_free_kbytes_at_boot(machine: Machine) -> int:
    """vm.min_free_kbytes as a kernel with THP sets it at boot, by managed pages (S1.5)."""
    managed = sum(zone.managed for zone in machine.zones)
    populated = sum(zone.managed > 0 for zone in machine.zones)
    by_size = min(max(isqrt(16 * managed * PAGE_KB), 128), 262144)
    for_huge_pages = (1 << machine.pageblock_order) * populated * (2 + 3 * 3)
    return max(by_size, min(for_huge_pages, managed // 20) * PAGE_KB)


_MAX_ORDER = 10
"""Zones are taken to end where the largest buddy may."""


def bare_machine(trace: Trace) -> Machine:
    """Zones by address, CPUs as they occur; watermarks and limits of per-CPU lists unknown.

    Raises:
        UsageError: no event has a page.
    """
    known = trace.pfn >= 0
    if not known.any():
        raise UsageError(f"{trace.source}: no event names a page")
    last = int((trace.pfn[known] + (np.int64(1) << trace.order[known].astype(np.int64))).max())
    end = -(-last >> _MAX_ORDER) << _MAX_ORDER
    bounds = {"DMA32": (0, min(end, _DMA32_END)), "Normal": (_DMA32_END, end)}
    zones = tuple(
        _zone(name, first, last, managed=last - first)
        for name, (first, last) in bounds.items()
        if last > first
    )
    return Machine(zones=zones, nr_cpus=max(int(trace.cpu.max()) + 1, trace.nr_cpus))
