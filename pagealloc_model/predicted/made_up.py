"""What a replay of a recording has to make up, counted without preparing the replay.

That is told by the events that touch pages first: what lies between them is not kept, and no start
image is made.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from pagealloc_model.base.errors import PageallocError
from pagealloc_model.policy.policy import Assumptions
from pagealloc_model.recording.recorded_machine import recorded_machine, start_snapshots
from pagealloc_model.recording.sampling import refuse_sampled

if TYPE_CHECKING:
    from pagealloc_model.predicted.demand.demand import Demand
    from pagealloc_model.predicted.start.page_evidence import StartFiles
    from pagealloc_model.predicted.start.start_counts import StartCounts
    from pagealloc_model.recording.machine import Machine
    from pagealloc_model.recording.recording import Recording


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
    from pagealloc_model.predicted.demand.first_touches import first_touches
    from pagealloc_model.predicted.growth import grown_demand, with_touched_span
    from pagealloc_model.predicted.start.page_evidence import StartFiles
    from pagealloc_model.predicted.start.start_counts import start_counts

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
    from pagealloc_model.predicted.start.page_evidence import NO_MEMORY, gather_evidence
    from pagealloc_model.predicted.start.seeded_placement import seeded_image
    from pagealloc_model.predicted.start.start_counts import pageset_values

    if files.known:
        types = gather_evidence(machine, demand, counts, files).block_types
        return np.where(types == NO_MEMORY, NO_MEMORY, 0).astype(np.int8)
    listed, high = (pageset_values(machine, None, name) for name in ("count", "high"))
    return seeded_image(machine, demand, counts, listed, high).block_types
