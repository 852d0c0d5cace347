"""Commands on many recordings or policies, and messages about them."""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from typing import TYPE_CHECKING

from pagealloc_model.base.errors import UsageError
from pagealloc_model.base.files import new_directory
from pagealloc_model.base.text import count_of, paragraph
from pagealloc_model.cli.arguments import assumed, assumed_for_all, json_text, opened, policy_of
from pagealloc_model.policy.policy import Policy

if TYPE_CHECKING:
    from pagealloc_model.numbers.comparison import Comparison
    from pagealloc_model.show.post.message import Message

_MOST_POINTS = 100_000


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def run_sweep(options: argparse.Namespace) -> int:
    """Sweep, write and print; 1 if a point failed."""
    from pagealloc_model.sweeps import design

    policy = Policy.parse(options.settings)
    vary = design.parse_vary(options.vary)
    if options.points is not None and options.one_at_a_time:
        raise UsageError("--points and --one-at-a-time are two designs; give one of them")
    if options.points is not None and not 1 <= options.points <= _MOST_POINTS:
        raise UsageError(f"--points {options.points}: give 1 to {_MOST_POINTS}")
    if options.points is None:
        points = design.one_at_a_time(vary) if options.one_at_a_time else design.grid(vary)
    else:
        ranges = {name: (min(values), max(values)) for name, values in vary.items()}
        points = design.space_filling(ranges, options.points)
    if options.seeds < 1:
        raise UsageError(f"--seeds {options.seeds}: at least one")
    if options.output and options.output.exists() and not options.resume:
        raise UsageError(f"{options.output} exists; --resume replaces it with the completed table")
    import pagealloc_model as pm

    policies = [design.Settings(policy=policy).with_values(point).policy for point in points]
    reclaim, assumptions = assumed_for_all(options.paths, *policies, asked=options.reclaim)
    result = pm.sweep(
        options.paths,
        points,
        seeds=range(options.seeds),
        policy=policy,
        rules=options.rules,
        assumptions=assumptions,
        client=options.scheduler,
        workers=options.workers,
    )
    if options.output:
        result.to_parquet(options.output)
    failed = len(result.failed)
    if options.json:
        head = {"points": len(result.rows), "reused": result.reused, "axes": list(result.axes)}
        print(json_text(head | {"rows": result.rows}))
        return 1 if failed else 0
    made = count_of(len(result.rows), "point")
    written = f"written to {options.output}\n" if options.output else ""
    if options.sensitivity:
        text = result.sensitivity(options.sensitivity).to_text()
    elif options.pareto:
        columns = _names(options.pareto)
        if len(columns) != 2:
            raise UsageError(f"--pareto {options.pareto}: name two columns, as in METRIC,METRIC")
        text = result.pareto(*columns).to_text()
    else:
        text = result.to_text(_names(options.metrics))
    head = f"{made}, {result.reused} of them known, {failed} failed\n{written}"
    print(f"{head}\n{reclaim}{text}", end="")
    return 1 if failed else 0


def run_fleet(options: argparse.Namespace) -> int:
    """Run both sides, write and print; 1 if a host failed."""
    policies = [Policy.parse(words) for words in (options.base_set, options.patch_set)]
    base, patch = options.base, options.patch
    if options.synthetic:
        if base or patch:
            raise UsageError("--synthetic makes up both sides; leave --base and --patch out")
        if options.reclaim:
            raise UsageError("--synthetic hosts have a reclaim of their own; leave --reclaim out")
        from pagealloc_model.sweeps.fleets import SyntheticHosts

        base = SyntheticHosts(
            count=options.synthetic,
            gib=options.gib,
            nr_cpus=options.cpus,
            rules=options.rules or "",
            read_pages=options.read_pages,
        )
        patch = base.with_other_seeds()
    elif not (base and patch):
        raise UsageError("a fleet needs hosts: recordings for --base and --patch, or --synthetic N")
    import pagealloc_model as pm

    hosts = [] if options.synthetic else [*base, *patch]
    reclaim, assumptions = assumed_for_all(hosts, *policies, asked=options.reclaim)
    result = pm.fleets.fleet(
        base,
        patch,
        assumptions=assumptions,
        base_policy=policies[0],
        patch_policy=policies[1],
        rules=options.rules,
        workers=options.workers,
    )
    if options.output:
        from pagealloc_model.sweeps.sweep import write_parquet

        write_parquet(result.hosts, options.output)
    metrics = _names(options.metrics)
    if options.json:
        tables = {"compared": result.compared(metrics), "hosts": result.hosts}
        print(json_text(tables))
    else:
        print(f"{reclaim}{result.to_text(metrics)}", end="")
    return 1 if len(result.failed) else 0


