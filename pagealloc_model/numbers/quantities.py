"""Every number that is compared: its name, unit, better direction, and how tables give it.

Recordings (`Measured`) and replays have tables of one schema, so that one function serves both.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import product
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
import pandas as pd

from pagealloc_model.allocator import layout, pressure_layout
from pagealloc_model.base.text import zone_scope
from pagealloc_model.measured.folios import CLASS_NAMES, folio_shares
from pagealloc_model.measured.measured import Measured, measure
from pagealloc_model.measured.memory_stalls import (
    CAUSES,
    SPANS,
    MemoryStalls,
    once,
    recorded_memory_stalls,
)
from pagealloc_model.numbers.statistics import HALF, SHARE, quantile_of_counts, slope
from pagealloc_model.policy.policy import Policy
from pagealloc_model.predicted.replay import Replay
from pagealloc_model.predicted.tables import EMPTY_SITES
from pagealloc_model.recording.machine import PMD_ORDER, Machine
from pagealloc_model.recording.recorded_machine import recorded_machine
from pagealloc_model.recording.trace.columns import EVENT_NAMES, Event

if TYPE_CHECKING:
    from pagealloc_model.recording.recording import Recording

Direction = Literal["lower", "higher", ""]
How = Literal["sum", "mean", "ratio", "most", "quantile", "count", "last"]
Window = tuple[int, int]
"""Nanoseconds on the recording's clock, both ends included."""

SITES = ("refill", "drain", "buddy_alloc", "direct_free")
TYPES = ("Unmovable", "Movable", "Reclaimable", "HighAtomic")
HIGHATOMIC = TYPES.index("HighAtomic")
ALLOCSTALL = "allocstall"
FAILED = "failed_allocations"
FOLIO = ("folio_success", "folio_at_once")
OTHER_ORDERS = "the policy asks for other numbers of folios of that order"
"""Why a quantity of folios is not compared."""
WINDOWS = 10
"""Windows of equal length that a replay is cut into: so long that one says little of the next."""

_METRICS: dict[str, tuple[str, Direction, How]] = {
    "zone_lock_acquisitions": ("", "lower", "sum"),
    "pages_per_acquisition": ("pages", "", "ratio"),
    **{f"{site}_transactions": ("", "lower", "sum") for site in (*SITES, *EMPTY_SITES)},
    **{f"{site}_pages": ("pages", "", "sum") for site in SITES},
    "longest_drain": ("pages", "lower", "most"),
    "pages_per_refill": ("pages", "lower", "quantile"),
    "pages_per_drain": ("pages", "lower", "quantile"),
    "hold_time": ("ns", "lower", "quantile"),
    "free_pages": ("pages", "", "mean"),
    "free_in_whole_blocks": ("pages", "higher", "mean"),
    "free_in_whole_blocks_not_highatomic": ("pages", "higher", "mean"),
    "pcp_count": ("pages", "", "mean"),
    "highatomic_blocks": ("blocks", "lower", "last"),
    "pcp_lock_acquisitions": ("", "lower", "sum"),
    "pcp_lock_hand_overs": ("", "lower", "sum"),
    "remote_frees": ("", "lower", "sum"),
    "extfrag_events": ("events", "lower", "count"),
    "fallback_claims": ("events", "lower", "count"),
    "fallback_steals": ("events", "lower", "count"),
    FAILED: ("requests", "lower", "count"),
    **dict.fromkeys(FOLIO, (SHARE, "higher", "ratio")),
    "memory_pressure": ("s", "lower", "sum"),
}
"""Unit, better direction, and how values make the number, by metric; see `Quantity`."""


class Counted(NamedTuple):
    """A number that counters of vmstat make: their sum, or the share of other counters' sum."""

    metric: str
    scope: str
    counters: tuple[str, ...]
    unit: str
    better: Direction
    mmtests: str = ""
    share_of: tuple[str, ...] = ()


