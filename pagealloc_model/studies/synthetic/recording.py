"""A run written as a recording that opens like one of a real machine."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from pagealloc_model.allocator import layout as at
from pagealloc_model.allocator.state import State, make_state
from pagealloc_model.base.errors import UsageError
from pagealloc_model.recording.machine import Machine
from pagealloc_model.recording.recording import (
    META_FILE,
    RECORDING_VERSION,
    SNAPSHOT_DIRECTORY,
    STORE_FILE,
)
from pagealloc_model.recording.trace.columns import Event, Trace
from pagealloc_model.recording.trace.store import write_store
from pagealloc_model.studies.synthetic.run import Run

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
