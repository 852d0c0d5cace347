"""Every number that anything compares: one row each, with the function that makes it.

A row says what a number is called in comparisons and error tables, in verdicts, between runs of
experiments, in sweeps, in mmtests' tables and in sentences; its unit, which direction is better,
and how its values make one number. `make` takes a table that recordings and replays share, so that
measured and predicted values are made alike. Rows stand in sections by that table; errors,
comparisons, verdicts, sweeps, experiments, pages and mails select from them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import chain
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from pagealloc_model.allocator import layout as at
from pagealloc_model.allocator.pressure_layout import COUNTER_NAMES
from pagealloc_model.allocator.sites import BY_NAME, EMPTY_SITES
from pagealloc_model.base.text import zone_scope
from pagealloc_model.measured.folios import CLASS_NAMES, folio_shares
from pagealloc_model.measured.measured import Measured
from pagealloc_model.measured.memory_stalls import CAUSES
from pagealloc_model.numbers.statistics import SHARE
from pagealloc_model.numbers.values import HIGHATOMIC as RESERVE
from pagealloc_model.numbers.values import (
    TYPES,
    Direction,
    Holds,
    How,
    Quantity,
    States,
    Zones,
    unknown,
)
from pagealloc_model.policy.lock_costs import LockCosts
from pagealloc_model.predicted.lock_times import LIST_PARTS, LockTimes
from pagealloc_model.predicted.replay import Replay
from pagealloc_model.predicted.tables import FALLBACK_KINDS, LOCK_COLUMNS
from pagealloc_model.recording.machine import PMD_ORDER, Machine
from pagealloc_model.recording.trace.columns import Event

_NONE = np.zeros(0)


class Values(NamedTuple):
    """What one number is made of; see `Quantity`."""

    values: np.ndarray | float
    time_ns: np.ndarray = _NONE.astype(np.int64)
    per: np.ndarray = _NONE
    levels: np.ndarray = _NONE


Made = Values | None | Iterable[tuple[str, Values]]
"""None where the table does not tell it; of a number by parts, their scopes and values."""


@dataclass(frozen=True)
class Number:
    """One number that is compared; "" where nothing compares it under such a name.

    Attributes:
        name: in comparisons and error tables.
        unit: of the value.
        better: which direction the author of any patch would call better, "" if there is none: an
            amount moved, a place or a kind that changes is neither.
        how: from values to the number, see `Quantity`; its null model follows from it.
        make: from a table of its section to `Made`; None where it is made in another way.
        scope: of what part of the machine; "" where the zone or `make` says it.
        share: of a quantile, 0 to 1.
        words: in a sentence on a comparison; those of a counter say the scope, too.
        verdict: place and words in a verdict, which scores it once for the whole machine: 1 to 10
            are of states, later ones of totals. Of shares that is what `make` says of all zones
            that changed, together; other values of zones are added, and the error is their mean.
        tabled: True for a state that the error table has in each zone.
        run: where whole runs are compared, `run_unit` its unit there if another.
        sweep: column of a sweep, all zones together; words in braces stand for parts.
        meaning: of that column.
        event: what has to be recorded for a measured value; None for nothing.
        mmtests: what mmtests calls it.
    """

    name: str = ""
    unit: str = ""
    better: Direction = ""
    how: How = "sum"
    make: Callable[[Any], Made] | None = None
    scope: str = "all"
    share: float = 0.0
    words: str = ""
    verdict: tuple[int, str] = (0, "")
    tabled: bool = False
    run: str = ""
    run_unit: str = ""
    sweep: str = ""
    meaning: str = ""
    mmtests: str = ""
    event: Event | None = None

    @property
    def title(self) -> str:
        """Column of a sweep with its unit, as axes and headings show it."""
        return f"{self.sweep} ({self.unit})" if self.unit else self.sweep

    @property
    def in_words(self) -> str:
        """What it is, with its unit, for the title of a figure."""
        words = re.sub(r" \([ST][\d.]+\)", "", self.words or self.meaning)
        return f"{words} ({self.unit})" if self.unit and self.unit not in words else words

    @cached_property
    def columns(self) -> re.Pattern[str]:
        """Columns of a sweep that are this number."""
        return re.compile(re.sub(r"\\\{(\w+)\\\}", r"(?P<\1>.+)", re.escape(self.sweep)))

    def quantity(self, values: Values | None, scope: str) -> Quantity:
        """The number with values; unknown without."""
        made = values or Values(_NONE)
        number = Quantity(
            metric=self.name,
            scope=scope,
            unit=self.unit,
            better=self.better,
            how=self.how,
            time_ns=made.time_ns,
            values=np.atleast_1d(made.values),
            per=made.per,
            levels=made.levels,
            share=self.share,
        )
        return unknown(number) if values is None else number

    def quantities(self, table: object, zone: str = "") -> Iterator[Quantity]:
        """The number as a table gives it, or each of its parts; in a zone if one is named."""
        made = self.make(table) if self.make else None
        for part, values in [("", made)] if made is None or isinstance(made, Values) else made:
            yield self.quantity(values, ",".join(filter(None, (zone, part or self.scope))))


LOWER, HIGHER = "lower", "higher"


def _quantiles(
    name: str, unit: str, make: Callable[[Any], Values], far: Direction = ""
) -> tuple[Number, ...]:
    """Median, 99th percentile and maximum; `far`: which direction is better of the latter two."""
    row = Number(name, unit, far, "quantile", make)
    p50 = replace(row, scope="at=p50", share=0.5, better="")
    return p50, replace(row, scope="at=p99", share=0.99), replace(row, scope="at=max", share=1.0)


# Holds of zone->lock: of `Holds`.


def _pages_by_hold(holds: Holds) -> Values:
    moved = ~holds.at(*EMPTY_SITES)
    return Values(np.where(holds.known, holds.pages, 0.0), holds.time_ns, per=moved.astype(float))


def _holds_at(site: str, holds: Holds) -> Values:
    time_ns = holds.time_ns[holds.at(site)]
    return Values(np.ones(len(time_ns)), time_ns)


def _pages_at(site: str, holds: Holds) -> Values:
    sized = holds.at(site) & holds.known
    return Values(holds.pages[sized], holds.time_ns[sized])


def _sizes_at(site: str, holds: Holds) -> Values:
    pages, time_ns, *_ = _pages_at(site, holds)
    levels, place = holds.remembered(site, lambda: np.unique(pages, return_inverse=True))
    return Values(place, time_ns, levels=levels)


def _held_ns(holds: Holds) -> Values:
    return Values(LockCosts().hold_ns(holds.work), holds.time_ns)


def _at_site(
    site: str,
    *,
    words: str = "",
    verdicts: tuple[tuple[int, str], ...] = ((0, ""), (0, "")),
    compared: bool = True,
) -> tuple[Number, ...]:
    """Holds at a site, and the pages that they moved; whole runs have those that a verdict has."""
    run = {"run": f"{site}s", "run_unit": "holds"} if verdicts[0][0] else {}
    # fmt: off
    holds = Number(f"{site}_transactions" * compared, "", LOWER, "sum", partial(_holds_at, site),
                   words=words, verdict=verdicts[0], event=BY_NAME[site].event, **run,
                   sweep=f"{site}_acquisitions", meaning=f"acquisitions at site {site} (S11.1)")
    pages = Number(f"{site}_pages" * compared, "pages", "", "sum", partial(_pages_at, site),
                   verdict=verdicts[1], event=BY_NAME[site].event,
                   sweep=f"{site}_pages", meaning=f"pages at site {site} (S11.1)")
    # fmt: on
    return (holds,) if site in EMPTY_SITES else (holds, pages)


# fmt: off
_ALL_HOLDS = (
    Number("zone_lock_acquisitions", "", LOWER, "sum",
           lambda holds: Values(np.ones(len(holds.site)), holds.time_ns),
           words="zone->lock acquisitions", sweep="zone_lock_acquisitions",
           meaning="holds of zone->lock (S11.1), attempts that found nothing included"),
    Number("pages_per_acquisition", "pages", "", "ratio", _pages_by_hold,
           words="pages per zone->lock acquisition"),
    Number("", "ns", LOWER, "sum", _held_ns, sweep="zone_lock_hold_ns",
           meaning="time zone->lock is held in all, by assumed costs (S11.2)"),
    Number("", "ns", LOWER, "most", _held_ns, sweep="zone_lock_longest_hold_ns",
           meaning="the longest hold, by assumed costs"),
    *(Number("", "", "", "sum", lambda holds, unit=unit: Values(holds.work[unit]),
             sweep=f"zone_lock_{unit}", meaning=f"{unit} under zone->lock (S11.1)")
      for unit in at.LOG_WORK),
)
_AT_SITES = {
    "refill": _at_site("refill", verdicts=((11, "refills"), (13, "pages refilled"))),
    "drain": _at_site("drain", verdicts=((12, "drains"), (14, "pages drained"))),
    "buddy_alloc": _at_site("buddy_alloc", words="allocations at the buddy"),
    "direct_free": _at_site("direct_free", words="frees to the buddy"),
    **{site: _at_site(site) for site in EMPTY_SITES},
    **{site: _at_site(site, compared=False) for site in ("reserve", "unreserve")},
}
MOVED = (*_AT_SITES["refill"], *_AT_SITES["drain"])
"""What moves pages between per-CPU lists and the buddy, and how many."""
_SIZES = (
    *(Number("", "pages", "", "mean", partial(_pages_at, site), run=f"pages of a {site}",
             event=BY_NAME[site].event)
      for site in ("refill", "drain")),
    Number("longest_drain", "pages", LOWER, "most", partial(_pages_at, "drain"),
           run="longest drain", event=Event.PCPU_DRAIN, sweep="longest_drain_pages",
           meaning="pages of the longest drain of a per-CPU list"),
    *_quantiles("pages_per_refill", "pages", partial(_sizes_at, "refill")),
    *_quantiles("pages_per_drain", "pages", partial(_sizes_at, "drain")),
)
HOLDS = (*_ALL_HOLDS, *chain(*_AT_SITES.values()), *_SIZES)
_WITH_EMPTY = sorted(_AT_SITES, key=lambda site: [*_AT_SITES].index(site.removeprefix("empty_")))
SWEPT_HOLDS = (*_ALL_HOLDS, *_SIZES, *chain(*(_AT_SITES[site] for site in _WITH_EMPTY)))
"""In the order of a sweep's columns: empty attempts behind the others at their site."""
# fmt: on


