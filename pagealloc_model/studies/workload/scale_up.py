"""A recording as a larger machine: its streams again and again, each with memory of its own.

What replication assumes: copies do the same, some time apart, and share nothing but the zones;
each copy's objects are its own, and so is what it freed without having allocated it, which is
allocated first. So much other memory stays in use that memory gets as short as it was recorded.
kswapd runs as recorded. Demand does not react to memory or locks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from pagealloc_model.allocator import layout as at
from pagealloc_model.base.errors import UsageError
from pagealloc_model.base.text.counts import count_of
from pagealloc_model.measured.measured import measure
from pagealloc_model.measured.rules import choose_rules
from pagealloc_model.policy.assumptions import ElasticAssumptions
from pagealloc_model.policy.kernel_rules import KernelRules
from pagealloc_model.policy.policy import Assumptions
from pagealloc_model.predicted.prepared import prepare
from pagealloc_model.recording.machine import Machine
from pagealloc_model.recording.made_up_machine import GIB_PAGES, made_up_machine
from pagealloc_model.recording.recorded_machine import effective_policy
from pagealloc_model.studies.workload.copied_streams import CopiedStreams, most_in_use, streams_of
from pagealloc_model.studies.workload.event_stream import EventStream
from pagealloc_model.studies.workload.rounds import Rounds
from pagealloc_model.studies.workload.run import ScenarioRun, managed_spans, run_scenario
from pagealloc_model.studies.workload.scenario import Scenario, plain_events
from pagealloc_model.verdict.statistics import relative

if TYPE_CHECKING:
    from pagealloc_model.allocator.state import StartImage
    from pagealloc_model.predicted.demand.demand import Demand
    from pagealloc_model.recording.recording import Recording

SHIFT_SHARE = 20
"""Copies begin within this part of the recording's span, by default."""
_OF_KSWAPD = (at.KSWAPD_START, at.KSWAPD_STOP)


def scaled_up(
    recording: Recording,
    nr_cpus: int,
    *,
    gib: float | None = None,
    cpus: Sequence[int] | None = None,
    shift_ns: int | None = None,
    rules: KernelRules | None = None,
    seed: int = 0,
    reclaim: str = "literal",
) -> Scenario:
    """A recording's streams on a machine with more CPUs and memory.

    Args:
        recording: an opened recording.
        nr_cpus: CPUs of the machine; streams repeat until each has one.
        gib: its memory; None for as much as was recorded.
        cpus: the recorded CPUs whose streams are used; None for all.
        shift_ns: copies begin up to this long after the first; None for a part of the span.
        rules: the kernel's rules; None for the recorded kernel's.
        seed: of the shifts.
        reclaim: mode of reclaim that it is for, see `scaled_stream`.

    Raises:
        UsageError: no such CPU in the recording, or no CPU asked for.
    """
    return scaled_stream(
        recording,
        nr_cpus,
        gib=gib,
        cpus=cpus,
        shift_ns=shift_ns,
        rules=rules,
        seed=seed,
        reclaim=reclaim,
    ).scenario()


