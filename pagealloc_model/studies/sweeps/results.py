"""The result of a sweep: one row a point."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd

from pagealloc_model.base.carried_out import CarriedOut
from pagealloc_model.studies.sweeps.pareto import FRAGMENTATION, LOCK_TIME, ParetoFront, pareto
from pagealloc_model.studies.sweeps.parquet import write_parquet

if TYPE_CHECKING:
    from collections.abc import Sequence

    import plotly.graph_objects as go

    from pagealloc_model.studies.sweeps.sensitivity import Sensitivity


@dataclass(frozen=True, kw_only=True, eq=False)
class SweepResult:
    """A sweep's table.

    Attributes:
        rows: one row a point, in the order of recordings, seeds and points. Columns: recording,
            one for each axis (NA: as recorded), seed; metrics (`sweeps.metrics`); then provenance:
            recording_sha256, effective_policy, effective_rules, decided_by, assumptions,
            lost_events, version, model, seconds, finished, key; and error, "" where there is none.
        axes: what was varied.
        reused: how many points were known before.
    """

    _repr_html_ = CarriedOut("show.html.results", "sweep_html")
    _repr_pretty_ = CarriedOut("show.html.results", "print_text")

    rows: pd.DataFrame
    axes: tuple[str, ...]
    reused: int = 0

    def to_pandas(self) -> pd.DataFrame:
        """A copy of the table."""
        return self.rows.copy()

    @property
    def failed(self) -> pd.DataFrame:
        """The points that have an error in place of numbers."""
        return self.rows[self.rows["error"] != ""]

    @cached_property
    def metrics(self) -> tuple[str, ...]:
        """The columns that hold numbers of the replays."""
        from pagealloc_model.studies.sweeps.metrics import (
            COUNTER_PREFIX,
            ORDER_PREFIX,
            metric_names,
        )

        known = set(metric_names())
        prefixes = (ORDER_PREFIX, COUNTER_PREFIX)
        return tuple(name for name in self.rows if name in known or str(name).startswith(prefixes))

    def to_parquet(self, path: str | Path) -> None:
        """Write the table; the file appears whole or not at all.

        Raises:
            UsageError: it cannot be written.
        """
        write_parquet(self.rows, path)

    def to_text(self, metrics: Sequence[str] = (), width: int = 72) -> str:
        """Points and some metrics as a table for a mail."""
        from pagealloc_model.studies.sweeps.sweep_table import sweep_table

        return sweep_table(self.rows, self.axes, metrics, width=width)

    def figure(self, along: str, metrics: Sequence[str]) -> go.Figure:
        """Metrics along one axis, a line for each combination of the others."""
        from pagealloc_model.show.figures import sweep_lines

        return sweep_lines(self.rows, self.axes, along, metrics)

    def sensitivity(self, metric: str) -> Sensitivity:
        """How far each axis alone moves a metric; see `sweeps.sensitivity`."""
        from pagealloc_model.studies.sweeps.sensitivity import sensitivity

        return sensitivity(self.rows, self.axes, metric)

    def pareto(self, x: str = LOCK_TIME, y: str = FRAGMENTATION) -> ParetoFront:
        """The points that no other one beats in both metrics; see `sweeps.pareto`."""
        return pareto(self.rows, self.axes, x, y)
