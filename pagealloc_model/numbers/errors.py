"""The error table: every number with its measured, predicted and null value."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from pagealloc_model.allocator.layout import CHAINED
from pagealloc_model.allocator.objects import RECORDED
from pagealloc_model.allocator.sites import BY_NAME, EMPTY_SITES, MOVING
from pagealloc_model.base.arrays import parts
from pagealloc_model.base.text import count_of, zone_scope
from pagealloc_model.measured.call_stacks import recorded_spinlocks
from pagealloc_model.measured.contention import OTHER, WAITING
from pagealloc_model.measured.costs import recorded_costs
from pagealloc_model.measured.folios import fault_shares
from pagealloc_model.measured.measured import Measured
from pagealloc_model.numbers import vocabulary as voc
from pagealloc_model.numbers.join import (
    IMPOSED,
    PREDICTED,
    PREDICTED_ALONE,
    ModelError,
    at_instants,
    joined,
)
from pagealloc_model.numbers.statistics import SHARE
from pagealloc_model.numbers.values import (
    WINDOWS,
    Holds,
    Quantity,
    States,
    Zones,
    counter_changes,
    was_recorded,
)
from pagealloc_model.predicted.lock_times import LockModel, LockTimes, lock_times
from pagealloc_model.predicted.replay import Replay
from pagealloc_model.recording.machine import FALLING_BACK
from pagealloc_model.recording.trace.columns import Event, Trace

if TYPE_CHECKING:
    from pagealloc_model.recording.recording import Recording

FROZEN = "nothing changes"
NO_PRESSURE = "no reclaim, every request served"
NO_PCP = "no PCP"
PCP_ORDER_MAX = 3
Row = tuple[Quantity, Quantity, Quantity]
"""A number of states as measured and as predicted at the same instants, and that of the start."""
_ZONE = re.compile(r"(node=[^,]*,)?zone=[^,]*")


@dataclass(frozen=True, kw_only=True, eq=False)
class Scored:
    """Measured and predicted states at the scored snapshots joined, with those of the start.

    Attributes:
        start_ns: when the start was.
        times: int64, shape (snapshots,).
        together: free and listed pages of all zones.
        compared: the numbers of each zone that comparisons have.
        tabled: those that the error table has.
        series: by metric and zone, what is scored at every snapshot, where anything changed; of
            shares also "all", those zones together.
    """

    start_ns: int
    times: np.ndarray
    together: Row
    compared: tuple[Row, ...]
    tabled: tuple[Row, ...]
    series: dict[str, dict[str, Row]]

    @staticmethod
    def of(measured: Measured, predicted: Replay, *, start_ns: int, end_ns: int) -> Scored:
        """Join both sides at snapshots after `start_ns` and up to `end_ns`."""
        machine = predicted.machine
        real, model = States.of_measured(measured, machine), States.of_replay(predicted)
        times = real.time_ns[(real.time_ns > start_ns) & (real.time_ns <= end_ns)]
        model = model.at(times)
        sides = (real.at(model.time_ns), model, real.at(np.array([start_ns])))

        def rows(numbers: Callable[[States], Iterator[Quantity]]) -> tuple[Row, ...]:
            return tuple(
                (of_kernel, at_instants(of_model, at), at_instants(start, at, held=True))
                for of_kernel, of_model, start in zip(*map(numbers, sides), strict=True)
                for at in (of_kernel.time_ns,)
            )

        def together(number: voc.Number, zones: Sequence[int] | None = None) -> Row:
            table = partial(Zones, zones=zones, block_order=machine.counted_order)
            return rows(lambda states: number.quantities(table(states=states)))[0]

        compared = rows(lambda states: voc.by_zone(states, machine))
        tabled = rows(lambda states: voc.by_zone(states, machine, voc.TABLED))
        series: dict[str, dict[str, Row]] = {metric: {} for metric in voc.SERIES_WORDS}
        for row in (*compared, *tabled):
            metric, scope = row[0].metric, row[0].scope
            zone = zone_of(scope)
            if metric in series and scope in (zone, f"{zone},at=end") and _moved(row).any():
                series[metric][zone] = row
        scopes = [zone_scope(zone.node, zone.name, machine.nodes) for zone in machine.zones]
        for number in voc.SCORED:
            if number.name in voc.SHARES and (moved := series.get(number.name)):
                zones = [index for index, scope in enumerate(scopes) if scope in moved]
                moved["all"] = together(number, zones)
        return Scored(
            start_ns=start_ns,
            times=times,
            together=together(voc.FREE_AND_LISTED),
            compared=compared,
            tabled=tabled,
            series=series,
        )

    def at_snapshots(self) -> pd.DataFrame:
        """Model and kernel side by side at every scored snapshot."""
        frames = []
        for metric, rows in self.series.items():
            parts = [
                pd.DataFrame(
                    {
                        "time_s": (row[0].time_ns - self.start_ns) / 1e9,
                        **{"metric": metric, "scope": zone},
                        **dict(zip(SIDES, (side.values for side in row), strict=True)),
                    }
                )
                for zone, row in rows.items()
            ]
            frames += [pd.concat(parts).sort_values("time_s", kind="stable")] if parts else []
        columns = ["time_s", "metric", "scope", *SIDES]
        table = pd.concat(frames, ignore_index=True) if frames else pd.DataFrame(columns=columns)
        table = table.astype({"predicted": float})
        is_whole = (table["null"].astype(float) % 1 == 0).all()
        return table.astype({"null": np.int64}) if is_whole else table

    def errors(self) -> Iterator[ModelError]:
        """Of everything that snapshots show; zones in which nothing changed are not in tables."""
        if len(self.together[0].values):
            yield ModelError.of_states(*self.together, FROZEN, kind=IMPOSED)
        free = {zone: _moved(row).argmax() for zone, row in self.series["free_pages"].items()}
        by_zone = defaultdict(list)
        for row in self.tabled:
            by_zone[zone_of(row[0].scope)].append(row)
        for zone in sorted(free, key=free.__getitem__):
            for row in by_zone[zone]:
                if len(row[0].values) and row[0].metric != "pageblocks":
                    yield ModelError.of_states(*row, FROZEN)
        for row in self.tabled:
            if row[0].metric == "pageblocks" and len(row[0].values):
                yield from _blocks_error(row)
        for row in self.compared:
            metric, zone = row[0].metric, zone_of(row[0].scope)
            is_still = metric in self.series and zone not in self.series[metric]
            if len(row[0].values) and not is_still:
                yield ModelError.of_states(*row, FROZEN, tabled=False)


SIDES = ("measured", "predicted", "null")


def zone_of(scope: str) -> str:
    """The part of a scope that names a zone."""
    zone = _ZONE.match(scope)
    return zone[0] if zone else ""


def _moved(row: Row) -> np.ndarray:
    """Mask of the instants at which the kernel or the model has another value than the start."""
    real, model, start = (side.values for side in row)
    return (real != start) | (model != start)


def _blocks_error(row: Row) -> Iterator[ModelError]:
    """Change of pageblocks of a type from the start to the last snapshot; highatomic as counts."""
    scope = row[0].scope
    real, model, start = (side.value for side in row)
    if scope.endswith("type=HighAtomic") and (real or model or start):
        numbers = (real, model, "blocks at the end", FROZEN, start)
        yield ModelError.of("highatomic_blocks", zone_of(scope), *numbers)
    elif real != start or model != start:
        numbers = (real - start, model - start, "change in blocks", FROZEN, 0.0)
        yield ModelError.of("pageblocks", scope, *numbers)


def recorded_lock_model(recording: Recording) -> LockModel:
    """Costs as on the recorded machine, tracing included, and its kind of spinlock."""
    return LockModel(
        costs=recorded_costs(recording),
        closed_loop=False,
        unfair=recorded_spinlocks(recording)[0],
    )


def shows_contention(times: LockTimes) -> pd.Series:
    """Acquisitions that would leave an event: all that wait, of a fair lock from the second on."""
    return times.acquisitions["ahead"] > (0 if times.model.unfair else 1)


def _contention_errors(
    recording: Recording, predicted: Replay, measured: Measured
) -> Iterator[ModelError]:
    """`contended_acquisitions` in all and by CPU; measured NaN where it cannot be known.

    Waits of functions the model has no site for, such as readers in /proc, are left out. Of a fair
    lock only waits behind another waiter are recorded (T8), so only those are counted. The null
    model has each come at a random time, so that it meets another CPU's hold by chance.
    """
    times = lock_times(predicted, recorded_lock_model(recording))
    waits = measured.contention.waits
    waits = waits[waits["site"] != WAITING[OTHER]]
    frame = times.acquisitions
    zone = frame["zone"].astype(str)
    held = frame["hold_ns"].groupby([zone, frame["cpu"]]).sum()
    own = held.reindex(pd.MultiIndex.from_arrays([zone, frame["cpu"]])).to_numpy()
    total = held.groupby(level=0).sum().reindex(zone).to_numpy()
    chance = (total - own) / max(times.span_ns, 1)
    contended = shows_contention(times)
    for cpu in (None, *range(predicted.machine.nr_cpus)):
        of_model, of_kernel = (
            np.ones(len(side), bool) if cpu is None else (side["cpu"] == cpu).to_numpy(bool)
            for side in (frame, waits)
        )
        yield ModelError.of(
            "contended_acquisitions",
            "all" if cpu is None else f"cpu={cpu}",
            float(of_kernel.sum()) if measured.contention.known else float("nan"),
            float((contended & of_model).sum()),
            "acquisitions",
            "arrivals at random",
            float(chance[of_model].sum()),
        )


def model_errors(
    recording: Recording, predicted: Replay, measured: Measured, scored: Scored
) -> tuple[ModelError, ...]:
    """The numbers of the error table, and those of states and fallbacks by pair of types."""
    return (
        *scored.errors(),
        *_transaction_errors(recording, predicted, measured),
        *_fallback_errors(recording, predicted, measured),
        *_placement_errors(predicted),
        *_contention_errors(recording, predicted, measured),
        *_counter_errors(predicted, measured),
        *_folio_errors(predicted, measured),
    )


def error_table(errors: Iterable[ModelError]) -> pd.DataFrame:
    """Rows of the table, see `Validation.errors`."""
    return pd.DataFrame([error.row() for error in errors if error.tabled])


def _fallback_errors(
    recording: Recording, predicted: Replay, measured: Measured
) -> Iterator[ModelError]:
    """Fallbacks in all, and by pair of types; measured NaN where they were not recorded."""
    sides = [
        {(one.metric, one.scope): one.value for one in voc.compared(voc.FALLBACKS, side.fallbacks)}
        for side in (measured, predicted)
    ]
    is_known = was_recorded(recording, Event.EXTFRAG)
    pairs = [f"{asked} from {used}" for asked, used in product(FALLING_BACK, repeat=2)]
    for key in (("extfrag_events", "all"), *product(("fallback_claims", "fallback_steals"), pairs)):
        real, model = (side.get(key, 0.0) for side in sides)
        numbers = (real if is_known else float("nan"), model, "events", "no fallback", 0.0)
        yield ModelError.of(*key, *numbers, tabled=key[1] == "all")


def hold_errors(
    recording: Recording, predicted: Replay, measured: Measured, table: Sequence[ModelError]
) -> Iterator[ModelError]:
    """Sizes of refills and drains, holds at the buddy and in all, which comparisons alone have.

    Without per-CPU lists every page is a hold.
    """
    nulls = {row.metric: row.null for row in table if row.scope == "all"}
    shown = {
        **{site: was_recorded(recording, BY_NAME[site].event) for site in ("refill", "drain")},
        "buddy_alloc": measured.boundaries in ("lock tracepoints", "kprobes"),
        "direct_free": "direct_free" not in measured.unseen_sites,
    }
    sizes = [f"pages_per_{site}" for site in ("refill", "drain") if shown[site]]
    sizes += ["longest_drain"] * shown["drain"]
    at_buddy = [site for site in ("buddy_alloc", "direct_free") if shown[site]]
    counts = {f"{site}_{what}": 0.0 for site in at_buddy for what in ("transactions", "pages")}
    if all(shown.values()):
        sizes.append("pages_per_acquisition")
        counts["zone_lock_acquisitions"] = (
            nulls["refill_transactions"] + nulls["drain_transactions"]
        )
    tables = (side.transactions_full for side in (measured, predicted))
    holds = (Holds.of_table(table[table["site"].isin(MOVING)]) for table in tables)
    sides = (voc.compared(voc.HOLDS, side) for side in holds)
    for real, model in zip(*sides, strict=True):
        if real.metric in sizes or real.metric in counts:
            name = "none" if real.metric in counts and real.metric[0] != "z" else NO_PCP
            numbers = (real.value, model.value, real.unit, name, counts.get(real.metric, 1.0))
            yield ModelError.of(real.metric, real.scope, *numbers, tabled=False)


def _transaction_errors(
    recording: Recording, predicted: Replay, measured: Measured
) -> Iterator[ModelError]:
    """Refills and drains: in all, by CPU, and bin by bin; and attempts that found no page."""
    tables = (measured.transactions_full, predicted.transactions_full)
    for site, event in (("refill", Event.ALLOC), ("drain", Event.FREE)):
        known = was_recorded(recording, BY_NAME[site].event)
        moved = [
            table[table["site"] == site]
            .groupby("cpu")["pages"]
            .agg(transactions="size", pages="sum")
            for table in tables
        ]
        moved.append(moved_by_cpu(recording.trace, event))
        for cpu, unit in product((None, *moved[-1].index), ("pages", "transactions")):
            real, model, null = (
                float(side[unit].sum() if cpu is None else side[unit].get(cpu, 0)) for side in moved
            )
            scope = "all" if cpu is None else f"cpu={cpu}"
            shown = (f"{site}_{unit}", scope, real if known else float("nan"), model, unit)
            yield ModelError.of(*shown, NO_PCP, null)
        # Absolute differences summed over time bins, as a share of the measured total.
        both = pd.DataFrame(
            {
                name: side.lock[side.lock["site"] == site].groupby("time_ns")["pages"].sum()
                for name, side in (("real", measured), ("model", predicted))
            }
        ).fillna(0.0)
        total, mean = both["real"].sum(), float(both["real"].mean())
        if total:
            shown = (f"{site}_pages", "per time bin", mean, float(both["model"].mean()))
            yield ModelError.of(
                *(*shown, "pages, absolute errors summed", "measured mean", mean),
                error=float((both["model"] - both["real"]).abs().sum()),
                null_error=float((both["real"].mean() - both["real"]).abs().sum()),
                whole=float(total),
            )
    for site in EMPTY_SITES:
        is_seen = site not in measured.unseen_sites
        real, model = (float((table["site"] == site).sum()) for table in tables)
        shown = (f"{site}_transactions", "all", real if is_seen else float("nan"), model)
        kind = PREDICTED if is_seen else PREDICTED_ALONE
        yield ModelError.of(*shown, "transactions", "none is empty", 0.0, kind=kind)


def moved_by_cpu(trace: Trace, event: Event) -> pd.DataFrame:
    """Events (`transactions`) and `pages` of them that lists may hold, by each CPU of the trace."""
    first = int(trace.cpu.min(initial=0))
    length = int(trace.cpu.max(initial=0)) - first + 1
    seen, calls, pages = (np.zeros(length, np.int64) for _ in range(3))
    for part in parts(len(trace)):
        cpu, order = trace.cpu[part].astype(np.int64) - first, trace.order[part]
        seen += np.bincount(cpu, minlength=length)
        moved = (trace.event[part] == event) & (trace.pfn[part] >= 0) & (order <= PCP_ORDER_MAX)
        calls += np.bincount(cpu[moved], minlength=length)
        sizes = 1 << order[moved].astype(np.int64)
        pages += np.bincount(cpu[moved], weights=sizes, minlength=length).astype(np.int64)
    table = pd.DataFrame({"transactions": calls, "pages": pages}, range(first, first + length))
    return table[seen > 0]


def empty_attempt_notes(predicted: Replay, measured: Measured) -> Iterator[str]:
    """Say which predicted attempts found no page, and where else they count; nothing if none."""
    sites = predicted.transactions_full["site"]
    refills, direct = (int((sites == site).sum()) for site in EMPTY_SITES)
    if refills or direct:
        is_seen = "empty_refill" not in measured.unseen_sites
        shown = "kprobes show the refills alone" if is_seen else "no event shows either"
        yield (
            f"{count_of(refills, 'predicted refill')} and "
            f"{count_of(direct, 'predicted direct allocation')} found no page and stand in "
            f"rows of their own; {shown}. Each takes zone->lock, so times, waits and "
            "contended acquisitions at the lock include them"
        )


def _placement_errors(predicted: Replay) -> Iterator[ModelError]:
    """Share of recorded allocations whose page, block or zone is the kernel's, free-running."""
    machine, objects = predicted.machine, predicted.demand.objects
    recorded = objects["kind"] == RECORDED
    kernel, model = objects["pfn"][recorded], predicted.places[recorded]
    order = machine.pageblock_order
    pages = sum(zone.managed for zone in machine.zones)
    zones = machine.zones_of_pages(kernel)
    in_pieces = np.where(model <= CHAINED, CHAINED - model, model)
    used = np.bincount(zones[zones >= 0], minlength=1)
    most = float(used.max() / len(zones)) if len(zones) else float("nan")
    at_random, most_used = "a page at random", "always the zone most are from"
    for metric, hit, null_model, null in (
        ("placement_exact", kernel == model, at_random, 1 / pages),
        ("placement_block", kernel >> order == model >> order, at_random, (1 << order) / pages),
        ("placement_zone", zones == machine.zones_of_pages(in_pieces), most_used, most),
    ):
        share = float(hit.mean()) if len(hit) else float("nan")
        yield ModelError.of(metric, "all", 1.0, share, SHARE, null_model, null)


