"""`pagealloc bench`: how fast everything is on this machine, beside peers."""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

from pagealloc_model.base.errors import UsageError
from pagealloc_model.cli.arguments import Commands, add_command, add_json

PROGRAM = Path(__file__).resolve().parent.parent.parent / "benchmarks" / "bench.py"
PARTS = ("reading", "replay", "floor", "start", "memory", "slider", "sweep")


def add_parser(commands: Commands) -> None:
    """Add the command."""
    parser = add_command(
        commands,
        "bench",
        summary="measure reading, replaying, starting, memory, sliders and sweeps, beside peers",
        example="pagealloc bench kbuild --only replay",
        more="Takes minutes. Needs a checkout: benchmarks/ is not part of an installed package.",
    )
    parser.add_argument("recording", nargs="?", default="kbuild", help="default: kbuild as shipped")
    parser.add_argument("--only", choices=PARTS, nargs="+", help="parts to measure; default all")
    add_json(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Run the checkout's benchmarks."""
    if not PROGRAM.exists():
        raise UsageError(
            f"no {PROGRAM}: benchmarks come with a checkout, not with an installed package; run "
            "pagealloc bench from one (make install)"
        )
    command = [sys.executable, str(PROGRAM), options.recording]
    if options.only:
        command += ["--only", *options.only]
    if options.json:
        command.append("--json")
    return subprocess.run(command, check=False).returncode
