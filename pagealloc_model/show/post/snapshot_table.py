"""Model and kernel side by side at every snapshot, as text for a mail or a terminal."""

from __future__ import annotations

import pandas as pd

from pagealloc_model.base.text.layout import WIDTH, Row, ascii_only, number, text_table


def snapshot_table(snapshots: pd.DataFrame, *, width: int = WIDTH) -> str:
    """Measured, predicted and null values at every snapshot of one validation.

    Args:
        snapshots: columns time_s, metric, scope, measured, predicted, null.
        width: characters per line at most.
    """
    rows = [
        Row(
            heading=ascii_only(f"{row.metric}, {row.scope}"),
            label=f"{row.time_s:.2f} s",
            cells=(number(row.measured), number(row.predicted), number(row.null)),
        )
        for row in snapshots.itertuples()
    ]
    header = Row(heading="metric", label="time", cells=("measured", "predicted", "nothing changes"))
    return f"{text_table(header, rows, width=width)}\n"
