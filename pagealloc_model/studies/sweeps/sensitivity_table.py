"""How far each field moves a metric, as text for a mail."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pandas as pd

from pagealloc_model.base.text.layout import WIDTH, Row, ascii_only, number, paragraph, text_table
from pagealloc_model.studies.sweeps.sweep_table import sweep_footer

if TYPE_CHECKING:
    from pagealloc_model.studies.sweeps.metrics import Metric

RULE = (
    "One field at a time, the others as in the base; swing: highest - lowest, the base included; "
    "means over recordings and seeds."
)


def sensitivity_table(
    summary: pd.DataFrame, metric: Metric, source: pd.DataFrame, *, width: int = WIDTH
) -> str:
    """One line a field, the one that matters most first.

    Args:
        summary: axis, base, lowest, lowest_at, highest, highest_at, swing.
        metric: what moves.
        source: the sweep's rows, for the footer.
        width: characters per line at most.
    """
    lines = [
        Row(
            heading=ascii_only(row.axis),
            label=f"{_at(row.lowest_at)} .. {_at(row.highest_at)}",
            cells=(number(row.lowest), number(row.highest), number(row.swing)),
        )
        for row in summary.itertuples()
    ]
    header = Row(heading="field", label="at .. at", cells=("lowest", "highest", "swing"))
    base = number(summary["base"].iloc[0])
    title = paragraph(f"{metric.title}: {metric.meaning}. Base: {base}.", width=width)
    table = text_table(header, lines, width=width)
    return "\n\n".join(
        [title, table, paragraph(RULE, width=width), sweep_footer(source, width)]
    ) + ("\n")


def _at(value: object) -> str:
    if isinstance(value, str):
        return ascii_only(value)
    return "as recorded" if pd.isna(value) else str(int(value))  # type: ignore[call-overload]
