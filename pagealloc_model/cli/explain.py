"""The command that answers who has a report or copies of /proc alone."""

from __future__ import annotations

import argparse
from pathlib import Path

from pagealloc_model.base.errors import UsageError
from pagealloc_model.cli.arguments import (
    Commands,
    add_command,
    add_json,
    add_policy,
    json_text,
    policy_of,
)
from pagealloc_model.policy.kernel_rules import preset_names


def add_explain(commands: Commands) -> None:
    """Add `pagealloc explain`."""
    parser = add_command(
        commands,
        "explain",
        run_explain,
        "say why an allocation failed, from a log or copies of /proc alone",
        example="pagealloc explain dmesg.txt",
        more="""
        PATH is a log with a "page allocation failure" or a report of the OOM killer, whatever
        stands before its lines; - for standard input; a directory with copies of /proc/zoneinfo
        and /proc/buddyinfo (and, as root, /proc/pagetypeinfo), a snapshot, a recording, or a
        sosreport's tree.
""",
    )
    parser.add_argument("path", metavar="PATH", nargs="?", help="a log, a directory, or -")
    parser.add_argument("--here", action="store_true", help="ask of this machine, as it is now")
    parser.add_argument(
        "--order", type=int, metavar="N", help="order asked for (default: the report's, else 0)"
    )
    parser.add_argument(
        "--gfp",
        metavar="FLAGS",
        help="gfp flags asked with, such as 'GFP_KERNEL|__GFP_NORETRY' (default: the report's, "
        "else GFP_KERNEL)",
    )
    add_policy(
        parser,
        "--patch",
        "also say what the same memory would answer under this policy, such as "
        "min_free_kbytes=65536 or highatomic_gate_order=3",
    )
    parser.add_argument(
        "--release", metavar="RELEASE", help="kernel release, such as 6.8.0, if not told"
    )
    parser.add_argument(
        "--rules",
        metavar="SERIES[,RULE=BOOL...]",
        help=f"rules of this kernel series ({', '.join(preset_names())})",
    )
    parser.add_argument("--node", type=int, metavar="N", help="node whose zones are tried first")
    parser.add_argument(
        "--report", type=int, metavar="N", default=1, help="which report of a log (default: 1)"
    )
    parser.add_argument(
        "--figure", type=Path, metavar="FILE", help="draw free memory by order and type as well"
    )
    add_json(parser)


def run_explain(options: argparse.Namespace) -> int:
    """Print the answer."""
    from pagealloc_model.numbers.explanation import explain
    from pagealloc_model.recording.memory_state import PROC

    if options.here == (options.path is not None):
        raise UsageError("explain: give either PATH or --here")
    explanation = explain(
        PROC if options.here else options.path,
        order=options.order,
        gfp=options.gfp,
        policy=policy_of("--patch", options.patch) if options.patch else None,
        rules=options.rules,
        release=options.release,
        node=options.node,
        number=options.report,
    )
    if options.figure is not None:
        from pagealloc_model.show.figures.files import write_figure
        from pagealloc_model.show.figures.free_by_order import free_by_order

        write_figure(free_by_order(explanation), options.figure)
    print(json_text(explanation.to_json()) if options.json else explanation.to_text())
    return 0
