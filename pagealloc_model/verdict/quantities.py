"""What of a recording and of a replay is set side by side, one number each, the same of both."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from pagealloc_model.allocator import pressure_layout
from pagealloc_model.measured.measured import Measured, measure
from pagealloc_model.predicted.replay import Replay
from pagealloc_model.recording.trace.columns import EVENT_NAMES, Event

if TYPE_CHECKING:
    from pagealloc_model.recording.recording import Recording

TYPES = ("Unmovable", "Movable", "Reclaimable", "HighAtomic")
NEVER = float("inf")
ADDED = "HighAtomic blocks added"
FILL = "time to fill"
PART_UNITS = {
    ADDED: "blocks",
    FILL: "s",
    "wholly free HighAtomic blocks": "blocks",
    "HighAtomic pages in crumbs": "pages",
    **{f"free {name} pages": "pages" for name in TYPES},
    "THP success": "share",
    "extfrag events": "per s",
}
"""Quantities of any part of a recording, with units."""

COUNTERS = tuple(
    name for name in pressure_layout.COUNTER_NAMES if name not in ("oom_kill", "pgdeactivate")
)
"""Counters of vmstat that an elastic replay has; the sum of allocstall_* comes with them."""

WHOLE_UNITS = {
    "free pages": "pages",
    **{f"free {name} pages": "pages" for name in TYPES},
    "free pages in whole blocks": "pages",
    "pages on per-CPU lists": "pages",
    ADDED: "blocks",
    "Unmovable blocks added": "blocks",
    "refills": "holds",
    "drains": "holds",
    "pages of a refill": "pages",
    "pages of a drain": "pages",
    "longest drain": "pages",
    "fallbacks": "events",
    "THP success": "share",
    **{name: "" for name in (*COUNTERS, "allocstall")},
}
"""Quantities of a whole run, with units; free memory and lists are means over its snapshots."""

Window = tuple[int, int]
"""Nanoseconds on the recording's clock, both ends included."""


def part_quantities(
    tables: Measured | Replay, window: Window, extfrag: int, block_order: int
) -> dict[str, float]:
    """The quantities of `PART_UNITS`.

    Args:
        tables: of a recording or a replay.
        window: the part.
        extfrag: fallbacks in it.
        block_order: order of a pageblock.
    """
    low, high = window
    blocks = _blocks(tables.pageblocks, "HighAtomic", window)
    free = _within(tables.free_pages, window)
    per_type = _free_by_type(free)
    reserve = free[free["migratetype"] == "HighAtomic"]
    last = reserve[reserve["time_ns"] == reserve["time_ns"].max()]
    is_whole = last["order"] >= block_order
    whole_pages = float(last.loc[is_whole, "pages"].sum())
    return {
        ADDED: float(blocks.iloc[-1] - blocks.iloc[0]),
        FILL: time_to_fill(blocks, low),
        "wholly free HighAtomic blocks": whole_pages / (1 << block_order),
        "HighAtomic pages in crumbs": float(last["pages"].sum()) - whole_pages,
        **per_type,
        "THP success": _thp_success(_counter_changes(tables.vmstat, window)),
        "extfrag events": extfrag / ((high - low) / 1e9),
    }


def recorded_quantities(recording: Recording) -> dict[str, float]:
    """The quantities of `WHOLE_UNITS` as they were measured; NaN where nothing recorded shows one.

    Raises:
        RecordingError: a file of the recording cannot be read.
    """
    measured = measure(recording)
    window = recording.trace.demand_span_ns
    types = (each.pagetypeinfo for each in recording.dated_snapshots if each.pagetypeinfo)
    order = next((each.pageblock_order for each in types), 9)
    found = _whole_quantities(measured, window, order)
    changes = _counter_changes(measured.vmstat, _around(measured.vmstat, window))
    found |= _counter_quantities(changes)
    for name, event in (
        ("fallbacks", Event.EXTFRAG),
        ("refills", Event.ZONE_LOCKED),
        ("pages of a refill", Event.ZONE_LOCKED),
        ("drains", Event.PCPU_DRAIN),
        ("pages of a drain", Event.PCPU_DRAIN),
        ("longest drain", Event.PCPU_DRAIN),
    ):
        if not was_recorded(recording, event):
            found[name] = float("nan")
    return found


def predicted_quantities(recording: Recording, predicted: Replay) -> dict[str, float]:
    """The quantities of `WHOLE_UNITS` as a replay has them, at the recording's snapshots.

    Args:
        recording: what was replayed.
        predicted: the replay.
    """
    instants = [each.time_ns for each in recording.dated_snapshots]
    window = recording.trace.demand_span_ns
    order = predicted.machine.pageblock_order
    return _whole_quantities(predicted, window, order, np.array(instants))


