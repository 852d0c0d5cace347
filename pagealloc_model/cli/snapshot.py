"""`pagealloc snapshot`: the machine's state files alone, beside a trace of another tool."""

from __future__ import annotations

import argparse
from pathlib import Path

from pagealloc_model.base.text.counts import count_of
from pagealloc_model.cli.arguments import Commands, add_command

_MORE = """\
Call it just before tracing, and again (or with --seconds) while and after it: a directory
that exists gets further snapshots. pagealloc attach joins it with the trace. Needs no perf;
without root there is no pagetypeinfo and no kpageflags."""


def add_parser(commands: Commands) -> None:
    """Add the command."""
    parser = add_command(
        commands,
        "snapshot",
        summary="copy the machine's state files, for a trace made with another tool",
        example="pagealloc snapshot state",
        more=_MORE,
    )
    parser.add_argument("directory", metavar="DIR", type=Path, help="new, or of an earlier call")
    parser.add_argument(
        "--seconds", metavar="N", type=float, default=0.0, help="take snapshots for this long"
    )
    parser.add_argument(
        "--interval", metavar="S", type=float, default=1.0, help="seconds between two (1)"
    )
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Take the snapshots and say what could not be read."""
    from pagealloc_model.recording.make.host import Host
    from pagealloc_model.recording.make.state_copy import copy_state

    made = copy_state(
        options.directory, Host(), seconds=options.seconds, interval_s=options.interval
    )
    flags = "with" if made.page_flags else "without"
    print(f"{made.path}: {count_of(made.snapshots, 'snapshot')}, {flags} kpageflags")
    if made.unreadable:
        print(f"unreadable {', '.join(made.unreadable)}; root may read them")
    return 0