# Free memory, blocks and lists at instants: of `Zones`.


def dated(
    make: Callable[[Zones], np.ndarray], share_of: Callable[[Zones], np.ndarray] | None = None
) -> Callable[[Zones], Values]:
    """Values at the instants at which they are known; or shares of other ones, 0 of none."""

    def made(zones: Zones) -> Values:
        values = make(zones)
        if share_of is not None:
            values = values / np.maximum(share_of(zones), 1)
        known = ~np.isnan(values)
        return Values(values[known], zones.states.time_ns[known])

    return made


def _blocks(migratetype: str) -> Callable[[Zones], Values]:
    return dated(lambda zones: zones.blocks[:, TYPES.index(migratetype)].astype(float))


def _most_blocks(zones: Zones) -> Values:
    blocks = _blocks("HighAtomic")(zones).values
    return Values(blocks.max() if len(blocks) else np.nan)


def _free(zones: Zones) -> np.ndarray:
    return zones.free.sum(axis=(1, 2))


def _below(order: int | None, zones: Zones) -> np.ndarray:
    return zones.by_order[:, : zones.block_order if order is None else order].sum(axis=1)


def _free_by_order(zones: Zones) -> Iterator[tuple[str, Values]]:
    for order in range(zones.by_order.shape[1]):
        yield f"order={order}", Values(zones.by_order[:, order])


