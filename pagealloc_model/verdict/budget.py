"""An error budget: each error again, with the recording's own truth imposed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from pagealloc_model.allocator import layout as at
from pagealloc_model.allocator.choices import true_state as rec
from pagealloc_model.allocator.state import maximal_buddies
from pagealloc_model.base.errors import UsageError
from pagealloc_model.base.result_tables import budget_table
from pagealloc_model.base.text import WIDTH
from pagealloc_model.measured.stream import allocator_stream
from pagealloc_model.measured.transactions import zone_drains
from pagealloc_model.predicted.demand.compaction import as_requests, zone_of_page
from pagealloc_model.predicted.demand.event_order import merged
from pagealloc_model.predicted.growth import grown_demand
from pagealloc_model.predicted.prepared import Imposed, Prepared, prepare
from pagealloc_model.predicted.replay import Replay, replay_imposed
from pagealloc_model.predicted.start.evidence import start_counts
from pagealloc_model.recording.machine import Machine
from pagealloc_model.recording.recorded_machine import start_snapshots
from pagealloc_model.recording.zone_map import ZoneMap
from pagealloc_model.verdict.choices.recorded_moves import recorded_moves
from pagealloc_model.verdict.choices.true_start import true_start
from pagealloc_model.verdict.loss_windows import loss_windows, recording_between
from pagealloc_model.verdict.statistics import relative
from pagealloc_model.verdict.validation import Scored, error_rows

if TYPE_CHECKING:
    from pagealloc_model.predicted.demand.demand import Demand
    from pagealloc_model.recording.recording import Recording
    from pagealloc_model.recording.snapshot import Snapshot
    from pagealloc_model.verdict.validation import Validation


_DRAIN_PROBE = "pa:drain_zone"
_BULK_FREE_PROBE = "pa:pcp_bulk_free"
_RELEASE_PROBE = "pa:ha_unreserve"
_REMOVALS = "kmem:mm_page_alloc_zone_locked"


@dataclass(frozen=True, kw_only=True)
class Truth:
    """Something of the kernel's that a recording may tell, and a replay can be given.

    Attributes:
        name: one word, as tables name it.
        meaning: what is imposed.
        decided: whether the kernel decides it, and the model too; else it is information about
            the machine that the model cannot have.
        record: what to record so that it, or what it rests on, is known better.
        missing: why a recording does not tell it, "" if it does.
        put: put it into a recording made ready; what is given is not changed.
    """

    name: str
    meaning: str
    decided: bool
    record: str
    missing: Callable[[Recording], str]
    put: Callable[[Recording, Prepared], Prepared]


def imposed(recording: Recording, prepared: Prepared, truths: tuple[Truth, ...]) -> Imposed:
    """Put truths into a recording made ready: what is then replayed is no prediction.

    Args:
        recording: an opened bundle, with its answers.
        prepared: the same recording for a free-running replay; it stays as it is.
        truths: those that the recording tells.
    """
    for truth in truths:
        prepared = truth.put(recording, prepared)
    return Imposed(names=tuple(each.name for each in truths), prepared=prepared)


def in_recorded_zones(recording: Recording, prepared: Prepared) -> Prepared:
    """Let each request be served by the zone of its recorded page only (S3.1).

    The zone's own watermark tests stand; the slow path works as before.
    """
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
    return _with_events(prepared, events)


def without_compaction(prepared: Prepared) -> Prepared:
    """Take recorded compaction out of a demand: the reference that shows what it tells.

    What it took and an event frees later is an allocation that no event shows; the rest stays
    free. Captured requests are refilled like others.
    """
    demand = prepared.demand
    events = demand.events
    unfreed = (events["operation"] == at.ISOLATE_FREE) & (
        demand.objects["pfn"][np.maximum(events["object"], 0)] < 0
    )
    return _with_events(prepared, as_requests(events[~unfreed], prepared.machine))


def with_recorded_boosts(recording: Recording, prepared: Prepared) -> Prepared:
    """Set each zone's watermark boost to what a snapshot prints, at that instant (S1.7)."""
    machine = prepared.machine
    rows = [
        (snapshot.time_ns, machine.zone_index(zone.node, zone.name), zone.boost)
        for snapshot in recording.dated_snapshots
        for zone in (snapshot.zoneinfo.zones if snapshot.zoneinfo else ())
        if zone.boost is not None and snapshot.time_ns >= prepared.demand.first_ns
    ]
    found = np.array([row for row in rows if row[1] >= 0], np.int64).reshape(-1, 3)
    return _with_extra(prepared, at.SET_BOOST, found[:, 0], found[:, 1], found[:, 2])


