"""Of a recording's demand, what touches pages first, and what is known only by its frees."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pagealloc_model.allocator.core import objects as resolved
from pagealloc_model.base.working_arrays import working_arrays
from pagealloc_model.predicted.demand.demand import Demand, with_compaction
from pagealloc_model.predicted.demand.demand_rows import RowMaker
from pagealloc_model.predicted.demand.direct_reclaim import direct_reclaims
from pagealloc_model.predicted.demand.recorded_reclaim import kswapd_runs
from pagealloc_model.predicted.demand.resolving import resolved_trace

if TYPE_CHECKING:
    from pagealloc_model.policy.policy import Assumptions
    from pagealloc_model.recording.machine import Machine
    from pagealloc_model.recording.trace.columns import Trace


def first_touches(trace: Trace, machine: Machine, assumptions: Assumptions) -> Demand:
    """A literal replay's demand with those events only that touch pages first.

    All objects are there, and hidden allocations are counted, so that what a replay has to make up
    can be told. It cannot be replayed.

    Args:
        trace: the recording's events.
        machine: its zones.
        assumptions: ours.

    Raises:
        UsageError: as `resolve_demand` does.
    """
    new_array = working_arrays(len(trace))
    reclaims = direct_reclaims(trace)
    maker = RowMaker(trace, machine, assumptions.hidden_migratetype, reclaims)
    found = resolved_trace(trace, machine, maker, first_touches=True)
    others, hidden, objects, counts = found.events, found.hidden, found.objects, found.counts
    reclaim = kswapd_runs(trace, machine)
    _, hidden, objects, compaction = with_compaction(
        trace, machine, others, others[:0], hidden, objects, new_array
    )
    return Demand(
        events=others,
        objects=objects,
        hidden_allocations=len(hidden.events) - int(counts[resolved.COUNT_FAILED_CHARGE]),
        hidden_over_losses=0,
        **found.left_out,
        kswapd_recorded=reclaim is not None,
        direct_reclaim_recorded=len(reclaims.row) > 0,
        **compaction,
    )