def _order_shares(zones: Zones) -> Values:
    """Share of each order in the free pages, and of "none is free", (instants, orders + 1).

    So the distance is 1 at an instant at which one side alone has nothing free.
    """
    known = ~np.isnan(zones.by_order).any(axis=1)
    free = zones.by_order[known].astype(float)
    total = free.sum(axis=1, keepdims=True)
    shares = np.hstack([free / np.maximum(total, 1), total == 0])
    return Values(shares, zones.states.time_ns[known])


def _listed_by_cpu(zones: Zones) -> Iterator[tuple[str, Values]]:
    for cpu in range(zones.by_cpu.shape[1]):
        yield f"cpu={cpu}", dated(lambda zones, cpu=cpu: zones.by_cpu[:, cpu])(zones)


def _blocks_by_type(zones: Zones) -> Iterator[tuple[str, Values]]:
    for name in sorted(zones.types):
        place = zones.types.index(name)
        blocks = dated(lambda zones, place=place: zones.blocks[:, place].astype(float))
        yield f"type={name}", blocks(zones)


_ABOVE_COSTLY = 4
"""First order above mainline's PAGE_ALLOC_COSTLY_ORDER, whatever the policy says."""
# fmt: off
STATES = (
    Number("free_pages", "pages", "", "mean", dated(_free), scope="", tabled=True,
           verdict=(1, "free pages"), run="free pages", sweep="free_pages",
           meaning="free in the buddy, mean over time"),
    Number("", "pages", "", "last", dated(_free), sweep="free_pages_end",
           meaning="the same at the end"),
    *(Number("", "pages", "", "mean", dated(lambda zones, place=place: zones.by_type[:, place]),
             run=f"free {name} pages")
      for place, name in enumerate(TYPES)),
    Number("free_in_whole_blocks", "pages", HIGHER, "mean",
           dated(lambda zones: zones.whole.sum(axis=1)), scope="",
           words="free pages in whole blocks", run="free pages in whole blocks",
           sweep="free_in_whole_blocks",
           meaning="free in buddies of a pageblock or more, mean over time"),
    Number("free_in_whole_blocks_not_highatomic", "pages", HIGHER, "mean",
           dated(lambda zones: zones.whole[:, :RESERVE].sum(axis=1)), scope="",
           words="free pages in whole blocks, not HighAtomic",
           sweep="free_in_whole_blocks_not_highatomic",
           meaning="the same without the highatomic reserve, so of use to huge pages"),
    Number("", SHARE, LOWER, "mean", dated(partial(_below, None), share_of=_free),
           sweep="unusable_index_pageblock",
           meaning="share of free memory in buddies below a pageblock, mean over time"),
    Number("", SHARE, LOWER, "mean", dated(partial(_below, _ABOVE_COSTLY), share_of=_free),
           sweep="unusable_index_costly",
           meaning="share of free memory in buddies of order 3 or below, mean over time"),
    Number("pcp_count", "pages", "", "mean", dated(lambda zones: zones.listed), scope="",
           words="pages on per-CPU lists", verdict=(2, "pages on per-CPU lists"),
           run="pages on per-CPU lists"),
    Number("highatomic_blocks", "blocks", LOWER, "last", _blocks("HighAtomic"), scope="at=end",
           words="HighAtomic pageblocks", verdict=(3, "reserved blocks"),
           sweep="highatomic_blocks_end",
           meaning="pageblocks of the highatomic reserve at the end (S7)"),
    Number("highatomic_blocks", "blocks", LOWER, "last", _most_blocks, scope="at=most",
           sweep="highatomic_blocks_most", meaning="the most there ever were"),
    Number("", "pages", "", "last", dated(lambda zones: zones.by_type[:, RESERVE]),
           sweep="highatomic_free_pages_end", meaning="free pages in the reserve at the end"),
    *(Number("", "blocks", "", "last", _blocks(name), sweep=f"{name.lower()}_blocks_end",
             meaning=f"{name} pageblocks at the end")
      for name in ("Unmovable", "Reclaimable")),
    Number("", "pages", "", "mean", _free_by_order, sweep="free_pages_order_{order}",
           meaning="free in buddies of order {order}, mean over time"),
    *(Number("", "blocks", make=lambda zones, name=name: Values(zones.added(name)),
             run=f"{name} blocks added")
      for name in ("HighAtomic", "Unmovable")),
)
FREE_AND_LISTED = Number("free_and_listed_pages", "pages", "", "mean",
                         dated(lambda zones: _free(zones) + zones.listed))
