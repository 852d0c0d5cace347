"""`pagealloc trim`: a shorter, smaller, anonymous copy of a recording."""

from __future__ import annotations

import argparse
from pathlib import Path

from pagealloc_model.base.text.counts import count_of
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
        "--start", metavar="S", type=float, help="seconds after the first event to start at"
    )
    parser.add_argument("--seconds", metavar="S", type=float, help="seconds to keep")
    parser.add_argument("--events", metavar="N", type=int, help="events to keep at most")
    parser.add_argument(
        "--anonymise", action="store_true", help="remove what names the machine or its programs"
    )
    parser.add_argument(
        "--keep-name",
        metavar="NAME",
        action="append",
        default=[],
        help="with --anonymise, leave this command name as it is; may be repeated",
    )
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Write the copy and say what is in it."""
    from pagealloc_model.recording.recording import open_recording
    from pagealloc_model.recording.trim import trim_recording

    trimmed = trim_recording(
        open_recording(options.path).path,
        options.destination,
        start_s=options.start,
        seconds=options.seconds,
        events=options.events,
        anonymise=options.anonymise,
        keep_names=tuple(options.keep_name),
    )
    seconds = (trimmed.window.end_ns - trimmed.window.begin_ns) / 1e9
    print(
        f"{trimmed.path}: {count_of(trimmed.window.events, 'event')} in {seconds:.3f} s, "
        f"{count_of(trimmed.snapshots, 'snapshot')}, {count_of(trimmed.size, 'byte')}"
    )
    for phrase in trimmed.removed:
        print(f"removed    {phrase}")
    return 0