_HUGE = ("thp_fault_alloc", "thp_fault_fallback")
_SCANNED = ("pgscan_kswapd", "pgscan_direct")
COUNTED = (
    Counted("thp_success", "all", _HUGE[:1], SHARE, "higher", "", _HUGE),
    Counted(
        *("compaction_success", "all", ("compact_success",), SHARE, "higher"),
        share_of=("compact_stall",),
    ),
    *(
        Counted(
            *("reclaim_efficiency", who, (f"pgsteal_{who}",), SHARE, "higher"),
            *(f"{who.capitalize()} efficiency", (f"pgscan_{who}",)),
        )
        for who in ("kswapd", "direct")
    ),
    Counted("reclaim_scanned", "all", _SCANNED, "pages", "lower"),
    Counted("reclaim_scanned", "kswapd", _SCANNED[:1], "pages", "lower", "Kswapd pages scanned"),
    Counted("reclaim_scanned", "direct", _SCANNED[1:], "pages", "lower", "Direct pages scanned"),
    Counted("reclaimed", "kswapd", ("pgsteal_kswapd",), "pages", "", "Kswapd pages reclaimed"),
    Counted("reclaimed", "direct", ("pgsteal_direct",), "pages", "lower", "Direct pages reclaimed"),
    *(
        Counted(name, "all", (name,), "events", better, words)
        for name, better, words in (
            ("compact_stall", "lower", "Compaction stalls"),
            ("compact_success", "higher", "Compaction success"),
            ("compact_fail", "lower", "Compaction failures"),
            ("thp_fault_alloc", "higher", "THP fault alloc"),
            ("thp_fault_fallback", "lower", "THP fault fallback"),
        )
    ),
    Counted(ALLOCSTALL, "all", (), "events", "lower", "Allocation stalls"),
)
"""Shares first; `mmtests` is mmtests' name. All allocstall_* together are one number."""
SERIES_WORDS = {
    "free_pages": "free pages",
    "pcp_count": "pages on per-CPU lists",
    "highatomic_blocks": "reserved blocks",
    "watermark_boost": "watermark boosts",
}
"""Metrics that snapshots show over time, in words."""
TOTAL_WORDS = {
    ("refill_transactions", "all"): "refills",
    ("drain_transactions", "all"): "drains",
    ("refill_pages", "all"): "pages refilled",
    ("drain_pages", "all"): "pages drained",
    ("extfrag_events", "all"): "fallbacks",
    ("contended_acquisitions", "all"): "waits at zone->lock",
    ("reclaim_scanned", "all"): "pages that reclaim scanned",
    (ALLOCSTALL, "all"): "allocation stalls",
    ("compact_stall", "all"): "direct compactions",
    ("thp_fault_alloc", "all"): "huge-page faults served",
    ("thp_fault_fallback", "all"): "huge-page faults refused",
}
"""Totals of a recording by metric and scope, in words."""
_STATE_TABLES = {
    "free_pages": ("free_pages", "pages"),
    "pcp_count": ("pcp", "count"),
    "watermark_boost": ("boosts", "pages"),
    "pageblocks": ("pageblocks", "blocks"),
    "highatomic_blocks": ("pageblocks", "blocks"),
}
"""By metric of the error table: the table of snapshots that has it, and the column added up."""
COUNTERS = tuple(
    name for name in pressure_layout.COUNTER_NAMES if name not in ("oom_kill", "pgdeactivate")
)
"""Counters of vmstat that an elastic replay has; the sum of allocstall_* comes with them."""
ADDED = "HighAtomic blocks added"
PRESSURE = {"some": "memory pressure", "full": "memory pressure full"}
TIMES = ("run time", *(f"{cause} time" for cause in CAUSES), *PRESSURE.values())
"""Numbers of a whole run in s, which no replay predicts; pressure as the kernel has it."""
WHOLE_UNITS = {
    "free pages": "pages",
    **{f"free {name} pages": "pages" for name in TYPES},
    "free pages in whole blocks": "pages",
    "pages on per-CPU lists": "pages",
    ADDED: "blocks",
    "Unmovable blocks added": "blocks",
    "refills": "holds",
    "drains": "holds",
    "pages of a refill": "pages",
    "pages of a drain": "pages",
    "longest drain": "pages",
    "fallbacks": "events",
    "THP success": "share",
    **dict.fromkeys(TIMES, "s"),
    **{name: "" for name in (*COUNTERS, ALLOCSTALL)},
    **{
        f"{kind} order {order} served": "share"
        for kind in CLASS_NAMES.values()
        for order in range(1, layout.ORDERS)
    },
    **{
        f"anon order {order} {what}": "requests"
        for order in range(PMD_ORDER + 1)
        for what in ("asked", "failed")
    },
}
"""Numbers of a whole run, as experiments compare runs; free memory and lists are means.
Whose pressure nobody copied has no "full", unless `sched:sched_switch` says who ran."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Quantity:
    """One number of a recording or a replay.

    Attributes:
        metric: its name.
        scope: what part of the machine it is of.
        unit: of the value.
        better: which direction is better, "" if neither.
        how: from values to the number: their sum, mean, ratio to another sum, largest one, or a
            quantile; "count" is a total of rare events, "last" a state at the end.
        time_ns: of each value, shape (values,); none where nothing dates them.
        values: float, shape (values,), NaN if unknown; of a quantile, places in `levels`.
        per: float, shape (values,), what a ratio's values are divided by.
        levels: float, ascending, of a quantile.
        share: of a quantile, 0 to 1.
    """

    metric: str
    scope: str = "all"
    unit: str = ""
    better: Direction = ""
    how: How = "sum"
    time_ns: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64))
    values: np.ndarray
    per: np.ndarray = field(default_factory=lambda: np.zeros(0))
    levels: np.ndarray = field(default_factory=lambda: np.zeros(0))
    share: float = 0.0

    @cached_property
    def value(self) -> float:
        """The number, NaN if unknown."""
        if self.how == "quantile":
            counts = np.bincount(self.values, minlength=len(self.levels))
            return float(quantile_of_counts(counts[None, :], self.levels, self.share)[0])
        if self.how == "most":
            return float(self.values.max(initial=0.0))
        if self.how == "last":
            return float(self.values[-1]) if len(self.values) else float("nan")
        total, whole = float(self.values.sum()), float(len(self.values))
        if self.how in ("sum", "count"):
            return total
        if self.how == "ratio" and whole:
            whole = float(self.per.sum())
        return total / whole if whole else float("nan")

    @property
    def has_windows(self) -> bool:
        """True if it has a value in each part of the time that adds to the whole."""
        return self.how in ("sum", "mean", "ratio", "most")

    def _by_window(self, edges: np.ndarray) -> np.ndarray:
        """Part of each window, shape (windows,); of a quantile (windows, levels)."""
        windows = len(edges) - 1
        place = np.clip(np.searchsorted(edges, self.time_ns, "right") - 1, 0, windows - 1)
        if self.how == "most":
            most = np.zeros(windows)
            np.maximum.at(most, place, self.values)
            return most
        if self.how == "quantile":
            levels = len(self.levels)
            cells = np.bincount(place * levels + self.values, minlength=windows * levels)
            return cells.reshape(windows, levels).astype(float)
        return np.bincount(place, weights=self.values, minlength=windows)

    def _divisors(self, edges: np.ndarray) -> np.ndarray:
        """Divisor of each window's part: values of a mean, `per` of a ratio."""
        per = self.per if self.how == "ratio" else np.ones(len(self.values))
        return replace(self, how="sum", values=per)._by_window(edges)

    def course(self, edges: np.ndarray) -> np.ndarray:
        """The value in each window, NaN where it has none; of sums, means and largest."""
        parts = self._by_window(edges)
        if self.how not in ("mean", "ratio"):
            return parts
        with np.errstate(invalid="ignore", divide="ignore"):
            return parts / self._divisors(edges)

    def _weighted(self, weights: np.ndarray, edges: np.ndarray) -> np.ndarray:
        """The value if each window came as often as a row of weights, (rows, windows), says."""
        parts = self._by_window(edges)
        if self.how == "sum":
            return weights @ parts
        if self.how == "most":
            return np.where(weights > 0, parts, -np.inf).max(axis=1)
        if self.how == "quantile":
            return quantile_of_counts(weights @ parts, self.levels, self.share)
        with np.errstate(invalid="ignore", divide="ignore"):
            return (weights @ parts) / (weights @ self._divisors(edges))

    def spread(self, edges: np.ndarray, dispersion: float = 1.0) -> float:
        """Distance of another run's value, a standard error on its scale.

        By leaving out one window at a time; of quantiles and the largest value, by those of the
        windows. What is counted at the end varies as rare events do, by `dispersion` more as they
        come in bursts, and no total by less. NaN where less than half of the windows show anything.
        """
        rare = float(np.sqrt(1 / (self.value + HALF)))
        if self.how in ("count", "last"):
            return rare * float(np.sqrt(dispersion))
        windows = len(edges) - 1
        alone = np.eye(windows, dtype=np.int64)
        if self.how in ("quantile", "most"):
            values = self._weighted(alone, edges)
            values = values[values > 0]
            parts = 1 if self.how == "most" or self.share == 1.0 else len(values)
        else:
            values = self._weighted(1 - alone, edges)
            values = values[np.isfinite(values)]
            values = values * windows / (windows - 1) if self.how == "sum" else values
            parts = windows / (windows - 1) ** 2
        if 2 * len(values) < windows:
            return float("nan")
        error = float(values.std(ddof=1) / np.sqrt(parts)) * slope(self.value, self.unit)
        if self.how == "ratio" and self.unit == SHARE:
            done, tried = float(self.values.sum()), float(self.per.sum())
            rare = float(np.sqrt(1 / (done + HALF) + 1 / (tried - done + HALF)))
        elif self.how != "sum":
            rare = 0.0
        return max(error, rare)


