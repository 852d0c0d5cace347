"""How many slabs outlive reclaim in a recording, for elastic replays of it (T10.16)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from pagealloc_model.allocator.pressure.pressure_state import slab_objects
from pagealloc_model.policy.policy import Assumptions
from pagealloc_model.predicted.demand.elastic_rows import ElasticRows
from pagealloc_model.predicted.demand.slab_frees import slab_frees
from pagealloc_model.recording.recorded_machine import recorded_machine
from pagealloc_model.recording.snapshot import Snapshot
from pagealloc_model.recording.trace.columns import Trace

if TYPE_CHECKING:
    from pagealloc_model.recording.recording import Recording


def with_recorded_survivors(assumptions: Assumptions, recording: Recording) -> Assumptions:
    """Assumptions with the share of slabs that outlived reclaim in a recording, if it shows any.

    What they are then used for on the same recording is no prediction of slabs freed there.

    Args:
        assumptions: of an elastic replay.
        recording: whose machine gives the objects of a slab.
    """
    objects = slab_objects(recorded_machine(recording).nr_cpus)
    found = slab_survivors(recording.whole_trace, recording.dated_snapshots, objects)
    if found is None:
        return assumptions
    elastic = replace(assumptions.elastic, slab_survivors_per_mille=found)
    return replace(assumptions, elastic=elastic)


def slab_survivors(trace: Trace, snapshots: Sequence[Snapshot], objects: int) -> int | None:
    """Share of slabs that shrinkers did not empty though they scanned as many objects (T10.16).

    Only slabs allocated within the recording are known, so that others freed count as survivors.

    Args:
        trace: all events.
        snapshots: of the same time; the first and the last with vmstat count.
        objects: of a slab.

    Returns:
        Per mille; None where no shrinker is known to have scanned anything.
    """
    counted = [
        (each.time_ns, each.vmstat.get("slabs_scanned") or 0)
        for each in snapshots
        if each.vmstat is not None
    ]
    if not counted:
        return None
    (begin, before), (end, after) = counted[0], counted[-1]
    if after <= before:
        return None
    slabs = slab_frees(trace)
    within = (trace.time_ns[slabs] > begin) & (trace.time_ns[slabs] < end)
    by_reclaim = ElasticRows(trace).freed_by_reclaim(slabs[within])
    return max(0, 1000 - 1000 * int(np.count_nonzero(by_reclaim)) * objects // (after - before))
