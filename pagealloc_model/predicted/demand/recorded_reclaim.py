"""Kswapd's runs as recorded (S10)."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from pagealloc_model.allocator.core import layout as at
from pagealloc_model.base.errors import UsageError
from pagealloc_model.recording.machine import Machine
from pagealloc_model.recording.trace.columns import Trace

KSWAPD_NAP_NS = 100_000_000


def kswapd_runs(trace: Trace, machine: Machine) -> np.ndarray | None:
    """Kswapd's recorded runs as KSWAPD_START and KSWAPD_STOP events; None if none were recorded.

    In a literal replay reclaim is the recording's, and so are the times at which it is active
    (S10.2). A run ends a nap before the node's kswapd sleeps (S10.3), or where its next one begins.

    Args:
        trace: the recording's events.
        machine: its nodes and zone types.

    Raises:
        UsageError: an event of a node that the machine does not have.
    """
    wakes = trace.tables.get("vmscan:mm_vmscan_kswapd_wake")
    sleeps = trace.tables.get("vmscan:mm_vmscan_kswapd_sleep")
    if wakes is None or sleeps is None or not len(wakes["time_ns"]):
        return None
    last = trace.demand_span_ns[1] + 1
    strange = np.setdiff1d(_nodes_of(wakes), machine.nodes)
    if len(strange):
        raise UsageError(
            f"{trace.source}: kswapd of node {strange[0]} woke, but zoneinfo at the start has no "
            "such node; record without bringing nodes on- or offline"
        )
    runs = [
        _runs_of_node(
            index,
            {name: np.asarray(column)[_nodes_of(wakes) == node] for name, column in wakes.items()},
            np.asarray(sleeps["time_ns"])[_nodes_of(sleeps) == node],
            len(machine.zone_types),
            last,
        )
        for index, node in enumerate(machine.nodes)
    ]
    together = np.concatenate(runs)
    return together[np.argsort(together["time_ns"], kind="stable")]


def _nodes_of(table: Mapping[str, np.ndarray]) -> np.ndarray:
    """Node numbers of kswapd's events."""
    return np.asarray(table["nid"], np.int64)


def _runs_of_node(
    index: int, wakes: Mapping[str, np.ndarray], sleeps: np.ndarray, zone_types: int, last: int
) -> np.ndarray:
    """One node's runs; those whose wake does not name its highest zone may use all zones."""
    starts = np.asarray(wakes["time_ns"])
    naps = sleeps - KSWAPD_NAP_NS
    following = np.append(starts[1:], last)[: len(starts)]
    slept = np.append(naps, last)[np.searchsorted(naps, starts)]
    runs = np.zeros(2 * len(starts), at.EVENT)
    runs["time_ns"][0::2] = starts
    runs["time_ns"][1::2] = np.maximum(np.minimum(following, slept), starts)
    runs["operation"][0::2] = at.KSWAPD_START
    runs["operation"][1::2] = at.KSWAPD_STOP
    runs["object"] = -1
    runs["offset"] = index
    highest = np.asarray(wakes.get("zid", np.full(len(starts), zone_types - 1)))
    runs["zone"][0::2] = np.clip(highest, 0, zone_types - 1)
    return runs
