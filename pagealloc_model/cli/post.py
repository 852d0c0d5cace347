"""The command that writes messages for mailing lists."""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from pagealloc_model.base.errors import UsageError
from pagealloc_model.base.files import new_directory
from pagealloc_model.cli.arguments import (
    Commands,
    add_command,
    add_policy,
    add_reclaim,
    add_rules,
    assumed,
    opened,
    policy_of,
)

if TYPE_CHECKING:
    import plotly.graph_objects as go

    from pagealloc_model.numbers.comparison import Comparison
    from pagealloc_model.show.post.message import Message


def add_post(commands: Commands) -> None:
    """Add `pagealloc post`."""
    parser = add_command(
        commands,
        "post",
        run_post,
        "write a comparison of two policies as a message for a mailing list",
        example="pagealloc post kbuild --patch pcp_batch=127",
        policy_fields=True,
    )
    parser.add_argument(
        "paths",
        nargs="*",
        metavar="PATH",
        help="recordings: a directory, perf.data, perf script text, or a shipped name",
    )
    add_policy(parser, "--base", "policy of the base side (as recorded)")
    add_policy(parser, "--patch", "policy of the patch side (needed with PATH)")
    parser.add_argument(
        "--reply",
        choices=("highatomic", "defrag_mode"),
        help="in place of a comparison, the reply to a posted patch from what ships "
        "with the package; takes no PATH",
    )
    parser.add_argument(
        "--seeds",
        type=int,
        metavar="N",
        help="replay every recording with N seeds, each a run of its own (default: 5 where the "
        "recorded kernel reclaimed or the model's does, else 1)",
    )
    parser.add_argument(
        "--style",
        choices=("signed", "mmtests"),
        default="signed",
        help="table of --full: signed: the change; mmtests: gains, positive is better "
        "(default: signed)",
    )
    parser.add_argument(
        "--full",
        action="store_true",
        help="print every row, chart, error and assumption (default: at most 60 lines); "
        "with --reply highatomic, also the patch",
    )
    parser.add_argument(
        "--format", choices=("text", "md"), default="text", help="of what is printed"
    )
    parser.add_argument("--utf8", action="store_true", help="charts of block characters, not ASCII")
    parser.add_argument(
        "--no-validation", action="store_true", help="leave out the model's error on the recording"
    )
    add_rules(parser)
    add_reclaim(parser)
    parser.add_argument(
        "-o",
        dest="directory",
        type=Path,
        metavar="DIR",
        help="write post.txt, post.md, table.csv and figures as PNG, SVG and PDF into "
        "this directory, which must not exist or be empty",
    )
    parser.add_argument(
        "--mbox",
        type=Path,
        metavar="DIR",
        help="write the reply, and a patch as a thread of its own, into this directory, a mail a "
        "file with its headers, as git send-email --no-thread takes them; the patch lacks a "
        "Signed-off-by",
    )
    parser.add_argument(
        "--in-reply-to",
        metavar="MESSAGE-ID",
        help="of the mail that --mbox answers, as the list's archive shows it",
    )
    parser.add_argument(
        "--figure",
        type=Path,
        metavar="FILE",
        help="in place of the message, or of the reply, draw one figure, readable in grey, as "
        "FILE (.png, .svg or .pdf), and write its caption to FILE.txt; of several "
        "recordings the first is drawn",
    )


def run_post(options: argparse.Namespace) -> int:
    """Replay, compare and print the message, or write it with its figures."""
    if options.reply:
        if options.paths or options.base or options.patch:
            raise UsageError(
                f"--reply {options.reply} compares nothing: leave out PATH, --base, --patch"
            )
        return _reply(options)
    if options.mbox:
        raise UsageError("--mbox writes a reply: add --reply NAME")
    if not options.paths or options.patch is None:
        raise UsageError("post needs PATH and --patch FIELD=VALUE,..., or --reply NAME alone")
    if options.seeds is not None and options.seeds < 1:
        raise UsageError(f"--seeds {options.seeds}: give at least one")
    if options.figure and (options.no_validation or options.directory):
        raise UsageError("--figure needs the validation, and stands without -o")
    if options.style != "signed" and not options.full:
        raise UsageError(f"--style {options.style} is of the full message: add --full")
    policies = [policy_of(f"--{side}", getattr(options, side)) for side in ("base", "patch")]
    import pagealloc_model as pm
    from pagealloc_model.numbers.comparison import ModelErrors, errors_of
    from pagealloc_model.numbers.validation import usual_seeds
    from pagealloc_model.show.post import comparison_message
    from pagealloc_model.show.post.comparison_message import nothing_to_post

    recordings = [opened(path) for path in options.paths]
    choices = {
        recording: assumed(recording, *policies, asked=options.reclaim) for recording in recordings
    }
    comparisons, validations = [], []
    for recording, (_, assumptions) in choices.items():
        shared = {"rules": options.rules, "assumptions": assumptions}
        compared = pm.compare(*(pm.replay(recording, policy, **shared) for policy in policies))
        seeds = options.seeds or usual_seeds(recording, assumptions)
        if options.no_validation:
            errors = ModelErrors(
                refused="the model was not held to the recording (--no-validation)"
            )
            comparisons.append(compared.with_errors(errors).over_seeds(seeds))
            continue
        own = compared.base if compared.base_is_recorded else None
        validation = pm.validate(recording, **shared, predicted=own)
        comparisons.append(compared.with_errors(errors_of(validation)).over_seeds(seeds))
        validations.append(validation.with_seeds(comparisons[-1].held))
    if not options.full and (reason := nothing_to_post(comparisons, validations)):
        print(f"pagealloc: no message: {reason}; --full prints every row", file=sys.stderr)
        return 1
    if options.figure:
        from pagealloc_model.show.figures import talk_figure
        from pagealloc_model.show.post.comparison_message import figure_caption, figure_title

        comparison, validation = comparisons[0], validations[0]
        base, patch = (",".join(settings or ()) for settings in (options.base, options.patch))
        caption = figure_caption(comparison, validation, options.paths[0], base, patch)
        title = figure_title(comparison)
        figure = talk_figure(comparison.rows, validation.scores, title, caption)
        return _write_figure(figure, caption, options.figure)
    message = comparison_message(
        comparisons,
        recordings,
        validations=validations,
        style=options.style,
        utf8=options.utf8,
        reclaim=dict.fromkeys(
            str(reclaim) if options.full else reclaim.brief for reclaim, _ in choices.values()
        ),
        full=options.full,
    )
    return _post(options, message, comparisons)


