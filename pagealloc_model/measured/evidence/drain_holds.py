"""Whether the kernel drops zone->lock inside a drain (S4.7, S4.8)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from pagealloc_model.measured.evidence.finding import Finding
from pagealloc_model.measured.runs import run_shape, run_starts
from pagealloc_model.measured.stream import Probe, Stream
from pagealloc_model.measured.transactions import CAUSES, drain_causes
from pagealloc_model.recording.trace.columns import Event, Trace
from pagealloc_model.recording.zone_map import ZoneMap

PROBE = "pa:pcp_bulk_free"
CALLS_MIN = 20
LARGER_SHARE = 0.1
"""Share of calls for more than a batch from which on a drain is one hold; causes are read off
neighbouring events, so a few calls belong to another one (recordings: 1 % against 40 %)."""
BATCHED_STEPS_MIN, SINGLE_STEPS_MIN = 30, 300
_STEP_BITS = 48
"""A step of more ns, three days, counts as one of these."""
LONGER_STEP = 1.05
"""A step between two holds takes at least this much longer than any inside one."""


def by_calls(stream: Stream, trace: Trace, batch: int, cause: str) -> Finding | None:
    """From the bulk free's own `count` argument: exact but for the cause.

    Args:
        stream: events with kprobes.
        trace: has the calls' table.
        batch: the largest pcp->batch.
        cause: "commit" or "decay".
    """
    table = trace.tables[PROBE]
    calls = np.flatnonzero(stream.is_kind(Probe.BULK_FREE))
    asked = table["count"][np.argsort(table["cpu"], kind="stable")]
    asked = asked[drain_causes(stream, calls, trace.comms) == CAUSES.index(cause)]
    if len(asked) < CALLS_MIN:
        return None
    larger = int(np.count_nonzero(asked > batch))
    line = f"{larger} of {len(asked)} {cause} calls free more than batch {batch} in a hold"
    return Finding(value=larger < LARGER_SHARE * len(asked), line=line)


@dataclass(frozen=True, kw_only=True, eq=False)
class DrainSteps:
    """Steps from one page to the next inside drains of single pages.

    Attributes:
        cause: int8 by step, index into `CAUSES`.
        offset: int64 by step, the page's place within a batch.
        step: int64 by step, ns.
        batch: the largest pcp->batch.
    """

    cause: np.ndarray
    offset: np.ndarray
    step: np.ndarray
    batch: int


def by_pauses(steps: DrainSteps, cause: str) -> Finding | None:
    """From the time between drained pages: dropping and retaking the lock lengthens one step.

    Between holds the step from page k * batch - 1 to k * batch contains an unlock, a lock and
    pending interrupts. Its median over all drains is held against the medians of the other
    offsets within a batch. Only drains of single pages count, whose holds end at exactly a batch.
    """
    wanted = steps.cause == CAUSES.index(cause)
    offset, step = steps.offset[wanted], steps.step[wanted]
    boundary = step[offset == 0]
    if len(boundary) < BATCHED_STEPS_MIN:
        return None
    inside = _medians(offset, step)
    if not len(inside):
        return None
    middle, longest = float(np.median(boundary)), float(inside.max())
    line = (
        f"{cause} drains: a step at {steps.batch} pages takes {middle:.0f} ns, "
        f"elsewhere {inside.min():.0f}-{longest:.0f} ns"
    )
    if middle > LONGER_STEP * longest:
        return Finding(value=True, line=line)
    if len(boundary) >= SINGLE_STEPS_MIN and middle <= longest:
        return Finding(value=False, line=line)
    return None


def drain_steps(stream: Stream, zones: ZoneMap, comms: Mapping[int, str]) -> DrainSteps:
    """Return the steps inside drains of single pages that take more than a batch.

    Args:
        stream: events by CPU and time.
        zones: batch of each code.
        comms: command names by thread id.
    """
    members = stream.rows_of(Event.PCPU_DRAIN)
    zone = zones.codes(stream.pfn[members])
    batches = zones.batches()[zone]
    batch = int(batches.max(initial=0))
    if batch <= 1:
        nothing = np.zeros(0, np.int64)
        return DrainSteps(cause=nothing.astype(np.int8), offset=nothing, step=nothing, batch=batch)
    starts = run_starts(stream, members, zone)
    run = np.cumsum(starts) - 1
    first, sizes = run_shape(members, run)
    causes = drain_causes(stream, first, comms)
    wanted = sizes > batch
    wanted &= np.bincount(run, weights=stream.order[members], minlength=len(first)) == 0
    wanted &= batches[starts] == batch
    position = members - first[run]
    inside = wanted[run] & (position > 0)
    rows = members[inside]
    return DrainSteps(
        cause=causes[run[inside]],
        offset=position[inside] % batch,
        step=stream.time_ns[rows] - stream.time_ns[rows - 1],
        batch=batch,
    )


def _medians(offset: np.ndarray, step: np.ndarray) -> np.ndarray:
    """Median step of every offset that is no multiple of the batch."""
    together = np.sort((offset << _STEP_BITS) + np.minimum(step, (1 << _STEP_BITS) - 1))
    offset, step = together >> _STEP_BITS, together & ((1 << _STEP_BITS) - 1)
    first, counts = np.unique(offset, return_index=True, return_counts=True)[1:]
    medians = step[first + counts // 2]
    return medians[offset[first] != 0]
