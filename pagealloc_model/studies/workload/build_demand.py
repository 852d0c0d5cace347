"""What compilers, the page cache and bursts of huge pages ask for, step by step."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from pagealloc_model.allocator import layout as at
from pagealloc_model.allocator import pressure_layout as pr
from pagealloc_model.recording.machine import Machine
from pagealloc_model.studies.workload.build_host import BuildHost

WAITS = at.GFP_DIRECT_RECLAIM | at.GFP_KSWAPD_RECLAIM | pr.GFP_IO | pr.GFP_FS
KERNEL_BITS = WAITS | pr.KERNEL << pr.CLASS_SHIFT
SLAB_BITS = WAITS | pr.RECLAIMABLE << pr.CLASS_SHIFT
ANON_BITS = WAITS | pr.ANON << pr.CLASS_SHIFT
FILE_BITS = WAITS & ~pr.GFP_FS | pr.GFP_NORETRY | pr.FILE << pr.CLASS_SHIFT
HUGE_BITS = pr.GFP_IO | at.GFP_NOMEMALLOC | pr.ANON << pr.CLASS_SHIFT
"""A fault that is not madvised under the default setting, `madvise`: it may not reclaim (S8.5)."""
SHORTEST_JOB, LONGEST_JOB = 0.5, 1.5
"""A compiler's life is spread evenly between these multiples of the mean."""


@dataclass
class _Demand:
    """Events being made, some of them for later steps.

    Attributes:
        highest: zone type that requests may use at most.
        leads: int32 by object, in parts: the huge page it comes in place of, -1 for none.
        objects: how many there are so far.
        parts: events not yet handed out.
    """

    highest: int
    leads: list[np.ndarray] = field(default_factory=list)
    objects: int = 0
    parts: list[np.ndarray] = field(default_factory=list)

    def ask(
        self,
        times: np.ndarray,
        freed_at: np.ndarray | None,
        *,
        bits: int,
        cpu: np.ndarray | int,
        migratetype: int = at.MOVABLE,
        order: int | np.ndarray = 0,
        operation: int = at.ALLOC,
        leads: np.ndarray | int = -1,
    ) -> None:
        """Allocations at some times, ns, and frees of them; None: never freed but by reclaim."""
        asked = np.zeros(len(times), at.EVENT)
        asked["operation"] = operation
        asked["time_ns"] = times
        asked["object"] = self.objects + np.arange(len(times))
        asked["bits"] = bits
        asked["migratetype"] = migratetype
        asked["order"] = order
        asked["cpu"] = cpu
        asked["zone"] = self.highest
        self.objects += len(times)
        self.leads.append(np.broadcast_to(np.asarray(leads, np.int32), len(times)))
        self.parts.append(asked)
        if freed_at is not None:
            freed = asked.copy()
            freed["operation"] = at.FREE
            freed["bits"] = 0
            freed["time_ns"] = freed_at
            self.parts.append(freed)

    def take_until(self, end_ns: int) -> np.ndarray:
        """Take the events up to a time, in order of time."""
        events = np.concatenate(self.parts)
        times = events["time_ns"].copy()
        # records are taken by number: a mask copies them field by field
        self.parts = [events.take(np.flatnonzero(times > end_ns))]
        due = np.flatnonzero(times <= end_ns)
        return events.take(due[np.argsort(times[due], kind="stable")])


