"""Commands that judge the model: by a recording, and by the kernel's own code."""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pagealloc_model.base.errors import UsageError
from pagealloc_model.base.files import new_directory
from pagealloc_model.base.progress_bar import progress
from pagealloc_model.base.text import as_path, count_of, paragraph
from pagealloc_model.cli.arguments import (
    Commands,
    add_command,
    add_json,
    add_reclaim,
    add_recording,
    add_rules,
    add_tree_patch,
    count,
    counts_text,
    json_text,
    kernel_build,
    kernel_rules,
    opened,
    whole_number,
)
from pagealloc_model.policy.kernel_rules import KernelRules, preset_names
from pagealloc_model.policy.policy import AUTO, Assumptions, Policy

if TYPE_CHECKING:
    from pagealloc_model.diagnosis.budget import Budget
    from pagealloc_model.diagnosis.departure_causes import DepartureCauses
    from pagealloc_model.diagnosis.first_departure import Departure
    from pagealloc_model.diagnosis.page_for_page import PageForPage
    from pagealloc_model.diagnosis.placement import Placement
    from pagealloc_model.kernel_source.build import KernelBuild
    from pagealloc_model.kernel_source.judge import Verdict
    from pagealloc_model.numbers.validation import Validation
    from pagealloc_model.recording.recording import Recording

BUDGET = "error_budget"
"""Name of the files of the whole recording's budget."""


def add_validate(commands: Commands) -> None:
    """Add `pagealloc validate`."""
    parser = add_command(
        commands,
        "validate",
        run_validate,
        "compare the prediction under the recorded policy with what was measured",
        example="pagealloc validate kbuild",
    )
    add_recording(parser)
    add_rules(parser)
    parser.add_argument(
        "--resync",
        action="store_true",
        help="also judge every decision by itself, from the state that the kernel's "
        "earlier events left: which zone serves a request; which page a per-CPU list "
        "hands out; when a list is refilled, how far and with which pages of the buddy; "
        "when it is drained, how far and of which pages; which fallback is taken. A "
        "recording without snapshots is judged in this way only",
    )
    parser.add_argument(
        "--misses",
        action="store_true",
        help="with --resync: print the first ten misses of each choice with the event, "
        "the state and the kernel function (always in --json)",
    )
    parser.add_argument(
        "--budget",
        action="store_true",
        help="also replay with parts of the measured truth imposed (zone choice, "
        "drains, boosts, start), one at a time and all together: which errors are the "
        "model's, which come from what the recording lacks, and what to record next "
        "time. Imposed runs are marked and are not predictions",
    )
    parser.add_argument(
        "-o",
        dest="directory",
        type=Path,
        metavar="DIR",
        help="with --budget: write the budget's figure as PNG, SVG and PDF, and its "
        "errors as CSV, into this directory, which must not exist or be empty",
    )
    add_reclaim(parser)
    parser.add_argument(
        "--seeds",
        type=count,
        metavar="N",
        help="show predictions and errors as means over N seeds, with the range of each "
        "(default: 5 if the recorded kernel reclaimed, else 1)",
    )
    parser.add_argument(
        "--full",
        action="store_true",
        help="also print every number, every snapshot, where prediction and recording "
        "first differ, and notes",
    )
    parser.add_argument(
        "--brief",
        action="store_true",
        help="print one line: what is predicted well, what is furthest off, and how "
        "many quantities are within 25 %% of what was measured",
    )
    parser.add_argument(
        "--kernel-source",
        type=Path,
        metavar="DIR",
        help="kernel checkout, unpacked source package, or its tarball in /usr/src: its "
        "own code is replayed too, and stands in the table next to the model",
    )
    add_tree_patch(parser)
    add_json(parser)


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
    placement: Placement | None
    budget: Budget | None
    pages: tuple[PageForPage, DepartureCauses] | None

    def to_dict(self) -> dict[str, object]:
        content = _content(self.validation)
        content |= {} if self.placement is None else self.placement.to_dict()
        content["reclaim"] = asdict(self.validation.replay.reclaim)
        if self.pages is not None:
            found, causes = self.pages
            content["page_for_page"] = {**found.to_dict(), "causes": causes.counts()}
        content |= {} if self.kernel is None else {"kernel_source": _content(self.kernel)}
        return content | ({} if self.budget is None else {"budget": self.budget.to_dict()})

    def print(self, options: argparse.Namespace) -> None:
        validation = self.validation
        if options.brief:
            print(f"{validation.headline}.")
            return
        origin = validation.replay.rules_origin.removeprefix("rules ")
        print(validation.to_text(asides=[f"Rules: {origin}."]), end="\n\n")
        if options.full or self.kernel is not None:
            print(_in_full(validation, self.kernel))
        if self.placement is not None:
            print(_placement_text(self.placement, options.misses))
        if self.pages is not None:
            print(_pages_text(*self.pages))
        if not options.full:
            name = shlex.quote(as_path(options.path))
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


def _departures(validation: Validation) -> tuple[Departure, ...]:
    """Where a prediction first differs from its recording."""
    from pagealloc_model.diagnosis.first_departure import first_departures

    measured = validation.measured.transactions_full
    return first_departures(validation.recording.trace, validation.replay, measured)


