"""An error budget: each error again, with the recording's own truth imposed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from pagealloc_model.allocator import layout as at
from pagealloc_model.allocator.state import maximal_buddies
from pagealloc_model.base.errors import UsageError
from pagealloc_model.base.table import Table
from pagealloc_model.base.text import NOT_AVAILABLE, WIDTH, ascii_only, paragraph
from pagealloc_model.diagnosis import true_state as rec
from pagealloc_model.diagnosis.recorded_moves import (
    pages_on_lists,
    recorded_moves,
    true_start,
)
from pagealloc_model.measured.stream import allocator_stream
from pagealloc_model.measured.transactions import zone_drains
from pagealloc_model.numbers.errors import error_table, held_to, records
from pagealloc_model.numbers.result_tables import is_few, labelled
from pagealloc_model.numbers.statistics import relative
from pagealloc_model.numbers.validation import validate_windows
from pagealloc_model.numbers.vocabulary import SERIES_WORDS, SUMMARISED
from pagealloc_model.predicted.demand.compaction import as_requests, zone_of_page
from pagealloc_model.predicted.demand.demand import reclaim_events
from pagealloc_model.predicted.demand.event_order import merged, new_events
from pagealloc_model.predicted.demand.reclaim import direct_reclaims
from pagealloc_model.predicted.growth import grown_demand
from pagealloc_model.predicted.prepared import Imposed, Prepared, prepare
from pagealloc_model.predicted.replay import replay_imposed
from pagealloc_model.predicted.start.evidence import start_counts
from pagealloc_model.recording.recorded_machine import start_snapshots
from pagealloc_model.recording.trace import tracepoints as tp
from pagealloc_model.recording.zone_map import ZoneMap

if TYPE_CHECKING:
    from pagealloc_model.numbers.validation import Validation
    from pagealloc_model.recording.recording import Recording
    from pagealloc_model.recording.snapshot import Snapshot


_RELEASE_PROBE = "pa:ha_unreserve"
RETRY_NS = 300_000
"""Time within which a request is served that finds its page right after reclaim (T10.17)."""


@dataclass(frozen=True, kw_only=True)
class Truth:
    """Something of the kernel's that a recording may tell, and a replay can be given.

    `decided`: the kernel decides it, so that it is the model's to predict. `put` puts it into a
    recording made ready; without the events that it `needs` it is not known.
    """

    name: str
    meaning: str
    decided: bool = True
    record: str
    put: Callable[[Recording, Prepared], Prepared]
    needs: tuple[str, ...] = ()

    def missing(self, recording: Recording) -> str:
        """Why a recording does not tell it, "" if it does."""
        if self.name == "boosts":
            infos = [shot.zoneinfo for shot in recording.dated_snapshots if shot.zoneinfo]
            printed = any(zone.boost is not None for info in infos for zone in info.zones)
            return "" if printed else "its snapshots print no boost"
        if self.name == "start" and recording.flags_at_start is None:
            return "no kpageflags"
        if self.name == "start" and np.any(recording.trace.percpu_refill >= 0):
            return ""
        lacking = [name for name in self.needs if not _table_recorded(recording, name)]
        return f"no {lacking[0]}" if lacking else ""


def _table_recorded(recording: Recording, name: str) -> bool:
    return name in (recording.meta.get("perf") or ()) or name in recording.trace.tables


def imposed(recording: Recording, prepared: Prepared, truths: tuple[Truth, ...]) -> Imposed:
    """Put truths into a recording made ready: what is then replayed is no prediction."""
    for truth in truths:
        prepared = truth.put(recording, prepared)
    return Imposed(names=tuple(truth.name for truth in truths), prepared=prepared)


def _in_recorded_zones(recording: Recording, prepared: Prepared) -> Prepared:
    """Let each request be served only by its recorded page's zone, if its tests pass (S3.1)."""
    demand = prepared.demand
    events = demand.events.copy()
    zone = prepared.machine.zones_of_pages(demand.objects["pfn"])
    operations = {at.ALLOC: at.ALLOC_IN_ZONE, at.HIDDEN_ALLOC: at.HIDDEN_ALLOC_IN_ZONE}
    for operation, in_zone in operations.items():
        rows = np.flatnonzero(events["operation"] == operation)
        place = zone[events["object"][rows]]
        rows, place = rows[place >= 0], place[place >= 0]
        events["operation"][rows] = in_zone
        events["offset"][rows] = place
    return _with_demand(prepared, events=events)


