"""Commands on one recording: a prediction, its judgement, and what differs between two."""

from __future__ import annotations

import argparse
import shlex
import sys
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pagealloc_model.base.errors import PolicyError, UsageError
from pagealloc_model.base.progress_bar import progress
from pagealloc_model.base.text import count_of
from pagealloc_model.cli.arguments import (
    JSON,
    RECLAIM,
    RECORDING,
    RECORDINGS,
    RULES,
    Command,
    at_least_one,
    json_text,
    kernel_build,
    kernel_source_options,
    new_directory,
    option,
    policy_fields_help,
    policy_of,
    policy_option,
    rows_of,
    write_directory,
)
from pagealloc_model.policy.kernel_rules import KernelRules, preset_names
from pagealloc_model.policy.policy import Policy

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pandas as pd

    from pagealloc_model.allocator.from_source.build import KernelBuild
    from pagealloc_model.base.result_tables import Style
    from pagealloc_model.measured.call_stacks import CallStacks
    from pagealloc_model.predicted.replay import ReclaimChoice, Replay
    from pagealloc_model.recording.recording import Recording
    from pagealloc_model.verdict.budget import Budget
    from pagealloc_model.verdict.choices.placement import Placement
    from pagealloc_model.verdict.comparison import Comparison
    from pagealloc_model.verdict.kernel_judge.judge import Verdict
    from pagealloc_model.verdict.locks import LockComparison
    from pagealloc_model.verdict.validation import Validation


BUDGET = "error_budget"
"""What the files of the whole recording's budget are named after."""


def run_validate(options: argparse.Namespace) -> int:
    """Validate and print the verdict; write the budget's figure if asked to."""
    if options.brief and (options.full or options.resync or options.budget or options.json):
        raise UsageError("--brief is one line: leave --full, --resync, --budget and --json out")
    if options.directory is None:
        _validate(options)
        return 0
    if not options.budget:
        raise UsageError("-o writes the figure of the error budget; ask for it with --budget")
    with new_directory(options.directory) as partial:
        budgets = _validate(options)
        if not budgets:
            raise UsageError(f"{options.path}: no error budget without a replay; leave -o out")
        _write(budgets, partial)
    if not options.json:
        print("\nWritten:", *sorted(options.directory.iterdir()), sep="\n  ")
    return 0


def _write(budgets: Mapping[str, Budget], directory: Path) -> None:
    """Write each budget's errors as CSV and its figure, named as given."""
    from pagealloc_model.show.figures import error_budget
    from pagealloc_model.show.figures.files import write_figures

    for name, budget in budgets.items():
        budget.errors.to_csv(directory / f"{name}.csv", index=False)
    drawn = {name: error_budget(each.errors, each.recording) for name, each in budgets.items()}
    try:
        write_figures(drawn, directory)
    except UsageError as error:
        print(f"pagealloc: {error}; the errors were written as CSV", file=sys.stderr)


def _validate(options: argparse.Namespace) -> dict[str, Budget]:
    """Validate, print, and return the error budgets by the names of their files."""
    import pagealloc_model as pm

    build = kernel_build(options, pm.Policy())
    recording = pm.open(options.path)
    if options.resync and not any(each.zoneinfo for each in recording.snapshots):
        placement = recording.judge_choices(rules=options.rules)
        text = "" if options.json else _placement_text(placement, options.misses)
        print(json_text(placement.to_dict()) if options.json else text)
        return {}
    if recording.trace.losses.total:
        return _validate_by_window(recording, options, build)
    validated = _validated(recording, options, build, with_budget=options.budget)
    _print(validated, options)
    return _budgets(validated, BUDGET)


SEEDS_UNDER_PRESSURE = 5
"""Seeds of chaotic quantities where the recorded kernel reclaimed."""
_Validated = tuple["Validation", "Validation | None", "Budget | None", "ReclaimChoice"]


