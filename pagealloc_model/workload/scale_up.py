"""A recording as a larger machine: its streams again and again, each with memory of its own.

What replication assumes: copies do the same, some time apart, and share nothing but the zones;
each copy's objects are its own, and so is what it freed without having allocated it, which is
allocated first. So much other memory stays in use that memory gets as short as it was recorded.
kswapd runs as recorded. Demand does not react to memory or locks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from pagealloc_model.allocator import layout as at
from pagealloc_model.errors import UsageError
from pagealloc_model.evidence.choice import choose_rules
from pagealloc_model.kernel_rules import KernelRules
from pagealloc_model.machine import Machine
from pagealloc_model.measured import measure
from pagealloc_model.policy import Assumptions
from pagealloc_model.prepared import effective_policy, prepare
from pagealloc_model.state_errors import relative
from pagealloc_model.workload.made_up_machine import GIB_PAGES, made_up_machine
from pagealloc_model.workload.run import ScenarioRun, managed_spans, run_scenario
from pagealloc_model.workload.scenario import Scenario, in_time_order, plain_events

if TYPE_CHECKING:
    from pagealloc_model.allocator.initial import StartImage
    from pagealloc_model.bundle import Bundle
    from pagealloc_model.demand import Demand

SETTLING_NS = 1_000_000_000
"""What lives at the start is allocated this long before the first event."""
SHIFT_SHARE = 20
"""Copies begin within this part of the recording's span, by default."""
_OF_OBJECTS = (at.ALLOC, at.HIDDEN_ALLOC, at.FREE)
_OF_KSWAPD = (at.KSWAPD_START, at.KSWAPD_STOP)


@dataclass(frozen=True, kw_only=True, eq=False)
class Streams:
    """The demand of some of a recording's CPUs.

    Attributes:
        events: `layout.EVENT` records on CPUs 0 to `nr_cpus` - 1; object numbers from 0 on.
        orders: int8 order of each object.
        born: bool, whether an event allocates the object.
        nr_cpus: CPUs.
    """

    events: np.ndarray
    orders: np.ndarray
    born: np.ndarray
    nr_cpus: int


def streams_of(demand: Demand, cpus: Sequence[int]) -> Streams:
    """The objects that some CPUs were first to handle, with all their events moved to those CPUs.

    Args:
        demand: a recording's.
        cpus: the CPUs to keep.
    """
    events = demand.events[np.isin(demand.events["operation"], _OF_OBJECTS)]
    events = events[events["object"] >= 0]
    numbers, first = np.unique(events["object"], return_index=True)
    kept = numbers[np.isin(events["cpu"][first], cpus)]
    new_number = np.full(len(demand.objects), -1, np.int64)
    new_number[kept] = np.arange(len(kept))
    events = events[new_number[events["object"]] >= 0].copy()
    events["object"] = new_number[events["object"]]
    places = {cpu: place for place, cpu in enumerate(cpus)}
    highest = int(demand.events["cpu"].max()) + 1
    events["cpu"] = np.array([places.get(cpu, cpu % len(cpus)) for cpu in range(highest)])[
        events["cpu"]
    ]
    born = np.zeros(len(kept), bool)
    born[events["object"][events["operation"] != at.FREE]] = True
    return Streams(
        events=events,
        orders=demand.objects["order"][kept].copy(),
        born=born,
        nr_cpus=len(cpus),
    )


