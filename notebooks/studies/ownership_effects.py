"""What pageblock ownership saves at zone->lock, and what it costs elsewhere (S12.8).

Times rest on assumed costs of units of work (S11.2). A pcp->lock is taken to cost as much as
zone->lock, a split, a merge and a look at an entry as much as under zone->lock; what is held of
zone->lock meanwhile is not counted twice.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from pagealloc_model.allocator import layout as at
from pagealloc_model.base.text.comparison_table import comparison_table
from pagealloc_model.base.text.layout import paragraph
from pagealloc_model.policy.lock_costs import LockCosts
from pagealloc_model.predicted.tables import (
    EMPTY_SITES,
    fragmentation,
    list_use,
    list_words,
    ownership_counters,
    refill_phases,
)
from pagealloc_model.studies.sweeps.metrics import lock_metrics
from pagealloc_model.verdict.statistics import relative

if TYPE_CHECKING:
    from pagealloc_model.allocator.state import State
    from pagealloc_model.predicted.replay import Replay
    from pagealloc_model.studies.workload.run import ScenarioRun

Effect = tuple[str, str, float, str, str]
"""Name, scope, value, unit, and which direction is better: "lower", "higher" or ""."""

ACQUISITIONS = "zone->lock acquisitions so far"
HELD = "zone->lock held so far (ms)"
UNUSABLE = "unusable index for a pageblock"
TOUCHED = "pageblocks not free as a whole"
QUANTITIES = (ACQUISITIONS, HELD, UNUSABLE, TOUCHED)
"""What `over_time` shows."""


@dataclass(frozen=True, kw_only=True, eq=False)
class OwnershipEffects:
    """One run's traffic at the locks, and its free memory at the end.

    Attributes:
        rows: metric, scope, value, unit, better.
        over_time: time_ns, quantity (of `QUANTITIES`), value.
    """

    rows: pd.DataFrame
    over_time: pd.DataFrame


def ownership_effects(run: Replay | ScenarioRun) -> OwnershipEffects:
    """What a replay, or a scenario's run, did at the locks and left of free memory."""
    state = run.final
    assert state is not None
    columns = ["metric", "scope", "value", "unit", "better"]
    samples = run.samples
    return OwnershipEffects(
        rows=pd.DataFrame(list(_effects(run.log, state)), columns=columns),
        over_time=_over_time(run.log, samples.time_ns, samples.free_buddies, state),
    )


def ownership_rows(base: OwnershipEffects, patch: OwnershipEffects) -> pd.DataFrame:
    """metric, scope, base, patch, change (relative to base), unit, better; of one machine."""
    both = base.rows.rename(columns={"value": "base"}).assign(patch=patch.rows["value"])
    both["change"] = [relative(row.patch, row.base) for row in both.itertuples()]
    return both[["metric", "scope", "base", "patch", "change", "unit", "better"]]


def ownership_table(
    base: OwnershipEffects, patch: OwnershipEffects, title: str, lines: tuple[str, ...] = ()
) -> str:
    """The same as plain text for a mail, with what it rests on."""
    rests_on = (
        title,
        *lines,
        "Counts are the model's. Times are assumed costs of the work (S11.2), without waiting; "
        "those of pcp->lock leave out what zone->lock is held meanwhile.",
    )
    footer = "\n".join(paragraph(line, width=72) for line in rests_on)
    return comparison_table(ownership_rows(base, patch), footer, width=72)