_TABLED_ALONE = (
    Number("watermark_boost", "pages", "", "mean", dated(lambda zones: zones.boosts), scope="",
           verdict=(4, "watermark boosts")),
    Number("order_distribution_tv", "total variation", LOWER, "mean", _order_shares, scope=""),
    Number("pcp_count", "pages", "", "mean", _listed_by_cpu),
    Number("pageblocks", "blocks", "", "last", _blocks_by_type),
)
TABLED = (*(row for row in STATES if row.tabled), *_TABLED_ALONE)
"""What error tables have of each zone; the latter rows are in no comparison."""
# fmt: on
ADDED = "HighAtomic blocks added"


# pcp->lock, and times at zone->lock: of `Windowed`.


@dataclass(frozen=True)
class Windowed:
    """A replay and the edges of its windows, float, shape (windows + 1,)."""

    replay: Replay
    edges: np.ndarray

    @cached_property
    def hold_ns(self) -> Values:
        """Times of holds."""
        holds = self.replay.lock_times().acquisitions
        held = holds["hold_ns"].to_numpy(float)
        # Three digits are more than the costs have, and keep the number of levels small.
        digits = 10.0 ** np.maximum(np.floor(np.log10(np.maximum(held, 1.0))) - 2, 0)
        levels, place = np.unique(np.round(held / digits) * digits, return_inverse=True)
        return Values(place, holds["start_ns"].to_numpy(), levels=levels)


def _list_use(column: str, windowed: Windowed) -> Values | None:
    replay, edges = windowed.replay, windowed.edges
    totals = replay.list_use.groupby("time_ns")[column].sum(min_count=1)
    if replay.kernel or pd.isna(totals.iloc[-1]):  # a kernel build does not count it
        return None
    parts = np.diff(np.interp(edges, totals.index, totals.to_numpy(float)))
    # What came before the replayed window is in the total, too.
    parts[0] += float(totals.iloc[-1]) - parts.sum()
    return Values(parts, edges[:-1])


# fmt: off
LISTS = (
    Number("pcp_lock_acquisitions", "", LOWER, "sum", partial(_list_use, "lock_acquisitions"),
           words="pcp->lock acquisitions"),
    Number("pcp_lock_hand_overs", "", LOWER, "sum", partial(_list_use, "lock_hand_overs")),
    Number("remote_frees", "", "", "sum", partial(_list_use, "remote_frees")),
)
# fmt: on
HOLD_TIMES = _quantiles("hold_time", "ns", lambda windowed: windowed.hold_ns, LOWER)


# Holds and waits at both locks, in time and by caller: of `LockTimes`.


def _by_caller(
    rows_of: Callable[[LockTimes], pd.DataFrame], column: str, scale: float = 1.0
) -> Callable[[LockTimes], Made]:
    """By site and cause."""

    def made(times: LockTimes) -> Iterator[tuple[str, Values]]:
        for row in rows_of(times).itertuples():
            yield f"{row.site} {row.cause}".strip(), Values(getattr(row, column) / scale)

    return made


def _longest_waits(times: LockTimes) -> Iterator[tuple[str, Values]]:
    """By caller, and of all."""
    yield from _by_caller(attrgetter("by_site"), "max_wait_ns", 1e3)(times)
    yield "all", Values(times.longest_starvation_ns / 1e3)


def _p99(waits_ns: pd.Series) -> float:
    """Of those that waited; 0 if nobody did."""
    waited = waits_ns[waits_ns > 0]
    return float(waited.quantile(0.99)) if len(waited) else 0.0


def _list_waits(number: Callable[[pd.Series], float], times: LockTimes) -> Made:
    """Of all waits at pcp->lock, and of vmstat's worker, full drains and frees on their own."""
    waits = times.list_waits
    for part in ("all", *dict.fromkeys(LIST_PARTS.values())):
        own = waits["wait_ns"] if part == "all" else waits.loc[waits["part"] == part, "wait_ns"]
        if part == "all" or len(own):
            yield part, Values(float(number(own)))