def _named(
    metric: str,
    values: np.ndarray | float,
    time_ns: np.ndarray | None = None,
    *,
    scope: str = "all",
    **more: Any,
) -> Quantity:
    """A quantity of `_METRICS`, of values or its only one; `more` are other fields."""
    unit, better, how = _METRICS[metric]
    fields = {"unit": unit, "better": better, "how": how} | more
    if time_ns is not None:
        fields["time_ns"] = time_ns
    return Quantity(metric=metric, scope=scope, values=np.atleast_1d(values), **fields)


def windows_of(replay: Replay) -> np.ndarray:
    """Edges of a replay's windows, float, shape (WINDOWS + 1,)."""
    return np.linspace(replay.edges[0], replay.edges[-1], WINDOWS + 1)


def _unknown(metric: str, scope: str, unit: str, better: Direction) -> Quantity:
    return Quantity(
        metric=metric, scope=scope, unit=unit, better=better, how="last", values=np.array([np.nan])
    )


def paired(
    before: Iterable[Quantity], after: Iterable[Quantity]
) -> tuple[tuple[Quantity, Quantity], ...]:
    """Each quantity of either side; one that a side lacks is 0 there if it counts, else unknown."""
    sides = [{(q.metric, q.scope, q.unit): q for q in side} for side in (before, after)]

    def lacking(other: Quantity) -> Quantity:
        if other.how in ("count", "sum"):
            return replace(other, time_ns=other.time_ns[:0], values=np.zeros(0))
        return _unknown(other.metric, other.scope, other.unit, other.better)

    keys = dict.fromkeys([*sides[0], *sides[1]])
    known = [[side.get(key) for side in sides] for key in keys]
    return tuple((one or lacking(other), other or lacking(one)) for one, other in known)


