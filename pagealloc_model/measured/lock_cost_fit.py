"""Costs of work under zone->lock, from how far apart a recording's events in one hold are (S11.2).

Most of that distance is the tracing itself. What an event costs shows where events follow each
other with next to nothing in between: the members of one batch of freed pages (T3). Whatever
disturbs a machine only adds to a distance, so distances are compared by their lower quartiles.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from pagealloc_model.measured.stream import Stream, allocator_stream
from pagealloc_model.policy.lock_costs import Cost, LockCosts
from pagealloc_model.recording.lock_profile import LockProfile
from pagealloc_model.recording.trace.columns import Event, Trace

if TYPE_CHECKING:
    from pagealloc_model.recording.recording import Recording

FEWEST_STEPS = 2000
"""Steps from one event to the next below which nothing is fitted."""
FEWEST_SAMPLES = 30
"""Samples of a profile at a site below which it tells nothing of the site's costs."""
STEPS_USED = 200_000
RESAMPLES = 60
LARGEST_RULER = 6
_FEWEST_OF_A_LENGTH = 50
_QUARTILE = 25
_INTERVAL = (2.5, 97.5)


@dataclass(frozen=True, kw_only=True, eq=False)
class _Steps:
    """Steps between consecutive events of one task on one CPU: length and units of work."""

    length_ns: np.ndarray
    units: np.ndarray
    is_ruled: np.ndarray


def recorded_costs(recording: Recording, *, with_intervals: bool = True) -> LockCosts:
    """Costs of a recording, with its profile where it has one.

    Args:
        recording: the recording.
        with_intervals: as `fit_lock_costs` takes it.
    """
    return fit_lock_costs(
        recording.trace, recording.name, recording.lock_profile, with_intervals=with_intervals
    )


def fit_lock_costs(
    trace: Trace,
    name: str,
    profile: LockProfile | None = None,
    *,
    with_intervals: bool = True,
) -> LockCosts:
    """Costs as far as a recording shows them; the others stay assumed.

    Fitted are `object` and `split` (refills), `merge` and `insert` (drains) and `event`, what the
    tracing adds. `acquire`, `scan` and `handoff` leave no pair of events to measure.

    Args:
        trace: a recording's events.
        name: its name, for the costs' origin.
        profile: of the machine without tracing: how long it held the lock settles `object` and
            `insert`, which tracing hides best.
        with_intervals: whether to find the intervals of confidence, which takes most of the time;
            without, fitted costs have empty ones.
    """
    stream = allocator_stream(trace, with_probes=False)
    taken, freed, batched = (
        _steps(stream, event) for event in (Event.ZONE_LOCKED, Event.PCPU_DRAIN, Event.FREE_BATCHED)
    )
    if min(len(each.length_ns) for each in (taken, freed, batched)) < FEWEST_STEPS:
        return LockCosts()
    rng = np.random.default_rng(0)
    drawn = [_estimates(taken, freed, batched)]
    for _ in range(RESAMPLES if with_intervals else 0):
        drawn.append(_estimates(*(_resampled(each, rng) for each in (taken, freed, batched))))
    names = ("object", "split", "merge", "insert", "event")
    table = np.array(drawn)
    low, high = np.percentile(table[1:] if with_intervals else table, _INTERVAL, axis=0)
    origin = f"fitted from {name}"
    fitted = {
        each: Cost(
            ns=float(table[0, column]),
            low_ns=float(low[column]),
            high_ns=float(high[column]),
            origin=origin,
        )
        for column, each in enumerate(names)
    }
    costs = replace(LockCosts(), **fitted)
    if profile is None:
        return costs
    return _apportioned(costs, trace, profile, name, _mean_units(taken), _mean_units(freed))


def _mean_units(steps: _Steps) -> float:
    return float(steps.units[steps.is_ruled].mean()) if steps.is_ruled.any() else 0.0


def _apportioned(
    costs: LockCosts, trace: Trace, profile: LockProfile, name: str, splits: float, merges: float
) -> LockCosts:
    """Costs that add up to the time the profile has under the lock, site by site.

    What is traced lasts as long as before: what an object costs less, its event costs more.

    Args:
        costs: fitted to steps between events.
        trace: the recording's events, which count objects.
        profile: time under the lock without tracing.
        name: of the recording.
        splits: per object refilled.
        merges: per object drained.
    """
    refilled = int((trace.percpu_refill[trace.event == Event.ZONE_LOCKED] == 1).sum())
    drained = int((trace.event == Event.PCPU_DRAIN).sum())
    first, last = trace.demand_span_ns
    length = 1.0 if profile.repeats_command else profile.seconds * 1e9 / max(last - first, 1)
    object_cost, insert = costs.object, costs.insert
    if profile.samples.get("refill", 0) >= FEWEST_SAMPLES and refilled:
        others = splits * costs.split.ns
        object_cost = _remainder(profile, "refill", refilled * length, others, name)
    if profile.samples.get("drain", 0) >= FEWEST_SAMPLES and drained:
        others = object_cost.ns + merges * costs.merge.ns
        insert = _remainder(profile, "drain", drained * length, others, name)
    event_ns = max(costs.event.ns + costs.object.ns - object_cost.ns, 0.0)
    shift = event_ns - costs.event.ns
    event = replace(
        costs.event,
        ns=event_ns,
        low_ns=max(costs.event.low_ns + shift, 0.0),
        high_ns=max(costs.event.high_ns + shift, 0.0),
    )
    return replace(costs, object=object_cost, insert=insert, event=event)


