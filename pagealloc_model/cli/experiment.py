"""The command that runs a plan's settings in guests."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from pagealloc_model.base.errors import UsageError
from pagealloc_model.base.text import paragraph
from pagealloc_model.cli.arguments import (
    Commands,
    add_command,
    add_json,
    json_text,
)

FIGURE = "predicted_changes"


def add_experiment(commands: Commands) -> None:
    """Add `pagealloc experiment`."""
    parser = add_command(
        commands,
        "experiment",
        run_experiment,
        "run a workload under several settings; compare predicted with measured changes",
        example="pagealloc experiment two_settings -o DIR --kernel bzImage",
        more="""
        PLAN.toml names kernels, settings, repeats and a workload (docs/experiments.md);
        that page lists the shipped plans, such as two_settings and matrix. Each run is a
        guest, booted by virtme-ng and recorded from inside; or, where the plan has [here],
        this machine, whose settings are put back. Finished runs are kept: a call
        that is repeated makes only those that are new or failed. A run that fails is a row
        of runs.csv, with the end of its console.

        Sides have letters in the plan's order; A has every first value. With --measured,
        recordings of real machines take the place of a side's guests.

        DIR gets runs.csv, changes.csv, table.txt, post.txt and the figure. Exit code 1 if a
        run failed.
        """,
    )
    parser.add_argument(
        "plan", metavar="PLAN.toml", help="the plan: a file, or the name of a shipped one"
    )
    parser.add_argument(
        "-o",
        "--output",
        type=Path,
        metavar="DIR",
        required=True,
        help="for runs and results; finished runs in it are kept",
    )
    parser.add_argument(
        "--kernel",
        action="append",
        metavar="PATH",
        default=[],
        help="a bzImage in place of the plan's kernels; may be repeated",
    )
    parser.add_argument(
        "--repeats", type=int, metavar="N", help="runs of each side, in place of the plan's number"
    )
    parser.add_argument(
        "--measured",
        nargs="+",
        metavar="SIDE=PATH",
        default=[],
        help="recordings in place of a side's guests, such as A=one A=two B=three",
    )
    parser.add_argument(
        "--no-runs",
        action="store_true",
        help="make no runs: predict from the finished ones in DIR, whatever made them",
    )
    parser.add_argument("--sides", action="store_true", help="print sides and pairs, run nothing")
    parser.add_argument("--full", action="store_true", help="print every change too")
    add_json(parser)


def run_experiment(options: argparse.Namespace) -> int:
    """Run, predict, write and print; 1 if a run failed."""
    from pagealloc_model.guests.experiment import experiment
    from pagealloc_model.guests.plan import (
        changed_plan,
        described_sides,
        find_plan,
        read_plan,
    )
    from pagealloc_model.show.figures.files import write_figures

    plan = changed_plan(read_plan(find_plan(options.plan)), options.kernel, options.repeats)
    if options.sides:
        print("\n".join(described_sides(plan)))
        return 0
    measured: dict[str, list[str]] = {}
    for word in options.measured:
        side, equals, path = word.partition("=")
        if not (side and equals and path):
            raise UsageError(f"--measured {word}: write SIDE=PATH, such as A=mine")
        measured.setdefault(side, []).append(path)
    result = experiment(plan, options.output, measured=measured, make=not options.no_runs)
    if options.json:
        tables = {"score": result.score, "slopes": result.slopes}
        tables |= {"changes": result.changes, "runs": result.runs}
        print(json_text(tables))
    elif not result.changes.empty:
        from pagealloc_model.show.post.tables import experiment_line, experiment_score

        print(paragraph(experiment_line(result.score)), end="\n\n")
        shares = experiment_score(result.score)
        print(result.to_text() if options.full else shares)
        print(f"Next: {options.output}/table.txt has every change, post.txt a message for a list.")
    for row in result.failed.itertuples():
        print(f"pagealloc: run {row.side}{row.repeat} failed: {row.error}", file=sys.stderr)
    if not result.changes.empty:
        # as a page and, where this machine can draw them, as PNG, SVG and PDF
        figure = result.figure()
        figure.write_html(options.output / f"{FIGURE}.html", include_plotlyjs="cdn")
        try:
            write_figures({FIGURE: figure}, options.output)
        except UsageError as error:
            print(f"pagealloc: {error}; the tables were written", file=sys.stderr)
    return 1 if len(result.failed) else 0