def _effects(log: np.ndarray, state: State) -> Iterator[Effect]:
    locks = lock_metrics(log)
    total = locks["zone_lock_acquisitions"]
    yield "zone->lock acquisitions", "all", total, "", "lower"
    for site in ("refill", "drain", "buddy_alloc", "direct_free", *EMPTY_SITES):
        yield "zone->lock acquisitions", site, locks[f"{site}_acquisitions"], "", "lower"
    moving = total - sum(locks[f"{site}_acquisitions"] for site in EMPTY_SITES)
    yield "pages per acquisition", "all", locks["zone_lock_pages"] / max(moving, 1), "", "higher"
    yield "zone->lock held", "all", locks["zone_lock_hold_ns"] / 1e6, "ms", "lower"
    yield "longest hold", "all", locks["zone_lock_longest_hold_ns"] / 1e3, "us", "lower"
    yield from _list_effects(state)
    yield from _phase_effects(state)
    found = fragmentation(state)
    yield "free pages", "end", float(found.free), "", ""
    yield "pages on per-CPU lists", "end", float(found.listed), "", "lower"
    yield "blocks free as a whole", "end", float(found.whole_blocks), "", "higher"
    yield "blocks free in part", "end", float(found.partial_blocks), "", "lower"
    yield "blocks touched", "end", float(found.touched_blocks), "", "lower"
    yield "unusable index", "order 9", found.unusable_index(found.block_order), "share", "lower"
    for order, pages in enumerate(found.free_by_order):
        yield "free pages", f"order {order}", float(pages), "", ""


def _list_effects(state: State) -> Iterator[Effect]:
    now = np.zeros(1, np.int64)
    words, counters = list_words(state)[None], ownership_counters(state)[None]
    use = list_use(state.machine, now, words, counters).iloc[:, 3:].sum(min_count=1)
    taken = float(use["lock_acquisitions"] + use["lock_drain_holds"])
    yield "pcp->lock acquisitions", "all", taken, "", "lower"
    yield "pcp->lock hand-overs", "all", float(use["lock_hand_overs"]), "", "lower"
    costs = LockCosts()
    known = use.fillna(0).astype(float)
    held = (
        costs.acquire.ns * taken
        + costs.split.ns * known["list_splits"]
        + costs.merge.ns * known["list_merges"]
        + costs.scan.ns * known["merge_entries"]
    )
    yield "pcp->lock held", "all", held / 1e6, "ms", "lower"
    for metric, column in (
        ("remote frees", "remote_frees"),
        ("blocks claimed", "blocks_claimed"),
        ("blocks recorded", "blocks_recorded"),
        ("blocks recovered", "blocks_recovered"),
    ):
        yield metric, "all", float("nan") if pd.isna(use[column]) else float(use[column]), "", ""


def _phase_effects(state: State) -> Iterator[Effect]:
    """Pages that refills got by each phase."""
    counters = ownership_counters(state)[None]
    phases = refill_phases(state.machine, np.zeros(1, np.int64), counters)
    pages = phases.groupby("phase", sort=False)["pages"].sum(min_count=1)
    for phase, got in pages.items():
        yield "refilled pages", str(phase), float("nan") if pd.isna(got) else float(got), "", ""


def _over_time(
    log: np.ndarray, time_ns: np.ndarray, free_buddies: np.ndarray, state: State
) -> pd.DataFrame:
    """Traffic so far and free memory at each sample; `free_buddies` as `Samples` has them."""
    work = {
        "objects": log[:, 6],
        **{
            name: log[:, at.LOG_WORK + unit]
            for unit, name in enumerate(("splits", "merges", "inserts", "scanned"))
        },
    }
    held = np.r_[0, np.cumsum(LockCosts().hold_ns(work))] / 1e6
    before = np.searchsorted(log[:, 1], time_ns, side="right")
    orders = np.arange(free_buddies.shape[2])
    pages = free_buddies.sum(axis=(1, 3)) << orders
    block = state.machine.pageblock_order
    whole = pages[:, block:].sum(axis=1)
    total = pages.sum(axis=1)
    blocks = int((state.blocks["zone"] > 0).sum())
    values = {
        ACQUISITIONS: before.astype(float),
        HELD: held[before],
        UNUSABLE: 1 - whole / np.maximum(total, 1),
        TOUCHED: blocks - (whole >> block).astype(float),
    }
    parts = [
        pd.DataFrame({"time_ns": time_ns, "quantity": name, "value": value})
        for name, value in values.items()
    ]
    return pd.concat(parts, ignore_index=True)
