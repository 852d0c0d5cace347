"""Sizes the kernel computes at boot: watermarks, reserves, per-CPU list bounds (S1, S4)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import isqrt

from tests.oracle.arithmetic import clamp, round_down_to_power_of_two
from tests.oracle.machine import PAGE_SIZE, OracleMachine, OracleZone
from tests.oracle.rules import OraclePolicy, OracleRules

HIGH_MAX_FRACTION = 8
"""high_max is the zone's share of managed / 8 (S4.3)."""

LOWMEM_RESERVE_RATIO = {"DMA": 256, "DMA32": 256, "Normal": 32}
"""Default divisors by zone (S1.8); other zones keep nothing back."""

CAPPED_MIN_ZONES = ("HighMem", "Movable")
"""Zones whose min watermark is a small fixed share (S1.6)."""

LARGEST_STAT_THRESHOLD = 125
"""Most pages a CPU keeps out of a counter: the difference must fit a byte (S1.10)."""


@dataclass(frozen=True)
class WatermarkSet:
    """A zone's watermarks without boost, pages (S1.6)."""

    min: int
    low: int
    high: int
    promo: int


def min_free_kbytes(lowmem_kbytes: int) -> int:
    """Default of vm.min_free_kbytes before khugepaged raises it (S1.5)."""
    return min(max(isqrt(16 * lowmem_kbytes), 128), 262144)


def khugepaged_min_free_pages(pages_per_block: int, populated_zones: int, lowmem_pages: int) -> int:
    """What khugepaged raises min_free to, pages (S1.5)."""
    return min(pages_per_block * populated_zones * (2 + 3 * 3), lowmem_pages // 20)


def watermarks(
    zone_name: str,
    managed: int,
    min_free_pages: int,
    managed_of_normal_zones: int,
    scale_factor: int = 10,
) -> WatermarkSet:
    """Watermarks of one zone (S1.6).

    Args:
        zone_name: HighMem and Movable get a capped min.
        managed: pages of the zone.
        min_free_pages: min_free_kbytes in pages.
        managed_of_normal_zones: sum over all zones but HighMem and Movable.
        scale_factor: vm.watermark_scale_factor.
    """
    share = min_free_pages * managed // managed_of_normal_zones
    lowest = clamp(managed // 1024, 32, 128) if zone_name in CAPPED_MIN_ZONES else share
    gap = max(share // 4, managed * scale_factor // 10000)
    return WatermarkSet(lowest, lowest + gap, lowest + 2 * gap, lowest + 3 * gap)


def lowmem_reserve(zone_names: Sequence[str], managed: Sequence[int], zone: int) -> tuple[int, ...]:
    """Pages zone `zone` keeps from requests by their highest zone index (S1.8)."""
    ratio = LOWMEM_RESERVE_RATIO.get(zone_names[zone])
    if not ratio:
        return (0,) * len(managed)
    return tuple(sum(managed[zone + 1 : upper + 1]) // ratio for upper in range(len(managed)))


@dataclass(frozen=True)
class PageSetSize:
    """batch, high_min and high_max of every page set of a zone, pages (S4.2, S4.3)."""

    batch: int
    high_min: int
    high_max: int


def batch_size(managed: int, rules: OracleRules) -> int:
    """Batch of a zone's page sets, pages (S4.2).

    Kernels whose rounding yields 0 for a tiny zone still give its page sets 1.
    """
    cap_pages = rules.batch_cap_bytes // PAGE_SIZE
    batch = min(managed >> rules.batch_from_managed_shift, cap_pages)
    if rules.batch_from_managed_shift == 10:
        batch //= 4
    batch = max(batch, 1)
    if batch == 1:
        return max(rules.tiny_zone_batch, 1)
    return round_down_to_power_of_two(batch + batch // 2) - 1


def high_size(total_pages: int, nr_cpus: int, batch: int) -> int:
    """One page set's share of `total_pages`, at least four batches (S4.3)."""
    return max(total_pages // nr_cpus, 4 * batch)


def page_set_size(
    zone: OracleZone, machine: OracleMachine, rules: OracleRules, policy: OraclePolicy
) -> PageSetSize:
    """Bounds of the zone's page sets, the policy's values where it gives some (S4.2, S4.3).

    The CPUs of the zone's node share it; all CPUs do if the node has none. A fixed limit is both
    bounds at once: the policy's high_max has no say.
    """
    batch = batch_size(zone.managed, rules) if policy.pcp_batch is None else policy.pcp_batch
    fraction = policy.percpu_pagelist_high_fraction
    nr_cpus = len(machine.cpus_of(zone.node)) or machine.nr_cpus
    if fraction:
        high_min = high_max = high_size(zone.managed // fraction, nr_cpus, batch)
    else:
        high_min = high_size(zone.low, nr_cpus, batch)
        high_max = high_size(zone.managed // HIGH_MAX_FRACTION, nr_cpus, batch)
    if policy.pcp_high_min is not None:
        high_min = policy.pcp_high_min
    if policy.pcp_high_max is not None:
        high_max = policy.pcp_high_max
    if not rules.pcp_tunes_itself:
        high_max = high_min
    return PageSetSize(batch=batch, high_min=high_min, high_max=high_max)


def normal_stat_threshold(managed: int, nr_cpus: int) -> int:
    """Changes of a counter that a CPU may keep to itself, pages (S1.10).

    It grows with the number of digits of the CPUs and of the zone's size in units of 128 MiB.
    """
    units = managed // ((128 << 20) // PAGE_SIZE)
    return min(2 * nr_cpus.bit_length() * (1 + units.bit_length()), LARGEST_STAT_THRESHOLD)


def pressure_stat_threshold(zone: OracleZone, nr_cpus: int) -> int:
    """The same while kswapd works: all CPUs together stay within the distance from low to min."""
    return min(max((zone.low - zone.min) // nr_cpus, 1), LARGEST_STAT_THRESHOLD)


def drift_mark(zone: OracleZone, nr_cpus: int) -> int:
    """Count below which the lag may hide that min is reached; 0 where it cannot (S1.10)."""
    drift = nr_cpus * normal_stat_threshold(zone.managed, nr_cpus)
    return zone.high + drift if drift > zone.low - zone.min else 0
