"""Workloads that strain zone->lock, made up from a few numbers and a seed; runs as recordings."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np

from pagealloc_model.allocator import layout as at
from pagealloc_model.allocator.state import State, make_state
from pagealloc_model.base.errors import UsageError
from pagealloc_model.base.text import count_of
from pagealloc_model.loads.demand import Demand, Gfp, Operation, Requests, plain_events
from pagealloc_model.loads.run import Run
from pagealloc_model.policy.kernel_rules import KernelRules, preset_names
from pagealloc_model.recording.machine import Machine, synthetic_machine
from pagealloc_model.recording.recording import (
    META_FILE,
    RECORDING_VERSION,
    SNAPSHOT_DIRECTORY,
    STORE_FILE,
)
from pagealloc_model.recording.trace.columns import Event, Trace
from pagealloc_model.recording.trace.store import write_store

MILLISECOND = 1_000_000
SECOND = 1_000_000_000
FIRST_NS = MILLISECOND
TOUCH_NS = 500
"""From one page fault to the next."""
UNCONTENDED_NS = 200
"""From one page fault on the machine to the next, so that refills alone do not fill the lock."""
FREE_NS = 80
"""From one page to the next when a process is torn down."""


class Mapping(NamedTuple):
    """Single pages that one CPU touches in a row and one CPU frees in a row.

    `freed_ns`, when the first is freed, is not before the last is allocated.
    """

    pages: int
    touched_ns: int
    cpu: int
    freed_ns: int
    freeing_cpu: int
    touch_ns: int = TOUCH_NS

    @staticmethod
    def freed_at_once(pages: int, touched_ns: int, cpu: int) -> Mapping:
        """Pages that one CPU touches and then frees at once."""
        return Mapping(pages, touched_ns, cpu, touched_ns + pages * TOUCH_NS, cpu)

    @property
    def end_ns(self) -> int:
        """When the last page is freed."""
        return self.freed_ns + self.pages * FREE_NS


def scenario(
    name: str,
    *,
    gib: float,
    nr_cpus: int,
    nodes: int = 1,
    rules: KernelRules | str | None = None,
    seed: int = 0,
    **numbers: int | bool,
) -> Demand:
    """Demand of a known shape on a machine by its size.

    Args:
        name: "exit", "boot", "purgers" or "churn".
        gib: memory of the machine.
        nr_cpus: its CPUs.
        nodes: its NUMA nodes.
        rules: kernel generation that computes its watermarks; None for the newest known.
        seed: of random choices.
        **numbers: of the scenario: keyword arguments of the functions in `SCENARIOS`.

    Raises:
        UsageError: no such scenario or number, or a machine too small.
        PolicyError: no preset of that name.
    """
    if name not in SCENARIOS:
        raise UsageError(f"no scenario {name!r}; there are {', '.join(SCENARIOS)}")
    if not isinstance(rules, KernelRules):
        rules = KernelRules.preset(str(rules or preset_names()[-1]))
    machine = synthetic_machine(gib, nr_cpus, rules, nodes=nodes)
    try:
        return SCENARIOS[name](machine, seed=seed, **numbers)
    except TypeError:
        known = SCENARIOS[name].__kwdefaults__ or {}
        raise UsageError(
            f"scenario {name!r} takes {', '.join(known)}, not {', '.join(numbers)}"
        ) from None


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
) -> Demand:
    """A process per CPU touches memory, slowly; then all of them exit at once.

    They keep their pages for `lifetime_ns`, in which the lists' limits sink (S4.8), and begin to
    exit within `stagger_ns`. The last CPUs, `reclaimers`, have no process but meanwhile call
    drain_all_pages every `drain_every_ns`, as direct reclaim does (S8.2). With `reclaim_active`
    kswapd runs on every node during the exit (S4.6).
    """
    exiting = machine.nr_cpus - reclaimers
    if exiting < 1 or reclaimers < 0:
        raise UsageError(f"{reclaimers} reclaimers on {machine.nr_cpus} CPUs: one must exit")
    touch_ns = max(TOUCH_NS, machine.nr_cpus * UNCONTENDED_NS)
    exit_ns = FIRST_NS + pages * touch_ns + lifetime_ns
    late = np.random.default_rng(seed).integers(0, max(stagger_ns, 1), exiting).tolist()
    requests = requests_of(
        [
            Mapping(pages, FIRST_NS + cpu, cpu, exit_ns + late[cpu], cpu, touch_ns)
            for cpu in range(exiting)
        ],
        machine,
    )
    drains = np.arange(exit_ns, exit_ns + stagger_ns + pages * FREE_NS, drain_every_ns)
    for number in range(reclaimers):
        requests.add(plain_events(Operation.DRAIN_ALL, drains + number, exiting + number))
    if reclaim_active:
        nodes = np.arange(len(machine.nodes))
        about = dict(offset=nodes, zone=len(machine.zone_types) - 1)
        when = np.full_like(nodes, exit_ns - 1)
        requests.add(plain_events(Operation.KSWAPD_START, when, 0, **about))
    return requests.demand(
        "exit",
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
) -> Demand:
    """One CPU unpacks and frees an initramfs, then short-lived processes start on all CPUs."""
    rng = np.random.default_rng(seed)
    mappings = [Mapping.freed_at_once(initramfs_pages, FIRST_NS, 0)]
    for cpu in range(machine.nr_cpus):
        at_ns = mappings[0].end_ns + int(rng.integers(0, 20 * MILLISECOND))
        for _ in range(bursts):
            pages = int(np.clip(median_pages * rng.lognormal(0, 1), 64, 16 * median_pages))
            mappings.append(Mapping.freed_at_once(pages, at_ns, cpu))
            at_ns = mappings[-1].end_ns + int(rng.integers(0, MILLISECOND))
    line = (
        f"an initramfs of {initramfs_pages} pages, then {bursts} processes per CPU of "
        f"{median_pages} pages (median)"
    )
    return requests_of(mappings, machine).demand("boot", seed=seed, lines=(line,))


def purgers(
    machine: Machine,
    *,
    purging_cpus: int = 1,
    pages: int = 4096,
    rounds: int = 8,
    touch_ns: int = TOUCH_NS,
    seed: int = 0,
) -> Demand:
    """Many CPUs allocate, a page each `touch_ns`; a few others free these, as purger threads do."""
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
            touched = FIRST_NS + number * pages * touch_ns + int(rng.integers(0, MILLISECOND))
            purger = cpu % purging_cpus
            freed = max(touched + pages * touch_ns, free_at[purger])
            mappings.append(Mapping(pages, touched, cpu, freed, allocators + purger, touch_ns))
            free_at[purger] = mappings[-1].end_ns
    line = (
        f"{count_of(allocators, 'CPU allocates', 'CPUs allocate')} {count_of(pages, 'page')} "
        f"{count_of(rounds, 'time')}, {count_of(purging_cpus, 'other frees', 'others free')} them"
    )
    return requests_of(mappings, machine).demand("purgers", seed=seed, lines=(line,))


def vm_churn(
    machine: Machine, *, workers: int = 0, pages: int = 8192, rounds: int = 4, seed: int = 0
) -> Demand:
    """Workers map memory, touch all of it and unmap it, over and over, as stress-ng's vm does."""
    rng = np.random.default_rng(seed)
    busy = min(workers or machine.nr_cpus, machine.nr_cpus)
    mappings = []
    for cpu in range(busy):
        at_ns = FIRST_NS + int(rng.integers(0, 4 * MILLISECOND))
        for _ in range(rounds):
            mappings.append(Mapping.freed_at_once(pages, at_ns, cpu))
            at_ns = mappings[-1].end_ns
    line = (
        f"{count_of(busy, 'worker maps', 'workers map')} {count_of(pages, 'page')} "
        f"{count_of(rounds, 'time')}"
    )
    return requests_of(mappings, machine).demand("churn", seed=seed, lines=(line,))


