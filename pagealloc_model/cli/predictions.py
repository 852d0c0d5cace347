"""Commands on one recording: a prediction, its judgement, and what differs between two."""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from pagealloc_model.base.errors import UsageError
from pagealloc_model.base.files import new_directory
from pagealloc_model.base.progress_bar import progress
from pagealloc_model.base.text import count_of, paragraph
from pagealloc_model.cli.arguments import assumed, json_text, kernel_build, opened, policy_of
from pagealloc_model.policy.kernel_rules import KernelRules
from pagealloc_model.policy.policy import Policy

if TYPE_CHECKING:
    from pagealloc_model.diagnosis.budget import Budget
    from pagealloc_model.diagnosis.placement import Placement
    from pagealloc_model.kernel_source.build import KernelBuild
    from pagealloc_model.kernel_source.judge import Verdict
    from pagealloc_model.numbers.comparison import Comparison
    from pagealloc_model.numbers.validation import Validation
    from pagealloc_model.predicted.replay import ReclaimChoice
    from pagealloc_model.recording.recording import Recording

BUDGET = "error_budget"
"""Name of the files of the whole recording's budget."""
SEEDS_UNDER_PRESSURE = 5
"""Seeds of chaotic quantities where the recorded kernel reclaimed."""


def run_validate(options: argparse.Namespace) -> int:
    """Validate and print the verdict; write the budget's figure if asked to."""
    if options.brief and (options.full or options.resync or options.budget or options.json):
        raise UsageError("--brief is one line: leave --full, --resync, --budget and --json out")
    if options.directory is None:
        _validate(options)
        return 0
    if not options.budget:
        raise UsageError("-o writes the figure of the error budget; ask for it with --budget")
    with new_directory(options.directory) as unfinished:
        budgets = _validate(options)
        if not budgets:
            raise UsageError(f"{options.path}: no error budget without a replay; leave -o out")
        from pagealloc_model.show.figures import error_budget
        from pagealloc_model.show.figures.files import write_figures

        figures = {}
        for name, budget in budgets.items():
            budget.errors.to_csv(unfinished / f"{name}.csv", index=False)
            figures[name] = error_budget(budget.errors, budget.recording)
        try:
            write_figures(figures, unfinished)
        except UsageError as error:
            print(f"pagealloc: {error}; the errors were written as CSV", file=sys.stderr)
    if not options.json:
        print("\nWritten:", *sorted(options.directory.iterdir()), sep="\n  ")
    return 0


@dataclass(frozen=True)
class _Validated:
    """The model's validation, a kernel build's if one is given, and a budget if asked for."""

    validation: Validation
    kernel: Validation | None
    budget: Budget | None
    reclaim: ReclaimChoice

    def to_dict(self) -> dict[str, object]:
        content = self.validation.to_dict() | {"reclaim": asdict(self.reclaim)}
        others = {"kernel_source": self.kernel, "budget": self.budget}
        return content | {name: side.to_dict() for name, side in others.items() if side is not None}

    def print(self, options: argparse.Namespace) -> None:
        validation = self.validation
        if options.brief:
            print(f"{validation.headline}.")
            return
        origin = validation.replay.rules_origin.removeprefix("rules ")
        asides = [str(self.reclaim), f"Rules: {origin}."]
        print(validation.to_text(asides=asides), end="\n\n")
        if options.full or self.kernel is not None:
            print(_in_full(validation, self.kernel))
        if validation.placement is not None:
            print(_placement_text(validation.placement, options.misses))
        if not options.full:
            name = shlex.quote(str(options.path))
            print(
                paragraph(
                    f"Next: pagealloc validate {name} --full prints every number, what was imposed "
                    "and what is not modelled; --budget where each error comes from. pagealloc "
                    f"compare {name} --patch FIELD=VALUE predicts a change and says which rows to "
                    "believe."
                )
            )
        if self.budget is not None:
            print(f"\nError budget:\n\n{self.budget.to_text()}")


