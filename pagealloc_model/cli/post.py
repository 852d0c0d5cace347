"""`pagealloc post`: a comparison, or a reply to a thread, as a message for a mailing list."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from pagealloc_model.base.errors import UsageError
from pagealloc_model.cli.arguments import (
    Commands,
    add_command,
    add_policy,
    add_rules,
    policy_fields_help,
    policy_of,
)
from pagealloc_model.cli.output import new_directory
from pagealloc_model.policy.policy import Policy

if TYPE_CHECKING:
    import pandas as pd
    from plotly.graph_objects import Figure

    from pagealloc_model.recording.recording import Recording
    from pagealloc_model.show.post.message import Message
    from pagealloc_model.verdict.comparison import Comparison
    from pagealloc_model.verdict.validation import Validation


REPLIES = ("highatomic",)
"""Threads that a reply ships for."""


def add_parser(commands: Commands) -> None:
    """Add the command."""
    parser = add_command(
        commands,
        "post",
        summary="write a comparison of two policies as a message for a mailing list",
        example="pagealloc post kbuild --patch pcp_batch=127",
        more=policy_fields_help(),
    )
    parser.add_argument(
        "paths",
        metavar="PATH",
        nargs="*",
        help="recordings: a directory, perf.data, perf script text, or a shipped name",
    )
    for side, otherwise in (("base", "as recorded"), ("patch", "needed with PATH")):
        add_policy(parser, f"--{side}", f"policy of the {side} side ({otherwise})")
    parser.add_argument(
        "--reply",
        choices=REPLIES,
        help="in place of a comparison, the reply to a posted patch from what ships with the "
        "package: mechanism, guests, model, conditions, questions; takes no PATH",
    )
    parser.add_argument(
        "--seeds",
        metavar="N",
        type=int,
        default=1,
        help="replay every recording with N seeds, each a run of its own (default: 1)",
    )
    parser.add_argument(
        "--style",
        choices=("signed", "mmtests"),
        default="signed",
        help="signed: raw change; mmtests: gains, positive is better (default: signed)",
    )
    parser.add_argument(
        "--format", choices=("text", "md"), default="text", help="of what is printed"
    )
    parser.add_argument("--utf8", action="store_true", help="charts of block characters, not ASCII")
    parser.add_argument(
        "--no-validation", action="store_true", help="leave out how far the model can be believed"
    )
    add_rules(parser)
    parser.add_argument(
        "-o",
        dest="directory",
        metavar="DIR",
        type=Path,
        help="write post.txt, post.md, table.csv and figures as PNG, SVG and PDF into this "
        "directory, which must not exist or be empty",
    )
    parser.add_argument(
        "--figure",
        metavar="FILE",
        type=Path,
        help="in place of the message draw one figure, two columns wide and readable in grey, as "
        "FILE (.png, .svg or .pdf), and write its caption to FILE.txt; of several recordings the "
        "first is drawn",
    )
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Replay, compare and print the message, or write it with its figures."""
    if options.reply:
        return _reply(options)
    if not options.paths or options.patch is None:
        raise UsageError("post needs PATH and --patch FIELD=VALUE,..., or --reply NAME alone")
    if options.seeds < 1:
        raise UsageError(f"--seeds {options.seeds}: give at least one")
    if options.figure and (options.no_validation or options.directory):
        raise UsageError("--figure needs the validation, and stands without -o")
    base, patch = policy_of("--base", options.base), policy_of("--patch", options.patch)
    import pagealloc_model as pm
    from pagealloc_model.show.post import comparison_message

    recordings = [pm.open(path) for path in options.paths]
    comparisons = list(_comparisons(recordings, base, patch, options))
    validations = []
    if options.no_validation:
        comparisons = [_without_validation(each) for each in comparisons]
    else:
        validations = list(_validations(recordings, comparisons, options))
    if options.figure:
        _write_figure(options, comparisons[0], validations[0])
        return 0
    message = comparison_message(
        comparisons, recordings, validations=validations, style=options.style, utf8=options.utf8
    )
    if options.directory:
        _write(options.directory, message, comparisons)
    else:
        _print(message, options)
    return 0