def _remainder(
    profile: LockProfile, site: str, objects: float, others_ns: float, name: str
) -> Cost:
    """Time per object at a site less what else it costs; samples are counted, hence their error."""
    per_object = profile.held_ns(site) / objects
    error = 1.96 / profile.samples[site] ** 0.5
    value, low, high = (
        max(per_object * factor - others_ns, 0.0) for factor in (1.0, 1 - error, 1 + error)
    )
    origin = f"apportioned from the profile of {name}"
    return Cost(ns=value, low_ns=low, high_ns=high, origin=origin)


def _steps(stream: Stream, event: Event) -> _Steps:
    """Steps between events of one kind in a row; the first `STEPS_USED`.

    Units are known where pages follow each other in the way that splitting or merging prescribes:
    the page after its neighbour was split off as often as its number is even (S5.2), and freeing it
    merges as often as the numbers before it were odd (S5.3).
    """
    is_kind = stream.is_kind(event)
    follows = is_kind[1:] & is_kind[:-1]
    follows &= (stream.cpu[1:] == stream.cpu[:-1]) & (stream.pid[1:] == stream.pid[:-1])
    after = (np.flatnonzero(follows) + 1)[:STEPS_USED]
    time_ns, pfn, page_order = stream.time_ns, stream.pfn, stream.order
    single = (page_order[after] == 0) & (page_order[after - 1] == 0)
    neighbour = single & (np.abs(pfn[after] - pfn[after - 1]) == 1)
    rising = pfn[after] > pfn[after - 1]
    if event == Event.ZONE_LOCKED:
        units, is_ruled = _times_even(pfn[after]), neighbour & rising
    else:
        units = np.where(rising, _times_even(pfn[after] + 1), _times_even(pfn[after]))
        is_ruled = neighbour
    return _Steps(length_ns=time_ns[after] - time_ns[after - 1], units=units, is_ruled=is_ruled)


def _times_even(number: np.ndarray) -> np.ndarray:
    """How often each number can be halved, up to `LARGEST_RULER`."""
    times = np.zeros(len(number), np.int64)
    for power in range(1, LARGEST_RULER + 1):
        times += number % (1 << power) == 0
    return times


def _resampled(steps: _Steps, rng: np.random.Generator) -> _Steps:
    rows = rng.integers(0, len(steps.length_ns), min(len(steps.length_ns), STEPS_USED // 8))
    return _Steps(
        length_ns=steps.length_ns[rows], units=steps.units[rows], is_ruled=steps.is_ruled[rows]
    )


def _estimates(taken: _Steps, freed: _Steps, batched: _Steps) -> tuple[float, ...]:
    """Object, split, merge, insert and event, in ns, none below 0."""
    bare = float(np.percentile(batched.length_ns, _QUARTILE))
    split = _slope(taken)
    merge = _slope(freed)
    object_ns = max(float(np.percentile(taken.length_ns, _QUARTILE)) - bare, 0.0)
    insert = float(np.percentile(freed.length_ns, _QUARTILE)) - bare - object_ns
    traced = float(np.mean(np.minimum(taken.length_ns, np.percentile(taken.length_ns, 99.9))))
    return object_ns, split, merge, max(insert, 0.0), max(traced - object_ns, 0.0)


def _slope(steps: _Steps) -> float:
    """Ns per unit: a line through the lower quartiles of steps with 0, 1, 2, ... units."""
    units, heights, weights = [], [], []
    for count in range(LARGEST_RULER + 1):
        lengths = steps.length_ns[steps.is_ruled & (steps.units == count)]
        if len(lengths) >= _FEWEST_OF_A_LENGTH:
            units.append(count)
            heights.append(np.percentile(lengths, _QUARTILE))
            weights.append(np.sqrt(len(lengths)))
    if len(units) < 2:
        return LockCosts().split.ns
    return max(float(np.polyfit(units, heights, 1, w=weights)[0]), 0.0)
