"""Savings of pageblock ownership at zone->lock, and its costs elsewhere (S12.8).

Times, and which trylocks of a list fail, rest on costs of units of work (S11.2). A pcp->lock is
taken to cost as much as zone->lock, a split, a merge and a look at an entry as much as under
zone->lock; what is held of zone->lock meanwhile is not counted twice.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd

import pagealloc_model as pm
from pagealloc_model.base.arrays import bin_width_ns
from pagealloc_model.numbers.errors import recorded_lock_model
from pagealloc_model.numbers.result_tables import comparison_table
from pagealloc_model.policy.lock_costs import LockCosts
from pagealloc_model.predicted.lock_times import TRYLOCK, LockTimes

Effect = tuple[str, str, float, str, str]
"""Name, scope, value, unit, and which direction is better: "lower", "higher" or ""."""

MOVING = ("refill", "drain", "buddy_alloc", "direct_free")
EMPTY = ("empty_refill", "empty_buddy_alloc")
"""Sites of holds that found nothing."""
ACQUISITIONS = "zone->lock taken so far"
MOVED = "of these, by refills and drains"
HELD = "zone->lock held so far (ms)"
UNUSABLE = "unusable index for a pageblock"
TOUCHED = "pageblocks not free as a whole"
LISTED = "pages on per-CPU lists"
"""Quantities of `over_time`, in this order."""
SEEN = ("refill", "drain")
"""Sites whose holds events show."""
NOT_SEEN = "no event shows every hold, or its time"


@dataclass(frozen=True, kw_only=True, eq=False)
class OwnershipEffects:
    """One run's traffic at the locks, and its free memory at the end."""

    rows: pd.DataFrame
    over_time: pd.DataFrame


def ownership_effects(run: pm.Replay | pm.synthetic.Run, times: LockTimes) -> OwnershipEffects:
    """Work at the locks and free memory left, of a replay or a run of made-up demand."""
    columns = ["metric", "scope", "value", "unit", "better"]
    return OwnershipEffects(
        rows=pd.DataFrame(list(_effects(run, times)), columns=columns),
        over_time=_over_time(run, times.acquisitions),
    )


def ownership_rows(base: OwnershipEffects, patch: OwnershipEffects) -> pd.DataFrame:
    """metric, scope, base, patch, change (relative to base), unit, better; of one machine."""
    both = base.rows.rename(columns={"value": "base"}).assign(patch=patch.rows["value"])
    nonzero = both["base"].where(both["base"] != 0)
    both["change"] = ((both["patch"] - both["base"]) / nonzero).where(
        both["base"] != both["patch"], 0.0
    )
    return both[["metric", "scope", "base", "patch", "change", "unit", "better"]]


SHOWN = (
    ("zone->lock acquisitions", "all"),
    ("zone->lock acquisitions", "failed trylocks"),
    ("zone->lock held", "all"),
    ("pcp->lock acquisitions", "all"),
    ("pcp->lock hand-overs", "all"),
    ("pcp->lock held", "all"),
    ("remote frees", "all"),
    ("pages on per-CPU lists", "end"),
    ("blocks touched", "end"),
    ("unusable index", "order 9"),
)
"""The rows that say most, by metric and scope."""


def words_of(metric: str, scope: str, unit: str = "") -> str:
    """An effect's name, such as "zone->lock held (ms)"."""
    where = f", {scope}" if scope.startswith("failed") else ""
    return f"{metric}{where}{f' ({unit})' if unit else ''}"


def side_by_side(sides: Mapping[str, pm.Replay]) -> pd.DataFrame:
    """The effects that say most, a row each and a column for each replay of one recording.

    Locks cost what they cost on the recorded machine. Units are in the row's name.
    """
    model = recorded_lock_model(next(iter(sides.values())).recording)
    columns = {}
    for name, replay in sides.items():
        rows = ownership_effects(replay, replay.lock_times(model)).rows
        rows = rows.set_index(["metric", "scope"]).loc[[*SHOWN]]
        columns[name] = rows["value"].tolist()
    effect = [words_of(*key, unit) for key, unit in zip(SHOWN, rows["unit"], strict=True)]
    return pd.DataFrame({"effect": effect, **columns})


