"""Sampled counters of a replay as the tables that predictions and measurements share."""

from __future__ import annotations

import numpy as np
import pandas as pd

from pagealloc_model.allocator.core import layout as at
from pagealloc_model.base.working_arrays import parts
from pagealloc_model.predicted.hold_sites import SITE_NAMES, named_sites
from pagealloc_model.recording.machine import Machine

FALLBACK_KINDS = {at.CLAIM_BLOCK: "claim_block", at.CLAIM: "claim", at.STEAL: "steal"}
LITERAL = "a literal replay repeats the recorded reclaim and cannot know this under another policy"
UNKNOWN_COUNTERS = (
    "thp_fault_alloc",
    "thp_fault_fallback",
    "compact_stall",
    "compact_success",
    "compact_fail",
    "pgscan_kswapd",
    "pgsteal_kswapd",
    "allocstall_normal",
)


def _managed(machine: Machine) -> list[int]:
    return [index for index, zone in enumerate(machine.zones) if zone.managed]


def _frame(
    machine: Machine, time_ns: np.ndarray, shape: tuple[int, ...], names: list[str]
) -> dict[str, np.ndarray]:
    """Key columns for values of shape (times, managed zones, *shape), in C order."""
    zones = _managed(machine)
    full = (len(time_ns), len(zones), *shape)
    grids = np.indices(full).reshape(len(full), -1)
    zone_names = np.array([machine.zones[index].name for index in zones], object)
    nodes = np.array([machine.zones[index].node for index in zones])
    columns = {
        "time_ns": time_ns[grids[0]],
        "node": nodes[grids[1]],
        "zone": zone_names[grids[1]],
    }
    for axis, name in enumerate(names):
        columns[name] = grids[axis + 2]
    return columns


def free_pages(machine: Machine, time_ns: np.ndarray, buddies: np.ndarray) -> pd.DataFrame:
    """Free buddies by time, zone, order, migratetype.

    Args:
        machine: names of zones and migratetypes.
        time_ns: shape (samples,).
        buddies: shape (samples, zones, orders, migratetypes).
    """
    types = len(machine.migratetypes)
    orders = machine.max_order + 1
    values = buddies[:, _managed(machine), :orders, :types]
    columns = _frame(machine, time_ns, (orders, types), ["order", "migratetype"])
    columns["migratetype"] = np.array(machine.migratetypes, object)[columns["migratetype"]]
    columns["buddies"] = values.ravel()
    columns["pages"] = columns["buddies"] << columns["order"]
    return pd.DataFrame(columns)


def pageblocks(machine: Machine, time_ns: np.ndarray, blocks: np.ndarray) -> pd.DataFrame:
    """Pageblocks by time, zone, migratetype; `blocks` has shape (samples, zones, migratetypes)."""
    types = len(machine.migratetypes)
    columns = _frame(machine, time_ns, (types,), ["migratetype"])
    columns["migratetype"] = np.array(machine.migratetypes, object)[columns["migratetype"]]
    columns["blocks"] = blocks[:, _managed(machine), :types].ravel()
    return pd.DataFrame(columns)


def boosts(machine: Machine, time_ns: np.ndarray, values: np.ndarray) -> pd.DataFrame:
    """Watermark boosts by time and zone, pages; `values` has shape (samples, zones)."""
    columns = _frame(machine, time_ns, (), [])
    columns["pages"] = values[:, _managed(machine)].ravel()
    return pd.DataFrame(columns)


def pcp(machine: Machine, time_ns: np.ndarray, values: np.ndarray) -> pd.DataFrame:
    """Per-CPU list counts by time, zone, CPU; `values` has shape (samples, zones, cpus, 2)."""
    columns = _frame(machine, time_ns, (machine.nr_cpus,), ["cpu"])
    kept = values[:, _managed(machine)]
    columns["count"] = kept[..., 0].ravel()
    columns["high"] = kept[..., 1].ravel().astype(float)
    return pd.DataFrame(columns)


