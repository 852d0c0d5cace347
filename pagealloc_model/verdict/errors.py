"""The error table: every number with its measured, predicted and null value."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from pagealloc_model.allocator.layout import CHAINED
from pagealloc_model.allocator.objects import RECORDED
from pagealloc_model.base.arrays import parts
from pagealloc_model.base.text import count_of, zone_scope
from pagealloc_model.measured.contention import OTHER, SITES, has_paravirtual_spinlocks
from pagealloc_model.measured.costs import recorded_costs
from pagealloc_model.measured.measured import Measured
from pagealloc_model.predicted.lock_times import LockModel, LockTimes, lock_times
from pagealloc_model.predicted.replay import Replay
from pagealloc_model.predicted.tables import EMPTY_SITES
from pagealloc_model.recording.trace.columns import Event, Trace
from pagealloc_model.verdict.quantities import WINDOWS, counter_quantities, was_recorded
from pagealloc_model.verdict.statistics import SHARE, relative

if TYPE_CHECKING:
    from pagealloc_model.recording.recording import Recording


FROZEN = "nothing changes"
NO_PRESSURE = "no reclaim, every request served"
OF_RANGE = "pages, error in share of range"
ErrorRow = dict[str, object]
ZONE = ["node", "zone"]
"""Index levels that name a zone."""


def error_row(
    metric: str,
    scope: str,
    *,
    measured: float,
    predicted: float,
    unit: str,
    null_model: str,
    null: float,
    error: float | None = None,
    null_error: float | None = None,
    kind: str = "predicted",
) -> ErrorRow:
    """One row of the error table; errors that are not given are relative to what was measured.

    Those of shares are differences.
    """

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

    Each frame is indexed by time and keys: `free` by node, zone, order, migratetype; `blocks` by
    node, zone, migratetype; `listed` by node, zone, cpu.

    Attributes:
        start_ns: the start snapshot, which the null model keeps.
        times: the scored snapshots' times.
        free: columns measured, predicted, null; pages.
        blocks: the same, pageblocks.
        listed: the same, pages on per-CPU lists.
        boosts: the same, pages of watermark boost, indexed by node and zone.
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

        def joined(name: str, keys: list[str], value: str) -> pd.DataFrame:
            real = getattr(measured, name).set_index(["time_ns", *keys])[value]
            model = getattr(predicted, name).set_index(["time_ns", *keys])[value]
            frame = pd.DataFrame({"measured": real, "predicted": model}).dropna()
            at_start = real[real.index.get_level_values(0) == start_ns].droplevel(0)
            frame = frame[frame.index.get_level_values(0).isin(times)]
            held = at_start.reindex(frame.index.droplevel(0)).to_numpy()
            return frame.assign(null=held)

        return Scored(
            start_ns=start_ns,
            times=times,
            free=joined("free_pages", [*ZONE, "order", "migratetype"], "pages"),
            blocks=joined("pageblocks", [*ZONE, "migratetype"], "blocks"),
            listed=joined("pcp", [*ZONE, "cpu"], "count"),
            boosts=joined("boosts", ZONE, "pages"),
        )

    def scope(self, node: int, zone: str) -> str:
        """A zone as rows name it."""
        return zone_scope(node, zone, self.listed.index.unique("node"))


def state_rows(scored: Scored) -> Iterator[ErrorRow]:
    """Rows for everything that snapshots show; zones in which nothing happened are left out."""
    free = scored.free.groupby(level=["time_ns", *ZONE], sort=False).sum()
    listed = scored.listed.groupby(level=["time_ns", *ZONE], sort=False).sum()
    total = free.add(listed, fill_value=0).groupby(level="time_ns").sum()
    yield from _series("free_and_listed_pages", "all", total, kind="imposed")
    for key in _active_zones(free):
        scope = scored.scope(*key)
        yield from _series("free_pages", scope, free.xs(key, level=ZONE))
        if key in scored.boosts.index.droplevel("time_ns"):
            yield from _series("watermark_boost", scope, scored.boosts.xs(key, level=ZONE))
        yield from _order_rows(scored, key)
        mine = scored.listed.xs(key, level=ZONE)
        for cpu in np.unique(mine.index.get_level_values("cpu")):
            yield from _series("pcp_count", f"{scope},cpu={cpu}", mine.xs(cpu, level="cpu"))
    yield from _block_rows(scored)


def _active_zones(values: pd.DataFrame) -> list[tuple[int, str]]:
    """Nodes and names of zones in which the kernel or the model changed something."""
    moved = (values["measured"] != values["null"]) | (values["predicted"] != values["null"])
    return list(dict.fromkeys(_zones_of(values)[moved]))


def _zones_of(values: pd.DataFrame) -> pd.Index:
    """Node and zone of every row."""
    others = [name for name in values.index.names if name not in ZONE]
    return values.index.droplevel(others)


def _series(
    metric: str, scope: str, values: pd.DataFrame, *, kind: str = "predicted"
) -> Iterator[ErrorRow]:
    """Mean distance over snapshots, as a share of the measured range, start included."""
    if not len(values):
        return
    real = values["measured"]
    spread = max(real.max(), values["null"].max()) - min(real.min(), values["null"].min())
    if not spread:
        return
    yield error_row(
        metric,
        scope,
        measured=float(real.mean()),
        predicted=float(values["predicted"].mean()),
        error=float((values["predicted"] - real).abs().mean() / spread),
        unit=OF_RANGE,
        null_model=FROZEN,
        null=float(values["null"].mean()),
        null_error=float((values["null"] - real).abs().mean() / spread),
        kind=kind,
    )


def _order_rows(scored: Scored, zone: tuple[int, str]) -> Iterator[ErrorRow]:
    """Total variation between distributions of free pages over orders, mean over snapshots."""
    mine = scored.free.xs(zone, level=ZONE)
    by_order = mine.groupby(level=["time_ns", "order"]).sum()
    shares = by_order / by_order.groupby(level="time_ns").transform("sum")
    for column in ("predicted", "null"):
        shares[column] = (shares[column] - shares["measured"]).abs() / 2
    distance = shares.groupby(level="time_ns").sum()
    yield error_row(
        "order_distribution_tv",
        scored.scope(*zone),
        measured=0.0,
        predicted=float(distance["predicted"].mean()),
        error=float(distance["predicted"].mean()),
        unit="total variation",
        null_model=FROZEN,
        null=float(distance["null"].mean()),
        null_error=float(distance["null"].mean()),
    )


def _block_rows(scored: Scored) -> Iterator[ErrorRow]:
    """Change of pageblocks by type from the start to the last snapshot; highatomic as counts."""
    if not len(scored.blocks):
        return
    last = scored.blocks.xs(scored.blocks.index.get_level_values(0).max(), level="time_ns")
    for (node, zone, migratetype), row in last.iterrows():
        scope = scored.scope(node, zone)
        measured, predicted = row["measured"] - row["null"], row["predicted"] - row["null"]
        if migratetype == "HighAtomic" and (row != 0).any():
            yield error_row(
                "highatomic_blocks",
                scope,
                measured=float(row["measured"]),
                predicted=float(row["predicted"]),
                unit="blocks at the end",
                null_model=FROZEN,
                null=float(row["null"]),
            )
        elif measured or predicted:
            yield error_row(
                "pageblocks",
                f"{scope},type={migratetype}",
                measured=float(measured),
                predicted=float(predicted),
                unit="change in blocks",
                null_model=FROZEN,
                null=0.0,
            )


def at_snapshots(scored: Scored) -> pd.DataFrame:
    """Model and kernel side by side at every scored snapshot.

    Returns:
        time_s (after the start snapshot), metric, scope, measured, predicted, null.
    """
    free = scored.free.groupby(level=["time_ns", *ZONE], sort=False).sum()
    listed = scored.listed.groupby(level=["time_ns", *ZONE], sort=False).sum()
    reserved = scored.blocks[
        scored.blocks.index.get_level_values("migratetype") == "HighAtomic"
    ].droplevel("migratetype")
    frames = []
    for metric, values in (
        ("free_pages", free),
        ("pcp_count", listed),
        ("highatomic_blocks", reserved),
        ("watermark_boost", scored.boosts),
    ):
        kept = values[_zones_of(values).isin(_active_zones(values))].reset_index()
        kept["scope"] = [
            scored.scope(node, zone) for node, zone in zip(kept["node"], kept["zone"], strict=True)
        ]
        frames.append(kept.assign(metric=metric))
    table = pd.concat(frames, ignore_index=True)
    table["time_s"] = (table["time_ns"] - scored.start_ns) / 1e9
    return table[["time_s", "metric", "scope", "measured", "predicted", "null"]]


RANDOM_ARRIVAL = "arrivals at random"


def recorded_lock_model(recording: Recording) -> LockModel:
    """Costs as on the recorded machine, tracing included, and its kind of spinlock."""
    return LockModel(
        costs=recorded_costs(recording),
        closed_loop=False,
        unfair=has_paravirtual_spinlocks(recording.trace),
    )


def contention_rows(
    recording: Recording, predicted: Replay, measured: Measured
) -> Iterator[ErrorRow]:
    """`contended_acquisitions` in all and by CPU; measured NaN where it cannot be known.

    Waits of functions the model has no site for, such as readers in /proc, are left out. Of a fair
    lock only waits behind another waiter are recorded (T8), so only those are counted.
    """
    times = lock_times(predicted, recorded_lock_model(recording))
    waits = measured.contention.waits
    waits = waits[waits["site"] != SITES[OTHER]]
    frame = times.acquisitions
    contended = shows_contention(times)
    chance = contended_by_chance(times)
    scopes: list[tuple[str, pd.Series, pd.Series]] = [
        ("all", pd.Series(True, frame.index), pd.Series(True, waits.index))
    ]
    scopes += [
        (f"cpu={cpu}", frame["cpu"] == cpu, waits["cpu"] == cpu)
        for cpu in range(predicted.machine.nr_cpus)
    ]
    for scope, mine, theirs in scopes:
        real = float(theirs.sum()) if measured.contention.known else float("nan")
        model = float((contended & mine).sum())
        null = float(chance[mine.to_numpy(bool)].sum())
        yield error_row(
            "contended_acquisitions",
            scope,
            measured=real,
            predicted=model,
            unit="acquisitions",
            null_model=RANDOM_ARRIVAL,
            null=null,
        )


def shows_contention(times: LockTimes) -> pd.Series:
    """Which acquisitions would leave an event: all that wait, of a fair lock from the second on."""
    return times.acquisitions["ahead"] > (0 if times.model.unfair else 1)


def contended_by_chance(times: LockTimes) -> np.ndarray:
    """How likely each acquisition met another CPU's hold, had it come at a random time."""
    frame = times.acquisitions
    held = frame.groupby(["zone", "cpu"], observed=True)["hold_ns"].sum()
    by_zone = held.groupby("zone", observed=True).sum()
    keys = pd.MultiIndex.from_frame(frame[["zone", "cpu"]].astype({"zone": str}))
    held.index = held.index.set_levels(held.index.levels[0].astype(str), level=0)
    own = held.reindex(keys).to_numpy()
    total = by_zone.rename(index=str).reindex(frame["zone"].astype(str)).to_numpy()
    return (total - own) / max(times.span_ns, 1)


