"""What a recording holds, what it lost, and what that makes impossible."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pagealloc_model.bundle import Bundle


def describe_recording(bundle: Bundle) -> dict[str, Any]:
    """Content of a recording under the names that `pagealloc info --json` prints.

    Raises:
        RecordingError: the recording cannot be read.
    """
    from pagealloc_model.trace.columns import EVENT_NAMES

    trace = bundle.trace
    first, last = trace.span_ns
    return {
        "recording": bundle.name,
        "path": str(bundle.path),
        "sha256": bundle.sha256,
        "kernel": bundle.release,
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
        "snapshots": len(bundle.snapshots),
        "missing": list(bundle.missing),
    }


def recording_text(bundle: Bundle) -> str:
    """The same as lines to read.

    Raises:
        RecordingError: the recording cannot be read.
    """
    described = describe_recording(bundle)
    events = {**described["events"], **described["other_events"]}
    width = max(len(name) for name in events)
    lines = [
        f"recording  {described['recording']} ({described['path']})",
        f"sha256     {described['sha256']}",
        f"kernel     {described['kernel'] or 'unknown'}, {described['cpus'] or 'unknown'} CPUs",
        f"span       {described['seconds']:.3f} s",
        f"snapshots  {described['snapshots']}",
        f"lost       {described['lost']} events in {described['loss_intervals']} intervals",
        "",
        "events",
        *[f"  {name:<{width}}  {count:>10}" for name, count in events.items()],
    ]
    if described["missing"]:
        lines += ["", "missing", *[f"  {line}" for line in described["missing"]]]
    return "\n".join(lines)