def _trylocks(times: LockTimes) -> Iterator[tuple[str, Values]]:
    failed = times.trylocks[["frees", "allocations"]].sum()
    for part, count in {"all": failed.sum(), **failed}.items():
        yield str(part), Values(float(count))


def _lock_held(times: LockTimes) -> Iterator[tuple[str, Values]]:
    for zone, share in times.utilisation.items():
        yield str(zone), Values(100 * float(share))


# fmt: off
LOCK_TIMES = (
    Number("longest hold", "pages", LOWER, "count", _by_caller(LockTimes.longest_holds, "pages")),
    Number("longest hold", "us", LOWER, "count",
           _by_caller(LockTimes.longest_holds, "hold_ns", 1e3)),
    Number("acquisitions", "", LOWER, "count", _by_caller(attrgetter("by_site"), "acquisitions")),
    Number("holds of more than 1000 pages", "", LOWER, "count",
           lambda times: Values((times.acquisitions["pages"] > 1000).sum())),
    Number("contended", "", LOWER, "count",
           lambda times: Values((times.acquisitions["ahead"] > 0).sum())),
    Number("waits", "", LOWER, "count",
           lambda times: Values((times.acquisitions["wait_ns"] > 0).sum())),
    Number("time waiting", "ms", LOWER, "count",
           lambda times: Values(times.acquisitions["wait_ns"].sum() / 1e6),
           words="zone->lock: waits"),
    Number("p99 of waits", "us", LOWER, "count",
           lambda times: Values(_p99(times.acquisitions["wait_ns"]) / 1e3)),
    Number("longest wait", "us", LOWER, "count", _longest_waits, words="zone->lock: longest"),
    Number("waits at pcp->lock", "", LOWER, "count", partial(_list_waits, len)),
    Number("time waiting at pcp->lock", "ms", LOWER, "count",
           partial(_list_waits, lambda waits: waits.sum() / 1e6), words="pcp->lock: waits"),
    Number("p99 of waits at pcp->lock", "us", LOWER, "count",
           partial(_list_waits, lambda waits: _p99(waits) / 1e3)),
    Number("longest wait at pcp->lock", "us", LOWER, "count",
           partial(_list_waits, lambda waits: max(waits, default=0) / 1e3),
           words="pcp->lock: longest"),
    Number("trylocks failed", "", LOWER, "count", _trylocks, words="pcp->lock: failed tries"),
    Number("longest spell without rescheduling", "us", LOWER, "count",
           lambda times: Values(max(times.spells()["ns"], default=0) / 1e3),
           words="longest spell"),
    Number("left by drains cut short", "pages", "", "count",
           lambda times: Values(float(times.trylocks["pages_left"].sum()))),
    Number("lock held", "% of time", LOWER, "count", _lock_held),
)
# fmt: on


# Fallbacks (S6.6): of the table `fallbacks`; columns of sweeps: of counts by kind.


def _fallbacks_by_pair(
    stolen: bool, table: pd.DataFrame, movable: bool | None = None
) -> Iterator[tuple[str, Values]]:
    """By pair of types: whole claims of a block apart from stolen pages (S6); of some requests."""
    chosen = table[(table["kind"] == "steal") == stolen]
    if movable is not None:
        chosen = chosen[(chosen["alloc_migratetype"] == "Movable") == movable]
    pairs = chosen.groupby(["alloc_migratetype", "fallback_migratetype"])["count"]
    for (asked, used), count in pairs.sum().items():
        yield f"{asked} from {used}", Values(float(count))


# fmt: off
FALLBACKS = (
    Number("extfrag_events", "events", LOWER, "count",
           lambda table: Values(float(table["count"].sum())),
           words="fallbacks", verdict=(15, "fallbacks"), run="fallbacks", event=Event.EXTFRAG),
    Number("fallback_claims", "events", "", "count", partial(_fallbacks_by_pair, False)),
    Number("fallback_steals", "events", LOWER, "count",
           partial(_fallbacks_by_pair, True, movable=False)),
    # what moves can leave another type's block again
    Number("fallback_steals", "events", "", "count",
           partial(_fallbacks_by_pair, True, movable=True), scope="Movable"),
)
FALLBACKS_BY_KIND = (
    Number("", "", LOWER, make=lambda kinds: Values(kinds.sum()),
           sweep="fallbacks", meaning="requests served by another type (S6)"),
    *(Number("", "", LOWER, make=lambda kinds, kind=kind: Values(kinds[kind]),
             sweep=f"fallbacks_{name}", meaning=f"of kind {name} (S6.6)")
      for kind, name in FALLBACK_KINDS.items()),
)
# fmt: on


# Counters of vmstat: of what each grew by in each window.


