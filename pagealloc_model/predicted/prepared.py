"""A recording as all its replays share it: machine, rules, demand, start image; made once."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from pagealloc_model.allocator.state import with_pressure
from pagealloc_model.base import progress_bar
from pagealloc_model.base.arrays import refuse_beyond_memory
from pagealloc_model.base.errors import UsageError
from pagealloc_model.base.progress_bar import Report
from pagealloc_model.measured.rules import recorded_rules
from pagealloc_model.policy.assumptions import ElasticAssumptions
from pagealloc_model.policy.kernel_rules import KernelRules
from pagealloc_model.policy.policy import Assumptions
from pagealloc_model.predicted.demand.compaction import as_requests
from pagealloc_model.predicted.demand.demand import Demand, recorded_ticks, resolve_demand
from pagealloc_model.predicted.demand.folio_orders import with_anon_orders
from pagealloc_model.predicted.demand.ranges import with_ranges_freed_whole
from pagealloc_model.predicted.demand.rows import realtime_tasks
from pagealloc_model.predicted.demand.threads import threads_of
from pagealloc_model.predicted.growth import grown_demand, with_touched_span
from pagealloc_model.predicted.reclaim_mode import in_force
from pagealloc_model.predicted.start.as_read import (
    ReadReclaim,
    known_start,
    machine_as_read,
    read_image,
    read_reclaim,
)
from pagealloc_model.predicted.start.elastic import (
    DaemonsAtStart,
    daemons_at_start,
    lru_at_start,
    put_on_lru_lists,
    reclaim_order,
    with_cached_pages,
    with_daemons,
)
from pagealloc_model.predicted.start.evidence import (
    NO_MEMORY,
    StartCounts,
    StartFiles,
    start_counts,
    start_has_memory,
    with_known_span,
)
from pagealloc_model.predicted.start.image import (
    calibrated_image,
    created_demand,
    empty_image,
    idle_machine,
    start_state,
)
from pagealloc_model.predicted.start.pageblocks import recut
from pagealloc_model.recording.machine import Machine
from pagealloc_model.recording.recorded_machine import (
    recorded_machine,
    recorded_policy,
    start_snapshots,
)
from pagealloc_model.recording.sampling import refuse_sampled

if TYPE_CHECKING:
    from pagealloc_model.allocator.state import StartImage, State
    from pagealloc_model.policy.policy import Policy
    from pagealloc_model.recording.recording import Recording
    from pagealloc_model.recording.trace.columns import Trace


@dataclass(frozen=True, kw_only=True, eq=False)
class Prepared:
    """A recording made ready to be replayed any number of times.

    Attributes:
        machine: zones, watermarks and CPUs as recorded.
        demand: what was asked and freed.
        image: where pages were at the start.
        lru: int8 by page frame, of an elastic replay: the LRU list that the page was on at the
            start plus one, 0 for none.
        reclaim_order: int64 by page frame, of an elastic replay: the lower, the older it was then.
        daemons: of an elastic replay: what kswapd and kcompactd were doing then.
        read_reclaim: of an elastic replay: where compaction and kswapd stood by a state file.
    """

    machine: Machine
    demand: Demand
    image: StartImage
    lru: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int8))
    reclaim_order: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64))
    daemons: tuple[DaemonsAtStart, ...] = ()
    read_reclaim: ReadReclaim | None = None

    def as_plain_requests(self) -> Prepared:
        """This with pages that recorded compaction took asked for like any others (S10.4)."""
        events = as_requests(self.demand.events, self.machine)
        return replace(self, demand=replace(self.demand, events=events))

    def with_folio_orders(
        self, trace: Trace, policy: Policy, elastic: ElasticAssumptions
    ) -> Prepared:
        """This with folios of the orders that a policy names (S10.13)."""
        if policy.huge_anon_orders is None:
            return self
        tasks = threads_of(trace, self.demand.events)
        return replace(self, demand=with_anon_orders(self.demand, tasks, policy, elastic))

    def with_pageblocks(self, policy: Policy) -> Prepared:
        """This with the policy's pageblocks in place of the recorded ones (S1.12)."""
        order = policy.pageblock_order
        if order in (None, self.machine.pageblock_order):
            return self
        image = recut(self.machine, self.image, order)
        return replace(self, machine=self.machine.with_pageblock_order(order), image=image)

    def state(
        self, rules: KernelRules, policy: Policy, assumptions: Assumptions, seed: int = 0
    ) -> State:
        """The state that a replay begins with, policy values filled in; an elastic one reclaims."""
        state = start_state(self.machine, self.demand, self.image, rules, policy, assumptions)
        if assumptions.reclaim != "elastic":
            return state
        state = with_pressure(state, rules, policy, assumptions, seed=seed)
        put_on_lru_lists(state, self.demand, self.lru, self.reclaim_order)
        if self.read_reclaim is not None:
            state = self.read_reclaim.put_into(state)
        return with_daemons(state, self.daemons)


