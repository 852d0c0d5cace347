"""`pagealloc locks`: traffic at zone->lock by site, CPU and time, measured and predicted."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from pagealloc_model.cli.arguments import (
    Commands,
    add_command,
    add_json,
    add_policy,
    add_recording,
    add_rules,
    policy_of,
)
from pagealloc_model.cli.output import json_text, rows_of

if TYPE_CHECKING:
    import pandas as pd

    from pagealloc_model.verdict.lock_comparison import LockComparison

_MORE = """\
Times come from a queue at each lock, by costs that the notes name; low and high are
those of costs that are tenfold apart. NA: not modelled, or no event shows it."""


def add_parser(commands: Commands) -> None:
    """Add the command."""
    parser = add_command(
        commands,
        "locks",
        summary="compare traffic at zone->lock with what was measured, and time it",
        example="pagealloc locks xfree --patch pcp_free_batched=true",
        more=_MORE,
    )
    add_recording(parser)
    add_rules(parser)
    add_policy(parser, "--patch", "also replay under this policy, and print both side by side")
    parser.add_argument(
        "--csv", action="store_true", help="print counts by time bin, CPU and site as CSV instead"
    )
    add_json(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Compare and print."""
    import pagealloc_model as pm

    policy = policy_of("--patch", options.patch)
    recording = pm.open(options.path)
    base = pm.replay(recording, rules=options.rules)
    comparison = pm.locks.compare_locks(recording, base)
    if options.csv:
        print(comparison.table.to_csv(index=False), end="")
        return 0
    model = comparison.times.model
    spread = pm.locks.with_spread(base.log, base.machine, model, comparison.times.visits)
    print(json_text(_plain(comparison, spread)) if options.json else _text(comparison, spread))
    if options.patch is not None and not options.json:
        patch = pm.replay(recording, policy, rules=options.rules).lock_times(model)
        print()
        print(
            pm.locks.lock_policy_table(
                comparison.times, patch, f"base: as recorded; patch: {policy}"
            )
        )
    return 0


def _plain(comparison: LockComparison, spread: pd.DataFrame) -> dict[str, Any]:
    return {
        "recording": comparison.predicted.name,
        "by_site": rows_of(comparison.by_site),
        "by_time_and_cpu": rows_of(comparison.table),
        "longest_holds": rows_of(comparison.times.longest_holds()),
        "trylocks": rows_of(comparison.times.trylocks),
        "spread": rows_of(spread),
        "notes": list(comparison.notes),
    }


def _text(comparison: LockComparison, spread: pd.DataFrame) -> str:
    from pagealloc_model.base.text.layout import paragraph
    from pagealloc_model.show.post.lock_traffic import (
        longest_hold_table,
        spread_table,
        traffic_table,
        trylock_line,
    )

    return "\n".join(
        [
            paragraph(comparison.predicted.name, label="recording: "),
            "",
            traffic_table(comparison),
            longest_hold_table(comparison.times),
            spread_table(spread),
            paragraph(trylock_line(comparison.times)),
            "",
            "Notes:",
            *[paragraph(line, label="- ") for line in comparison.notes],
        ]
    )
