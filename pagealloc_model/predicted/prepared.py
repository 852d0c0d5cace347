"""What every replay of a recording shares: machine, rules, demand, start image; made once."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

import numpy as np

from pagealloc_model.base import arrays
from pagealloc_model.base.errors import PageallocError
from pagealloc_model.base.progress_bar import Report
from pagealloc_model.policy.assumptions import ElasticAssumptions
from pagealloc_model.policy.kernel_rules import KernelRules
from pagealloc_model.policy.policy import Assumptions
from pagealloc_model.recording.kept_state import kept_object
from pagealloc_model.recording.machine import Machine
from pagealloc_model.recording.recorded_machine import (
    recorded_machine,
    recorded_policy,
    start_snapshots,
)
from pagealloc_model.recording.sampling import refuse_sampled

if TYPE_CHECKING:
    from pagealloc_model.allocator.state import StartImage
    from pagealloc_model.predicted.demand.demand import Demand
    from pagealloc_model.predicted.start.elastic import DaemonsAtStart
    from pagealloc_model.predicted.start.evidence import StartCounts, StartFiles
    from pagealloc_model.recording.machine import Machine
    from pagealloc_model.recording.recording import Recording
    from pagealloc_model.recording.snapshot import Snapshot


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
    """

    machine: Machine
    demand: Demand
    image: StartImage
    lru: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int8))
    reclaim_order: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64))
    daemons: tuple[DaemonsAtStart, ...] = ()


@dataclass(frozen=True, kw_only=True, eq=False)
class Imposed:
    """A recording made ready with decisions of the kernel in it: its replay is no prediction.

    Attributes:
        names: what is imposed.
        prepared: events and start image with it.
    """

    names: tuple[str, ...]
    prepared: Prepared


_prepared: WeakKeyDictionary[Recording, dict[tuple[object, ...], Prepared]] = WeakKeyDictionary()


def prepare(
    recording: Recording,
    rules: KernelRules,
    assumptions: Assumptions,
    seed: int,
    progress: Report | None = None,
) -> Prepared:
    """Machine, demand and start image of a recording; kept while that lives.

    What fits memory is kept on disk, too.

    Args:
        recording: the recording.
        rules: the recorded kernel's.
        assumptions: ours.
        seed: for choices that nothing settles.
        progress: called with the share done, 0 to 1.

    Raises:
        UsageError: no snapshot, no event inside the machine's zones, or sampled events.
        RecordingError: a file of the recording cannot be read.
    """
    refuse_sampled(recording.trace)
    made = _prepared.setdefault(recording, {})
    own = assumptions.elastic
    read = ElasticAssumptions(file_uses=own.file_uses, lru_as_recorded=own.lru_as_recorded)
    assumptions = replace(assumptions, elastic=read)
    key = (rules, assumptions, seed)
    if key not in made:
        make = partial(_prepare, recording, rules, assumptions, seed, progress)
        in_files = len(recording.trace) > arrays.ROWS_IN_MEMORY
        made[key] = make() if in_files else kept_object(recording, "ready", key, make)
    return made[key]


def forget_prepared(recording: Recording) -> None:
    """Let go of what was prepared of a recording; its next replay prepares it again."""
    _prepared.pop(recording, None)


def _prepare(
    recording: Recording,
    rules: KernelRules,
    assumptions: Assumptions,
    seed: int,
    progress: Report | None,
    *,
    heeds_parts: bool = False,
) -> Prepared:
    from pagealloc_model.predicted.growth import grown_demand, with_touched_span
    from pagealloc_model.predicted.start.evidence import StartFiles, start_counts
    from pagealloc_model.predicted.start.image import calibrated_image

    if assumptions.reclaim == "elastic":
        return _prepare_elastic(recording, rules, assumptions, seed, progress)
    machine = with_touched_span(recorded_machine(recording), recording.trace)
    if assumptions.start == "empty":
        return _prepare_empty(recording, machine, assumptions, progress)
    early, snapshot = start_snapshots(recording)
    during = None if snapshot is early else snapshot
    demand = _demand(recording, machine, assumptions, during, progress)
    image = calibrated_image(
        machine,
        demand,
        start_counts(machine, snapshot, recording.trace, early),
        StartFiles(
            page_flags=recording.flags_at_start,
            page_flags_at_ns=recording.kpageflags_at_ns,
            page_owner=None if recording.begins_at else recording.page_owner,
            heeds_parts=heeds_parts,
        ),
        during,
        rules=rules,
        policy=recorded_policy(recording),
        assumptions=assumptions,
        seed=seed,
    )
    demand = grown_demand(machine, demand, image.block_types)
    return Prepared(machine=machine, demand=demand, image=image)


def _prepare_empty(
    recording: Recording, machine: Machine, assumptions: Assumptions, progress: Report | None
) -> Prepared:
    from pagealloc_model.predicted.growth import grown_demand
    from pagealloc_model.predicted.start.image import (
        created_demand,
        empty_image,
        idle_machine,
    )

    machine = idle_machine(machine)
    image = empty_image(machine, recording.flags_at_start)
    demand = _demand(recording, machine, assumptions, None, progress)
    demand = grown_demand(machine, demand, image.block_types)
    demand = created_demand(machine, demand, assumptions)
    return Prepared(machine=machine, demand=demand, image=image)