def _whole_quantities(
    tables: Measured | Replay,
    window: Window,
    block_order: int,
    instants: np.ndarray | None = None,
) -> dict[str, float]:
    """The quantities of `WHOLE_UNITS`; means are over these instants, None for all."""
    free = _at(_within(tables.free_pages, window), instants)
    lists = _at(_within(tables.pcp, window), instants)
    whole = free[free["order"] >= block_order]
    added = {name: _blocks(tables.pageblocks, name, window) for name in ("HighAtomic", "Unmovable")}
    return {
        "free pages": _mean_over_time(free, "pages"),
        **_free_by_type(free),
        "free pages in whole blocks": _mean_over_time(whole, "pages", like=free),
        "pages on per-CPU lists": _mean_over_time(lists, "count"),
        **{
            f"{name} blocks added": float(each.iloc[-1] - each.iloc[0]) if len(each) else np.nan
            for name, each in added.items()
        },
        **_transaction_quantities(tables.transactions_full),
        "fallbacks": float(tables.fallbacks["count"].sum()),
        **_counter_quantities(_counter_changes(tables.vmstat, window)),
    }


def _counter_quantities(changes: Mapping[str, float]) -> dict[str, float]:
    stalls = [value for name, value in changes.items() if name.startswith("allocstall")]
    return {
        "THP success": _thp_success(changes),
        **{name: changes.get(name, np.nan) for name in COUNTERS},
        "allocstall": float(np.sum(stalls)) if stalls else np.nan,
    }


def _transaction_quantities(transactions: pd.DataFrame) -> dict[str, float]:
    """Holds of zone->lock; sizes are of those whose pages are known."""
    refills, drains = (
        transactions.loc[transactions["site"] == site, "pages"].astype("Float64")
        for site in ("refill", "drain")
    )
    return {
        "refills": float(len(refills)),
        "drains": float(len(drains)),
        "pages of a refill": _known(refills.mean()),
        "pages of a drain": _known(drains.mean()),
        "longest drain": _known(drains.max()) if len(drains) else 0.0,
    }


def _known(value: object) -> float:
    return float("nan") if pd.isna(value) else float(value)  # type: ignore[arg-type]


def _within(table: pd.DataFrame, window: Window) -> pd.DataFrame:
    return table[table["time_ns"].between(*window)]


def _at(table: pd.DataFrame, instants: np.ndarray | None) -> pd.DataFrame:
    return table if instants is None else table[table["time_ns"].isin(instants)]


def _mean_over_time(table: pd.DataFrame, column: str, like: pd.DataFrame | None = None) -> float:
    """Mean over the times of a table, or of another one, of a column's sum at each."""
    times = (table if like is None else like)["time_ns"].nunique()
    return float(table[column].sum()) / times if times else float("nan")


def _free_by_type(free: pd.DataFrame) -> dict[str, float]:
    per_type = free.groupby(["time_ns", "migratetype"])["pages"].sum().unstack().mean()
    return {f"free {name} pages": float(per_type.get(name, 0.0)) for name in TYPES}


def _blocks(pageblocks: pd.DataFrame, migratetype: str, window: Window) -> pd.Series:
    """Blocks of a type in all zones by time, from the last sample before the window on."""
    low, high = window
    mine = pageblocks[pageblocks["migratetype"] == migratetype]
    series = mine.groupby("time_ns")["blocks"].sum().astype(float)
    before = series.index[series.index <= low]
    return series.loc[before[-1] if len(before) else low : high]


def time_to_fill(blocks: pd.Series, start_ns: int) -> float:
    """Seconds until the reserve has the most blocks that it gets; infinite if it never grows.

    Args:
        blocks: its blocks by time in ns, the first one before the start.
        start_ns: where to count from.
    """
    most = blocks.max()
    if most <= blocks.iloc[0]:
        return NEVER
    return float(blocks.index[blocks == most][0] - start_ns) / 1e9


def _around(vmstat: pd.DataFrame, window: Window) -> Window:
    """The window from the last sample before it to the first one after it."""
    times = np.unique(vmstat["time_ns"].to_numpy(np.int64))
    before, after = times[times <= window[0]], times[times >= window[1]]
    return (
        int(before[-1]) if len(before) else window[0],
        int(after[0]) if len(after) else window[1],
    )


def _counter_changes(vmstat: pd.DataFrame, window: Window) -> dict[str, float]:
    """Change of each counter between the first and the last sample in the window."""
    inside = _within(vmstat, window)
    values = inside.groupby("name")["value"].agg(["first", "last"]).astype(float)
    return (values["last"] - values["first"]).to_dict()


def _thp_success(changes: Mapping[str, float]) -> float:
    served = changes.get("thp_fault_alloc", np.nan)
    tried = served + changes.get("thp_fault_fallback", np.nan)
    return float(served / tried) if tried else float("nan")


def was_recorded(recording: Recording, event: Event) -> bool:
    """Whether an event's absence means that it did not happen: the recorder was asked for it."""
    names = [name for name, number in EVENT_NAMES.items() if number == event]
    asked = recording.meta.get("perf") or ()
    return recording.trace.count(event) > 0 or any(name in asked for name in names)
