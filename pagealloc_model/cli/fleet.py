"""`pagealloc fleet`: two sets of hosts, and whether they differ."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from pagealloc_model.base.errors import UsageError
from pagealloc_model.cli.arguments import (
    Commands,
    add_command,
    add_json,
    add_rules,
    policy_fields_help,
)
from pagealloc_model.cli.output import json_text, rows_of
from pagealloc_model.policy.policy import Policy

if TYPE_CHECKING:
    from pagealloc_model.studies.fleets.fleet import Hosts

MORE = (
    "Hosts are recordings (--base and --patch), or made up (--synthetic): full of page cache,\n"
    "with atomic requests of orders 0 to 3, each by its own seed. Finished hosts are kept."
)


def add_parser(commands: Commands) -> None:
    """Add the command."""
    parser = add_command(
        commands,
        "fleet",
        summary="compare two sets of hosts: ranges per host, intervals, significance",
        example="pagealloc fleet --synthetic 8 --gib 16 --patch-set highatomic_gate_order=3",
        more=f"{MORE}\n\n{policy_fields_help()}",
    )
    for side, letter in (("base", "A"), ("patch", "B")):
        parser.add_argument(
            f"--{side}",
            metavar="PATH",
            nargs="+",
            default=[],
            help=f"recordings of the {letter} side's hosts",
        )
        parser.add_argument(
            f"--{side}-set",
            metavar="FIELD=VALUE",
            action="append",
            default=[],
            help=f"policy of the {letter} side (default: as recorded); may be repeated",
        )
    parser.add_argument(
        "--synthetic", metavar="N", type=int, default=0, help="make up N hosts on each side"
    )
    parser.add_argument("--gib", metavar="N", type=float, default=64, help="memory (default 64)")
    parser.add_argument("--cpus", metavar="N", type=int, default=8, help="CPUs (default 8)")
    parser.add_argument(
        "--read-pages", metavar="N", type=int, default=0, help="page cache read by a made-up host"
    )
    add_rules(parser)
    parser.add_argument("--workers", metavar="N", type=int, help="threads (default: one a CPU)")
    parser.add_argument("--metrics", metavar="NAME,...", default="", help="columns to compare")
    parser.add_argument(
        "-o", "--output", metavar="FILE", type=Path, help="write one row a host here, as Parquet"
    )
    add_json(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Run both sides, write and print; 1 if a host failed."""
    policies = [Policy.parse(words) for words in (options.base_set, options.patch_set)]
    base, patch = _sides(options)
    import pagealloc_model as pm

    result = pm.fleets.fleet(
        base,
        patch,
        base_policy=policies[0],
        patch_policy=policies[1],
        rules=options.rules,
        workers=options.workers,
    )
    if options.output:
        from pagealloc_model.studies.sweeps.parquet import write_parquet

        write_parquet(result.hosts, options.output)
    metrics = [name.strip() for name in options.metrics.split(",") if name.strip()]
    if options.json:
        tables = {"compared": result.compared(metrics), "hosts": result.hosts}
        print(json_text({name: rows_of(table) for name, table in tables.items()}))
    else:
        print(result.to_text(metrics), end="")
    return 1 if len(result.failed) else 0


def _sides(options: argparse.Namespace) -> tuple[Hosts, Hosts]:
    """The hosts of both sides, made up or recorded."""
    if options.synthetic:
        if options.base or options.patch:
            raise UsageError("--synthetic makes up both sides; leave --base and --patch out")
        from pagealloc_model.studies.fleets.synthetic_hosts import SyntheticHosts

        hosts = SyntheticHosts(
            count=options.synthetic,
            gib=options.gib,
            nr_cpus=options.cpus,
            rules=options.rules or "",
            read_pages=options.read_pages,
        )
        return hosts, hosts.with_other_seeds()
    if not (options.base and options.patch):
        raise UsageError("a fleet needs hosts: recordings for --base and --patch, or --synthetic N")
    return options.base, options.patch