def _validated(
    recording: Recording,
    options: argparse.Namespace,
    build: KernelBuild | None,
    windows: Sequence[Validation] = (),
    *,
    with_budget: bool,
) -> _Validated:
    """The model's validation, a kernel build's if one is given, and a budget if asked for."""
    import pagealloc_model as pm
    from pagealloc_model.predicted.replay import choose_reclaim

    # a budget imposes what the kernel did, and so does a kernel build's own code
    literal = "literal" if with_budget or build is not None else ""
    reclaim = choose_reclaim(recording, asked=options.reclaim or literal)
    validation = pm.validate(
        recording,
        rules=options.rules,
        assumptions=pm.Assumptions(reclaim=reclaim.mode),
        resync=options.resync,
    )
    under_pressure = choose_reclaim(recording).mode == "elastic"
    usual = SEEDS_UNDER_PRESSURE if under_pressure and not options.brief else 1
    validation = validation.over_seeds(options.seeds or usual)
    budget = validation.budget(windows) if with_budget else None
    kernel = None if build is None else pm.validate(recording, rules=options.rules, kernel=build)
    return validation, kernel, budget, reclaim


def _budgets(validated: _Validated | None, name: str) -> dict[str, Budget]:
    """Its budget under a name, if it has one."""
    budget = None if validated is None else validated[2]
    return {} if budget is None else {name: budget}


def _as_dict(validated: _Validated) -> dict[str, object]:
    validation, kernel, budget, reclaim = validated
    content = validation.to_dict() | {"reclaim": asdict(reclaim)}
    if kernel is not None:
        content |= {"kernel_source": kernel.to_dict()}
    if budget is not None:
        content |= {"budget": budget.to_dict()}
    return content


def _print(validated: _Validated, options: argparse.Namespace) -> None:
    if options.json:
        print(json_text(_as_dict(validated)))
    else:
        validation, kernel, budget, reclaim = validated
        if options.brief:
            print(f"{validation.headline}.")
            return
        print(
            validation.to_text(asides=[str(reclaim), f"Rules: {validation.replay.rules_origin}."]),
            end="\n\n",
        )
        if options.full or kernel is not None:
            print(_in_full(validation, kernel))
        if validation.placement is not None:
            print(_placement_text(validation.placement, options.misses))
        if not options.full:
            print(_next_words(options.path))
        if budget is not None:
            print(f"\nError budget:\n\n{budget.to_text()}")


def _validate_by_window(
    recording: Recording, options: argparse.Namespace, build: KernelBuild | None
) -> dict[str, Budget]:
    """A recording with losses: as a whole if these are few, then each loss-free window."""
    from pagealloc_model.verdict.loss_windows import (
        loss_windows,
        recording_between,
        refuse_if_lossy,
    )

    usable = [each for each in loss_windows(recording) if not each.unusable]
    refused = ""
    try:
        refuse_if_lossy(recording)
    except UsageError as error:
        refused = str(error)
        if not usable:
            raise
    with_budget = options.budget and bool(refused)
    parts = [
        (
            window,
            _validated(
                recording_between(recording, window), options, build, with_budget=with_budget
            ),
        )
        for window in usable
    ]
    whole = None
    if not refused:
        windows = [part[0] for _, part in parts]
        whole = _validated(recording, options, build, windows, with_budget=options.budget)
    budgets = _budgets(whole, BUDGET)
    for number, (_, part) in enumerate(parts, start=1):
        budgets |= _budgets(part, f"{BUDGET}_window_{number}")
    if options.json:
        first = {
            "recording": recording.name,
            "lost": recording.trace.losses.total,
            "refused": refused,
        }
        content = first if whole is None else _as_dict(whole)
        windows = [{"window": str(window)} | _as_dict(part) for window, part in parts]
        print(json_text(content | {"windows": windows}))
        return budgets
    if whole is None:
        print(refused)
    else:
        _print(whole, options)
    for window, part in parts:
        print(f"\nLoss-free window, {window}\n")
        _print(part, options)
    return budgets


def _placement_text(placement: Placement, with_misses: bool) -> str:
    from pagealloc_model.base.text import paragraph
    from pagealloc_model.show.post import choice_table, miss_list

    repairs = [f"{count} {what}" for what, count in placement.repairs.items() if count]
    lines = ["Choices judged alone:", "", choice_table(placement)]
    if with_misses:
        lines += ["First misses of each choice:", "", miss_list(placement)]
    lines += [paragraph(line, label="- ") for line in placement.notes]
    lines += [paragraph(f"put right: {line}", label="- ") for line in repairs]
    return "\n".join([*lines, ""])


def _next_words(path: str) -> str:
    """What to do with a verdict."""
    from pagealloc_model.base.text import paragraph

    name = shlex.quote(str(path))
    return paragraph(
        f"Next: pagealloc validate {name} --full prints every number, what was imposed and what is "
        f"not modelled; --budget says whose each error is. pagealloc compare {name} --patch "
        "FIELD=VALUE predicts a change and says which rows to believe."
    )