def _counter_errors(predicted: Replay, measured: Measured) -> Iterator[ModelError]:
    """Reclaim, compaction, stalls and huge pages, between the first and last sample of vmstat.

    A literal replay cannot know them: it has what was measured of huge pages.
    """
    table = measured.vmstat
    if predicted.assumptions.reclaim != "elastic":
        share = voc.thp_success(counter_changes(table, (-np.inf, np.inf)))
        unknown = (SHARE, "none", float("nan"))
        if not np.isnan(share):
            yield ModelError.of("thp_success", "all", share, float("nan"), *unknown)
        return
    times = np.unique(table["time_ns"].to_numpy())
    times = times[(times >= predicted.edges[0]) & (times <= predicted.edges[-1])]
    if len(times) < 2:
        return
    edges = np.linspace(times[0], times[-1], WINDOWS + 1)
    known = table[table["name"].isin(set(predicted.vmstat["name"]))]
    growth = (voc.Growth.between(side, edges) for side in (known, predicted.vmstat))
    sides = (voc.compared(voc.COUNTERS, side) for side in growth)
    for real, model in zip(*sides, strict=True):
        if not (np.isnan(real.value) or np.isnan(model.value)):
            null = 1.0 if real.unit == SHARE else 0.0
            shown = (real.metric, real.scope, real.value, model.value, real.unit)
            yield ModelError.of(*shown, NO_PRESSURE, null)


