"""Points that no other point beats in two metrics at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from pagealloc_model.base.errors import UsageError
from pagealloc_model.base.text.layout import WIDTH, Row, ascii_only, number, paragraph, text_table
from pagealloc_model.studies.sweeps.metrics import Metric, metric
from pagealloc_model.studies.sweeps.sweep_table import no_such_metric, point_words, sweep_footer

if TYPE_CHECKING:
    import plotly.graph_objects as go

    from pagealloc_model.studies.sweeps.metrics import Metric

LOCK_TIME, FRAGMENTATION = "zone_lock_hold_ns", "unusable_index_pageblock"


@dataclass(frozen=True, kw_only=True, eq=False)
class ParetoFront:
    """The points of a sweep by two metrics.

    Attributes:
        x: the first metric.
        y: the second.
        points: axes, recording, the two metrics (means over seeds), and on_front; by x.
        axes: what was varied.
        source: the sweep's rows.
    """

    x: Metric
    y: Metric
    points: pd.DataFrame
    axes: tuple[str, ...]
    source: pd.DataFrame

    @property
    def front(self) -> pd.DataFrame:
        """The points that no other one beats."""
        return self.points[self.points["on_front"]]

    def to_text(self, width: int = 72) -> str:
        """The front as a table for a mail."""
        return pareto_table(self.points, self.axes, self.x, self.y, self.source, width=width)

    def figure(self) -> go.Figure:
        """All points, the front joined."""
        from pagealloc_model.show.figures import pareto_front

        titles = (self.x.title, self.y.title)
        return pareto_front(self.points, self.axes, self.x.name, self.y.name, titles)


def pareto(
    rows: pd.DataFrame, axes: Sequence[str], x: str = LOCK_TIME, y: str = FRAGMENTATION
) -> ParetoFront:
    """The front of two metrics, for each recording by itself.

    A point is on it if every other point that is better in one metric is worse in the other. Less
    is better, except in metrics of which more is.

    Args:
        rows: a sweep's table.
        axes: its columns that were varied.
        x: a metric; time under zone->lock by default.
        y: another; the share of free memory that is no whole pageblock by default.

    Raises:
        UsageError: no such metric, or no point with a result.
    """
    for name in (x, y):
        if name not in rows:
            raise no_such_metric(name, rows)
    if x == y:
        raise UsageError(f"a Pareto front needs two metrics, not {x} twice")
    known = rows[rows[x].notna() & rows[y].notna()]
    if known.empty:
        raise UsageError("no point of the sweep has a result")
    keys = ["recording", *axes]
    points = known.groupby(keys, sort=False, dropna=False)[[x, y]].mean().reset_index()
    signs = np.array([-1.0 if metric(name).better == "higher" else 1.0 for name in (x, y)])
    points["on_front"] = False
    for _, own in points.groupby("recording", sort=False):
        points.loc[own.index, "on_front"] = on_front(own[[x, y]].to_numpy() * signs)
    points = points.sort_values(["recording", x, y], kind="stable", ignore_index=True)
    return ParetoFront(x=metric(x), y=metric(y), points=points, axes=tuple(axes), source=rows)


def on_front(costs: np.ndarray) -> np.ndarray:
    """Which rows no other row beats: not more in both columns, and less in one.

    Args:
        costs: shape (points, 2); less is better.
    """
    order = np.lexsort((costs[:, 1], costs[:, 0]))
    ranked = costs[order]
    before = np.concatenate([[np.inf], np.minimum.accumulate(ranked[:, 1])[:-1]])
    best = ranked[:, 1] < before
    equal_to_last = np.zeros(len(ranked), bool)
    equal_to_last[1:] = (ranked[1:] == ranked[:-1]).all(axis=1)
    for place in np.flatnonzero(equal_to_last):
        best[place] = best[place - 1]
    found = np.empty(len(costs), bool)
    found[order] = best
    return found


def pareto_table(
    points: pd.DataFrame,
    axes: Sequence[str],
    x: Metric,
    y: Metric,
    source: pd.DataFrame,
    *,
    width: int = WIDTH,
) -> str:
    """One line for each point on the front, by the first metric.

    Args:
        points: recording, axes, the two metrics, on_front.
        axes: what was varied.
        x: the first metric.
        y: the second.
        source: the sweep's rows, for the footer.
        width: characters per line at most.
    """
    front = points[points["on_front"]]
    lines = [
        Row(
            heading=ascii_only(str(row["recording"])),
            label=ascii_only(point_words(row, axes)),
            cells=(number(row[x.name]), number(row[y.name])),
        )
        for _, row in front.iterrows()
    ]
    header = Row(heading="recording", label="point", cells=("[1]", "[2]"))
    legend = [
        paragraph(f"{each.title}: {each.meaning}", width=width, label=f"[{place}] ")
        for place, each in enumerate((x, y), 1)
    ]
    rule = (
        f"{len(front)} of {len(points)} points: any other point is worse in one metric, or better "
        "in none."
    )
    table = "\n".join([*legend, text_table(header, lines, width=width)])
    return "\n\n".join([table, paragraph(rule, width=width), sweep_footer(source, width)]) + "\n"
