"""`pagealloc trim`: a shorter, smaller, anonymous copy of a recording."""

from __future__ import annotations

import argparse
from pathlib import Path

from pagealloc_model.cli.arguments import Commands, add_command, add_recording


def add_parser(commands: Commands) -> None:
    """Add the command."""
    parser = add_command(
        commands,
        "trim",
        summary="copy part of a recording, to keep or to send",
        example="pagealloc trim recording short --seconds 5 --anonymise",
    )
    add_recording(parser)
    parser.add_argument("destination", metavar="DST", type=Path, help="directory to create")
    parser.add_argument(
        "--start", metavar="S", type=float, default=0.0, help="seconds to leave out at the start"
    )
    parser.add_argument("--seconds", metavar="S", type=float, help="seconds to keep")
    parser.add_argument("--events", metavar="N", type=int, help="events to keep at most")
    parser.add_argument(
        "--anonymise", action="store_true", help="overwrite process names and paths"
    )
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Write the copy and say what is in it."""
    from pagealloc_model.trim import trim_bundle

    trim_bundle(
        options.path,
        options.destination,
        start_s=options.start,
        seconds=options.seconds,
        events=options.events,
        anonymise=options.anonymise,
    )
    print(options.destination)
    return 0
