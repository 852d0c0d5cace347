"""Which CPU is on which node, and how far nodes are apart: what zoneinfo does not show."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from pagealloc_model.base.errors import RecordingError
from pagealloc_model.recording.machine import Machine


def with_topology(machine: Machine, meta: Mapping[str, Any], source: Path) -> Machine:
    """A machine with its CPUs' nodes and its nodes' distances as recorded, where they were.

    Args:
        machine: as zoneinfo shows it.
        meta: meta.json's content: `cpu_nodes` and `node_distances`.
        source: meta.json, for messages.

    Raises:
        RecordingError: one of them is not made of whole numbers.
        UsageError: they do not fit the machine.
    """
    cpu_nodes = meta.get("cpu_nodes") or []
    distances = meta.get("node_distances") or []
    rows = [cpu_nodes, *distances] if isinstance(distances, list) else [None]
    if not all(isinstance(row, list) and all(type(n) is int for n in row) for row in rows):
        raise RecordingError(
            source,
            "cpu_nodes must be a list of node numbers and node_distances a list of such lists",
        )
    if len(machine.nodes) == 1:
        return machine
    return replace(
        machine, cpu_nodes=tuple(cpu_nodes), distances=tuple(tuple(row) for row in distances)
    )


def missing_topology(machine: Machine) -> tuple[str, ...]:
    """What several nodes need to be told and the recording does not say, one line each."""
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
