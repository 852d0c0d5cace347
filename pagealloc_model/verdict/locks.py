"""Time at zone->lock: what it costs, who waits for whom, and how far that is from a recording."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from pagealloc_model.base.table import Table
from pagealloc_model.base.text import count_of, paragraph
from pagealloc_model.measured.contention import SITES as CONTENDED_SITES
from pagealloc_model.measured.measured import Measured, announced_times, bin_start, measure
from pagealloc_model.policy.lock_costs import SPREAD, LockCosts
from pagealloc_model.predicted.lock_times import LockModel, LockTimes, lock_times, with_spread
from pagealloc_model.predicted.replay import Replay, replay
from pagealloc_model.predicted.tables import EMPTY_SITES
from pagealloc_model.verdict.errors import recorded_lock_model, shows_contention
from pagealloc_model.verdict.quantities import Quantity, paired
from pagealloc_model.verdict.result_tables import comparison_table
from pagealloc_model.verdict.statistics import relative

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
        for before, after in paired(_quantities(base), _quantities(patch))
    ]
    return pd.DataFrame(rows, columns=columns)


def lock_policy_table(
    base: LockTimes, patch: LockTimes, title: str, lines: Sequence[str] = (), width: int = 72
) -> str:
    """The same as plain text for a mail, with what it rests on.

    Args:
        base: acquisitions under the policy compared with.
        patch: under the other one.
        title: what base and patch are.
        lines: more to say below.
        width: characters per line at most.
    """
    rests_on = [
        title,
        *lines,
        "Counts and pages are the model's. Times rest on these costs; low and high are those of "
        f"costs {SPREAD:.2f} times smaller and larger.",
        *patch.model.costs.lines(),
    ]
    footer = "\n".join(paragraph(line, width=width) for line in rests_on)
    # Results in time for the lowest and the highest costs.
    sides = [
        with_spread(side.log, side.machine, side.model, side.visits).set_index("result")
        for side in (base, patch)
    ]
    rows = [
        (
            *("for costs that are tenfold apart", str(name)),
            *(side[end].get(name, pd.NA) for side in sides for end in ("low", "high")),
        )
        for name in sides[0].index.union(sides[1].index, sort=False)
        if "(" in name
    ]
    titles = ("time", "result", "base, low", "high", "patch, low", "high")
    spread = Table(titles, rows).to_text(width)
    return comparison_table(lock_policy_rows(base, patch), f"{spread}\n\n{footer}", width=width)


def _quantities(times: LockTimes) -> Iterator[Quantity]:
    frame, failed = times.acquisitions, times.trylocks.sum()
    rows: list[tuple[str, str, float, str]] = []
    for table, columns in (
        (times.longest_holds(), (("longest hold", "pages", 1, "pages"), _LONGEST_HOLD)),
        (times.by_site, (("acquisitions", "acquisitions", 1, ""), _LONGEST_WAIT)),
    ):
        for row in table.itertuples():
            scope = " ".join(word for word in (row.site, row.cause) if word)
            rows += [
                (metric, scope, getattr(row, column) / divisor, unit)
                for metric, column, divisor, unit in columns
            ]
    rows += [
        ("holds of more than 1000 pages", "all", (frame["pages"] > 1000).sum(), ""),
        ("contended", "all", (frame["ahead"] > 0).sum(), ""),
        ("time waiting", "all", frame["wait_ns"].sum() / 1e6, "ms"),
        ("longest wait", "all", times.longest_starvation_ns / 1e3, "us"),
        ("trylocks failed", "frees", failed["frees"], ""),
        ("trylocks failed", "allocations", failed["allocations"], ""),
        ("left by drains cut short", "all", failed["pages_left"], "pages"),
    ]
    for metric, scope, value, unit in rows:
        better = "" if metric.startswith("left by") else "lower"
        values = np.array([float(value)])
        yield Quantity(
            metric=metric, scope=scope, unit=unit, better=better, how="count", values=values
        )


_LONGEST_HOLD = ("longest hold", "hold_ns", 1e3, "us")
_LONGEST_WAIT = ("longest wait", "max_wait_ns", 1e3, "us")
KEYS = ["time_ns", "node", "zone", "cpu", "site"]
SITES = (
    *("refill", "drain", "buddy_alloc", "direct_free"),
    *("reserve", "unreserve", "boost_reset"),
    *EMPTY_SITES,
)
"""Sites of S11.1 that the model performs."""

_EMPTY_NOTE = (
    "empty_refill and empty_buddy_alloc found no page: kprobes or lock events show the first, "
    "nothing the second; each takes zone->lock, and its time is part of all predicted times"
)
_DIRECT_FREE_NOTE = (
    "direct_free: how many there were is NA, since only kprobes or lock tracepoints show those of "
    "pages that per-CPU lists hold too"
)
NOT_MODELLED = {
    "compaction_scan": "compaction is replayed by what it took and freed, not by how it searched",
    "page_reporting": "a balloon that reports free pages leaves no event",
    "proc_readers": "who reads buddyinfo, zoneinfo or pagetypeinfo is in no recording",
    "watermark_update": "sysctls are not changed during a replay",
    "growth": "memory that a zone gets is put into its lists without a hold",
    "isolation": "contiguous ranges, hotplug and memory failure are not replayed",
}
"""The other sites of S11.1, and why neither side has them: their values are NA."""


@dataclass(frozen=True, kw_only=True, eq=False)
class LockComparison:
    """Traffic of the recorded machine and of the model at zone->lock.

    Attributes:
        measured: the recording's tables; `measured.boundaries` says whether acquisitions are the
            kernel's own calls or inferred from runs of events.
        predicted: the replay.
        times: its acquisitions with their times.
    """

    measured: Measured
    predicted: Replay
    times: LockTimes

    @cached_property
    def table(self) -> pd.DataFrame:
        """One row by time bin, node, zone, CPU, site and source ("measured" or "predicted").

        Columns: acquisitions, objects, pages, contended, hold_ns, wait_ns, max_hold_ns. Measured
        hold times are NA where the kernel announced none (T8); contended and wait_ns are NA where
        no contention can be seen, and count what waited visibly where it can.
        """
        sides = {"measured": self._measured_rows(), "predicted": self._predicted_rows()}
        rows = [table.reset_index().assign(source=name) for name, table in sides.items()]
        return pd.concat(rows, ignore_index=True).sort_values([*KEYS, "source"], ignore_index=True)

    @cached_property
    def by_site(self) -> pd.DataFrame:
        """Every site of S11.1: both sides' acquisitions and pages per acquisition, with errors.

        Columns: site, then acquisitions, pages, contended and pages_per_acquisition, each with
        _measured, _predicted and _error; NA where a side cannot know. "other" are waits of
        functions that no site of the model stands for.
        """
        sums = self.table.groupby(["site", "source"])[["acquisitions", "pages", "contended"]]
        totals = sums.sum(min_count=1)
        seen = [site for site in totals.index.unique("site") if site not in SITES]
        return pd.DataFrame(
            [self._row_of_site(site, totals) for site in (*SITES, *seen, *NOT_MODELLED)]
        )

    def _row_of_site(self, site: str, totals: pd.DataFrame) -> dict[str, object]:
        values: dict[str, list[object]] = {}
        for name in ("acquisitions", "pages", "contended"):
            sides = [totals[name].get((site, side), pd.NA) for side in ("measured", "predicted")]
            if name == "contended":
                can_count = self.measured.contention.known and site in CONTENDED_SITES
            else:
                can_count = site not in self.measured.unseen_sites
            known = [site in SITES and can_count, site in SITES]
            if name != "contended" and not known[0]:
                sides[0] = pd.NA
            values[name] = [
                0.0 if is_known and pd.isna(side) else side
                for is_known, side in zip(known, sides, strict=True)
            ]
        values["pages_per_acquisition"] = [
            pd.NA if pd.isna(pages) or pd.isna(count) or not count else float(pages) / float(count)
            for pages, count in zip(values["pages"], values["acquisitions"], strict=True)
        ]
        row: dict[str, object] = {"site": site}
        for name, (real, model) in values.items():
            unknown = pd.isna(real) or pd.isna(model)
            row |= {f"{name}_measured": real, f"{name}_predicted": model}
            row[f"{name}_error"] = pd.NA if unknown else relative(float(model), float(real))
        return row

    @property
    def notes(self) -> tuple[str, ...]:
        """Limits of the comparison, one line each."""
        releases = self.measured.contended_releases["site"].value_counts()
        sites = ", ".join(f"{site} {count}" for site, count in releases.items())
        count = count_of(int(releases.sum()), "release")
        released = [f"others waited at {count} of zone->lock: {sites}"] if len(releases) else []
        return (
            f"measured acquisitions: {self.measured.boundaries}",
            *((_DIRECT_FREE_NOTE,) if "direct_free" in self.measured.unseen_sites else ()),
            _EMPTY_NOTE,
            *self.measured.contention.notes,
            *released,
            *(f"{site}: not modelled, {why}" for site, why in NOT_MODELLED.items()),
            *self.times.model.costs.lines(),
        )

    def _rows(self, frame: pd.DataFrame, *columns: str) -> pd.DataFrame:
        """Acquisitions of one side and sums of columns by `KEYS`."""
        grouped = self._binned(frame).groupby(KEYS, dropna=False)
        rows = grouped[list(columns)].sum(min_count=1)
        rows.insert(0, "acquisitions", grouped.size())
        return rows.astype("Float64")

    def _binned(self, frame: pd.DataFrame) -> pd.DataFrame:
        start = bin_start(frame, self.measured.start_ns, self.measured.bin_ns)
        return frame.assign(time_ns=start)

    def _measured_rows(self) -> pd.DataFrame:
        rows = self._rows(self.measured.transactions_full, "objects", "pages")
        contention = self.measured.contention
        for name in ("contended", "wait_ns"):
            rows[name] = pd.array([0.0 if contention.known else pd.NA] * len(rows), "Float64")
        if contention.known and len(contention.waits):
            waited = self._binned(contention.waits).groupby(KEYS)["wait_ns"]
            seen = pd.DataFrame({"contended": waited.size(), "wait_ns": waited.sum()})
            rows = rows.reindex(rows.index.union(seen.index))
            rows.update(seen.astype("Float64"))
        times = announced_times(self._binned(self.measured.holds), KEYS)
        return rows.join(times[["hold_ns", "max_hold_ns"]])

    def _predicted_rows(self) -> pd.DataFrame:
        frame = self.times.acquisitions.astype({"zone": str, "site": str})
        frame["contended"] = shows_contention(self.times).astype("int64")
        rows = self._rows(frame, "objects", "pages", "contended", "hold_ns", "wait_ns")
        longest = self._binned(frame).groupby(KEYS)["hold_ns"].max()
        return rows.assign(max_hold_ns=longest.astype("Float64"))


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
    width = int(predicted.edges[1] - predicted.edges[0])
    return LockComparison(
        measured=measure(recording, bin_ns=width),
        predicted=predicted,
        times=lock_times(predicted, model),
    )


__all__ = [
    "SPREAD",
    "LockComparison",
    "LockCosts",
    "LockModel",
    "LockTimes",
    "compare_locks",
    "lock_policy_table",
    "lock_times",
    "with_spread",
]