class Growth(NamedTuple):
    """Growth of counters by name in each window, and when the windows begin."""

    time_ns: np.ndarray
    by_name: Mapping[str, np.ndarray]

    @staticmethod
    def between(vmstat: pd.DataFrame, edges: np.ndarray) -> Growth:
        """Growth between edges of windows, of samples of counters under the kernel's names."""
        table = vmstat.pivot_table(index="time_ns", columns="name", values="value", aggfunc="last")
        times = table.index.to_numpy(float)
        by_name = {
            name: np.diff(np.interp(edges, times, table[name].to_numpy(float)))
            for name in table.columns
        }
        return Growth(edges[:-1], by_name)

    def of(self, *names: str) -> np.ndarray:
        """Growth of some together, NaN where none is known."""
        known = [self.by_name[name] for name in names if name in self.by_name]
        return np.sum(known, axis=0) if known else np.full(len(self.time_ns), np.nan)


def _grown(*names: str, per: tuple[str, ...] = ()) -> Callable[[Growth], Values]:
    return lambda growth: Values(
        growth.of(*names), growth.time_ns, per=growth.of(*per) if per else _NONE
    )


def _allocation_stalls(growth: Growth) -> Values:
    names = (name for name in growth.by_name if name.startswith(ALLOCSTALL))
    return Values(growth.of(*names), growth.time_ns)


ALLOCSTALL = "allocstall"
HUGE = ("thp_fault_alloc", "thp_fault_fallback")
_SCANNED = ("pgscan_kswapd", "pgscan_direct")
# fmt: off
COUNTERS = (
    Number("thp_success", SHARE, HIGHER, "ratio", _grown(HUGE[0], per=HUGE), words="THP success"),
    Number("compaction_success", SHARE, HIGHER, "ratio",
           _grown("compact_success", per=("compact_stall",))),
    Number("reclaim_efficiency", SHARE, HIGHER, "ratio",
           _grown("pgsteal_kswapd", per=("pgscan_kswapd",)), "kswapd",
           mmtests="Kswapd efficiency"),
    Number("reclaim_efficiency", SHARE, HIGHER, "ratio",
           _grown("pgsteal_direct", per=("pgscan_direct",)), "direct",
           mmtests="Direct efficiency"),
    Number("reclaim_scanned", "pages", LOWER, "sum", _grown(*_SCANNED),
           verdict=(17, "pages that reclaim scanned")),
    Number("reclaim_scanned", "pages", LOWER, "sum", _grown("pgscan_kswapd"), "kswapd",
           words="pgscan_kswapd", mmtests="Kswapd pages scanned"),
    Number("reclaim_scanned", "pages", LOWER, "sum", _grown("pgscan_direct"), "direct",
           words="pgscan_direct", mmtests="Direct pages scanned"),
    Number("reclaimed", "pages", "", "sum", _grown("pgsteal_kswapd"), "kswapd",
           words="pgsteal_kswapd", mmtests="Kswapd pages reclaimed"),
    Number("reclaimed", "pages", "", "sum", _grown("pgsteal_direct"), "direct",
           words="pgsteal_direct", mmtests="Direct pages reclaimed"),
    Number("compact_stall", "events", LOWER, "sum", _grown("compact_stall"),
           verdict=(19, "direct compactions"), mmtests="Compaction stalls"),
    Number("compact_success", "events", "", "sum", _grown("compact_success"),
           mmtests="Compaction success"),
    Number("compact_fail", "events", LOWER, "sum", _grown("compact_fail"),
           mmtests="Compaction failures"),
    Number(HUGE[0], "events", HIGHER, "sum", _grown(HUGE[0]), words=HUGE[0],
           verdict=(20, "huge-page faults served"), mmtests="THP fault alloc"),
    Number(HUGE[1], "events", LOWER, "sum", _grown(HUGE[1]), words=HUGE[1],
           verdict=(21, "huge-page faults refused"), mmtests="THP fault fallback"),
    Number(ALLOCSTALL, "events", LOWER, "sum", _allocation_stalls,
           verdict=(18, "allocation stalls"), mmtests="Allocation stalls"),
)
"""All allocstall_* together are one number."""
# fmt: on


# Requests that failed: of the table `outcomes`. Folios (S10.12): of a row of `folio_shares`.


def _failed(outcomes: pd.DataFrame) -> Iterator[tuple[str, Values]]:
    for order, failed in zip(outcomes["order"], outcomes["failed"], strict=True):
        yield f"order={order}", Values(float(failed))


FAILED = Number("failed_allocations", "requests", LOWER, "count", _failed)
FOLIOS = tuple(
    Number(name, SHARE, HIGHER, "ratio", scope="") for name in ("folio_success", "folio_at_once")
)


def folios(table: pd.DataFrame, edges: np.ndarray) -> Iterator[Quantity]:
    """Shares of requests served, and served at once, by class and order above 0."""
    numbers = {number.name: number for number in FOLIOS}
    for name, scope, served, asked in folio_shares(table):
        values = Values(served, edges[:1].astype(np.int64), per=asked)
        yield numbers[name].quantity(values, scope)


# Whole runs alone: of changes of counters, and of requests for folios by class and order.


def thp_success(changes: Mapping[str, float]) -> float:
    """Share of huge-page faults that got one, from changes of counters; NaN where unknown."""
    served = changes.get("thp_fault_alloc", np.nan)
    tried = served + changes.get("thp_fault_fallback", np.nan)
    return float(served / tried) if tried else float("nan")