def _validated(
    recording: Recording,
    options: argparse.Namespace,
    build: KernelBuild | None,
    windows: Sequence[Validation] = (),
    *,
    with_budget: bool,
) -> _Validated:
    import pagealloc_model as pm

    # a budget imposes what the kernel did, and so does a kernel build's own code
    literal = "literal" if with_budget or build is not None else ""
    reclaim, assumptions = assumed(recording, asked=options.reclaim or literal)
    validation = pm.validate(
        recording, rules=options.rules, assumptions=assumptions, resync=options.resync
    )
    under_pressure = assumed(recording)[0].mode == "elastic"
    usual = SEEDS_UNDER_PRESSURE if under_pressure and not options.brief else 1
    validation = validation.over_seeds(options.seeds or usual)
    budget = validation.budget(windows) if with_budget else None
    kernel = pm.validate(recording, rules=options.rules, kernel=build) if build else None
    return _Validated(validation, kernel, budget, reclaim)


def _validate(options: argparse.Namespace) -> dict[str, Budget]:
    """Validate, print, and return the error budgets by the names of their files.

    A recording with losses is validated as a whole if these are few, then each loss-free window.
    """
    from pagealloc_model.numbers.loss_windows import (
        loss_windows,
        recording_between,
        refuse_if_lossy,
    )

    build = kernel_build(options, Policy())
    recording = opened(options.path)
    if options.resync and not any(snapshot.zoneinfo for snapshot in recording.snapshots):
        placement = recording.judge_choices(rules=options.rules)
        text = "" if options.json else _placement_text(placement, options.misses)
        print(json_text(placement.to_dict()) if options.json else text)
        return {}
    usable = [window for window in loss_windows(recording) if not window.unusable]
    refused = ""
    try:
        refuse_if_lossy(recording)
    except UsageError as error:
        refused = str(error)
        if not usable:
            raise
    alone = options.budget and bool(refused)
    parts = [
        _validated(recording_between(recording, window), options, build, with_budget=alone)
        for window in usable
    ]
    validated = {f"{BUDGET}_window_{number}": part for number, part in enumerate(parts, start=1)}
    whole = None
    if not refused:
        windows = [part.validation for part in parts]
        whole = _validated(recording, options, build, windows, with_budget=options.budget)
        validated = {BUDGET: whole} | validated
    if options.json:
        lost = recording.trace.losses.total
        head = {"recording": recording.name, "lost": lost, "refused": refused}
        content = head if whole is None else whole.to_dict()
        if lost:
            content["windows"] = [
                {"window": str(window)} | part.to_dict()
                for window, part in zip(usable, parts, strict=True)
            ]
        print(json_text(content))
    else:
        if whole is None:
            print(refused)
        else:
            whole.print(options)
        for window, part in zip(usable, parts, strict=True):
            print(f"\nLoss-free window, {window}\n")
            part.print(options)
    return {name: part.budget for name, part in validated.items() if part.budget is not None}


def _placement_text(placement: Placement, with_misses: bool) -> str:
    from pagealloc_model.show.post import choice_table, miss_list

    repairs = [f"{count} {what}" for what, count in placement.repairs.items() if count]
    lines = ["Choices judged alone:", "", choice_table(placement)]
    if with_misses:
        lines += ["First misses of each choice:", "", miss_list(placement)]
    lines += [paragraph(line, label="- ") for line in placement.notes]
    lines += [paragraph(f"put right: {line}", label="- ") for line in repairs]
    return "\n".join([*lines, ""])


