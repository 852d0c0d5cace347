"""`pagealloc judge`: the model against the allocator's own code, from a kernel's source."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from pagealloc_model.base.errors import PolicyError
from pagealloc_model.base.text.counts import count_of
from pagealloc_model.cli.arguments import Commands, add_command, add_json, add_kernel_source
from pagealloc_model.cli.output import json_text
from pagealloc_model.policy.kernel_rules import KernelRules, preset_names

if TYPE_CHECKING:
    from pagealloc_model.verdict.kernel_judge.judged_scenarios import Verdict

DIFFERS = 1
LINES_MAX = 20
SEQUENCE_MAX = 40


def add_parser(commands: Commands) -> None:
    """Add the command."""
    parser = add_command(
        commands,
        "judge",
        summary="compare the model with the allocator's own functions from a kernel's source",
        example="pagealloc judge --kernel-source /usr/src/linux-source-6.12.tar.xz",
        more=(
            "The functions are taken from the tree when the command runs, compiled with the\n"
            "system's compiler into a temporary directory, and driven with the same operations as\n"
            "the model. Exit code 1 if the two differ: the first difference is printed, with the\n"
            "functions of the tree that made it and a sequence of operations as short as it gets."
        ),
    )
    add_kernel_source(parser, "its functions are the judge", needed=True)
    parser.add_argument(
        "--rules",
        type=_rules,
        metavar="SERIES[,RULE=BOOL...]",
        help=f"rules of the model ({', '.join(preset_names())}) instead of those of the tree's "
        "version, single rules changed",
    )
    parser.add_argument(
        "--operations",
        metavar="N",
        type=_count,
        default=100_000,
        help="random operations to take (default %(default)s)",
    )
    parser.add_argument("--seed", type=int, default=0, help="of machines and operations")
    parser.add_argument(
        "--recording",
        metavar="PATH",
        help="take a recording's demand instead: its directory, or a shipped recording's name",
    )
    parser.add_argument(
        "--pressure",
        action="store_true",
        help="judge compaction and reclaim instead of allocation; of a recording, reclaim",
    )
    add_json(parser)
    parser.set_defaults(run=run)


def _rules(text: str) -> KernelRules:
    try:
        return KernelRules.named(text)
    except PolicyError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _count(text: str) -> int:
    try:
        count = int(text)
    except ValueError:
        count = 0
    if count < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of operations")
    return count


def run(options: argparse.Namespace) -> int:
    """Judge, and print the verdict."""
    from pagealloc_model.allocator.from_source.compiled_tree import CompiledTree
    from pagealloc_model.allocator.from_source.source_tree import open_tree
    from pagealloc_model.base.progress_bar import progress
    from pagealloc_model.recording.recording import open_recording
    from pagealloc_model.verdict.kernel_judge.judge import judge, judge_recorded
    from pagealloc_model.verdict.kernel_judge.judge_pressure import judge_pressure
    from pagealloc_model.verdict.kernel_judge.recorded_reclaim import judge_recorded_reclaim

    tree = open_tree(options.kernel_source, options.patch)
    rules = options.rules or KernelRules.for_release(tree.release)[0]
    what = f"judging rules {rules.spelled()} by {tree.release or tree.path}"
    total = 0 if options.recording else options.operations
    count, seed = options.operations, options.seed
    with progress(what, total, "operations") as report:
        if options.pressure and options.recording:
            recording = open_recording(options.recording)
            verdicts = (judge_recorded_reclaim(tree, rules, recording, progress=report),)
        elif options.pressure:
            verdicts = judge_pressure(tree, rules, operations=count, seed=seed, progress=report)
        elif options.recording:
            recording = open_recording(options.recording)
            verdicts = (judge_recorded(CompiledTree(tree), rules, recording, progress=report),)
        else:
            verdict = judge(CompiledTree(tree), rules, operations=count, seed=seed, progress=report)
            verdicts = (verdict,)
    if options.json:
        described = [_described(each) for each in verdicts]
        print(json_text(described if options.pressure else described[0]))
    else:
        print("\n\n".join(_as_text(each) for each in verdicts))
    return DIFFERS if any(each.difference for each in verdicts) else 0


def _described(verdict: Verdict) -> dict[str, Any]:
    found = asdict(verdict)
    if verdict.difference is not None:
        found["difference"]["places"] = [str(each) for each in verdict.difference.places]
    return found


def _as_text(verdict: Verdict) -> str:
    lines = [
        f"judged      {verdict.part}",
        f"rules       {verdict.rules}",
        f"kernel      {verdict.release or 'unknown release'}",
        f"operations  {verdict.operations:,} on "
        f"{count_of(verdict.scenarios + (verdict.scenario >= 0), 'machine')}, "
        f"seed {verdict.seed}, {verdict.seconds:.0f} s",
    ]
    lines += [f"not found   {name}()" for name in verdict.missing]
    difference = verdict.difference
    if difference is None:
        return "\n".join([*lines, "difference  none"])
    lines += [
        f"difference  machine {verdict.scenario}, operation {difference.position}: "
        f"{difference.event}",
        *[f"  {line}" for line in difference.lines[:LINES_MAX]],
        *[f"kernel at   {place}" for place in difference.places],
    ]
    if verdict.shortest:
        lines += [
            f"shortest    {count_of(len(verdict.shortest), 'operation')} to the difference:",
            *[f"  {line}" for line in verdict.shortest[:SEQUENCE_MAX]],
        ]
    return "\n".join(lines)