def without_compaction(prepared: Prepared) -> Prepared:
    """Take recorded compaction out of a demand: the reference that shows what it tells.

    What it took and an event frees later is an allocation that no event shows; the rest stays free.
    """
    demand = prepared.demand
    events = demand.events
    unfreed = (events["operation"] == at.ISOLATE_FREE) & (
        demand.objects["pfn"][np.maximum(events["object"], 0)] < 0
    )
    return _with_demand(prepared, events=as_requests(events[~unfreed], prepared.machine))


def _with_recorded_boosts(recording: Recording, prepared: Prepared) -> Prepared:
    """Set each zone's watermark boost to what a snapshot prints, at that instant (S1.7)."""
    rows = [
        (snapshot.time_ns, prepared.machine.zone_index(zone.node, zone.name), zone.boost)
        for snapshot in recording.dated_snapshots
        for zone in (snapshot.zoneinfo.zones if snapshot.zoneinfo else ())
        if zone.boost is not None and snapshot.time_ns >= prepared.demand.first_ns
    ]
    boosts = np.array([row for row in rows if row[1] >= 0], np.int64).reshape(-1, 3)
    time_ns, zone, pages = boosts.T
    return _with_extra(prepared, at.SET_BOOST, time_ns=time_ns, zone=zone, offset=pages)


def _with_recorded_drains(recording: Recording, prepared: Prepared) -> Prepared:
    """Drain whole lists when the kernel did (S4.9), and only then; overflows stay the model's."""
    zoneinfo = next(shot.zoneinfo for shot in recording.dated_snapshots if shot.zoneinfo)
    zones = ZoneMap.of(zoneinfo)
    drains, code = zone_drains(allocator_stream(recording.trace, with_probes=True), zones)
    machine = prepared.machine
    numbers = [zone_of_page(machine, zone.start_pfn or 0) for zone in zones.zones]
    zone = np.array(numbers, np.int64)[code]
    known = (zone >= 0) & (drains.value >= 0) & (drains.value < machine.nr_cpus)
    known &= (drains.cpu < machine.nr_cpus) & (drains.time_ns >= prepared.demand.first_ns)
    drains = drains.take(known)
    columns = {"time_ns": drains.time_ns, "offset": drains.value, "cpu": drains.cpu}
    drained = _with_extra(prepared, at.DRAIN_ZONE, zone=zone[known], **columns)
    return _with_demand(drained, drains_recorded=True)


def _with_recorded_releases(recording: Recording, prepared: Prepared) -> Prepared:
    """Release a reserved block, for a movable page, when the kernel did (S7.4), and only then."""
    calls = recording.trace.tables.get(_RELEASE_PROBE, {})
    done, time_ns, cpu = (
        np.asarray(calls.get(name, np.zeros(0, np.int64))) for name in ("done", "time_ns", "cpu")
    )
    known = (done != 0) & (time_ns >= prepared.demand.first_ns) & (cpu < prepared.machine.nr_cpus)
    request = {"zone": len(prepared.machine.zone_types) - 1, "migratetype": at.MOVABLE}
    released = _with_extra(
        prepared, at.RELEASE_BLOCK, time_ns=time_ns[known], cpu=cpu[known], **request
    )
    return _with_demand(released, releases_recorded=True)


def _with_timed_reclaims(recording: Recording, prepared: Prepared) -> Prepared:
    """Let a request's last reclaim be in vain if it is served later than a retry takes (T10.17)."""
    trace, demand = recording.trace, prepared.demand
    calls = direct_reclaims(trace)
    if calls is None:
        return prepared
    late = trace.time_ns[calls.row] - calls.end_ns > RETRY_NS
    is_last = np.diff(calls.row, append=-1) != 0
    calls = replace(calls, in_vain=np.where(is_last, late, calls.in_vain), number=0 * calls.number)
    others = demand.events["operation"] != at.RECLAIM_IN_VAIN
    others &= demand.events["operation"] != at.RECLAIM_BEGIN
    events = demand.events[others]
    events["bits"] &= np.uint32(~at.REQUEST_RECLAIMED & 0xFFFFFFFF)
    timed = reclaim_events(trace, prepared.machine, calls)
    return _with_demand(prepared, events=merged(events, timed, np.zeros(len(timed), int), np.zeros))


