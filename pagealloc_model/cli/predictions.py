"""Commands that predict: what the allocator would do, and what differs under another policy."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from pagealloc_model.base.errors import UsageError
from pagealloc_model.base.files import new_directory
from pagealloc_model.base.progress_bar import progress
from pagealloc_model.base.text import TERMINAL, count_of, paragraph
from pagealloc_model.cli.arguments import (
    Commands,
    add_command,
    add_json,
    add_policy,
    add_reclaim,
    add_recording,
    add_recordings,
    add_rules,
    add_tree_patch,
    assumed,
    count,
    counts_text,
    json_text,
    kernel_build,
    opened,
    policy_of,
)
from pagealloc_model.policy.policy import AUTO, Assumptions, Policy

if TYPE_CHECKING:
    from pagealloc_model.numbers.comparison import Comparison
    from pagealloc_model.recording.recording import Recording

TABLES = (
    *("free_pages", "pageblocks", "pcp", "lock"),
    *("transactions", "fallbacks", "outcomes", "folios", "vmstat"),
)


def add_replay(commands: Commands) -> None:
    """Add `pagealloc replay`."""
    parser = add_command(
        commands,
        "replay",
        run_replay,
        "predict what the allocator would do with a recorded demand",
        example="pagealloc replay kbuild --set pcp_batch=127 -o predicted",
        policy_fields=True,
    )
    add_recording(parser)
    parser.add_argument(
        "--set",
        dest="settings",
        action="append",
        metavar="FIELD=VALUE",
        default=[],
        help="policy field to change; may be repeated",
    )
    add_rules(parser)
    add_reclaim(parser)
    parser.add_argument(
        "--kernel-source",
        type=Path,
        metavar="DIR",
        help="kernel checkout, unpacked source package, or its tarball in /usr/src: its "
        "own code, patched or not, takes the model's place",
    )
    add_tree_patch(parser)
    parser.add_argument(
        "-o",
        dest="directory",
        type=Path,
        metavar="DIR",
        help="write every table as CSV into this directory, which must not exist or be empty",
    )
    add_json(parser)


def run_replay(options: argparse.Namespace) -> int:
    """Replay, then print and write what was asked for."""
    policy = Policy.parse(options.settings)
    import pagealloc_model as pm

    build = kernel_build(options, policy)
    recording = opened(options.path)
    assumptions = Assumptions(reclaim=options.reclaim)
    replay = pm.replay(recording, build or policy, rules=options.rules, assumptions=assumptions)
    if options.directory:
        with new_directory(options.directory) as unfinished:
            for name in TABLES:
                getattr(replay, name).to_csv(unfinished / f"{name}.csv", index=False)
            about = json_text(replay.provenance) + "\n"
            (unfinished / "provenance.json").write_text(about, encoding="utf-8")
    if options.json:
        described = {
            "recording": recording.name,
            "kernel": recording.release,
            "rules": replay.rules.spelled(),
            "policy": replay.policy.given(),
            "changed": replay.asked_policy.given(),
            "reclaim": asdict(replay.reclaim),
            "start_state": list(replay.start_state),
            "events": len(recording.trace),
            "lost": recording.trace.losses.total,
            "divergences": dict(replay.divergence),
        }
        if replay.kernel:
            by_shim = list(replay.not_covered)
            described |= {"kernel_source": replay.kernel, "not_covered": by_shim}
        print(json_text(described | {name: getattr(replay, name) for name in TABLES}))
        return 0
    lines = [
        ("recording", f"{recording.name}, kernel {recording.release or 'unknown'}"),
        ("rules", replay.rules_origin.removeprefix("rules ")),
        ("policy", str(replay.asked_policy)),
        ("reclaim", str(replay.reclaim).removeprefix("Reclaim is ")),
        ("events", f"{len(recording.trace):,}, {recording.trace.losses.total:,} lost"),
        *[("start", line) for line in replay.start_state],
        ("diverged", counts_text(replay.divergence) or "nowhere"),
        *([("code", replay.kernel)] if replay.kernel else []),
        *[("by shim", line) for line in replay.not_covered],
    ]
    print("\n".join(paragraph(text, label=f"{label:<11}") for label, text in lines))
    for name in TABLES:
        print(f"table      {name:<13} {len(getattr(replay, name)):>8} rows")
    return 0


def add_compare(commands: Commands) -> None:
    """Add `pagealloc compare`."""
    parser = add_command(
        commands,
        "compare",
        run_compare,
        "replay recordings under two policies and print the differences",
        example="pagealloc compare highatomic_stock --patch highatomic_gate_order=3",
        policy_fields=True,
    )
    add_recordings(parser)
    add_policy(parser, "--base", "policy of the base side (as recorded)")
    add_policy(parser, "--patch", "policy of the patch side (required)", required=True)
    add_rules(parser)
    add_reclaim(parser)
    parser.add_argument(
        "--seeds",
        type=count,
        metavar="N",
        help="compare means over N seeds; a change within their spread is no change (default: 5 "
        "where the recorded kernel reclaimed or the model's does, else 1)",
    )
    parser.add_argument(
        "--format",
        choices=("text", "mmtests", "csv", "json"),
        default="text",
        help="text: raw signed change; mmtests: gains, positive is better (default: text)",
    )
    parser.add_argument(
        "--full", action="store_true", help="also print every row and what it rests on"
    )
    parser.add_argument(
        "--json", dest="format", action="store_const", const="json", help="same as --format json"
    )


def run_compare(options: argparse.Namespace) -> int:
    """Compare on every recording, then print in the format asked for."""
    policies = {side: policy_of(f"--{side}", getattr(options, side)) for side in ("base", "patch")}
    import pandas as pd

    import pagealloc_model as pm
    from pagealloc_model.numbers.validation import usual_seeds

    compared: dict[Recording, Comparison] = {}
    reclaims: list[str] = []
    for recording in map(opened, options.paths):
        reclaim, assumptions = assumed(recording, *policies.values(), asked=options.reclaim)
        reclaims.append(paragraph(f"{recording.name}: {reclaim}"))
        shared = {"rules": options.rules, "assumptions": assumptions}
        sides = []
        for side, policy in policies.items():
            with progress(f"{recording.name}, {side}", len(recording.trace), "events") as report:
                sides.append(pm.replay(recording, policy, **shared, progress=report))
        seeds = options.seeds or usual_seeds(recording, assumptions)
        compared[recording] = pm.compare(*sides).validated().over_seeds(seeds)
    names = [recording.name for recording in compared]
    comparisons = list(compared.values())
    if options.format == "csv":
        tables = [comparison.rows for comparison in comparisons]
        table = pd.concat(tables, keys=names, names=["recording"])
        print(table.reset_index(level=0).to_csv(index=False), end="")
    elif options.format == "json":
        # One object; with several recordings, the rows of all, each naming its recording.
        described = [comparison.to_dict() for comparison in comparisons]
        rows = [
            {"recording": name, **row}
            for name, comparison in zip(names, described, strict=True)
            for row in comparison["rows"]
        ]
        print(json_text(described[0] | {"recordings": names, "rows": rows}))
    else:
        brief = options.format == "text" and not options.full
        style = "signed" if options.format == "text" else "mmtests"
        texts = []
        for comparison, reclaim in zip(comparisons, reclaims, strict=True):
            texts += [repr(comparison), reclaim] if style == "signed" else [reclaim]
            texts += [] if brief else [comparison.to_text(72, style).rstrip()]
        if brief:
            todo = (
                "Next: --full prints every row and what it rests on; pagealloc post with the same "
            )
            texts.append(paragraph(f"{todo}words writes a message for a mailing list."))
        print("\n\n".join(texts))
    return 0


def add_locks(commands: Commands) -> None:
    """Add `pagealloc locks`."""
    parser = add_command(
        commands,
        "locks",
        run_locks,
        "compare predicted with recorded use of zone->lock, and predict its times",
        example="pagealloc locks xfree --patch pcp_free_batched=true",
        more="""
        Times come from a queue at each lock and from the costs in the notes of --full; low and
        high are for costs divided and multiplied by 3.16. NA: not modelled, or no event shows it.
        """,
    )
    add_recording(parser)
    add_rules(parser)
    add_reclaim(parser)
    add_policy(parser, "--patch", "also replay under this policy, and print both side by side")
    parser.add_argument(
        "--full", action="store_true", help="also print every site, hold, time, note and cost"
    )
    parser.add_argument(
        "--csv",
        action="store_true",
        help="print counts by time bin, CPU and site under the recorded policy as CSV instead",
    )
    add_json(parser)


def run_locks(options: argparse.Namespace) -> int:
    """Compare and print."""
    if options.csv and options.patch is not None:
        raise UsageError("--csv is of the recorded policy: leave out --patch, or add --json")
    import pagealloc_model as pm
    from pagealloc_model.show.post.lock_rows import brief_locks
    from pagealloc_model.show.post.tables import (
        longest_hold_table,
        spread_table,
        traffic_table,
        trylock_line,
    )

    policy = policy_of("--patch", options.patch)
    recording = opened(options.path)
    reclaim, assumptions = assumed(recording, policy, asked=options.reclaim)
    base = pm.replay(recording, rules=options.rules, assumptions=assumptions)
    comparison = pm.locks.compare_locks(recording, base)
    if options.csv:
        print(comparison.table.to_csv(index=False), end="")
        return 0
    times, patch = comparison.times, None
    if options.patch is not None:
        patch = pm.replay(recording, policy, rules=options.rules, assumptions=assumptions)
    if options.json:
        described = {
            "recording": comparison.predicted.name,
            "by_site": comparison.by_site,
            "by_time_and_cpu": comparison.table,
            "longest_holds": times.longest_holds(),
            "trylocks": times.trylocks,
            "spread": pm.locks.with_spread(times),
            "notes": comparison.notes,
        }
        if patch is not None:
            rows = pm.locks.lock_policy_rows(times, patch.lock_times(times.model))
            described |= {"patch": patch.asked_policy.given(), "by_policy": rows}
        print(json_text(described))
        return 0
    todo = "--full has every site, hold, note and cost"
    if patch is None:
        todo += ", --patch FIELD=VALUE adds another policy"
    first, table, rests_on = brief_locks(comparison, patch, str(policy) if patch else "")
    last = rests_on if options.full else f"{rests_on} Next: {todo}."
    print(*(first, table, paragraph(last, width=TERMINAL)), sep="\n\n")
    if options.full:
        print("", traffic_table(comparison), longest_hold_table(times), sep="\n")
        print(spread_table(pm.locks.with_spread(times)))
        print(paragraph(trylock_line(times)), end="\n\n")
        print("Notes:", *[paragraph(line, label="- ") for line in comparison.notes], sep="\n")
        if patch is not None:
            title = f"base: as recorded; patch: {policy}; reclaim: {reclaim.mode}"
            print()
            print(pm.locks.lock_policy_table(times, patch.lock_times(times.model), title))
    return 0


_INNERMOST = 5


def add_stacks(commands: Commands) -> None:
    """Add `pagealloc stacks`."""
    parser = add_command(
        commands,
        "stacks",
        run_stacks,
        "show who asked for pages, fell back and held zone->lock, by call stack",
        example="pagealloc stacks recording --of holds --patch pcp_batch=31 -o holds.json",
        more="""
        pages: who asked for pages. fallbacks: who fell back to another migratetype, and how many
        pages the block had. holds: whose requests and frees held zone->lock for many
        pages. The recording must have call chains: pagealloc record -g.
        """,
    )
    add_recording(parser)
    parser.add_argument(
        "--of",
        choices=("pages", "fallbacks", "holds"),
        default="pages",
        help="what to show (default: pages)",
    )
    add_policy(parser, "--patch", "with --of holds: also show the holds under this policy")
    parser.add_argument(
        "--least", type=int, metavar="N", default=0, help="only holds of at least N pages"
    )
    parser.add_argument("--top", type=count, metavar="N", default=20, help="lines to print")
    parser.add_argument(
        "-o",
        dest="file",
        type=Path,
        metavar="FILE",
        help="write a flame graph: .json for speedscope.app, else folded lines, one side a file",
    )
    add_json(parser)


def run_stacks(options: argparse.Namespace) -> int:
    """Print the stacks, and write them."""
    import pagealloc_model as pm
    from pagealloc_model.measured.call_stacks import call_stacks
    from pagealloc_model.recording.trace import tracepoints as tp

    if options.patch is not None and options.of != "holds":
        raise UsageError("--patch: only holds differ by policy; add --of holds")
    recording = opened(options.path)
    stacks = call_stacks(recording)
    if options.of == "pages":
        sides = {"asked for, as recorded": stacks.by_stack(tp.PAGE_ALLOC)}
    elif options.of == "fallbacks":
        sides = {"fell back, as recorded": stacks.by_stack(tp.PAGE_ALLOC_EXTFRAG)}
    else:
        policies = {"held, policy as recorded": Policy()}
        if options.patch is not None:
            policy = policy_of("--patch", options.patch)
            policies[f"held, {policy}"] = policy
        shared = assumed(recording, *policies.values(), asked=AUTO)[1]
        replays = {
            name: pm.replay(recording, policy, assumptions=shared)
            for name, policy in policies.items()
        }
        sides = {
            name: stacks.of_holds(replay.transactions_full, options.least)
            for name, replay in replays.items()
        }
    if options.file:
        from pagealloc_model.show.flame_graph import folded, speedscope

        texts = map(folded, sides.values())
        if options.file.suffix == ".json":
            texts = iter([speedscope(sides)])
        try:
            for end, text in zip(("", "-patch"), texts, strict=False):
                file = options.file.with_stem(f"{options.file.stem}{end}") if end else options.file
                file.write_text(text, encoding="utf-8")
        except OSError as error:
            raise UsageError(f"{options.file}: cannot be written ({error.strerror})") from None
    if options.json:
        print(json_text(sides))
        return 0
    if not stacks.named_by:
        print("functions are addresses: the recording has no kallsyms.gz and is of another boot\n")
    counted = "holds" if options.of == "holds" else "events"
    for name, table in sides.items():
        pages = count_of(int(table["pages"].sum()), "page")
        print(f"{name}: {count_of(len(table), 'stack')}, {pages}; by the innermost functions:")
        print(f"{counted:>10} {'pages':>10}")
        chains = table["stack"].map(_innermost).rename("chain")
        merged = table[["events", "pages"]].groupby(chains).sum()
        merged = merged.sort_values("pages", ascending=False, kind="stable")
        for row in merged.head(options.top).itertuples():
            print(f"{row.events:>10} {int(row.pages):>10}  {row.Index}")
    return 0


def _innermost(stack: str) -> str:
    """A stack's task and its innermost functions, the innermost first."""
    task, *functions = stack.split(";")
    return f"{task}: {' < '.join(reversed(functions[-_INNERMOST:]))}"
