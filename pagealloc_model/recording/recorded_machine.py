"""The machine and the policy that a recording describes, and the snapshots that say so."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from pagealloc_model.base.errors import PolicyError, RecordingError, UsageError
from pagealloc_model.policy.policy import POLICY_KINDS, Policy
from pagealloc_model.recording.machine import (
    DEFAULT_MIGRATETYPES,
    Machine,
    bare_machine,
    machine_from_zoneinfo,
)
from pagealloc_model.recording.recording import META_FILE, Recording
from pagealloc_model.recording.snapshot import Snapshot

_RECORDED_SYSCTLS = ("highatomic_gate_order", "pcp_free_batched", "watermark_boost_factor")
"""Policy fields that a recording's meta.json states as sysctls of the same name."""
_ELASTIC_SYSCTLS = (
    "defrag_mode",
    "extfrag_threshold",
    "compaction_proactiveness",
    "vfs_cache_pressure",
)
"""Those that only an elastic replay reads."""


def start_snapshots(recording: Recording) -> tuple[Snapshot, Snapshot]:
    """The snapshots that describe the start; no replay reads a later one.

    Returns:
        The last one before the first event, for per-CPU lists, and the first one after it, for
        everything else; the same one twice where only one of the two exists.

    Raises:
        UsageError: no snapshot has a usable zoneinfo, so the machine is unknown.
    """
    if recording.begins_at is not None:
        return recording.begins_at, recording.begins_at
    usable = [snapshot for snapshot in recording.dated_snapshots if snapshot.zoneinfo is not None]
    if not usable:
        raise UsageError(
            f"{recording.path}: no snapshot with a usable zoneinfo, so zones, watermarks and "
            "per-CPU limits are unknown and nothing can be replayed; record one with snapshots"
        )
    first_event, last_event = recording.trace.demand_span_ns
    before = [snapshot for snapshot in usable if snapshot.time_ns <= first_event]
    during = [snapshot for snapshot in usable if first_event < snapshot.time_ns <= last_event]
    early = before[-1] if before else (during or usable)[0]
    return early, (during[0] if during else early)


def recorded_machine(recording: Recording, *, by_events: bool = False) -> Machine:
    """The machine as a recording's snapshots describe it at the start.

    Args:
        recording: an opened recording.
        by_events: where no snapshot has a zoneinfo, take `bare_machine` of its events.

    Raises:
        UsageError: no usable snapshot, or a machine the model has no rules for.
        RecordingError: meta.json has cpu_nodes or node_distances that are no lists of numbers, or
            a sysctl that the kernel would refuse.
    """
    if by_events and not recording.has_zoneinfo:
        return bare_machine(recording.trace)
    snapshot, _ = start_snapshots(recording)
    types = snapshot.pagetypeinfo
    factor = _sysctl(recording, "watermark_scale_factor")
    fraction = _sysctl(recording, "percpu_pagelist_high_fraction") or 0
    _checked_policy(recording, {"percpu_pagelist_high_fraction": fraction})
    machine = machine_from_zoneinfo(
        snapshot.zoneinfo,
        pageblock_order=types.pageblock_order if types else 9,
        migratetypes=types.migratetypes if types else DEFAULT_MIGRATETYPES,
        watermark_scale_factor=10 if factor is None else factor,
        percpu_pagelist_high_fraction=fraction,
    )
    return with_topology(machine, recording.meta, recording.path / META_FILE)


def with_topology(machine: Machine, meta: Mapping[str, Any], source: Path) -> Machine:
    """A machine with `cpu_nodes` and `node_distances` as meta.json's content has them."""
    cpu_nodes, distances = meta.get("cpu_nodes") or [], meta.get("node_distances") or []
    rows = [cpu_nodes, *distances] if isinstance(distances, list) else [None]
    if not all(isinstance(row, list) and all(type(n) is int for n in row) for row in rows):
        what = "cpu_nodes must be a list of node numbers and node_distances a list of such lists"
        raise RecordingError(source, what)
    if len(machine.nodes) == 1:
        return machine
    return replace(machine, cpu_nodes=tuple(cpu_nodes), distances=tuple(map(tuple, distances)))


def missing_topology(machine: Machine) -> tuple[str, ...]:
    """Facts that several nodes need and the recording lacks, one line each."""
    if len(machine.nodes) == 1:
        return ()
    lines = []
    if not machine.cpu_nodes:
        lines.append(
            "meta.json has no cpu_nodes: which CPU is on which node is unknown, all are taken "
            f"to be on node {machine.nodes[0]}"
        )
    if not machine.distances:
        lines.append("meta.json has no node_distances: nodes are taken to be equally far apart")
    return tuple(lines)


def recorded_policy(recording: Recording, *, elastic: bool = False) -> Policy:
    """The policy the recorded kernel ran, as far as meta.json's sysctls state it.

    With what only an elastic replay reads, if it is `elastic`. A sysctl that is no whole number, or
    outside its range, is a RecordingError.
    """
    values: dict[str, int | bool] = {}
    for name in _RECORDED_SYSCTLS + _ELASTIC_SYSCTLS * elastic:
        value = _sysctl(recording, name)
        if value is not None:
            values[name] = bool(value) if POLICY_KINDS[name] == "bool" else value
    return _checked_policy(recording, values)


def _checked_policy(recording: Recording, values: Mapping[str, Any]) -> Policy:
    try:
        return Policy(**values)
    except PolicyError as error:
        raise RecordingError(recording.path / META_FILE, f"sysctl: {error}") from None


def recorded_settings(recording: Recording) -> dict[str, int | bool | str]:
    """Policy fields and their values where meta.json has the sysctl or the file of that name."""
    values: dict[str, int | bool | str] = {}
    for name, kind in POLICY_KINDS.items():
        value = _sysctl(recording, name) if kind in ("int", "bool") else None
        if value is not None:
            values[name] = bool(value) if kind == "bool" else value
    chosen = re.search(r"\[([^][]+)\]", str(recording.meta.get("thp", {}).get("defrag")))
    return values | ({"thp_defrag": chosen[1]} if chosen else {})


def effective_policy(
    recording: Recording, policy: Policy | None, *, elastic: bool = False
) -> Policy:
    """A policy with what it leaves "as recorded" filled in, see `recorded_policy`."""
    recorded = recorded_policy(recording, elastic=elastic)
    return recorded if policy is None else recorded.changed_by(policy)


def _sysctl(recording: Recording, name: str) -> int | None:
    """A sysctl's recorded value, None if it was not recorded."""
    text = recording.meta.get("sysctl", {}).get(name)
    if text is None:
        return None
    try:
        return int(text)
    except (OverflowError, TypeError, ValueError):
        what = f"sysctl {name} is {text!r}, not a whole number"
        raise RecordingError(recording.path / META_FILE, what) from None
