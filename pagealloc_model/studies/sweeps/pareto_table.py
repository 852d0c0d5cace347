"""Points that none beats in two metrics, as text for a mail."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import pandas as pd

from pagealloc_model.base.text.layout import WIDTH, Row, ascii_only, number, paragraph, text_table
from pagealloc_model.studies.sweeps.sweep_table import point_words, sweep_footer

if TYPE_CHECKING:
    from pagealloc_model.studies.sweeps.metrics import Metric


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
