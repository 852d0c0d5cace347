"""`pagealloc compare`: two policies over the same demand."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from pagealloc_model.base.progress_bar import progress
from pagealloc_model.cli.arguments import (
    Commands,
    add_command,
    add_policy,
    add_recording,
    add_rules,
    policy_fields_help,
    policy_of,
)
from pagealloc_model.cli.output import json_text
from pagealloc_model.policy.policy import Policy

if TYPE_CHECKING:
    import pandas as pd

    from pagealloc_model.recording.recording import Recording
    from pagealloc_model.verdict.comparison import Comparison

FORMATS = ("text", "mmtests", "csv", "json")


def add_parser(commands: Commands) -> None:
    """Add the command."""
    parser = add_command(
        commands,
        "compare",
        summary="replay recordings under two policies and print the differences",
        example="pagealloc compare highatomic_stock --patch highatomic_gate_order=3",
        more=policy_fields_help(),
    )
    add_recording(parser, several=True)
    for side, otherwise in (("base", "as recorded"), ("patch", "required")):
        meaning = f"policy of the {side} side ({otherwise})"
        add_policy(parser, f"--{side}", meaning, required=side == "patch")
    add_rules(parser)
    parser.add_argument(
        "--format",
        choices=FORMATS,
        default="text",
        help="text: raw signed change; mmtests: gains, positive is better (default: text)",
    )
    parser.add_argument(
        "--json", dest="format", action="store_const", const="json", help="same as --format json"
    )
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Compare on every recording, then print in the format asked for."""
    base, patch = policy_of("--base", options.base), policy_of("--patch", options.patch)
    import pagealloc_model as pm

    recordings = [pm.open(path) for path in options.paths]
    compared = [(recording, _compare(recording, base, patch, options)) for recording in recordings]
    print(_RENDERERS[options.format](compared), end="")
    return 0


def _compare(
    recording: Recording, base: Policy, patch: Policy, options: argparse.Namespace
) -> Comparison:
    import pagealloc_model as pm

    rules = options.rules
    with progress(f"{recording.name}, base", len(recording.trace), "events") as report:
        base_replay = pm.replay(recording, base, rules=rules, progress=report)
    with progress(f"{recording.name}, patch", len(recording.trace), "events") as report:
        patch_replay = pm.replay(recording, patch, rules=rules, progress=report)
    return pm.compare(base_replay, patch_replay)


Compared = list[tuple["Recording", "Comparison"]]


def _text(compared: Compared) -> str:
    return "\n".join(comparison.to_text(width=72) for _, comparison in compared)


def _mmtests(compared: Compared) -> str:
    return "\n".join(comparison.to_text(width=72, style="mmtests") for _, comparison in compared)


def _csv(compared: Compared) -> str:
    import pandas as pd

    tables = [_with_recording(recording, comparison) for recording, comparison in compared]
    return pd.concat(tables).to_csv(index=False)


def _with_recording(recording: Recording, comparison: Comparison) -> pd.DataFrame:
    rows = comparison.judged.copy()
    rows.insert(0, "recording", recording.name)
    return rows


def _json(compared: Compared) -> str:
    """One object; with several recordings, the rows of all, each naming its recording."""
    whole = compared[0][1].to_dict()
    whole["recordings"] = [recording.name for recording, _ in compared]
    whole["rows"] = [
        {"recording": recording.name, **row}
        for recording, comparison in compared
        for row in comparison.to_dict()["rows"]
    ]
    return json_text(whole) + "\n"


_RENDERERS = {"text": _text, "mmtests": _mmtests, "csv": _csv, "json": _json}
