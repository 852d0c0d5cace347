"""`pagealloc sweep`: many policies over many recordings, as one table."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pagealloc_model.base.errors import UsageError
from pagealloc_model.base.text.counts import count_of
from pagealloc_model.cli.arguments import (
    Commands,
    add_command,
    add_json,
    add_recording,
    add_rules,
    policy_fields_help,
)
from pagealloc_model.cli.output import json_text, rows_of
from pagealloc_model.policy.policy import Policy

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pagealloc_model.studies.sweeps.results import SweepResult

MORE = (
    "Every combination of the values is a point, one row of the table. A range START:STOP:STEP\n"
    "includes STOP. Also varied: rules=6.12,6.18 and assumptions.FIELD=...\n\n"
    "Finished points are kept: a sweep that is repeated, enlarged or interrupted computes only\n"
    "what is new. A point that fails is a row with its error, and is tried again the next time."
)


def add_parser(commands: Commands) -> None:
    """Add the command."""
    parser = add_command(
        commands,
        "sweep",
        summary="replay recordings under many policies, one row for each",
        example="pagealloc sweep kbuild --vary pcp_batch=15,31,63 --vary costly_order=0:9:3 "
        "-o results.parquet",
        more=f"{MORE}\n\n{policy_fields_help()}",
    )
    add_recording(parser, several=True)
    parser.add_argument(
        "--vary",
        metavar="FIELD=VALUES",
        action="append",
        default=[],
        help="values such as 15,31,63 or START:STOP:STEP, 'none' for as recorded; may be repeated",
    )
    parser.add_argument(
        "--set",
        dest="settings",
        metavar="FIELD=VALUE",
        action="append",
        default=[],
        help="what all points have in common; may be repeated",
    )
    parser.add_argument(
        "--one-at-a-time",
        action="store_true",
        help="no combinations: vary one field, the others as recorded",
    )
    parser.add_argument(
        "--points",
        metavar="N",
        type=int,
        help="that many points spread over the ranges instead of every combination",
    )
    parser.add_argument(
        "--seeds",
        metavar="N",
        type=int,
        default=1,
        help="repeat every point with this many seeds (default 1)",
    )
    add_rules(parser)
    parser.add_argument("-o", "--output", metavar="FILE", type=Path, help="write Parquet here")
    parser.add_argument(
        "--resume",
        action="store_true",
        help="FILE may be there already: the table is completed, and then replaces it",
    )
    parser.add_argument(
        "--scheduler",
        metavar="ADDRESS",
        help="of a Dask cluster whose workers make the points, such as tcp://host:8786",
    )
    parser.add_argument("--workers", metavar="N", type=int, help="threads (default: one a CPU)")
    parser.add_argument("--metrics", metavar="NAME,...", default="", help="columns to print")
    parser.add_argument(
        "--sensitivity",
        metavar="METRIC",
        help="print how far each field moves this column instead of the points",
    )
    parser.add_argument(
        "--pareto",
        metavar="METRIC,METRIC",
        help="print the points that no other one beats in both columns",
    )
    add_json(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Sweep, write and print; 1 if a point failed."""
    from pagealloc_model.studies.sweeps.points import parse_vary

    policy = Policy.parse(options.settings)
    vary = _design(options, parse_vary(options.vary))
    if options.seeds < 1:
        raise UsageError(f"--seeds {options.seeds}: at least one")
    if options.output and options.output.exists() and not options.resume:
        raise UsageError(f"{options.output} exists; --resume replaces it with the completed table")
    import pagealloc_model as pm

    result = pm.sweep(
        options.paths,
        vary,
        seeds=range(options.seeds),
        policy=policy,
        rules=options.rules,
        client=options.scheduler,
        workers=options.workers,
    )
    if options.output:
        result.to_parquet(options.output)
    print(_printed(result, options), end="")
    return 1 if len(result.failed) else 0


def _design(options: argparse.Namespace, vary: dict[str, list[Any]]) -> Any:
    """The grid, or the points that options ask for."""
    from pagealloc_model.studies.sweeps.points import one_at_a_time, space_filling

    if options.points is not None and options.one_at_a_time:
        raise UsageError("--points and --one-at-a-time are two designs; give one of them")
    if options.points is not None:
        ranges = {name: (min(values), max(values)) for name, values in vary.items()}
        return space_filling(ranges, options.points)
    return one_at_a_time(vary) if options.one_at_a_time else vary


def _printed(result: SweepResult, options: argparse.Namespace) -> str:
    if options.json:
        head = {"points": len(result.rows), "reused": result.reused, "axes": list(result.axes)}
        return json_text(head | {"rows": rows_of(result.rows)}) + "\n"
    lines = [
        f"{count_of(len(result.rows), 'point')}, {result.reused} of them known, "
        f"{len(result.failed)} failed"
    ]
    if options.output:
        lines.append(f"written to {options.output}")
    return "\n".join([*lines, "", _table(result, options)])


def _table(result: SweepResult, options: argparse.Namespace) -> str:
    if options.sensitivity:
        return result.sensitivity(options.sensitivity).to_text()
    if options.pareto:
        first, second = _names(options.pareto, 2)
        return result.pareto(first, second).to_text()
    return result.to_text(_names(options.metrics) if options.metrics else ())


def _names(text: str, count: int | None = None) -> Sequence[str]:
    names = [name.strip() for name in text.split(",") if name.strip()]
    if count is not None and len(names) != count:
        raise UsageError(f"--pareto {text}: name two columns, as in METRIC,METRIC")
    return names
