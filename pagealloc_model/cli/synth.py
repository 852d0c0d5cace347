"""`pagealloc synth`: a made-up load as a recording, and what it does at zone->lock."""

from __future__ import annotations

import argparse
from pathlib import Path

from pagealloc_model.base.text.counts import count_of
from pagealloc_model.cli.arguments import Commands, add_command

SCENARIO_NAMES = ("exit", "boot", "purgers", "churn")


def add_parser(commands: Commands) -> None:
    """Add the command."""
    parser = add_command(
        commands,
        "synth",
        summary="make up a load on a machine of any size",
        example="pagealloc synth exit -o avalanche --cpus 64 --gib 128 --set pages=4096",
        more="Scenarios: exit (a process per CPU, all exit at once), boot (many short processes), "
        "purgers (many CPUs allocate, few free), churn (workers map, touch and unmap).",
    )
    parser.add_argument("scenario", metavar="SCENARIO", choices=SCENARIO_NAMES)
    parser.add_argument("-o", "--output", metavar="DIR", type=Path, required=True)
    parser.add_argument("--cpus", metavar="N", type=int, default=4, help="CPUs (default 4)")
    parser.add_argument("--gib", metavar="N", type=float, default=4, help="memory (default 4)")
    parser.add_argument("--nodes", metavar="N", type=int, default=1, help="NUMA nodes (default 1)")
    parser.add_argument("--seed", metavar="N", type=int, default=0, help="of random choices")
    parser.add_argument("--rules", metavar="SERIES", help="kernel series (default: the newest)")
    parser.add_argument(
        "--set",
        metavar="NUMBER=VALUE",
        action="append",
        default=[],
        help="a number of the scenario, such as pages=4096; may be repeated",
    )
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Run the scenario, write it, and say how long zone->lock is held."""
    from pagealloc_model.base.text.layout import paragraph
    from pagealloc_model.policy.kernel_rules import preset_names
    from pagealloc_model.predicted.locks.lock_spread import with_spread
    from pagealloc_model.show.post.lock_traffic import (
        longest_hold_table,
        spread_table,
        trylock_line,
    )
    from pagealloc_model.studies.workload.made_up_scenario import made_up_scenario
    from pagealloc_model.studies.workload.run import run_scenario
    from pagealloc_model.studies.workload.synthetic_recording import write_synthetic_recording

    rules = options.rules or preset_names()[-1]
    scenario = made_up_scenario(
        options.scenario,
        gib=options.gib,
        nr_cpus=options.cpus,
        nodes=options.nodes,
        rules=rules,
        seed=options.seed,
        **_numbers(options.set),
    )
    done = run_scenario(scenario, rules=rules)
    write_synthetic_recording(done, options.output)
    print(
        f"{options.output}: {count_of(len(scenario.events), 'event')} on "
        f"{count_of(scenario.machine.nr_cpus, 'CPU')}"
    )
    for line in scenario.lines:
        print(f"scenario   {line}")
    times = done.times()
    print("\nBy assumed costs, and for costs that are tenfold apart:\n")
    print(longest_hold_table(times))
    print(spread_table(with_spread(times.log, times.machine, times.model, times.visits)))
    print(paragraph(trylock_line(times)))
    return 0


def _numbers(words: list[str]) -> dict[str, int]:
    from pagealloc_model.base.errors import UsageError

    numbers = {}
    for word in words:
        name, _, value = word.partition("=")
        try:
            numbers[name] = int(value)
        except ValueError:
            raise UsageError(f"--set {word}: write NUMBER=VALUE, a whole number") from None
    return numbers
