"""Placement fidelity: every choice the kernel made, judged alone from the true state before it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from pagealloc_model.allocator import layout as at
from pagealloc_model.allocator.choices import judging
from pagealloc_model.allocator.choices import true_state as rec
from pagealloc_model.allocator.choices import true_state as true
from pagealloc_model.allocator.choices.judging import Judged
from pagealloc_model.allocator.choices.resync import resync
from pagealloc_model.allocator.state import install, make_state
from pagealloc_model.base.errors import CorruptStateError, PolicyError
from pagealloc_model.base.text import count_of
from pagealloc_model.measured.costs import tick_phases, tick_steps
from pagealloc_model.measured.rules import choose_rules
from pagealloc_model.policy.policy import Assumptions
from pagealloc_model.predicted.demand.rows import realtime_tasks, with_reserve
from pagealloc_model.predicted.start.evidence import StartCounts, start_counts
from pagealloc_model.recording.machine import Machine, bare_machine
from pagealloc_model.recording.recorded_machine import (
    recorded_machine,
    recorded_policy,
    start_snapshots,
)
from pagealloc_model.recording.trace.columns import EVENT_NAMES, Event
from pagealloc_model.verdict.choices.recorded_moves import (
    in_time_order,
    isolation_steps,
    reclaim_steps,
    recorded_moves,
    snapshot_steps,
    tracked,
    unseen_pushes,
    with_notes,
)
from pagealloc_model.verdict.choices.true_start import true_start
from pagealloc_model.verdict.errors import ErrorRow, error_row

if TYPE_CHECKING:
    from pagealloc_model.policy.kernel_rules import KernelRules
    from pagealloc_model.recording.recording import Recording
    from pagealloc_model.recording.trace.columns import Trace


KERNEL_FUNCTIONS = {
    "zone": "get_page_from_freelist",
    "pcp_pop": "__rmqueue_pcplist",
    "refill_when": "__rmqueue_pcplist",
    "refill_size": "nr_pcp_alloc",
    "buddy_pfn": "__rmqueue_smallest",
    "drain_when": "nr_pcp_high",
    "drain_size": "nr_pcp_free, decay_pcp_high",
    "drain_page": "free_pcppages_bulk",
    "fallback": "__rmqueue_claim, __rmqueue_steal",
}
"""By choice, where the kernel makes it."""

MISSES_TOLD = 10
"""Misses of each choice that are printed."""


EVENT_OF = {event: name for name, event in EVENT_NAMES.items()}

NULL_MODELS = {
    "zone": "always the preferred zone",
    "pcp_pop": "last in, first out, fed with refills and drains",
    "refill_when": "no refill",
    "refill_size": "pcp->batch",
    "buddy_pfn": "the page after the last one taken for this type",
    "drain_when": "no drain",
    "drain_size": "pcp->batch",
    "drain_page": "oldest page of that order and type in the null model of pcp_pop",
    "fallback": "the same kind as last time",
}
"""By choice, what its null model says."""

_LISTS = (
    true.REPAIR_OTHER_LIST,
    true.REPAIR_OTHER_CPU,
    true.REPAIR_HIDDEN,
    true.REPAIR_ASTRAY,
)
_BUDDY = (true.REPAIR_IN_BUDDY, true.REPAIR_NOWHERE, true.REPAIR_START, true.REPAIR_TYPE)
RESTS_ON = {
    "zone": (),
    "pcp_pop": _LISTS,
    "refill_when": _LISTS,
    "refill_size": (true.REPAIR_TUNING,),
    "buddy_pfn": _BUDDY,
    "drain_when": (true.REPAIR_TUNING,),
    "drain_size": (true.REPAIR_TUNING,),
    "drain_page": _LISTS,
    "fallback": _BUDDY,
}
"""By choice, the repairs of what it is judged from: lists, free buddies or a list's limits."""

ORDER_CLASSES = ("0", "1 to 3", "4 and more")
PAGE_CHOICES = ("pcp_pop", "buddy_pfn", "drain_page")
ALLOCATED = "pcp_pop"
METRIC = "placement_exact_resync"


def _choices_table(
    tally: np.ndarray, repairs: Sequence[int], migratetypes: Sequence[str], nr_cpus: int
) -> pd.DataFrame:
    """Rows of `Placement.choices`, from counts of repairs by kind."""
    rows = []
    for number, choice in enumerate(judging.CHOICES):
        for scope, outcomes in _scopes(tally[number], migratetypes, nr_cpus):
            if scope == "all" or outcomes[[judging.JUDGED, judging.UNJUDGED]].any():
                row = _row(choice, outcomes) | {"scope": scope}
                if scope == "all":
                    row["repairs"] = sum(repairs[kind] for kind in RESTS_ON[choice])
                rows.append(row)
    columns = ["choice", "scope", "judged", "hits", "share", "block_share"]
    columns += ["null_model", "null_share", "unjudged", "repairs"]
    return pd.DataFrame(rows, columns=columns).astype({"repairs": "Int64"})