def with_recorded_drains(recording: Recording, prepared: Prepared) -> Prepared:
    """Drain whole lists when the kernel did (S4.9), and only then; overflows stay the model's."""
    zoneinfo = next(each.zoneinfo for each in recording.dated_snapshots if each.zoneinfo)
    zones = ZoneMap.of(zoneinfo)
    found, code = zone_drains(allocator_stream(recording.trace, with_probes=True), zones)
    machine = prepared.machine
    numbers = np.array(
        [zone_of_page(machine, each.start_pfn or 0) for each in zones.zones], np.int64
    )
    zone = numbers[code]
    known = (zone >= 0) & (found.value >= 0) & (found.value < machine.nr_cpus)
    known &= found.cpu < machine.nr_cpus
    known &= found.time_ns >= prepared.demand.first_ns
    drained = _with_extra(
        prepared,
        at.DRAIN_ZONE,
        found.time_ns[known],
        zone[known],
        found.value[known],
        found.cpu[known],
    )
    return replace(drained, demand=replace(drained.demand, drains_recorded=True))


def with_recorded_releases(recording: Recording, prepared: Prepared) -> Prepared:
    """Release a reserved block when the kernel released one (S7.4), and only then.

    It is released for a movable request of a page, as the kernel's requests are that reclaim.
    """
    calls = recording.trace.tables.get(_RELEASE_PROBE, {})
    done = np.flatnonzero(np.asarray(calls.get("done", np.zeros(0, np.int64))) != 0)
    time_ns = np.asarray(calls.get("time_ns", np.zeros(0, np.int64)))[done]
    cpu = np.asarray(calls.get("cpu", np.zeros(0, np.int64)))[done]
    known = (time_ns >= prepared.demand.first_ns) & (cpu < prepared.machine.nr_cpus)
    highest = np.full(int(known.sum()), len(prepared.machine.zone_types) - 1)
    released = _with_extra(
        prepared,
        at.RELEASE_BLOCK,
        time_ns[known],
        highest,
        np.zeros(len(highest), np.int64),
        cpu[known],
        at.MOVABLE,
    )
    return replace(released, demand=replace(released.demand, releases_recorded=True))


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
    room = _pages_at_start(snapshot, prepared) - _pages_listed(machine, image.listed)
    pfns, orders = maximal_buddies(
        free & untouched, image.block_types, machine.pageblock_order, machine.max_order
    )
    small_first = np.argsort(orders, kind="stable")
    for number, zone in enumerate(machine.zones):
        excess = int(free[zone.start_pfn : zone.end_pfn].sum()) - int(room[number])
        mine = small_first[
            (pfns[small_first] >= zone.start_pfn) & (pfns[small_first] < zone.end_pfn)
        ]
        for pfn, order in zip(pfns[mine].tolist(), orders[mine].tolist(), strict=True):
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


def _pages_listed(machine: Machine, listed: np.ndarray) -> np.ndarray:
    """int64 by zone: pages on per-CPU lists, of `LISTED` records."""
    sizes = np.int64(1) << listed["order"].astype(np.int64)
    count = np.bincount(listed["zone"], weights=sizes, minlength=len(machine.zones))
    return count.astype(np.int64)


_TAKING = (
    at.ALLOC,
    at.HIDDEN_ALLOC,
    at.ALLOC_IN_ZONE,
    at.HIDDEN_ALLOC_IN_ZONE,
    at.CAPTURE,
    at.ISOLATE_FREE,
)