def steps_of_demand(machine: Machine, host: BuildHost) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Events of each step, and what each object so far came in place of.

    Args:
        machine: the host's.
        host: what it does.

    Yields:
        `layout.EVENT` records in order of time; int32 by object, some of them of later steps: the
        huge page that it comes in place of, -1 for none.
    """
    rng = np.random.default_rng(host.seed + 1)
    demand = _Demand(highest=machine.type_index("Normal"))
    job_ends = np.zeros(host.busy_cpus, np.int64)
    for step in range(host.steps):
        begin = step * host.step_ns
        end = begin + host.step_ns
        for cpu in range(host.busy_cpus):
            while job_ends[cpu] < end:
                job_ends[cpu] = _add_job(demand, rng, host, cpu, int(job_ends[cpu]))
        _add_cache(demand, rng, host, begin)
        _add_lasting(demand, rng, host, begin)
        _add_bursts(demand, rng, host, begin, machine.pageblock_order)
        yield demand.take_until(end), np.concatenate(demand.leads)


def _add_job(
    demand: _Demand, rng: np.random.Generator, host: BuildHost, cpu: int, begin: int
) -> int:
    """A compiler: touches memory evenly, exits and frees all of it; returns when, ns."""
    share = rng.uniform(SHORTEST_JOB, LONGEST_JOB)
    if begin == 0:
        share *= rng.random()
    life_s = share * host.job_s * host.job_stretch
    end = begin + int(life_s * 1e9) + 1
    for rate, bits, migratetype in (
        (host.job_pages_per_s, ANON_BITS, at.MOVABLE),
        (host.job_kernel_pages_per_s, KERNEL_BITS, at.UNMOVABLE),
    ):
        times = np.sort(rng.integers(begin, end, rng.poisson(rate * share * host.job_s)))
        order: int | np.ndarray = 0
        if migratetype == at.UNMOVABLE:
            order = (rng.random(len(times)) < host.kernel_order_1_per_mille / 1000).astype(np.int8)
        demand.ask(
            times,
            np.full(len(times), end),
            bits=bits,
            cpu=cpu,
            migratetype=migratetype,
            order=order,
        )
    return end


def _add_lasting(demand: _Demand, rng: np.random.Generator, host: BuildHost, begin: int) -> None:
    """Kernel memory that outlives the build: pages of slabs with a few live objects, and others."""
    times = np.sort(rng.integers(begin, begin + host.step_ns, host.lasting_pages))
    cpus = rng.integers(0, host.busy_cpus, len(times))
    demand.ask(times, None, bits=KERNEL_BITS, cpu=cpus, migratetype=at.UNMOVABLE)


def _add_cache(demand: _Demand, rng: np.random.Generator, host: BuildHost, begin: int) -> None:
    """Files read and written, and the kernel memory that describes them."""
    end = begin + host.step_ns
    pages = rng.poisson(host.cache_pages_per_s * host.step_ns / 1e9)
    times = np.sort(rng.integers(begin, end, pages))
    demand.ask(times, None, bits=FILE_BITS, cpu=rng.integers(0, host.busy_cpus, pages))
    slabs = rng.poisson(pages * host.slab_per_mille / 1000)
    times = np.sort(rng.integers(begin, end, slabs))
    lives = (rng.exponential(host.slab_s, slabs) * 1e9).astype(np.int64) + 1
    demand.ask(
        times,
        times + lives,
        bits=SLAB_BITS,
        cpu=rng.integers(0, host.busy_cpus, slabs),
        migratetype=at.RECLAIMABLE,
    )


def _add_bursts(
    demand: _Demand, rng: np.random.Generator, host: BuildHost, begin: int, order: int
) -> None:
    """Bursts of faults on the last CPU, one after the other, after pauses of random length.

    A huge page is tried; base pages come in its place if it fails (S10.5).
    """
    period = host.step_ns // host.bursts
    fault_ns = host.fault_us * 1000
    faults = np.arange(host.burst_huge_pages) * fault_ns
    life = int(faults[-1] + fault_ns + host.hold_s * 1e9)
    base_pages = 1 << order
    later = 1 + np.arange(base_pages) * fault_ns // (2 * base_pages)
    cpu = host.nr_cpus - 1
    for burst in range(host.bursts):
        times = begin + burst * period + int(rng.integers(max(period - life, 1))) + faults
        gone = times[0] + life
        first = demand.objects
        demand.ask(
            times,
            np.full(len(times), gone),
            bits=HUGE_BITS,
            cpu=cpu,
            order=order,
            operation=at.RECORDED_FAILURE,
        )
        demand.ask(
            (times[:, None] + later).ravel(),
            np.full(len(times) * base_pages, gone),
            bits=ANON_BITS,
            cpu=cpu,
            leads=np.repeat(first + np.arange(len(times)), base_pages),
        )
