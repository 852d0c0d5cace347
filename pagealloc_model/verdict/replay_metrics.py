"""What a comparison says of a replay, one number each, with its parts by window."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pandas as pd

from pagealloc_model.base.scopes import zone_scope
from pagealloc_model.predicted.replay import Replay
from pagealloc_model.predicted.tables import EMPTY_SITES
from pagealloc_model.verdict.pressure_metrics import pressure_metrics
from pagealloc_model.verdict.quantity import WINDOWS, Direction, Quantity

SITES = ("refill", "drain", "buddy_alloc", "direct_free")
SHARES = {"p50": 0.5, "p99": 0.99, "max": 1.0}
STEALS = ("steal",)


def replay_metrics(replay: Replay) -> Iterator[Quantity]:
    """All metrics of a replay; two of one recording and window have the same windows."""
    edges = np.linspace(replay.edges[0], replay.edges[-1], WINDOWS + 1)
    yield from _lock_metrics(replay, edges)
    yield from _state_metrics(replay, edges)
    yield from _list_metrics(replay, edges)
    yield from _fallback_metrics(replay)
    yield from _hold_times(replay, edges)
    yield from pressure_metrics(replay, edges)


def by_window(time_ns: np.ndarray, edges: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Return sums of values by window, float, shape (windows,).

    Args:
        time_ns: of each value.
        edges: of the windows, one more than those.
        values: same length as the times.
    """
    place = np.clip(np.searchsorted(edges, time_ns, "right") - 1, 0, WINDOWS - 1)
    return np.bincount(place, weights=values, minlength=WINDOWS)


def _quantity(metric: str, scope: str, unit: str, better: Direction, parts: np.ndarray) -> Quantity:
    """A total."""
    return Quantity(
        metric=metric,
        scope=scope,
        unit=unit,
        better=better,
        value=float(parts.sum()),
        how="sum",
        parts=parts,
    )


def _ratio(
    metric: str, scope: str, unit: str, better: Direction, parts: np.ndarray, per: np.ndarray
) -> Quantity:
    whole = float(per.sum())
    return Quantity(
        metric=metric,
        scope=scope,
        unit=unit,
        better=better,
        value=float(parts.sum()) / whole if whole else float("nan"),
        how="ratio",
        parts=parts,
        per=per,
    )


def _lock_metrics(replay: Replay, edges: np.ndarray) -> Iterator[Quantity]:
    full = replay.transactions_full
    time_ns, pages = full["time_ns"].to_numpy(), full["pages"].to_numpy(float)
    site = full["site"].to_numpy(object)
    holds = by_window(time_ns, edges, np.ones(len(full)))
    found = ~np.isin(site, EMPTY_SITES)
    moved = by_window(time_ns, edges, pages)
    holding = by_window(time_ns[found], edges, np.ones(int(found.sum())))
    yield _quantity("zone_lock_acquisitions", "all", "", "lower", holds)
    yield _ratio("pages_per_acquisition", "all", "pages", "", moved, holding)
    for name in SITES:
        mine = site == name
        times = time_ns[mine]
        count = by_window(times, edges, np.ones(len(times)))
        yield _quantity(f"{name}_transactions", "all", "", "lower", count)
        sums = by_window(times, edges, pages[mine])
        yield _quantity(f"{name}_pages", "all", "pages", "", sums)
    for name in EMPTY_SITES:
        times = time_ns[site == name]
        count = by_window(times, edges, np.ones(len(times)))
        yield _quantity(f"{name}_transactions", "all", "", "lower", count)
    yield _longest(time_ns[site == "drain"], pages[site == "drain"], edges)
    for name in ("refill", "drain"):
        mine = site == name
        metric = f"pages_per_{name}"
        yield from _quantiles(metric, "pages", time_ns[mine], pages[mine], edges)


def _longest(time_ns: np.ndarray, pages: np.ndarray, edges: np.ndarray) -> Quantity:
    most = np.zeros(WINDOWS)
    place = np.clip(np.searchsorted(edges, time_ns, "right") - 1, 0, WINDOWS - 1)
    np.maximum.at(most, place, pages)
    return Quantity(
        metric="longest_drain",
        scope="all",
        unit="pages",
        better="lower",
        value=float(most.max()),
        how="most",
        parts=most,
    )