SCENARIOS: dict[str, Callable[..., Demand]] = {
    "exit": exit_avalanche,
    "boot": boot,
    "purgers": purgers,
    "churn": vm_churn,
}
"""Scenarios by name; each takes a machine and its own numbers by keyword."""


def requests_of(mappings: list[Mapping], machine: Machine) -> Requests:
    """The allocations and frees of mappings, each with object numbers of its own, in order."""
    pages, touched, cpu, freed, freeing_cpu, pace = np.array(mappings, np.int64).T
    step = np.arange(pages.sum()) - np.repeat(np.cumsum(pages) - pages, pages)
    requests = Requests(machine)
    requests.ask(
        np.repeat(touched, pages) + step * np.repeat(pace, pages),
        np.repeat(freed, pages) + step * FREE_NS,
        gfp=Gfp.USER,
        cpu=np.repeat(cpu, pages),
        zone=machine.zone_types[-1],
        freed_by=np.repeat(freeing_cpu, pages),
    )
    return requests


GFP_HIGHUSER_MOVABLE = 0x100CCA
FIRST_TASK = 1000


def write_synthetic_recording(run: Run, directory: Path) -> None:
    """Write what a recorder would have seen: requests and frees, and the machine at the start.

    Page frames are those that the model handed out, each CPU's events by a task of its own. Events
    under zone->lock are left out: they would be the model's own.
    """
    if directory.exists() and any(directory.iterdir()):
        raise UsageError(f"{directory} exists and is not empty")
    demand, machine, release = run.demand, run.demand.machine, f"{run.rules.name}.0"
    snapshot = directory / SNAPSHOT_DIRECTORY / f"{int(demand.events['time_ns'][0]) - 1:020d}"
    snapshot.mkdir(parents=True)
    state = make_state(machine, run.rules, run.policy)
    (snapshot / "zoneinfo").write_text(_zoneinfo_text(state), encoding="utf-8")
    (snapshot / "pagetypeinfo").write_text(_pagetypeinfo_text(machine), encoding="utf-8")
    meta = {
        "bundle_version": RECORDING_VERSION,
        "uname": ["Linux", "synthetic", release, "", "x86_64"],
        "clock": "CLOCK_MONOTONIC",
        "command": [],
        "nr_cpus": machine.nr_cpus,
        "sysctl": {},
        "synthetic": {
            "scenario": demand.name,
            "seed": demand.seed,
            "lines": list(demand.lines),
            "policy": run.policy.given(),
            "rules": run.rules.name,
        },
    }
    (directory / META_FILE).write_text(json.dumps(meta, indent=1) + "\n", encoding="utf-8")
    events = demand.events[np.isin(demand.events["operation"], (at.ALLOC, at.FREE))]
    events = events[run.places[events["object"]] >= 0]
    is_alloc = events["operation"] == at.ALLOC
    unknown = np.full(len(events), -1)
    trace = Trace(
        time_ns=events["time_ns"],
        cpu=events["cpu"],
        pid=events["cpu"].astype(np.int32) + FIRST_TASK,
        event=np.where(is_alloc, Event.ALLOC, Event.FREE),
        pfn=run.places[events["object"]],
        order=events["order"],
        gfp=np.where(is_alloc, GFP_HIGHUSER_MOVABLE, 0),
        migratetype=np.where(is_alloc, events["migratetype"], -1),
        percpu_refill=unknown,
        in_interrupt=unknown,
        comms={FIRST_TASK + cpu: f"worker/{cpu}" for cpu in range(machine.nr_cpus)},
        source=demand.name,
        release=release,
        nr_cpus=machine.nr_cpus,
        clock="monotonic",
    )
    write_store(trace, directory / STORE_FILE, source=None)