def _content(validation: Validation) -> dict[str, object]:
    """A validation's content with its first departures, notes last."""
    content = validation.to_dict()
    last = {name: content.pop(name) for name in ("notes", "not_modelled")}
    return content | {"departures": list(map(asdict, _departures(validation)))} | last


def _validated(
    recording: Recording,
    options: argparse.Namespace,
    build: KernelBuild | None,
    windows: Sequence[Validation] = (),
    *,
    with_budget: bool,
) -> _Validated:
    import pagealloc_model as pm
    from pagealloc_model.numbers.validation import usual_seeds

    # a budget imposes what the kernel did, and so does a kernel build's own code
    is_literal = options.reclaim == AUTO and (with_budget or build is not None)
    assumptions = Assumptions(reclaim="literal" if is_literal else options.reclaim)
    validation = pm.validate(recording, rules=options.rules, assumptions=assumptions)
    placement = None
    if options.resync:
        placement = recording.judge_choices(rules=options.rules, assumptions=assumptions)
        validation = placement.added_to(validation)
    validation = validation.over_seeds(options.seeds or usual_seeds(recording))
    budget = validation.budget(windows) if with_budget else None
    pages = None
    if recording.start_state is not None and not options.brief:
        from pagealloc_model.diagnosis.departure_causes import departure_causes
        from pagealloc_model.diagnosis.page_for_page import page_for_page

        found = page_for_page(recording)
        pages = (found, departure_causes(recording, found))
    kernel = None
    if build is not None:
        by_kernel = pm.replay(recording, build, rules=options.rules)
        kernel = pm.validate(recording, predicted=by_kernel)
    return _Validated(validation, kernel, placement, budget, pages)


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
    if options.resync and not recording.has_zoneinfo:
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
    from pagealloc_model.diagnosis.placement import choice_table, miss_list

    repairs = [f"{count} {what}" for what, count in placement.repairs.items() if count]
    lines = ["Choices judged alone:", "", choice_table(placement)]
    if with_misses:
        lines += ["First misses of each choice:", "", miss_list(placement)]
    lines += [paragraph(line, label="- ") for line in placement.notes]
    lines += [paragraph(f"put right: {line}", label="- ") for line in repairs]
    return "\n".join([*lines, ""])


def _pages_text(found: PageForPage, causes: DepartureCauses) -> str:
    """A replay from the state file, literal, beside the kernel, and why it departs."""
    lines = [found.table().to_text()]
    if causes.departures:
        lines += ["", causes.table().to_text(), ""]
        lines += [paragraph(f"The first: {causes.departures[0].words()}.")]
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
        "diverged": counts_text(described["divergences"]) or "nowhere",
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
        ("First departures", [departure.words() for departure in _departures(validation)]),
        ("Notes", validation.notes),
        ("Not modelled", validation.not_modelled),
        ("Left to the shim", () if kernel is None else kernel.replay.not_covered),
    ):
        if notes:
            lines += [f"{title}:", *[paragraph(line, label="- ") for line in notes], ""]
    return "\n".join(lines)


DIFFERS = 1
LINES_MAX, SEQUENCE_MAX = 20, 40


def add_judge(commands: Commands) -> None:
    """Add `pagealloc judge`."""
    parser = add_command(
        commands,
        "judge",
        run_judge,
        "compare the model with the allocator's functions, compiled from a kernel's source",
        example="pagealloc judge --kernel-source /usr/src/linux-source-6.12.tar.xz",
        more="""
        The functions are taken from the tree when the command runs, compiled with the
        system's compiler into a temporary directory, and driven with the same operations as
        the model. Exit code 1 if the two differ: the first difference is printed, with the
        functions of the tree that made it and a sequence of operations as short as it gets.
        """,
    )
    parser.add_argument(
        "--kernel-source",
        type=Path,
        metavar="DIR",
        required=True,
        help="kernel checkout, unpacked source package, or its tarball in /usr/src: its "
        "functions are the judge",
    )
    add_tree_patch(parser)
    parser.add_argument(
        "--rules",
        type=kernel_rules,
        metavar="SERIES[,RULE=BOOL...]",
        help=f"rules of the model ({', '.join(preset_names())}) instead of those of the tree's "
        "version, single rules changed",
    )
    parser.add_argument(
        "--operations",
        type=whole_number("is not a number of operations"),
        metavar="N",
        default=100000,
        help="random operations to take (default %(default)s)",
    )
    parser.add_argument(
        "--seed", type=int, metavar="N", default=0, help="of machines and operations"
    )
    parser.add_argument(
        "--pageblock-order",
        type=int,
        metavar="N",
        default=0,
        help="compile the tree's functions with pageblocks of this order, on every machine",
    )
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


def run_judge(options: argparse.Namespace) -> int:
    """Judge, and print the verdict."""
    from pagealloc_model.kernel_source.compiled_tree import CompiledTree
    from pagealloc_model.kernel_source.extraction import ALLOCATION, RECLAIM
    from pagealloc_model.kernel_source.judge import judge, judge_pressure, judge_recorded
    from pagealloc_model.kernel_source.source_tree import open_tree

    tree = open_tree(options.kernel_source, options.tree_patch)
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