def comparable(
    pairs: Iterable[tuple[Quantity, Quantity]],
    before: pd.DataFrame,
    after: pd.DataFrame,
    kinds: Sequence[str],
) -> tuple[tuple[Quantity, Quantity], ...]:
    """Pairs in which the later is unknown where it is of folios of an order asked for otherwise.

    Args:
        pairs: of two replays of which one has a demand made anew by a policy (S10.13, S10.14).
        before: requests for folios of the one side.
        after: those of the other.
        kinds: classes whose orders the policies differ in.
    """
    own = [side.set_index(["class", "order"])["asked"] for side in (before, after)]
    asked = pd.concat(own, axis=1).fillna(0)
    other = asked.index[asked.iloc[:, 0] != asked.iloc[:, 1]].tolist()
    names: set[tuple[str, str]] = set()
    for kind, order in other:
        if kind in kinds:
            names.add((FAILED, f"order={order}"))
            names |= {(metric, f"class={kind},order={order}") for metric in FOLIO}
            is_huge = kind == "anon" and order == PMD_ORDER
            names |= {(metric, "all") for metric in (*_HUGE, "thp_success") if is_huge}
    return tuple(
        (one, _unknown(two.metric, two.scope, two.unit, two.better))
        if (two.metric, two.scope) in names
        else (one, two)
        for one, two in pairs
    )


def replay_quantities(replay: Replay, edges: np.ndarray) -> Iterator[Quantity]:
    """All that a comparison says of a replay."""
    yield from hold_quantities(replay.transactions_full)
    yield from States.of_replay(replay).quantities(replay.machine)
    totals = replay.list_use.groupby("time_ns").sum(min_count=1)
    for metric in ("pcp_lock_acquisitions", "pcp_lock_hand_overs", "remote_frees"):
        column = totals[metric.removeprefix("pcp_")]
        if replay.kernel or pd.isna(column.iloc[-1]):  # a kernel build counts neither
            yield _unknown(metric, "all", "", "lower")
            continue
        parts = np.diff(np.interp(edges, totals.index, column.to_numpy(float)))
        # What came before the replayed window is in the total, too.
        parts[0] += float(column.iloc[-1]) - parts.sum()
        yield _named(metric, parts, edges[:-1])
    yield from fallback_quantities(replay.fallbacks)
    holds = replay.lock_times().acquisitions
    held = holds["hold_ns"].to_numpy(float)
    # Three digits are more than the costs have, and keep the number of levels small.
    digits = 10.0 ** np.maximum(np.floor(np.log10(np.maximum(held, 1.0))) - 2, 0)
    rounded = np.round(held / digits) * digits
    yield from _quantiles("hold_time", holds["start_ns"].to_numpy(), rounded)
    if replay.assumptions.reclaim != "elastic":
        for one in COUNTED:
            yield _unknown(one.metric, one.scope, one.unit, one.better)
        yield _unknown(FAILED, "all", "requests", "lower")
        return
    yield from counter_quantities(replay.vmstat, edges)
    for order, failed in zip(*(replay.outcomes[name] for name in ("order", "failed")), strict=True):
        yield _named(FAILED, float(failed), scope=f"order={order}")
    yield from folio_quantities(replay.folios, edges)


def folio_quantities(folios: pd.DataFrame, edges: np.ndarray) -> Iterator[Quantity]:
    """Shares of requests served, and served at once, by class and order above 0 (S10.12)."""
    for metric, scope, served, asked in folio_shares(folios):
        yield _named(metric, served, edges[:1].astype(np.int64), scope=scope, per=asked)


def hold_quantities(transactions: pd.DataFrame) -> Iterator[Quantity]:
    """Holds of zone->lock by site (S11.1); sizes are of those whose pages are known."""
    time_ns = transactions["time_ns"].to_numpy()
    pages = transactions["pages"].to_numpy(float, na_value=np.nan)
    site = transactions["site"].to_numpy(object)
    known = ~np.isnan(pages)
    holding = ~np.isin(site, EMPTY_SITES)
    yield _named("zone_lock_acquisitions", np.ones(len(site)), time_ns)
    pages_or_none = np.where(known, pages, 0.0)
    yield _named("pages_per_acquisition", pages_or_none, time_ns, per=holding.astype(float))
    for name in (*SITES, *EMPTY_SITES):
        times = time_ns[site == name]
        yield _named(f"{name}_transactions", np.ones(len(times)), times)
        if name in SITES:
            sized = (site == name) & known
            yield _named(f"{name}_pages", pages[sized], time_ns[sized])
    drains, refills = ((site == name) & known for name in ("drain", "refill"))
    yield _named("longest_drain", pages[drains], time_ns[drains])
    yield from _quantiles("pages_per_refill", time_ns[refills], pages[refills])
    yield from _quantiles("pages_per_drain", time_ns[drains], pages[drains])


