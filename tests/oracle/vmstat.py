"""The sizes of page sets (S4.2, S4.3), and counts of free pages, which may lag (S1.10)."""

from __future__ import annotations

from dataclasses import dataclass

from tests.oracle.machine import PAGE_SIZE, Migratetype, OracleMachine, OracleZone
from tests.oracle.rules import OraclePolicy, OracleRules

HIGH_MAX_FRACTION = 8  # high_max is the zone's share of managed / 8 (S4.3)

LARGEST_STAT_THRESHOLD = 125
"""Most pages a CPU keeps out of a counter: the difference must fit a byte (S1.10)."""


def clamp(value: int, low: int, high: int) -> int:
    """clamp(): return a value within bounds; `high` wins where they cross (S4.4, S4.6)."""
    if value >= high:
        return high
    return max(value, low)


def rounddown_pow_of_two(value: int) -> int:
    """rounddown_pow_of_two(): return the largest power of two not above a positive value."""
    return 1 << (value.bit_length() - 1)


def zone_batchsize(managed: int, rules: OracleRules) -> int:
    """zone_batchsize(): return the batch of a zone's page sets, pages (S4.2).

    Kernels whose rounding yields 0 for a tiny zone still give its page sets 1.
    """
    cap_pages = rules.batch_cap_bytes // PAGE_SIZE
    batch = min(managed >> rules.batch_from_managed_shift, cap_pages)
    if rules.batch_from_managed_shift == 10:
        batch //= 4
    batch = max(batch, 1)
    if batch == 1:
        return max(rules.tiny_zone_batch, 1)
    return rounddown_pow_of_two(batch + batch // 2) - 1


def page_set_size(
    zone: OracleZone, machine: OracleMachine, rules: OracleRules, policy: OraclePolicy
) -> tuple[int, int, int]:
    """zone_set_pageset_high_and_batch(): return batch, high_min and high_max (S4.2, S4.3).

    They are in pages, of every page set of a zone, and the policy's where it gives some. The CPUs
    of the zone's node share it; all CPUs do if the node has none. A fixed limit is both bounds at
    once: the policy's high_max has no say.
    """
    batch = zone_batchsize(zone.managed, rules) if policy.pcp_batch is None else policy.pcp_batch
    fraction = policy.percpu_pagelist_high_fraction
    nr_cpus = len(machine.cpus_of(zone.node)) or machine.nr_cpus

    def zone_highsize(total_pages: int) -> int:
        return max(total_pages // nr_cpus, 4 * batch)

    high_min = zone_highsize(zone.managed // fraction if fraction else zone.low)
    high_max = zone_highsize(zone.managed // (fraction or HIGH_MAX_FRACTION))
    if policy.pcp_high_min is not None:
        high_min = policy.pcp_high_min
    if policy.pcp_high_max is not None:
        high_max = policy.pcp_high_max
    if not rules.pcp_tunes_itself:
        high_max = high_min
    return batch, high_min, high_max


def calculate_normal_threshold(managed: int, nr_cpus: int) -> int:
    """calculate_normal_threshold(): return how much a CPU may keep to itself, pages (S1.10).

    It grows with the number of digits of the CPUs and of the zone's size in units of 128 MiB.
    """
    units = managed // ((128 << 20) // PAGE_SIZE)
    return min(2 * nr_cpus.bit_length() * (1 + units.bit_length()), LARGEST_STAT_THRESHOLD)


def calculate_pressure_threshold(zone: OracleZone, nr_cpus: int) -> int:
    """calculate_pressure_threshold(): return how much a CPU may keep while kswapd works.

    All CPUs together stay within the distance from low to min.
    """
    return min(max((zone.low - zone.min) // nr_cpus, 1), LARGEST_STAT_THRESHOLD)


def drift_mark(zone: OracleZone, nr_cpus: int) -> int:
    """refresh_zone_stat_thresholds(): return below which count lag may hide min, or 0 (S1.10)."""
    drift = nr_cpus * calculate_normal_threshold(zone.managed, nr_cpus)
    return zone.high + drift if drift > zone.low - zone.min else 0


@dataclass
class ThisCpu:
    """The CPU that the current step runs on."""

    number: int = 0


class VmCounter:
    """A number of pages, most of it common to all CPUs, the latest changes kept by each CPU.

    Attributes:
        threshold: a CPU keeps changes back as long as their sum is within plus or minus this.
    """

    def __init__(self, nr_cpus: int) -> None:
        self.shared = 0  # what every CPU reads; may be negative for a while
        self.pending = [0] * nr_cpus  # per CPU, changes that are not in `shared` yet
        self.threshold = 0

    @property
    def total(self) -> int:
        """zone_page_state_snapshot(): return the true number."""
        return self.shared + sum(self.pending)

    def read(self) -> int:
        """zone_page_state(): return the number as decisions see it."""
        return max(self.shared, 0)

    def add(self, cpu: int, pages: int) -> None:
        """__mod_zone_page_state(): make one update by a CPU."""
        self.pending[cpu] += pages
        if abs(self.pending[cpu]) > self.threshold:
            self.fold(cpu)

    def fold(self, cpu: int) -> None:
        """Part of refresh_cpu_vm_stats(): pass on what a CPU kept back."""
        self.shared += self.pending[cpu]
        self.pending[cpu] = 0


class FreeCounters:
    """A zone's free pages: all but those in ISOLATE blocks, and those in two types of blocks.

    Attributes:
        drift_mark: below it, the question whether a node is balanced takes the true number; 0 where
            the lag is too small to matter.
    """

    def __init__(
        self, zone: OracleZone, machine: OracleMachine, this_cpu: ThisCpu, *, lags: bool
    ) -> None:
        self.machine = machine
        self.this_cpu = this_cpu
        self.lags = lags  # CPUs keep changes back; else every reader sees the true numbers
        self.free = VmCounter(machine.nr_cpus)  # NR_FREE_PAGES
        self.cma = VmCounter(machine.nr_cpus)  # the part of it in CMA blocks
        self.highatomic = 0  # the part of it in HIGHATOMIC blocks; never lags
        self.drift_mark = drift_mark(zone, machine.nr_cpus) if lags else 0
        self._normal_threshold = calculate_normal_threshold(zone.managed, machine.nr_cpus)
        self._pressure_threshold = calculate_pressure_threshold(zone, machine.nr_cpus)
        self._touched = [False] * machine.nr_cpus
        if lags:
            self.free.threshold = self.cma.threshold = self._normal_threshold

    def place(self, pages: int, migratetype: int) -> None:
        self.add(pages, migratetype)
        for cpu in range(self.machine.nr_cpus):
            self.fold(cpu)

    def add(self, pages: int, migratetype: int) -> None:
        """account_freepages(): count pages of a type that became free, or less than none."""
        if not self.machine.is_isolate(migratetype):
            self.add_to_free(pages)
            self.add_to_part(pages, migratetype)

    def add_to_free(self, pages: int) -> None:
        """Part of account_freepages(): add the share that concerns all types."""
        self._touched[self.this_cpu.number] |= pages != 0
        self.free.add(self.this_cpu.number, pages)

    def add_to_part(self, pages: int, migratetype: int) -> None:
        """Part of account_freepages(): add the share that concerns one type only."""
        if migratetype == self.machine.cma:
            self.cma.add(self.this_cpu.number, pages)
        elif migratetype == Migratetype.HIGHATOMIC:
            self.highatomic += pages

    def move(self, pages: int, old: int, new: int) -> None:
        """Part of move_to_free_list(): change free pages' type, in two updates."""
        self.free.add(self.this_cpu.number, -pages)
        self.free.add(self.this_cpu.number, pages)
        self.add_to_part(-pages, old)
        self.add_to_part(pages, new)

    def has_changed(self, cpu: int) -> bool:
        """Whether the next fold finds something of a CPU's.

        Counts that do not lag leave nothing behind; there, any update since the last fold counts.
        """
        if self.lags:
            return self.free.pending[cpu] != 0 or self.cma.pending[cpu] != 0
        return self._touched[cpu]

    def fold(self, cpu: int) -> bool:
        """Part of refresh_cpu_vm_stats(): pass on what a CPU kept back, if anything (S4.8)."""
        changed = self.has_changed(cpu)
        self.free.fold(cpu)
        self.cma.fold(cpu)
        self._touched[cpu] = False
        return changed

    def note_kswapd(self, *, active: bool) -> None:
        """set_pgdat_percpu_threshold(): let CPUs keep less back while a node's kswapd works."""
        if self.drift_mark:
            pages = self._pressure_threshold if active else self._normal_threshold
            self.free.threshold = self.cma.threshold = pages

    def free_for_balance(self) -> int:
        """zone_page_state_snapshot(): return the free pages as kswapd's balance sees them."""
        if self.free.read() < self.drift_mark:
            return max(self.free.total, 0)
        return self.free.read()