def _pages_at_start(snapshot: Snapshot, prepared: Prepared) -> np.ndarray:
    """int64 by zone: pages free or on lists at the first event, from the start snapshot.

    Less what was freed up to the snapshot, and more what was taken.
    """
    machine, demand = prepared.machine, prepared.demand
    pages = np.zeros(len(machine.zones), np.int64)
    for zone in snapshot.zoneinfo.zones if snapshot.zoneinfo else ():
        number = machine.zone_index(zone.node, zone.name)
        if number >= 0:
            pages[number] = zone.free + sum(each.count for each in zone.pagesets)
    events = demand.events[: np.searchsorted(demand.events["time_ns"], snapshot.time_ns)]
    taken = np.isin(events["operation"], _TAKING)
    moved = events[taken | (events["operation"] == at.FREE)]
    place = machine.zones_of_pages(demand.objects["pfn"][moved["object"]])
    unfreed = (place < 0) & (moved["operation"] == at.ISOLATE_FREE)
    place[unfreed] = moved["zone"][unfreed]
    sizes = np.int64(1) << moved["order"].astype(np.int64)
    sizes[moved["operation"] != at.FREE] *= -1
    known = place >= 0
    net = np.bincount(place[known], weights=sizes[known], minlength=len(pages))
    return pages - net.astype(np.int64)


def _with_extra(
    prepared: Prepared,
    operation: int,
    time_ns: np.ndarray,
    zone: np.ndarray,
    offset: np.ndarray,
    cpu: np.ndarray | None = None,
    migratetype: int = 0,
) -> Prepared:
    """The recording with more events of one kind, each before others of its time."""
    extra = np.zeros(len(time_ns), at.EVENT)
    extra["operation"] = operation
    extra["object"] = -1
    extra["time_ns"] = time_ns
    extra["zone"] = zone
    extra["offset"] = offset
    extra["cpu"] = 0 if cpu is None else cpu
    extra["migratetype"] = migratetype
    ranks = np.zeros(len(extra), np.int64)
    return _with_events(prepared, merged(prepared.demand.events, extra, ranks, np.zeros))


def _with_events(prepared: Prepared, events: np.ndarray) -> Prepared:
    demand: Demand = replace(prepared.demand, events=events)
    return replace(prepared, demand=demand)


def _lacks_boosts(recording: Recording) -> str:
    zones = [z for each in recording.dated_snapshots if each.zoneinfo for z in each.zoneinfo.zones]
    if any(zone.boost is not None for zone in zones):
        return ""
    return "its snapshots print no boost"


def _lacks_drains(recording: Recording) -> str:
    tables, asked = recording.trace.tables, recording.meta.get("perf") or ()
    for name in (_DRAIN_PROBE, _BULK_FREE_PROBE):
        if name not in tables and name not in asked:
            return f"no {name}"
    return ""


def _lacks_releases(recording: Recording) -> str:
    asked = recording.meta.get("perf") or ()
    shown = _RELEASE_PROBE in recording.trace.tables or _RELEASE_PROBE in asked
    return "" if shown else f"no {_RELEASE_PROBE}"


def _lacks_start(recording: Recording) -> str:
    if recording.flags_at_start is None:
        return "no kpageflags"
    asked = recording.meta.get("perf") or ()
    shown = np.any(recording.trace.percpu_refill >= 0) or _REMOVALS in asked
    return "" if shown else f"no {_REMOVALS}"


TRUTHS = (
    Truth(
        name="zone",
        meaning="each request is served by the zone of its recorded page",
        decided=True,
        record="free pages and boosts of each zone at shorter intervals (record --interval 0.1), "
        "on which the zone rests",
        missing=lambda _: "",
        put=in_recorded_zones,
    ),
    Truth(
        name="drains",
        meaning="whole lists are drained when the kernel drained them (pa:drain_zone), and only "
        "then",
        decided=True,
        record="kprobes (record --probes, as root), compaction:* and vmscan:* events, which tell "
        "who drains",
        missing=_lacks_drains,
        put=with_recorded_drains,
    ),
    Truth(
        name="room",
        meaning="a block reserved for atomic requests is released when the kernel released one "
        "(pa:ha_unreserve), and only then",
        decided=True,
        record="kprobes (record --probes, as root), which tell when a retry after direct reclaim "
        "found nothing",
        missing=_lacks_releases,
        put=with_recorded_releases,
    ),
    Truth(
        name="boosts",
        meaning="watermark boosts are set to what each snapshot prints, at its instant",
        decided=True,
        record="zoneinfo of a kernel that prints boosts, at shorter intervals (record --interval "
        "0.1)",
        missing=_lacks_boosts,
        put=with_recorded_boosts,
    ),
    Truth(
        name="start",
        meaning="pages are at the start where their first event shows them",
        decided=False,
        record="kpageflags and page_owner just before the first event (as root)",
        missing=_lacks_start,
        put=with_true_start,
    ),
)
"""What can be imposed."""


