"""`pagealloc doctor`: what this machine has for recording and for guests, and what a lack costs."""

from __future__ import annotations

import argparse
from pathlib import Path

from pagealloc_model.cli.arguments import Commands, add_command, add_json
from pagealloc_model.cli.output import json_text

RECORDING_IMPOSSIBLE = 1


def add_parser(commands: Commands) -> None:
    """Add the command."""
    parser = add_command(
        commands,
        "doctor",
        summary="say what this machine has for recording and guests, and what each lack costs",
        example="pagealloc doctor",
        more="Exit code 0 if a recording is possible here and now, 1 if not.",
    )
    parser.add_argument(
        "--kernel",
        metavar="PATH",
        action="append",
        default=[],
        type=Path,
        help="a bzImage: say whether it serves as a guest; may be repeated",
    )
    add_json(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Print one line for each check."""
    from dataclasses import asdict

    from pagealloc_model.recording.make.doctor import examine
    from pagealloc_model.recording.make.host import Host
    from pagealloc_model.show.post import doctor_text
    from pagealloc_model.studies.experiments.guest_checks import guest_checks
    from pagealloc_model.studies.experiments.here import here_check

    checks = [
        *examine(Host(), Path.cwd()),
        *guest_checks(tuple(options.kernel)),
        here_check(),
    ]
    possible = not any(check.blocks for check in checks)
    if options.json:
        described = [asdict(check) for check in checks]
        print(json_text({"recording_possible": possible, "checks": described}))
    else:
        print(doctor_text(checks))
    return 0 if possible else RECORDING_IMPOSSIBLE