def _in_full(validation: Validation, kernel: Validation | None) -> str:
    """Every row and note."""
    from pagealloc_model.numbers.result_tables import error_table
    from pagealloc_model.show.post import snapshot_table

    described = validation.to_dict()
    head = {
        "recording": described["recording"],
        "kernel": f"{described['kernel'] or 'unknown'}, rules {described['rules']}",
        "events": f"{described['events']}, {described['lost']} lost",
        "diverged": _counts(described["divergences"]) or "nowhere",
    }
    lines = [paragraph(str(text), label=f"{name + ':':<11}") for name, text in head.items()]
    lines += [paragraph(line, label="start:     ") for line in validation.replay.start_state]
    if kernel is not None:
        lines += [paragraph(kernel.replay.kernel, label="code:      ")]
    lines += ["", error_table(validation.errors, None if kernel is None else kernel.errors)]
    if len(validation.snapshots):
        seconds = "Seconds after the snapshot that describes the start:"
        lines += [seconds, "", snapshot_table(validation.snapshots)]
    for title, notes in (
        ("First departures", [departure.words() for departure in validation.departures]),
        ("Notes", validation.notes),
        ("Not modelled", validation.not_modelled),
        ("Left to the shim", () if kernel is None else kernel.replay.not_covered),
    ):
        if notes:
            lines += [f"{title}:", *[paragraph(line, label="- ") for line in notes], ""]
    return "\n".join(lines)


def _counts(divergence: Mapping[str, int]) -> str:
    """The counts that are not 0, by name."""
    return ", ".join(f"{name} {count:,}" for name, count in divergence.items() if count)


TABLES = (
    *("free_pages", "pageblocks", "pcp", "lock"),
    *("transactions", "fallbacks", "outcomes", "folios", "vmstat"),
)


def run_replay(options: argparse.Namespace) -> int:
    """Replay, then print and write what was asked for."""
    policy = Policy.parse(options.settings)
    import pagealloc_model as pm

    build = kernel_build(options, policy)
    recording = opened(options.path)
    # a kernel build takes reclaim from the recording unless it is asked not to
    mode = options.reclaim or ("literal" if build else "")
    reclaim, assumptions = assumed(recording, policy, asked=mode)
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
            "reclaim": asdict(reclaim),
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
        ("reclaim", str(reclaim).removeprefix("Reclaim is ")),
        ("events", f"{len(recording.trace):,}, {recording.trace.losses.total:,} lost"),
        *[("start", line) for line in replay.start_state],
        ("diverged", _counts(replay.divergence) or "nowhere"),
        *([("code", replay.kernel)] if replay.kernel else []),
        *[("by shim", line) for line in replay.not_covered],
    ]
    print("\n".join(paragraph(text, label=f"{label:<11}") for label, text in lines))
    for name in TABLES:
        print(f"table      {name:<13} {len(getattr(replay, name)):>8} rows")
    return 0


def run_compare(options: argparse.Namespace) -> int:
    """Compare on every recording, then print in the format asked for."""
    policies = {side: policy_of(f"--{side}", getattr(options, side)) for side in ("base", "patch")}
    import pandas as pd

    import pagealloc_model as pm

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
        compared[recording] = pm.compare(*sides)
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


