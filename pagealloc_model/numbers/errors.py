"""The error table: every number with its measured, predicted and null value."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from pagealloc_model.allocator.layout import CHAINED
from pagealloc_model.allocator.objects import RECORDED
from pagealloc_model.allocator.sites import BY_NAME, EMPTY_SITES
from pagealloc_model.base.arrays import parts
from pagealloc_model.base.text import count_of, zone_scope
from pagealloc_model.measured.call_stacks import recorded_spinlocks
from pagealloc_model.measured.contention import OTHER, WAITING
from pagealloc_model.measured.costs import recorded_costs
from pagealloc_model.measured.folios import fault_shares
from pagealloc_model.measured.measured import Measured
from pagealloc_model.numbers import vocabulary as voc
from pagealloc_model.numbers.statistics import SHARE, relative
from pagealloc_model.numbers.values import WINDOWS, counter_changes, paired, was_recorded
from pagealloc_model.predicted.lock_times import LockModel, LockTimes, lock_times
from pagealloc_model.predicted.replay import Replay
from pagealloc_model.recording.trace.columns import Event, Trace

if TYPE_CHECKING:
    from pagealloc_model.recording.recording import Recording

FROZEN = "nothing changes"
NO_PRESSURE = "no reclaim, every request served"
NO_PCP = "no PCP"
PREDICTED, PREDICTED_ALONE = "predicted", "predicted alone"
"""Kinds of a row; of the second, no recording of this kind can have the measured side."""
PCP_ORDER_MAX = 3
ErrorRow = dict[str, object]
ZONE = ["node", "zone"]
"""Index levels that name a zone."""


def error_row(
    metric: str,
    scope: str,
    measured: float,
    predicted: float,
    unit: str,
    null_model: str,
    null: float,
    *,
    error: float | None = None,
    null_error: float | None = None,
    kind: str = PREDICTED,
) -> ErrorRow:
    """One row of the error table; errors that are not given are relative, of shares differences."""

    def off(value: float) -> float:
        return value - measured if unit == SHARE else relative(value, measured)

    return {
        "metric": metric,
        "scope": scope,
        "measured": measured,
        "predicted": predicted,
        "error": off(predicted) if error is None else error,
        "unit": unit,
        "null_model": null_model,
        "null": null,
        "null_error": off(null) if null_error is None else null_error,
        "kind": kind,
    }


@dataclass(frozen=True, kw_only=True, eq=False)
class Scored:
    """Measured and predicted state at the scored snapshots, and the measured one at the start.

    Frames have columns measured, predicted and null, and are indexed by time, node, zone and more.
    """

    start_ns: int
    times: np.ndarray
    free: pd.DataFrame
    blocks: pd.DataFrame
    listed: pd.DataFrame
    boosts: pd.DataFrame

    @staticmethod
    def of(measured: Measured, predicted: Replay, *, start_ns: int, end_ns: int) -> Scored:
        """Join both sides at snapshots after `start_ns` and up to `end_ns`."""
        times = np.unique(measured.pcp["time_ns"].to_numpy(np.int64))
        times = times[(times > start_ns) & (times <= end_ns)]

        def joined(name: str, value: str, *keys: str) -> pd.DataFrame:
            index = ["time_ns", *ZONE, *keys]
            real, model = (
                getattr(side, name).set_index(index)[value] for side in (measured, predicted)
            )
            frame = pd.DataFrame({"measured": real, "predicted": model}).dropna()
            at_start = real[real.index.get_level_values(0) == start_ns].droplevel(0)
            frame = frame[frame.index.get_level_values(0).isin(times)]
            return frame.assign(null=at_start.reindex(frame.index.droplevel(0)).to_numpy())

        return Scored(
            start_ns=start_ns,
            times=times,
            free=joined("free_pages", "pages", "order", "migratetype"),
            blocks=joined("pageblocks", "blocks", "migratetype"),
            listed=joined("pcp", "count", "cpu"),
            boosts=joined("boosts", "pages"),
        )

    def scope(self, node: int, zone: str) -> str:
        """A zone as rows name it."""
        return zone_scope(node, zone, self.listed.index.unique("node"))

    def series(self) -> dict[str, pd.DataFrame]:
        """By metric: values of each zone at each snapshot."""
        free, listed = (
            frame.groupby(level=["time_ns", *ZONE], sort=False).sum()
            for frame in (self.free, self.listed)
        )
        is_reserved = self.blocks.index.get_level_values("migratetype") == "HighAtomic"
        return {
            "free_pages": free,
            "pcp_count": listed,
            "highatomic_blocks": self.blocks[is_reserved].droplevel("migratetype"),
            "watermark_boost": self.boosts,
        }

    def at_snapshots(self) -> pd.DataFrame:
        """Model and kernel side by side at every scored snapshot."""
        frames = []
        for metric, values in self.series().items():
            frame = values[values.index.droplevel("time_ns").isin(_active_zones(values))]
            frame = frame.reset_index()
            scopes = map(self.scope, frame["node"], frame["zone"])
            frames.append(frame.assign(scope=list(scopes), metric=metric))
        table = pd.concat(frames, ignore_index=True)
        table["time_s"] = (table["time_ns"] - self.start_ns) / 1e9
        return table[["time_s", "metric", "scope", "measured", "predicted", "null"]]


def _active_zones(values: pd.DataFrame) -> list[tuple[int, str]]:
    """Nodes and names of zones in which the kernel or the model changed something."""
    moved = (values["measured"] != values["null"]) | (values["predicted"] != values["null"])
    return list(dict.fromkeys(values.index.droplevel("time_ns")[moved]))


def _state_rows(scored: Scored) -> Iterator[ErrorRow]:
    """Rows for everything that snapshots show; zones in which nothing happened are left out."""
    series = scored.series()
    free = series["free_pages"]
    total = free.add(series["pcp_count"], fill_value=0).groupby(level="time_ns").sum()
    yield from _series_rows("free_and_listed_pages", "all", total, kind="imposed")
    for key in _active_zones(free):
        scope = scored.scope(*key)
        for metric in ("free_pages", "watermark_boost"):
            if key in series[metric].index.droplevel("time_ns"):
                yield from _series_rows(metric, scope, series[metric].xs(key, level=ZONE))
        # Total variation between distributions of free pages over orders, mean over snapshots.
        by_order = scored.free.xs(key, level=ZONE).groupby(level=["time_ns", "order"]).sum()
        shares = by_order / by_order.groupby(level="time_ns").transform("sum")
        error, null = (
            float(((shares[name] - shares["measured"]).abs() / 2).groupby(level=0).sum().mean())
            for name in ("predicted", "null")
        )
        yield error_row(
            *("order_distribution_tv", scope, 0.0, error, "total variation", FROZEN, null),
            error=error,
            null_error=null,
        )
        of_zone = scored.listed.xs(key, level=ZONE)
        for cpu in np.unique(of_zone.index.get_level_values("cpu")):
            of_cpu = of_zone.xs(cpu, level="cpu")
            yield from _series_rows("pcp_count", f"{scope},cpu={cpu}", of_cpu)
    if not len(scored.blocks):
        return
    # Change of pageblocks by type from the start to the last snapshot; highatomic as counts.
    last = scored.blocks.xs(scored.blocks.index.get_level_values(0).max(), level="time_ns")
    for (node, zone, migratetype), row in last.iterrows():
        scope = scored.scope(node, zone)
        real, model, null = (float(row[name]) for name in ("measured", "predicted", "null"))
        if migratetype == "HighAtomic" and (real or model or null):
            shown = ("highatomic_blocks", scope, real, model, "blocks at the end")
            yield error_row(*shown, FROZEN, null)
        elif real != null or model != null:
            scope = f"{scope},type={migratetype}"
            shown = ("pageblocks", scope, real - null, model - null, "change in blocks")
            yield error_row(*shown, FROZEN, 0.0)


def _series_rows(
    metric: str, scope: str, values: pd.DataFrame, *, kind: str = PREDICTED
) -> Iterator[ErrorRow]:
    """Mean distance over snapshots, as a share of the measured range, start included."""
    if not len(values):
        return
    real, model, null = (values[name] for name in ("measured", "predicted", "null"))
    spread = max(real.max(), null.max()) - min(real.min(), null.min())
    if spread:
        means = float(real.mean()), float(model.mean())
        yield error_row(
            *(metric, scope, *means, "pages, error in share of range", FROZEN, float(null.mean())),
            error=float((model - real).abs().mean() / spread),
            null_error=float((null - real).abs().mean() / spread),
            kind=kind,
        )


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


def _contention_rows(
    recording: Recording, predicted: Replay, measured: Measured
) -> Iterator[ErrorRow]:
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
        yield error_row(
            "contended_acquisitions",
            "all" if cpu is None else f"cpu={cpu}",
            float(of_kernel.sum()) if measured.contention.known else float("nan"),
            float((contended & of_model).sum()),
            "acquisitions",
            "arrivals at random",
            float(chance[of_model].sum()),
        )


def error_rows(
    recording: Recording, predicted: Replay, measured: Measured, scored: Scored
) -> pd.DataFrame:
    """All rows of the error table."""
    known = was_recorded(recording, Event.EXTFRAG)
    fallbacks = [float(side.fallbacks["count"].sum()) for side in (measured, predicted)]
    fallbacks[0] = fallbacks[0] if known else float("nan")
    rows = [
        *_state_rows(scored),
        *_transaction_rows(recording, predicted, measured),
        error_row("extfrag_events", "all", *fallbacks, "events", "no fallback", 0.0),
        *_placement_rows(predicted),
        *_contention_rows(recording, predicted, measured),
        *_counter_rows(predicted, measured),
        *_folio_rows(predicted, measured),
    ]
    return pd.DataFrame(rows)


def _transaction_rows(
    recording: Recording, predicted: Replay, measured: Measured
) -> Iterator[ErrorRow]:
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
            yield error_row(*shown, NO_PCP, null)
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
            yield error_row(
                *(*shown, "pages, absolute errors summed", "measured mean", mean),
                error=float((both["model"] - both["real"]).abs().sum() / total),
                null_error=float((both["real"].mean() - both["real"]).abs().sum() / total),
            )
    for site in EMPTY_SITES:
        is_seen = site not in measured.unseen_sites
        real, model = (float((table["site"] == site).sum()) for table in tables)
        shown = (f"{site}_transactions", "all", real if is_seen else float("nan"), model)
        kind = PREDICTED if is_seen else PREDICTED_ALONE
        yield error_row(*shown, "transactions", "none is empty", 0.0, kind=kind)


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


def _placement_rows(predicted: Replay) -> Iterator[ErrorRow]:
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
        yield error_row(metric, "all", 1.0, share, SHARE, null_model, null)


def _counter_rows(predicted: Replay, measured: Measured) -> Iterator[ErrorRow]:
    """Reclaim, compaction, stalls and huge pages, between the first and last sample of vmstat.

    A literal replay cannot know them: it has what was measured of huge pages.
    """
    table = measured.vmstat
    if predicted.assumptions.reclaim != "elastic":
        share = voc.thp_success(counter_changes(table, (-np.inf, np.inf)))
        unknown = (SHARE, "none", float("nan"))
        if not np.isnan(share):
            yield error_row("thp_success", "all", share, float("nan"), *unknown)
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
            yield error_row(*shown, NO_PRESSURE, null)


def _folio_rows(predicted: Replay, measured: Measured) -> Iterator[ErrorRow]:
    """Shares of requests for folios served, and served at once, of elastic replays (S10.12)."""
    if predicted.assumptions.reclaim != "elastic":
        return
    sides = (voc.folios(side.folios, predicted.edges) for side in (measured, predicted))
    for real, model in paired(*sides):
        if not (np.isnan(real.value) or np.isnan(model.value)):
            shown = (real.metric, real.scope, real.value, model.value, real.unit)
            yield error_row(*shown, NO_PRESSURE, 1.0)
    folios = predicted.folios
    own = folios[folios["class"] == "anon"].set_index("order")
    for order, share in fault_shares(measured.folio_counters).items():
        if order in own.index:
            model = 1.0 - float(own["failed"][order]) / float(own["asked"][order])
            shown = ("anon_fault_success", f"order={order}", share, model, SHARE)
            yield error_row(*shown, NO_PRESSURE, 1.0)


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