def _in_full(validation: Validation, kernel: Validation | None) -> str:
    """Every row and note."""
    from pagealloc_model.base.result_tables import error_table
    from pagealloc_model.base.text import paragraph
    from pagealloc_model.show.post import snapshot_table

    described = validation.to_dict()
    diverged = ", ".join(f"{name} {count}" for name, count in described["divergences"].items())
    head = {
        "recording": described["recording"],
        "kernel": f"{described['kernel'] or 'unknown'}, rules {described['rules']}",
        "events": f"{described['events']}, {described['lost']} lost",
        "diverged": diverged or "nowhere",
    }
    lines = [paragraph(str(text), label=f"{name + ':':<11}") for name, text in head.items()]
    lines += [paragraph(line, label="start:     ") for line in validation.replay.start_state]
    if kernel is not None:
        lines += [paragraph(kernel.replay.kernel, label="code:      ")]
    lines += ["", error_table(validation.errors, None if kernel is None else kernel.errors)]
    if len(validation.snapshots):
        seconds = "Seconds after the snapshot that describes the start:"
        lines += [seconds, "", snapshot_table(validation.snapshots)]
    by_shim = () if kernel is None else kernel.replay.not_covered
    for title, notes in (
        ("First departures", [each.words() for each in validation.departures]),
        ("Notes", validation.notes),
        ("Not modelled", validation.not_modelled),
        ("Left to the shim", by_shim),
    ):
        if notes:
            lines += [f"{title}:", *[paragraph(line, label="- ") for line in notes], ""]
    return "\n".join(lines)


TABLES = (
    "free_pages",
    "pageblocks",
    "pcp",
    "lock",
    "transactions",
    "fallbacks",
    "outcomes",
    "vmstat",
)


def run_replay(options: argparse.Namespace) -> int:
    """Replay, then print and write what was asked for."""
    policy = Policy.parse(options.settings)
    import pagealloc_model as pm
    from pagealloc_model.predicted.replay import choose_reclaim

    build = kernel_build(options, policy)
    recording = pm.open(options.path)
    # a kernel build takes reclaim from the recording unless it is asked not to
    reclaim = choose_reclaim(recording, policy, asked=options.reclaim or (build and "literal"))
    assumptions = pm.Assumptions(reclaim=reclaim.mode)
    replay = pm.replay(recording, build or policy, rules=options.rules, assumptions=assumptions)
    if options.directory:
        tables = {f"{name}.csv": getattr(replay, name).to_csv(index=False) for name in TABLES}
        about = {"provenance.json": json_text(replay.provenance) + "\n"}
        write_directory(options.directory, tables | about)
    described = describe(recording, replay, reclaim)
    if options.json:
        print(json_text(described | {name: rows_of(getattr(replay, name)) for name in TABLES}))
    else:
        print(_replay_as_text(described, replay, reclaim))
    return 0


def describe(recording: Recording, replay: Replay, reclaim: ReclaimChoice) -> dict[str, Any]:
    """What a prediction was made from."""
    return {
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
        **(
            {"kernel_source": replay.kernel, "not_covered": list(replay.not_covered)}
            if replay.kernel
            else {}
        ),
    }


def _replay_as_text(described: dict[str, Any], replay: Replay, reclaim: ReclaimChoice) -> str:
    from pagealloc_model.base.text import paragraph

    rows = {name: len(getattr(replay, name)) for name in TABLES}
    told = [
        ("recording", f"{described['recording']}, kernel {described['kernel'] or 'unknown'}"),
        ("rules", replay.rules_origin),
        ("policy", str(replay.asked_policy)),
        ("reclaim", str(reclaim).removeprefix("Reclaim is ")),
        ("events", f"{described['events']:,}, {described['lost']:,} lost"),
        *[("start", line) for line in described["start_state"]],
        *[("diverged", f"{name} {count}") for name, count in described["divergences"].items()],
        *([("code", replay.kernel)] if replay.kernel else []),
        *[("by shim", line) for line in replay.not_covered],
    ]
    lines = [paragraph(text, label=f"{label:<11}") for label, text in told]
    tables = [f"table      {name:<13} {count:>8} rows" for name, count in rows.items()]
    return "\n".join([*lines, *tables])