NO_PCP = "no PCP"
MEAN = "measured mean"
NO_FALLBACK = "no fallback"
RANDOM_PAGE = "a page at random"
MOST_USED_ZONE = "always the zone most are from"
NONE_EMPTY = "none is empty"
PREDICTED_ALONE = "predicted alone"
"""Kind of a row whose measured side no recording of this kind can have."""
PCP_ORDER_MAX = 3


def error_rows(
    recording: Recording, predicted: Replay, measured: Measured, scored: Scored
) -> pd.DataFrame:
    """All rows of the error table.

    Args:
        recording: for what was recorded, and what a machine without per-CPU lists would have moved.
        predicted: the replay under the recorded policy.
        measured: the recording's tables.
        scored: both at the scored snapshots.
    """
    rows = [
        *state_rows(scored),
        *_transaction_rows(recording, predicted, measured),
        *_empty_rows(predicted, measured),
        _extfrag_row(recording, predicted, measured),
        *_placement_rows(predicted),
        _zone_row(predicted),
        *contention_rows(recording, predicted, measured),
        *(
            _counter_rows(predicted, measured)
            if predicted.assumptions.reclaim == "elastic"
            else _unknown_rows(measured)
        ),
    ]
    return pd.DataFrame(rows)


def _transaction_rows(
    recording: Recording, predicted: Replay, measured: Measured
) -> Iterator[ErrorRow]:
    """Refills and drains: in all, by CPU, and bin by bin."""
    trace = recording.trace
    for site, event, shown_by in (
        ("refill", Event.ALLOC, Event.ZONE_LOCKED),
        ("drain", Event.FREE, Event.PCPU_DRAIN),
    ):
        known = was_recorded(recording, shown_by)
        tables = (measured.transactions_full, predicted.transactions_full)
        sides = [each[each["site"] == site] for each in tables]
        calls, pages = _moved_by_cpu(trace, event)
        for cpu in (None, *calls):
            cpus = calls if cpu is None else (cpu,)
            real, model = (each if cpu is None else each[each["cpu"] == cpu] for each in sides)
            for what, moved, predicted_moves, null in (
                ("pages", real["pages"].sum(), model["pages"].sum(), pages),
                ("transactions", len(real), len(model), calls),
            ):
                yield error_row(
                    f"{site}_{what}",
                    "all" if cpu is None else f"cpu={cpu}",
                    measured=float(moved) if known else float("nan"),
                    predicted=float(predicted_moves),
                    unit=what,
                    null_model=NO_PCP,
                    null=float(sum(null[each] for each in cpus)),
                )
        yield from _binned(site, measured.lock, predicted.lock)


