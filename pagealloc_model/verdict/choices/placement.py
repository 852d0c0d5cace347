"""Placement fidelity: every choice the kernel made, judged alone from the true state before it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from pagealloc_model.allocator.choices import judging
from pagealloc_model.allocator.choices import recorded_steps as rec
from pagealloc_model.allocator.choices import true_state as true
from pagealloc_model.allocator.choices.judged import Judged
from pagealloc_model.allocator.choices.resync import resync
from pagealloc_model.allocator.core import layout as at
from pagealloc_model.allocator.core.initial import install
from pagealloc_model.allocator.core.state import make_state
from pagealloc_model.base.errors import CorruptStateError, PolicyError
from pagealloc_model.base.text.counts import count_of
from pagealloc_model.measured.evidence.choice import choose_rules
from pagealloc_model.measured.tick_times import tick_phases, tick_steps
from pagealloc_model.policy.policy import Assumptions
from pagealloc_model.predicted.demand.realtime_tasks import realtime_tasks, with_reserve
from pagealloc_model.predicted.start.start_counts import StartCounts, start_counts
from pagealloc_model.recording.bare_machine import bare_machine
from pagealloc_model.recording.machine import Machine
from pagealloc_model.recording.recorded_machine import (
    recorded_machine,
    recorded_policy,
    start_snapshots,
)
from pagealloc_model.verdict.choices import placement_tables as tables
from pagealloc_model.verdict.choices.choice_words import MISSES_TOLD
from pagealloc_model.verdict.choices.recorded_moves import recorded_moves, unseen_pushes
from pagealloc_model.verdict.choices.true_start import true_start
from pagealloc_model.verdict.choices.true_steps import (
    in_time_order,
    isolation_steps,
    reclaim_steps,
    snapshot_steps,
    tracked,
    with_notes,
)
from pagealloc_model.verdict.state_errors import ErrorRow

if TYPE_CHECKING:
    from pagealloc_model.policy.kernel_rules import KernelRules
    from pagealloc_model.recording.recording import Recording
    from pagealloc_model.recording.trace.columns import Trace


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
        return tables.choices_table(self.tally, repairs, machine.migratetypes, machine.nr_cpus)

    @cached_property
    def over_time(self) -> pd.DataFrame:
        """choice, time_s (of a bin's start), judged, hits, share, null_share, unjudged."""
        first, last = self.trace.demand_span_ns
        return tables.over_time(self.tally, (last - first) / 1e9)

    @cached_property
    def zone_classes(self) -> pd.DataFrame:
        """Which zone: orders, migratetype, atomic, margin_at_least, judged, hits and shares.

        The margin is the least distance, pages, of a watermark test's two sides in the walk.
        """
        return tables.zone_classes(self.tally, self.machine.migratetypes)

    @cached_property
    def misses(self) -> pd.DataFrame:
        """The first misses of each choice, with the state they arose from."""
        return tables.misses_table(self.kept_misses, self.steps, self.trace)

    def metric_rows(self) -> list[ErrorRow]:
        """Rows of the error table: shares of allocations whose page is named, and of choices."""
        return tables.metric_rows(self.choices)

    def to_dict(self) -> dict[str, object]:
        """What `pagealloc validate --resync --json` adds."""
        return {
            "choices": tables.records(self.choices),
            "zone_classes": tables.records(self.zone_classes),
            "choices_over_time": tables.records(self.over_time),
            "missed_choices": tables.records(
                self.misses.groupby("choice", sort=False).head(MISSES_TOLD)
            ),
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