def with_true_start(recording: Recording, prepared: Prepared) -> Prepared:
    """Begin with pages where the first event on each shows that they were (T10.6).

    The limits of per-CPU lists stay as calibrated, and so do types of blocks that no event shows.
    Of pages that only old flags show free, as many stay as the start snapshot has room for, given
    what was asked for and freed up to it.
    """
    machine = prepared.machine
    moves, first = recorded_moves(recording.trace, machine)
    early, snapshot = start_snapshots(recording)
    counts = start_counts(machine, snapshot, recording.trace, early)
    calibrated = prepared.image
    types = calibrated.block_types
    image = true_start(machine, moves, first, recording.flags_at_start, counts, types)
    at_start = prepared.demand.objects[prepared.demand.at_start]
    free = image.free & np.repeat(types >= 0, 1 << machine.pageblock_order)[: len(image.free)]
    untouched = first[: len(free)] == rec.NOTHING
    room = _pages_at_start(snapshot, prepared) - pages_on_lists(machine, image.listed)
    pfns, orders = maximal_buddies(
        free & untouched, image.block_types, machine.pageblock_order, machine.max_order
    )
    small_first = np.argsort(orders, kind="stable")
    for number, zone in enumerate(machine.zones):
        excess = int(free[zone.start_pfn : zone.end_pfn].sum()) - int(room[number])
        in_zone = (pfns[small_first] >= zone.start_pfn) & (pfns[small_first] < zone.end_pfn)
        rows = small_first[in_zone]
        for pfn, order in zip(pfns[rows].tolist(), orders[rows].tolist(), strict=True):
            pages = min(1 << order, max(excess, 0))
            free[pfn : pfn + pages] = False
            excess -= pages
    image = replace(
        image,
        free=free,
        block_types=np.where(types < 0, types, image.block_types),
        pcp_high=calibrated.pcp_high,
        allocated_pfn=at_start["pfn"].astype(np.int32),
        allocated_order=at_start["order"].astype(np.int8),
        origin=("imposed: pages where their first event shows them", *image.origin),
    )
    demand = grown_demand(machine, prepared.demand, image.block_types)
    return replace(prepared, image=image, demand=demand)


def _pages_at_start(snapshot: Snapshot, prepared: Prepared) -> np.ndarray:
    """int64 by zone: pages free or on lists at the first event, by the snapshot and the demand."""
    machine, demand = prepared.machine, prepared.demand
    pages = np.zeros(len(machine.zones), np.int64)
    for zone in snapshot.zoneinfo.zones if snapshot.zoneinfo else ():
        number = machine.zone_index(zone.node, zone.name)
        if number >= 0:
            pages[number] = zone.free + sum(pageset.count for pageset in zone.pagesets)
    events = demand.events[: np.searchsorted(demand.events["time_ns"], snapshot.time_ns)]
    taking = (at.ALLOC, at.HIDDEN_ALLOC, at.ALLOC_IN_ZONE, at.HIDDEN_ALLOC_IN_ZONE)
    taking += (at.CAPTURE, at.ISOLATE_FREE)
    moved = events[np.isin(events["operation"], (*taking, at.FREE))]
    place = machine.zones_of_pages(demand.objects["pfn"][moved["object"]])
    unfreed = (place < 0) & (moved["operation"] == at.ISOLATE_FREE)
    place[unfreed] = moved["zone"][unfreed]
    sizes = np.int64(1) << moved["order"].astype(np.int64)
    sizes[moved["operation"] != at.FREE] *= -1
    known = place >= 0
    net = np.bincount(place[known], weights=sizes[known], minlength=len(pages))
    return pages - net.astype(np.int64)


def _with_extra(prepared: Prepared, operation: int, **columns: np.ndarray | int) -> Prepared:
    """The recording with more events of one kind, each before others of its time."""
    extra = new_events(operation, len(columns["time_ns"]), **columns)
    ranks = np.zeros(len(extra), np.int64)
    return _with_demand(prepared, events=merged(prepared.demand.events, extra, ranks, np.zeros))


def _with_demand(prepared: Prepared, **changes: object) -> Prepared:
    return replace(prepared, demand=replace(prepared.demand, **changes))