def _moved_by_cpu(trace: Trace, event: Event) -> tuple[dict[int, int], dict[int, int]]:
    """Events and pages of them that per-CPU lists may hold, by each CPU that has any event."""
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
    cpus = np.flatnonzero(seen).tolist()
    by_cpu = [{cpu + first: int(each[cpu]) for cpu in cpus} for each in (calls, pages)]
    return by_cpu[0], by_cpu[1]


def _empty_rows(predicted: Replay, measured: Measured) -> Iterator[ErrorRow]:
    """Attempts under zone->lock that found no page; most recordings cannot show them."""
    for site in EMPTY_SITES:
        is_seen = site not in measured.unseen_sites
        real = measured.transactions_full["site"] == site
        count = float(real.sum()) if is_seen else float("nan")
        model = float((predicted.transactions_full["site"] == site).sum())
        yield error_row(
            f"{site}_transactions",
            "all",
            measured=count,
            predicted=model,
            unit="transactions",
            null_model=NONE_EMPTY,
            null=0.0,
            kind="predicted" if is_seen else PREDICTED_ALONE,
        )


def empty_attempt_notes(predicted: Replay, measured: Measured) -> Iterator[str]:
    """Say which predicted attempts found no page, and where else they count; nothing if none."""
    sites = predicted.transactions_full["site"]
    counts = {site: int((sites == site).sum()) for site in EMPTY_SITES}
    if not any(counts.values()):
        return
    refills, direct = counts.values()
    is_seen = "empty_refill" not in measured.unseen_sites
    shown = "kprobes show the refills alone" if is_seen else "no event shows either"
    yield (
        f"{count_of(refills, 'predicted refill')} and "
        f"{count_of(direct, 'predicted direct allocation')} found no page and stand in "
        f"rows of their own; {shown}. Each takes zone->lock, so times, waits and "
        "contended acquisitions at the lock include them"
    )


