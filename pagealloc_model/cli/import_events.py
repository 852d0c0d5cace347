"""`pagealloc import`: the columnar form of a recording, which opens at once."""

from __future__ import annotations

import argparse
from pathlib import Path

from pagealloc_model.base.progress_bar import progress
from pagealloc_model.base.text.counts import count_of
from pagealloc_model.cli.arguments import Commands, add_command, add_recording

_MORE = """\
DIR becomes a recording like any other, with events.arrow instead of perf.data; a name
that ends in .arrow becomes the events alone. Recordings larger than memory can be
imported: working files lie beside the destination until the end."""


def add_parser(commands: Commands) -> None:
    """Add the command."""
    parser = add_command(
        commands,
        "import",
        summary="write a recording in columnar form, which opens at once",
        example="pagealloc import recording -o recording_columns",
        more=_MORE,
    )
    add_recording(parser)
    parser.add_argument(
        "-o",
        "--output",
        metavar="DIR_OR_FILE",
        type=Path,
        required=True,
        help="directory to create, or FILE.arrow for the events alone",
    )
    parser.add_argument(
        "--uncompressed",
        dest="compress",
        action="store_false",
        help="30 bytes an event, which are used where they lie in the file, without unpacking: "
        "for recordings larger than memory, and for many short looks at a long one",
    )
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Import and say what came of it."""
    from pagealloc_model.recording.event_files import size_of
    from pagealloc_model.recording.importing import import_recording
    from pagealloc_model.recording.recording import open_recording

    recording = open_recording(options.path)
    size = size_of(recording.event_file)
    with progress(f"importing {recording.name}", size, "B") as report:
        made = import_recording(
            recording.path, options.output, compress=options.compress, progress=report
        )
    print(
        f"{made.event_file}: {count_of(made.events, 'event')}, {count_of(made.size, 'byte')}, "
        f"{made.size / max(made.events, 1):.1f} an event; "
        f"{recording.event_file.name} had {made.source_size}"
    )
    for name in made.left_out:
        print(f"left out   {name}, which only a directory has room for")
    return 0
