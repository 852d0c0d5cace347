"""Placement fidelity: every choice the kernel made, judged alone from the true state before it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from pagealloc_model.allocator import layout as at
from pagealloc_model.allocator.state import install, make_state
from pagealloc_model.base.errors import CorruptStateError, PolicyError
from pagealloc_model.base.table import Table
from pagealloc_model.base.text import NOT_AVAILABLE, ascii_only, count_of, paragraph
from pagealloc_model.diagnosis import judging
from pagealloc_model.diagnosis import true_state as true
from pagealloc_model.diagnosis.judging import resync
from pagealloc_model.diagnosis.recorded_moves import (
    isolation_steps,
    reclaim_steps,
    recorded_moves,
    snapshot_steps,
    tracked,
    true_start,
    unseen_pushes,
    with_notes,
)
from pagealloc_model.diagnosis.ticks import tick_phases, tick_steps
from pagealloc_model.diagnosis.true_state import Judged
from pagealloc_model.measured.rules import choose_rules
from pagealloc_model.numbers.errors import error_table, records
from pagealloc_model.numbers.join import ModelError
from pagealloc_model.numbers.statistics import SHARE
from pagealloc_model.policy.policy import Assumptions
from pagealloc_model.predicted.demand.rows import realtime_tasks, with_reserve
from pagealloc_model.predicted.start.evidence import start_counts
from pagealloc_model.recording.machine import Machine
from pagealloc_model.recording.recorded_machine import (
    recorded_machine,
    recorded_policy,
    start_snapshots,
)
from pagealloc_model.recording.trace.columns import EVENT_NAMES, Event

if TYPE_CHECKING:
    from pagealloc_model.numbers.validation import Validation
    from pagealloc_model.policy.kernel_rules import KernelRules
    from pagealloc_model.recording.recording import Recording
    from pagealloc_model.recording.trace.columns import Trace


_LISTS = (
    *(true.REPAIR_OTHER_LIST, true.REPAIR_OTHER_CPU),
    *(true.REPAIR_HIDDEN, true.REPAIR_ASTRAY),
)
_BUDDY = (true.REPAIR_IN_BUDDY, true.REPAIR_NOWHERE, true.REPAIR_START, true.REPAIR_TYPE)
_TUNING = (true.REPAIR_TUNING,)
_CHOICES: dict[str, tuple[str, str, tuple[int, ...]]] = {
    "zone": ("get_page_from_freelist", "always the preferred zone", ()),
    "pcp_pop": ("__rmqueue_pcplist", "last in, first out, fed with refills and drains", _LISTS),
    "refill_when": ("__rmqueue_pcplist", "no refill", _LISTS),
    "refill_size": ("nr_pcp_alloc", "pcp->batch", _TUNING),
    "buddy_pfn": ("__rmqueue_smallest", "the page after the last one taken for this type", _BUDDY),
    "drain_when": ("nr_pcp_high", "no drain", _TUNING),
    "drain_size": ("nr_pcp_free, decay_pcp_high", "pcp->batch", _TUNING),
    "drain_page": (
        "free_pcppages_bulk",
        "oldest page of that order and type in the null model of pcp_pop",
        _LISTS,
    ),
    "fallback": ("__rmqueue_claim, __rmqueue_steal", "the same kind as last time", _BUDDY),
}
"""By choice: where the kernel makes it, what its null model says, and the repairs of what it is
judged from: lists, free buddies or a list's limits."""
KERNEL_FUNCTIONS = {choice: function for choice, (function, _, _) in _CHOICES.items()}
MISSES_TOLD = 10
"""Misses of each choice that are printed."""
_PAGE_CHOICES = ("pcp_pop", "buddy_pfn", "drain_page")


def _row(choice: str, outcomes: np.ndarray, **columns: object) -> dict[str, object]:
    judged = int(outcomes[judging.JUDGED])
    shares = outcomes / judged if judged else np.full(len(outcomes), np.nan)
    return columns | {
        "choice": choice,
        "judged": judged,
        "hits": int(outcomes[judging.HITS]),
        "share": float(shares[judging.HITS]),
        "block_share": float(shares[judging.BLOCK_HITS]) if choice in _PAGE_CHOICES else np.nan,
        "null_model": _CHOICES[choice][1],
        "null_share": float(shares[judging.NULL_HITS]),
        "unjudged": int(outcomes[judging.UNJUDGED]),
    }


