"""The error table: every number with its measured, predicted and null value."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from pagealloc_model.allocator.layout import CHAINED
from pagealloc_model.allocator.objects import RECORDED
from pagealloc_model.allocator.sites import BY_NAME, EMPTY_SITES, MOVING
from pagealloc_model.base.text import count_of, zone_scope
from pagealloc_model.measured.call_stacks import recorded_spinlocks
from pagealloc_model.measured.contention import OTHER, WAITING
from pagealloc_model.measured.costs import recorded_costs
from pagealloc_model.measured.folios import fault_shares
from pagealloc_model.measured.measured import Measured, fallbacks_table
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
    ALL_SUCCEED,
    FIRST_PART,
    GOES_ON,
    NOTHING_CHANGES,
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
from pagealloc_model.recording.recorded_machine import start_snapshots
from pagealloc_model.recording.trace.columns import Event

if TYPE_CHECKING:
    from pagealloc_model.recording.recording import Recording

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
            metric, zone = row[0].metric, _scored_zone(row)
            if zone and _moved(row).any():
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
        """Of everything that snapshots show; zones in which nothing changed are not in tables.

        What a verdict scores is there of all zones, too.
        """
        if len(self.together[0].values):
            yield ModelError.of_states(*self.together, kind=IMPOSED)
        for metric, moved in self.series.items():
            if "all" in moved:
                yield replace(ModelError.of_states(*moved["all"]), scope="all")
            elif moved:
                rows = [row for row in (*self.compared, *self.tabled) if row[0].metric == metric]
                zones = {_scored_zone(row): row for row in rows if len(row[0].values)}
                zones.pop("", None)
                yield ModelError.of_zones([ModelError.of_states(*row) for row in zones.values()])
        free = {zone: _moved(row).argmax() for zone, row in self.series["free_pages"].items()}
        by_zone = defaultdict(list)
        for row in self.tabled:
            by_zone[zone_of(row[0].scope)].append(row)
        for zone in sorted(free, key=free.__getitem__):
            for row in by_zone[zone]:
                if len(row[0].values) and row[0].metric != "pageblocks":
                    yield ModelError.of_states(*row)
        for row in self.tabled:
            if row[0].metric == "pageblocks" and len(row[0].values):
                yield from _blocks_error(row)
        for row in self.compared:
            metric, zone = row[0].metric, zone_of(row[0].scope)
            is_still = metric in self.series and zone not in self.series[metric]
            if len(row[0].values) and not is_still:
                yield ModelError.of_states(*row, tabled=False)


SIDES = ("measured", "predicted", "null")


def zone_of(scope: str) -> str:
    """The part of a scope that names a zone."""
    zone = _ZONE.match(scope)
    return zone[0] if zone else ""


def _scored_zone(row: Row) -> str:
    """The zone of a number that a verdict scores at every snapshot, "" of others."""
    zone = zone_of(row[0].scope)
    is_scored = row[0].metric in voc.SERIES_WORDS and row[0].scope in (zone, f"{zone},at=end")
    return zone if is_scored else ""


def _moved(row: Row) -> np.ndarray:
    """Mask of the instants at which the kernel or the model has another value than the start."""
    real, model, start = (side.values for side in row)
    return (real != start) | (model != start)


def _blocks_error(row: Row) -> Iterator[ModelError]:
    """Change of pageblocks of a type from the start to the last snapshot; highatomic as counts."""
    scope = row[0].scope
    real, model, start = (side.value for side in row)
    if scope.endswith("type=HighAtomic") and (real or model or start):
        numbers = (real, model, "blocks at the end", NOTHING_CHANGES, start)
        yield ModelError.of("highatomic_blocks", zone_of(scope), *numbers)
    elif real != start or model != start:
        numbers = (real - start, model - start, "change in blocks", NOTHING_CHANGES, 0.0)
        yield ModelError.of("pageblocks", scope, *numbers)


def recorded_lock_model(recording: Recording) -> LockModel:
    """Costs as on the recorded machine, tracing included, and its kind of spinlock."""
    return LockModel(
        costs=recorded_costs(recording),
        closed_loop=False,
        unfair=recorded_spinlocks(recording)[0],
    )


def _first_part_ends(recording: Recording) -> float:
    """When the part ends, in ns, from which `GOES_ON` takes what goes on."""
    first, last = recording.trace.demand_span_ns
    return first + FIRST_PART * (last - first)


def shows_contention(times: LockTimes) -> pd.Series:
    """Acquisitions that would leave an event: all that wait, of a fair lock from the second on."""
    return times.acquisitions["ahead"] > (0 if times.model.unfair else 1)


def _contention_errors(
    recording: Recording, predicted: Replay, measured: Measured
) -> Iterator[ModelError]:
    """`contended_acquisitions` in all and by CPU; measured NaN where it cannot be known.

    Waits of functions the model has no site for, such as readers in /proc, are left out. Of a fair
    lock only waits behind another waiter are recorded (T8), so only those are counted.
    """
    times = lock_times(predicted, recorded_lock_model(recording))
    waits = measured.contention.waits
    waits = waits[waits["site"] != WAITING[OTHER]]
    first_waits = waits[waits["time_ns"] < _first_part_ends(recording)]
    sides = (waits, times.acquisitions[shows_contention(times)], first_waits)
    for cpu in (None, *range(predicted.machine.nr_cpus)):
        real, model, first = (
            float(len(side) if cpu is None else (side["cpu"] == cpu).sum()) for side in sides
        )
        numbers = (real, model, "acquisitions", GOES_ON, first / FIRST_PART)
        if not measured.contention.known:
            numbers = (float("nan"), model, "acquisitions", GOES_ON, float("nan"))
        scope = "all" if cpu is None else f"cpu={cpu}"
        yield ModelError.of("contended_acquisitions", scope, *numbers)


def held_to(
    recording: Recording, predicted: Replay, measured: Measured
) -> tuple[Scored, tuple[ModelError, ...]]:
    """The scored states; numbers of the error table, states and fallbacks by pair of types."""
    _, start = start_snapshots(recording)
    end_ns = recording.trace.demand_span_ns[1]
    scored = Scored.of(measured, predicted, start_ns=start.time_ns, end_ns=end_ns)
    return scored, (
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
    machine = predicted.machine
    first = fallbacks_table(
        recording.trace,
        migratetypes=machine.migratetypes,
        pageblock_order=machine.counted_order,
        before_ns=_first_part_ends(recording),
    )
    sides = [
        {(one.metric, one.scope): one for one in voc.compared(voc.FALLBACKS, table)}
        for table in (measured.fallbacks, predicted.fallbacks, first)
    ]
    is_known = was_recorded(recording, Event.EXTFRAG)
    pairs = [f"{asked} from {used}" for asked, used in product(FALLING_BACK, repeat=2)]
    for key in (("extfrag_events", "all"), *product(("fallback_claims", "fallback_steals"), pairs)):
        real, model = (side[key].value if key in side else 0.0 for side in sides[:2])
        null = sides[2][key].going_on if key in sides[2] else 0.0
        if not is_known:
            real = null = float("nan")
        yield ModelError.of(*key, real, model, "events", GOES_ON, null, tabled=key[1] == "all")


def hold_errors(
    recording: Recording, predicted: Replay, measured: Measured
) -> Iterator[ModelError]:
    """Sizes of refills and drains, holds at the buddy and in all, which comparisons alone have."""
    shown = {
        **{site: was_recorded(recording, BY_NAME[site].event) for site in ("refill", "drain")},
        "buddy_alloc": measured.boundaries in ("lock tracepoints", "kprobes"),
        "direct_free": "direct_free" not in measured.unseen_sites,
    }
    names = [f"pages_per_{site}" for site in ("refill", "drain") if shown[site]]
    names += ["longest_drain"] * shown["drain"]
    at_buddy = [site for site in ("buddy_alloc", "direct_free") if shown[site]]
    names += [f"{site}_{what}" for site in at_buddy for what in ("transactions", "pages")]
    if all(shown.values()):
        names += ["pages_per_acquisition", "zone_lock_acquisitions"]
    full = measured.transactions_full
    first_full = full[full["time_ns"] < _first_part_ends(recording)]
    tables = (full, predicted.transactions_full, first_full)
    holds = (Holds.of_table(table[table["site"].isin(MOVING)]) for table in tables)
    sides = (voc.compared(voc.HOLDS, side) for side in holds)
    for real, model, first in zip(*sides, strict=True):
        if real.metric in names:
            numbers = (real.value, model.value, real.unit, real.null_model, first.going_on)
            yield ModelError.of(real.metric, real.scope, *numbers, tabled=False)


def _transaction_errors(
    recording: Recording, predicted: Replay, measured: Measured
) -> Iterator[ModelError]:
    """Refills and drains: in all, by CPU, and bin by bin; and attempts that found no page."""
    full = measured.transactions_full
    first_full = full[full["time_ns"] < _first_part_ends(recording)]
    tables = (full, predicted.transactions_full, first_full)
    cpus = sorted({*full["cpu"], *predicted.transactions_full["cpu"]})
    for site in ("refill", "drain"):
        moved = [
            table[table["site"] == site]
            .groupby("cpu")["pages"]
            .agg(transactions="size", pages="sum")
            for table in tables
        ]
        for cpu, unit in product((None, *cpus), ("pages", "transactions")):
            rows = [side if cpu is None else side[side.index == cpu] for side in moved]
            real, model, first = (float(side[unit].sum()) for side in rows)
            if not was_recorded(recording, BY_NAME[site].event):
                real = first = float("nan")
            scope = "all" if cpu is None else f"cpu={cpu}"
            shown = (f"{site}_{unit}", scope, real, model, unit)
            counted = float(rows[0]["transactions"].sum())
            yield ModelError.of(*shown, GOES_ON, first / FIRST_PART, counted=counted)
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
        real, model, first = (float((table["site"] == site).sum()) for table in tables)
        if not is_seen:
            real = first = float("nan")
        shown = (f"{site}_transactions", "all", real, model, "transactions")
        kind = PREDICTED if is_seen else PREDICTED_ALONE
        yield ModelError.of(*shown, GOES_ON, first / FIRST_PART, kind=kind)


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
    first_part = np.array([times[0], times[0] + FIRST_PART * (times[-1] - times[0])])
    pairs = ((known, edges), (predicted.vmstat, edges), (known, first_part))
    sides = (voc.compared(voc.COUNTERS, voc.Growth.between(*pair)) for pair in pairs)
    for real, model, first in zip(*sides, strict=True):
        if not (np.isnan(real.value) or np.isnan(model.value)):
            shown = (real.metric, real.scope, real.value, model.value, real.unit)
            yield ModelError.of(*shown, real.null_model, first.going_on)


def _folio_errors(predicted: Replay, measured: Measured) -> Iterator[ModelError]:
    """Shares of requests for folios served, and served at once, of elastic replays (S10.12)."""
    if predicted.assumptions.reclaim != "elastic":
        return
    sides = (voc.folios(side.folios, predicted.edges) for side in (measured, predicted))
    for real, model in joined(*sides):
        if not (np.isnan(real.value) or np.isnan(model.value)):
            shown = (real.metric, real.scope, real.value, model.value, real.unit)
            yield ModelError.of(*shown, real.null_model, 1.0)
    folios = predicted.folios
    own = folios[folios["class"] == "anon"].set_index("order")
    for order, share in fault_shares(measured.folio_counters).items():
        if order in own.index:
            model = 1.0 - float(own["failed"][order]) / float(own["asked"][order])
            shown = ("anon_fault_success", f"order={order}", share, model, SHARE)
            yield ModelError.of(*shown, ALL_SUCCEED, 1.0)


NEARER, FARTHER = "nearer", "no nearer"


def against_null(row: Any) -> str:
    """The standing of a row of an error table to its null model.

    "nearer": the error is smaller. "no nearer": it is not. "none": none was measured and none
    predicted; "both right": neither has an error. Such rows tell nothing. Where an error has no
    reference, as that of 3 blocks over none, distances are compared. "not measured": nothing can
    be compared. Rows of another kind, such as imposed ones, are that kind: they are no predictions.
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
    if not row.measured and not row.predicted and not error:
        return "none"
    return NEARER if abs(error) < abs(null_error) else FARTHER


def records(table: pd.DataFrame) -> list[dict[str, object]]:
    """Rows as plain values, None for what is not known."""
    return table.astype(object).where(table.notna(), None).to_dict(orient="records")