def _binned(site: str, measured: pd.DataFrame, predicted: pd.DataFrame) -> Iterator[ErrorRow]:
    """Absolute differences summed over time bins, as a share of the measured total."""
    real = measured[measured["site"] == site].groupby("time_ns")["pages"].sum()
    model = predicted[predicted["site"] == site].groupby("time_ns")["pages"].sum()
    both = pd.DataFrame({"measured": real, "predicted": model}).fillna(0.0)
    total = both["measured"].sum()
    if not total:
        return
    mean = both["measured"].mean()
    yield error_row(
        f"{site}_pages",
        "per time bin",
        measured=float(mean),
        predicted=float(both["predicted"].mean()),
        error=float((both["predicted"] - both["measured"]).abs().sum() / total),
        unit="pages, absolute errors summed",
        null_model=MEAN,
        null=float(mean),
        null_error=float((mean - both["measured"]).abs().sum() / total),
    )


def _extfrag_row(recording: Recording, predicted: Replay, measured: Measured) -> ErrorRow:
    known = was_recorded(recording, Event.EXTFRAG)
    real = float(measured.fallbacks["count"].sum()) if known else float("nan")
    model = float(predicted.fallbacks["count"].sum())
    return error_row(
        "extfrag_events",
        "all",
        measured=real,
        predicted=model,
        unit="events",
        null_model=NO_FALLBACK,
        null=0.0,
    )


