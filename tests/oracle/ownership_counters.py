"""What the locks of per-CPU lists and pageblock ownership are counted by (S11.3, S12)."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

from tests.oracle.counters import ThisCpu

PHASES = 4
"""A refill's phases: recover, claim, chunk, classic (S12.3)."""

FOLIO_BATCH = 31
"""Frees that may share one hold of a pcp->lock (S4.11)."""


@dataclass
class PhaseCount:
    """One phase of refills: how many got something by it, and what."""

    refills: int = 0
    objects: int = 0
    pages: int = 0


@dataclass
class OwnershipCount:
    """What one CPU did in one zone.

    Attributes:
        phases: by phase of refills.
        claimed: blocks that became owned.
        recorded: blocks put on a recorded list.
        recovered: blocks taken off one by a refill.
        ended: ownerships ended.
        remote_frees: frees routed to another CPU's lists.
        busy_frees: those that found them locked.
        lock_acquisitions: of pcp->lock, to allocate or to free.
        lock_drain_holds: of pcp->lock, to drain only.
        lock_handovers: of both, those after another CPU's.
        splits: pages cut in two on the lists.
        merges: pairs joined on the lists.
        merge_looks: entries looked at to find pairs.
        recorded_looks: recorded blocks looked at by refills.
    """

    phases: tuple[PhaseCount, ...] = field(
        default_factory=lambda: tuple(PhaseCount() for _ in range(PHASES))
    )
    claimed: int = 0
    recorded: int = 0
    recovered: int = 0
    ended: int = 0
    remote_frees: int = 0
    busy_frees: int = 0
    lock_acquisitions: int = 0
    lock_drain_holds: int = 0
    lock_handovers: int = 0
    splits: int = 0
    merges: int = 0
    merge_looks: int = 0
    recorded_looks: int = 0


class OwnershipCounters:
    """Counts by zone and by the CPU that acts, whoever's lists it acts on."""

    def __init__(self, this_cpu: ThisCpu) -> None:
        self._this_cpu = this_cpu
        self._counts: defaultdict[tuple[int, int], OwnershipCount] = defaultdict(OwnershipCount)

    def of(self, zone: int) -> OwnershipCount:
        """No kernel function: return the acting CPU's counts in a zone."""
        return self._counts[zone, self._this_cpu.number]

    @property
    def remote_frees(self) -> int:
        """No kernel function: return the frees routed to other CPUs' lists so far.

        They are by all CPUs in all zones.
        """
        return sum(each.remote_frees for each in self._counts.values())

    def clear(self) -> None:
        """No kernel function: count from 0."""
        self._counts.clear()

    def at(self, zone: int, cpu: int) -> OwnershipCount:
        """No kernel function: return a CPU's counts in a zone."""
        return self._counts[zone, cpu]


@dataclass
class _FreeRun:
    """Consecutive frees of a folio batch that keep one pcp->lock."""

    zone: int
    owner: int
    length: int


class ListLocks:
    """pcp->lock of every page set: how often it is taken, and when it changes hands."""

    def __init__(self, this_cpu: ThisCpu, counters: OwnershipCounters) -> None:
        self._this_cpu = this_cpu
        self._counters = counters
        self._holders: dict[tuple[int, int], int] = {}
        self._runs: dict[int, _FreeRun] = {}
        self._kept: dict[int, tuple[int, int]] = {}
        self._drained: dict[int, tuple[int, int]] = {}
        self._interrupted: tuple[int, int] | None = None

    def take(self, zone: int, owner: int) -> None:
        """pcp_spin_trylock(): take the lock of a CPU's lists of a zone.

        The acting CPU does, to allocate or to free.
        """
        self._counters.of(zone).lock_acquisitions += 1
        self._hand_over(zone, owner)

    def take_to_drain(self, zone: int, owner: int) -> None:
        """No kernel function: take the lock for a drain's chunk that does nothing else."""
        self._counters.of(zone).lock_drain_holds += 1
        self._hand_over(zone, owner)

    def take_to_free(self, zone: int, owner: int, *, batched: bool) -> None:
        """Part of free_unref_folios(): take the lock for a free (S4.11).

        It may keep the lock of the free before.
        """
        cpu = self._this_cpu.number
        if self._interrupted:
            self.take(zone, owner)
            return
        run = self._runs.pop(cpu, None)
        if batched and run and (run.zone, run.owner) == (zone, owner) and run.length < FOLIO_BATCH:
            run.length += 1
        else:
            self.take(zone, owner)
            run = _FreeRun(zone, owner, 1)
        if batched:
            self._runs[cpu] = run

    def _hand_over(self, zone: int, owner: int) -> None:
        """No kernel function: count an acquisition and who had the lock before."""
        taker = self._this_cpu.number
        last = self._holders.get((zone, owner), taker)
        self._holders[zone, owner] = taker
        self._counters.of(zone).lock_handovers += last != taker

    def forget(self) -> None:
        """No kernel function: forget who had the locks."""
        self._holders.clear()
        self._runs.clear()
        self._kept.clear()
        self._drained.clear()
        self._interrupted = None

    def is_held(self, zone: int, owner: int) -> bool:
        """pcp_spin_trylock(): return whether it fails, as what is interrupted holds the lock."""
        return self._interrupted == (zone, owner)

    def keep(self, zone: int, owner: int) -> None:
        """No kernel function: keep a lock for the interrupts that come next on the acting CPU.

        They have come into its refill or its drain (S4.10).
        """
        self._kept[self._this_cpu.number] = (zone, owner)

    def note_drain(self, zone: int, owner: int) -> None:
        """No kernel function: note that the acting CPU's free drains a list."""
        self._drained[self._this_cpu.number] = (zone, owner)

    def keep_drained(self) -> None:
        """No kernel function: keep the lock of what the acting CPU's last free drained, if any.

        A folio batch is over. What is kept already stays so.
        """
        cpu = self._this_cpu.number
        self._runs.pop(cpu, None)
        drained = self._drained.get(cpu)
        if drained and cpu not in self._kept:
            self.keep(*drained)

    def begin(self, cpu: int, *, batched: bool = False, interrupts: bool = False) -> None:
        """No kernel function: begin an event of a CPU; it ends, goes on with or interrupts a batch.

        The lock that what is interrupted holds stays held: a batch's, a refill's or a drain's
        (S4.10).
        """
        if not (batched or interrupts):
            self.end_run(cpu)
        if not interrupts:
            self._kept.pop(cpu, None)
            self._drained.pop(cpu, None)
        self._interrupted = self._held_by(cpu) if interrupts else None

    def end_run(self, cpu: int) -> None:
        """No kernel function: end what a CPU did under a list's lock, as it does something else."""
        self._runs.pop(cpu, None)
        self._kept.pop(cpu, None)
        self._drained.pop(cpu, None)
        self._interrupted = None

    def _held_by(self, cpu: int) -> tuple[int, int] | None:
        """No kernel function: return the zone and owner of the list that a CPU keeps locked."""
        run = self._runs.get(cpu)
        return self._kept.get(cpu) or ((run.zone, run.owner) if run else None)