def _reply(options: argparse.Namespace) -> int:
    """Print the reply, or write it as a mail and as Markdown."""
    if options.paths or options.base or options.patch or options.figure:
        raise UsageError(
            f"--reply {options.reply} compares nothing: leave out PATH, --base, --patch, --figure"
        )
    from pagealloc_model.notebooks.studies.shipped_idle_reserve import reply

    message = reply()
    if not options.directory:
        _print(message, options)
        return 0
    with new_directory(options.directory) as partial:
        _write_texts(partial, message)
    print(*sorted(options.directory.iterdir()), sep="\n")
    return 0


def _print(message: Message, options: argparse.Namespace) -> None:
    print(message.to_markdown() if options.format == "md" else message.to_text(), end="")


def _write_texts(directory: Path, message: Message) -> None:
    (directory / "post.txt").write_text(message.to_text(), encoding="utf-8")
    (directory / "post.md").write_text(message.to_markdown(), encoding="utf-8")


def _validations(
    recordings: list[Recording], comparisons: list[Comparison], options: argparse.Namespace
) -> Iterator[Validation]:
    """Validate each recording once; its comparisons take the errors from there."""
    import pagealloc_model as pm
    from pagealloc_model.verdict.model_errors import keep_errors

    for recording in recordings:
        validation = pm.validate(recording, rules=options.rules)
        mine = (each for each in comparisons if each.base.recording is recording)
        for each in mine:
            keep_errors(validation, each.base.rules)
        yield validation


def _without_validation(comparison: Comparison) -> Comparison:
    """The comparison as one that nothing was held to."""
    from pagealloc_model.verdict.model_errors import ModelErrors

    unknown = ModelErrors(refused="the model was not held to the recording (--no-validation)")
    return replace(comparison, known_errors=unknown)


def _comparisons(
    recordings: list[Recording], base: Policy, patch: Policy, options: argparse.Namespace
) -> Iterator[Comparison]:
    import pagealloc_model as pm

    for recording in recordings:
        for seed in range(options.seeds):
            sides = [
                pm.replay(recording, policy, rules=options.rules, seed=seed)
                for policy in (base, patch)
            ]
            yield pm.compare(*sides)


def _write_figure(
    options: argparse.Namespace, comparison: Comparison, validation: Validation
) -> None:
    """Draw the figure, and write its caption beside it."""
    from pagealloc_model.show import figures
    from pagealloc_model.show.figures.files import write_figure
    from pagealloc_model.show.post.figure_caption import figure_caption, figure_title

    base, patch = (",".join(each or ()) for each in (options.base, options.patch))
    caption = figure_caption(comparison, validation, options.paths[0], base, patch)
    figure = figures.talk_figure(
        comparison.judged,
        validation.errors,
        validation.snapshots,
        figure_title(comparison),
        caption,
    )
    write_figure(figure, options.figure)
    words = options.figure.with_name(f"{options.figure.name}.txt")
    words.write_text(f"{caption}\n", encoding="utf-8")
    print(options.figure, words, sep="\n")


def _write(directory: Path, message: Message, comparisons: list[Comparison]) -> None:
    import pandas as pd

    from pagealloc_model.show.figures.files import write_figures

    with new_directory(directory) as partial:
        _write_texts(partial, message)
        tables = [
            comparison.judged.assign(recording=comparison.base.name, seed=comparison.base.seed)
            for comparison in comparisons
        ]
        pd.concat(tables).to_csv(partial / "table.csv", index=False)
        try:
            write_figures(_figures(comparisons[0]), partial)
        except UsageError as error:
            print(f"pagealloc: {error}; text and table were written", file=sys.stderr)
    for file in sorted(directory.iterdir()):
        print(file)


def _figures(comparison: Comparison) -> dict[str, Figure]:
    from pagealloc_model.show import figures

    def sides(table: str) -> dict[str, pd.DataFrame]:
        return {name: getattr(getattr(comparison, name), table) for name in ("base", "patch")}

    return {
        "transaction_sizes": figures.transaction_sizes(None, sides("transactions")),
        "transaction_rates": figures.transaction_rates(None, sides("lock")),
        "pcp_counts": figures.pcp_counts(None, sides("pcp")),
        "free_pages": figures.free_pages_by_migratetype(None, sides("free_pages")),
    }
