"""`pagealloc info`: what a recording holds, what was lost, what cannot be compared and why."""

from __future__ import annotations

import argparse

from pagealloc_model.cli.arguments import Commands, add_command, add_json, add_recording
from pagealloc_model.cli.output import json_text


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
    from pagealloc_model.recording.recording import open_recording
    from pagealloc_model.show.recording_text import describe_recording, recording_text

    recording = open_recording(options.path)
    print(json_text(describe_recording(recording)) if options.json else recording_text(recording))
    return 0
