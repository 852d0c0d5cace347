"""Commands on many recordings or policies, and messages about them."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pagealloc_model.base.errors import UsageError
from pagealloc_model.base.text import count_of
from pagealloc_model.cli.arguments import (
    JSON,
    RECLAIM,
    RECORDINGS,
    RULES,
    Command,
    json_text,
    new_directory,
    option,
    policy_fields_help,
    policy_of,
    policy_option,
    rows_of,
)
from pagealloc_model.policy.policy import Policy

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pandas as pd
    from plotly.graph_objects import Figure

    from pagealloc_model.predicted.replay import ReclaimChoice
    from pagealloc_model.recording.recording import Recording
    from pagealloc_model.show.post.message import Message
    from pagealloc_model.studies.experiments.experiment import ExperimentResult
    from pagealloc_model.studies.fleets.fleet import Hosts
    from pagealloc_model.studies.sweeps.results import SweepResult
    from pagealloc_model.verdict.comparison import Comparison
    from pagealloc_model.verdict.validation import Validation


SWEEP_MORE = (
    "Every combination of the values is a point, one row of the table. A range START:STOP:STEP\n"
    "includes STOP. Also varied: rules=6.12,6.18 and assumptions.FIELD=...\n\n"
    "Finished points are kept: a sweep that is repeated, enlarged or interrupted computes only\n"
    "what is new. A point that fails is a row with its error, and is tried again the next time."
)


def run_sweep(options: argparse.Namespace) -> int:
    """Sweep, write and print; 1 if a point failed."""
    from pagealloc_model.studies.sweeps.design import parse_vary

    policy = Policy.parse(options.settings)
    vary = _design(options, parse_vary(options.vary))
    if options.seeds < 1:
        raise UsageError(f"--seeds {options.seeds}: at least one")
    if options.output and options.output.exists() and not options.resume:
        raise UsageError(f"{options.output} exists; --resume replaces it with the completed table")
    import pagealloc_model as pm

    result = pm.sweep(
        options.paths,
        vary,
        seeds=range(options.seeds),
        policy=policy,
        rules=options.rules,
        client=options.scheduler,
        workers=options.workers,
    )
    if options.output:
        result.to_parquet(options.output)
    print(_printed(result, options), end="")
    return 1 if len(result.failed) else 0


_MOST_POINTS = 100_000


def _design(options: argparse.Namespace, vary: dict[str, list[Any]]) -> Any:
    """The grid, or the points that options ask for."""
    from pagealloc_model.studies.sweeps.design import one_at_a_time, space_filling

    if options.points is not None and options.one_at_a_time:
        raise UsageError("--points and --one-at-a-time are two designs; give one of them")
    if options.points is not None and not 1 <= options.points <= _MOST_POINTS:
        raise UsageError(f"--points {options.points}: give 1 to {_MOST_POINTS}")
    if options.points is not None:
        ranges = {name: (min(values), max(values)) for name, values in vary.items()}
        return space_filling(ranges, options.points)
    return one_at_a_time(vary) if options.one_at_a_time else vary


def _printed(result: SweepResult, options: argparse.Namespace) -> str:
    if options.json:
        head = {"points": len(result.rows), "reused": result.reused, "axes": list(result.axes)}
        return json_text(head | {"rows": rows_of(result.rows)}) + "\n"
    lines = [
        f"{count_of(len(result.rows), 'point')}, {result.reused} of them known, "
        f"{len(result.failed)} failed"
    ]
    if options.output:
        lines.append(f"written to {options.output}")
    return "\n".join([*lines, "", _table(result, options)])


def _table(result: SweepResult, options: argparse.Namespace) -> str:
    if options.sensitivity:
        return result.sensitivity(options.sensitivity).to_text()
    if options.pareto:
        first, second = _names(options.pareto, 2)
        return result.pareto(first, second).to_text()
    return result.to_text(_names(options.metrics) if options.metrics else ())


def _names(text: str, count: int | None = None) -> Sequence[str]:
    names = [name.strip() for name in text.split(",") if name.strip()]
    if count is not None and len(names) != count:
        raise UsageError(f"--pareto {text}: name two columns, as in METRIC,METRIC")
    return names


_SIDES = (("base", "A"), ("patch", "B"))

FLEET_MORE = (
    "Hosts are recordings (--base and --patch), or made up (--synthetic): full of page cache,\n"
    "with atomic requests of orders 0 to 3, each by its own seed. Finished hosts are kept."
)


def run_fleet(options: argparse.Namespace) -> int:
    """Run both sides, write and print; 1 if a host failed."""
    policies = [Policy.parse(words) for words in (options.base_set, options.patch_set)]
    base, patch = _sides(options)
    import pagealloc_model as pm

    result = pm.fleets.fleet(
        base,
        patch,
        base_policy=policies[0],
        patch_policy=policies[1],
        rules=options.rules,
        workers=options.workers,
    )
    if options.output:
        from pagealloc_model.studies.sweeps.results import write_parquet

        write_parquet(result.hosts, options.output)
    metrics = [name.strip() for name in options.metrics.split(",") if name.strip()]
    if options.json:
        tables = {"compared": result.compared(metrics), "hosts": result.hosts}
        print(json_text({name: rows_of(table) for name, table in tables.items()}))
    else:
        print(result.to_text(metrics), end="")
    return 1 if len(result.failed) else 0


def _sides(options: argparse.Namespace) -> tuple[Hosts, Hosts]:
    """The hosts of both sides, made up or recorded."""
    if options.synthetic:
        if options.base or options.patch:
            raise UsageError("--synthetic makes up both sides; leave --base and --patch out")
        from pagealloc_model.studies.fleets.synthetic_hosts import SyntheticHosts

        hosts = SyntheticHosts(
            count=options.synthetic,
            gib=options.gib,
            nr_cpus=options.cpus,
            rules=options.rules or "",
            read_pages=options.read_pages,
        )
        return hosts, hosts.with_other_seeds()
    if not (options.base and options.patch):
        raise UsageError("a fleet needs hosts: recordings for --base and --patch, or --synthetic N")
    return options.base, options.patch


FIGURE = "predicted_changes"
EXPERIMENT_MORE = """\
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