def _prepare_elastic(
    recording: Recording,
    rules: KernelRules,
    assumptions: Assumptions,
    seed: int,
    progress: Report | None,
) -> Prepared:
    """Machine and image as for a literal replay; demand with what only an elastic one reads."""
    from pagealloc_model.predicted.growth import grown_demand
    from pagealloc_model.predicted.start.elastic import (
        daemons_at_start,
        lru_at_start,
        reclaim_order,
        with_cached_pages,
    )
    from pagealloc_model.predicted.start.image import created_demand

    machine, image = _literal_start(recording, rules, assumptions, seed, progress)
    is_empty = assumptions.start == "empty"
    early, snapshot = start_snapshots(recording)
    during = None if is_empty or snapshot is early else snapshot
    demand = _demand(recording, machine, assumptions, during, progress, seed)
    demand = grown_demand(machine, demand, image.block_types)
    if is_empty:
        demand = created_demand(machine, demand, assumptions)
    lru = lru_at_start(image.movable, recording.flags_at_start)
    start_ns = recording.trace.demand_span_ns[0]
    return Prepared(
        machine=machine,
        demand=with_cached_pages(demand, lru, seed),
        image=image,
        lru=lru,
        reclaim_order=reclaim_order(
            recording.whole_trace,
            start_ns,
            len(lru),
            as_recorded=assumptions.elastic.lru_as_recorded,
            backwards=rules.reclaim_frees_backwards,
        ),
        daemons=() if is_empty else daemons_at_start(recording.whole_trace, machine, start_ns),
    )


def _literal_start(
    recording: Recording,
    rules: KernelRules,
    assumptions: Assumptions,
    seed: int,
    progress: Report | None,
) -> tuple[Machine, StartImage]:
    """Machine and image of a literal replay, whose demand is let go of."""
    literal = _prepare(
        recording,
        rules,
        replace(assumptions, reclaim="literal", elastic=ElasticAssumptions()),
        seed,
        progress,
        heeds_parts=True,
    )
    return literal.machine, literal.image


def _demand(
    recording: Recording,
    machine: Machine,
    assumptions: Assumptions,
    start: Snapshot | None,
    progress: Report | None,
    seed: int = 0,
) -> Demand:
    from pagealloc_model.predicted.demand.demand import recorded_ticks, resolve_demand
    from pagealloc_model.predicted.demand.rows import realtime_tasks

    return resolve_demand(
        recording.trace,
        machine,
        assumptions,
        start=start,
        seed=seed,
        realtime=realtime_tasks(recording),
        ticks=recorded_ticks(recording.trace, recording.meta, machine),
        progress=progress,
    )


def made_up(recording: Recording) -> tuple[dict[str, int], str]:
    """Count what a replay of a recording has to make up, without replaying it.

    Returns:
        hidden_allocations and grown_pages, and "" or why they are not known.
    """
    try:
        demand = _first_touches(recording)
    except PageallocError as error:
        return {}, str(error)
    counts = {
        "hidden_allocations": demand.hidden_allocations,
        "grown_pages": demand.grown_pages,
    }
    return counts, ""


def _first_touches(recording: Recording) -> Demand:
    """What `demand.first_touches` keeps of a recording's demand, with the memory that came."""
    from pagealloc_model.predicted.demand.demand import first_touches
    from pagealloc_model.predicted.growth import grown_demand, with_touched_span
    from pagealloc_model.predicted.start.evidence import StartFiles, start_counts

    refuse_sampled(recording.trace)
    machine = with_touched_span(recorded_machine(recording), recording.trace)
    early, snapshot = start_snapshots(recording)
    demand = first_touches(recording.trace, machine, Assumptions())
    counts = start_counts(machine, snapshot, recording.trace, early)
    files = StartFiles(
        page_flags=recording.flags_at_start,
        page_flags_at_ns=recording.kpageflags_at_ns,
        page_owner=None if recording.begins_at else recording.page_owner,
    )
    return grown_demand(machine, demand, _block_types(machine, demand, counts, files))


def _block_types(
    machine: Machine, demand: Demand, counts: StartCounts, files: StartFiles
) -> np.ndarray:
    """int8 per pageblock: below 0 where there is no memory at the start, as in a start image."""
    from pagealloc_model.predicted.start.evidence import NO_MEMORY, gather_evidence, pageset_values
    from pagealloc_model.predicted.start.image import seeded_image

    if files.known:
        types = gather_evidence(machine, demand, counts, files).block_types
        return np.where(types == NO_MEMORY, NO_MEMORY, 0).astype(np.int8)
    listed, high = (pageset_values(machine, None, name) for name in ("count", "high"))
    return seeded_image(machine, demand, counts, listed, high).block_types