def run_compare(options: argparse.Namespace) -> int:
    """Compare on every recording, then print in the format asked for."""
    base, patch = policy_of("--base", options.base), policy_of("--patch", options.patch)
    import pagealloc_model as pm
    from pagealloc_model.base.text import paragraph
    from pagealloc_model.predicted.replay import choose_reclaim

    compared = []
    for recording in map(pm.open, options.paths):
        reclaim = choose_reclaim(recording, base, patch, asked=options.reclaim)
        if options.format in ("text", "mmtests"):
            print(paragraph(f"{recording.name}: {reclaim}"), end="\n\n")
        compared.append((recording, _compare(recording, base, patch, reclaim, options)))
    print(_RENDERERS[options.format](compared), end="")
    return 0


def _compare(
    recording: Recording,
    base: Policy,
    patch: Policy,
    reclaim: ReclaimChoice,
    options: argparse.Namespace,
) -> Comparison:
    import pagealloc_model as pm

    assumptions, sides = pm.Assumptions(reclaim=reclaim.mode), []
    for side, policy in (("base", base), ("patch", patch)):
        with progress(f"{recording.name}, {side}", len(recording.trace), "events") as report:
            sides.append(
                pm.replay(
                    recording,
                    policy,
                    rules=options.rules,
                    assumptions=assumptions,
                    progress=report,
                )
            )
    return pm.compare(*sides)


Compared = list[tuple["Recording", "Comparison"]]


def _text(compared: Compared, style: Style = "signed") -> str:
    return "\n".join(comparison.to_text(width=72, style=style) for _, comparison in compared)


def _csv(compared: Compared) -> str:
    import pandas as pd

    names = [recording.name for recording, _ in compared]
    table = pd.concat([each.rows for _, each in compared], keys=names, names=["recording"])
    return table.reset_index(level=0).to_csv(index=False)


def _json(compared: Compared) -> str:
    """One object; with several recordings, the rows of all, each naming its recording."""
    whole = compared[0][1].to_dict()
    whole["recordings"] = [recording.name for recording, _ in compared]
    whole["rows"] = [
        {"recording": recording.name, **row}
        for recording, comparison in compared
        for row in comparison.to_dict()["rows"]
    ]
    return json_text(whole) + "\n"


_MMTESTS = partial(_text, style="mmtests")
_RENDERERS = {"text": _text, "mmtests": _MMTESTS, "csv": _csv, "json": _json}


_MORE = """\
Times come from a queue at each lock, by costs that the notes name; low and high are
those of costs that are tenfold apart. NA: not modelled, or no event shows it."""


