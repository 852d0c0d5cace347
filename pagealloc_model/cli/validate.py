"""`pagealloc validate`: how far the model is from what the recorded machine did."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from pagealloc_model.base.errors import UsageError
from pagealloc_model.cli.arguments import (
    Commands,
    add_command,
    add_json,
    add_kernel_source,
    add_recording,
    add_rules,
    kernel_build,
)
from pagealloc_model.cli.output import json_text, new_directory

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pagealloc_model.allocator.from_source.build import KernelBuild
    from pagealloc_model.recording.recording import Recording
    from pagealloc_model.verdict.budget.budget import Budget
    from pagealloc_model.verdict.choices.placement import Placement
    from pagealloc_model.verdict.validation import Validation


BUDGET = "error_budget"
"""What the files of the whole recording's budget are named after."""


def add_parser(commands: Commands) -> None:
    """Add the command."""
    parser = add_command(
        commands,
        "validate",
        summary="compare the prediction under the recorded policy with what was measured",
        example="pagealloc validate kbuild",
    )
    add_recording(parser)
    add_rules(parser)
    parser.add_argument(
        "--resync",
        action="store_true",
        help="also judge every choice of the kernel alone, from the state its earlier events left "
        "it in: which zone serves a request; which page a per-CPU list hands out; when a list is "
        "refilled, how far and with which pages of the buddy; when it is drained, how far and of "
        "which pages; which fallback "
        "is taken. A recording without snapshots is judged so and not replayed",
    )
    parser.add_argument(
        "--misses",
        action="store_true",
        help="with --resync: print the first ten misses of each choice with the event, the state "
        "and the kernel function (always in --json)",
    )
    parser.add_argument(
        "--budget",
        action="store_true",
        help="also replay with the recording's own truth imposed, one at a time and all together "
        "(zone choice, drains, boosts, start): what remains of each error, whose it is, and what "
        "to record next time. Imposed runs are marked and are no predictions",
    )
    parser.add_argument(
        "-o",
        dest="directory",
        metavar="DIR",
        type=Path,
        help="with --budget: write the budget's figure as PNG, SVG and PDF, and its errors as CSV, "
        "into this directory, which must not exist or be empty",
    )
    parser.add_argument(
        "--brief",
        action="store_true",
        help="print one line: how many predictions are near what was measured, and how many are "
        "nearer than a null model's",
    )
    add_kernel_source(
        parser,
        "its own code is replayed too, and stands in the table next to the model",
        needed=False,
    )
    add_json(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Validate and print the error table; write the budget's figure if asked to."""
    if options.brief:
        print(_in_brief(options))
        return 0
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


def _in_brief(options: argparse.Namespace) -> str:
    """One line on the whole recording."""
    import pagealloc_model as pm
    from pagealloc_model.show.figures.how_right import in_band_words, predicted_over_measured
    from pagealloc_model.verdict.nearer import verdict_words

    if options.resync or options.budget or options.json or options.kernel_source:
        raise UsageError("--brief is one line: leave --resync, --budget, --json and the source out")
    validation = pm.validate(pm.open(options.path), rules=options.rules)
    points = predicted_over_measured(validation.errors, validation.snapshots)
    name = validation.recording.name
    return f"{name}: {in_band_words(points)}; {verdict_words(validation.errors)}"


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


_Validated = tuple["Validation", "Validation | None", "Budget | None"]


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

    validation = pm.validate(recording, rules=options.rules, resync=options.resync)
    budget = validation.budget(windows) if with_budget else None
    kernel = None if build is None else pm.validate(recording, rules=options.rules, kernel=build)
    return validation, kernel, budget


def _budgets(validated: _Validated | None, name: str) -> dict[str, Budget]:
    """Its budget under a name, if it has one."""
    budget = None if validated is None else validated[2]
    return {} if budget is None else {name: budget}


def _as_dict(validated: _Validated) -> dict[str, object]:
    validation, kernel, budget = validated
    content = validation.to_dict()
    if kernel is not None:
        content |= {"kernel_source": kernel.to_dict()}
    if budget is not None:
        content |= {"budget": budget.to_dict()}
    return content


def _print(validated: _Validated, options: argparse.Namespace) -> None:
    if options.json:
        print(json_text(_as_dict(validated)))
    else:
        validation, kernel, budget = validated
        print(_as_text(validation, kernel, options.misses))
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
    from pagealloc_model.base.text.layout import paragraph
    from pagealloc_model.show.post import choice_table, miss_list

    repairs = [f"{count} {what}" for what, count in placement.repairs.items() if count]
    lines = ["Choices judged alone:", "", choice_table(placement)]
    if with_misses:
        lines += ["First misses of each choice:", "", miss_list(placement)]
    lines += [paragraph(line, label="- ") for line in placement.notes]
    lines += [paragraph(f"put right: {line}", label="- ") for line in repairs]
    return "\n".join([*lines, ""])


def _as_text(validation: Validation, kernel: Validation | None, with_misses: bool) -> str:
    from pagealloc_model.base.text.error_table import error_table
    from pagealloc_model.base.text.layout import paragraph
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
    if validation.placement is not None:
        lines += [_placement_text(validation.placement, with_misses)]
    by_shim = () if kernel is None else kernel.replay.not_covered
    for title, notes in (
        ("First departures", [each.words() for each in validation.departures]),
        ("Notes", validation.notes),
        ("Not modelled", validation.not_modelled),
        ("Left to the shim", by_shim),
    ):
        if notes:
            lines += [f"{title}:", *[paragraph(line, label="- ") for line in notes], ""]
    return "\n".join(lines).rstrip()