def scaled_stream(
    recording: Recording,
    nr_cpus: int,
    *,
    gib: float | None = None,
    cpus: Sequence[int] | None = None,
    shift_ns: int | None = None,
    rules: KernelRules | None = None,
    seed: int = 0,
    rounds: int = 1,
    reclaim: str = "literal",
) -> EventStream:
    """The same demand made part by part, and as many times over as is asked for.

    After each round but the last, what still lives is freed, and what lived at the start is
    allocated again; what stays in use throughout stays in use.

    Args:
        recording: an opened recording.
        nr_cpus: CPUs of the machine; streams repeat until each has one.
        gib: its memory; None for as much as was recorded.
        cpus: the recorded CPUs whose streams are used; None for all.
        shift_ns: copies begin up to this long after the first; None for a part of the span.
        rules: the kernel's rules; None for the recorded kernel's.
        seed: of the shifts.
        rounds: how many times the recording is gone through.
        reclaim: mode of reclaim that it is for: an elastic run does without the frees by recorded
            reclaim and compaction, and reads of pages what they hold. Requests that failed and uses
            of files' pages are in neither.

    Raises:
        UsageError: no such CPU in the recording, no CPU or no round asked for, or too little memory
            for the copies.
    """
    rules = rules or choose_rules(recording, None).rules
    assumptions = Assumptions(reclaim=reclaim)
    if reclaim == "elastic":
        assumptions = replace(assumptions, elastic=ElasticAssumptions(file_uses=False))
    prepared = prepare(recording, rules, assumptions, 0)
    recorded, demand = prepared.machine, prepared.demand
    cpus = tuple(range(recorded.nr_cpus)) if cpus is None else tuple(cpus)
    if nr_cpus < 1 or not cpus or not set(cpus) <= set(range(recorded.nr_cpus)):
        raise UsageError(
            f"{recording.name} has CPUs 0 to {recorded.nr_cpus - 1}: streams of CPUs "
            f"{', '.join(map(str, cpus))} cannot make a machine of {nr_cpus}"
        )
    if rounds < 1:
        raise UsageError(f"{rounds} rounds of {recording.name} are no demand; ask for 1 or more")
    machine = _machine(recorded, nr_cpus, gib, rules)
    streams = streams_of(demand, cpus)
    kswapd = demand.events[np.isin(demand.events["operation"], _OF_KSWAPD)]
    for events in (streams.events, kswapd):
        events["zone"] = _types_by_type(recorded, machine)[events["zone"]]
    copies = -(-nr_cpus // len(cpus))
    span = int(streams.events["time_ns"][-1] - streams.events["time_ns"][0])
    limit = span // SHIFT_SHARE if shift_ns is None else shift_ns
    shifts = np.random.default_rng(seed).integers(0, max(limit, 1), copies)
    shifts[0] = 0
    copied = CopiedStreams(streams=streams, shifts=shifts, nr_cpus=nr_cpus, beside=kswapd)
    share = _lowest_free_share(prepared.image, recorded, demand)
    blocks = _background_blocks(share, machine, copied)
    plan = Rounds(
        copied=copied,
        background=_background(blocks, machine, copied.objects),
        highest_type=len(machine.zone_types) - 1,
        rounds=rounds,
    )
    lines = (
        f"{count_of(copies, 'copy', 'copies')} of {count_of(len(cpus), 'stream')} of "
        f"{recording.name} "
        f"on {count_of(nr_cpus, 'CPU')}, "
        f"begun within {limit / 1e6:g} ms; memory of their own, zones shared",
        f"{blocks << machine.pageblock_order} pages beside theirs stay in use",
    )
    times = f", {rounds} times over" if rounds > 1 else ""
    return EventStream(
        name=f"{recording.name} x{copies}{times}",
        machine=machine,
        parts=plan.parts,
        events=plan.events,
        objects=copied.objects + blocks,
        seed=seed,
        kswapd_recorded=demand.kswapd_recorded,
        direct_reclaim_recorded=demand.direct_reclaim_recorded,
        lines=lines,
    )


def _types_by_type(recorded: Machine, machine: Machine) -> np.ndarray:
    """int8: the machine's zone type for each recorded one; one that it lacks is its highest."""
    numbers = [machine.type_index(name) for name in recorded.zone_types]
    highest = len(machine.zone_types) - 1
    return np.array([number if number >= 0 else highest for number in numbers], np.int8)


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


def _background_blocks(lowest_share: float, machine: Machine, copied: CopiedStreams) -> int:
    """Pageblocks in use throughout, so that memory gets as short as it was recorded.

    What watermarks and lowmem_reserve keep from these requests (S1.5, S1.8) stays free in any case.

    Raises:
        UsageError: the machine has too little memory for the copies.
    """
    managed = sum(end - begin for begin, end in managed_spans(machine))
    kept = sum(
        min(zone.high + max(zone.lowmem_reserve, default=0), zone.managed) for zone in machine.zones
    )
    orders = np.concatenate([each["order"] for each in copied.births(0, 0)])
    unborn = int((np.int64(1) << orders.astype(np.int64)).sum())
    free = max(int(managed * lowest_share), kept)
    spare = managed - free - unborn - most_in_use(copied.merged())
    if spare < 0:
        raise UsageError(
            f"the streams need {-spare} pages more than the machine has; give it "
            f"{(managed - spare) / GIB_PAGES:.1f} GiB"
        )
    return spare >> machine.pageblock_order


def _background(blocks: int, machine: Machine, objects: int) -> np.ndarray:
    """Allocations of whole pageblocks that are never freed."""
    events = plain_events(
        at.HIDDEN_ALLOC, np.zeros(blocks, np.int64), np.arange(blocks) % machine.nr_cpus
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
    return max(free - most_in_use([everything.events]), kept) / managed


def judged_scale_up(recording: Recording, cpus: Sequence[int], *, seed: int = 0) -> pd.DataFrame:
    """Predict a recording from the streams of some of its CPUs, and hold it against what it shows.

    Returns:
        site, measured acquisitions and pages, those predicted from all streams (the same empty
        start, nothing replicated), and from the given ones; `error` is of the last, `added` what
        replication adds to the model's own.
    """
    rules = choose_rules(recording, None).rules
    everything = scaled_up(recording, _cpus(recording, rules), rules=rules, seed=seed)
    part = scaled_up(recording, everything.machine.nr_cpus, cpus=cpus, rules=rules, seed=seed)
    real = measure(recording)
    sides = {
        "all_streams": _after_start(recording, everything, rules),
        "predicted": _after_start(recording, part, rules),
    }
    rows = []
    for site in ("refill", "drain", "buddy_alloc", "direct_free"):
        for metric in ("acquisitions", "pages"):
            row: dict[str, object] = {"site": site, "metric": metric}
            is_seen = site not in real.unseen_sites
            row["measured"] = (
                _total(real.transactions_full, site, metric) if is_seen else float("nan")
            )
            row |= {name: _total(frame, site, metric) for name, frame in sides.items()}
            row["error"] = relative(float(row["predicted"]), float(row["measured"]))  # type: ignore[arg-type]
            row["added"] = relative(float(row["predicted"]), float(row["all_streams"]))  # type: ignore[arg-type]
            rows.append(row)
    return pd.DataFrame(rows)


def _cpus(recording: Recording, rules: KernelRules) -> int:
    return prepare(recording, rules, Assumptions(), 0).machine.nr_cpus


def _after_start(recording: Recording, scenario: Scenario, rules: KernelRules) -> pd.DataFrame:
    run: ScenarioRun = run_scenario(scenario, effective_policy(recording, None), rules=rules)
    first = recording.trace.demand_span_ns[0]
    frame = run.transactions_full
    return frame[frame["time_ns"] >= first]


def _total(frame: pd.DataFrame, site: str, metric: str) -> float:
    rows = frame[frame["site"] == site]
    return float(len(rows) if metric == "acquisitions" else rows["pages"].sum())
