"""Guests under `defrag=defer`, beside what recordings under `madvise` foretell of them.

The sides of the plan idle_reserve that have `defer` were run later, on another host, and of their
recordings the snapshots alone were kept. So each prediction is made from recordings of guests under
`madvise`.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from pagealloc_model.numbers.statistics import change_interval, verdict

MEASURED, PREDICTED = "measured", "predicted"
MADVISE, DEFER = "madvise", "defer"
GATE_ORDER = 3
QUANTITIES = {
    "thp_success": "THP success",
    "kcompactd_scanned": "compact_daemon_migrate_scanned",
    "kswapd_scanned": "pgscan_kswapd",
}
"""Columns, and what the replays call them."""
Side = tuple[str, int]
"""`defrag`, and the gate's order."""
PAIRS: tuple[tuple[Side, Side], ...] = (
    ((MADVISE, 0), (DEFER, 0)),
    ((MADVISE, GATE_ORDER), (DEFER, GATE_ORDER)),
    ((DEFER, 0), (DEFER, GATE_ORDER)),
)


def defer_changes(table: pd.DataFrame) -> pd.DataFrame:
    """Measured changes with their intervals, beside predicted ones; the null model has none.

    The predicted change is that between two replays of one recording under `madvise`, averaged over
    recordings. Where the gate changes too, these are of guests without it.
    """
    rows = []
    for before, after in PAIRS:
        for name in QUANTITIES:
            sides = [_values(table, MEASURED, side, side[1], name) for side in (before, after)]
            start, end = (
                _values(table, PREDICTED, side, before[1], name) for side in (before, after)
            )
            changes = (end - start).to_numpy()
            low, high = change_interval(*(side.to_list() for side in sides))
            mean = float(np.mean(changes))
            rows.append(
                {"pair": f"{_words(before)} -> {_words(after)}", "quantity": name}
                | {"runs_before": len(sides[0]), "runs_after": len(sides[1])}
                | {"before": sides[0].mean(), "change": sides[1].mean() - sides[0].mean()}
                | {"low": low, "high": high, "predicted": mean}
                | {"predicted_lowest": changes.min(), "predicted_highest": changes.max()}
                | {"verdict": verdict(mean, low, high)}
            )
    return pd.DataFrame(rows)


def _values(table: pd.DataFrame, kind: str, side: Side, from_gate: int, name: str) -> pd.Series:
    """Return a quantity by run."""
    chosen = (table["kind"] == kind) & (table["defrag"] == side[0]) & (table["gate"] == side[1])
    return table[chosen & (table["from_gate"] == from_gate)].set_index("run")[name]


def _words(side: Side) -> str:
    return f"{side[0]}, gate {side[1]}"
