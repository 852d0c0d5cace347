"""Machines that no snapshot shows: by their size (S1), or by a recording's events alone."""

from __future__ import annotations

from math import isqrt

import numpy as np

from pagealloc_model.base.errors import UsageError
from pagealloc_model.base.text.counts import count_of
from pagealloc_model.policy.kernel_rules import KernelRules
from pagealloc_model.policy.policy import Policy
from pagealloc_model.recording.machine import PAGE_KB, Machine, Zone
from pagealloc_model.recording.trace.columns import Trace

GIB_PAGES = 1 << 18
DMA_END, DMA32_END = 1 << 12, 1 << 20
_SPAN = 1 << 10
MOST_GIB = 1 << 13
"""Of a made-up machine: 8 TiB, as far as the model numbers page frames."""
_LOWMEM_RESERVE_RATIO = "256 256 32"
"""Of DMA, DMA32 and Normal (S1.8)."""


def made_up_machine(
    gib: float, nr_cpus: int, rules: KernelRules, *, nodes: int = 1, managed_share: float = 1.0
) -> Machine:
    """A machine with all its memory in one stretch, cut into DMA, DMA32 and Normal.

    Args:
        gib: memory, more than 16 MiB on the first node.
        nr_cpus: CPUs, spread over the nodes in turn.
        rules: for the watermarks.
        nodes: NUMA nodes of equal size.
        managed_share: share of the pages that the allocator manages.

    Raises:
        UsageError: no memory, no CPU or no node.
    """
    if not 0 < gib <= MOST_GIB:
        raise UsageError(f"{gib:g} GiB: a machine has more than 0 and at most {MOST_GIB} GiB")
    pages = int(gib * GIB_PAGES) // nodes // _SPAN * _SPAN if nodes > 0 else 0
    if pages <= DMA_END or nr_cpus < 1:
        raise UsageError(
            f"{gib:g} GiB, {count_of(nr_cpus, 'CPU')} on {count_of(nodes, 'node')}: a machine "
            "needs a CPU, a node and more than 16 MiB on each node"
        )
    zones: list[Zone] = []
    for node in range(nodes):
        first, end = node * pages, (node + 1) * pages
        bounds = {"DMA": (0, DMA_END), "DMA32": (DMA_END, DMA32_END), "Normal": (DMA32_END, end)}
        for name, (low, high) in bounds.items():
            low, high = max(low, first), min(high, end)
            present = max(high - low, 0)
            zones.append(
                Zone(
                    node=node,
                    name=name,
                    start_pfn=low if present else 0,
                    spanned=present,
                    present=present,
                    managed=int(present * managed_share) // _SPAN * _SPAN,
                )
            )
    machine = Machine(
        zones=tuple(zones),
        nr_cpus=nr_cpus,
        cpu_nodes=tuple(cpu % nodes for cpu in range(nr_cpus)),
    )
    policy = Policy(
        min_free_kbytes=min_free_kbytes_at_boot(machine),
        watermark_scale_factor=10,
        lowmem_reserve_ratio=_LOWMEM_RESERVE_RATIO,
    )
    return machine.with_watermarks(policy, rules).with_lowmem_reserve(policy)


def min_free_kbytes_at_boot(machine: Machine) -> int:
    """Return vm.min_free_kbytes as a kernel with THP sets it at boot (S1.5).

    Args:
        machine: its zones' managed pages.
    """
    managed = sum(zone.managed for zone in machine.zones)
    populated = sum(zone.managed > 0 for zone in machine.zones)
    by_size = min(max(isqrt(16 * managed * PAGE_KB), 128), 262144)
    for_huge_pages = (1 << machine.pageblock_order) * populated * (2 + 3 * 3)
    return max(by_size, min(for_huge_pages, managed // 20) * PAGE_KB)


MAX_ORDER = 10
"""Zones are taken to end where the largest buddy may."""


def bare_machine(trace: Trace) -> Machine:
    """Zones by address, CPUs as they occur; watermarks and limits of per-CPU lists unknown.

    Args:
        trace: the recording's events.

    Raises:
        UsageError: no event has a page.
    """
    known = trace.pfn >= 0
    if not known.any():
        raise UsageError(f"{trace.source}: no event names a page")
    last = int((trace.pfn[known] + (np.int64(1) << trace.order[known].astype(np.int64))).max())
    end = -(-last >> MAX_ORDER) << MAX_ORDER
    bounds = {"DMA32": (0, min(end, DMA32_END)), "Normal": (DMA32_END, end)}
    zones = [
        Zone(
            name=name,
            start_pfn=first,
            spanned=last - first,
            present=last - first,
            managed=last - first,
        )
        for name, (first, last) in bounds.items()
        if last > first
    ]
    return Machine(zones=tuple(zones), nr_cpus=max(int(trace.cpu.max()) + 1, trace.nr_cpus))
