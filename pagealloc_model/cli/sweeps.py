"""Commands on many policies or many recordings."""

from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path

from pagealloc_model.base.errors import UsageError
from pagealloc_model.base.text import count_of
from pagealloc_model.cli.arguments import (
    Commands,
    add_command,
    add_json,
    add_policy,
    add_reclaim,
    add_recordings,
    add_rules,
    json_text,
    policy_of,
    refuse,
)
from pagealloc_model.policy.policy import Assumptions, Policy

_MOST_POINTS = 100_000


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def add_sweep(commands: Commands) -> None:
    """Add `pagealloc sweep`."""
    parser = add_command(
        commands,
        "sweep",
        run_sweep,
        "replay recordings under many policies, one row for each",
        example="pagealloc sweep kbuild --vary pcp_batch=15,31,63 --vary costly_order=0:9:3 "
        "-o results.parquet",
        more="""
        Every combination of the values is a point, one row of the table. A range START:STOP:STEP
        includes STOP. Also varied: rules=6.12,6.18 and assumptions.FIELD=...

        Finished points are kept: a sweep that is repeated, enlarged or interrupted computes only
        what is new. A point that fails is a row with its error, and is tried again the next time.
        """,
        policy_fields=True,
    )
    add_recordings(parser)
    parser.add_argument(
        "--vary",
        action="append",
        metavar="FIELD=VALUES",
        default=[],
        help="values such as 15,31,63 or START:STOP:STEP, 'none' for as recorded; may be repeated",
    )
    parser.add_argument(
        "--set",
        dest="settings",
        action="append",
        metavar="FIELD=VALUE",
        default=[],
        help="policy field of all points; may be repeated",
    )
    parser.add_argument(
        "--one-at-a-time",
        action="store_true",
        help="no combinations: vary one field, the others as recorded",
    )
    parser.add_argument(
        "--points",
        type=int,
        metavar="N",
        help="that many points spread over the ranges instead of every combination",
    )
    parser.add_argument(
        "--seeds",
        type=int,
        metavar="N",
        default=1,
        help="repeat every point with this many seeds (default 1)",
    )
    add_rules(parser)
    add_reclaim(parser)
    parser.add_argument("-o", "--output", type=Path, metavar="FILE", help="write Parquet here")
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
    parser.add_argument("--workers", type=int, metavar="N", help="threads (default: one a CPU)")
    parser.add_argument("--metrics", metavar="NAME,...", default="", help="columns to print")
    parser.add_argument(
        "--sensitivity",
        metavar="METRIC",
        help="print how far each field moves this column instead of the points",
    )
    parser.add_argument(
        "--pareto",
        metavar="METRIC,METRIC",
        help="print the points that no other point beats in both columns",
    )
    add_json(parser)


def run_sweep(options: argparse.Namespace) -> int:
    """Sweep, write and print; 1 if a point failed."""
    from pagealloc_model.sweeps import design

    policy = Policy.parse(options.settings)
    vary = design.parse_vary(options.vary)
    if options.points is not None and options.one_at_a_time:
        raise UsageError("--points and --one-at-a-time are two designs; give one of them")
    if options.points is not None and not 1 <= options.points <= _MOST_POINTS:
        raise UsageError(f"--points {options.points}: give 1 to {_MOST_POINTS}")
    if options.points is None:
        points = design.one_at_a_time(vary) if options.one_at_a_time else design.grid(vary)
    else:
        ranges = {name: (min(values), max(values)) for name, values in vary.items()}
        points = design.space_filling(ranges, options.points)
    if options.seeds < 1:
        raise UsageError(f"--seeds {options.seeds}: at least one")
    if options.output and options.output.exists() and not options.resume:
        raise UsageError(f"{options.output} exists; --resume replaces it with the completed table")
    import pagealloc_model as pm

    result = pm.sweep(
        options.paths,
        points,
        seeds=range(options.seeds),
        policy=policy,
        rules=options.rules,
        assumptions=Assumptions(reclaim=options.reclaim),
        client=options.scheduler,
        workers=options.workers,
    )
    if options.output:
        result.to_parquet(options.output)
    failed = len(result.failed)
    if options.json:
        head = {"points": len(result.rows), "reused": result.reused, "axes": list(result.axes)}
        print(json_text(head | {"rows": result.rows}))
        return 1 if failed else 0
    made = count_of(len(result.rows), "point")
    written = f"written to {options.output}\n" if options.output else ""
    if options.sensitivity:
        text = result.sensitivity(options.sensitivity).to_text()
    elif options.pareto:
        columns = _names(options.pareto)
        if len(columns) != 2:
            raise UsageError(f"--pareto {options.pareto}: name two columns, as in METRIC,METRIC")
        text = result.pareto(*columns).to_text()
    else:
        text = result.to_text(_names(options.metrics))
    head = f"{made}, {result.reused} of them known, {failed} failed\n{written}"
    print(f"{head}\n{result.reclaim_words}{text}", end="")
    return 1 if failed else 0