_PROBES = "kprobes (record --probes, as root)"
_OFTENER = "at shorter intervals (record --interval 0.1)"
TRUTHS = (
    Truth(
        name="zone",
        meaning="each request is served by the zone of its recorded page",
        record=f"free pages and boosts of each zone {_OFTENER}, on which the zone rests",
        put=_in_recorded_zones,
    ),
    Truth(
        name="drains",
        meaning="whole lists are drained when the kernel drained them (pa:drain_zone), and only "
        "then",
        record=f"{_PROBES}, compaction:* and vmscan:* events, which tell who drains",
        put=_with_recorded_drains,
        needs=("pa:drain_zone", "pa:pcp_bulk_free"),
    ),
    Truth(
        name="room",
        meaning="a block reserved for atomic requests is released when the kernel released one "
        "(pa:ha_unreserve), and only then",
        record=f"{_PROBES}, which tell when a retry after direct reclaim found nothing",
        put=_with_recorded_releases,
        needs=(_RELEASE_PROBE,),
    ),
    Truth(
        name="vain",
        meaning="a direct reclaim is in vain if its request is served later than a retry takes",
        record="vmscan:mm_vmscan_direct_reclaim_* (recorded by default)",
        put=_with_timed_reclaims,
        needs=(tp.DIRECT_RECLAIM_END,),
    ),
    Truth(
        name="boosts",
        meaning="watermark boosts are set to what each snapshot prints, at its instant",
        record=f"zoneinfo of a kernel that prints boosts, {_OFTENER}",
        put=_with_recorded_boosts,
    ),
    Truth(
        name="start",
        meaning="pages are at the start where their first event shows them",
        decided=False,
        record="kpageflags and page_owner just before the first event (as root)",
        put=with_true_start,
        needs=(tp.PAGE_ALLOC_ZONE_LOCKED,),
    ),
)
"""All that can be imposed."""


METRICS = (*SUMMARISED, "placement_zone")
"""Metrics that the budget covers, in its order."""

FREE, NO_COMPACTION, DECIDED, ALL, WINDOWS = "free", "no comp", "own", "all", "windows"
_WORTH_RECORDING = 0.1
"""Share of an error that one truth must remove before the table asks for it."""


@dataclass(frozen=True, kw_only=True)
class Run:
    """One run of the budget; it is no prediction where `truths` are imposed."""

    run: str
    meaning: str
    imposed: bool
    truths: tuple[str, ...] = ()
    forced: int = 0


_BUDGET_RULE = (
    "Errors as in the error table. A column marked * is imposed: the run was given what the kernel "
    "decided, so it is no prediction and says only where an error comes from."
)
_SHARES_RULE = (
    "Mean absolute error over scopes; of fewer than ten events there is none. model's: what is not "
    "missing; decided: the part of it that goes when the kernel's own decisions (zone, drains, "
    "boosts) are imposed; missing: what goes when information is imposed beside them (the start). "
    "The rest of the model's remains with all imposed. Negative: errors hid one another. most by: "
    "the one truth that removes most alone, if more than a tenth. windows: the error of the "
    "loss-free windows, each predicted by itself."
)


def _run_cell(row: pd.Series) -> str:
    """The error of a run; of few events the counts."""
    if is_few(row) and pd.notna(row["value"]):
        return f"{row['value']:.0f}/{row['measured']:.0f}"
    return _cell(row["error"], str(row["unit"]), "+")


def _cell(value: object, unit: str, sign: str) -> str:
    """An error in at most seven characters: percent, or as it is where it is absolute."""
    if pd.isna(value):
        return NOT_AVAILABLE
    amount = float(value)  # type: ignore[arg-type]
    if unit == "total variation":
        return f"{amount:.3f}"
    return f"{100 * amount:{sign}.{1 if abs(amount) < 10 else 0}f}%"