def _stalls(changes: Mapping[str, float]) -> Values:
    stalls = [value for name, value in changes.items() if name.startswith(ALLOCSTALL)]
    return Values(float(np.sum(stalls)) if stalls else np.nan)


Requests = Mapping[tuple[str, int], Mapping[str, float]]
"""Requests for folios "asked" for and "failed", by class and order; {} where not known."""


def _served(kind: str, order: int, requests: Requests) -> Values | None:
    row = requests.get((kind, order))
    return row and Values(1.0 - row["failed"] / row["asked"])


def _anon(order: int, what: str, requests: Requests) -> Values | None:
    return Values(float(requests.get(("anon", order), {}).get(what, 0))) if requests else None


PRESSURE = {"some": "memory pressure", "full": "memory pressure full"}
TIMES = ("run time", *(f"{cause} time" for cause in CAUSES), *PRESSURE.values())
"""Numbers of a whole run in s, which no replay predicts; pressure as the kernel has it."""
# fmt: off
CHANGES = (
    Number("", SHARE, make=lambda changes: Values(thp_success(changes)), run="THP success"),
    *(Number("", "s", run=name) for name in TIMES),
    *(Number(make=lambda changes, name=name: Values(changes.get(name, np.nan)), run=name)
      for name in COUNTER_NAMES if name not in ("oom_kill", "pgdeactivate")),
    Number(make=_stalls, run=ALLOCSTALL),
)
REQUESTS = (
    *(Number("", SHARE, make=partial(_served, kind, order), run=f"{kind} order {order} served")
      for kind in CLASS_NAMES.values() for order in range(1, at.ORDERS)),
    *(Number("", "requests", make=partial(_anon, order, what), run=f"anon order {order} {what}")
      for order in range(PMD_ORDER + 1) for what in ("asked", "failed")),
)
# fmt: on


# Sweeps alone: of a replay.


def _counters_at_end(replay: Replay) -> Iterator[tuple[str, Values]]:
    vmstat = replay.vmstat
    last = vmstat[vmstat["time_ns"] == vmstat["time_ns"].max()]
    for name, value in zip(last["name"], last["value"].astype(float), strict=True):
        yield f"counter={name}", Values(value)


def _huge_served(replay: Replay) -> Values:
    huge = replay.outcomes[replay.outcomes["order"] == PMD_ORDER]
    return Values(float(huge["succeeded"].sum()), per=np.array([float(huge["asked"].sum())]))


def _folios_served(replay: Replay) -> Iterator[tuple[str, Values]]:
    for name, scope, served, asked in folio_shares(replay.folios):
        if name == "folio_success":
            yield scope, Values(served, per=asked)


def _list_locks(column: str, replay: Replay) -> Values:
    return Values(replay.samples.list_locks[-1].sum(axis=0)[LOCK_COLUMNS.index(column)])


# fmt: off
SWEPT_REPLAY = (
    Number("", "pages", "", "mean",
           lambda replay: Values(States.of_replay(replay).listed.sum(axis=(1, 2))),
           sweep="pcp_pages", meaning="pages on per-CPU lists, mean over time"),
    Number(make=partial(_list_locks, "lock_acquisitions"), sweep="pcp_lock_acquisitions",
           meaning="pcp->lock taken to allocate or free (S11.3)"),
    Number(make=partial(_list_locks, "lock_hand_overs"), sweep="pcp_lock_hand_overs",
           meaning="of these, taken over from another CPU"),
    *(Number("", "", LOWER, make=lambda replay, name=name: Values(replay.divergence[name]),
             sweep=f"requests_{name}", meaning=meaning)
      for name, meaning in (
          ("failed", "found no page here"),
          ("forced", "served here below every watermark"),
          ("in_base_pages", "served as single pages for want of a large one"))),
)
SWEPT_ELASTIC = (
    Number(make=_counters_at_end, sweep="vmstat_{counter}",
           meaning="the kernel's counter {counter} (elastic replays)"),
    Number("", SHARE, HIGHER, "ratio", _huge_served, sweep="huge_requests_served",
           meaning="share of requests for a pageblock that got one (elastic replays)"),
    Number("", SHARE, HIGHER, "ratio", _folios_served,
           sweep="{class}_order_{order}_served_by_order",
           meaning="share of requests of order {order} for {class} memory that were served "
                   "(elastic)"),
)
WAITS = (
    Number("contended_acquisitions", "", LOWER, verdict=(16, "waits at zone->lock")),
)
# fmt: on

