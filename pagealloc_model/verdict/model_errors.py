"""How far the model was from a recording, for each metric of a comparison, beside a null model.

A comparison prints both beside each change: a change smaller than the error, or one of a metric
whose error is no smaller than the null model's, says nothing about the policy.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

import numpy as np
import pandas as pd

from pagealloc_model.base.errors import PageallocError
from pagealloc_model.base.scopes import zone_scope
from pagealloc_model.measured.measured import Measured
from pagealloc_model.policy.policy import Assumptions
from pagealloc_model.predicted.replay import Replay
from pagealloc_model.recording.provenance_check import REFUSED, worst
from pagealloc_model.recording.trace.columns import Event
from pagealloc_model.verdict.error_rows import NO_PCP, was_recorded
from pagealloc_model.verdict.pressure_metrics import counter_quantities, counters_by_window
from pagealloc_model.verdict.quantity import WINDOWS
from pagealloc_model.verdict.replay_metrics import SHARES, SITES, STEALS
from pagealloc_model.verdict.state_errors import FROZEN
from pagealloc_model.verdict.validation import Validation, validate

if TYPE_CHECKING:
    from pagealloc_model.policy.kernel_rules import KernelRules
    from pagealloc_model.recording.recording import Recording

NO_FALLBACKS = "no fallback"
NO_PRESSURE = "no reclaim, every request served"
EXACT_HOLDS = ("lock tracepoints", "kprobes")
Key = tuple[str, str]
"""Metric and scope of a comparison's row."""


@dataclass(frozen=True, kw_only=True)
class ModelError:
    """One metric under the recorded policy.

    Attributes:
        measured: what the recording shows.
        predicted: what the model had.
        error: distance between them, in the metric's unit.
        null_model: what a null model says.
        null_error: its distance.
    """

    measured: float
    predicted: float
    error: float
    null_model: str
    null_error: float

    @property
    def beats_null(self) -> bool:
        """Whether the model is nearer than the null model, or right."""
        return self.error < self.null_error or self.error == 0


@dataclass(frozen=True, kw_only=True)
class ModelErrors:
    """The errors of one recording.

    Attributes:
        by_row: of every metric that the recording shows.
        refused: why no comparison on it can be believed, "" if it may.
        dispersion: variance over mean of recorded fallbacks by window, 1 or more.
    """

    by_row: Mapping[Key, ModelError] = field(default_factory=dict)
    refused: str = ""
    dispersion: float = 1.0


_kept: WeakKeyDictionary[Recording, dict[tuple[object, ...], ModelErrors]] = WeakKeyDictionary()


def model_errors(
    recording: Recording,
    rules: KernelRules | str | None = None,
    assumptions: Assumptions | None = None,
) -> ModelErrors:
    """Validate a recording once; what comes of it is kept while the recording lives.

    Args:
        recording: an opened recording.
        rules: as `choose_rules` takes them.
        assumptions: None for the defaults.
    """
    known = _kept.setdefault(recording, {})
    key = (rules, assumptions or Assumptions())
    if key not in known:
        try:
            known[key] = errors_of(validate(recording, rules=rules, assumptions=assumptions))
        except PageallocError as error:
            known[key] = ModelErrors(refused=f"it cannot be validated: {error}")
    return known[key]


def keep_errors(validation: Validation, rules: KernelRules | str | None) -> None:
    """Keep what a validation found, so that comparisons on its recording need no other."""
    key = (rules, validation.replay.assumptions)
    _kept.setdefault(validation.recording, {})[key] = errors_of(validation)


def errors_of(validation: Validation) -> ModelErrors:
    """The errors that a validation found, in the rows of a comparison."""
    checks = validation.replay.checks
    odd = [str(each) for each in checks if each.level == REFUSED]
    return ModelErrors(
        by_row=dict(_errors(validation)),
        refused="; ".join(odd) if worst(checks) == REFUSED else "",
        dispersion=_dispersion(validation),
    )