@dataclass(frozen=True, kw_only=True, eq=False)
class Budget:
    """Remains of each error when the recording's own truth is imposed.

    Attributes:
        recording: its name.
        runs: the free-running one first.
        errors: metric, scope, unit, run, imposed, measured, value, error, counted, null_error; one
            row for each metric, scope and run. `error` and `counted` are as the error table has
            them.
        shares: metric, error, models, decided, missing, windows, most_by: mean absolute error over
            scopes; its part that is the model's; of that, what imposing the kernel's decisions
            removes; the part that is missing information; the error in loss-free windows; the one
            truth that removes most, "" for none.
        absent: what cannot be imposed, by name: why, and what to record.
        record: what to record next time, by the names in `most_by`.
    """

    recording: str
    runs: tuple[Run, ...]
    errors: pd.DataFrame
    shares: pd.DataFrame
    absent: dict[str, str]
    record: dict[str, str]

    def to_text(self, *, width: int = WIDTH) -> str:
        """The budget as plain text, no line wider than `width`."""
        titles = {run.run: f"{run.run}*" if run.imposed else run.run for run in self.runs}
        runs = [name for name in titles if name != WINDOWS]
        rows: list[tuple[str, ...]] = []
        for (metric, scope), group in self.errors.groupby(["metric", "scope"], sort=False):
            unit, where = str(group["unit"].iloc[0]), "" if scope == "all" else f", {scope}"
            by_run = group.set_index("run").reindex(runs)
            cells = (_run_cell(row) for _, row in by_run.iterrows())
            rows.append((ascii_only(f"{metric}{where} ({unit})"), "", *cells))
        header = ("metric", "scope", *(titles[name] for name in runs))
        lines = [Table(header, rows).to_text(width), "", paragraph(_BUDGET_RULE, width=width), ""]
        explained = {titles[run.run]: run.meaning for run in self.runs}
        explained |= {name: f"not in this recording: {why}" for name, why in self.absent.items()}
        lines.append(labelled(explained, width, 10))
        columns = ["error", "models", "decided", "missing"] + [WINDOWS] * (WINDOWS in titles)
        units = dict(zip(self.errors["metric"], self.errors["unit"], strict=True))
        rows = []
        for row in self.shares.to_dict(orient="records"):
            cells = (_cell(row[name], str(units[row["metric"]]), "") for name in columns)
            rows.append(("", row["metric"], *cells, row["most_by"] or "-"))
        named = ("model's" if name == "models" else name for name in columns)
        shares = Table(("whose error", "metric", *named, "most by"), rows).to_text(width)
        lines += ["", shares, "", paragraph(_SHARES_RULE, width=width)]
        lines += ["", "Record next time:"] if self.record else []
        for name, text in self.record.items():
            lines.append(paragraph(text, label=f"- {name}: ", width=width))
        return "\n".join(lines) + "\n"

    def to_dict(self) -> dict[str, object]:
        """Content that `pagealloc validate --budget --json` prints as "budget"."""
        return {
            "runs": [asdict(run) | {"truths": list(run.truths)} for run in self.runs],
            "errors": records(self.errors),
            "shares": records(self.shares),
            "not_in_this_recording": self.absent,
            "record_next_time": self.record,
        }