def _zoneinfo_text(state: State) -> str:
    """As the kernel prints it, per-CPU lists empty."""
    limits = {"high": at.PCP_HIGH, "batch": at.PCP_BATCH}
    if state.st[at.RULE_PCP_AUTO_TUNED]:
        limits |= {"high_min": at.PCP_HIGH_MIN, "high_max": at.PCP_HIGH_MAX}
    lines: list[str] = []
    for index, zone in enumerate(state.machine.zones):
        sizes = ("min", "low", "high", "spanned", "present", "managed")
        lines += [
            f"Node {zone.node}, zone {zone.name:>8}",
            f"  pages free     {zone.managed}",
            f"        boost    {zone.boost}",
            *[f"        {name:<8} {getattr(zone, name)}" for name in sizes],
            f"        protection: ({', '.join(map(str, zone.lowmem_reserve))})",
        ]
        if zone.managed:
            lines += ["  pagesets"]
            for cpu in range(state.machine.nr_cpus):
                region = state.pcp_region(index, cpu)
                lines += [f"    cpu: {cpu}", "              count: 0"]
                lines += [f"              {name}: {region[word]}" for name, word in limits.items()]
            lines += ["  node_unreclaimable:  0", f"  start_pfn:           {zone.start_pfn}"]
    return "\n".join(lines) + "\n"


def _pagetypeinfo_text(machine: Machine) -> str:
    """As the kernel prints it: everything Movable, in the largest buddies."""
    orders = range(machine.max_order + 1)
    lines = [
        f"Page block order: {machine.pageblock_order}",
        f"Pages per block:  {1 << machine.pageblock_order}",
        "",
        f"Free pages count per migrate type at order {''.join(f'{order:7}' for order in orders)}",
    ]
    block_lines = ["", f"Number of blocks type {' '.join(machine.migratetypes)}"]
    for zone in machine.zones:
        if not zone.managed:
            continue
        blocks = []
        for name in machine.migratetypes:
            pages = zone.managed if name == "Movable" else 0
            counts = [0] * machine.max_order + [pages >> machine.max_order]
            cells = "".join(f"{count:7}" for count in counts)
            lines.append(f"Node {zone.node:4}, zone {zone.name:>8}, type {name:>12} {cells}")
            blocks.append(pages >> machine.pageblock_order)
        block_lines.append(f"Node {zone.node}, zone {zone.name:>8} {' '.join(map(str, blocks))}")
    return "\n".join([*lines, *block_lines]) + "\n"
