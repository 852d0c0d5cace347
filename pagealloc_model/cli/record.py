"""`pagealloc record`: a recording of this machine."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from pagealloc_model.cli.arguments import Commands, add_command

COMMAND_FAILED = 1

_MORE = """\
Ends with the command, after --seconds, or on Ctrl-C, and leaves a usable recording in
each case. DIR appears when it is complete.

Where the kernel permits it, kprobes named pa:* mark where the allocator takes and
drops its locks; they are removed at the end, also after an error. --no-probes sets
none, --probes ends with an error where they cannot be set.

Exit code 1 if the command failed, 2 if the recording did or was cut short."""


def add_parser(commands: Commands) -> None:
    """Add the command."""
    parser = add_command(
        commands,
        "record",
        summary="record this machine (needs root and perf)",
        example="pagealloc record -o mine -- make -j8",
        more=_MORE,
    )
    parser.add_argument(
        "-o", "--output", metavar="DIR", type=Path, required=True, help="directory to create"
    )
    parser.add_argument("--seconds", metavar="N", type=float, help="end after this time")
    parser.add_argument(
        "--events",
        metavar="LIST",
        default="default",
        help="names and patterns, such as 'kmem:mm_page_*,vmscan:*', separated by commas, instead "
        "of the usual set, which is called 'default'; page allocations and frees always come too",
    )
    parser.add_argument(
        "--no-lock", dest="locks", action="store_false", help="record no lock contention"
    )
    parser.add_argument(
        "--probes",
        action=argparse.BooleanOptionalAction,
        help="set kprobes at the allocator's transactions (default: where permitted)",
    )
    parser.add_argument(
        "--profile",
        action="store_true",
        help="afterwards run the command once more, or wait as long, with nothing traced: a "
        "profile from which what holding zone->lock costs is fitted",
    )
    parser.add_argument(
        "--anonymise", action="store_true", help="remove what names the machine or its programs"
    )
    parser.add_argument(
        "--live", metavar="N", type=float, help="print rates every N seconds while recording"
    )
    parser.add_argument(
        "--interval", metavar="S", type=float, default=1.0, help="seconds between snapshots (1)"
    )
    parser.add_argument(
        "--buffer",
        metavar="SIZE",
        help="ring buffer of each CPU, such as 64M (default: 64M, less where "
        "those of all CPUs would take over 3%% of memory)",
    )
    parser.add_argument("command", metavar="CMD", nargs="*", help="command to run and record")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Record and say what came of it."""
    import os

    from pagealloc_model.recording.make.finished import read_back, summary_lines
    from pagealloc_model.recording.make.host import Host
    from pagealloc_model.recording.make.options import RecordOptions, parse_size
    from pagealloc_model.recording.make.session import record
    from pagealloc_model.recording.make.workspace import calling_user

    def say(line: str) -> None:
        print(line, file=sys.stderr, flush=True)

    def note(line: str) -> None:
        if sys.stderr.isatty():
            say(f"{line} ...")

    host = Host()
    recorded = record(
        RecordOptions(
            destination=options.output,
            command=tuple(options.command),
            seconds=options.seconds,
            events=tuple(filter(None, options.events.split(","))),
            locks=options.locks,
            probes=options.probes,
            profile=options.profile,
            anonymise=options.anonymise,
            live_s=options.live,
            interval_s=options.interval,
            buffer_bytes=parse_size(options.buffer) if options.buffer else None,
        ),
        host,
        say,
        note,
    )
    note("reading it back")
    content = read_back(recorded.path, calling_user(os.environ, host.user))
    print("\n".join(summary_lines(recorded, content)))
    if recorded.command_code and not recorded.ended_by.startswith("SIG"):
        return COMMAND_FAILED
    return 0