def lock(machine: Machine, edges: np.ndarray, log: np.ndarray) -> pd.DataFrame:
    """zone->lock use by time bin, zone and site.

    Args:
        machine: names of zones.
        edges: int64, bin edges.
        log: int64, shape (rows, LOG_COLUMNS): every hold between the first edge and the last.
    """
    log = log[log[:, 0] < at.SITES]
    names = list(dict.fromkeys(name for name, _ in SITE_NAMES.values()))
    number = np.array([names.index(SITE_NAMES[site][0]) for site in range(len(SITE_NAMES))])
    managed = _managed(machine)
    place = np.full(len(machine.zones), -1)
    place[managed] = np.arange(len(managed))
    bins = np.searchsorted(edges, log[:, 1], "right") - 1
    zones = place[log[:, 2]]
    inside = (bins >= 0) & (bins < len(edges) - 1) & (zones >= 0)
    cells = (bins * len(managed) + zones) * len(names) + number[named_sites(log)]
    columns = _frame(machine, edges[:-1], (len(names),), ["site"])
    columns["site"] = np.array(names, object)[columns["site"]]
    amounts = {"acquisitions": np.ones(len(log)), "objects": log[:, 6], "pages": log[:, 7]}
    for name, amount in amounts.items():
        sums = np.bincount(cells[inside], amount[inside], minlength=len(columns["site"]))
        columns[name] = sums.astype(np.int64)
    frame = pd.DataFrame(columns)
    for name in ("hold_ns", "wait_ns", "max_hold_ns"):
        frame[name] = np.nan
    return frame


def transactions_full(machine: Machine, log: np.ndarray) -> pd.DataFrame:
    """Every zone->lock hold; `log` has shape (rows, LOG_COLUMNS)."""
    log = log[log[:, 0] < at.SITES]
    site = named_sites(log)
    sites = np.array([SITE_NAMES[site][0] for site in range(len(SITE_NAMES))], object)
    causes = np.array([SITE_NAMES[site][1] for site in range(len(SITE_NAMES))], object)
    zones = np.array([zone.name for zone in machine.zones], object)
    types = np.array([*machine.migratetypes, ""], object)
    return pd.DataFrame(
        {
            "time_ns": log[:, 1],
            "node": np.array([zone.node for zone in machine.zones])[log[:, 2]],
            "zone": zones[log[:, 2]],
            "cpu": log[:, 3],
            "site": sites[site],
            "cause": causes[site],
            "objects": log[:, 6],
            "pages": log[:, 7],
            "order": log[:, 4],
            "migratetype": types[log[:, 5]],
        }
    )


def fallbacks(counts: np.ndarray) -> pd.DataFrame:
    """Fallback counts; `counts` has shape `layout.FALLBACK_SHAPE`."""
    names = ("Unmovable", "Movable", "Reclaimable")
    rows = [
        (names[wanted], names[other], order, found, FALLBACK_KINDS[kind], count)
        for (wanted, other, kind, order, found), count in zip(
            np.argwhere(counts).tolist(), counts[counts > 0].tolist(), strict=True
        )
    ]
    columns = ["alloc_migratetype", "fallback_migratetype", "alloc_order", "fallback_order"]
    return pd.DataFrame(rows, columns=[*columns, "kind", "count"])


_REQUESTS = (at.ALLOC, at.ALLOC_IN_ZONE, at.CAPTURE, at.RECORDED_FAILURE)


def outcomes(events: np.ndarray) -> pd.DataFrame:
    """Requests by order; whether they succeed under another policy is NA in a literal replay."""
    counts = np.zeros(at.ORDERS, np.int64)
    for part in parts(len(events)):
        together = events[part]
        asked = np.isin(together["operation"], _REQUESTS)
        counts += np.bincount(together["order"][asked], minlength=at.ORDERS)
    orders = np.flatnonzero(counts).astype(np.int8)
    counts = counts[orders]
    frame = pd.DataFrame({"class": "all", "order": orders, "asked": counts})
    for name in ("succeeded", "failed", "stalled"):
        frame[name] = pd.array([pd.NA] * len(frame), dtype="Int64")
    frame["reason"] = LITERAL
    return frame


def vmstat(time_ns: int) -> pd.DataFrame:
    """Counters that a literal replay cannot predict, all NA with the reason."""
    return pd.DataFrame(
        {
            "name": UNKNOWN_COUNTERS,
            "time_ns": time_ns,
            "value": pd.array([pd.NA] * len(UNKNOWN_COUNTERS), dtype="Int64"),
            "reason": LITERAL,
        }
    )
