"""What numbers are made from: values by time, and tables that a recording and a replay share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Literal

import numpy as np
import pandas as pd

from pagealloc_model.allocator import layout as at
from pagealloc_model.allocator.sites import NAMES
from pagealloc_model.base.memo import Memo
from pagealloc_model.measured.measured import Measured
from pagealloc_model.numbers.statistics import HALF, SHARE, quantile_of_counts, slope
from pagealloc_model.predicted.replay import Replay
from pagealloc_model.predicted.tables import named_sites
from pagealloc_model.recording.machine import NUMBERED_EVERYWHERE, Machine
from pagealloc_model.recording.recording import Recording
from pagealloc_model.recording.trace.columns import EVENT_NAMES, Event

Direction = Literal["lower", "higher", ""]
How = Literal["sum", "mean", "ratio", "most", "quantile", "count", "last"]
Window = tuple[int, int]
"""Nanoseconds on the recording's clock, both ends included."""

TYPES = NUMBERED_EVERYWHERE
HIGHATOMIC = TYPES.index("HighAtomic")
WINDOWS = 10
"""Windows of equal length that a replay is cut into: so long that one says little of the next."""
FIRST_PART = 0.25
"""Share of the recorded time from which a null model takes what goes on."""
NOTHING_CHANGES = "nothing changes"
GOES_ON = "as in the first quarter"
ALL_SUCCEED = "all succeed"


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
    def null_model(self) -> str:
        """The null model of such a number, which knows no allocator.

        States stay as they are at the start. What is counted, and how large it is, goes on as in
        the first part of the recording. Of requests all succeed.
        """
        if self.how in ("mean", "last"):
            return NOTHING_CHANGES
        return ALL_SUCCEED if self.unit == SHARE else GOES_ON

    @property
    def going_on(self) -> float:
        """What its null model makes of it, of a number of the first part as it was measured."""
        if self.null_model == ALL_SUCCEED:
            return 1.0
        none = 0.0 if np.isnan(self.value) else self.value
        return none / FIRST_PART if self.how in ("sum", "count") else none

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


def windows_of(replay: Replay) -> np.ndarray:
    """Edges of a replay's windows, float, shape (WINDOWS + 1,)."""
    return np.linspace(replay.edges[0], replay.edges[-1], WINDOWS + 1)


def unknown(like: Quantity) -> Quantity:
    """A quantity like another, of no known value."""
    return replace(
        like,
        how="last",
        time_ns=like.time_ns[:0],
        values=np.array([np.nan]),
        per=np.zeros(0),
        levels=np.zeros(0),
        share=0.0,
    )


@dataclass(frozen=True, eq=False)
class States:
    """Free pages, blocks and lists by instant, of snapshots or samples; NaN where unknown.

    Attributes:
        time_ns: int64, shape (instants,), ascending.
        free: pages, shape (instants, zones, orders, migratetypes).
        blocks: pageblocks, shape (instants, zones, migratetypes).
        listed: pages on per-CPU lists, shape (instants, zones, CPUs).
        boosts: watermark boosts in pages, shape (instants, zones).
    """

    time_ns: np.ndarray
    free: np.ndarray
    blocks: np.ndarray
    listed: np.ndarray
    boosts: np.ndarray

    @staticmethod
    def of(tables: Measured | Replay, machine: Machine) -> States:
        """A replay's samples, or a recording's snapshots in the zones of a machine."""
        if isinstance(tables, Replay):
            return States.of_replay(tables)
        return States.of_measured(tables, machine)

    @staticmethod
    def of_replay(replay: Replay) -> States:
        """A replay's samples, blocks in the size that the recording's have."""
        samples, machine = replay.samples, replay.machine
        blocks = samples.blocks
        if machine.pageblock_order != machine.counted_order:
            blocks = blocks * 2.0 ** (machine.pageblock_order - machine.counted_order)
        sizes = 1 << np.arange(machine.max_order + 1, dtype=np.int64)
        return States(
            time_ns=samples.time_ns,
            free=samples.free_buddies[:, :, : len(sizes)] * sizes[None, None, :, None],
            blocks=blocks,
            listed=samples.pcp[..., 0],
            boosts=samples.boosts,
        )

    @staticmethod
    def of_measured(measured: Measured, machine: Machine) -> States:
        """A recording's snapshots, in the zones of a machine."""
        tables = (measured.free_pages, measured.pageblocks, measured.pcp, measured.boosts)
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

        free, blocks, listed, boosts = tables
        orders, kinds = machine.max_order + 1, len(types)
        return States(
            time_ns=times,
            free=dense(
                free, "pages", (free["order"], orders), (free["migratetype"].map(types), kinds)
            ),
            blocks=dense(blocks, "blocks", (blocks["migratetype"].map(types), kinds)),
            listed=dense(listed, "count", (listed["cpu"], machine.nr_cpus)),
            boosts=dense(boosts, "pages"),
        )

    def at(self, instants: np.ndarray) -> States:
        """The states at those of the instants that it has."""
        chosen = np.isin(self.time_ns, instants)
        return States(*(part[chosen] for part in vars(self).values()))

    def within(self, window: Window) -> States:
        """The states at instants in a window."""
        return self.at(self.time_ns[(self.time_ns >= window[0]) & (self.time_ns <= window[1])])