METRICS = (
    "refill_pages",
    "refill_transactions",
    "drain_pages",
    "drain_transactions",
    "free_pages",
    "order_distribution_tv",
    "highatomic_blocks",
    "extfrag_events",
    "placement_zone",
)
"""Metrics that the budget covers, in its order."""

FREE, NO_COMPACTION, DECIDED, ALL, WINDOWS = "free", "no comp", "own", "all", "windows"
_ISOLATIONS = "compaction:mm_compaction_isolate_freepages"
_WORTH_RECORDING = 0.1
"""Share of an error that one truth must remove before the table asks for it."""


@dataclass(frozen=True, kw_only=True)
class Run:
    """One run of the budget.

    Attributes:
        name: column of the table.
        meaning: what it is, in words.
        truths: names of what is imposed; none for a prediction.
        forced: requests that the run could serve without watermarks only.
    """

    name: str
    meaning: str
    truths: tuple[str, ...] = ()
    forced: int = 0

    @property
    def is_imposed(self) -> bool:
        """Whether it is no prediction."""
        return bool(self.truths)

    def to_dict(self) -> dict[str, object]:
        """Return what JSON says of it."""
        return {
            "run": self.name,
            "meaning": self.meaning,
            "imposed": self.is_imposed,
            "truths": list(self.truths),
            "forced": self.forced,
        }


@dataclass(frozen=True, kw_only=True, eq=False)
class Budget:
    """What remains of each error when the recording's own truth is imposed.

    Attributes:
        recording: its name.
        runs: the free-running one first.
        errors: metric, scope, unit, run, imposed, measured, value, error, null_error; one row for
            each metric, scope and run. `error` is as the error table has it.
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
        """Return the budget as plain text, no line wider than `width`."""
        meanings = {each.name: each.meaning for each in self.runs}
        return budget_table(
            self.errors, self.shares, meanings, self.absent, self.record, width=width
        )

    def to_dict(self) -> dict[str, object]:
        """Return what `pagealloc validate --budget --json` prints as "budget"."""
        return {
            "runs": [each.to_dict() for each in self.runs],
            "errors": _records(self.errors),
            "shares": _records(self.shares),
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
        raise UsageError("a budget is of a literal replay by the model, not of a kernel build")
    recording = validation.recording
    prepared = prepare(recording, free.rules, free.assumptions, free.seed)
    runs = [Run(name=FREE, meaning="the prediction", forced=free.divergence["forced"])]
    tables = [_chosen(validation.errors)]
    absent = {
        each.name: f"{why}; {each.record}" for each in TRUTHS if (why := each.missing(recording))
    }

    def add(name: str, meaning: str, changed: Imposed, truths: tuple[str, ...]) -> None:
        again = replay_imposed(
            recording, changed, rules=free.rules, assumptions=free.assumptions, seed=free.seed
        )
        runs.append(
            Run(name=name, meaning=meaning, truths=truths, forced=again.divergence["forced"])
        )
        tables.append(_chosen(_errors(validation, again)))

    if prepared.demand.isolated_pages or prepared.demand.captured:
        reference = Imposed(names=(NO_COMPACTION,), prepared=without_compaction(prepared))
        add(NO_COMPACTION, "a prediction without what compaction took: a reference", reference, ())
    elif not _was_recorded(validation, _ISOLATIONS):
        absent["compaction"] = f"no {_ISOLATIONS}; compaction:* events (record --events)"
    told = [each for each in TRUTHS if each.name not in absent]
    for truth in told:
        changed = imposed(recording, prepared, (truth,))
        add(truth.name, f"imposed: {truth.meaning}", changed, (truth.name,))
    decided = tuple(each for each in told if each.decided)
    for name, together in ((DECIDED, decided), (ALL, tuple(told))):
        if len(together) < len(told) or name == ALL:
            words = ", ".join(each.name for each in together)
            changed = imposed(recording, prepared, together)
            add(name, f"imposed: {words}", changed, tuple(each.name for each in together))
    if recording.trace.losses.total:
        windows = _validated_windows(validation) if windows is None else windows
        if windows:
            runs.append(Run(name=WINDOWS, meaning="predictions of the loss-free windows alone"))
            tables.append(_over_windows([_chosen(each.errors) for each in windows]))
        else:
            absent["losses"] = "no loss-free window has two snapshots; larger buffers (--buffer)"
    errors = _together(runs, tables)
    shares = _shares(errors, [each.name for each in told])
    named = {each.name: each.record for each in TRUTHS}
    return Budget(
        recording=recording.name,
        runs=tuple(runs),
        errors=errors,
        shares=shares,
        absent=absent,
        record={name: named[name] for name in dict.fromkeys(shares["most_by"]) if name},
    )


def _errors(validation: Validation, again: Replay) -> pd.DataFrame:
    """The error table of another replay of a validated recording."""
    recording = validation.recording
    _, start = start_snapshots(recording)
    last = recording.trace.demand_span_ns[1]
    scored = Scored.of(validation.measured, again, start_ns=start.time_ns, end_ns=last)
    return error_rows(recording, again, validation.measured, scored)


def _chosen(errors: pd.DataFrame) -> pd.DataFrame:
    """The budget's rows of an error table: of the whole machine and of zones."""
    scope = errors["scope"]
    kept = errors["metric"].isin(METRICS) & (scope != "per time bin")
    kept &= ~scope.str.contains("cpu=")
    return errors[kept].reset_index(drop=True)