def _dispersion(validation: Validation) -> float:
    trace = validation.recording.trace
    times = trace.time_ns[trace.event == Event.EXTFRAG]
    if not len(times):
        return 1.0
    counts, _ = np.histogram(times, WINDOWS, range=trace.demand_span_ns)
    if not counts.any():
        return 1.0
    return max(float(counts.var(ddof=1) / counts.mean()), 1.0)


def _errors(validation: Validation) -> Iterator[tuple[Key, ModelError]]:
    yield from _state(validation)
    yield from _holds(validation)
    if was_recorded(validation.recording, Event.EXTFRAG):
        yield from _fallbacks(validation.measured, validation.replay)
    if validation.replay.assumptions.reclaim == "elastic":
        yield from _pressure(validation)


def _error(measured: float, predicted: float, null_model: str, null: float) -> ModelError:
    return ModelError(
        measured=measured,
        predicted=predicted,
        error=abs(predicted - measured),
        null_model=null_model,
        null_error=abs(null - measured),
    )


def _state(validation: Validation) -> Iterator[tuple[Key, ModelError]]:
    """Means over the scored snapshots; the null model keeps the state of the start."""
    table = validation.snapshots
    for (metric, scope), mine in table.groupby(["metric", "scope"], sort=False):
        if metric == "highatomic_blocks":
            last, most = mine.iloc[-1], mine[["measured", "predicted", "null"]].max()
            for at, row in (("end", last), ("most", most)):
                found = _error(row["measured"], row["predicted"], FROZEN, row["null"])
                yield (metric, f"{scope},at={at}"), found
        elif metric in ("free_pages", "pcp_count"):
            yield (metric, scope), _mean_error(mine)
    for name, by_zone in (
        ("free_in_whole_blocks", _whole_blocks(validation, "")),
        ("free_in_whole_blocks_not_highatomic", _whole_blocks(validation, "HighAtomic")),
    ):
        for scope, mine in by_zone:
            yield (name, scope), _mean_error(mine)


def _mean_error(mine: pd.DataFrame) -> ModelError:
    """Mean distance at snapshots, not the distance of means: errors may not hide one another."""
    real = mine["measured"]
    return ModelError(
        measured=float(real.mean()),
        predicted=float(mine["predicted"].mean()),
        error=float((mine["predicted"] - real).abs().mean()),
        null_model=FROZEN,
        null_error=float((mine["null"] - real).abs().mean()),
    )


def _whole_blocks(validation: Validation, without: str) -> Iterator[tuple[str, pd.DataFrame]]:
    """Free pages of at least a pageblock's order at the scored snapshots, by zone."""
    machine, order = validation.replay.machine, validation.replay.machine.pageblock_order

    def summed(table: pd.DataFrame) -> pd.Series:
        kept = table[(table["order"] >= order) & (table["migratetype"] != without)]
        return kept.groupby(["node", "zone", "time_ns"])["pages"].sum()

    real, model = summed(validation.measured.free_pages), summed(validation.replay.free_pages)
    both = pd.DataFrame({"measured": real, "predicted": model}).dropna()
    start = validation.scored_from_ns
    for (node, zone), mine in both.groupby(level=["node", "zone"]):
        by_time = mine.droplevel(["node", "zone"])
        held = real.loc[(node, zone)]
        held = held[held.index <= start]
        scored = by_time[by_time.index > start].assign(null=held.iloc[-1] if len(held) else np.nan)
        if len(scored):
            yield zone_scope(node, zone, machine.nodes), scored