def _write_figure(figure: go.Figure, caption: str, file: Path) -> int:
    """Write a figure, and its caption beside it."""
    from pagealloc_model.show.figures.files import write_figure

    write_figure(figure, file)
    words = file.with_name(f"{file.name}.txt")
    words.write_text(f"{caption}\n", encoding="utf-8")
    print(file, words, sep="\n")
    return 0


def _reply(options: argparse.Namespace) -> int:
    """Print a reply, and with --full its patch, or write its figure, or each as a mail."""
    if options.figure:
        from pagealloc_model.notebooks.studies.others.reply_figures import reply_figure

        return _write_figure(*reply_figure(options.reply), options.figure)
    from pagealloc_model.show.post.message import addressed

    patch, own_thread = "", []
    if options.reply == "defrag_mode":
        from pagealloc_model.notebooks.studies.defrag_mode.defrag_reply import defrag_reply

        message = defrag_reply()
    else:
        from pagealloc_model.notebooks.studies.highatomic.reserve_reply import (
            PATCH_COPIES,
            PATCH_TO,
            reserve_reply,
            shipped_patch,
        )

        message, patch = reserve_reply(), shipped_patch()
        own_thread = [addressed(patch, PATCH_TO, PATCH_COPIES)]
    if not options.mbox:
        status = _post(options, message)
        if options.full and patch:
            print("", patch, sep="\n", end="")  # as it is: a mail's spaces for tabs would spoil it
        return status
    if not re.fullmatch(r"<?[^\s<>@]+@[^\s<>@]+>?", options.in_reply_to or ""):
        raise UsageError(
            f"--in-reply-to {options.in_reply_to}: give the Message-ID of the mail that is "
            "answered, such as 20260519200851.141955-1-jp.kobryn@linux.dev"
        )
    with new_directory(options.mbox) as unfinished:
        for number, mail in enumerate([message.to_mail(options.in_reply_to), *own_thread]):
            (unfinished / f"{number:04}.eml").write_text(mail, encoding="utf-8")
    print(*sorted(options.mbox.iterdir()), sep="\n")
    return 0


def _post(
    options: argparse.Namespace, message: Message, comparisons: list[Comparison] | None = None
) -> int:
    """Print a message, or write it as mail and Markdown, with tables and figures of comparisons."""
    if not options.directory:
        print(message.to_markdown() if options.format == "md" else message.to_text(), end="")
        return 0
    with new_directory(options.directory) as unfinished:
        (unfinished / "post.txt").write_text(message.to_text(), encoding="utf-8")
        (unfinished / "post.md").write_text(message.to_markdown(), encoding="utf-8")
        if comparisons:
            import pandas as pd

            from pagealloc_model.show import figures
            from pagealloc_model.show.figures.files import write_figures

            tables = [
                comparison.rows.assign(recording=comparison.base.name, seeds=comparison.seeds)
                for comparison in comparisons
            ]
            pd.concat(tables).to_csv(unfinished / "table.csv", index=False)
            sides = {"base": comparisons[0].base, "patch": comparisons[0].patch}
            drawn = {
                name: draw(None, {side: getattr(replay, table) for side, replay in sides.items()})
                for name, draw, table in (
                    ("transaction_sizes", figures.transaction_sizes, "transactions"),
                    ("transaction_rates", figures.transaction_rates, "lock"),
                    ("pcp_counts", figures.pcp_counts, "pcp"),
                    ("free_pages", figures.free_pages_by_migratetype, "free_pages"),
                )
            }
            try:
                write_figures(drawn, unfinished)
            except UsageError as error:
                print(f"pagealloc: {error}; text and table were written", file=sys.stderr)
    print(*sorted(options.directory.iterdir()), sep="\n")
    return 0
