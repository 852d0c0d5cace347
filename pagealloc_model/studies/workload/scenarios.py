"""Workloads that strain zone->lock, made up from a few numbers and a seed."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from pagealloc_model.allocator import layout as at
from pagealloc_model.base.errors import UsageError
from pagealloc_model.base.text.counts import count_of
from pagealloc_model.recording.machine import Machine
from pagealloc_model.studies.workload.scenario import (
    Mapping,
    Scenario,
    events_of,
    in_time_order,
    plain_events,
)

MILLISECOND = 1_000_000
SECOND = 1_000_000_000
FIRST_NS = MILLISECOND
TOUCH_NS = 500
"""From one page fault to the next."""
UNCONTENDED_NS = 200
"""From one page fault on the machine to the next, so that refills alone do not fill the lock."""
FREE_NS = 80
"""From one page to the next when a process is torn down."""


def exit_avalanche(
    machine: Machine,
    *,
    pages: int = 8192,
    lifetime_ns: int = 30 * SECOND,
    stagger_ns: int = MILLISECOND,
    reclaimers: int = 0,
    drain_every_ns: int = MILLISECOND,
    reclaim_active: bool = False,
    seed: int = 0,
) -> Scenario:
    """A process per CPU touches memory, slowly; then all of them exit at once.

    Args:
        machine: where.
        pages: pages of each process.
        lifetime_ns: time they keep them; meanwhile the lists' limits sink (S4.8).
        stagger_ns: within which time they begin to exit.
        reclaimers: CPUs, the last ones, that have no process but meanwhile call drain_all_pages
            again and again, as direct reclaim does (S8.2).
        drain_every_ns: how often each of them does.
        reclaim_active: kswapd runs on every node during the exit (S4.6).
        seed: of the stagger.

    Raises:
        UsageError: no CPU is left to exit.
    """
    exiting = machine.nr_cpus - reclaimers
    if exiting < 1 or reclaimers < 0:
        raise UsageError(f"{reclaimers} reclaimers on {machine.nr_cpus} CPUs: one must exit")
    rng = np.random.default_rng(seed)
    touch_ns = max(TOUCH_NS, machine.nr_cpus * UNCONTENDED_NS)
    exit_ns = FIRST_NS + pages * touch_ns + lifetime_ns
    late = rng.integers(0, max(stagger_ns, 1), exiting).tolist()
    mappings = [
        Mapping(
            pages=pages,
            touched_ns=FIRST_NS + cpu,
            touch_ns=touch_ns,
            cpu=cpu,
            freed_ns=exit_ns + late[cpu],
            free_ns=FREE_NS,
            freeing_cpu=cpu,
        )
        for cpu in range(exiting)
    ]
    parts = [events_of(mappings, machine)]
    drains = np.arange(exit_ns, exit_ns + stagger_ns + pages * FREE_NS, drain_every_ns)
    for each in range(reclaimers):
        cpus = np.full(len(drains), exiting + each)
        parts.append(plain_events(at.DRAIN_ALL, drains + each, cpus))
    if reclaim_active:
        starts = plain_events(
            at.KSWAPD_START, np.full(len(machine.nodes), exit_ns - 1), np.zeros(1, np.int16)
        )
        starts["offset"] = np.arange(len(machine.nodes))
        starts["zone"] = len(machine.zone_types) - 1
        parts.append(starts)
    return Scenario(
        name="exit",
        machine=machine,
        events=in_time_order(np.concatenate(parts)),
        objects=pages * exiting,
        seed=seed,
        kswapd_recorded=reclaim_active,
        lines=(
            f"{count_of(exiting, 'process exits', 'processes exit')} within "
            f"{stagger_ns / 1e6:g} ms, "
            f"{count_of(pages, 'page')} each, "
            f"a page every {FREE_NS} ns",
            f"CPUs that drain all lists every {drain_every_ns / 1e6:g} ms meanwhile: {reclaimers}",
        ),
    )


def boot(
    machine: Machine,
    *,
    bursts: int = 8,
    median_pages: int = 2048,
    initramfs_pages: int = 65536,
    seed: int = 0,
) -> Scenario:
    """One CPU unpacks and frees an initramfs, then short-lived processes start on all CPUs.

    Args:
        machine: where.
        bursts: processes per CPU, one after the other.
        median_pages: of their sizes, which are log-normal.
        initramfs_pages: freed by the first CPU at once.
        seed: of sizes and starting times.
    """
    rng = np.random.default_rng(seed)
    mappings = [_lifetime(initramfs_pages, FIRST_NS, 0)]
    begun = mappings[0].freed_ns + initramfs_pages * FREE_NS
    for cpu in range(machine.nr_cpus):
        at_ns = begun + int(rng.integers(0, 20 * MILLISECOND))
        for _ in range(bursts):
            pages = int(np.clip(median_pages * rng.lognormal(0, 1), 64, 16 * median_pages))
            mappings.append(_lifetime(pages, at_ns, cpu))
            at_ns = mappings[-1].freed_ns + pages * FREE_NS + int(rng.integers(0, MILLISECOND))
    return _plain(
        "boot",
        machine,
        mappings,
        seed,
        f"an initramfs of {initramfs_pages} pages, then {bursts} processes per CPU of "
        f"{median_pages} pages (median)",
    )


def purgers(
    machine: Machine,
    *,
    purging_cpus: int = 1,
    pages: int = 4096,
    rounds: int = 8,
    seed: int = 0,
) -> Scenario:
    """Many CPUs allocate; a few others free what they allocated, as purger threads do.

    Args:
        machine: where; the last CPUs purge.
        purging_cpus: how many purge; at least one CPU allocates.
        pages: pages that an allocator touches before they are purged.
        rounds: how often.
        seed: of starting times.

    Raises:
        UsageError: no CPU is left to allocate.
    """
    allocators = machine.nr_cpus - purging_cpus
    if purging_cpus < 1 or allocators < 1:
        raise UsageError(
            f"{purging_cpus} purging CPUs of {machine.nr_cpus}: at least one must purge, and one "
            "allocate"
        )
    rng = np.random.default_rng(seed)
    free_at = [0] * purging_cpus
    mappings = []
    for number in range(rounds):
        for cpu in range(allocators):
            touched = FIRST_NS + number * pages * TOUCH_NS + int(rng.integers(0, MILLISECOND))
            purger = cpu % purging_cpus
            freed = max(touched + pages * TOUCH_NS, free_at[purger])
            free_at[purger] = freed + pages * FREE_NS
            mappings.append(
                Mapping(
                    pages=pages,
                    touched_ns=touched,
                    touch_ns=TOUCH_NS,
                    cpu=cpu,
                    freed_ns=freed,
                    free_ns=FREE_NS,
                    freeing_cpu=allocators + purger,
                )
            )
    return _plain(
        "purgers",
        machine,
        mappings,
        seed,
        f"{count_of(allocators, 'CPU allocates', 'CPUs allocate')} {count_of(pages, 'page')} "
        f"{count_of(rounds, 'time')}, {count_of(purging_cpus, 'other frees', 'others free')} them",
    )


def vm_churn(
    machine: Machine,
    *,
    workers: int = 0,
    pages: int = 8192,
    rounds: int = 4,
    seed: int = 0,
) -> Scenario:
    """Workers map memory, touch all of it and unmap it, over and over, as stress-ng's vm does.

    Args:
        machine: where.
        workers: one to a CPU; 0 for one on each.
        pages: pages of a mapping.
        rounds: how often each maps.
        seed: of starting times.
    """
    rng = np.random.default_rng(seed)
    busy = min(workers or machine.nr_cpus, machine.nr_cpus)
    mappings = []
    for cpu in range(busy):
        at_ns = FIRST_NS + int(rng.integers(0, 4 * MILLISECOND))
        for _ in range(rounds):
            mappings.append(_lifetime(pages, at_ns, cpu))
            at_ns = mappings[-1].freed_ns + pages * FREE_NS
    return _plain(
        "churn",
        machine,
        mappings,
        seed,
        f"{count_of(busy, 'worker maps', 'workers map')} {count_of(pages, 'page')} "
        f"{count_of(rounds, 'time')}",
    )


SCENARIOS: dict[str, Callable[..., Scenario]] = {
    "exit": exit_avalanche,
    "boot": boot,
    "purgers": purgers,
    "churn": vm_churn,
}
"""Scenarios by name; each takes a machine and its own numbers by keyword."""


def _lifetime(pages: int, at_ns: int, cpu: int) -> Mapping:
    """Pages touched and then at once freed by one CPU."""
    return Mapping(
        pages=pages,
        touched_ns=at_ns,
        touch_ns=TOUCH_NS,
        cpu=cpu,
        freed_ns=at_ns + pages * TOUCH_NS,
        free_ns=FREE_NS,
        freeing_cpu=cpu,
    )


def _plain(name: str, machine: Machine, mappings: list[Mapping], seed: int, line: str) -> Scenario:
    return Scenario(
        name=name,
        machine=machine,
        events=events_of(mappings, machine),
        objects=sum(each.pages for each in mappings),
        seed=seed,
        lines=(line,),
    )
