"""What only an elastic replay knows: huge pages, reclaim, compaction, stalls and failures.

Rows have the names of vmstat, and MMTESTS says what mmtests calls them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
import pandas as pd

from pagealloc_model.predicted.replay import Replay
from pagealloc_model.verdict.quantity import WINDOWS, Direction, Quantity

RATES: dict[str, tuple[str, tuple[str, ...], tuple[str, ...]]] = {
    "thp_success": ("all", ("thp_fault_alloc",), ("thp_fault_alloc", "thp_fault_fallback")),
    "compaction_success": ("all", ("compact_success",), ("compact_stall",)),
    "reclaim_efficiency kswapd": ("kswapd", ("pgsteal_kswapd",), ("pgscan_kswapd",)),
    "reclaim_efficiency direct": ("direct", ("pgsteal_direct",), ("pgscan_direct",)),
}
"""Shares: scope, counters above the line, counters below it; the metric is the first word."""
TOTALS: dict[str, tuple[str, tuple[str, ...], str, Direction]] = {
    "reclaim_scanned": ("all", ("pgscan_kswapd", "pgscan_direct"), "pages", "lower"),
    "reclaim_scanned kswapd": ("kswapd", ("pgscan_kswapd",), "pages", "lower"),
    "reclaim_scanned direct": ("direct", ("pgscan_direct",), "pages", "lower"),
    "reclaimed kswapd": ("kswapd", ("pgsteal_kswapd",), "pages", ""),
    "reclaimed direct": ("direct", ("pgsteal_direct",), "pages", "lower"),
    "compact_stall": ("all", ("compact_stall",), "events", "lower"),
    "compact_success": ("all", ("compact_success",), "events", "higher"),
    "compact_fail": ("all", ("compact_fail",), "events", "lower"),
    "thp_fault_alloc": ("all", ("thp_fault_alloc",), "events", "higher"),
    "thp_fault_fallback": ("all", ("thp_fault_fallback",), "events", "lower"),
}
ALLOCSTALL = "allocstall"
FAILED = "failed_allocations"
MMTESTS = {
    ("reclaim_scanned", "kswapd"): "Kswapd pages scanned",
    ("reclaim_scanned", "direct"): "Direct pages scanned",
    ("reclaimed", "kswapd"): "Kswapd pages reclaimed",
    ("reclaimed", "direct"): "Direct pages reclaimed",
    ("reclaim_efficiency", "kswapd"): "Kswapd efficiency",
    ("reclaim_efficiency", "direct"): "Direct efficiency",
    ("allocstall", "all"): "Allocation stalls",
    ("compact_stall", "all"): "Compaction stalls",
    ("compact_success", "all"): "Compaction success",
    ("compact_fail", "all"): "Compaction failures",
    ("thp_fault_alloc", "all"): "THP fault alloc",
    ("thp_fault_fallback", "all"): "THP fault fallback",
}
"""mmtests' names by metric and scope."""


def pressure_metrics(replay: Replay, edges: np.ndarray) -> Iterator[Quantity]:
    """Rates and totals of an elastic replay; of a literal one all are unknown.

    Args:
        replay: the replay.
        edges: of the windows.
    """
    if replay.assumptions.reclaim != "elastic":
        for metric, scope, unit, better in _names():
            yield _made(metric, scope, unit, better, float("nan"))
        yield _made(FAILED, "all", "requests", "lower", float("nan"))
        return
    added = counters_by_window(replay.vmstat, edges)
    yield from counter_quantities(added)
    table = replay.outcomes
    for order, failed in zip(table["order"], table["failed"], strict=True):
        yield _made(FAILED, f"order={order}", "requests", "lower", float(failed), how="count")


def counter_quantities(added: Mapping[str, np.ndarray]) -> Iterator[Quantity]:
    """Rates and totals from counters.

    Args:
        added: by counter, what each window adds, float, shape (windows,).
    """
    for name, (scope, above, below) in RATES.items():
        parts, per = _sum(added, above), _sum(added, below)
        whole = float(per.sum())
        value = float(parts.sum()) / whole if whole else float("nan")
        metric = name.partition(" ")[0]
        yield _made(metric, scope, "share", "higher", value, how="ratio", parts=parts, per=per)
    for name, (scope, counters, unit, better) in TOTALS.items():
        parts = _sum(added, counters)
        metric = name.partition(" ")[0]
        yield _made(metric, scope, unit, better, float(parts.sum()), how="sum", parts=parts)
    stalls = _sum(added, tuple(name for name in added if name.startswith(ALLOCSTALL)))
    yield _made(ALLOCSTALL, "all", "events", "lower", float(stalls.sum()), how="sum", parts=stalls)


def counters_by_window(vmstat: pd.DataFrame, edges: np.ndarray) -> dict[str, np.ndarray]:
    """Return what each window adds to each counter.

    Args:
        vmstat: name, time_ns and value of growing counters.
        edges: of the windows.
    """
    table = vmstat.pivot_table(index="time_ns", columns="name", values="value", aggfunc="last")
    times = table.index.to_numpy(float)
    return {
        str(name): np.diff(np.interp(edges, times, table[name].to_numpy(float)))
        for name in table.columns
    }


def _names() -> Iterator[tuple[str, str, str, Direction]]:
    for name, (scope, _, _) in RATES.items():
        yield name.partition(" ")[0], scope, "share", "higher"
    for name, (scope, _, unit, better) in TOTALS.items():
        yield name.partition(" ")[0], scope, unit, better
    yield ALLOCSTALL, "all", "events", "lower"


def _sum(added: Mapping[str, np.ndarray], names: tuple[str, ...]) -> np.ndarray:
    known = [added[name] for name in names if name in added]
    return np.sum(known, axis=0) if known else np.full(WINDOWS, np.nan)


def _made(
    metric: str,
    scope: str,
    unit: str,
    better: Direction,
    value: float,
    how: str = "last",
    parts: np.ndarray | None = None,
    per: np.ndarray | None = None,
) -> Quantity:
    nothing = np.zeros(0)
    return Quantity(
        metric=metric,
        scope=scope,
        unit=unit,
        better=better,
        value=value,
        how=how,  # type: ignore[arg-type]
        parts=nothing if parts is None else parts,
        per=nothing if per is None else per,
    )