def _folio_errors(predicted: Replay, measured: Measured) -> Iterator[ModelError]:
    """Shares of requests for folios served, and served at once, of elastic replays (S10.12)."""
    if predicted.assumptions.reclaim != "elastic":
        return
    sides = (voc.folios(side.folios, predicted.edges) for side in (measured, predicted))
    for real, model in joined(*sides):
        if not (np.isnan(real.value) or np.isnan(model.value)):
            shown = (real.metric, real.scope, real.value, model.value, real.unit)
            yield ModelError.of(*shown, NO_PRESSURE, 1.0)
    folios = predicted.folios
    own = folios[folios["class"] == "anon"].set_index("order")
    for order, share in fault_shares(measured.folio_counters).items():
        if order in own.index:
            model = 1.0 - float(own["failed"][order]) / float(own["asked"][order])
            shown = ("anon_fault_success", f"order={order}", share, model, SHARE)
            yield ModelError.of(*shown, NO_PRESSURE, 1.0)


NEARER, FARTHER = "nearer", "no nearer"


def against_null(row: Any) -> str:
    """The standing of a row of an error table to its null model.

    "nearer": the error is smaller. "no nearer": it is not. "both right": neither has one, so the
    row tells nothing. Where an error has no reference, as that of 3 blocks over none, distances
    are compared. "not measured": nothing can be compared. Rows of another kind, such as imposed
    ones, are that kind: they are no predictions.
    """
    if row.kind != PREDICTED:
        return str(row.kind)
    error, null_error = row.error, row.null_error
    if pd.isna(error) or pd.isna(null_error):
        error, null_error = row.predicted - row.measured, row.null - row.measured
    if pd.isna(error) or pd.isna(null_error):
        return "not measured"
    if not error and not null_error:
        return "both right"
    return NEARER if abs(error) < abs(null_error) else FARTHER


def records(table: pd.DataFrame) -> list[dict[str, object]]:
    """Rows as plain values, None for what is not known."""
    return table.astype(object).where(table.notna(), None).to_dict(orient="records")
