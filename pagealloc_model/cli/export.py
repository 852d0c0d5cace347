"""`pagealloc export`: a recording's events for other tools."""

from __future__ import annotations

import argparse
from pathlib import Path

from pagealloc_model.cli.arguments import Commands, add_command, add_recording

_MORE = """\
parquet: DIR with events.parquet, one table for each other tracepoint, and losses.parquet,
which DuckDB, Polars and pandas open. text: FILE as perf script --ns prints it, which
pagealloc reads again."""


def add_parser(commands: Commands) -> None:
    """Add the command."""
    parser = add_command(
        commands,
        "export",
        summary="write a recording's events for other tools",
        example="pagealloc export kbuild --to parquet -o events",
        more=_MORE,
    )
    add_recording(parser)
    parser.add_argument("--to", choices=("parquet", "text"), required=True, help="the format")
    parser.add_argument(
        "-o",
        "--output",
        metavar="DIR_OR_FILE",
        type=Path,
        required=True,
        help="directory (parquet) or file (text) to create",
    )
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Export and say what was written."""
    from pagealloc_model.recording.exporting import export_recording
    from pagealloc_model.recording.recording import open_recording

    made = export_recording(open_recording(options.path), options.output, options.to)
    for name, rows in made.rows.items():
        print(f"{made.path}: {name} {rows}")
    return 0