def pressure_quantities(
    stalls: pd.DataFrame, work: pd.DataFrame, nr_cpus: int, beside: pd.DataFrame | None = None
) -> Iterator[Quantity]:
    """Memory pressure as /proc/pressure/memory totals it, as far as stalls make it (S10.11).

    Every CPU counts as busy all the time. `beside` is when who stalls had others run on its CPU;
    None where nobody knows: then who is in a stall counts as running, so that "full" is "some".
    """
    columns = ["cpu", "begin_ns", "ns"]
    stalled = pd.concat([stalls[columns], work[columns]])
    signed = []
    for table in (stalled, stalled[:0] if beside is None else beside):
        cpu, begin, ns = (table[name].to_numpy(np.int64) for name in columns)
        order, (_, first, last) = once(cpu, begin, ns)
        signed.append((begin[order], (last - first) / (1e9 * nr_cpus)))
    (begin, some), (others_begin, others) = signed
    yield _named("memory_pressure", some, begin, scope="some")
    values = np.concatenate([some, -others])
    yield _named("memory_pressure", values, np.concatenate([begin, others_begin]), scope="full")


def _quantiles(metric: str, time_ns: np.ndarray, values: np.ndarray) -> Iterator[Quantity]:
    """Median, 99th percentile and maximum."""
    levels, place = np.unique(values, return_inverse=True)
    for name, share in (("p50", 0.5), ("p99", 0.99), ("max", 1.0)):
        quantile = {"scope": f"at={name}", "levels": levels, "share": share}
        quantile |= {"better": ""} if name == "p50" else {}
        yield _named(metric, place, time_ns, **quantile)


@dataclass(frozen=True, eq=False)
class States:
    """Free pages, blocks and lists by instant, of snapshots or samples; NaN where unknown.

    Attributes:
        time_ns: int64, shape (instants,), ascending.
        free: pages, shape (instants, zones, orders, migratetypes).
        blocks: pageblocks, shape (instants, zones, migratetypes).
        listed: pages on per-CPU lists, shape (instants, zones, CPUs).
    """

    time_ns: np.ndarray
    free: np.ndarray
    blocks: np.ndarray
    listed: np.ndarray

    @staticmethod
    def of_counts(free_buddies: np.ndarray, blocks: np.ndarray) -> States:
        """Free buddies and pageblocks, shaped as here, of instants that nothing dates."""
        sizes = 1 << np.arange(free_buddies.shape[2], dtype=np.int64)
        return States(
            time_ns=np.arange(len(blocks)),
            free=free_buddies * sizes[None, None, :, None],
            blocks=blocks,
            listed=np.zeros((*blocks.shape[:2], 0), np.int64),
        )

    @staticmethod
    def of_replay(replay: Replay) -> States:
        """A replay's samples, blocks in the size that the recording's have."""
        samples, machine = replay.samples, replay.machine
        blocks = samples.blocks
        if machine.pageblock_order != machine.counted_order:
            blocks = blocks * 2.0 ** (machine.pageblock_order - machine.counted_order)
        states = States.of_counts(samples.free_buddies, blocks)
        return replace(states, time_ns=samples.time_ns, listed=samples.pcp[..., 0])

    @staticmethod
    def of_measured(measured: Measured, machine: Machine) -> States:
        """A recording's snapshots, in the zones of a machine."""
        tables = (measured.free_pages, measured.pageblocks, measured.pcp)
        times = np.unique(np.concatenate([t["time_ns"].to_numpy(np.int64) for t in tables]))
        types = {name: number for number, name in enumerate(machine.migratetypes)}

        zones = pd.MultiIndex.from_tuples([(zone.node, zone.name) for zone in machine.zones])

        def dense(table: pd.DataFrame, value: str, *places: tuple[pd.Series, int]) -> np.ndarray:
            """The table as an array; at an instant that it has, what it does not list is 0."""
            cells = [
                np.searchsorted(times, table["time_ns"].to_numpy(np.int64)),
                zones.get_indexer(pd.MultiIndex.from_frame(table[["node", "zone"]])),
                *(place.fillna(-1).to_numpy(np.int64) for place, _ in places),
            ]
            array = np.full((len(times), len(zones), *(size for _, size in places)), np.nan)
            array[cells[0]] = 0.0
            sizes = np.array(array.shape)[:, None]
            known = ((np.array(cells) >= 0) & (np.array(cells) < sizes)).all(axis=0)
            values = table[value].to_numpy(float, na_value=np.nan)
            np.add.at(array, tuple(cell[known] for cell in cells), values[known])
            return array

        free, blocks, listed = tables
        orders, kinds = machine.max_order + 1, len(types)
        return States(
            time_ns=times,
            free=dense(
                free, "pages", (free["order"], orders), (free["migratetype"].map(types), kinds)
            ),
            blocks=dense(blocks, "blocks", (blocks["migratetype"].map(types), kinds)),
            listed=dense(listed, "count", (listed["cpu"], machine.nr_cpus)),
        )

    def at(self, instants: np.ndarray) -> States:
        """The states at those of the instants that it has."""
        chosen = np.isin(self.time_ns, instants)
        return States(*(part[chosen] for part in vars(self).values()))

    def within(self, window: Window) -> States:
        """The states at instants in a window."""
        return self.at(self.time_ns[(self.time_ns >= window[0]) & (self.time_ns <= window[1])])

    def courses(self, block_order: int, zones: Sequence[int]) -> dict[str, np.ndarray]:
        """Pages of some zones together at each instant, by metric."""
        free = self.free[:, zones].sum(axis=1)
        whole = free[:, block_order:]
        return {
            "free_pages": free.sum(axis=(1, 2)),
            "free_in_whole_blocks": whole.sum(axis=(1, 2)),
            "free_in_whole_blocks_not_highatomic": whole.sum(axis=1)[:, :HIGHATOMIC].sum(axis=1),
            "pcp_count": self.listed[:, zones].sum(axis=(1, 2)),
        }

    def blocks_of(self, migratetype: str) -> np.ndarray:
        """Blocks of a type in all zones at each instant."""
        return self.blocks[:, :, TYPES.index(migratetype)].sum(axis=1)

    def quantities(self, machine: Machine) -> Iterator[Quantity]:
        """Means over the instants by zone, and the reserve's blocks at the end and at most."""
        for index, zone in enumerate(machine.zones):
            if not zone.managed:
                continue
            scope = zone_scope(zone.node, zone.name, machine.nodes)
            for metric, values in self.courses(machine.counted_order, [index]).items():
                known = ~np.isnan(values)
                yield _named(metric, values[known], self.time_ns[known], scope=scope)
            blocks = self.blocks[:, index, HIGHATOMIC].astype(float)
            blocks = blocks[~np.isnan(blocks)]
            yield _named("highatomic_blocks", blocks, scope=f"{scope},at=end")
            most = blocks.max(initial=0.0, keepdims=True)
            yield _named("highatomic_blocks", most, scope=f"{scope},at=most")


