"""`pagealloc info`: what a recording holds, what was lost, what cannot be compared and why."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from pagealloc_model.cli.arguments import Commands, add_command, add_json, add_recording
from pagealloc_model.cli.output import json_text

if TYPE_CHECKING:
    from pagealloc_model.bundle import Bundle


def add_parser(commands: Commands) -> None:
    """Add the command."""
    parser = add_command(
        commands,
        "info",
        summary="say what a recording holds, what it lost and what cannot be compared",
        example="pagealloc info kbuild",
    )
    add_recording(parser)
    add_json(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Print the description."""
    from pagealloc_model.bundle import open_recording

    described = describe(open_recording(options.path))
    print(json_text(described) if options.json else _as_text(described))
    return 0


def describe(bundle: Bundle) -> dict[str, Any]:
    """Content of a recording under the names `info --json` prints."""
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


def _as_text(described: dict[str, Any]) -> str:
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
