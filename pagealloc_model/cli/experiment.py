"""`pagealloc experiment`: run machines under several settings, and hold predictions beside them."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from pagealloc_model.base.errors import UsageError
from pagealloc_model.cli.arguments import Commands, add_command, add_json
from pagealloc_model.cli.output import json_text, rows_of

if TYPE_CHECKING:
    from pagealloc_model.studies.experiments.experiment import ExperimentResult

FIGURE = "predicted_changes"
MORE = """\
PLAN.toml names kernels, settings, repeats and a workload (docs/experiments.md);
shipped: two_settings, matrix, highatomic_gate, defrag_mode, native_pairs. Each run
is a guest, booted by virtme-ng and recorded from inside; or, where the plan has
[here], this machine, whose settings are put back. Finished runs are kept: a call
that is repeated makes only those that are new or failed. A run that fails is a row
of runs.csv, with the end of its console.

Sides have letters in the plan's order; A has every first value. With --measured,
recordings of real machines take the place of a side's guests.

DIR gets runs.csv, changes.csv, table.txt, post.txt and the figure. Exit code 1 if a
run failed."""


def add_parser(commands: Commands) -> None:
    """Add the command."""
    parser = add_command(
        commands,
        "experiment",
        summary="run machines under several settings, predicted beside measured change",
        example="pagealloc experiment two_settings -o DIR --kernel bzImage",
        more=MORE,
    )
    parser.add_argument(
        "plan", metavar="PLAN.toml", help="the plan: a file, or the name of a shipped one"
    )
    parser.add_argument(
        "-o",
        "--output",
        metavar="DIR",
        type=Path,
        required=True,
        help="for runs and results; goes on where it was left",
    )
    parser.add_argument(
        "--kernel",
        metavar="PATH",
        action="append",
        default=[],
        help="a bzImage in place of the plan's kernels; may be repeated",
    )
    parser.add_argument("--repeats", metavar="N", type=int, help="runs a side, not the plan's")
    parser.add_argument(
        "--measured",
        metavar="SIDE=PATH",
        nargs="+",
        default=[],
        help="recordings in place of a side's guests, such as A=one A=two B=three",
    )
    parser.add_argument(
        "--no-runs",
        action="store_true",
        help="make no runs: predict from the finished ones in DIR, whatever made them",
    )
    parser.add_argument("--sides", action="store_true", help="print sides and pairs, run nothing")
    add_json(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Run, predict, write and print; 1 if a run failed."""
    from pagealloc_model.studies.experiments.experiment import experiment
    from pagealloc_model.studies.experiments.plan import changed_plan, find_plan
    from pagealloc_model.studies.experiments.read_plan import read_plan
    from pagealloc_model.studies.experiments.sides import described_sides

    plan = changed_plan(read_plan(find_plan(options.plan)), options.kernel, options.repeats)
    if options.sides:
        print("\n".join(described_sides(plan)))
        return 0
    measured = _measured(options.measured)
    result = experiment(plan, options.output, measured=measured, make=not options.no_runs)
    if options.json:
        tables = {"score": result.score, "changes": result.changes, "runs": result.runs}
        print(json_text({name: rows_of(table) for name, table in tables.items()}))
    elif not result.changes.empty:
        print(result.to_text(), end="")
    for row in result.failed.itertuples():
        print(f"pagealloc: run {row.side}{row.repeat} failed: {row.error}", file=sys.stderr)
    if not result.changes.empty:
        _draw(result, options.output)
    return 1 if len(result.failed) else 0


def _measured(words: list[str]) -> dict[str, list[str]]:
    sides: dict[str, list[str]] = {}
    for word in words:
        side, equals, path = word.partition("=")
        if not (side and equals and path):
            raise UsageError(f"--measured {word}: write SIDE=PATH, such as A=mine")
        sides.setdefault(side, []).append(path)
    return sides


def _draw(result: ExperimentResult, directory: Path) -> None:
    """The figure as page and, where this machine can draw them, as PNG, SVG and PDF."""
    from pagealloc_model.show.figures.files import write_figures

    figure = result.figure()
    figure.write_html(directory / f"{FIGURE}.html", include_plotlyjs="cdn")
    try:
        write_figures({FIGURE: figure}, directory)
    except UsageError as error:
        print(f"pagealloc: {error}; the tables were written", file=sys.stderr)