def error_budget(validation: Validation, windows: Sequence[Validation] | None = None) -> Budget:
    """Replay a validated recording again and again, each time with more of its truth imposed.

    Only the free-running run, and those in loss-free windows, are predictions. The kernel's
    decisions (zone, drains, boosts) are the model's to predict, so an error that they remove is the
    model's; where pages were at the start is information, and so is what compaction took, which
    is demand: without it is a reference.

    Args:
        validation: of a literal replay by the model.
        windows: validations of the recording's loss-free windows; None validates them here.

    Raises:
        UsageError: the validation is of a kernel build or an elastic replay.
        RecordingError: a file of the recording cannot be read.
    """
    free = validation.replay
    if free.kernel or free.assumptions.reclaim == "elastic":
        raise UsageError(
            "a budget is of a literal replay by the model: validate with "
            "Assumptions(reclaim='literal'), without a kernel build"
        )
    recording, measured = validation.recording, validation.measured
    prepared = prepare(recording, free.rules, free.assumptions, free.seed)
    forced = free.divergence["forced"]
    runs = [Run(run=FREE, meaning="the prediction", imposed=False, forced=forced)]
    tables = [validation.errors]
    missing = {truth: truth.missing(recording) for truth in TRUTHS}
    absent = {truth.name: f"{why}; {truth.record}" for truth, why in missing.items() if why}
    options = {"rules": free.rules, "assumptions": free.assumptions, "seed": free.seed}

    def add(name: str, meaning: str, changed: Imposed, truths: tuple[str, ...]) -> None:
        again = replay_imposed(recording, changed, **options)
        forced = again.divergence["forced"]
        run = Run(run=name, meaning=meaning, imposed=bool(truths), truths=truths, forced=forced)
        runs.append(run)
        tables.append(error_table(held_to(recording, again, measured)[1]))

    if prepared.demand.isolated_pages or prepared.demand.captured:
        reference = Imposed(names=(NO_COMPACTION,), prepared=without_compaction(prepared))
        add(NO_COMPACTION, "a prediction without what compaction took: a reference", reference, ())
    elif not _table_recorded(recording, tp.ISOLATE_FREEPAGES):
        absent["compaction"] = f"no {tp.ISOLATE_FREEPAGES}; compaction:* events (record --events)"
    known = tuple(truth for truth in TRUTHS if truth.name not in absent)
    for truth in known:
        changed = imposed(recording, prepared, (truth,))
        add(truth.name, f"imposed: {truth.meaning}", changed, (truth.name,))
    decided = tuple(truth for truth in known if truth.decided)
    for name, together in ((DECIDED, decided), (ALL, known)):
        if len(together) < len(known) or name == ALL:
            changed = imposed(recording, prepared, together)
            add(name, f"imposed: {', '.join(changed.names)}", changed, changed.names)
    chosen = [_chosen(table) for table in tables]
    if recording.trace.losses.total:
        if windows is None:
            windows = [part for _, part in validate_windows(recording, **options)]
        if windows:
            meaning = "predictions of the loss-free windows alone"
            runs.append(Run(run=WINDOWS, meaning=meaning, imposed=False))
            chosen.append(_over_windows([_chosen(window.errors) for window in windows]))
        else:
            absent["losses"] = "no loss-free window has two snapshots; larger buffers (--buffer)"
    columns = ["metric", "scope", "unit", "run", "imposed", "measured", "value", "error", "counted"]
    errors = pd.concat(
        [
            table.assign(run=run.run, imposed=run.imposed, value=table["predicted"])
            for run, table in zip(runs, chosen, strict=True)
        ],
        ignore_index=True,
    )[[*columns, "null_error"]]
    order = errors["metric"].map({name: place for place, name in enumerate(METRICS)})
    errors = errors.iloc[np.argsort(order.to_numpy(), kind="stable")].reset_index(drop=True)
    shares = _shares(errors, [truth.name for truth in known])
    by_name = {truth.name: truth.record for truth in TRUTHS}
    return Budget(
        recording=recording.name,
        runs=tuple(runs),
        errors=errors,
        shares=shares,
        absent=absent,
        record={name: by_name[name] for name in dict.fromkeys(shares["most_by"]) if name},
    )


def _chosen(errors: pd.DataFrame) -> pd.DataFrame:
    """The budget's rows of an error table: totals of the whole machine, and states of zones."""
    scope, metric = errors["scope"], errors["metric"]
    rows = metric.isin(METRICS) & (scope != "per time bin") & ~scope.str.contains("cpu=")
    rows &= (scope != "all") | ~metric.isin(SERIES_WORDS)
    return errors[rows].reset_index(drop=True)


def _over_windows(tables: Sequence[pd.DataFrame]) -> pd.DataFrame:
    """One table of several windows': counts added up, other errors averaged."""
    together = pd.concat(tables, ignore_index=True)
    rows = []
    for (metric, _), parts in together.groupby(["metric", "scope"], sort=False):
        row = parts.iloc[0].to_dict()
        if metric.startswith(("refill", "drain", "extfrag")):
            row |= parts[["measured", "predicted", "counted"]].sum().to_dict()
            row["error"] = relative(row["predicted"], row["measured"])
            row["null_error"] = relative(parts["null"].sum(), row["measured"])
        else:
            for name in ("measured", "predicted", "error", "null_error"):
                row[name] = (parts[name].abs() if name == "error" else parts[name]).mean()
        rows.append(row)
    return pd.DataFrame(rows)


def _shares(errors: pd.DataFrame, truths: Sequence[str]) -> pd.DataFrame:
    """Whose each metric's error is; see `Budget.shares`."""
    errors = errors[~errors.apply(is_few, axis=1)]
    size = errors["error"].abs()
    means = size.groupby([errors["metric"], errors["run"]], sort=False).mean().unstack()
    means = means.loc[errors["metric"].unique()]
    error, left = means[FREE], means[ALL]
    decided = error - means.get(DECIDED, left)
    missing = error - decided - left
    removed = means[list(truths)].rsub(error, axis=0).fillna(-np.inf).assign(**{"": -np.inf})
    most = removed.idxmax(axis=1).where(removed.max(axis=1) > _WORTH_RECORDING * error, "")
    shares = {"error": error, "models": error - missing, "decided": decided, "missing": missing}
    shares |= {"windows": means.get(WINDOWS, np.nan), "most_by": most}
    return pd.DataFrame(shares).rename_axis("metric").reset_index()