def run_locks(options: argparse.Namespace) -> int:
    """Compare and print."""
    import pagealloc_model as pm
    from pagealloc_model.show.post.tables import (
        longest_hold_table,
        spread_table,
        traffic_line,
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
    times = comparison.times
    spread = pm.locks.with_spread(base.log, base.machine, times.model, times.visits)
    if options.json:
        described = {
            "recording": comparison.predicted.name,
            "by_site": comparison.by_site,
            "by_time_and_cpu": comparison.table,
            "longest_holds": times.longest_holds(),
            "trylocks": times.trylocks,
            "spread": spread,
            "notes": comparison.notes,
        }
        print(json_text(described))
        return 0
    print(paragraph(f"{comparison.predicted.name}: {traffic_line(comparison)}."), end="\n\n")
    print(traffic_table(comparison))
    print(longest_hold_table(times))
    print(spread_table(spread))
    print(paragraph(trylock_line(times)), end="\n\n")
    print("Notes:", *[paragraph(line, label="- ") for line in comparison.notes], sep="\n")
    if options.patch is None:
        print("\nNext: --patch FIELD=VALUE adds the lock under another policy.")
    else:
        patch = pm.replay(recording, policy, rules=options.rules, assumptions=assumptions)
        title = f"base: as recorded; patch: {policy}; reclaim: {reclaim.mode}"
        print()
        print(pm.locks.lock_policy_table(times, patch.lock_times(times.model), title))
    return 0


_INNERMOST = 5


def run_stacks(options: argparse.Namespace) -> int:
    """Print the stacks, and write them."""
    import pagealloc_model as pm
    from pagealloc_model.measured.call_stacks import ALLOC, EXTFRAG, call_stacks

    if options.patch is not None and options.of != "holds":
        raise UsageError("--patch: only holds differ by policy; add --of holds")
    recording = opened(options.path)
    stacks = call_stacks(recording)
    if options.of == "pages":
        sides = {"asked for, as recorded": stacks.by_stack(ALLOC)}
    elif options.of == "fallbacks":
        sides = {"fell back, as recorded": stacks.by_stack(EXTFRAG)}
    else:
        policies = {"held, policy as recorded": Policy()}
        if options.patch is not None:
            policy = policy_of("--patch", options.patch)
            policies[f"held, {policy}"] = policy
        sides = {
            name: stacks.of_holds(pm.replay(recording, policy).transactions_full, options.least)
            for name, policy in policies.items()
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
    for name, table in sides.items():
        pages = count_of(int(table["pages"].sum()), "page")
        print(f"{name}: {count_of(len(table), 'stack')}, {pages}")
        for row in table.head(options.top).itertuples():
            task, *functions = row.stack.split(";")
            chain = " < ".join(reversed(functions[-_INNERMOST:]))
            print(f"{row.events:>10} {int(row.pages):>10} pages  {task}: {chain}")
    return 0


DIFFERS = 1
LINES_MAX, SEQUENCE_MAX = 20, 40


def run_judge(options: argparse.Namespace) -> int:
    """Judge, and print the verdict."""
    from pagealloc_model.kernel_source.compiled_tree import CompiledTree
    from pagealloc_model.kernel_source.extraction import ALLOCATION, RECLAIM
    from pagealloc_model.kernel_source.judge import judge, judge_pressure, judge_recorded
    from pagealloc_model.kernel_source.source_tree import open_tree

    tree = open_tree(options.kernel_source, options.patch)
    rules = options.rules or KernelRules.for_release(tree.release)[0]
    Policy(pageblock_order=options.pageblock_order or None)  # refuses one that no kernel has
    what = f"judging rules {rules.spelled()} by {tree.release or tree.path}"
    total = 0 if options.recording else options.operations
    drawn = {name: getattr(options, name) for name in ("operations", "seed", "pageblock_order")}
    with progress(what, total, "operations") as report:
        code = CompiledTree(tree, RECLAIM if options.pressure else ALLOCATION)
        if options.recording:
            taken = {"pageblock_order": options.pageblock_order, "progress": report}
            verdicts = (judge_recorded(code, rules, opened(options.recording), **taken),)
        elif options.pressure:
            verdicts = judge_pressure(tree, rules, **drawn, progress=report)
        else:
            verdicts = (judge(code, rules, **drawn, progress=report),)
    if options.json:
        described = [asdict(verdict) for verdict in verdicts]
        print(json_text(described if options.pressure else described[0]))
    else:
        print("\n\n".join(_verdict_text(verdict) for verdict in verdicts))
    return DIFFERS if any(verdict.difference for verdict in verdicts) else 0


def _verdict_text(verdict: Verdict) -> str:
    lines = [
        f"judged      {verdict.part}",
        f"rules       {verdict.rules}",
        f"kernel      {verdict.release or 'unknown release'}",
        f"operations  {verdict.operations:,} on "
        f"{count_of(verdict.scenarios + (verdict.scenario >= 0), 'machine')}, "
        f"seed {verdict.seed}, {verdict.seconds:.0f} s",
        *[f"not found   {name}()" for name in verdict.missing],
    ]
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
        count = count_of(len(verdict.shortest), "operation")
        lines += [f"shortest    {count} to the difference:"]
        lines += [f"  {line}" for line in verdict.shortest[:SEQUENCE_MAX]]
    return "\n".join(lines)