def _quantiles(
    metric: str, unit: str, time_ns: np.ndarray, values: np.ndarray, edges: np.ndarray
) -> Iterator[Quantity]:
    """Median, 99th percentile and maximum."""
    levels, place = np.unique(values, return_inverse=True)
    counts = np.zeros((WINDOWS, len(levels)))
    window = np.clip(np.searchsorted(edges, time_ns, "right") - 1, 0, WINDOWS - 1)
    np.add.at(counts, (window, place), 1)
    for name, share in SHARES.items():
        quantity = Quantity(
            metric=metric,
            scope=f"at={name}",
            unit=unit,
            better="" if name == "p50" else "lower",
            value=float("nan"),
            how="quantile",
            parts=counts,
            levels=levels,
            share=share,
        )
        value = float(quantity.resampled(np.ones((1, WINDOWS), np.int64))[0])
        yield replace(quantity, value=value)


def _hold_times(replay: Replay, edges: np.ndarray) -> Iterator[Quantity]:
    """Lengths of holds of zone->lock, by the costs of this recording."""
    table = replay.lock_times().acquisitions
    time_ns, held = table["start_ns"].to_numpy(), table["hold_ns"].to_numpy(float)
    # Three digits are more than the costs have, and keep the number of levels small.
    digits = 10.0 ** np.maximum(np.floor(np.log10(np.maximum(held, 1.0))) - 2, 0)
    yield from _quantiles("hold_time", "ns", time_ns, np.round(held / digits) * digits, edges)


def _state_metrics(replay: Replay, edges: np.ndarray) -> Iterator[Quantity]:
    machine, samples = replay.machine, replay.samples
    order = machine.pageblock_order
    weights = 1 << np.arange(samples.free_buddies.shape[2], dtype=np.int64)
    times = samples.time_ns
    number = by_window(times, edges, np.ones(len(times)))
    for index, zone in enumerate(machine.zones):
        if not zone.managed:
            continue
        scope = zone_scope(zone.node, zone.name, machine.nodes)
        pages = samples.free_buddies[:, index] * weights[None, :, None]
        means: dict[str, tuple[np.ndarray, Direction]] = {
            "free_pages": (pages.sum(axis=(1, 2)), ""),
            "free_in_whole_blocks": (pages[:, order:].sum(axis=(1, 2)), "higher"),
            "free_in_whole_blocks_not_highatomic": (
                pages[:, order:, :3].sum(axis=(1, 2)),
                "higher",
            ),
            "pcp_count": (samples.pcp[:, index, :, 0].sum(axis=1), ""),
        }
        for metric, (values, better) in means.items():
            sums = by_window(times, edges, values)
            yield _ratio(metric, scope, "pages", better, sums, number)
        blocks = samples.blocks[:, index, 3]
        for at, value in (("end", blocks[-1]), ("most", blocks.max())):
            yield Quantity(
                metric="highatomic_blocks",
                scope=f"{scope},at={at}",
                unit="blocks",
                better="lower",
                value=float(value),
                how="last",
            )


def _list_metrics(replay: Replay, edges: np.ndarray) -> Iterator[Quantity]:
    """pcp->lock and remote frees; a kernel build counts neither."""
    totals = replay.list_use.groupby("time_ns").sum(min_count=1)
    for metric, column in (
        ("pcp_lock_acquisitions", "lock_acquisitions"),
        ("pcp_lock_hand_overs", "lock_hand_overs"),
        ("remote_frees", "remote_frees"),
    ):
        last = totals[column].iloc[-1]
        if replay.kernel or pd.isna(last):
            yield unknown(metric, "all", "", "lower")
            continue
        parts = by_window_of_total(totals.index.to_numpy(), totals[column].to_numpy(float), edges)
        # What came before the replayed window is in the total, too.
        parts[0] += float(last) - parts.sum()
        yield _quantity(metric, "all", "", "lower", parts)


def by_window_of_total(time_ns: np.ndarray, total: np.ndarray, edges: np.ndarray) -> np.ndarray:
    """Return how much of a growing total each window adds."""
    return np.diff(np.interp(edges, time_ns, total))


def unknown(metric: str, scope: str, unit: str, better: Direction) -> Quantity:
    """A metric that this replay cannot know."""
    return Quantity(
        metric=metric, scope=scope, unit=unit, better=better, value=float("nan"), how="last"
    )


def _fallback_metrics(replay: Replay) -> Iterator[Quantity]:
    """Fallbacks, and by pair of types: whole claims of a block apart from stolen pages."""
    table = replay.fallbacks
    yield _counted("extfrag_events", "all", float(table["count"].sum()))
    stolen = table["kind"].isin(STEALS)
    for metric, mine in (("fallback_claims", table[~stolen]), ("fallback_steals", table[stolen])):
        pairs = mine.groupby(["alloc_migratetype", "fallback_migratetype"])["count"].sum()
        for (wanted, found), count in pairs.items():
            yield _counted(metric, f"{wanted} from {found}", float(count))


def _counted(metric: str, scope: str, value: float) -> Quantity:
    return Quantity(
        metric=metric, scope=scope, unit="events", better="lower", value=value, how="count"
    )