def run_locks(options: argparse.Namespace) -> int:
    """Compare and print."""
    import pagealloc_model as pm
    from pagealloc_model.predicted.replay import choose_reclaim

    policy = policy_of("--patch", options.patch)
    recording = pm.open(options.path)
    reclaim = choose_reclaim(recording, policy, asked=options.reclaim)
    assumptions = pm.Assumptions(reclaim=reclaim.mode)
    base = pm.replay(recording, rules=options.rules, assumptions=assumptions)
    comparison = pm.locks.compare_locks(recording, base)
    if options.csv:
        print(comparison.table.to_csv(index=False), end="")
        return 0
    model = comparison.times.model
    spread = pm.locks.with_spread(base.log, base.machine, model, comparison.times.visits)
    print(
        json_text(_plain(comparison, spread)) if options.json else _locks_text(comparison, spread)
    )
    if options.patch is not None and not options.json:
        patch = pm.replay(recording, policy, rules=options.rules, assumptions=assumptions)
        print()
        print(
            pm.locks.lock_policy_table(
                comparison.times,
                patch.lock_times(model),
                f"base: as recorded; patch: {policy}; reclaim: {reclaim.mode}",
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


def _locks_text(comparison: LockComparison, spread: pd.DataFrame) -> str:
    from pagealloc_model.base.text import paragraph
    from pagealloc_model.show.post.tables import (
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


PAGES, FALLBACKS, HOLDS = "pages", "fallbacks", "holds"
_INNERMOST = 5
MORE = (
    "pages: who asked for pages. fallbacks: who fell back to another type, and how many pages the\n"
    "block had. holds: whose requests and frees held zone->lock for many pages, with --patch\n"
    "also under another policy. The recording must have call chains: pagealloc record -g."
)


def run_stacks(options: argparse.Namespace) -> int:
    """Print the stacks, and write them."""
    import pagealloc_model as pm
    from pagealloc_model.measured.call_stacks import call_stacks

    if options.patch is not None and options.of != HOLDS:
        raise UsageError("--patch: only holds differ by policy; add --of holds")
    recording = pm.open(options.path)
    stacks = call_stacks(recording)
    sides = _sides(recording, stacks, options)
    if options.file:
        _stacks_write(options.file, sides)
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


def _stacks_write(file: Path, sides: dict[str, pd.DataFrame]) -> None:
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


DIFFERS = 1
LINES_MAX = 20
SEQUENCE_MAX = 40


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


def run_judge(options: argparse.Namespace) -> int:
    """Judge, and print the verdict."""
    from pagealloc_model.allocator.from_source.compiled_tree import CompiledTree
    from pagealloc_model.allocator.from_source.extraction import ALLOCATION, RECLAIM
    from pagealloc_model.allocator.from_source.source_tree import open_tree
    from pagealloc_model.base.progress_bar import progress
    from pagealloc_model.recording.recording import open_recording
    from pagealloc_model.verdict.kernel_judge.judge import judge, judge_pressure, judge_recorded

    tree = open_tree(options.kernel_source, options.patch)
    rules = options.rules or KernelRules.for_release(tree.release)[0]
    what = f"judging rules {rules.spelled()} by {tree.release or tree.path}"
    total = 0 if options.recording else options.operations
    drawn = {"operations": options.operations, "seed": options.seed}
    with progress(what, total, "operations") as report:
        code = CompiledTree(tree, RECLAIM if options.pressure else ALLOCATION)
        if options.recording:
            recording = open_recording(options.recording)
            verdicts = (judge_recorded(code, rules, recording, progress=report),)
        elif options.pressure:
            verdicts = judge_pressure(tree, rules, **drawn, progress=report)
        else:
            verdicts = (judge(code, rules, **drawn, progress=report),)
    if options.json:
        described = [_described(each) for each in verdicts]
        print(json_text(described if options.pressure else described[0]))
    else:
        print("\n\n".join(_judge_as_text(each) for each in verdicts))
    return DIFFERS if any(each.difference for each in verdicts) else 0


def _described(verdict: Verdict) -> dict[str, Any]:
    found = asdict(verdict)
    if verdict.difference is not None:
        found["difference"]["places"] = [str(each) for each in verdict.difference.places]
    return found


def _judge_as_text(verdict: Verdict) -> str:
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


COMMANDS = (
    Command(
        "validate",
        run_validate,
        "compare the prediction under the recorded policy with what was measured",
        "pagealloc validate kbuild",
        (
            RECORDING,
            RULES,
            option(
                "--resync",
                action="store_true",
                help="also judge every choice of the kernel alone, from the state its "
                "earlier events left it in: which zone serves a request; which page a"
                " per-CPU list hands out; when a list is refilled, how far and with "
                "which pages of the buddy; when it is drained, how far and of which "
                "pages; which fallback is taken. A recording without snapshots is "
                "judged so and not replayed",
            ),
            option(
                "--misses",
                action="store_true",
                help="with --resync: print the first ten misses of each choice with the "
                "event, the state and the kernel function (always in --json)",
            ),
            option(
                "--budget",
                action="store_true",
                help="also replay with the recording's own truth imposed, one at a time "
                "and all together (zone choice, drains, boosts, start): what remains "
                "of each error, whose it is, and what to record next time. Imposed "
                "runs are marked and are no predictions",
            ),
            option(
                "-o",
                dest="directory",
                metavar="DIR",
                type=Path,
                help="with --budget: write the budget's figure as PNG, SVG and PDF, and "
                "its errors as CSV, into this directory, which must not exist or be "
                "empty",
            ),
            RECLAIM,
            option(
                "--seeds",
                metavar="N",
                type=at_least_one,
                help="show the reserve, watermark boosts and fallbacks as ranges over so many "
                "seeds, replayed side by side (5 where the recorded kernel reclaimed, else 1)",
            ),
            option(
                "--full",
                action="store_true",
                help="also print every number, snapshot, departure and note",
            ),
            option(
                "--brief",
                action="store_true",
                help="print one line: what is predicted, what is not, and how many quantities are "
                "near what was measured",
            ),
            *kernel_source_options(
                "its own code is replayed too, and stands in the table next to the model",
                needed=False,
            ),
            JSON,
        ),
    ),
    Command(
        "replay",
        run_replay,
        "predict what the allocator would do with a recorded demand",
        "pagealloc replay kbuild --set pcp_batch=127 -o predicted",
        (
            RECORDING,
            option(
                "--set",
                dest="settings",
                metavar="FIELD=VALUE",
                action="append",
                default=[],
                help="policy field to change; may be repeated",
            ),
            RULES,
            RECLAIM,
            *kernel_source_options(
                "its own code, patched or not, takes the model's place", needed=False
            ),
            option(
                "-o",
                dest="directory",
                metavar="DIR",
                type=Path,
                help="write every table as CSV into this directory, which must not exist "
                "or be empty",
            ),
            JSON,
        ),
        more=policy_fields_help(),
    ),
    Command(
        "compare",
        run_compare,
        "replay recordings under two policies and print the differences",
        "pagealloc compare highatomic_stock --patch highatomic_gate_order=3",
        (
            RECORDINGS,
            policy_option("--base", "policy of the base side (as recorded)"),
            policy_option("--patch", "policy of the patch side (required)", required=True),
            RULES,
            RECLAIM,
            option(
                "--format",
                choices=tuple(_RENDERERS),
                default="text",
                help="text: raw signed change; mmtests: gains, positive is better (default: text)",
            ),
            option(
                "--json",
                dest="format",
                action="store_const",
                const="json",
                help="same as --format json",
            ),
        ),
        more=policy_fields_help(),
    ),
    Command(
        "locks",
        run_locks,
        "compare traffic at zone->lock with what was measured, and time it",
        "pagealloc locks xfree --patch pcp_free_batched=true",
        (
            RECORDING,
            RULES,
            RECLAIM,
            policy_option("--patch", "also replay under this policy, and print both side by side"),
            option(
                "--csv",
                action="store_true",
                help="print counts by time bin, CPU and site as CSV instead",
            ),
            JSON,
        ),
        more=_MORE,
    ),
    Command(
        "stacks",
        run_stacks,
        "say who asked for pages, fell back and held zone->lock, by call stack",
        "pagealloc stacks recording --of holds --patch pcp_batch=31 -o holds.json",
        (
            RECORDING,
            option(
                "--of",
                choices=(PAGES, FALLBACKS, HOLDS),
                default=PAGES,
                help="of what (default: pages)",
            ),
            policy_option("--patch", "with --of holds: a policy"),
            option("--least", metavar="N", type=int, default=0, help="holds of N pages on"),
            option("--top", metavar="N", type=at_least_one, default=20, help="stacks to print"),
            option(
                "-o",
                dest="file",
                metavar="FILE",
                type=Path,
                help="write a flame graph: .json for speedscope.app, else folded lines, "
                "one side a file",
            ),
            JSON,
        ),
        more=MORE,
    ),
    Command(
        "judge",
        run_judge,
        "compare the model with the allocator's own functions from a kernel's source",
        "pagealloc judge --kernel-source /usr/src/linux-source-6.12.tar.xz",
        (
            *kernel_source_options("its functions are the judge", needed=True),
            option(
                "--rules",
                type=_rules,
                metavar="SERIES[,RULE=BOOL...]",
                help=f"rules of the model ({', '.join(preset_names())}) instead of those of the "
                "tree's version, single rules changed",
            ),
            option(
                "--operations",
                metavar="N",
                type=_count,
                default=100_000,
                help="random operations to take (default %(default)s)",
            ),
            option("--seed", type=int, default=0, help="of machines and operations"),
            option(
                "--recording",
                metavar="PATH",
                help="take a recording's demand instead: its directory, or a shipped "
                "recording's name",
            ),
            option(
                "--pressure",
                action="store_true",
                help="judge compaction and reclaim instead of allocation; of a recording, reclaim",
            ),
            JSON,
        ),
        more="The functions are taken from the tree when the command runs, compiled with the\n"
        "system's compiler into a temporary directory, and driven with the same operations as\n"
        "the model. Exit code 1 if the two differ: the first difference is printed, with the\n"
        "functions of the tree that made it and a sequence of operations as short as it gets.",
    ),
)
"""The commands of this file."""