def run_experiment(options: argparse.Namespace) -> int:
    """Run, predict, write and print; 1 if a run failed."""
    from pagealloc_model.studies.experiments.experiment import experiment
    from pagealloc_model.studies.experiments.plan import (
        changed_plan,
        described_sides,
        find_plan,
        read_plan,
    )

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


def run_post(options: argparse.Namespace) -> int:
    """Replay, compare and print the message, or write it with its figures."""
    if options.reply:
        return _reply(options)
    if not options.paths or options.patch is None:
        raise UsageError("post needs PATH and --patch FIELD=VALUE,..., or --reply NAME alone")
    if options.seeds < 1:
        raise UsageError(f"--seeds {options.seeds}: give at least one")
    if options.figure and (options.no_validation or options.directory):
        raise UsageError("--figure needs the validation, and stands without -o")
    if options.style != "signed" and not options.full:
        raise UsageError(f"--style {options.style} is of the full message: add --full")
    base, patch = policy_of("--base", options.base), policy_of("--patch", options.patch)
    import pagealloc_model as pm
    from pagealloc_model.predicted.replay import choose_reclaim
    from pagealloc_model.show.post import comparison_message
    from pagealloc_model.verdict.comparison import ModelErrors

    recordings = [pm.open(path) for path in options.paths]
    reclaim = {
        recording: choose_reclaim(recording, base, patch, asked=options.reclaim)
        for recording in recordings
    }
    comparisons = list(_comparisons(reclaim, base, patch, options))
    validations = []
    if options.no_validation:
        unknown = ModelErrors(refused="the model was not held to the recording (--no-validation)")
        comparisons = [replace(each, known_errors=unknown) for each in comparisons]
    else:
        validations = list(_validations(reclaim, comparisons, options))
    if options.figure:
        _write_figure(options, comparisons[0], validations[0])
        return 0
    message = comparison_message(
        comparisons,
        recordings,
        validations=validations,
        style=options.style,
        utf8=options.utf8,
        reclaim=dict.fromkeys(map(str, reclaim.values())),
        full=options.full,
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
    reclaim: Mapping[Recording, ReclaimChoice],
    comparisons: list[Comparison],
    options: argparse.Namespace,
) -> Iterator[Validation]:
    """Validate each recording once; its comparisons take the errors from there."""
    import pagealloc_model as pm
    from pagealloc_model.verdict.comparison import keep_errors

    for recording, choice in reclaim.items():
        assumptions = pm.Assumptions(reclaim=choice.mode)
        validation = pm.validate(recording, rules=options.rules, assumptions=assumptions)
        mine = (each for each in comparisons if each.base.recording is recording)
        for each in mine:
            keep_errors(validation, each.base.rules)
        yield validation