def fallback_quantities(fallbacks: pd.DataFrame) -> Iterator[Quantity]:
    """Fallbacks, and by pair of types: whole claims of a block apart from stolen pages (S6)."""
    yield _named("extfrag_events", float(fallbacks["count"].sum()))
    stolen = fallbacks["kind"].isin(["steal"])
    for metric, chosen in (("fallback_claims", ~stolen), ("fallback_steals", stolen)):
        pairs = fallbacks[chosen].groupby(["alloc_migratetype", "fallback_migratetype"])["count"]
        for (wanted, used), count in pairs.sum().items():
            yield _named(metric, float(count), scope=f"{wanted} from {used}")


def counter_quantities(vmstat: pd.DataFrame, edges: np.ndarray) -> Iterator[Quantity]:
    """Huge pages, reclaim, compaction and stalls, from counters under the kernel's names."""
    table = vmstat.pivot_table(index="time_ns", columns="name", values="value", aggfunc="last")
    times = table.index.to_numpy(float)
    added = {
        name: np.diff(np.interp(edges, times, table[name].to_numpy(float)))
        for name in table.columns
    }
    stalls = [name for name in added if name.startswith(ALLOCSTALL)]

    def total(names: Sequence[str]) -> np.ndarray:
        known = [added[name] for name in names if name in added]
        return np.sum(known, axis=0) if known else np.full(len(edges) - 1, np.nan)

    for one in COUNTED:
        yield Quantity(
            metric=one.metric,
            scope=one.scope,
            unit=one.unit,
            better=one.better,
            time_ns=edges[:-1],
            values=total(one.counters or stalls),
            **({"how": "ratio", "per": total(one.share_of)} if one.share_of else {}),
        )


def scoped_quantity(tables: Measured | Replay, metric: str, scope: str) -> Quantity | None:
    """A metric of the error table in any scope, such as "zone=Normal,cpu=0"; "all" adds up all.

    Of snapshots, or of refills and drains; None if no table tells it.
    """
    site, _, what = metric.partition("_")
    if metric in _STATE_TABLES:
        name, column = _STATE_TABLES[metric]
        rows = getattr(tables, name)
        if metric == "highatomic_blocks":
            rows = rows[rows["migratetype"] == "HighAtomic"]
    elif site in ("refill", "drain") and what in ("transactions", "pages"):
        rows = tables.transactions_full
        if rows["time_ns"].isna().all():
            return None
        rows = rows[rows["site"] == site]
    else:
        return None
    for part in scope.split(",") if scope != "all" else ():
        key, _, wanted = part.partition("=")
        key = "migratetype" if key == "type" else key
        if key not in ("zone", "node", "cpu", "migratetype") or key not in rows:
            return None
        rows = rows[rows[key] == (int(wanted) if key in ("node", "cpu") else wanted)]
    if metric in _STATE_TABLES:
        if not len(rows):
            return None
        sums = rows.groupby("time_ns")[column].sum(min_count=1)
        values = sums.to_numpy(float, na_value=np.nan)
        times = sums.index.to_numpy()
        return Quantity(metric=metric, scope=scope, how="mean", time_ns=times, values=values)
    values = rows["pages"].to_numpy(float, na_value=0.0) if what == "pages" else np.ones(len(rows))
    return Quantity(metric=metric, scope=scope, time_ns=rows["time_ns"].to_numpy(), values=values)