def _placement_rows(predicted: Replay) -> Iterator[ErrorRow]:
    """Share of recorded allocations that the free-running model put where the kernel did."""
    objects = predicted.demand.objects
    recorded = objects["kind"] == RECORDED
    kernel = objects["pfn"][recorded]
    model = predicted.places[recorded]
    order = predicted.machine.pageblock_order
    pages = sum(zone.managed for zone in predicted.machine.zones)
    for metric, hit, chance in (
        ("placement_exact", kernel == model, 1 / pages),
        ("placement_block", kernel >> order == model >> order, (1 << order) / pages),
    ):
        share = float(hit.mean()) if len(hit) else float("nan")
        yield error_row(
            metric,
            "all",
            measured=1.0,
            predicted=share,
            unit="share",
            null_model=RANDOM_PAGE,
            null=chance,
        )


def _zone_row(predicted: Replay) -> ErrorRow:
    """Share of recorded allocations that the free-running model served from the kernel's zone."""
    machine = predicted.machine
    recorded = predicted.demand.objects["kind"] == RECORDED
    kernel = machine.zones_of_pages(predicted.demand.objects["pfn"][recorded])
    model = predicted.places[recorded]
    model = machine.zones_of_pages(np.where(model <= CHAINED, CHAINED - model, model))
    share = float((kernel == model).mean()) if len(kernel) else float("nan")
    used = np.bincount(kernel[kernel >= 0], minlength=1)
    most = float(used.max() / len(kernel)) if len(kernel) else float("nan")
    return error_row(
        "placement_zone",
        "all",
        measured=1.0,
        predicted=share,
        unit="share",
        null_model=MOST_USED_ZONE,
        null=most,
    )


def _unknown_rows(measured: Measured) -> Iterator[ErrorRow]:
    """What a literal replay cannot know, with what was measured of it."""
    counters = measured.vmstat.groupby("name")["value"].agg(["first", "last"])
    change = (counters["last"] - counters["first"]).astype(float)
    succeeded = change.get("thp_fault_alloc", np.nan)
    fell_back = change.get("thp_fault_fallback", np.nan)
    asked = succeeded + fell_back
    if asked > 0:
        yield error_row(
            "thp_success",
            "all",
            measured=succeeded / asked,
            predicted=float("nan"),
            unit="share",
            null_model="none",
            null=float("nan"),
        )


def _counter_rows(predicted: Replay, measured: Measured) -> Iterator[ErrorRow]:
    """Reclaim, compaction, stalls and huge pages, between the first and last sample of vmstat."""
    table = measured.vmstat
    times = np.unique(table["time_ns"].to_numpy())
    times = times[(times >= predicted.edges[0]) & (times <= predicted.edges[-1])]
    if len(times) < 2:
        return
    edges = np.linspace(times[0], times[-1], WINDOWS + 1)
    known = table[table["name"].isin(set(predicted.vmstat["name"]))]
    sides = (counter_quantities(each, edges) for each in (known, predicted.vmstat))
    for real, model in zip(*sides, strict=True):
        if not (np.isnan(real.value) or np.isnan(model.value)):
            yield error_row(
                real.metric,
                real.scope,
                measured=real.value,
                predicted=model.value,
                unit=real.unit,
                null_model=NO_PRESSURE,
                null=1.0 if real.unit == SHARE else 0.0,
            )


NEARER, FARTHER, AS_NULL = "nearer", "no nearer", "both right"
NOT_MEASURED = "not measured"
PREDICTED = "predicted"


def against_null(row: Any) -> str:
    """Return how a row of an error table stands to its null model.

    "nearer": the error is smaller. "no nearer": it is not. "both right": neither has one, so the
    row tells nothing. Where an error has no reference, as that of 3 blocks over none, distances
    are compared. "not measured": nothing can be compared. Rows of another kind, such as imposed
    ones, are that kind: they are no predictions.

    Args:
        row: with measured, predicted, null, error, null_error and kind.
    """
    if row.kind != PREDICTED:
        return str(row.kind)
    error, null_error = row.error, row.null_error
    if pd.isna(error) or pd.isna(null_error):
        error, null_error = row.predicted - row.measured, row.null - row.measured
    if pd.isna(error) or pd.isna(null_error):
        return NOT_MEASURED
    if not error and not null_error:
        return AS_NULL
    return NEARER if abs(error) < abs(null_error) else FARTHER
