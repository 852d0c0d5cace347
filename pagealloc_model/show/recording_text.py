"""What a recording holds, what it lost, and what that makes impossible."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from pagealloc_model.base.errors import PageallocError, PolicyError
from pagealloc_model.base.text import INDENT, count_of, paragraph

if TYPE_CHECKING:
    from pagealloc_model.measured.rules import RuleEvidence
    from pagealloc_model.recording.provenance import ProvenanceCheck
    from pagealloc_model.recording.recording import Recording
    from pagealloc_model.recording.trace.columns import Trace

_UNKNOWN_CPU = "unknown"
_MOST_WAITS = 8


def describe_recording(recording: Recording) -> dict[str, Any]:
    """Content of a recording under the names that `pagealloc info --json` prints.

    Raises:
        RecordingError: the recording cannot be read.
    """
    return _described(recording, _judged(recording))


@dataclass(frozen=True, kw_only=True)
class _Judged:
    """What takes long to find out about a recording.

    Attributes:
        checks: whether it can be believed.
        origin: how its rules are chosen.
        evidence: what each rests on.
        waits: for locks, by caller, the most frequent first.
    """

    checks: tuple[ProvenanceCheck, ...]
    origin: str
    evidence: tuple[RuleEvidence, ...]
    waits: tuple[tuple[str, int], ...]


def _judged(recording: Recording) -> _Judged:
    from pagealloc_model.measured.call_stacks import waits_by_caller

    # read before there are two threads, so that there is one trace
    _ = recording.trace
    with ThreadPoolExecutor(1) as beside:
        checks = beside.submit(_checks, recording)
        origin, evidence = _rules(recording)
        waits = tuple(waits_by_caller(recording)[:_MOST_WAITS])
        return _Judged(checks=checks.result(), origin=origin, evidence=evidence, waits=waits)


def _described(recording: Recording, judged: _Judged) -> dict[str, Any]:
    from pagealloc_model.predicted.growth import size_changes
    from pagealloc_model.recording.trace.columns import EVENT_NAMES
    from pagealloc_model.verdict.loss_windows import loss_windows

    trace = recording.trace
    first, last = trace.span_ns
    return {
        "recording": recording.name,
        "path": str(recording.path),
        "sha256": recording.sha256,
        "kernel": recording.release,
        "cpus": trace.nr_cpus,
        "seconds": (last - first) / 1e9,
        "events": {name: trace.count(event) for name, event in EVENT_NAMES.items()},
        "other_events": {
            name: len(table["time_ns"])
            for name, table in trace.tables.items()
            if name not in EVENT_NAMES
        },
        "lost": trace.losses.total,
        "loss_intervals": len(trace.losses.count),
        "lost_by_cpu": _lost_by_cpu(trace),
        "sampled_rates": _sampled_rates(trace),
        "loss_free_windows": [str(each) for each in loss_windows(recording)],
        "snapshots": len(recording.snapshots),
        "zone_sizes": list(size_changes(recording)),
        "provenance": [each.to_dict() for each in judged.checks],
        "missing": [*trace.notes, *recording.missing],
        "lock_waits": dict(judged.waits),
        "rules": judged.origin,
        "rule_evidence": [each.to_dict() for each in judged.evidence],
    }


def _checks(recording: Recording) -> tuple[ProvenanceCheck, ...]:
    """All checks, those of what a replay makes up included where one can be made."""
    from pagealloc_model.predicted.prepared import recorded_demand
    from pagealloc_model.recording.provenance import REFUSED, ProvenanceCheck, demand_checks
    from pagealloc_model.recording.trace.columns import Event

    try:
        demand = recorded_demand(recording)
    except PageallocError as error:
        made = (ProvenanceCheck(check="replay", level=REFUSED, found=str(error)),)
        return (*recording.provenance(), *made)
    counts = {
        "hidden_allocations": demand.hidden_allocations,
        "grown_pages": demand.grown_pages,
    }
    allocations = recording.trace.count(Event.ALLOC)
    return (*recording.provenance(), *demand_checks(counts, allocations))


def _check_lines(check: ProvenanceCheck) -> list[str]:
    lines = [paragraph(f"{check.check}: {check.found}", label=f"{INDENT}{check.level}: ")]
    return lines + ([paragraph(f"to do: {check.todo}", label=INDENT * 3)] if check.todo else [])


def _lost_by_cpu(trace: Trace) -> dict[str, dict[str, float]]:
    """Events lost, and their share of all that happened, for each CPU that lost some."""
    from pagealloc_model.recording.trace.columns import EVENT_NAMES

    columns = [trace.cpu]
    columns += [table["cpu"] for name, table in trace.tables.items() if name not in EVENT_NAMES]
    recorded = np.concatenate(columns)
    by_cpu = {}
    for cpu in np.unique(trace.losses.cpu).tolist():
        lost = int(trace.losses.count[trace.losses.cpu == cpu].sum())
        kept = int(np.count_nonzero(recorded == cpu)) if cpu >= 0 else len(recorded)
        name = str(cpu) if cpu >= 0 else _UNKNOWN_CPU
        by_cpu[name] = {"lost": lost, "share": lost / max(lost + kept, 1)}
    return by_cpu


def _sampled_rates(trace: Trace) -> list[dict[str, Any]]:
    """Rates by order and type where events were sampled; [] where all were recorded."""
    from pagealloc_model.recording.sampling import sampled_rates

    if not trace.sampled:
        return []
    rates = sampled_rates(trace).astype(object)
    return rates.where(rates.notna(), None).to_dict("records")


def _rate_line(rate: dict[str, Any]) -> str:
    """One kind of event: how often, and how sure that is."""
    words = f"{INDENT}{rate['event']}"
    words += f", order {rate['order']}" if rate["order"] >= 0 else ""
    words += f", type {rate['migratetype']}" if rate["migratetype"] >= 0 else ""
    if rate["events"] is None:
        return f"{words}: {count_of(rate['samples'], 'sample')}"
    return (
        f"{words}: {rate['events']:.0f} +- {rate['error']:.0f} events, "
        f"{rate['events_per_s']:.0f} a second"
    )


def recording_text(recording: Recording) -> str:
    """The same as lines to read.

    Raises:
        RecordingError: the recording cannot be read.
    """
    judged = _judged(recording)
    described = _described(recording, judged)
    events = {**described["events"], **described["other_events"]}
    width = max(len(name) for name in events)
    lines = [
        f"recording  {described['recording']} ({described['path']})",
        f"sha256     {described['sha256']}",
        f"kernel     {described['kernel'] or 'unknown'}, {described['cpus'] or 'unknown'} CPUs",
        f"span       {described['seconds']:.3f} s",
        f"snapshots  {described['snapshots']}",
        *[f"memory     {line}" for line in described["zone_sizes"]],
        f"lost       {described['lost']} events in {described['loss_intervals']} intervals"
        + "".join(
            f"; CPU {cpu} {each['share']:.1%}" for cpu, each in described["lost_by_cpu"].items()
        ),
        "",
        "can it be believed",
        *[line for each in judged.checks for line in _check_lines(each)],
        "",
        "events",
        *[f"  {name:<{width}}  {count:>10}" for name, count in events.items()],
    ]
    if described["sampled_rates"]:
        lines += ["", "sampled: events by order and type, scaled"]
        lines += [_rate_line(each) for each in described["sampled_rates"]]
    if described["loss_free_windows"]:
        lines += ["", "between losses"]
        lines += [f"  {line}" for line in described["loss_free_windows"]]
    if described["lock_waits"]:
        lines += ["", "waits for locks, by caller"]
        lines += [f"  {count:>10}  {chain}" for chain, count in described["lock_waits"].items()]
    lines += ["", "rules", paragraph(judged.origin, label=INDENT)]
    lines += [rule_table(judged.evidence)] if judged.evidence else []
    if described["missing"]:
        lines += ["", "missing", *[f"  {line}" for line in described["missing"]]]
    return "\n".join(lines)


def _rules(recording: Recording) -> tuple[str, tuple[RuleEvidence, ...]]:
    """How rules for the recording are chosen, and what each rests on; () where there are none."""
    from pagealloc_model.measured.rules import checked, recorded_rules

    try:
        chosen = recorded_rules(recording)
    except PolicyError as error:
        return str(error), ()
    if recording.trace.sampled:
        return chosen.origin, ()
    return chosen.origin, checked(recording, chosen.evidence)


def rule_table(evidence: Sequence[RuleEvidence]) -> str:
    """Rules gathered by what they rest on, each with its value and what the events say of it."""
    lines = []
    for reason in dict.fromkeys((each.standing, each.line) for each in evidence):
        standing, line = reason
        lines.append(paragraph(f"{standing}: {line}", label=INDENT))
        for each in evidence:
            if (each.standing, each.line) == reason:
                lines.append(f"{INDENT * 2}{each.rule} = {str(each.value).lower()}")
                if each.check:
                    lines.append(paragraph(each.check, label=INDENT * 3))
    return "\n".join(lines)