def recorded_pressure(recording: Recording) -> dict[str, float]:
    """Memory stall in s by "some" and "full" while events came, as the kernel totals it (T12.11).

    Between the last snapshot before the first event and the first after the last, as far as there
    are such. {} where fewer than two snapshots have it.
    """
    known = [(state.time_ns, state.pressure) for state in recording.snapshots if state.pressure]
    if len(known) < 2:
        return {}
    return {
        name: _while_events_came(recording, [(at, totals[name] / 1e6) for at, totals in known])
        for name in known[0][1]
        if all(name in totals for _, totals in known)
    }


def _while_events_came(recording: Recording, known: Sequence[tuple[int, float]]) -> float:
    """Growth of a total, of which the times and values are given; NaN for fewer than two."""
    if len(known) < 2:
        return float("nan")
    first, last = recording.trace.demand_span_ns
    before = [value for time_ns, value in known if time_ns <= first][-1:] or [known[0][1]]
    after = [value for time_ns, value in known if time_ns >= last][:1] or [known[-1][1]]
    return after[0] - before[0]


def was_recorded(recording: Recording, event: Event) -> bool:
    """True if an event's absence means that it did not happen: the recorder was asked for it."""
    names = [name for name, number in EVENT_NAMES.items() if number == event]
    events = recording.meta.get("perf") or ()
    return recording.trace.count(event) > 0 or any(name in events for name in names)


def recorded_quantities(recording: Recording) -> dict[str, float]:
    """The numbers of `WHOLE_UNITS` as they were measured; NaN where nothing recorded shows one.

    Raises:
        RecordingError: a file of the recording cannot be read.
    """
    measured = measure(recording)
    window = recording.trace.demand_span_ns
    machine = recorded_machine(recording)
    states = States.of_measured(measured, machine)
    times = np.unique(measured.vmstat["time_ns"].to_numpy(np.int64))
    before = times[times <= window[0]].max(initial=np.iinfo(np.int64).min)
    after = times[times >= window[1]].min(initial=np.iinfo(np.int64).max)
    numbers = _whole_quantities(measured, states, machine.pageblock_order, window)
    recorded = recorded_memory_stalls(recording.trace)
    numbers |= _times(recorded, machine.nr_cpus, (window[1] - window[0]) / 1e9)
    there = {*recording.trace.tables, *(recording.meta.get("perf") or ())}
    unseen = [cause for cause in CAUSES if not there.intersection(SPANS[cause])]
    numbers |= dict.fromkeys([f"{cause} time" for cause in unseen], float("nan"))
    totals = recorded_pressure(recording)
    for scope, name in PRESSURE.items():
        if unseen or (scope == "full" and recorded[2] is None):
            numbers[name] = float("nan")
        numbers[name] = totals.get(scope, numbers[name])
    numbers |= _counter_values(counter_changes(measured.vmstat, (before, after)))
    for name, event in (
        ("fallbacks", Event.EXTFRAG),
        ("refills", Event.ZONE_LOCKED),
        ("pages of a refill", Event.ZONE_LOCKED),
        ("drains", Event.PCPU_DRAIN),
        ("pages of a drain", Event.PCPU_DRAIN),
        ("longest drain", Event.PCPU_DRAIN),
    ):
        if not was_recorded(recording, event):
            numbers[name] = float("nan")
    return numbers


def predicted_quantities(recording: Recording, predicted: Replay) -> dict[str, float]:
    """The numbers of `WHOLE_UNITS` as a replay has them, at the recording's snapshots."""
    instants = np.array([snapshot.time_ns for snapshot in recording.dated_snapshots])
    window = recording.trace.demand_span_ns
    states = States.of_replay(predicted)
    order = predicted.machine.counted_order
    return _whole_quantities(predicted, states, order, window, instants)


def _times(lost: MemoryStalls, nr_cpus: int, run_s: float) -> dict[str, float]:
    """Run time, stall time by cause and memory pressure, s."""
    stalls, work, beside = lost
    pressure = pressure_quantities(stalls, work, nr_cpus, beside)
    by_cause = stalls.groupby("cause")["ns"].sum() / 1e9
    times = {f"{cause} time": float(by_cause.get(cause, 0.0)) for cause in CAUSES}
    return {"run time": run_s, **times, **{PRESSURE[one.scope]: one.value for one in pressure}}