@dataclass(frozen=True, kw_only=True, eq=False)
class Imposed:
    """A recording made ready with named decisions of the kernel in it: no prediction."""

    names: tuple[str, ...]
    prepared: Prepared


_LONGEST_NS = 36 * 10**15
_KEPT = "prepared"
"""Of what is kept with a recording: what was prepared of it."""


def prepare(
    recording: Recording,
    rules: KernelRules,
    assumptions: Assumptions,
    seed: int,
    given: Report | None = None,
) -> Prepared:
    """Machine, demand and start image of a recording, by its kernel's rules; kept while it lives.

    Reports on the work go to `given`, or else to a bar.

    Raises:
        UsageError: no snapshot, no event inside the machine's zones, or sampled events.
        RecordingError: a file of the recording cannot be read.
    """
    made: dict[tuple[object, ...], Prepared] = recording.remembered(_KEPT, dict)
    assumptions = in_force(assumptions, recording)
    own = assumptions.elastic
    if own is not None:
        read = ElasticAssumptions(file_uses=own.file_uses, lru_as_recorded=own.lru_as_recorded)
        assumptions = replace(assumptions, elastic=read)
    key = (rules, assumptions, seed)
    if key not in made:
        refuse_sampled(recording.trace)
        what, events = f"preparing {recording.name}", len(recording.trace)
        with progress_bar.progress(what, events, "events", given=given) as report:
            made[key] = _Start(recording, assumptions, seed, report).prepared(rules)
    return made[key]


def forget_prepared(recording: Recording) -> None:
    """Let go of what was prepared of a recording; its next replay prepares it again."""
    recording.memo.pop(_KEPT, None)


def recorded_demand(recording: Recording) -> Demand:
    """The demand of a recording and growth of its memory, without a start image.

    Raises:
        UsageError: no snapshot, no event inside the machine's zones, or sampled events.
        RecordingError: a file of the recording cannot be read.
    """
    refuse_sampled(recording.trace)
    literal = Assumptions(reclaim="literal")
    start = _Start(recording, literal)
    files = start.files(heeds_parts=False)
    if recording.start_state is not None and not files.known:
        return prepare(recording, recorded_rules(recording).rules, literal, 0).demand
    demand = start.demand(literal)
    has_memory = start_has_memory(start.machine, demand, start.counts(), files)
    return grown_demand(start.machine, demand, np.where(has_memory, 0, NO_MEMORY))


REPLAY_BYTES, VALIDATION_BYTES = 49, 127
"""Resident bytes for each page frame up to the last that may have memory, of a replay and a
validation: by the peaks with zones of 16 and of 128 GiB."""


def replayed_machine(recording: Recording, assumptions: Assumptions | None = None) -> Machine:
    """The machine as a replay has it: its zones end with what is known of them.

    Raises:
        UsageError: no snapshot.
        RecordingError: a file of the recording cannot be read.
    """
    return _Start(recording, assumptions or Assumptions()).machine


def refuse_large(recording: Recording, machine: Machine, what: str, bytes_each: int) -> None:
    """A UsageError if this machine has not the memory for a recording's page frames."""
    needed = machine.end_pfn * bytes_each
    about = f"{recording.path}: its zones have {machine.end_pfn:,} page frames: {what}"
    refuse_beyond_memory(needed, about)


