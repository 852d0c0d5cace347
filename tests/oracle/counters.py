"""The counts of free pages that decisions read, and how far they lag behind (S1.10)."""

from __future__ import annotations

from dataclasses import dataclass

from tests.oracle.machine import Migratetype, OracleMachine, OracleZone
from tests.oracle.sizing import calculate_normal_threshold, calculate_pressure_threshold, drift_mark


@dataclass
class ThisCpu:
    """The CPU that the current step runs on."""

    number: int = 0


class VmCounter:
    """A number of pages, most of it common to all CPUs, the latest changes kept by each CPU.

    Attributes:
        shared: what every CPU reads; may be negative for a while.
        pending: per CPU, changes that are not in `shared` yet.
        threshold: a CPU keeps changes back as long as their sum is within plus or minus this.
    """

    def __init__(self, nr_cpus: int) -> None:
        self.shared = 0
        self.pending = [0] * nr_cpus
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

    def fold(self, cpu: int) -> bool:
        """Part of refresh_cpu_vm_stats(): pass on what a CPU kept back.

        Returns whether there was anything.
        """
        kept = self.pending[cpu]
        self.shared += kept
        self.pending[cpu] = 0
        return kept != 0


class FreeCounters:
    """A zone's free pages: all but those in ISOLATE blocks, and those in two types of blocks.

    Attributes:
        free: NR_FREE_PAGES.
        cma: the part of it in CMA blocks.
        highatomic: the part of it in HIGHATOMIC blocks; never lags.
        lags: CPUs keep changes back; else every reader sees the true numbers.
        drift_mark: below it, the question whether a node is balanced takes the true number; 0
            where the lag is too small to matter.
    """

    def __init__(
        self, zone: OracleZone, machine: OracleMachine, this_cpu: ThisCpu, *, lags: bool
    ) -> None:
        self.machine = machine
        self.this_cpu = this_cpu
        self.lags = lags
        self.free = VmCounter(machine.nr_cpus)
        self.cma = VmCounter(machine.nr_cpus)
        self.highatomic = 0
        self.drift_mark = drift_mark(zone, machine.nr_cpus) if lags else 0
        self._normal_threshold = calculate_normal_threshold(zone.managed, machine.nr_cpus)
        self._pressure_threshold = calculate_pressure_threshold(zone, machine.nr_cpus)
        self._touched = [False] * machine.nr_cpus
        if lags:
            self._set_threshold(self._normal_threshold)

    def place(self, pages: int, migratetype: int) -> None:
        """No kernel function: count pages of the start state."""
        self.add(pages, migratetype)
        for cpu in range(self.machine.nr_cpus):
            self.fold(cpu)

    def add(self, pages: int, migratetype: int) -> None:
        """account_freepages(): count pages of a type that became free.

        They may be less than none.
        """
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
        """Part of move_to_free_list(): change the type of free pages.

        These are two updates, which may push out what was kept back.
        """
        self.free.add(self.this_cpu.number, -pages)
        self.free.add(self.this_cpu.number, pages)
        self.add_to_part(-pages, old)
        self.add_to_part(pages, new)

    def has_changed(self, cpu: int) -> bool:
        """No kernel function: return whether the next fold finds something of a CPU's.

        Counts that do not lag leave nothing behind; there, any update since the last fold counts.
        """
        if self.lags:
            return self.free.pending[cpu] != 0 or self.cma.pending[cpu] != 0
        return self._touched[cpu]

    def fold(self, cpu: int) -> bool:
        """Part of refresh_cpu_vm_stats(): pass on what a CPU kept back (S4.8).

        Returns whether it had changed anything.
        """
        changed = self.has_changed(cpu)
        self.free.fold(cpu)
        self.cma.fold(cpu)
        self._touched[cpu] = False
        return changed

    def note_kswapd(self, active: bool) -> None:
        """set_pgdat_percpu_threshold(): let CPUs keep less back while kswapd works.

        That is so on its node, where the lag matters.
        """
        if self.drift_mark:
            self._set_threshold(self._pressure_threshold if active else self._normal_threshold)

    def free_for_balance(self) -> int:
        """zone_page_state_snapshot(): return the free pages as kswapd sees them.

        It asks whether a node is balanced.
        """
        if self.free.read() < self.drift_mark:
            return max(self.free.total, 0)
        return self.free.read()

    def _set_threshold(self, pages: int) -> None:
        """Part of set_pgdat_percpu_threshold(): set a zone's threshold."""
        self.free.threshold = self.cma.threshold = pages