def _whole_quantities(
    tables: Measured | Replay,
    states: States,
    block_order: int,
    window: Window,
    instants: np.ndarray | None = None,
) -> dict[str, float]:
    """The numbers of `WHOLE_UNITS`; means are over these instants, None for all.

    Blocks smaller than a huge page are counted as parts of one: kernels with both can be compared.
    """
    if block_order < PMD_ORDER:
        states = replace(states, blocks=states.blocks * 2.0 ** (block_order - PMD_ORDER))
        block_order = PMD_ORDER
    inside = states.within(window)
    inside = inside if instants is None else inside.at(instants)
    courses = inside.courses(block_order, range(states.free.shape[1]))
    holds = {(hold.metric, hold.scope): hold for hold in hold_quantities(tables.transactions_full)}
    sizes = {name: holds[f"{name}_pages", "all"].values for name in ("refill", "drain")}
    return dict.fromkeys(WHOLE_UNITS, float("nan")) | {
        "free pages": _mean(courses["free_pages"]),
        **free_by_type(inside),
        "free pages in whole blocks": _mean(courses["free_in_whole_blocks"]),
        "pages on per-CPU lists": _mean(courses["pcp_count"]),
        **{
            f"{name} blocks added": blocks_added(states, name, window)
            for name in ("HighAtomic", "Unmovable")
        },
        "refills": holds["refill_transactions", "all"].value,
        "drains": holds["drain_transactions", "all"].value,
        **{f"pages of a {name}": _mean(values) for name, values in sizes.items()},
        "longest drain": holds["longest_drain", "all"].value,
        "fallbacks": float(tables.fallbacks["count"].sum()),
        **_counter_values(counter_changes(tables.vmstat, window)),
        **_anon_requests(tables.folios),
        **{
            f"{row['class']} order {row['order']} served": 1.0 - row["failed"] / row["asked"]
            for row in tables.folios[tables.folios["order"] > 0].to_dict("records")
        },
    }


def _anon_requests(folios: pd.DataFrame) -> dict[str, float]:
    """Requests for anonymous memory by order, and those that failed; {} where none are known."""
    if folios.empty:
        return {}
    own = folios[folios["class"] == "anon"].set_index("order")
    names = product(range(PMD_ORDER + 1), ("asked", "failed"))
    return {f"anon order {at} {what}": float(own[what].get(at, 0)) for at, what in names}


def set_by_policy(policy: Policy) -> frozenset[str]:
    """Names of `WHOLE_UNITS` that follow from a policy alone: folios that nobody asks for."""
    mask, largest = policy.huge_anon_orders, policy.page_cache_max_order
    above = range(layout.ORDERS if largest is None else largest + 1, layout.ORDERS)
    off = [at for at in range(1, PMD_ORDER + 1) if mask is not None and not mask >> at & 1]
    names = {f"anon order {at} {what}" for at in off for what in ("asked", "failed", "served")}
    huge = {"THP success", *_HUGE} if PMD_ORDER in off else set()
    return frozenset(names | huge | {f"file order {at} served" for at in above})


def _mean(values: np.ndarray) -> float:
    known = values[~np.isnan(values)]
    return float(known.sum()) / len(known) if len(known) else float("nan")


def free_by_type(states: States) -> dict[str, float]:
    """Mean free pages of each type of `TYPES`, all zones together."""
    by_type = states.free.sum(axis=(1, 2))
    return {f"free {name} pages": _mean(by_type[:, at]) for at, name in enumerate(TYPES)}


def blocks_from(states: States, migratetype: str, window: Window) -> pd.Series:
    """Blocks of a type by time in ns, from the last instant before the window on."""
    blocks = pd.Series(states.blocks_of(migratetype), states.time_ns, dtype=float).dropna()
    before = blocks.index[blocks.index <= window[0]]
    return blocks.loc[before[-1] if len(before) else window[0] : window[1]]


def blocks_added(states: States, migratetype: str, window: Window) -> float:
    """Blocks of a type at the end of a window less those at its start."""
    blocks = blocks_from(states, migratetype, window)
    return float(blocks.iloc[-1] - blocks.iloc[0]) if len(blocks) else float("nan")


def _counter_values(changes: Mapping[str, float]) -> dict[str, float]:
    stalls = [value for name, value in changes.items() if name.startswith(ALLOCSTALL)]
    return {
        "THP success": thp_success(changes),
        **{name: changes.get(name, np.nan) for name in COUNTERS},
        ALLOCSTALL: float(np.sum(stalls)) if stalls else np.nan,
    }


def counter_changes(vmstat: pd.DataFrame, window: Window) -> dict[str, float]:
    """Change of each counter between the first and the last sample in the window."""
    inside = vmstat[vmstat["time_ns"].between(*window)]
    values = inside.groupby("name")["value"].agg(["first", "last"]).astype(float)
    return (values["last"] - values["first"]).to_dict()


def thp_success(changes: Mapping[str, float]) -> float:
    """Share of huge-page faults that got one, from changes of counters; NaN where unknown."""
    served = changes.get("thp_fault_alloc", np.nan)
    tried = served + changes.get("thp_fault_fallback", np.nan)
    return float(served / tried) if tried else float("nan")