@dataclass(frozen=True, kw_only=True, eq=False)
class Zones:
    """Some zones together at each instant.

    Attributes:
        states: of all zones.
        zones: numbers of those that are meant; None for all.
        block_order: of a pageblock.
        types: names of migratetypes.
        run: the states of a whole run and its window, where changes over it are asked for.
    """

    states: States
    zones: Sequence[int] | None = None
    block_order: int
    types: Sequence[str] = TYPES
    run: tuple[States, Window] | None = None

    def _together(self, part: np.ndarray) -> np.ndarray:
        chosen = part if self.zones is None else part[:, self.zones]
        return chosen.sum(axis=1)

    @cached_property
    def free(self) -> np.ndarray:
        """Free pages, shape (instants, orders, migratetypes)."""
        return self._together(self.states.free)

    @cached_property
    def by_order(self) -> np.ndarray:
        """Free pages, shape (instants, orders)."""
        return self.free.sum(axis=2)

    @cached_property
    def by_type(self) -> np.ndarray:
        """Free pages, shape (instants, migratetypes)."""
        return self.free.sum(axis=1)

    @cached_property
    def whole(self) -> np.ndarray:
        """Free pages in buddies of a pageblock or more, shape (instants, migratetypes)."""
        return self.free[:, self.block_order :].sum(axis=1)

    @cached_property
    def blocks(self) -> np.ndarray:
        """Pageblocks, shape (instants, migratetypes)."""
        return self._together(self.states.blocks)

    @cached_property
    def by_cpu(self) -> np.ndarray:
        """Pages on per-CPU lists, shape (instants, CPUs)."""
        return self._together(self.states.listed)

    @cached_property
    def listed(self) -> np.ndarray:
        """Pages on per-CPU lists, shape (instants,)."""
        return self.by_cpu.sum(axis=1)

    @cached_property
    def boosts(self) -> np.ndarray:
        """Watermark boosts in pages, shape (instants,)."""
        return self._together(self.states.boosts)

    def added(self, migratetype: str) -> float:
        """Blocks of a type at the end of the run less those at its start."""
        states, window = self.run
        return blocks_added(states, migratetype, window)


def blocks_from(states: States, migratetype: str, window: Window) -> pd.Series:
    """Blocks of a type by time in ns, from the last instant before the window on."""
    of_type = states.blocks[:, :, TYPES.index(migratetype)].sum(axis=1)
    blocks = pd.Series(of_type, states.time_ns, dtype=float).dropna()
    before = blocks.index[blocks.index <= window[0]]
    return blocks.loc[before[-1] if len(before) else window[0] : window[1]]


def blocks_added(states: States, migratetype: str, window: Window) -> float:
    """Blocks of a type at the end of a window less those at its start."""
    blocks = blocks_from(states, migratetype, window)
    return float(blocks.iloc[-1] - blocks.iloc[0]) if len(blocks) else float("nan")


@dataclass(frozen=True, kw_only=True, eq=False)
class Holds(Memo):
    """Holds of zone->lock.

    Attributes:
        time_ns: int64, shape (holds,).
        site: index into the names of sites, -1 for others.
        pages: shape (holds,), NaN where unknown.
        work: units of work by name, as far as the log of a replay has them.
    """

    time_ns: np.ndarray
    site: np.ndarray
    pages: np.ndarray
    work: Mapping[str, np.ndarray] = field(default_factory=dict)

    @staticmethod
    def of_table(transactions: pd.DataFrame) -> Holds:
        """Those of a table that recordings and replays share."""
        return Holds(
            time_ns=transactions["time_ns"].to_numpy(),
            site=pd.Index(_SITE_NAMES).get_indexer(transactions["site"]),
            pages=transactions["pages"].to_numpy(float, na_value=np.nan),
        )

    @staticmethod
    def of_log(log: np.ndarray) -> Holds:
        """Those of a replay's log, `layout.LOG` records, with their work."""
        log = log[log["kind"] < at.SITES]
        return Holds(
            time_ns=log["time_ns"],
            site=_PLACES[named_sites(log)],
            pages=log["pages"],
            work={name: log[name] for name in at.LOG_WORK},
        )

    def at(self, *names: str) -> np.ndarray:
        """Mask of the holds at some sites."""
        return np.isin(self.site, [_SITE_NAMES.index(name) for name in names])

    @cached_property
    def known(self) -> np.ndarray:
        """Mask of those whose pages are known."""
        return ~np.isnan(self.pages)


_SITE_NAMES = list(dict.fromkeys(NAMES))
_PLACES = np.array([_SITE_NAMES.index(name) for name in NAMES])
"""Index of `_SITE_NAMES` by code."""


def counter_changes(vmstat: pd.DataFrame, window: Window) -> dict[str, float]:
    """Change of each counter between the first and the last sample in the window."""
    inside = vmstat[vmstat["time_ns"].between(*window)]
    values = inside.groupby("name")["value"].agg(["first", "last"]).astype(float)
    return (values["last"] - values["first"]).to_dict()


def was_recorded(recording: Recording, event: Event) -> bool:
    """True if an event's absence means that it did not happen: the recorder was asked for it."""
    names = [name for name, number in EVENT_NAMES.items() if number == event]
    events = recording.meta.get("perf") or ()
    return recording.trace.count(event) > 0 or any(name in events for name in names)
