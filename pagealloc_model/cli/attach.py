"""`pagealloc attach`: a recording made of a bare trace and copies of state files."""

from __future__ import annotations

import argparse
from pathlib import Path

from pagealloc_model.base.progress_bar import progress
from pagealloc_model.base.text.counts import count_of
from pagealloc_model.cli.arguments import Commands, add_command

_FILES = ("zoneinfo", "buddyinfo", "pagetypeinfo", "vmstat")
_MORE = """\
TRACE is any that can be read: perf.data, trace.dat, raw pages or text of ftrace, perf script
text. The recording says what it lacks and what each lack costs. With a zoneinfo alone, a
replay begins at an estimated start, and says so."""


def add_parser(commands: Commands) -> None:
    """Add the command."""
    parser = add_command(
        commands,
        "attach",
        summary="make a recording of a bare trace and copies of /proc",
        example="pagealloc attach trace.dat --snapshot state -o recording",
        more=_MORE,
    )
    parser.add_argument("trace", metavar="TRACE", help="the events")
    parser.add_argument(
        "--snapshot",
        metavar="DIR",
        type=Path,
        help="made by pagealloc snapshot, or a directory with copies of the files below",
    )
    for name in _FILES:
        parser.add_argument(f"--{name}", metavar="FILE", type=Path, help=f"a copy of /proc/{name}")
    parser.add_argument(
        "--read",
        choices=("before", "behind"),
        default="before",
        help="when single copies were made: before the trace (default) or behind it",
    )
    parser.add_argument(
        "--release", default="", help="the kernel's, where the trace does not name it (uname -r)"
    )
    parser.add_argument(
        "-o", "--output", metavar="DIR", type=Path, required=True, help="directory to create"
    )
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Attach and say what is missing."""
    from pagealloc_model.recording.attaching import StateFiles, attach_state
    from pagealloc_model.recording.event_files import size_of
    from pagealloc_model.recording.recording import open_recording

    recording = open_recording(options.trace)
    given = {name: getattr(options, name) for name in _FILES}
    state = StateFiles(
        snapshots=options.snapshot,
        files={name: path for name, path in given.items() if path is not None},
        read=options.read,
        release=options.release,
    )
    with progress(f"reading {recording.name}", size_of(recording.event_file), "B") as report:
        made = attach_state(options.trace, state, options.output, report)
    print(f"{made.path}: {count_of(made.events, 'event')}, {count_of(made.snapshots, 'snapshot')}")
    for line in made.lacks:
        print(f"lacks      {line}")
    return 0