def _scopes(
    slots: np.ndarray, migratetypes: Sequence[str], nr_cpus: int
) -> Iterator[tuple[str, np.ndarray]]:
    by_type = slots[: judging.TYPE_SLOTS].reshape(at.ORDERS, at.MIGRATETYPES, judging.OUTCOMES)
    yield "all", by_type.sum(axis=(0, 1))
    for order in range(at.ORDERS):
        yield f"order={order}", by_type[order].sum(axis=0)
    for number, name in enumerate(migratetypes[: at.MIGRATETYPES]):
        yield f"migratetype={name}", by_type[:, number].sum(axis=0)
    for cpu in range(nr_cpus):
        yield f"cpu={cpu}", slots[judging.OTHER_SLOTS + cpu]


def _row(choice: str, outcomes: np.ndarray) -> dict[str, object]:
    judged = int(outcomes[judging.JUDGED])

    def share(outcome: int) -> float:
        return float(outcomes[outcome]) / judged if judged else float("nan")

    return {
        "choice": choice,
        "judged": judged,
        "hits": int(outcomes[judging.HITS]),
        "share": share(judging.HITS),
        "block_share": share(judging.BLOCK_HITS) if choice in PAGE_CHOICES else float("nan"),
        "null_model": NULL_MODELS[choice],
        "null_share": share(judging.NULL_HITS),
        "unjudged": int(outcomes[judging.UNJUDGED]),
    }


def _zone_classes(tally: np.ndarray, migratetypes: Sequence[str]) -> pd.DataFrame:
    """Rows of `Placement.zone_classes`."""
    first = judging.TYPE_SLOTS + judging.TIME_BINS
    slots = tally[judging.ZONE, first : first + judging.CLASS_SLOTS]
    limits = (0, *judging.MARGINS)
    shape = (judging.ORDER_CLASSES, at.PCP_TYPES, 2, len(limits), judging.OUTCOMES)
    rows = []
    for place, outcomes in zip(np.ndindex(shape[:-1]), slots, strict=True):
        order, migratetype, atomic, margin = place
        if outcomes[judging.JUDGED]:
            row = _row("zone", outcomes)
            named = {
                "orders": ORDER_CLASSES[order],
                "migratetype": migratetypes[migratetype],
                "atomic": bool(atomic),
                "margin_at_least": limits[margin],
            }
            kept = ("judged", "hits", "share", "null_model", "null_share")
            rows.append(named | {name: row[name] for name in kept})
    return pd.DataFrame(rows)


def _over_time(tally: np.ndarray, seconds: float) -> pd.DataFrame:
    """Rows of `Placement.over_time` of a recording so many seconds long."""
    rows = []
    for number, choice in enumerate(judging.CHOICES):
        for each in range(judging.TIME_BINS):
            outcomes = tally[number, judging.TYPE_SLOTS + each]
            if outcomes.any():
                when = each * seconds / judging.TIME_BINS
                rows.append({"time_s": when} | _row(choice, outcomes))
    columns = ["choice", "time_s", "judged", "hits", "share", "null_share", "unjudged"]
    return pd.DataFrame(rows, columns=columns)


def _misses_table(kept: np.ndarray, steps: np.ndarray, trace: Trace) -> pd.DataFrame:
    """The misses kept, in order of time by choice."""
    parts = []
    for number, choice in enumerate(judging.CHOICES):
        count = min(int(kept[number, judging.MISSES_KEPT, 0]), judging.MISSES_KEPT)
        rows = kept[number, :count]
        at_step = steps[rows[:, judging.MISS_STEP]]
        where = at_step["row"]
        words = {
            name: rows[:, judging.MISS_WORDS + place]
            for place, (name, _) in enumerate(judging.MISS_PAGESET)
        }
        parts.append(
            pd.DataFrame(
                {
                    "choice": choice,
                    "kernel_function": KERNEL_FUNCTIONS[choice],
                    "event": [EVENT_OF[Event(event)] for event in trace.event[where]],
                    "row": where.astype(np.int64),
                    "time_s": (trace.time_ns[where] - trace.demand_span_ns[0]) / 1e9,
                    "cpu": at_step["cpu"].astype(np.int64),
                    "pid": at_step["pid"].astype(np.int64),
                    "task": [trace.comms.get(int(pid), "") for pid in at_step["pid"]],
                    "order": at_step["order"].astype(np.int64),
                    "migratetype": at_step["migratetype"].astype(np.int64),
                    "predicted": rows[:, judging.MISS_PREDICTED],
                    "actual": rows[:, judging.MISS_ACTUAL],
                    **words,
                    "below_high": rows[:, judging.MISS_BELOW_HIGH] != 0,
                    "reclaim_active": rows[:, judging.MISS_RECLAIM] != 0,
                }
            )
        )
    return pd.concat(parts, ignore_index=True)