@dataclass(frozen=True, kw_only=True, eq=False)
class Placement:
    """The kernel's choices that the model makes, each from the kernel's own state.

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
        machine = self.machine
        rows = []
        for choice, slots in zip(judging.CHOICES, self.tally, strict=True):
            by_type = slots[: judging.TYPE_SLOTS]
            by_type = by_type.reshape(at.ORDERS, at.MIGRATETYPES, judging.OUTCOMES)
            repairs = sum(self.repairs[true.REPAIR_NAMES[kind]] for kind in _CHOICES[choice][2])
            rows.append(_row(choice, by_type.sum(axis=(0, 1)), scope="all", repairs=repairs))
            types = machine.migratetypes[: at.MIGRATETYPES]
            scopes = {
                **{f"order={order}": by_type[order].sum(axis=0) for order in range(at.ORDERS)},
                **{f"migratetype={t}": by_type[:, n].sum(axis=0) for n, t in enumerate(types)},
                **{f"cpu={n}": slots[judging.OTHER_SLOTS + n] for n in range(machine.nr_cpus)},
            }
            rows += [
                _row(choice, outcomes, scope=scope)
                for scope, outcomes in scopes.items()
                if outcomes[[judging.JUDGED, judging.UNJUDGED]].any()
            ]
        columns = ["choice", "scope", "judged", "hits", "share", "block_share"]
        columns += ["null_model", "null_share", "unjudged", "repairs"]
        return pd.DataFrame(rows, columns=columns).astype({"repairs": "Int64"})

    @cached_property
    def over_time(self) -> pd.DataFrame:
        """choice, time_s (of a bin's start), judged, hits, share, null_share, unjudged."""
        first, last = self.trace.demand_span_ns
        seconds = (last - first) / 1e9
        bins = slice(judging.TYPE_SLOTS, judging.TYPE_SLOTS + judging.TIME_BINS)
        rows = [
            _row(choice, outcomes, time_s=number * seconds / judging.TIME_BINS)
            for choice, slots in zip(judging.CHOICES, self.tally, strict=True)
            for number, outcomes in enumerate(slots[bins])
            if outcomes.any()
        ]
        columns = ["choice", "time_s", "judged", "hits", "share", "null_share", "unjudged"]
        return pd.DataFrame(rows, columns=columns)

    @cached_property
    def zone_classes(self) -> pd.DataFrame:
        """Choices of a zone: orders, migratetype, atomic, margin_at_least, judged, hits and shares.

        The margin is the least distance, pages, of a watermark test's two sides in the walk.
        """
        first = judging.TYPE_SLOTS + judging.TIME_BINS
        slots = self.tally[judging.ZONE, first : first + judging.CLASS_SLOTS]
        limits = (0, *judging.MARGINS)
        kinds = np.ndindex(judging.ORDER_CLASSES, at.PCP_TYPES, 2, len(limits))
        rows = [
            _row(
                "zone",
                outcomes,
                orders=("0", "1 to 3", "4 and more")[order],
                migratetype=self.machine.migratetypes[migratetype],
                atomic=bool(atomic),
                margin_at_least=limits[margin],
            )
            for (order, migratetype, atomic, margin), outcomes in zip(kinds, slots, strict=True)
            if outcomes[judging.JUDGED]
        ]
        return pd.DataFrame(rows).drop(
            columns=["choice", "block_share", "unjudged"], errors="ignore"
        )

    @cached_property
    def misses(self) -> pd.DataFrame:
        """The first misses of each choice, with the state they arose from, in order of time."""
        trace = self.trace
        names = {event: name for name, event in EVENT_NAMES.items()}
        tables = []
        for choice, misses in zip(judging.CHOICES, self.kept_misses, strict=True):
            rows = misses[: min(int(misses[judging.MISSES_KEPT, 0]), judging.MISSES_KEPT)]
            steps = self.steps[rows[:, judging.MISS_STEP]]
            row = steps["row"]
            columns = {
                "choice": choice,
                "kernel_function": KERNEL_FUNCTIONS[choice],
                "event": [names[Event(event)] for event in trace.event[row]],
                "row": row.astype(np.int64),
                "time_s": (trace.time_ns[row] - trace.demand_span_ns[0]) / 1e9,
                **{name: steps[name].astype(np.int64) for name in ("cpu", "pid")},
                "task": [trace.comms.get(int(pid), "") for pid in steps["pid"]],
                **{name: steps[name].astype(np.int64) for name in ("order", "migratetype")},
                "predicted": rows[:, judging.MISS_PREDICTED],
                "actual": rows[:, judging.MISS_ACTUAL],
            }
            for place, (name, _) in enumerate(judging.MISS_PAGESET):
                columns[name] = rows[:, judging.MISS_WORDS + place]
            columns["below_high"] = rows[:, judging.MISS_BELOW_HIGH] != 0
            columns["reclaim_active"] = rows[:, judging.MISS_RECLAIM] != 0
            tables.append(pd.DataFrame(columns))
        return pd.concat(tables, ignore_index=True)

    def added_to(self, validation: Validation) -> Validation:
        """A validation of the recording whose error table ends with the shares of the choices."""
        errors = pd.concat([validation.errors, error_table(self._errors())], ignore_index=True)
        return replace(validation, errors=errors)

    def _errors(self) -> Iterator[ModelError]:
        """Allocations whose page is named by scope, then each choice."""
        for row in self.choices[self.choices["judged"] > 0].itertuples():
            scopes = {row.scope: "LIFO lists"} if row.choice == "pcp_pop" else {}
            if row.scope == "all":
                scopes[f"choice={row.choice}"] = row.null_model
            for scope, null_model in scopes.items():
                shown = ("placement_exact_resync", scope, 1.0, row.share, SHARE)
                yield ModelError.of(*shown, null_model, row.null_share)

    def to_dict(self) -> dict[str, object]:
        """Return what `pagealloc validate --resync --json` adds."""
        misses = self.misses.groupby("choice", sort=False).head(MISSES_TOLD)
        return {
            "choices": records(self.choices),
            "zone_classes": records(self.zone_classes),
            "choices_over_time": records(self.over_time),
            "missed_choices": records(misses),
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
    machine, counts = recorded_machine(recording, by_events=True), None
    if recording.has_zoneinfo:
        early, snapshot = start_snapshots(recording)
        counts = start_counts(machine, snapshot, trace, early)
    moves, first = recorded_moves(trace, machine)
    realtime = np.isin(moves["pid"], sorted(realtime_tasks(recording)))
    moves["gfp"][realtime] = with_reserve(moves["gfp"][realtime])
    state = make_state(machine, chosen, recorded_policy(recording), assumptions)
    image = true_start(machine, moves, first, recording.flags_at_start, counts)
    install(state, image)
    st = with_notes(state)
    unseen = unseen_pushes(moves, replace(state, st=st).arrays(), machine)
    isolated = isolation_steps(trace, machine, moves)
    phases = tick_phases(trace, moves)
    beside = [
        snapshot_steps(recording, machine, moves, isolated, st),
        reclaim_steps(trace, machine),
        isolated,
        tick_steps(trace, phases, machine.nr_cpus),
    ]
    # Those of no row of the trace come before it, unseen pushes after the row they name.
    others = np.concatenate(beside)
    keys = [others["row"] * 4, moves["row"] * 4 + 1, unseen["row"] * 4 + 2]
    steps = np.concatenate([others, moves, unseen])
    steps = steps[np.argsort(np.concatenate(keys), kind="stable")]
    slots = judging.OTHER_SLOTS + machine.nr_cpus
    kinds = len(judging.CHOICES)
    tally = np.zeros((kinds, slots, judging.OUTCOMES), np.int64)
    misses = np.zeros((kinds, judging.MISSES_KEPT + 1, judging.MISS_COLUMNS), np.int64)
    judged = Judged(steps, tracked(state, st), tally, misses)
    done = resync(replace(state, st=st).arrays(), judged, 0, len(steps))
    if done < len(steps):
        row = int(steps["row"][done])
        seconds = (int(trace.time_ns[row]) - trace.demand_span_ns[0]) / 1e9
        raise CorruptStateError(
            f"{recording.path}: at {seconds:.6f} s (event {row}) page frame "
            f"{int(st[at.CORRUPT_AT]) - 1} is on a list that does not lead on; earlier events are "
            "missing, so choices cannot be judged alone: validate without --resync"
        )
    nested = int(np.count_nonzero(steps["flags"] & true.NESTED))
    return Placement(
        machine=machine,
        trace=trace,
        steps=steps,
        tally=tally,
        kept_misses=misses,
        repairs=dict(zip(true.REPAIR_NAMES, st[-true.REPAIRS :].tolist(), strict=True)),
        unseen_frees=len(unseen),
        nested=nested,
        notes=(*_notes(recording, phases, len(unseen), nested), *image.origin),
    )


def _notes(recording: Recording, phases: dict[int, int], unseen: int, nested: int) -> list[str]:
    lines = []
    if not recording.has_zoneinfo:
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


_READING = (
    "Each choice is judged from the state the kernel was in, as its earlier events leave it. "
    "share: hits of the choices judged; null: the same of the null model; unjudged: choices that "
    "the recording does not settle; repairs: corrections of what the choice is judged from that "
    "no event explains; margin: how far the closest watermark test was from its mark. Free-running "
    "shares are placement_exact, placement_block and placement_zone."
)


def choice_table(placement: Placement) -> str:
    """Shares by choice, one line each, then by CPU."""

    def shares(row: Any) -> Iterator[str]:
        """Hits in percent, rounded down so that only all of them are 100%."""
        for value in (row.share, row.null_share):
            yield NOT_AVAILABLE if pd.isna(value) else f"{int(value * 1e5) / 1e3:.3f}%"

    rows: list[tuple[str | float, ...]] = []
    for begin in ("all", "cpu="):
        choices = placement.choices[placement.choices["scope"].str.startswith(begin)]
        for row in choices.itertuples():
            names = ("All choices", row.choice) if begin == "all" else (row.choice, row.scope)
            rows.append((*names, row.judged, row.hits, *shares(row), row.unjudged, row.repairs))
    for row in placement.zone_classes.itertuples():
        atomic = " atomic" if row.atomic else ""
        heading = f"zone, order {row.orders} {row.migratetype}{atomic}, by margin"
        counts = (row.judged, row.hits, *shares(row), NOT_AVAILABLE, NOT_AVAILABLE)
        rows.append((heading, f">={row.margin_at_least} pages", *counts))
    titles = ("choice", "scope", "judged", "hits", "share", "null", "unjudged", "repairs")
    return f"{Table(titles, rows).to_text()}\n\n{paragraph(_READING)}\n"


def miss_list(placement: Placement) -> str:
    """The first misses of each choice: event, what the rule says, the state it says it from."""
    lines: list[str] = []
    totals = placement.choices[placement.choices["scope"] == "all"].set_index("choice")
    for choice, misses in placement.misses.groupby("choice", sort=False):
        count = int(totals.loc[choice, "judged"] - totals.loc[choice, "hits"])
        words = f"{count_of(count, 'miss', 'misses')} ({KERNEL_FUNCTIONS[str(choice)]})"
        lines.append(paragraph(f"{choice}: {words}"))
        for miss in misses.head(MISSES_TOLD).itertuples():
            lines.append(paragraph(_explained(miss), label="  - "))
        lines.append("")
    return "\n".join(lines)


_FALLBACKS = ("none", "claim", "steal")


def _explained(miss: Any) -> str:
    """One miss: when and where, what the kernel did, what the rule says, and the state then."""
    said, done = miss.predicted, miss.actual
    if miss.choice == "zone":
        said, done = f"zone {said}" if said >= 0 else "none", f"zone {done}"
    elif miss.choice == "fallback":
        said, done = _FALLBACKS[said], f"fallback: {_FALLBACKS[done]}"
    elif miss.choice in ("pcp_pop", "buddy_pfn", "drain_page"):
        said, done = f"page {said}" if said >= 0 else "no page", f"page {done}"
    elif miss.choice == "refill_when":
        said, done = ("a refill" if refills > 0 else "no refill" for refills in (said, done))
    else:
        done = f"{done} objects" if miss.choice == "refill_size" else f"{done} pages drained"
    names = {"count": "listed", "high": "high"} | {n: n for n in ("alloc_factor", "free_count")}
    state = [f"{name} {getattr(miss, field)}" for name, field in names.items()]
    state += ["zone below high"] if miss.below_high else []
    state += ["reclaim active"] if miss.reclaim_active else []
    when = f"{miss.time_s:.6f} s, row {miss.row}, {miss.task or 'task'}/{miss.pid} CPU {miss.cpu}"
    size = f"order {miss.order} type {miss.migratetype}"
    return ascii_only(f"{when}, {size}: {done}; the rule says {said} ({', '.join(state)})")
