"""`pagealloc replay`: one prediction, as tables."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pagealloc_model.cli.arguments import (
    Commands,
    add_command,
    add_json,
    add_kernel_source,
    add_recording,
    add_rules,
    kernel_build,
    policy_fields_help,
)
from pagealloc_model.cli.output import json_text, rows_of, write_directory
from pagealloc_model.policy.policy import Policy

if TYPE_CHECKING:
    from pagealloc_model.predicted.replay import Replay
    from pagealloc_model.recording.recording import Recording

TABLES = (
    "free_pages",
    "pageblocks",
    "pcp",
    "lock",
    "transactions",
    "fallbacks",
    "outcomes",
    "vmstat",
)


def add_parser(commands: Commands) -> None:
    """Add the command."""
    parser = add_command(
        commands,
        "replay",
        summary="predict what the allocator would do with a recorded demand",
        example="pagealloc replay kbuild --set pcp_batch=127 -o predicted",
        more=policy_fields_help(),
    )
    add_recording(parser)
    parser.add_argument(
        "--set",
        dest="settings",
        metavar="FIELD=VALUE",
        action="append",
        default=[],
        help="policy field to change; may be repeated",
    )
    add_rules(parser)
    add_kernel_source(parser, "its own code, patched or not, takes the model's place", needed=False)
    parser.add_argument(
        "-o",
        dest="directory",
        metavar="DIR",
        type=Path,
        help="write every table as CSV into this directory, which must not exist or be empty",
    )
    add_json(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Replay, then print and write what was asked for."""
    policy = Policy.parse(options.settings)
    import pagealloc_model as pm

    build = kernel_build(options, policy)
    recording = pm.open(options.path)
    replay = pm.replay(recording, build or policy, rules=options.rules)
    if options.directory:
        tables = {f"{name}.csv": getattr(replay, name).to_csv(index=False) for name in TABLES}
        about = {"provenance.json": json_text(replay.provenance) + "\n"}
        write_directory(options.directory, tables | about)
    described = describe(recording, replay)
    if options.json:
        print(json_text(described | {name: rows_of(getattr(replay, name)) for name in TABLES}))
    else:
        print(_as_text(described, replay))
    return 0


def describe(recording: Recording, replay: Replay) -> dict[str, Any]:
    """What a prediction was made from."""
    return {
        "recording": recording.name,
        "kernel": recording.release,
        "rules": replay.rules.spelled(),
        "policy": replay.policy.given(),
        "changed": replay.asked_policy.given(),
        "start_state": list(replay.start_state),
        "events": len(recording.trace),
        "lost": recording.trace.losses.total,
        "divergences": dict(replay.divergence),
        **(
            {"kernel_source": replay.kernel, "not_covered": list(replay.not_covered)}
            if replay.kernel
            else {}
        ),
    }


def _as_text(described: dict[str, Any], replay: Replay) -> str:
    from pagealloc_model.base.text.layout import paragraph

    rows = {name: len(getattr(replay, name)) for name in TABLES}
    told = [
        ("recording", f"{described['recording']}, kernel {described['kernel'] or 'unknown'}"),
        ("rules", replay.rules_origin),
        ("policy", str(replay.asked_policy)),
        ("events", f"{described['events']:,}, {described['lost']:,} lost"),
        *[("start", line) for line in described["start_state"]],
        *[("diverged", f"{name} {count}") for name, count in described["divergences"].items()],
        *([("code", replay.kernel)] if replay.kernel else []),
        *[("by shim", line) for line in replay.not_covered],
    ]
    lines = [paragraph(text, label=f"{label:<11}") for label, text in told]
    tables = [f"table      {name:<13} {count:>8} rows" for name, count in rows.items()]
    return "\n".join([*lines, *tables])