def add_fleet(commands: Commands) -> None:
    """Add `pagealloc fleet`."""
    parser = add_command(
        commands,
        "fleet",
        run_fleet,
        "compare two sets of hosts: ranges over hosts, intervals, significance",
        example="pagealloc fleet --base-hosts A/ --patch-hosts B/ --patch highatomic_gate_order=3",
        more="""
        Hosts are recordings; a folder of recordings stands for all of them. Finished hosts are
        kept.
        """,
        policy_fields=True,
    )
    for side in ("base", "patch"):
        hosts = f"--{side}-hosts"
        parser.add_argument(
            hosts,
            nargs="+",
            metavar="PATH",
            default=[],
            help=f"recordings of the {side} side's hosts",
        )
        policy = add_policy(parser, f"--{side}", f"policy of the {side} side (as recorded)")
        policy.type = partial(_setting, hosts)
        refuse(parser, f"--{side}-set", f"use --{side} FIELD=VALUE,..., for the hosts {hosts} PATH")
    add_rules(parser)
    add_reclaim(parser)
    parser.add_argument("--workers", type=int, metavar="N", help="threads (default: one a CPU)")
    parser.add_argument("--metrics", metavar="NAME,...", default="", help="columns to compare")
    parser.add_argument(
        "-o", "--output", type=Path, metavar="FILE", help="write one row a host here, as Parquet"
    )
    add_json(parser)


def _setting(hosts: str, text: str) -> str:
    """The value of a fleet's policy option; `hosts` is that of the side's hosts."""
    if "=" not in text:
        raise argparse.ArgumentTypeError(
            f"{text!r} is no FIELD=VALUE; for the hosts use {hosts} PATH"
        )
    return text


def run_fleet(options: argparse.Namespace) -> int:
    """Run both sides, write and print; 1 if a host failed."""
    policies = [policy_of(f"--{side}", getattr(options, side)) for side in ("base", "patch")]
    base, patch = options.base_hosts, options.patch_hosts
    if not (base and patch):
        raise UsageError("a fleet needs hosts: recordings for --base-hosts and --patch-hosts")
    import pagealloc_model as pm

    result = pm.fleets.fleet(
        base,
        patch,
        assumptions=Assumptions(reclaim=options.reclaim),
        base_policy=policies[0],
        patch_policy=policies[1],
        rules=options.rules,
        workers=options.workers,
    )
    if options.output:
        from pagealloc_model.sweeps.sweep import write_parquet

        write_parquet(result.hosts, options.output)
    metrics = _names(options.metrics)
    if options.json:
        tables = {"compared": result.compared(metrics), "hosts": result.hosts}
        print(json_text(tables))
    else:
        print(f"{result.reclaim_words}{result.to_text(metrics)}", end="")
    return 1 if len(result.failed) else 0