NUMBERS = (
    *(
        *HOLDS,
        *STATES,
        *_TABLED_ALONE,
        *LISTS,
        *FALLBACKS,
        *HOLD_TIMES,
        *LOCK_TIMES,
        *COUNTERS,
        FAILED,
        *FOLIOS,
    ),
    *(*CHANGES, *REQUESTS, *FALLBACKS_BY_KIND, *SWEPT_REPLAY, *SWEPT_ELASTIC),
    FREE_AND_LISTED,
    *WAITS,
)
SCORED = sorted((number for number in NUMBERS if number.verdict[0]), key=lambda row: row.verdict)
SERIES_WORDS = {row.name: row.verdict[1] for row in SCORED if row in (*STATES, *TABLED)}
"""What a verdict scores at every snapshot, in words."""
TOTAL_WORDS = {
    (row.name, row.scope): row.verdict[1] for row in SCORED if row.name not in SERIES_WORDS
}
"""Totals of a recording that it scores."""
SHARES = {row.name for row in SCORED if row.unit == SHARE}
"""Scored shares, which zones do not add up to."""
SUMMARISED = (
    *("refill_pages", "refill_transactions", "drain_pages", "drain_transactions"),
    *("free_pages", "order_distribution_tv", "highatomic_blocks", "extfrag_events"),
)
"""Errors that stand for a recording's others where there is no room for all."""
RUNS = tuple(row for row in (*STATES, *HOLDS, *FALLBACKS, *CHANGES, *REQUESTS) if row.run)
RUN_UNITS = {row.run: row.run_unit or row.unit for row in RUNS}
"""Units of numbers of a whole run by name; free memory and lists are means over instants.
Whose pressure nobody copied has no "full", unless `sched:sched_switch` says who ran."""
SWEPT = tuple(row for row in NUMBERS if row.sweep)
WORDS = {row.name: row.words for row in NUMBERS if row.words and row not in COUNTERS}
COUNTER_WORDS = {(row.name, row.scope): row.words for row in COUNTERS if row.words}
"""Words that say of what part of the machine a number is, too."""
MMTESTS = {(row.name, row.scope): row.mmtests for row in NUMBERS if row.mmtests}


def compared(section: Iterable[Number], table: object, zone: str = "") -> Iterator[Quantity]:
    """The numbers of a section that comparisons have, as a table gives them."""
    for number in section:
        if number.name:
            yield from number.quantities(table, zone)


def by_zone(states: States, machine: Machine, section: Sequence[Number] = ()) -> Iterator[Quantity]:
    """A section's numbers in each zone, by default those of free memory, blocks and lists."""
    for index, zone in enumerate(machine.zones):
        if zone.managed:
            scope = zone_scope(zone.node, zone.name, machine.nodes)
            table = Zones(
                states=states,
                zones=[index],
                block_order=machine.counted_order,
                types=machine.migratetypes,
            )
            yield from compared(section or STATES, table, scope)


def over_time(tables: Measured | Replay, machine: Machine) -> dict[tuple[str, str], Quantity]:
    """Numbers that instants date, as error tables name them: by metric and scope.

    States in each zone, refills and drains in all and by CPU.
    """
    dated = [*by_zone(States.of(tables, machine), machine, (*STATES, *TABLED))]
    moves = tables.transactions_full
    parts = {f"cpu={cpu}": moves[moves["cpu"] == cpu] for cpu in range(machine.nr_cpus)}
    for scope, table in ({"all": moves} | parts).items():
        holds = Holds.of_table(table)
        known = () if moves["time_ns"].isna().all() else MOVED
        dated += [number.quantity(number.make(holds), scope) for number in known]
    return {
        (number.metric, number.scope.removesuffix(",at=end")): number
        for number in dated
        if number.time_ns.shape == number.values.shape
    }


def of_run(section: Iterable[Number], table: object) -> dict[str, float]:
    """A section's numbers of a whole run by name."""
    return {row.run: next(row.quantities(table)).value for row in section if row.run and row.make}


def states_of_run(zones: Zones) -> dict[str, np.ndarray]:
    """States whose means are numbers of a whole run, at each instant, by that number's name."""
    rows = [row for row in STATES if row.run and row.how == "mean"]
    return {row.run: next(row.quantities(zones)).values for row in rows}


def swept(section: Iterable[Number], table: object) -> dict[str, float]:
    """A section's columns of a sweep."""
    columns = {}
    for number in section:
        for quantity in number.quantities(table) if number.sweep else ():
            parts = dict(part.split("=") for part in quantity.scope.split(",") if "=" in part)
            name = number.sweep.format(**parts)
            columns[name] = float(quantity.value)
    return columns


def sweep_row(replay: Replay) -> dict[str, float]:
    """A replay's row in a sweep; counters and huge pages where reclaim is elastic."""
    machine, states = replay.machine, States.of_replay(replay)
    row = {
        **swept(STATES, Zones(states=states, block_order=machine.counted_order)),
        **swept(FALLBACKS_BY_KIND, replay.fallback_counts.sum(axis=(0, 1, 3, 4))),
        **swept(SWEPT_HOLDS, Holds.of_log(replay.log)),
        **swept(SWEPT_REPLAY, replay),
    }
    return row | (swept(SWEPT_ELASTIC, replay) if replay.assumptions.reclaim == "elastic" else {})


def column(name: str) -> Number:
    """The number in a column of a sweep; one that is no number is described by its name alone."""
    for number in SWEPT:
        if parts := number.columns.fullmatch(name):
            return replace(number, sweep=name, meaning=number.meaning.format(**parts.groupdict()))
    return Number(sweep=name, meaning=name)
