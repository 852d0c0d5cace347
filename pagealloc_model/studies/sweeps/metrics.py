"""One row of numbers for one replay, and what each of them means."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from pagealloc_model.allocator import layout as at
from pagealloc_model.policy.lock_costs import LockCosts
from pagealloc_model.predicted.replay import Replay
from pagealloc_model.predicted.tables import (
    EMPTY_BUDDY_ALLOC,
    EMPTY_REFILL,
    EMPTY_SITES,
    FALLBACK_KINDS,
    LOCK_COLUMNS,
    named_sites,
)
from pagealloc_model.recording.machine import Machine
from pagealloc_model.verdict.quantities import States

Row = dict[str, float]
"""Values by metric."""

ORDER_PREFIX = "free_pages_order_"
COUNTER_PREFIX = "vmstat_"
SITES = {
    "refill": (at.SITE_REFILL,),
    "empty_refill": (EMPTY_REFILL,),
    "drain": (at.SITE_DRAIN_COMMIT, at.SITE_DRAIN_DECAY, at.SITE_DRAIN_ALL),
    "buddy_alloc": (at.SITE_BUDDY_ALLOC,),
    "empty_buddy_alloc": (EMPTY_BUDDY_ALLOC,),
    "direct_free": (at.SITE_DIRECT_FREE,),
    "reserve": (at.SITE_RESERVE,),
    "unreserve": (at.SITE_UNRESERVE,),
}
"""zone->lock sites by name (S11.1)."""
WORK = ("objects", "pages", "splits", "merges", "inserts", "scanned")
_LOG_PAGES = 7


@dataclass(frozen=True, kw_only=True)
class Metric:
    """What a column of a sweep says; all zones together.

    Attributes:
        name: the column.
        meaning: in words.
        unit: "" for plain counts.
        better: "lower", "higher" or "" where neither is.
    """

    name: str
    meaning: str
    unit: str = ""
    better: str = ""

    @property
    def title(self) -> str:
        """Name and unit, as axes and headings show them."""
        return f"{self.name} ({self.unit})" if self.unit else self.name


_FIXED = (
    Metric(name="free_pages", meaning="free in the buddy, mean over time", unit="pages"),
    Metric(name="free_pages_end", meaning="the same at the end", unit="pages"),
    Metric(
        name="free_in_whole_blocks",
        meaning="free in buddies of a pageblock or more, mean over time",
        unit="pages",
        better="higher",
    ),
    Metric(
        name="free_in_whole_blocks_not_highatomic",
        meaning="the same without the highatomic reserve, so of use to huge pages",
        unit="pages",
        better="higher",
    ),
    Metric(
        name="unusable_index_pageblock",
        meaning="share of free memory in buddies below a pageblock, mean over time",
        unit="share",
        better="lower",
    ),
    Metric(
        name="unusable_index_costly",
        meaning="share of free memory in buddies of order 3 or below, mean over time",
        unit="share",
        better="lower",
    ),
    Metric(
        name="highatomic_blocks_end",
        meaning="pageblocks of the highatomic reserve at the end (S7)",
        unit="blocks",
        better="lower",
    ),
    Metric(
        name="highatomic_blocks_most",
        meaning="the most there ever were",
        unit="blocks",
        better="lower",
    ),
    Metric(
        name="highatomic_free_pages_end",
        meaning="free pages in the reserve at the end",
        unit="pages",
    ),
    Metric(name="unmovable_blocks_end", meaning="Unmovable pageblocks at the end", unit="blocks"),
    Metric(
        name="reclaimable_blocks_end", meaning="Reclaimable pageblocks at the end", unit="blocks"
    ),
    Metric(name="fallbacks", meaning="requests served by another type (S6)", better="lower"),
    *(
        Metric(name=f"fallbacks_{kind}", meaning=f"of kind {kind} (S6.6)", better="lower")
        for kind in FALLBACK_KINDS.values()
    ),
    Metric(
        name="zone_lock_acquisitions",
        meaning="holds of zone->lock (S11.1), attempts that found nothing included",
        better="lower",
    ),
    Metric(
        name="zone_lock_hold_ns",
        meaning="time zone->lock is held in all, by assumed costs (S11.2)",
        unit="ns",
        better="lower",
    ),
    Metric(
        name="zone_lock_longest_hold_ns",
        meaning="the longest hold, by assumed costs",
        unit="ns",
        better="lower",
    ),
    *(
        Metric(name=f"zone_lock_{work}", meaning=f"{work} under zone->lock (S11.1)")
        for work in WORK
    ),
    Metric(
        name="longest_drain_pages",
        meaning="pages of the longest drain of a per-CPU list",
        unit="pages",
        better="lower",
    ),
    *(
        Metric(name=f"{site}_{what}", meaning=f"{what} at site {site} (S11.1)")
        for site in SITES
        for what in (("acquisitions",) if site in EMPTY_SITES else ("acquisitions", "pages"))
    ),
    Metric(name="pcp_lock_acquisitions", meaning="pcp->lock taken to allocate or free (S11.3)"),
    Metric(name="pcp_lock_hand_overs", meaning="of these, taken over from another CPU"),
    Metric(name="pcp_pages", meaning="pages on per-CPU lists, mean over time", unit="pages"),
    Metric(
        name="reclaimed_pages",
        meaning="page cache reclaimed (made-up hosts alone)",
        unit="pages",
        better="lower",
    ),
    Metric(
        name="kswapd_wakes", meaning="kswapd began to run (made-up hosts alone)", better="lower"
    ),
    Metric(name="atomic_requests", meaning="atomic requests (made-up hosts alone)"),
    Metric(
        name="huge_requests_served",
        meaning="share of requests for a pageblock that got one (elastic replays)",
        unit="share",
        better="higher",
    ),
    Metric(name="requests_failed", meaning="found no page here", better="lower"),
    Metric(name="requests_forced", meaning="served here below every watermark", better="lower"),
    Metric(
        name="requests_in_base_pages",
        meaning="served as single pages for want of a large one",
        better="lower",
    ),
)
_BY_NAME = {each.name: each for each in _FIXED}


def metric(name: str) -> Metric:
    """What a column says; a column that is no metric is described by its name alone."""
    if name in _BY_NAME:
        return _BY_NAME[name]
    if name.startswith(COUNTER_PREFIX):
        kernel_name = name.removeprefix(COUNTER_PREFIX)
        return Metric(name=name, meaning=f"the kernel's counter {kernel_name} (elastic replays)")
    if name.startswith(ORDER_PREFIX):
        order = name.removeprefix(ORDER_PREFIX)
        meaning = f"free in buddies of order {order}, mean over time"
        return Metric(name=name, meaning=meaning, unit="pages")
    return Metric(name=name, meaning=name)


def metric_names() -> tuple[str, ...]:
    """Every metric but those by order."""
    return tuple(_BY_NAME)


def replay_metrics(replay: Replay) -> Row:
    """The row of a replay."""
    states = States.of_replay(replay)
    diverged = replay.divergence
    list_locks = replay.samples.list_locks[-1].sum(axis=0)
    return {
        **state_metrics(replay.machine, states),
        **fallback_metrics(replay.fallback_counts),
        **lock_metrics(replay.log),
        "pcp_pages": float(states.listed.sum(axis=(1, 2)).mean()),
        "pcp_lock_acquisitions": float(list_locks[LOCK_COLUMNS.index("lock_acquisitions")]),
        "pcp_lock_hand_overs": float(list_locks[LOCK_COLUMNS.index("lock_hand_overs")]),
        "requests_failed": float(diverged["failed"]),
        "requests_forced": float(diverged["forced"]),
        "requests_in_base_pages": float(diverged["in_base_pages"]),
        **_kernel_counters(replay),
    }


def _kernel_counters(replay: Replay) -> Row:
    """Vmstat counters at the end and the share of huge-page requests served; {} if not known."""
    if replay.assumptions.reclaim != "elastic":
        return {}
    vmstat = replay.vmstat
    last = vmstat[vmstat["time_ns"] == vmstat["time_ns"].max()]
    counters = dict(zip(last["name"], last["value"].astype(float), strict=True))
    huge = replay.outcomes[replay.outcomes["order"] == replay.machine.pageblock_order]
    asked = float(huge["asked"].sum())
    served = float(huge["succeeded"].sum()) / asked if asked else float("nan")
    named = {f"{COUNTER_PREFIX}{name}": value for name, value in counters.items()}
    return {**named, "huge_requests_served": served}


def state_metrics(machine: Machine, states: States) -> Row:
    """What is free and which types pageblocks have; means are over the instants."""
    courses = states.courses(machine.pageblock_order, range(len(machine.zones)))
    by_order = states.free.sum(axis=(1, 3))
    reserve = states.blocks_of("HighAtomic")
    types = states.blocks[-1].sum(axis=0)
    row = {
        "free_pages": courses["free_pages"].mean(),
        "free_pages_end": courses["free_pages"][-1],
        "free_in_whole_blocks": courses["free_in_whole_blocks"].mean(),
        "free_in_whole_blocks_not_highatomic": courses[
            "free_in_whole_blocks_not_highatomic"
        ].mean(),
        "unusable_index_pageblock": _share_below(by_order, machine.pageblock_order),
        "unusable_index_costly": _share_below(by_order, _ABOVE_COSTLY),
        "highatomic_blocks_end": reserve[-1],
        "highatomic_blocks_most": reserve.max(),
        "highatomic_free_pages_end": states.free[-1, :, :, at.HIGHATOMIC].sum(),
        "unmovable_blocks_end": types[at.UNMOVABLE],
        "reclaimable_blocks_end": types[at.RECLAIMABLE],
    }
    for order in range(machine.max_order + 1):
        row[f"{ORDER_PREFIX}{order}"] = by_order[:, order].mean()
    return {name: float(value) for name, value in row.items()}


_ABOVE_COSTLY = 4
"""First order above mainline's PAGE_ALLOC_COSTLY_ORDER, whatever the policy says."""