FIGURE = "predicted_changes"


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
        tables = {"score": result.score, "changes": result.changes, "runs": result.runs}
        print(json_text(tables))
    elif not result.changes.empty:
        from pagealloc_model.show.post.tables import experiment_line, experiment_score

        print(paragraph(experiment_line(result.score)), end="\n\n")
        shares = experiment_score(result.score, result.times)
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


def run_post(options: argparse.Namespace) -> int:
    """Replay, compare and print the message, or write it with its figures."""
    if options.reply:
        if options.paths or options.base or options.patch or options.figure:
            raise UsageError(
                f"--reply {options.reply} compares nothing: leave out PATH, --base, --patch, "
                "--figure"
            )
        if options.reply == "defrag_mode":
            from pagealloc_model.notebooks.studies.defrag_mode.defrag_reply import defrag_reply

            return _post(options, defrag_reply())
        from pagealloc_model.notebooks.studies.highatomic.reserve_reply import (
            reserve_reply,
            shipped_patch,
        )

        status = _post(options, reserve_reply())
        if options.full:
            # as it is: a mail's spaces for tabs would spoil it
            print(f"\n{shipped_patch()}", end="")
        return status
    if not options.paths or options.patch is None:
        raise UsageError("post needs PATH and --patch FIELD=VALUE,..., or --reply NAME alone")
    if options.seeds < 1:
        raise UsageError(f"--seeds {options.seeds}: give at least one")
    if options.figure and (options.no_validation or options.directory):
        raise UsageError("--figure needs the validation, and stands without -o")
    if options.style != "signed" and not options.full:
        raise UsageError(f"--style {options.style} is of the full message: add --full")
    policies = [policy_of(f"--{side}", getattr(options, side)) for side in ("base", "patch")]
    import pagealloc_model as pm
    from pagealloc_model.numbers.comparison import ModelErrors, keep_errors
    from pagealloc_model.show.post import comparison_message

    recordings = [opened(path) for path in options.paths]
    choices = {
        recording: assumed(recording, *policies, asked=options.reclaim) for recording in recordings
    }
    comparisons = []
    for recording, (_, assumptions) in choices.items():
        shared = {"rules": options.rules, "assumptions": assumptions}
        for seed in range(options.seeds):
            sides = [pm.replay(recording, policy, **shared, seed=seed) for policy in policies]
            comparisons.append(pm.compare(*sides))
    validations = []
    if options.no_validation:
        unknown = ModelErrors(refused="the model was not held to the recording (--no-validation)")
        comparisons = [replace(comparison, known_errors=unknown) for comparison in comparisons]
    else:
        # Each recording once; its comparisons take the errors from there.
        for recording, (_, assumptions) in choices.items():
            validation = pm.validate(recording, rules=options.rules, assumptions=assumptions)
            for comparison in comparisons:
                if comparison.base.recording is recording:
                    keep_errors(validation, comparison.base.rules)
            validations.append(validation)
    if options.figure:
        from pagealloc_model.show.figures import talk_figure
        from pagealloc_model.show.figures.files import write_figure
        from pagealloc_model.show.post.comparison_message import figure_caption, figure_title

        comparison, validation = comparisons[0], validations[0]
        base, patch = (",".join(settings or ()) for settings in (options.base, options.patch))
        caption = figure_caption(comparison, validation, options.paths[0], base, patch)
        tables = (comparison.rows, validation.errors, validation.snapshots)
        write_figure(talk_figure(*tables, figure_title(comparison), caption), options.figure)
        words = options.figure.with_name(f"{options.figure.name}.txt")
        words.write_text(f"{caption}\n", encoding="utf-8")
        print(options.figure, words, sep="\n")
        return 0
    message = comparison_message(
        comparisons,
        recordings,
        validations=validations,
        style=options.style,
        utf8=options.utf8,
        reclaim=dict.fromkeys(str(reclaim) for reclaim, _ in choices.values()),
        full=options.full,
    )
    return _post(options, message, comparisons)


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
                comparison.rows.assign(recording=comparison.base.name, seed=comparison.base.seed)
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