def scaled_up(
    recording: Bundle,
    nr_cpus: int,
    *,
    gib: float | None = None,
    cpus: Sequence[int] | None = None,
    shift_ns: int | None = None,
    rules: KernelRules | None = None,
    seed: int = 0,
) -> Scenario:
    """A recording's streams on a machine with more CPUs and memory.

    Args:
        recording: an opened bundle.
        nr_cpus: CPUs of the machine; streams repeat until each has one.
        gib: its memory; None for as much as was recorded.
        cpus: the recorded CPUs whose streams are used; None for all.
        shift_ns: copies begin up to this long after the first; None for a part of the span.
        rules: the kernel's rules; None for the recorded kernel's.
        seed: of the shifts.

    Raises:
        UsageError: no such CPU in the recording, or no CPU asked for.
    """
    rules = rules or choose_rules(recording, None).rules
    prepared = prepare(recording, rules, Assumptions(), 0)
    recorded = prepared.machine
    cpus = tuple(range(recorded.nr_cpus)) if cpus is None else tuple(cpus)
    if nr_cpus < 1 or not cpus or not set(cpus) <= set(range(recorded.nr_cpus)):
        raise UsageError(
            f"{recording.name} has CPUs 0 to {recorded.nr_cpus - 1}: streams of CPUs "
            f"{', '.join(map(str, cpus))} cannot make a machine of {nr_cpus}"
        )
    streams = streams_of(prepared.demand, cpus)
    machine = _machine(recorded, nr_cpus, gib, rules)
    copies = -(-nr_cpus // len(cpus))
    first = int(streams.events["time_ns"][0])
    span = int(streams.events["time_ns"][-1]) - first
    limit = span // SHIFT_SHARE if shift_ns is None else shift_ns
    shifts = np.random.default_rng(seed).integers(0, max(limit, 1), copies)
    shifts[0] = 0
    copied = _copies(streams, shifts, nr_cpus)
    count = len(streams.orders) * copies
    births = _births(streams, copied, machine, first)
    unborn = int((np.int64(1) << births["order"].astype(np.int64)).sum())
    share = _lowest_free_share(prepared.image, recorded, prepared.demand)
    blocks = _background_blocks(share, machine, copied, unborn)
    background = _background(blocks, machine, count, first - 2 * SETTLING_NS)
    kswapd = prepared.demand.events[np.isin(prepared.demand.events["operation"], _OF_KSWAPD)]
    events = np.concatenate([background, births, kswapd, copied])
    return Scenario(
        name=f"{recording.name} x{copies}",
        machine=machine,
        events=in_time_order(events),
        objects=count + len(background),
        seed=seed,
        kswapd_recorded=prepared.demand.kswapd_recorded,
        direct_reclaim_recorded=prepared.demand.direct_reclaim_recorded,
        lines=(
            f"{copies} copies of {len(cpus)} streams of {recording.name} on {nr_cpus} CPUs, "
            f"begun within {limit / 1e6:g} ms; memory of their own, zones shared",
            f"{blocks << machine.pageblock_order} pages beside theirs stay in use",
        ),
    )


def _machine(recorded: Machine, nr_cpus: int, gib: float | None, rules: KernelRules) -> Machine:
    """The larger machine; limits of its per-CPU lists follow from its size."""
    if gib is not None:
        return made_up_machine(gib, nr_cpus, rules, nodes=len(recorded.nodes))
    if nr_cpus == recorded.nr_cpus:
        zones = tuple(
            replace(
                zone,
                boost=0,
                pagesets=tuple(
                    replace(each, count=0, high=each.high_min or each.high)
                    for each in zone.pagesets
                ),
            )
            for zone in recorded.zones
        )
        return replace(recorded, zones=zones)
    zones = tuple(replace(zone, boost=0, pagesets=()) for zone in recorded.zones)
    nodes = recorded.cpu_nodes
    return replace(
        recorded,
        zones=zones,
        nr_cpus=nr_cpus,
        cpu_nodes=tuple(nodes[cpu % len(nodes)] for cpu in range(nr_cpus)) if nodes else (),
    )


def _copies(streams: Streams, shifts: np.ndarray, nr_cpus: int) -> np.ndarray:
    """The streams' events once per shift, each with CPUs and objects of its own."""
    parts = []
    for number, shift in enumerate(shifts.tolist()):
        part = streams.events.copy()
        part["time_ns"] += shift
        part["object"] += number * len(streams.orders)
        part["cpu"] = (part["cpu"].astype(np.int64) + number * streams.nr_cpus) % nr_cpus
        parts.append(part)
    return np.concatenate(parts)


def _births(streams: Streams, copied: np.ndarray, machine: Machine, first: int) -> np.ndarray:
    """Allocations of what lived at the start, on the CPUs that free it."""
    frees = copied[copied["operation"] == at.FREE]
    _, index = np.unique(frees["object"], return_index=True)
    frees = frees[index]
    unborn = frees[~streams.born[frees["object"] % len(streams.born)]]
    births = plain_events(at.HIDDEN_ALLOC, np.full(len(unborn), first - SETTLING_NS), unborn["cpu"])
    births["object"] = unborn["object"]
    births["order"] = streams.orders[unborn["object"] % len(streams.orders)]
    births["migratetype"] = at.MOVABLE
    births["bits"] = at.GFP_DIRECT_RECLAIM | at.GFP_KSWAPD_RECLAIM
    births["zone"] = len(machine.zone_types) - 1
    return births


def most_in_use(events: np.ndarray) -> int:
    """By how many pages what is in use exceeds, at its peak, what was at the start."""
    by_time = np.argsort(events["time_ns"], kind="stable")
    pages = np.int64(1) << events["order"][by_time].astype(np.int64)
    signed = np.where(events["operation"][by_time] == at.FREE, -pages, pages)
    return max(int(np.cumsum(signed).max(initial=0)), 0)


def _background_blocks(
    lowest_share: float, machine: Machine, copied: np.ndarray, unborn_pages: int
) -> int:
    """Pageblocks in use throughout, so that memory gets as short as it was recorded.

    Raises:
        UsageError: the machine has too little memory for the copies.
    """
    managed = sum(end - begin for begin, end in managed_spans(machine))
    spare = int(managed * (1 - lowest_share)) - unborn_pages - most_in_use(copied)
    if spare < 0:
        raise UsageError(
            f"the streams need {-spare} pages more than the machine has; give it "
            f"{(managed - spare) / GIB_PAGES:.1f} GiB"
        )
    return spare >> machine.pageblock_order


def _background(blocks: int, machine: Machine, objects: int, time_ns: int) -> np.ndarray:
    """Allocations of whole pageblocks that are never freed."""
    events = plain_events(
        at.HIDDEN_ALLOC, np.full(blocks, time_ns), np.arange(blocks) % machine.nr_cpus
    )
    events["object"] = objects + np.arange(blocks)
    events["order"] = machine.pageblock_order
    events["migratetype"] = at.MOVABLE
    events["bits"] = at.GFP_DIRECT_RECLAIM | at.GFP_KSWAPD_RECLAIM
    events["zone"] = len(machine.zone_types) - 1
    return events


def _lowest_free_share(image: StartImage, recorded: Machine, demand: Demand) -> float:
    """Share of the recorded machine's memory that is free when least is.

    At least what the high watermarks keep free: reclaim does that, and its frees are demand here.
    """
    free = int(image.free.sum()) + int((1 << image.listed["order"].astype(np.int64)).sum())
    everything = streams_of(demand, tuple(range(recorded.nr_cpus)))
    managed = sum(zone.managed for zone in recorded.zones)
    kept = sum(zone.high for zone in recorded.zones)
    return max(free - most_in_use(everything.events), kept) / managed


def judged_scale_up(recording: Bundle, cpus: Sequence[int], *, seed: int = 0) -> pd.DataFrame:
    """Predict a recording from the streams of some of its CPUs, and hold it against what it shows.

    Returns:
        site, measured acquisitions and pages, those predicted from all streams (the same empty
        start, nothing replicated), and from the given ones; `error` is of the last, `added` what
        replication adds to the model's own.
    """
    rules = choose_rules(recording, None).rules
    everything = scaled_up(recording, _cpus(recording, rules), rules=rules, seed=seed)
    part = scaled_up(recording, everything.machine.nr_cpus, cpus=cpus, rules=rules, seed=seed)
    real = measure(recording).transactions_full
    sides = {
        "all_streams": _after_start(recording, everything, rules),
        "predicted": _after_start(recording, part, rules),
    }
    rows = []
    for site in ("refill", "drain", "buddy_alloc", "direct_free"):
        for metric in ("acquisitions", "pages"):
            row: dict[str, object] = {"site": site, "metric": metric}
            row["measured"] = _total(real, site, metric)
            row |= {name: _total(frame, site, metric) for name, frame in sides.items()}
            row["error"] = relative(float(row["predicted"]), float(row["measured"]))  # type: ignore[arg-type]
            row["added"] = relative(float(row["predicted"]), float(row["all_streams"]))  # type: ignore[arg-type]
            rows.append(row)
    return pd.DataFrame(rows)


def _cpus(recording: Bundle, rules: KernelRules) -> int:
    return prepare(recording, rules, Assumptions(), 0).machine.nr_cpus


def _after_start(recording: Bundle, scenario: Scenario, rules: KernelRules) -> pd.DataFrame:
    run: ScenarioRun = run_scenario(scenario, effective_policy(recording, None), rules=rules)
    first = recording.trace.demand_span_ns[0]
    frame = run.transactions_full
    return frame[frame["time_ns"] >= first]


def _total(frame: pd.DataFrame, site: str, metric: str) -> float:
    rows = frame[frame["site"] == site]
    return float(len(rows) if metric == "acquisitions" else rows["pages"].sum())
