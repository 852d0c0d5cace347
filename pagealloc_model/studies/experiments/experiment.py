"""`experiment`: run every side of a plan, and hold what was predicted beside it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd

from pagealloc_model.base import progress_bar
from pagealloc_model.base.carried_out import CarriedOut
from pagealloc_model.base.errors import UsageError
from pagealloc_model.base.text.counts import count_of
from pagealloc_model.base.version import __version__
from pagealloc_model.studies.experiments.changes import KnownValues, changes_table, score_table
from pagealloc_model.studies.experiments.guest import Runner
from pagealloc_model.studies.experiments.plan import Plan, find_plan
from pagealloc_model.studies.experiments.read_plan import read_plan
from pagealloc_model.studies.experiments.runs import (
    FAILED,
    Run,
    kept_runs,
    make_runs,
    measured_runs,
)
from pagealloc_model.studies.experiments.sides import Side, pairs_of, side_lines, sides_of

if TYPE_CHECKING:
    import plotly.graph_objects as go

    from pagealloc_model.show.post.message import Message

RUNS_FILE, CHANGES_FILE, TABLE_FILE, POST_FILE = "runs.csv", "changes.csv", "table.txt", "post.txt"


@dataclass(frozen=True, kw_only=True, eq=False)
class ExperimentResult:
    """What was run, and what came of the predictions.

    Attributes:
        plan: what was asked for.
        sides: kernels and values, by letter.
        runs: side, repeat, status, path, seconds, error and console, one row a run.
        changes: one row for each pair, quantity and mode of reclaim; see `changes_table`.
    """

    _repr_html_ = CarriedOut("show.html.results", "experiment_html")
    _repr_pretty_ = CarriedOut("show.html.results", "print_text")

    plan: Plan
    sides: tuple[Side, ...]
    runs: pd.DataFrame
    changes: pd.DataFrame

    @cached_property
    def score(self) -> pd.DataFrame:
        """How often predictions were right, beside the model that nothing changes."""
        return score_table(self.changes)

    @property
    def failed(self) -> pd.DataFrame:
        """The runs that left no recording."""
        return self.runs[self.runs["status"] == FAILED]

    def to_pandas(self) -> pd.DataFrame:
        """A copy of the table of changes."""
        return self.changes.copy()

    def to_text(self, width: int = 72) -> str:
        """The table of changes and the score, as text for a mail."""
        from pagealloc_model.show.post.tables import experiment_table

        return experiment_table(self.changes, self.score, width=width)

    def figure(self) -> go.Figure:
        """Predicted against measured change, a point a quantity, both in widths of the interval."""
        from pagealloc_model.show.figures import predicted_changes

        return predicted_changes(self.changes)

    def message(self) -> Message:
        """The whole as a message for a mailing list."""
        from pagealloc_model.show.post.tables import experiment_message

        return experiment_message(
            self.plan.name, self._about(), self.changes, self.score, self.failed
        )

    def _about(self) -> list[str]:
        """Sentences on what was run."""
        plan, guest = self.plan, self.plan.guest
        lines = side_lines(self.sides)
        done = self.runs[self.runs["status"] != FAILED]
        counts = done.groupby("side").size()
        runs = ", ".join(f"{letter} {count}" for letter, count in counts.items()) or "none"
        lines.append(f"Runs by side: {runs}. Workload: {plan.workload.name} (seed {plan.seed}).")
        if plan.kernels:
            lines.append(f"Guests of {guest.memory} and {count_of(guest.cpus, 'CPU')}.")
        return [*lines, f"Made with pagealloc_model {__version__}."]


def experiment(
    plan: Plan | str | Path,
    directory: str | Path,
    *,
    measured: Mapping[str, Sequence[str | Path]] | None = None,
    make: bool = True,
    runner: Runner | None = None,
    progress: Callable[[float], None] | None = None,
) -> ExperimentResult:
    """Run every side of a plan, and hold each prediction against what was measured.

    A run that is in the directory already is not made again, unless it failed or something that
    it was made from differs. Runs that fail are rows of the result with the console's last lines.

    Args:
        plan: or its TOML file, or the name of a shipped one.
        directory: for runs and results; it is made.
        measured: recordings that take the place of a side's guests, by the side's letter: A is the
            side with every first value, then B, C, ... in the plan's order.
        make: False makes no runs, but takes all finished ones that are in the directory.
        runner: boots guests; None does it with virtme-ng.
        progress: called with the share done, 0 to 1; None shows a bar where one is seen.

    Raises:
        PlanError: the plan cannot be used.
        UsageError: something that runs need is missing, or `measured` names no side.
        RecordingError: a recording cannot be read, or two of a pair are of different machines.
    """
    plan = plan if isinstance(plan, Plan) else read_plan(find_plan(plan))
    directory = Path(directory).absolute()
    sides = sides_of(plan)
    given = measured_runs(sides, measured or {})
    to_run = [side for side in sides if side.letter not in given]
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"{directory}: cannot be made ({error.strerror})") from None
    made: list[Run] = []
    if to_run and not make:
        made = kept_runs(to_run, directory)
    elif to_run:
        with progress_bar.progress(
            f"running {plan.name}",
            len(to_run) * plan.repeats,
            "runs",
            given=progress_bar.part_of(progress, 0.0, 0.8),
        ) as report:
            made = make_runs(plan, to_run, directory, runner, report)
    runs = [run for each in given.values() for run in each] + made
    with progress_bar.progress(
        f"predicting {plan.name}",
        len(runs),
        "runs",
        given=progress_bar.part_of(progress, 0.8, 1.0),
    ) as report:
        changes = changes_table(
            pairs_of(plan, sides), runs, KnownValues(directory / "values"), report
        )
    rows = [{**asdict(run), **_choices(sides, run)} for run in runs]
    result = ExperimentResult(
        plan=plan,
        sides=sides,
        runs=pd.DataFrame(rows).drop(columns="identity"),
        changes=changes,
    )
    _write(result, directory)
    return result


def _choices(sides: Sequence[Side], run: Run) -> dict[str, str]:
    return next(side.choices for side in sides if side.letter == run.side)


def _write(result: ExperimentResult, directory: Path) -> None:
    """Tables and the mail, each whole or not at all."""
    texts = {RUNS_FILE: result.runs.to_csv(index=False)}
    if not result.changes.empty:
        texts |= {
            CHANGES_FILE: result.changes.to_csv(index=False),
            TABLE_FILE: result.to_text(),
            POST_FILE: result.message().to_text(),
        }
    for name, text in texts.items():
        partial = directory / f".{name}"
        partial.write_text(text, encoding="utf-8")
        partial.rename(directory / name)