def _metric_rows(choices: pd.DataFrame) -> list[ErrorRow]:
    """`placement_exact_resync`: allocations by scope, then every choice of its own."""
    rows = []
    for row in choices.itertuples():
        overall = row.scope == "all"
        if not row.judged or not (overall or row.choice == ALLOCATED):
            continue
        scopes = [row.scope] if row.choice == ALLOCATED else []
        if overall:
            scopes.append(f"choice={row.choice}")
        for scope in scopes:
            rows.append(
                error_row(
                    METRIC,
                    scope,
                    measured=1.0,
                    predicted=row.share,
                    unit="share",
                    null_model=row.null_model if scope.startswith("choice=") else "LIFO lists",
                    null=row.null_share,
                )
            )
    return rows


def _records(table: pd.DataFrame) -> list[dict[str, object]]:
    """Rows as plain values, None for what is not known."""
    return table.astype(object).where(table.notna(), None).to_dict(orient="records")


@dataclass(frozen=True, kw_only=True, eq=False)
class Placement:
    """How many of the kernel's choices the model makes, each from the kernel's own state.

    Attributes:
        machine: zones and CPUs.
        trace: the recording's events.
        steps: `STEP` records in time order, as judged.
        tally: int64, shape (choices, slots, OUTCOMES).
        kept_misses: int64, shape (choices, MISSES_KEPT + 1, MISS_COLUMNS).
        repairs: corrections of the state that no event explains, by what they correct.
        unseen_frees: frees known only from what happened to their pages next.
        nested: moves of interrupts that found their CPU's lists locked.
        notes: what limits the judging, one line each.
    """

    machine: Machine
    trace: Trace
    steps: np.ndarray
    tally: np.ndarray
    kept_misses: np.ndarray
    repairs: dict[str, int]
    unseen_frees: int
    nested: int
    notes: tuple[str, ...]

    @cached_property
    def choices(self) -> pd.DataFrame:
        """choice, scope, judged, hits, share, block_share, null_model, null_share, unjudged.

        `repairs`, known for scope `all` only, counts corrections of what a choice is judged from.
        """
        repairs = [self.repairs[name] for name in true.REPAIR_NAMES]
        machine = self.machine
        return _choices_table(self.tally, repairs, machine.migratetypes, machine.nr_cpus)

    @cached_property
    def over_time(self) -> pd.DataFrame:
        """choice, time_s (of a bin's start), judged, hits, share, null_share, unjudged."""
        first, last = self.trace.demand_span_ns
        return _over_time(self.tally, (last - first) / 1e9)

    @cached_property
    def zone_classes(self) -> pd.DataFrame:
        """Which zone: orders, migratetype, atomic, margin_at_least, judged, hits and shares.

        The margin is the least distance, pages, of a watermark test's two sides in the walk.
        """
        return _zone_classes(self.tally, self.machine.migratetypes)

    @cached_property
    def misses(self) -> pd.DataFrame:
        """The first misses of each choice, with the state they arose from."""
        return _misses_table(self.kept_misses, self.steps, self.trace)

    def metric_rows(self) -> list[ErrorRow]:
        """Rows of the error table: shares of allocations whose page is named, and of choices."""
        return _metric_rows(self.choices)

    def to_dict(self) -> dict[str, object]:
        """What `pagealloc validate --resync --json` adds."""
        return {
            "choices": _records(self.choices),
            "zone_classes": _records(self.zone_classes),
            "choices_over_time": _records(self.over_time),
            "missed_choices": _records(self.misses.groupby("choice", sort=False).head(MISSES_TOLD)),
            "resync_repairs": self.repairs,
            "resync_notes": list(self.notes),
        }