def ownership_table(
    base: OwnershipEffects, patch: OwnershipEffects, title: str, lines: tuple[str, ...] = ()
) -> str:
    """The same as plain text for a mail, with what it rests on."""
    rests_on = (
        title,
        *lines,
        "Counts are the model's. Times are costs of the work (S11.2), without waiting; those of "
        "pcp->lock leave out what zone->lock is held meanwhile.",
    )
    footer = "\n".join(textwrap.fill(line, 72, break_on_hyphens=False) for line in rests_on)
    return comparison_table(ownership_rows(base, patch), footer, width=72)


def measured_over_time(recording: pm.Recording, base: pm.Replay) -> pd.DataFrame:
    """time_ns, quantity, value: what a recording shows of the quantities over time.

    Events show refills and drains, not every hold of zone->lock, nor how long it lasts.

    Args:
        recording: of a machine.
        base: its replay, which knows that machine.
    """
    start_ns, last_ns = recording.trace.demand_span_ns
    width = bin_width_ns(last_ns - start_ns)
    measured = recording.measure(bin_ns=width)
    pageblock_order = base.machine.pageblock_order
    blocks = len(pm.synthetic.block_use(base.final).buddy)
    seen = measured.lock[measured.lock["site"].isin(SEEN)]
    seen = seen.groupby("time_ns")["acquisitions"].sum(min_count=1).dropna().cumsum()
    seen.index += width  # counted at the end of each bin
    free = measured.free_pages[measured.free_pages["time_ns"] >= start_ns]
    total = free.groupby("time_ns")["pages"].sum().astype(float)
    is_whole = free["order"] >= pageblock_order
    whole = free[is_whole].groupby("time_ns")["pages"].sum().astype(float)
    lists = measured.pcp[measured.pcp["time_ns"] >= start_ns]
    values = {
        MOVED: seen.astype(float),
        UNUSABLE: 1 - whole / total,
        TOUCHED: blocks - whole / (1 << pageblock_order),
        LISTED: lists.groupby("time_ns")["count"].sum().astype(float),
    }
    parts = [
        pd.DataFrame({"time_ns": series.index, "quantity": name, "value": series.to_numpy()})
        for name, series in values.items()
    ]
    table = pd.concat(parts, ignore_index=True)
    table.attrs["reason"] = NOT_SEEN
    return table


def _effects(run: pm.Replay | pm.synthetic.Run, times: LockTimes) -> Iterator[Effect]:
    holds = times.acquisitions
    failed = holds["cause"] == TRYLOCK
    sites = holds[~failed].groupby("site", observed=True).size()
    yield "zone->lock acquisitions", "all", float(len(holds)), "", "lower"
    yield "zone->lock acquisitions", "failed trylocks", float(failed.sum()), "", "lower"
    for site in (*MOVING, *EMPTY):
        yield "zone->lock acquisitions", site, float(sites.get(site, 0)), "", "lower"
    moving = len(holds) - sum(sites.get(site, 0) for site in EMPTY)
    pages = holds["pages"].sum() / max(moving, 1)
    yield "pages per acquisition", "all", float(pages), "", "higher"
    yield "zone->lock held", "all", holds["hold_ns"].sum() / 1e6, "ms", "lower"
    yield "longest hold", "all", max(holds["hold_ns"], default=0.0) / 1e3, "us", "lower"
    yield from _list_effects(run, times.model.costs)
    phases = run.refill_phases
    phases = phases[phases["time_ns"] == phases["time_ns"].max()]
    for phase, got in phases.groupby("phase", sort=False)["pages"].sum(min_count=1).items():
        yield "refilled pages", str(phase), _number(got), "", ""
    yield from _free_effects(run)


