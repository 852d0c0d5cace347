"""`pagealloc doctor`: what this machine has for recording, and what each lack costs."""

from __future__ import annotations

import argparse

from pagealloc_model.cli.arguments import Commands, add_command, add_json
from pagealloc_model.cli.output import json_text

RECORDING_IMPOSSIBLE = 1


def add_parser(commands: Commands) -> None:
    """Add the command."""
    parser = add_command(
        commands,
        "doctor",
        summary="say what this machine has for recording, and what each lack costs",
        example="pagealloc doctor",
        more="Exit code 0 if a recording is possible here and now, 1 if not.",
    )
    add_json(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Print one line for each check."""
    from dataclasses import asdict
    from pathlib import Path

    from pagealloc_model.recording.make.doctor import examine
    from pagealloc_model.recording.make.host import Host
    from pagealloc_model.show.post import doctor_text

    checks = examine(Host(), Path.cwd())
    possible = not any(check.blocks for check in checks)
    if options.json:
        described = [asdict(check) for check in checks]
        print(json_text({"recording_possible": possible, "checks": described}))
    else:
        print(doctor_text(checks))
    return 0 if possible else RECORDING_IMPOSSIBLE