def _comparisons(
    reclaim: Mapping[Recording, ReclaimChoice],
    base: Policy,
    patch: Policy,
    options: argparse.Namespace,
) -> Iterator[Comparison]:
    import pagealloc_model as pm

    for recording, choice in reclaim.items():
        assumptions = pm.Assumptions(reclaim=choice.mode)
        for seed in range(options.seeds):
            sides = [
                pm.replay(
                    recording, policy, rules=options.rules, assumptions=assumptions, seed=seed
                )
                for policy in (base, patch)
            ]
            yield pm.compare(*sides)


def _write_figure(
    options: argparse.Namespace, comparison: Comparison, validation: Validation
) -> None:
    """Draw the figure, and write its caption beside it."""
    from pagealloc_model.show import figures
    from pagealloc_model.show.figures.files import write_figure
    from pagealloc_model.show.post.comparison_message import figure_caption, figure_title

    base, patch = (",".join(each or ()) for each in (options.base, options.patch))
    caption = figure_caption(comparison, validation, options.paths[0], base, patch)
    figure = figures.talk_figure(
        comparison.rows,
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
            comparison.rows.assign(recording=comparison.base.name, seed=comparison.base.seed)
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


COMMANDS = (
    Command(
        "sweep",
        run_sweep,
        "replay recordings under many policies, one row for each",
        "pagealloc sweep kbuild --vary pcp_batch=15,31,63 --vary costly_order=0:9:3 "
        "-o results.parquet",
        (
            RECORDINGS,
            option(
                "--vary",
                metavar="FIELD=VALUES",
                action="append",
                default=[],
                help="values such as 15,31,63 or START:STOP:STEP, 'none' for as recorded; "
                "may be repeated",
            ),
            option(
                "--set",
                dest="settings",
                metavar="FIELD=VALUE",
                action="append",
                default=[],
                help="what all points have in common; may be repeated",
            ),
            option(
                "--one-at-a-time",
                action="store_true",
                help="no combinations: vary one field, the others as recorded",
            ),
            option(
                "--points",
                metavar="N",
                type=int,
                help="that many points spread over the ranges instead of every combination",
            ),
            option(
                "--seeds",
                metavar="N",
                type=int,
                default=1,
                help="repeat every point with this many seeds (default 1)",
            ),
            RULES,
            option("-o", "--output", metavar="FILE", type=Path, help="write Parquet here"),
            option(
                "--resume",
                action="store_true",
                help="FILE may be there already: the table is completed, and then replaces it",
            ),
            option(
                "--scheduler",
                metavar="ADDRESS",
                help="of a Dask cluster whose workers make the points, such as tcp://host:8786",
            ),
            option("--workers", metavar="N", type=int, help="threads (default: one a CPU)"),
            option("--metrics", metavar="NAME,...", default="", help="columns to print"),
            option(
                "--sensitivity",
                metavar="METRIC",
                help="print how far each field moves this column instead of the points",
            ),
            option(
                "--pareto",
                metavar="METRIC,METRIC",
                help="print the points that no other one beats in both columns",
            ),
            JSON,
        ),
        more=f"{SWEEP_MORE}\n\n{policy_fields_help()}",
    ),
    Command(
        "fleet",
        run_fleet,
        "compare two sets of hosts: ranges per host, intervals, significance",
        "pagealloc fleet --synthetic 8 --gib 16 --patch-set highatomic_gate_order=3",
        (
            *(
                option(
                    f"--{side}",
                    metavar="PATH",
                    nargs="+",
                    default=[],
                    help=f"recordings of the {letter} side's hosts",
                )
                for side, letter in _SIDES
            ),
            *(
                option(
                    f"--{side}-set",
                    metavar="FIELD=VALUE",
                    action="append",
                    default=[],
                    help=f"policy of the {letter} side (default: as recorded); may be repeated",
                )
                for side, letter in _SIDES
            ),
            option(
                "--synthetic", metavar="N", type=int, default=0, help="make up N hosts on each side"
            ),
            option("--gib", metavar="N", type=float, default=64, help="memory (default 64)"),
            option("--cpus", metavar="N", type=int, default=8, help="CPUs (default 8)"),
            option(
                "--read-pages",
                metavar="N",
                type=int,
                default=0,
                help="page cache read by a made-up host",
            ),
            RULES,
            option("--workers", metavar="N", type=int, help="threads (default: one a CPU)"),
            option("--metrics", metavar="NAME,...", default="", help="columns to compare"),
            option(
                "-o",
                "--output",
                metavar="FILE",
                type=Path,
                help="write one row a host here, as Parquet",
            ),
            JSON,
        ),
        more=f"{FLEET_MORE}\n\n{policy_fields_help()}",
    ),
    Command(
        "experiment",
        run_experiment,
        "run machines under several settings, predicted beside measured change",
        "pagealloc experiment two_settings -o DIR --kernel bzImage",
        (
            option(
                "plan", metavar="PLAN.toml", help="the plan: a file, or the name of a shipped one"
            ),
            option(
                "-o",
                "--output",
                metavar="DIR",
                type=Path,
                required=True,
                help="for runs and results; goes on where it was left",
            ),
            option(
                "--kernel",
                metavar="PATH",
                action="append",
                default=[],
                help="a bzImage in place of the plan's kernels; may be repeated",
            ),
            option("--repeats", metavar="N", type=int, help="runs a side, not the plan's"),
            option(
                "--measured",
                metavar="SIDE=PATH",
                nargs="+",
                default=[],
                help="recordings in place of a side's guests, such as A=one A=two B=three",
            ),
            option(
                "--no-runs",
                action="store_true",
                help="make no runs: predict from the finished ones in DIR, whatever made them",
            ),
            option("--sides", action="store_true", help="print sides and pairs, run nothing"),
            JSON,
        ),
        more=EXPERIMENT_MORE,
    ),
    Command(
        "post",
        run_post,
        "write a comparison of two policies as a message for a mailing list",
        "pagealloc post kbuild --patch pcp_batch=127",
        (
            option(
                "paths",
                metavar="PATH",
                nargs="*",
                help="recordings: a directory, perf.data, perf script text, or a shipped name",
            ),
            policy_option("--base", "policy of the base side (as recorded)"),
            policy_option("--patch", "policy of the patch side (needed with PATH)"),
            option(
                "--reply",
                choices=("highatomic",),
                help="in place of a comparison, the reply to a posted patch from what "
                "ships with the package; takes no PATH",
            ),
            option(
                "--seeds",
                metavar="N",
                type=int,
                default=1,
                help="replay every recording with N seeds, each a run of its own (default: 1)",
            ),
            option(
                "--style",
                choices=("signed", "mmtests"),
                default="signed",
                help="of the table of --full: signed, raw change; mmtests, gains of which positive "
                "is better (default: signed)",
            ),
            option(
                "--full",
                action="store_true",
                help="every row, chart, error and assumption; by default a message has one screen",
            ),
            option("--format", choices=("text", "md"), default="text", help="of what is printed"),
            option("--utf8", action="store_true", help="charts of block characters, not ASCII"),
            option(
                "--no-validation",
                action="store_true",
                help="leave out how far the model can be believed",
            ),
            RULES,
            RECLAIM,
            option(
                "-o",
                dest="directory",
                metavar="DIR",
                type=Path,
                help="write post.txt, post.md, table.csv and figures as PNG, SVG and PDF into this "
                "directory, which must not exist or be empty",
            ),
            option(
                "--figure",
                metavar="FILE",
                type=Path,
                help="in place of the message draw one figure, two columns wide and "
                "readable in grey, as FILE (.png, .svg or .pdf), and write its "
                "caption to FILE.txt; of several recordings the first is drawn",
            ),
        ),
        more=policy_fields_help(),
    ),
)
"""The commands of this file."""