def _list_effects(run: pm.Replay | pm.synthetic.Run, costs: LockCosts) -> Iterator[Effect]:
    """pcp->lock, and the work of ownership."""
    use = run.list_use
    use = use[use["time_ns"] == use["time_ns"].max()].iloc[:, 3:].sum(min_count=1)
    taken = float(use["lock_acquisitions"] + use["lock_drain_holds"])
    yield "pcp->lock acquisitions", "all", taken, "", "lower"
    yield "pcp->lock hand-overs", "all", float(use["lock_hand_overs"]), "", "lower"
    known = use.fillna(0).astype(float)
    held = (
        costs.acquire.ns * taken
        + costs.split.ns * known["list_splits"]
        + costs.merge.ns * known["list_merges"]
        + costs.scan.ns * known["merge_entries"]
    )
    yield "pcp->lock held", "all", held / 1e6, "ms", "lower"
    for name in ("remote frees", "blocks claimed", "blocks recorded", "blocks recovered"):
        yield name, "all", _number(use[name.replace(" ", "_")]), "", ""


def _free_effects(run: pm.Replay | pm.synthetic.Run) -> Iterator[Effect]:
    """Free memory at the end."""
    machine = run.machine
    in_buddy = pm.synthetic.block_use(run.final).buddy
    buddies = run.final.free_buddies().sum(axis=(0, 2))[: machine.max_order + 1]
    sizes = buddies << np.arange(len(buddies))
    whole = in_buddy == 1 << machine.pageblock_order
    total = sizes.sum()
    yield "free pages", "end", float(total), "", ""
    pcp = run.pcp
    listed = pcp.loc[pcp["time_ns"] == pcp["time_ns"].max(), "count"].sum()
    yield "pages on per-CPU lists", "end", float(listed), "", "lower"
    yield "blocks free as a whole", "end", float(whole.sum()), "", "higher"
    yield "blocks free in part", "end", float(((in_buddy > 0) & ~whole).sum()), "", "lower"
    yield "blocks touched", "end", float((~whole).sum()), "", "lower"
    unusable = sizes[: machine.pageblock_order].sum() / total if total else 0.0
    yield "unusable index", "order 9", float(unusable), "share", "lower"
    for order, pages in enumerate(sizes):
        yield "free pages", f"order {order}", float(pages), "", ""


def _number(value: float) -> float:
    return float("nan") if pd.isna(value) else float(value)


def _over_time(run: pm.Replay | pm.synthetic.Run, holds: pd.DataFrame) -> pd.DataFrame:
    """Traffic so far, free memory and pages on lists at each sample."""
    time_ns, buddies = run.samples.time_ns, run.samples.free_buddies
    holds = holds.sort_values("time_ns", kind="stable")
    held = np.r_[0, np.cumsum(holds["hold_ns"])] / 1e6
    before = np.searchsorted(holds["time_ns"], time_ns, side="right")
    seen = holds["site"].isin(SEEN).to_numpy()
    pages = buddies.sum(axis=(1, 3)) << np.arange(buddies.shape[2])
    block = run.machine.pageblock_order
    whole = pages[:, block:].sum(axis=1)
    blocks = len(pm.synthetic.block_use(run.final).buddy)
    values = {
        ACQUISITIONS: before.astype(float),
        MOVED: np.r_[0, np.cumsum(seen)][before].astype(float),
        HELD: held[before],
        UNUSABLE: 1 - whole / np.maximum(pages.sum(axis=1), 1),
        TOUCHED: blocks - (whole >> block).astype(float),
        LISTED: run.samples.pcp[..., 0].sum(axis=(1, 2)).astype(float),
    }
    parts = [
        pd.DataFrame({"time_ns": time_ns, "quantity": name, "value": value})
        for name, value in values.items()
    ]
    return pd.concat(parts, ignore_index=True)
