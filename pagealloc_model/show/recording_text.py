"""The content of a recording, its losses, and what those make impossible, as text or for JSON."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import numpy as np

from pagealloc_model.base.errors import PageallocError, PolicyError
from pagealloc_model.base.text import INDENT, as_path, count_of, paragraph
from pagealloc_model.measured.call_stacks import waits_by_caller
from pagealloc_model.measured.rules import checked, recorded_rules
from pagealloc_model.numbers.loss_windows import loss_windows
from pagealloc_model.predicted.growth import size_changes
from pagealloc_model.predicted.prepared import recorded_demand
from pagealloc_model.recording.provenance import REFUSED, USABLE, ProvenanceCheck, demand_checks
from pagealloc_model.recording.sampling import sampled_rates
from pagealloc_model.recording.trace.columns import EVENT_NAMES, Event

if TYPE_CHECKING:
    from pagealloc_model.measured.rules import RuleEvidence
    from pagealloc_model.recording.recording import Recording


def describe_recording(recording: Recording) -> dict[str, Any]:
    """Content of a recording under the names that `pagealloc info --json` prints.

    Raises:
        RecordingError: the recording cannot be read.
    """
    trace = recording.trace  # read before there are two threads, so that there is one trace
    evidence: tuple[RuleEvidence, ...] = ()
    with ThreadPoolExecutor(1) as beside:
        checks = beside.submit(_checks, recording)
        try:
            chosen = recorded_rules(recording)
            origin = chosen.origin
            evidence = () if trace.sampled else checked(recording, chosen.evidence)
        except PolicyError as error:
            origin = str(error)
        waits = waits_by_caller(recording)[:8]
        provenance = checks.result()
    others = {name: table for name, table in trace.tables.items() if name not in EVENT_NAMES}
    recorded = np.concatenate([trace.cpu, *(table["cpu"] for table in others.values())])
    lost_by_cpu = {}
    for cpu in np.unique(trace.losses.cpu).tolist():
        lost = trace.losses.take(trace.losses.cpu == cpu).total
        there = int(np.count_nonzero(recorded == cpu)) if cpu >= 0 else len(recorded)
        share = lost / max(lost + there, 1)
        lost_by_cpu[str(cpu) if cpu >= 0 else "unknown"] = {"lost": lost, "share": share}
    rates = []
    if trace.sampled:
        table = sampled_rates(trace).astype(object)
        rates = table.where(table.notna(), None).to_dict("records")
    first, last = trace.span_ns
    return {
        "recording": recording.name,
        "path": str(recording.path),
        "sha256": recording.sha256,
        "kernel": recording.release,
        "cpus": trace.nr_cpus,
        "seconds": (last - first) / 1e9,
        "events": {name: trace.count(event) for name, event in EVENT_NAMES.items()},
        "other_events": {name: len(table["time_ns"]) for name, table in others.items()},
        "lost": trace.losses.total,
        "loss_intervals": len(trace.losses.count),
        "lost_by_cpu": lost_by_cpu,
        "sampled_rates": rates,
        "loss_free_windows": [str(window) for window in loss_windows(recording)],
        "snapshots": len(recording.snapshots),
        "zone_sizes": list(size_changes(recording)),
        "provenance": [check.to_dict() for check in provenance],
        "missing": [*trace.notes, *recording.missing],
        "lock_waits": dict(waits),
        "rules": origin,
        "rule_evidence": [rule.to_dict() for rule in evidence],
    }


def _checks(recording: Recording) -> tuple[ProvenanceCheck, ...]:
    """All checks, those of what a replay makes up included where one can be made."""
    try:
        demand = recorded_demand(recording)
    except PageallocError as error:
        refusal = ProvenanceCheck(check="replay", level=REFUSED, found=str(error))
        return (*recording.provenance(), refusal)
    counts = {name: getattr(demand, name) for name in ("hidden_allocations", "grown_pages")}
    allocations = recording.trace.count(Event.ALLOC)
    return (*recording.provenance(), *demand_checks(counts, allocations))


def recording_text(recording: Recording, *, full: bool = True) -> str:
    """The same as lines to read; if not in full, whether it carries a conclusion, and what to do.

    Raises:
        RecordingError: the recording cannot be read.
    """
    content = describe_recording(recording)
    odd = [check for check in content["provenance"] if check["level"] != USABLE]
    verdict = f"usable for predictions; all {len(content['provenance'])} checks passed"
    if odd:
        names = ", ".join(check["check"] for check in odd)
        refused = any(check["level"] == REFUSED for check in odd)
        usable = "not usable for predictions" if refused else "usable for predictions, with doubts"
        verdict = f"{usable} (see below: {names})"
    missing = ", ".join(line.split(":")[0] for line in content["missing"])
    verdict += f"; {f'but {missing}' if missing else 'nothing is missing'}"
    lost = count_of(content["lost"], "event")
    lost += f" in {count_of(content['loss_intervals'], 'interval')}" if content["lost"] else ""
    for cpu, losses in content["lost_by_cpu"].items():
        lost += f"; CPU {cpu} {losses['share']:.1%}"
    head = {
        "path": as_path(content["path"]),
        **({"sha256": content["sha256"]} if full else {}),
        "kernel": f"{content['kernel'] or 'unknown'}, {content['cpus'] or 'unknown'} CPUs",
        "span": f"{content['seconds']:.3f} s",
        "snapshots": content["snapshots"],
    }
    lines = [paragraph(f"{content['recording']}: {verdict}."), ""]
    lines += [f"{name:<11}{value}" for name, value in head.items()]
    lines += [f"memory     {line}" for line in content["zone_sizes"]]
    lines.append(f"lost       {lost}")
    lines += ["", "can it be believed"] if full or odd else []
    for check in content["provenance"] if full else odd:
        label = f"{INDENT}{check['level']}: "
        lines.append(paragraph(f"{check['check']}: {check['found']}", label=label))
        if check.get("todo"):
            lines.append(paragraph(f"to do: {check['todo']}", label=INDENT * 3))
    events = content["events"] | content["other_events"]
    if not full:
        lines += ["", *(paragraph(line, label="missing    ") for line in content["missing"])]
        counts = f"{sum(content['events'].values()):,} of the page allocator"
        if others := sum(content["other_events"].values()):
            counts += f", {others:,} others"
        lines.append(paragraph(counts, label="events     "))
        lines.append(paragraph(content["rules"].removeprefix("rules "), label="rules      "))
        return "\n".join(lines)
    width = max(map(len, events))
    sampled = "sampled: events by order and type, scaled"
    for title, below in {
        "events": [f"  {name:<{width}}  {count:>10}" for name, count in events.items()],
        sampled: [_rate_line(rate) for rate in content["sampled_rates"]],
        "between losses": [f"  {line}" for line in content["loss_free_windows"]],
        "waits for locks, by caller": [
            f"  {count:>10}  {chain}" for chain, count in content["lock_waits"].items()
        ],
        "rules": [
            paragraph(content["rules"], label=INDENT),
            *_rule_lines(content["rule_evidence"]),
        ],
        "missing": [f"  {line}" for line in content["missing"]],
    }.items():
        lines += ["", title, *below] if below else []
    return "\n".join(lines)


def _rate_line(rate: dict[str, Any]) -> str:
    """One kind of event: how often, and how sure that is."""
    words = f"{INDENT}{rate['event']}"
    words += f", order {rate['order']}" if rate["order"] >= 0 else ""
    words += f", type {rate['migratetype']}" if rate["migratetype"] >= 0 else ""
    if rate["events"] is None:
        return f"{words}: {count_of(rate['samples'], 'sample')}"
    events = f"{rate['events']:.0f} +- {rate['error']:.0f} events"
    return f"{words}: {events}, {rate['events_per_s']:.0f} a second"


def _rule_lines(evidence: list[dict[str, Any]]) -> list[str]:
    """Rules gathered by what they rest on, each with its value and what the events say of it."""
    gathered: dict[str, list[str]] = {}
    for rule in evidence:
        lines = gathered.setdefault(f"{rule['standing']}: {rule['line']}", [])
        lines.append(f"{INDENT * 2}{rule['rule']} = {str(rule['value']).lower()}")
        lines += [paragraph(rule["check"], label=INDENT * 3)] if rule["check"] else []
    return [
        line
        for reason, lines in gathered.items()
        for line in (paragraph(reason, label=INDENT), *lines)
    ]