def _share_below(by_order: np.ndarray, order: int) -> float:
    """Mean over time of the share of free pages in buddies below an order (fragmentation)."""
    total = by_order.sum(axis=1)
    below = by_order[:, :order].sum(axis=1)
    return float((below / np.maximum(total, 1)).mean())


def fallback_metrics(counts: np.ndarray) -> Row:
    """Fallbacks in all and by kind; `counts` has shape `layout.FALLBACK_SHAPE`."""
    by_kind = counts.sum(axis=(0, 1, 3, 4))
    kinds = {f"fallbacks_{name}": float(by_kind[kind]) for kind, name in FALLBACK_KINDS.items()}
    return {"fallbacks": float(by_kind.sum()), **kinds}


def lock_metrics(log: np.ndarray) -> Row:
    """Holds of zone->lock and their work; `log` has shape (rows, LOG_COLUMNS)."""
    log = log[log[:, 0] < at.SITES]
    work = {name: log[:, column] for name, column in zip(WORK, _WORK_COLUMNS, strict=True)}
    held = LockCosts().hold_ns(work)
    drains = log[np.isin(log[:, 0], SITES["drain"]), _LOG_PAGES]
    return {
        "zone_lock_acquisitions": float(len(log)),
        "zone_lock_hold_ns": float(held.sum()),
        "zone_lock_longest_hold_ns": float(held.max(initial=0)),
        **{f"zone_lock_{name}": float(values.sum()) for name, values in work.items()},
        "longest_drain_pages": float(drains.max(initial=0)),
        **dict(_site_metrics(log)),
    }


_WORK_COLUMNS = (6, _LOG_PAGES, *range(at.LOG_WORK, at.LOG_WORK + at.WORK_UNITS))
"""Columns of the log that `WORK` names."""


def _site_metrics(log: np.ndarray) -> Iterator[tuple[str, float]]:
    named = named_sites(log)
    for name, sites in SITES.items():
        mine = np.isin(named, sites)
        yield f"{name}_acquisitions", float(mine.sum())
        if name not in EMPTY_SITES:
            yield f"{name}_pages", float(log[mine, _LOG_PAGES].sum())
