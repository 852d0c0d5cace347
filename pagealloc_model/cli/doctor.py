"""`pagealloc doctor`: what this machine has for recording, and what each lack costs."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from pagealloc_model.cli.arguments import Commands, add_command, add_json
from pagealloc_model.cli.output import json_text

if TYPE_CHECKING:
    from pagealloc_model.recording.checks import Check

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

    from pagealloc_model.doctor import examine
    from pagealloc_model.recording.host import Host

    checks = examine(Host(), Path.cwd())
    possible = not any(check.blocks for check in checks)
    if options.json:
        described = [asdict(check) for check in checks]
        print(json_text({"recording_possible": possible, "checks": described}))
    else:
        print("\n".join(_as_text(checks, possible)))
    return 0 if possible else RECORDING_IMPOSSIBLE


def _as_text(checks: list[Check], possible: bool) -> list[str]:
    width = max(len(check.name) for check in checks)
    lines = []
    for check in checks:
        mark = "NO" if check.blocks else "--" if check.cost else "ok"
        parts = [check.found, check.cost, check.todo]
        lines.append(f"{mark}  {check.name:<{width}}  {'; '.join(part for part in parts if part)}")
    return [*lines, "", f"recording is {'possible' if possible else 'not possible'} here"]
