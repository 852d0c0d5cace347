"""`pagealloc validate`: how far the model is from what the recorded machine did."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from pagealloc_model.cli.arguments import (
    Commands,
    add_command,
    add_json,
    add_recording,
    add_rules,
)
from pagealloc_model.cli.output import json_text

if TYPE_CHECKING:
    from pagealloc_model.validation import Validation


def add_parser(commands: Commands) -> None:
    """Add the command."""
    parser = add_command(
        commands,
        "validate",
        summary="compare the prediction under the recorded policy with what was measured",
        example="pagealloc validate kbuild",
    )
    add_recording(parser)
    add_rules(parser)
    add_json(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Validate and print the error table."""
    import pagealloc_model as pm

    bundle = pm.open(options.path)
    validation = pm.validate(bundle, rules=options.rules)
    print(json_text(validation.to_dict()) if options.json else _as_text(validation))
    return 0


def _as_text(validation: Validation) -> str:
    from pagealloc_model.post import error_table, snapshot_table
    from pagealloc_model.post.layout import paragraph

    described = validation.to_dict()
    diverged = ", ".join(f"{name} {count}" for name, count in described["divergences"].items())
    head = {
        "recording": described["recording"],
        "kernel": f"{described['kernel'] or 'unknown'}, rules {described['rules']}",
        "events": f"{described['events']}, {described['lost']} lost",
        "diverged": diverged or "nowhere",
    }
    lines = [paragraph(str(text), label=f"{name + ':':<11}") for name, text in head.items()]
    lines += [paragraph(line, label="start:     ") for line in validation.replay.start_state]
    lines += ["", error_table(validation.errors)]
    if len(validation.snapshots):
        seconds = "Seconds after the snapshot that describes the start:"
        lines += [seconds, "", snapshot_table(validation.snapshots)]
    for title, notes in (("Notes", validation.notes), ("Not modelled", validation.not_modelled)):
        if notes:
            lines += [f"{title}:", *[paragraph(line, label="- ") for line in notes], ""]
    return "\n".join(lines).rstrip()
