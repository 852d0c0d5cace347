"""`pagealloc stacks`: who asked for pages, fell back, and held zone->lock."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from pagealloc_model.base.errors import UsageError
from pagealloc_model.base.text.counts import count_of
from pagealloc_model.cli.arguments import (
    Commands,
    add_command,
    add_json,
    add_policy,
    add_recording,
    at_least_one,
    policy_of,
)
from pagealloc_model.cli.output import json_text, rows_of
from pagealloc_model.policy.policy import Policy

if TYPE_CHECKING:
    import pandas as pd

    from pagealloc_model.measured.call_stacks import CallStacks
    from pagealloc_model.recording.recording import Recording

PAGES, FALLBACKS, HOLDS = "pages", "fallbacks", "holds"
_INNERMOST = 5
MORE = (
    "pages: who asked for pages. fallbacks: who fell back to another type, and how many pages the\n"
    "block had. holds: whose requests and frees held zone->lock for many pages, with --patch\n"
    "also under another policy. The recording must have call chains: perf record -g."
)


def add_parser(commands: Commands) -> None:
    """Add the command."""
    parser = add_command(
        commands,
        "stacks",
        summary="say who asked for pages, fell back and held zone->lock, by call stack",
        example="pagealloc stacks recording --of holds --patch pcp_batch=31 -o holds.json",
        more=MORE,
    )
    add_recording(parser)
    parser.add_argument(
        "--of", choices=(PAGES, FALLBACKS, HOLDS), default=PAGES, help="of what (default: pages)"
    )
    add_policy(parser, "--patch", "with --of holds: a policy")
    parser.add_argument("--least", metavar="N", type=int, default=0, help="holds of N pages on")
    parser.add_argument("--top", metavar="N", type=at_least_one, default=20, help="stacks to print")
    parser.add_argument(
        "-o",
        dest="file",
        metavar="FILE",
        type=Path,
        help="write a flame graph: .json for speedscope.app, else folded lines, one side a file",
    )
    add_json(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Print the stacks, and write them."""
    import pagealloc_model as pm
    from pagealloc_model.measured.call_stacks import call_stacks

    if options.patch is not None and options.of != HOLDS:
        raise UsageError("--patch: only holds differ by policy; add --of holds")
    recording = pm.open(options.path)
    stacks = call_stacks(recording)
    sides = _sides(recording, stacks, options)
    if options.file:
        _write(options.file, sides)
    if options.json:
        print(json_text({name: rows_of(table) for name, table in sides.items()}))
        return 0
    if not stacks.named_by:
        print("functions are addresses: the recording has no kallsyms.gz and is of another boot\n")
    for name, table in sides.items():
        print(
            f"{name}: {count_of(len(table), 'stack')}, "
            f"{count_of(int(table['pages'].sum()), 'page')}"
        )
        for row in table.head(options.top).itertuples():
            task, *functions = row.stack.split(";")
            chain = " < ".join(reversed(functions[-_INNERMOST:]))
            print(f"{row.events:>10} {int(row.pages):>10} pages  {task}: {chain}")
    return 0


def _sides(
    recording: Recording, stacks: CallStacks, options: argparse.Namespace
) -> dict[str, pd.DataFrame]:
    import pagealloc_model as pm
    from pagealloc_model.measured.call_stacks import ALLOC, EXTFRAG

    if options.of == PAGES:
        return {"asked for, as recorded": stacks.by_stack(ALLOC)}
    if options.of == FALLBACKS:
        return {"fell back, as recorded": stacks.by_stack(EXTFRAG)}
    policies = {"held, policy as recorded": Policy()}
    if options.patch is not None:
        policy = policy_of("--patch", options.patch)
        policies[f"held, {policy}"] = policy
    return {
        name: stacks.of_holds(pm.replay(recording, policy).transactions_full, options.least)
        for name, policy in policies.items()
    }


def _write(file: Path, sides: dict[str, pd.DataFrame]) -> None:
    from pagealloc_model.show.flame_graph import folded, speedscope

    try:
        if file.suffix == ".json":
            file.write_text(speedscope(sides), encoding="utf-8")
            return
        for number, table in enumerate(sides.values()):
            name = file if not number else file.with_stem(f"{file.stem}-patch")
            name.write_text(folded(table), encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{file}: cannot be written ({error.strerror})") from None
