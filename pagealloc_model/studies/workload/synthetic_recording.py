"""Write a scenario as a recording that opens like one of a real machine."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import numpy as np

from pagealloc_model.allocator import layout as at
from pagealloc_model.allocator.state import make_state
from pagealloc_model.base.errors import UsageError
from pagealloc_model.recording.recording import (
    META_FILE,
    RECORDING_VERSION,
    SNAPSHOT_DIRECTORY,
    STORE_FILE,
)
from pagealloc_model.recording.trace.columns import Event, Trace
from pagealloc_model.recording.trace.store import write_store
from pagealloc_model.studies.workload.run import ScenarioRun
from pagealloc_model.studies.workload.state_files import pagetypeinfo_text, zoneinfo_text

GFP_HIGHUSER_MOVABLE = 0x100CCA
FIRST_TASK = 1000


def write_synthetic_recording(run: ScenarioRun, directory: Path) -> None:
    """Write what a recorder would have seen: requests and frees, and the machine at the start.

    Page frames are those that the model handed out. Events under zone->lock are left out: they
    would be the model's own.

    Args:
        run: a scenario, run.
        directory: to create.

    Raises:
        UsageError: the directory exists and is not empty.
        OSError: it cannot be written.
    """
    if directory.exists() and any(directory.iterdir()):
        raise UsageError(f"{directory} exists and is not empty")
    scenario = run.scenario
    first_ns = int(scenario.events["time_ns"][0])
    snapshot = directory / SNAPSHOT_DIRECTORY / f"{first_ns - 1:020d}"
    snapshot.mkdir(parents=True)
    state = make_state(scenario.machine, run.rules, run.policy)
    (snapshot / "zoneinfo").write_text(zoneinfo_text(state), encoding="utf-8")
    (snapshot / "pagetypeinfo").write_text(pagetypeinfo_text(scenario.machine), encoding="utf-8")
    meta = {
        "bundle_version": RECORDING_VERSION,
        "uname": ["Linux", "synthetic", f"{run.rules.name}.0", "", "x86_64"],
        "clock": "CLOCK_MONOTONIC",
        "command": [],
        "nr_cpus": scenario.machine.nr_cpus,
        "sysctl": {},
        "synthetic": {
            "scenario": scenario.name,
            "seed": scenario.seed,
            "lines": list(scenario.lines),
            "policy": run.policy.given(),
            "rules": asdict(run.rules)["name"],
        },
    }
    (directory / META_FILE).write_text(json.dumps(meta, indent=1) + "\n", encoding="utf-8")
    write_store(_trace(run), directory / STORE_FILE, source=None)


def _trace(run: ScenarioRun) -> Trace:
    """Allocations and frees as events, each CPU's by a task of its own."""
    events = run.scenario.events
    events = events[np.isin(events["operation"], (at.ALLOC, at.FREE))]
    events = events[run.places[events["object"]] >= 0]
    is_alloc = events["operation"] == at.ALLOC
    count = len(events)
    return Trace(
        time_ns=events["time_ns"],
        cpu=events["cpu"],
        pid=events["cpu"].astype(np.int32) + FIRST_TASK,
        event=np.where(is_alloc, Event.ALLOC, Event.FREE),
        pfn=run.places[events["object"]],
        order=events["order"],
        gfp=np.where(is_alloc, GFP_HIGHUSER_MOVABLE, 0),
        migratetype=np.where(is_alloc, events["migratetype"], -1),
        percpu_refill=np.full(count, -1),
        in_interrupt=np.full(count, -1),
        comms={FIRST_TASK + cpu: f"worker/{cpu}" for cpu in range(run.scenario.machine.nr_cpus)},
        source=run.scenario.name,
        release=f"{run.rules.name}.0",
        nr_cpus=run.scenario.machine.nr_cpus,
        clock="monotonic",
    )