def judge_placement(
    recording: Recording,
    *,
    rules: KernelRules | str | None = None,
    assumptions: Assumptions | None = None,
) -> Placement:
    """Judge every choice of a recording from the true state before it.

    The recording is applied as it is; before each event that embodies a choice, the model's own
    functions say what they would have done. Looking ahead is what makes the state true, so a
    choice whose answer came from there is left unjudged.

    Args:
        recording: an opened recording; snapshots and kprobes let more be judged, events suffice.
        rules: as `choose_rules` takes them.
        assumptions: None for the defaults.

    Raises:
        PolicyError: no rules for the recording's kernel, or one whose free lists do not match
            block types, which the true state needs.
        UsageError: no event names a page.
        RecordingError: a file of the recording cannot be read.
        CorruptStateError: the recorded moves contradict one another.
    """
    chosen = choose_rules(recording, rules).rules
    if not chosen.lists_match_blocks:
        raise PolicyError(
            f"{recording.path}: choices are judged for kernels from 6.12 on; before, a page's list "
            "does not follow from its block's type (S6.5)"
        )
    assumptions = assumptions or Assumptions()
    trace = recording.trace
    machine = _machine(recording)
    moves, first = recorded_moves(trace, machine)
    realtime = np.isin(moves["pid"], sorted(realtime_tasks(recording)))
    moves["gfp"][realtime] = with_reserve(moves["gfp"][realtime])
    state = make_state(machine, chosen, recorded_policy(recording), assumptions)
    image = true_start(machine, moves, first, recording.flags_at_start, _counts(recording, machine))
    install(state, image)
    st = with_notes(state)
    unseen = unseen_pushes(moves, replace(state, st=st).arrays(), machine)
    isolated = isolation_steps(trace, machine, moves)
    beside = [
        snapshot_steps(recording, machine, moves, isolated, st),
        reclaim_steps(trace, machine),
        isolated,
    ]
    phases = tick_phases(trace, moves)
    steps = in_time_order(moves, [*beside, tick_steps(trace, phases, machine.nr_cpus)], unseen)
    slots = judging.OTHER_SLOTS + machine.nr_cpus
    kinds = len(judging.CHOICES)
    tally = np.zeros((kinds, slots, judging.OUTCOMES), np.int64)
    misses = np.zeros((kinds, judging.MISSES_KEPT + 1, judging.MISS_COLUMNS), np.int64)
    track = tracked(state, st)
    judged = Judged(steps, track, tally, misses)
    done = resync(replace(state, st=st).arrays(), judged, 0, len(steps))
    if done < len(steps):
        row = int(steps["row"][done])
        seconds = (int(trace.time_ns[row]) - trace.demand_span_ns[0]) / 1e9
        raise CorruptStateError(
            f"{recording.path}: at {seconds:.6f} s (event {row}) page frame "
            f"{int(st[at.CORRUPT_AT]) - 1} is on a list that does not lead on; earlier events are "
            "missing, so choices cannot be judged alone: validate without --resync"
        )
    repairs = dict(zip(true.REPAIR_NAMES, st[-true.REPAIRS :].tolist(), strict=True))
    nested = int(np.count_nonzero(steps["flags"] & rec.NESTED))
    return Placement(
        machine=machine,
        trace=trace,
        steps=steps,
        tally=tally,
        kept_misses=misses,
        repairs=repairs,
        unseen_frees=len(unseen),
        nested=nested,
        notes=(*_notes(recording, phases, len(unseen), nested), *image.origin),
    )


def _machine(recording: Recording) -> Machine:
    """The recorded machine, or what is always true of one if no snapshot describes it."""
    if any(snapshot.zoneinfo is not None for snapshot in recording.snapshots):
        return recorded_machine(recording)
    return bare_machine(recording.trace)


def _counts(recording: Recording, machine: Machine) -> StartCounts | None:
    """What the start snapshot counts, None if no snapshot was taken."""
    if not any(snapshot.zoneinfo is not None for snapshot in recording.snapshots):
        return None
    early, snapshot = start_snapshots(recording)
    return start_counts(machine, snapshot, recording.trace, early)


def _notes(recording: Recording, phases: dict[int, int], unseen: int, nested: int) -> list[str]:
    lines = []
    if not any(snapshot.zoneinfo is not None for snapshot in recording.snapshots):
        lines.append(
            "no snapshot: limits of per-CPU lists are unknown, so no size or time of a refill or "
            "drain of order 0 is judged; zones are taken from addresses"
        )
    if recording.flags_at_start is None:
        lines.append(
            "no kpageflags: free pages are known only once an event has shown them, and with them "
            "what they merge with"
        )
    if recording.trace.losses.total:
        lines.append(
            f"{count_of(recording.trace.losses.total, 'event was', 'events were')} lost: "
            "pages moved then are found elsewhere"
        )
    if unseen:
        lines.append(
            f"{unseen} frees have no mm_page_free although none was reported lost (perf leaves out "
            "bursts of frees by RCU callbacks); alloc_factor, free_count and count are unsure "
            "around them. Probes on the refill and drain functions would tell sizes all the same"
        )
    if nested:
        lines.append(
            f"{nested} events of interrupts fall between the mm_page_free_batched of one batch: "
            "the lists were locked, so they went to the buddy directly (S4.10)"
        )
    known = ", ".join(f"CPU {cpu} {phase / 1e9:.2f} s" for cpu, phase in sorted(phases.items()))
    lines.append(
        f"vmstat ticks, which lower pcp->high, fall within each second at {known or 'NA'}, "
        "inferred from drains; workqueue:workqueue_execute_start would tell them"
    )
    return lines
