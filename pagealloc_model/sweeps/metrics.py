"""One row of numbers for one replay, and what each of them means."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pagealloc_model.allocator import layout as at
from pagealloc_model.measured.folios import folio_shares
from pagealloc_model.numbers.quantities import States
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
from pagealloc_model.recording.machine import PMD_ORDER, Machine

Row = dict[str, float]
"""Values by metric."""

ORDER_PREFIX = "free_pages_order_"
COUNTER_PREFIX = "vmstat_"
SERVED_SUFFIX = "_served_by_order"
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
_LOG_PAGES = 7
WORK = dict(
    zip(
        ("objects", "pages", "splits", "merges", "inserts", "scanned"),
        (6, _LOG_PAGES, *range(at.LOG_WORK, at.LOG_WORK + at.WORK_UNITS)),
        strict=True,
    )
)
"""Columns of the log by name."""
_ABOVE_COSTLY = 4
"""First order above mainline's PAGE_ALLOC_COSTLY_ORDER, whatever the policy says."""


@dataclass(frozen=True)
class Metric:
    """A column of a sweep; all zones together."""

    name: str
    meaning: str
    unit: str = ""
    better: str = ""

    @property
    def title(self) -> str:
        """Name and unit, as axes and headings show them."""
        return f"{self.name} ({self.unit})" if self.unit else self.name


_WORDS = {"KIND": FALLBACK_KINDS.values(), "WORK": WORK, "SITE": SITES}
"""Names that stand in place of a word of metrics.csv, a metric each."""


def _metrics() -> Iterator[Metric]:
    with Path(__file__).with_suffix(".csv").open(newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            word = next((word for word in _WORDS if word in row["name"]), "")
            for value in _WORDS.get(word, ("",)):
                yield Metric(**{key: text.replace(word, value) for key, text in row.items()})


METRICS = {metric.name: metric for metric in _metrics()}
"""By name; all but those by order, and the kernel's counters."""


def metric(name: str) -> Metric:
    """The meaning of a column; one that is no metric is described by its name alone."""
    if name.startswith(COUNTER_PREFIX):
        kernel_name = name.removeprefix(COUNTER_PREFIX)
        return Metric(name, f"the kernel's counter {kernel_name} (elastic replays)")
    if name.startswith(ORDER_PREFIX):
        order = name.removeprefix(ORDER_PREFIX)
        return Metric(name, f"free in buddies of order {order}, mean over time", "pages")
    if name.endswith(SERVED_SUFFIX):
        kind, _, order = name.removesuffix(SERVED_SUFFIX).partition("_order_")
        meaning = f"share of requests of order {order} for {kind} memory that were served (elastic)"
        return Metric(name, meaning, "share", "higher")
    return METRICS.get(name, Metric(name, name))


def replay_metrics(replay: Replay) -> Row:
    """The row of a replay; vmstat's counters at the end and huge pages where reclaim is elastic."""
    states = States.of_replay(replay)
    diverged = replay.divergence
    list_locks = replay.samples.list_locks[-1].sum(axis=0)
    row = run_metrics(replay.machine, states, replay.fallback_counts, replay.log) | {
        "pcp_pages": float(states.listed.sum(axis=(1, 2)).mean()),
        "pcp_lock_acquisitions": float(list_locks[LOCK_COLUMNS.index("lock_acquisitions")]),
        "pcp_lock_hand_overs": float(list_locks[LOCK_COLUMNS.index("lock_hand_overs")]),
        "requests_failed": float(diverged["failed"]),
        "requests_forced": float(diverged["forced"]),
        "requests_in_base_pages": float(diverged["in_base_pages"]),
    }
    if replay.assumptions.reclaim != "elastic":
        return row
    vmstat = replay.vmstat
    last = vmstat[vmstat["time_ns"] == vmstat["time_ns"].max()]
    for name, value in zip(last["name"], last["value"].astype(float), strict=True):
        row[f"{COUNTER_PREFIX}{name}"] = value
    huge = replay.outcomes[replay.outcomes["order"] == PMD_ORDER]
    total = float(huge["asked"].sum())
    row["huge_requests_served"] = float(huge["succeeded"].sum()) / total if total else float("nan")
    for metric, scope, served, of in folio_shares(replay.folios):
        if metric == "folio_success":
            name, order = (part.partition("=")[2] for part in scope.split(","))
            row[f"{name}_order_{order}{SERVED_SUFFIX}"] = float(served[0] / of[0])
    return row


def run_metrics(machine: Machine, states: States, fallbacks: np.ndarray, log: np.ndarray) -> Row:
    """Free memory, types of pageblocks, fallbacks and holds of zone->lock."""
    courses = states.courses(machine.counted_order, range(len(machine.zones)))
    by_order = states.free.sum(axis=(1, 3))
    total = np.maximum(by_order.sum(axis=1), 1)
    reserve = states.blocks_of("HighAtomic")
    types = states.blocks[-1].sum(axis=0)
    whole = ("free_in_whole_blocks", "free_in_whole_blocks_not_highatomic")
    below = {"pageblock": machine.counted_order, "costly": _ABOVE_COSTLY}
    kinds = fallbacks.sum(axis=(0, 1, 3, 4))
    row = {
        "free_pages": courses["free_pages"].mean(),
        "free_pages_end": courses["free_pages"][-1],
        **{name: courses[name].mean() for name in whole},
        **{
            f"unusable_index_{name}": (by_order[:, :order].sum(axis=1) / total).mean()
            for name, order in below.items()
        },
        "highatomic_blocks_end": reserve[-1],
        "highatomic_blocks_most": reserve.max(),
        "highatomic_free_pages_end": states.free[-1, :, :, at.HIGHATOMIC].sum(),
        "unmovable_blocks_end": types[at.UNMOVABLE],
        "reclaimable_blocks_end": types[at.RECLAIMABLE],
        **{
            f"{ORDER_PREFIX}{order}": by_order[:, order].mean()
            for order in range(machine.max_order + 1)
        },
        "fallbacks": kinds.sum(),
        **{f"fallbacks_{name}": kinds[kind] for kind, name in FALLBACK_KINDS.items()},
    }
    return {name: float(value) for name, value in row.items()} | lock_metrics(log)


def lock_metrics(log: np.ndarray) -> Row:
    """Holds of zone->lock and their work; `log` has shape (rows, LOG_COLUMNS)."""
    log = log[log[:, 0] < at.SITES]
    work = {name: log[:, column] for name, column in WORK.items()}
    held = LockCosts().hold_ns(work)
    pages, named = log[:, _LOG_PAGES], named_sites(log)
    drains = pages[np.isin(log[:, 0], SITES["drain"])]
    row = {
        "zone_lock_acquisitions": len(log),
        "zone_lock_hold_ns": held.sum(),
        "zone_lock_longest_hold_ns": held.max(initial=0),
        **{f"zone_lock_{name}": values.sum() for name, values in work.items()},
        "longest_drain_pages": drains.max(initial=0),
    }
    for name, sites in SITES.items():
        own = np.isin(named, sites)
        row[f"{name}_acquisitions"] = own.sum()
        if name not in EMPTY_SITES:
            row[f"{name}_pages"] = pages[own].sum()
    return {name: float(value) for name, value in row.items()}
