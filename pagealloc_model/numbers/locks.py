"""Time at zone->lock: what it costs, who waits for whom, and how far that is from a recording."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from pagealloc_model.allocator.sites import MOVING, PERFORMED, SITES
from pagealloc_model.base.table import Table
from pagealloc_model.base.text import count_of, paragraph
from pagealloc_model.measured.call_stacks import recorded_spinlocks
from pagealloc_model.measured.measured import Measured, bin_start, measure
from pagealloc_model.numbers.errors import recorded_lock_model, shows_contention
from pagealloc_model.numbers.join import joined
from pagealloc_model.numbers.result_tables import comparison_table
from pagealloc_model.numbers.statistics import relative
from pagealloc_model.numbers.vocabulary import LOCK_TIMES, compared
from pagealloc_model.policy.lock_costs import SPREAD, LockCosts
from pagealloc_model.predicted.lock_times import (
    LockModel,
    LockTimes,
    lock_times,
    queued,
)
from pagealloc_model.predicted.replay import Replay, replay

if TYPE_CHECKING:
    from pagealloc_model.recording.recording import Recording


def lock_policy_rows(base: LockTimes, patch: LockTimes) -> pd.DataFrame:
    """metric, scope, base, patch, change (relative to base), unit, better.

    Args:
        base: acquisitions under the policy compared with.
        patch: under the other one.
    """
    columns = ["metric", "scope", "base", "patch", "change", "unit", "better"]
    rows = [
        (
            *(before.metric, before.scope, before.value, after.value),
            *(after.value - before.value, before.unit, before.better),
        )
        for before, after in joined(compared(LOCK_TIMES, base), compared(LOCK_TIMES, patch))
    ]
    return pd.DataFrame(rows, columns=columns)


def lock_policy_table(
    base: LockTimes, patch: LockTimes, title: str, lines: Sequence[str] = ()
) -> str:
    """The same as plain text for a mail, with what it rests on.

    Args:
        base: acquisitions under the policy compared with.
        patch: under the other one.
        title: what base and patch are.
        lines: more to say below.
    """
    rests_on = [
        title,
        *lines,
        "Counts and pages are the model's. Times rest on these costs; low and high are those of "
        f"costs {SPREAD:.2f} times smaller and larger.",
        *patch.model.costs.lines(),
    ]
    footer = "\n".join(paragraph(line) for line in rests_on)
    sides = [with_spread(side).set_index("result") for side in (base, patch)]
    names = [changed_by_costs(side).index for side in sides]
    rows = [
        (
            *("with low and high costs", str(name)),
            *(side[end].get(name, pd.NA) for side in sides for end in ("low", "high")),
        )
        for name in names[0].union(names[1], sort=False)
    ]
    titles = ("costs", "result", "base, low", "high", "patch, low", "high")
    spread = Table(titles, rows).to_text()
    return comparison_table(lock_policy_rows(base, patch), f"{spread}\n\n{footer}")


def with_spread(times: LockTimes) -> pd.DataFrame:
    """Numbers of `LOCK_TIMES` for the given costs, and for costs tenfold apart around them.

    Returns:
        result, metric, scope, low, value, high; the order of low and high is that of the costs.
    """
    models = [
        replace(times.model, costs=times.model.costs.times(factor))
        for factor in (1 / SPREAD, SPREAD)
    ]
    low, high = (queued(times.log, times.machine, model, times.visits) for model in models)
    rows = []
    for row in joined(*(compared(LOCK_TIMES, side) for side in (low, times, high))):
        metric, scope, unit = row[0].metric, row[0].scope, row[0].unit
        part, measure = "" if scope == "all" else f", {scope}", f" ({unit})" if unit else ""
        values = (quantity.value for quantity in row)
        rows.append((f"{metric}{part}{measure}", metric, scope, *values))
    columns = ["result", "metric", "scope", "low", "value", "high"]
    return pd.DataFrame(rows, columns=columns)


def changed_by_costs(spread: pd.DataFrame) -> pd.DataFrame:
    """The rows of `with_spread` that costs change."""
    return spread[spread[["low", "value", "high"]].nunique(axis=1) > 1]


KEYS = ["time_ns", "node", "zone", "cpu", "site"]
_EMPTY_NOTE = (
    "empty_refill and empty_buddy_alloc found no page: kprobes or lock events show the first, "
    "nothing the second; each takes zone->lock, and its time is part of all predicted times"
)
_DIRECT_FREE_NOTE = (
    "direct_free: how many there were is NA, since only kprobes or lock tracepoints show those of "
    "pages that per-CPU lists hold too"
)


@dataclass(frozen=True, kw_only=True, eq=False)
class LockComparison:
    """Traffic of the recorded machine and of the model at zone->lock.

    Attributes:
        measured: the recording's tables; `measured.boundaries` says whether acquisitions are the
            kernel's own calls or inferred from runs of events.
        predicted: the replay.
        times: its acquisitions with their times.
        spinlocks: which the recorded machine has, and where that was read.
    """

    measured: Measured
    predicted: Replay
    times: LockTimes
    spinlocks: str

    @cached_property
    def table(self) -> pd.DataFrame:
        """One row by time bin, node, zone, CPU, site and source ("measured" or "predicted").

        Columns: acquisitions, objects, pages, contended, hold_ns, wait_ns, max_hold_ns. Measured
        hold times are NA where the kernel announced none (T8); contended and wait_ns are NA where
        no contention can be seen, and count what waited visibly where it can.
        """
        contention = self.measured.contention
        nothing = 0.0 if contention.known else pd.NA
        acquisitions = self.times.acquisitions.astype({"zone": str, "site": str})
        contended = shows_contention(self.times)
        frames = (
            self.measured.transactions_full.assign(
                source="measured", acquisitions=1, contended=nothing, wait_ns=nothing
            ),
            contention.waits.assign(source="measured", contended=1),
            self.measured.holds.assign(
                source="measured", objects=pd.NA, pages=pd.NA, wait_ns=pd.NA
            ),
            acquisitions.assign(source="predicted", acquisitions=1, contended=contended),
        )
        keys = [*KEYS, "source"]
        sums = ["acquisitions", "objects", "pages", "contended", "wait_ns", "hold_ns"]
        events = pd.concat([frame.reindex(columns=[*keys, *sums]) for frame in frames])
        events["time_ns"] = bin_start(events, self.measured.start_ns, self.measured.bin_ns)
        grouped = events.astype(dict.fromkeys(sums, "Float64")).groupby(keys, dropna=False)
        rows = grouped[sums].sum(min_count=1).assign(max_hold_ns=grouped["hold_ns"].max())
        return rows.reset_index()[[*KEYS, *sums, "max_hold_ns", "source"]]

    @cached_property
    def by_site(self) -> pd.DataFrame:
        """Every site of S11.1: both sides' acquisitions and pages per acquisition, with errors.

        Columns: site, then acquisitions, pages, contended and pages_per_acquisition, each with
        _measured, _predicted and _error; NA where a side cannot know. "other" are waits of
        functions that no site of the model stands for.
        """
        names = ["acquisitions", "pages", "contended"]
        sums = self.table.groupby(["site", "source"])[names].sum(min_count=1).unstack("source")
        sides_of = pd.MultiIndex.from_product([names, ["measured", "predicted"]])
        sums = sums.reindex(columns=sides_of)
        others = [site for site in sums.index if site not in PERFORMED]
        sums = sums.reindex([*PERFORMED, *others, *(site.name for site in SITES if site.left_out)])
        modelled = sums.index.isin(PERFORMED)
        counted = modelled & ~sums.index.isin(self.measured.unseen_sites)
        waited = modelled & sums.index.isin(MOVING) & self.measured.contention.known
        sides: dict[str, list[np.ndarray]] = {}
        for name in names:
            real, model = (
                sums[name, side].to_numpy(float, copy=True, na_value=np.nan)
                for side in ("measured", "predicted")
            )
            known = waited if name == "contended" else counted
            if name != "contended":
                real[~known] = np.nan
            real[known & np.isnan(real)] = model[modelled & np.isnan(model)] = 0.0
            sides[name] = [real, model]
        with np.errstate(divide="ignore", invalid="ignore"):
            sides["pages_per_acquisition"] = [
                np.where(count == 0, np.nan, pages / count)
                for pages, count in zip(sides["pages"], sides["acquisitions"], strict=True)
            ]
        columns: dict[str, np.ndarray] = {}
        for name, (real, model) in sides.items():
            errors = map(relative, model.tolist(), real.tolist())
            columns |= {f"{name}_measured": real, f"{name}_predicted": model}
            columns[f"{name}_error"] = np.fromiter(errors, float)
        table = pd.DataFrame(columns)
        table = table.astype(object).where(table.notna(), pd.NA)
        table.insert(0, "site", sums.index)
        return table

    @property
    def notes(self) -> tuple[str, ...]:
        """Limits of the comparison, one line each."""
        releases = self.measured.contended_releases["site"].value_counts()
        sites = ", ".join(f"{site} {count}" for site, count in releases.items())
        count = count_of(int(releases.sum()), "release")
        released = [f"others waited at {count} of zone->lock: {sites}"] if len(releases) else []
        return (
            f"measured acquisitions: {self.measured.boundaries}",
            f"spinlocks: {self.spinlocks}",
            *((_DIRECT_FREE_NOTE,) if "direct_free" in self.measured.unseen_sites else ()),
            _EMPTY_NOTE,
            *self.measured.contention.notes,
            *released,
            *(f"{site.name}: not modelled, {site.left_out}" for site in SITES if site.left_out),
            *self.times.model.costs.lines(),
        )


def compare_locks(
    recording: Recording, predicted: Replay | None = None, model: LockModel | None = None
) -> LockComparison:
    """Hold a replay's lock traffic against the recording's.

    Args:
        recording: an opened recording.
        predicted: a replay of it; None replays it under its own policy.
        model: how time passes; None for costs fitted to the recording, tracing included.
    """
    predicted = predicted or replay(recording)
    model = model or recorded_lock_model(recording)
    is_hybrid, read_from = recorded_spinlocks(recording)
    width = int(predicted.edges[1] - predicted.edges[0])
    return LockComparison(
        measured=measure(recording, bin_ns=width),
        predicted=predicted,
        times=lock_times(predicted, model),
        spinlocks=f"{'paravirtual' if is_hybrid else 'native'}, {read_from}",
    )


__all__ = [
    "SPREAD",
    "LockComparison",
    "LockCosts",
    "LockModel",
    "LockTimes",
    "compare_locks",
    "lock_policy_rows",
    "lock_policy_table",
    "lock_times",
    "with_spread",
]