def _holds(validation: Validation) -> Iterator[tuple[Key, ModelError]]:
    """Holds of zone->lock by site; the null model has no per-CPU lists: every page is a hold."""
    measured, replay = validation.measured, validation.replay
    recording = validation.recording
    real, model = measured.transactions_full, replay.transactions_full
    nulls = validation.errors[validation.errors["null_model"] == NO_PCP]
    nulls = nulls[nulls["scope"] == "all"].set_index("metric")["null"]
    shown = {
        "refill": was_recorded(recording, Event.ZONE_LOCKED),
        "drain": was_recorded(recording, Event.PCPU_DRAIN),
        "buddy_alloc": measured.boundaries in EXACT_HOLDS,
        "direct_free": "direct_free" not in measured.unseen_sites,
    }
    for site in SITES:
        if not shown[site]:
            continue
        mine, its = (_pages(table, site) for table in (real, model))
        for metric, before, after in (
            (f"{site}_transactions", len(mine), len(its)),
            (f"{site}_pages", mine.sum(), its.sum()),
        ):
            null = float(nulls.get(metric, 0.0))
            name = NO_PCP if metric in nulls else "none"
            yield (metric, "all"), _error(float(before), float(after), name, null)
        if site in ("refill", "drain") and len(mine) and len(its):
            for at, share in SHARES.items():
                both = (
                    float(np.quantile(each, share, method="inverted_cdf")) for each in (mine, its)
                )
                yield (f"pages_per_{site}", f"at={at}"), _error(*both, NO_PCP, 1.0)
        if site == "drain":
            both = (float(each.max()) if len(each) else 0.0 for each in (mine, its))
            yield ("longest_drain", "all"), _error(*both, NO_PCP, 1.0)
    if all(shown.values()):
        yield from _all_holds(real, model, nulls)


def _all_holds(
    real: pd.DataFrame, model: pd.DataFrame, nulls: pd.Series
) -> Iterator[tuple[Key, ModelError]]:
    """Holds of the sites that are shown."""
    sides = [table[table["site"].isin(SITES)] for table in (real, model)]
    counts = [float(len(each)) for each in sides]
    pages = [float(each["pages"].astype("Float64").sum()) for each in sides]
    null = float(nulls.get("refill_transactions", 0) + nulls.get("drain_transactions", 0))
    yield ("zone_lock_acquisitions", "all"), _error(*counts, NO_PCP, null)
    if all(counts):
        means = (whole / count for whole, count in zip(pages, counts, strict=True))
        yield ("pages_per_acquisition", "all"), _error(*means, NO_PCP, 1.0)


def _pages(table: pd.DataFrame, site: str) -> np.ndarray:
    mine = table.loc[table["site"] == site, "pages"].astype("Float64")
    return mine.dropna().to_numpy(float)


def _fallbacks(measured: Measured, replay: Replay) -> Iterator[tuple[Key, ModelError]]:
    """The null model has no fallback at all."""
    real, model = measured.fallbacks, replay.fallbacks
    both = (float(each["count"].sum()) for each in (real, model))
    yield ("extfrag_events", "all"), _error(*both, NO_FALLBACKS, 0.0)
    names = replay.machine.migratetypes[:3]
    for metric, steals in (("fallback_claims", False), ("fallback_steals", True)):
        counts = [
            each[each["kind"].isin(STEALS) == steals]
            .groupby(["alloc_migratetype", "fallback_migratetype"])["count"]
            .sum()
            for each in (real, model)
        ]
        for wanted in names:
            for found in names:
                pair = (float(each.get((wanted, found), 0)) for each in counts)
                yield (metric, f"{wanted} from {found}"), _error(*pair, NO_FALLBACKS, 0.0)


def _pressure(validation: Validation) -> Iterator[tuple[Key, ModelError]]:
    """Counters of vmstat between its first and last sample in the recording's time."""
    replay = validation.replay
    first, last = replay.edges[0], replay.edges[-1]
    table = validation.measured.vmstat
    times = np.unique(table["time_ns"].to_numpy())
    times = times[(times >= first) & (times <= last)]
    if len(times) < 2:
        return
    edges = np.linspace(times[0], times[-1], WINDOWS + 1)
    known = set(replay.vmstat["name"])
    real = counters_by_window(table[table["name"].isin(known)], edges)
    model = counters_by_window(replay.vmstat, edges)
    sides = (counter_quantities(real), counter_quantities(model))
    for mine, its in zip(*sides, strict=True):
        if np.isnan(mine.value) or np.isnan(its.value):
            continue
        null = 1.0 if mine.unit == "share" else 0.0
        yield (mine.metric, mine.scope), _error(mine.value, its.value, NO_PRESSURE, null)
