"""Errors of the state at snapshots: free pages, orders, pageblocks, per-CPU counts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pandas as pd

from pagealloc_model.base.scopes import zone_scope
from pagealloc_model.measured.measured import Measured
from pagealloc_model.predicted.replay import Replay

FROZEN = "nothing changes"
OF_RANGE = "pages, error in share of range"
ErrorRow = dict[str, object]
ZONE = ["node", "zone"]
"""Index levels that name a zone."""


def error_row(
    metric: str,
    scope: str,
    *,
    measured: float,
    predicted: float,
    error: float,
    unit: str,
    null_model: str,
    null: float,
    null_error: float,
    kind: str = "predicted",
) -> ErrorRow:
    """One row of the error table."""
    return {
        "metric": metric,
        "scope": scope,
        "measured": measured,
        "predicted": predicted,
        "error": error,
        "unit": unit,
        "null_model": null_model,
        "null": null,
        "null_error": null_error,
        "kind": kind,
    }


def relative(value: float, reference: float) -> float:
    """(value - reference) / reference; 0 where both are 0, NA where only the reference is."""
    if reference:
        return (value - reference) / reference
    return 0.0 if value == reference else float("nan")


@dataclass(frozen=True, kw_only=True, eq=False)
class Scored:
    """Measured and predicted state at the scored snapshots, and the measured one at the start.

    Each frame is indexed by time and keys: `free` by node, zone, order, migratetype; `blocks` by
    node, zone, migratetype; `listed` by node, zone, cpu.

    Attributes:
        start_ns: the start snapshot, which the null model keeps.
        times: the scored snapshots' times.
        free: columns measured, predicted, null; pages.
        blocks: the same, pageblocks.
        listed: the same, pages on per-CPU lists.
        boosts: the same, pages of watermark boost, indexed by node and zone.
    """

    start_ns: int
    times: np.ndarray
    free: pd.DataFrame
    blocks: pd.DataFrame
    listed: pd.DataFrame
    boosts: pd.DataFrame

    @staticmethod
    def of(measured: Measured, predicted: Replay, *, start_ns: int, end_ns: int) -> Scored:
        """Join both sides at snapshots after `start_ns` and up to `end_ns`."""
        times = np.unique(measured.pcp["time_ns"].to_numpy(np.int64))
        times = times[(times > start_ns) & (times <= end_ns)]

        def joined(name: str, keys: list[str], value: str) -> pd.DataFrame:
            real = getattr(measured, name).set_index(["time_ns", *keys])[value]
            model = getattr(predicted, name).set_index(["time_ns", *keys])[value]
            frame = pd.DataFrame({"measured": real, "predicted": model}).dropna()
            at_start = real[real.index.get_level_values(0) == start_ns].droplevel(0)
            frame = frame[frame.index.get_level_values(0).isin(times)]
            held = at_start.reindex(frame.index.droplevel(0)).to_numpy()
            return frame.assign(null=held)

        return Scored(
            start_ns=start_ns,
            times=times,
            free=joined("free_pages", [*ZONE, "order", "migratetype"], "pages"),
            blocks=joined("pageblocks", [*ZONE, "migratetype"], "blocks"),
            listed=joined("pcp", [*ZONE, "cpu"], "count"),
            boosts=joined("boosts", ZONE, "pages"),
        )

    def scope(self, node: int, zone: str) -> str:
        """A zone as rows name it."""
        return zone_scope(node, zone, self.listed.index.unique("node"))


def state_rows(scored: Scored) -> Iterator[ErrorRow]:
    """Rows for everything that snapshots show; zones in which nothing happened are left out."""
    free = scored.free.groupby(level=["time_ns", *ZONE], sort=False).sum()
    listed = scored.listed.groupby(level=["time_ns", *ZONE], sort=False).sum()
    total = free.add(listed, fill_value=0).groupby(level="time_ns").sum()
    yield from _series("free_and_listed_pages", "all", total, kind="imposed")
    for key in _active_zones(free):
        scope = scored.scope(*key)
        yield from _series("free_pages", scope, free.xs(key, level=ZONE))
        if key in scored.boosts.index.droplevel("time_ns"):
            yield from _series("watermark_boost", scope, scored.boosts.xs(key, level=ZONE))
        yield from _order_rows(scored, key)
        mine = scored.listed.xs(key, level=ZONE)
        for cpu in np.unique(mine.index.get_level_values("cpu")):
            yield from _series("pcp_count", f"{scope},cpu={cpu}", mine.xs(cpu, level="cpu"))
    yield from _block_rows(scored)


def _active_zones(values: pd.DataFrame) -> list[tuple[int, str]]:
    """Nodes and names of zones in which the kernel or the model changed something."""
    moved = (values["measured"] != values["null"]) | (values["predicted"] != values["null"])
    return list(dict.fromkeys(_zones_of(values)[moved]))


def _zones_of(values: pd.DataFrame) -> pd.Index:
    """Node and zone of every row."""
    others = [name for name in values.index.names if name not in ZONE]
    return values.index.droplevel(others)


def _series(
    metric: str, scope: str, values: pd.DataFrame, *, kind: str = "predicted"
) -> Iterator[ErrorRow]:
    """Mean distance over snapshots, as a share of the measured range, start included."""
    if not len(values):
        return
    real = values["measured"]
    spread = max(real.max(), values["null"].max()) - min(real.min(), values["null"].min())
    if not spread:
        return
    yield error_row(
        metric,
        scope,
        measured=float(real.mean()),
        predicted=float(values["predicted"].mean()),
        error=float((values["predicted"] - real).abs().mean() / spread),
        unit=OF_RANGE,
        null_model=FROZEN,
        null=float(values["null"].mean()),
        null_error=float((values["null"] - real).abs().mean() / spread),
        kind=kind,
    )


def _order_rows(scored: Scored, zone: tuple[int, str]) -> Iterator[ErrorRow]:
    """Total variation between distributions of free pages over orders, mean over snapshots."""
    mine = scored.free.xs(zone, level=ZONE)
    by_order = mine.groupby(level=["time_ns", "order"]).sum()
    shares = by_order / by_order.groupby(level="time_ns").transform("sum")
    for column in ("predicted", "null"):
        shares[column] = (shares[column] - shares["measured"]).abs() / 2
    distance = shares.groupby(level="time_ns").sum()
    yield error_row(
        "order_distribution_tv",
        scored.scope(*zone),
        measured=0.0,
        predicted=float(distance["predicted"].mean()),
        error=float(distance["predicted"].mean()),
        unit="total variation",
        null_model=FROZEN,
        null=float(distance["null"].mean()),
        null_error=float(distance["null"].mean()),
    )


def _block_rows(scored: Scored) -> Iterator[ErrorRow]:
    """Change of pageblocks by type from the start to the last snapshot; highatomic as counts."""
    if not len(scored.blocks):
        return
    last = scored.blocks.xs(scored.blocks.index.get_level_values(0).max(), level="time_ns")
    for (node, zone, migratetype), row in last.iterrows():
        scope = scored.scope(node, zone)
        measured, predicted = row["measured"] - row["null"], row["predicted"] - row["null"]
        if migratetype == "HighAtomic" and (row != 0).any():
            yield error_row(
                "highatomic_blocks",
                scope,
                measured=float(row["measured"]),
                predicted=float(row["predicted"]),
                error=relative(row["predicted"], row["measured"]),
                unit="blocks at the end",
                null_model=FROZEN,
                null=float(row["null"]),
                null_error=relative(row["null"], row["measured"]),
            )
        elif measured or predicted:
            yield error_row(
                "pageblocks",
                f"{scope},type={migratetype}",
                measured=float(measured),
                predicted=float(predicted),
                error=relative(predicted, measured),
                unit="change in blocks",
                null_model=FROZEN,
                null=0.0,
                null_error=relative(0.0, measured),
            )


def at_snapshots(scored: Scored) -> pd.DataFrame:
    """Model and kernel side by side at every scored snapshot.

    Returns:
        time_s (after the start snapshot), metric, scope, measured, predicted, null.
    """
    free = scored.free.groupby(level=["time_ns", *ZONE], sort=False).sum()
    listed = scored.listed.groupby(level=["time_ns", *ZONE], sort=False).sum()
    reserved = scored.blocks[
        scored.blocks.index.get_level_values("migratetype") == "HighAtomic"
    ].droplevel("migratetype")
    frames = []
    for metric, values in (
        ("free_pages", free),
        ("pcp_count", listed),
        ("highatomic_blocks", reserved),
        ("watermark_boost", scored.boosts),
    ):
        kept = values[_zones_of(values).isin(_active_zones(values))].reset_index()
        kept["scope"] = [
            scored.scope(node, zone) for node, zone in zip(kept["node"], kept["zone"], strict=True)
        ]
        frames.append(kept.assign(metric=metric))
    table = pd.concat(frames, ignore_index=True)
    table["time_s"] = (table["time_ns"] - scored.start_ns) / 1e9
    return table[["time_s", "metric", "scope", "measured", "predicted", "null"]]