class _Start:
    """A recording's start: its machine, snapshots and files, and the demand from there on."""

    def __init__(
        self,
        recording: Recording,
        assumptions: Assumptions,
        seed: int = 0,
        progress: Report | None = None,
    ) -> None:
        self._recording, self._assumptions = recording, assumptions
        self._seed, self._progress = seed, progress
        first_ns, last_ns = recording.trace.demand_span_ns
        if last_ns - first_ns > _LONGEST_NS:
            raise UsageError(f"{recording.path}: lasts more than 416 days; cut it (pagealloc trim)")
        self.machine = with_touched_span(recorded_machine(recording), recording.trace)
        self._early, self._snapshot = start_snapshots(recording)
        is_early = assumptions.start == "empty" or self._snapshot is self._early
        is_early |= recording.start_state is not None
        self._during = None if is_early else self._snapshot
        if assumptions.start != "empty" and recording.start_state is None:
            snapshots, files = (self._early, self._snapshot), self.files(heeds_parts=False)
            self.machine = with_known_span(self.machine, recording.trace, snapshots, files)

    def counts(self) -> StartCounts:
        return start_counts(self.machine, self._snapshot, self._recording.trace, self._early)

    def files(self, *, heeds_parts: bool) -> StartFiles:
        recording = self._recording
        return StartFiles(
            page_flags=recording.flags_at_start,
            page_flags_at_ns=recording.kpageflags_at_ns,
            page_owner=None if recording.begins_at else recording.page_owner,
            heeds_parts=heeds_parts,
        )

    def demand(self, assumptions: Assumptions) -> Demand:
        trace, meta = self._recording.trace, self._recording.meta
        read = self._recording.start_state
        return resolve_demand(
            trace,
            self.machine,
            assumptions,
            start=self._during,
            seed=self._seed,
            realtime=realtime_tasks(self._recording),
            ticks=recorded_ticks(trace, meta, self.machine),
            known=None if read is None else known_start(read),
            progress=self._progress,
        )

    def prepared(self, rules: KernelRules) -> Prepared:
        """All that a replay needs; of an elastic one also LRU lists, and daemons at work."""
        recording, assumptions, seed = self._recording, self._assumptions, self._seed
        refuse_large(recording, self.machine, "a replay", REPLAY_BYTES)
        is_empty, is_elastic = assumptions.start == "empty", assumptions.reclaim == "elastic"
        literal = replace(assumptions, reclaim="literal", elastic=None)
        if is_empty:
            self.machine = idle_machine(self.machine)
            image = empty_image(self.machine, recording.flags_at_start)
            demand = self.demand(assumptions)
        elif recording.start_state is not None:
            self.machine = machine_as_read(self.machine, recording.start_state)
            demand = self.demand(assumptions if is_elastic else literal)
            image = read_image(self.machine, demand, recording.start_state)
        else:
            demand = self.demand(literal)
            image = calibrated_image(
                self.machine,
                demand,
                self.counts(),
                self.files(heeds_parts=is_elastic),
                self._during,
                rules=rules,
                policy=recorded_policy(recording),
                assumptions=literal,
                seed=seed,
            )
            if is_elastic:
                del demand  # let go of before the next is made
                demand = self.demand(assumptions)
        if rules.frees_ranges_in_chunks:
            demand = with_ranges_freed_whole(demand)
        demand = grown_demand(self.machine, demand, image.block_types)
        if is_empty:
            demand = created_demand(self.machine, demand, assumptions)
        if not is_elastic:
            return Prepared(machine=self.machine, demand=demand, image=image)
        trace, start_ns = recording.whole_trace, recording.trace.demand_span_ns[0]
        read = None
        if recording.start_state is not None and not is_empty:
            read = read_reclaim(self.machine, recording.start_state)
            lru, order = read.lru, read.age
        else:
            lru = lru_at_start(image.movable, recording.flags_at_start)
            elastic = assumptions.elastic
            order = reclaim_order(
                trace,
                start_ns,
                len(lru),
                as_recorded=elastic is not None and elastic.lru_as_recorded,
                backwards=rules.reclaim_frees_backwards,
            )
        return Prepared(
            machine=self.machine,
            demand=with_cached_pages(demand, lru, seed),
            image=image,
            lru=lru,
            reclaim_order=order,
            daemons=() if is_empty else daemons_at_start(trace, self.machine, start_ns),
            read_reclaim=read,
        )