def _was_recorded(validation: Validation, name: str) -> bool:
    bundle = validation.recording
    return name in bundle.trace.tables or name in (bundle.meta.get("perf") or ())


def _validated_windows(validation: Validation) -> list[Validation]:
    from pagealloc_model.verdict.validation import validate

    free, recording = validation.replay, validation.recording
    return [
        validate(
            recording_between(recording, window),
            rules=free.rules,
            assumptions=free.assumptions,
            seed=free.seed,
        )
        for window in loss_windows(recording)
        if not window.unusable
    ]


def _over_windows(tables: Sequence[pd.DataFrame]) -> pd.DataFrame:
    """One table of several windows': counts added up, other errors averaged."""
    together = pd.concat(tables, ignore_index=True)
    rows = []
    for (metric, scope), mine in together.groupby(["metric", "scope"], sort=False):
        row = mine.iloc[0].to_dict()
        if metric.startswith(("refill", "drain", "extfrag")):
            row["measured"], row["predicted"] = mine["measured"].sum(), mine["predicted"].sum()
            row["error"] = relative(row["predicted"], row["measured"])
            row["null_error"] = relative(mine["null"].sum(), row["measured"])
        else:
            for name in ("measured", "predicted", "error", "null_error"):
                row[name] = mine[name].abs().mean() if name == "error" else mine[name].mean()
        rows.append({**row, "metric": metric, "scope": scope})
    return pd.DataFrame(rows)


def _together(runs: Sequence[Run], tables: Sequence[pd.DataFrame]) -> pd.DataFrame:
    """The rows of all runs, metric by metric."""
    parts = [
        table.assign(run=run.name, imposed=run.is_imposed, value=table["predicted"])
        for run, table in zip(runs, tables, strict=True)
    ]
    columns = ["metric", "scope", "unit", "run", "imposed", "measured", "value", "error"]
    both = pd.concat(parts, ignore_index=True)[[*columns, "null_error"]]
    order = both["metric"].map({name: place for place, name in enumerate(METRICS)})
    return both.iloc[np.argsort(order.to_numpy(), kind="stable")].reset_index(drop=True)


def _shares(errors: pd.DataFrame, truths: Iterable[str]) -> pd.DataFrame:
    """Whose each metric's error is; see `Budget.shares`."""
    truths = list(truths)
    size = errors["error"].abs()
    means = size.groupby([errors["metric"], errors["run"]], sort=False).mean().unstack()
    rows = []
    for metric in errors["metric"].unique():
        mean = means.loc[metric]
        error, left = float(mean[FREE]), float(mean[ALL])
        decided = error - float(mean.get(DECIDED, left))
        missing = error - decided - left
        removed = {name: error - float(mean[name]) for name in truths}
        most = max(removed, key=lambda name: removed[name], default="")
        worth = most and removed[most] > _WORTH_RECORDING * error
        rows.append(
            {
                "metric": metric,
                "error": error,
                "models": error - missing,
                "decided": decided,
                "missing": missing,
                "windows": float(mean.get(WINDOWS, np.nan)),
                "most_by": most if worth else "",
            }
        )
    return pd.DataFrame(rows)


def _records(frame: pd.DataFrame) -> list[dict[str, object]]:
    return frame.astype(object).where(frame.notna(), None).to_dict(orient="records")
