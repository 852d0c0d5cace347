"""One replay beside what was measured: free memory, lists, reserve, fallbacks, zone->lock."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from pagealloc_model.show.figures.faceted import (
    FOOTER_HEIGHT,
    HEADER_HEIGHT,
    INK,
    MIGRATETYPES,
    PREDICTION_COLOURS,
    TIME_AXIS,
    Drawing,
    FigureFunction,
    Lane,
    PanelGrid,
    Tables,
    common_origin,
    count_trace,
    in_zone,
    keys_seen,
    lanes,
    line_trace,
    migratetype_colour,
    missing_words,
    order_colour,
    reason_of,
    site_colour,
    small_multiples,
    with_table,
    zone_words,
)

PAGES = "free pages (4 KiB)"


@FigureFunction
def free_pages_by_order(measured: Tables, predicted: Tables, zone: str | None = None) -> Drawing:
    """Free pages in buddies of each order over time, one panel per order (S5).

    Args:
        measured: `free_pages` table or tables by label.
        predicted: the same from replays.
        zone: such as "Normal"; None adds up all zones.
    """
    drawn = in_zone(lanes(measured, predicted), zone)
    orders = keys_seen(drawn, "order")
    return small_multiples(
        drawn,
        keys=orders,
        key_column="order",
        value="pages",
        panel_title=lambda order: f"order {order}",
        colour=order_colour,
        title=f"Free pages by order, {zone_words(zone)}",
        y_title=PAGES,
        columns=4,
    ).drawing()


@FigureFunction
def free_pages_by_migratetype(
    measured: Tables, predicted: Tables, zone: str | None = None
) -> Drawing:
    """Free pages on the lists of each migratetype over time (S1.3).

    Args:
        measured: `free_pages` table or tables by label.
        predicted: the same from replays.
        zone: such as "Normal"; None adds up all zones.
    """
    drawn = in_zone(lanes(measured, predicted), zone)
    return small_multiples(
        drawn,
        keys=_migratetypes_seen(drawn, "pages"),
        key_column="migratetype",
        value="pages",
        panel_title=str,
        colour=migratetype_colour,
        title=f"Free pages by migratetype, {zone_words(zone)}",
        y_title=PAGES,
        columns=4,
    ).drawing()


@FigureFunction
def pageblocks_by_type(measured: Tables, predicted: Tables, zone: str | None = None) -> Drawing:
    """Pageblocks of each migratetype over time, as /proc/pagetypeinfo counts them.

    Args:
        measured: `pageblocks` table or tables by label.
        predicted: the same from replays.
        zone: such as "Normal"; None adds up all zones.
    """
    drawn = in_zone(lanes(measured, predicted), zone)
    return small_multiples(
        drawn,
        keys=_migratetypes_seen(drawn, "blocks"),
        key_column="migratetype",
        value="blocks",
        panel_title=str,
        colour=migratetype_colour,
        title=f"Pageblocks by migratetype, {zone_words(zone)}",
        y_title="pageblocks",
        columns=4,
    ).drawing()


def _migratetypes_seen(drawn: Sequence[Lane], value: str) -> list[str]:
    """Migratetypes that ever hold anything, in the kernel's order."""
    seen = set()
    for lane in drawn:
        if "migratetype" in lane.table:
            held = lane.table["migratetype"][lane.table[value].fillna(0) > 0]
            seen |= set(held.unique())
    return [name for name in MIGRATETYPES if name in seen]


CPU_PANELS = 8
"""Per-CPU panels up to this many; on larger machines the CPUs of a zone are added up."""


@FigureFunction
def pcp_counts(measured: Tables, predicted: Tables, zone: str | None = None) -> Drawing:
    """Pages on per-CPU lists (`pcp->count`) over time, per zone and CPU (S4.1).

    Machines with more than `CPU_PANELS` lists get one panel per zone with all CPUs added up.

    Args:
        measured: `pcp` table or tables by label.
        predicted: the same from replays.
        zone: such as "Normal"; None shows every zone that ever held a page.
    """
    drawn = [_with_list_names(lane) for lane in in_zone(lanes(measured, predicted), zone)]
    names = _lists_in_use(drawn)
    if len(names) > CPU_PANELS:
        drawn = [
            with_table(lane, lane.table.assign(list_name=_all_cpus(lane.table))) for lane in drawn
        ]
        names = _lists_in_use(drawn)
    colours = {name: PREDICTION_COLOURS[i % 4] for i, name in enumerate(names)}
    return small_multiples(
        drawn,
        keys=names,
        key_column="list_name",
        value="count",
        panel_title=str,
        colour=lambda name: colours.get(name, INK),
        title=f"Pages on per-CPU lists (pcp->count), {zone_words(zone)}",
        y_title="pages (4 KiB)",
        columns=2,
    ).drawing()


def _with_list_names(lane: Lane) -> Lane:
    table = lane.table
    if table.empty:
        return lane
    names = _zone_names(table) + ", CPU " + table["cpu"].astype(str)
    return with_table(lane, table.assign(list_name=names))


def _all_cpus(table: pd.DataFrame) -> pd.Series:
    return _zone_names(table) + ", all CPUs"


def _zone_names(table: pd.DataFrame) -> pd.Series:
    """Zone of each row, its node added where there are several."""
    names = table["zone"].astype(str)
    if table["node"].nunique() > 1:
        names = "node " + table["node"].astype(str) + ", " + names
    return names


def _lists_in_use(drawn: Sequence[Lane]) -> list[str]:
    """Per-CPU lists that ever held a page, by zone and CPU."""
    first_seen: dict[str, tuple[str, int]] = {}
    for lane in drawn:
        if "list_name" not in lane.table:
            continue
        names = lane.table["list_name"][lane.table["count"].fillna(0) > 0].drop_duplicates()
        held = lane.table.loc[names.index]
        for name, zone, cpu in zip(names, held["zone"], held["cpu"], strict=True):
            first_seen.setdefault(str(name), (str(zone), int(cpu)))
    return sorted(first_seen, key=lambda name: first_seen[name])


ALL_ZONES = "all zones"
POSTED_QUANTITY = "HighAtomic pageblocks per host"


@FigureFunction
def highatomic_blocks(
    measured: Tables, predicted: Tables, posted: pd.DataFrame | None = None
) -> Drawing:
    """HighAtomic pageblocks at every snapshot, one panel per zone and one for their sum.

    Tables of different recordings need `time_s`: see `since_start`.

    Args:
        measured: `pageblocks` table or tables by label (one per recording).
        predicted: the same from replays (one per policy).
        posted: the posted figures (`posted_figures`); written below the panels, since they come
            from machines of another size.
    """
    drawn = [_reserve_by_zone(lane) for lane in lanes(measured, predicted)]
    zones = [zone for zone in keys_seen(drawn, "zone") if zone != ALL_ZONES and _used(drawn, zone)]
    grid = small_multiples(
        drawn,
        keys=[*zones, ALL_ZONES],
        key_column="zone",
        value="blocks",
        panel_title=lambda zone: zone if zone == ALL_ZONES else f"zone {zone}",
        colour=lambda _: INK,
        title="HighAtomic pageblocks",
        y_title="pageblocks",
    )
    if posted is not None:
        grid.write_below(_posted_words(posted))
    return grid.drawing()


def _reserve_by_zone(lane: Lane) -> Lane:
    """The lane's HighAtomic rows and their sum over zones, coloured by policy."""
    colour = INK if lane.measured else PREDICTION_COLOURS[lane.rank % len(PREDICTION_COLOURS)]
    table = lane.table
    if len(table):
        reserve = table[table["migratetype"] == "HighAtomic"]
        table = pd.concat([reserve, reserve.assign(zone=ALL_ZONES)])
    return replace(with_table(lane, table), colour=colour)


def _used(drawn: list[Lane], zone: str) -> bool:
    """Whether any lane ever held a reserve in this zone."""
    return any(
        (lane.table.loc[lane.table["zone"] == zone, "blocks"].fillna(0) > 0).any()
        for lane in drawn
        if len(lane.table)
    )


def _posted_words(posted: pd.DataFrame) -> str:
    rows = posted[posted["quantity"] == POSTED_QUANTITY]
    values = "; ".join(f"{row.variant}: {row.value}" for row in rows.itertuples())
    machines = ", ".join(rows["machine"].unique())
    return f"posted with the proposal for other machines ({machines}): {values}"


CATEGORY_HEIGHT = 26
MARGIN = {"l": 70, "r": 20, "t": HEADER_HEIGHT, "b": FOOTER_HEIGHT}
ROOM_FOR_WORDS = 0.3
"""Share of the width left of the bars, for "Unmovable claims a part-used block of Movable"; a
margin would be lost where figures are stacked."""

NOTHING_HEIGHT = 24
KIND_WORDS = {
    "claim_block": "claims a whole block of",
    "claim": "claims a part-used block of",
    "steal": "steals from",
}


@FigureFunction
def fallbacks(measured: Tables, predicted: Tables) -> Drawing:
    """Allocations served from another migratetype, by pair of types and by kind (S6.2 to S6.4).

    The counts' axis is logarithmic where there are many: some kinds are thousands of times as
    frequent as others. Where none happened, one line says so.

    Args:
        measured: `fallbacks` table or tables by label.
        predicted: the same from replays.
    """
    drawn = lanes(measured, predicted)
    counts = {lane.key: _counts(lane.table) for lane in drawn}
    names = sorted(set().union(*(series.index for series in counts.values())), reverse=True)
    grid = PanelGrid(
        [""],
        title="Fallbacks by kind",
        x_title="events",
        y_title="",
        y_axis={"showticklabels": bool(names)},
    )
    grid.set_axis("x", 0, {"domain": [ROOM_FOR_WORDS, 1]})
    grid.count_along("x", 0, max((each.max() for each in counts.values() if len(each)), default=0))
    absent = {}
    for lane in drawn:
        if lane.table.empty and lane.table.attrs.get("reason"):
            absent[lane.label] = reason_of(lane)
            continue
        values = counts[lane.key].reindex(names, fill_value=0.0)
        grid.add(count_trace(lane, values, "fallbacks", horizontal=True), 0)
    if not names:
        return _nothing(grid, missing_words(absent) or "none happened")
    grid.note_missing(0, absent)
    height = HEADER_HEIGHT + FOOTER_HEIGHT + CATEGORY_HEIGHT * max(len(names), 3)
    return grid.drawing(height=height, margin=MARGIN, barmode="group", bargap=0.35)


def _nothing(grid: PanelGrid, words: str) -> Drawing:
    """The title and a line instead of empty axes."""
    for letter in "xy":
        grid.set_axis(letter, 0, {"visible": False, "fixedrange": True})
    grid.note_missing(0, {"fallbacks": words})
    return grid.drawing(height=HEADER_HEIGHT + FOOTER_HEIGHT + NOTHING_HEIGHT, margin=MARGIN)


def _counts(table: pd.DataFrame) -> pd.Series:
    """Events by "Unmovable steals from Movable"."""
    if table.empty:
        return pd.Series(dtype=float)
    kinds = table["kind"].map(lambda kind: KIND_WORDS.get(kind, str(kind)))
    names = (
        table["alloc_migratetype"].astype(str)
        + " "
        + kinds
        + " "
        + table["fallback_migratetype"].astype(str)
    )
    return table["count"].astype(float).groupby(names).sum()


LONE_BIN_NS = 1_000_000_000
"""Width assumed of a table that has no two bins to tell it from."""

SITES = (
    *("refill", "drain", "buddy_alloc", "direct_free", "reserve", "unreserve", "boost_reset"),
    *("empty_refill", "empty_buddy_alloc"),
)


@FigureFunction
def transaction_rates(measured: Tables, predicted: Tables, zone: str | None = None) -> Drawing:
    """zone->lock acquisitions per second by site over time (S11.1).

    All tables are brought to the widest of their bins.

    Args:
        measured: `lock` table or tables by label.
        predicted: the same from replays.
        zone: such as "Normal"; None adds up all zones.
    """
    drawn = in_zone(lanes(measured, predicted), zone)
    tables = [lane.table for lane in drawn if not lane.table.empty]
    width_ns = max((bin_width_ns(each) or LONE_BIN_NS for each in tables), default=LONE_BIN_NS)
    origin = common_origin(drawn)
    drawn = [with_table(lane, rates(lane.table, width_ns, origin)) for lane in drawn]
    return small_multiples(
        drawn,
        keys=_sites_seen(drawn),
        key_column="site",
        value="per_second",
        panel_title=str,
        colour=site_colour,
        title=f"zone->lock acquisitions by site, {zone_words(zone)}",
        y_title="acquisitions/s",
    ).drawing()


@FigureFunction
def transaction_sizes(measured: Tables, predicted: Tables, zone: str | None = None) -> Drawing:
    """How many refills and drains moved how many objects under one zone->lock hold (S4.4, S4.7).

    Sizes are binned by powers of two; the counts' axis is logarithmic where there are many.

    Args:
        measured: `transactions` table or tables by label.
        predicted: the same from replays.
        zone: such as "Normal"; None adds up all zones.
    """
    drawn = in_zone(lanes(measured, predicted), zone)
    sites = ("refill", "drain")
    grid = PanelGrid(
        sites,
        title=f"Transaction sizes under zone->lock, {zone_words(zone)}",
        x_title="objects per transaction (n up to 2n - 1)",
        y_title="transactions",
        columns=2,
        x_axis={"type": "category"},
    )
    for panel, site in enumerate(sites):
        histograms = {lane.key: _binned_sizes(lane.table, site) for lane in drawn}
        bins = _all_bins(histograms.values())
        grid.count_along(
            "y", panel, max((each.max() for each in histograms.values() if len(each)), default=0)
        )
        absent = {}
        for lane in drawn:
            if histograms[lane.key].empty:
                absent[lane.label] = reason_of(lane)
            counts = histograms[lane.key].reindex(bins).rename(str)
            grid.add(count_trace(lane, counts, site, in_legend=panel == 0), panel)
        grid.note_missing(panel, absent)
    return grid.drawing()


def _binned_sizes(table: pd.DataFrame, site: str) -> pd.Series:
    """Transactions by the largest power of two not above their size."""
    if table.empty:
        return pd.Series(dtype=float)
    sizes = table["objects"].to_numpy(float, na_value=np.nan)
    counts = table["transactions"].to_numpy(float, na_value=np.nan)
    shown = (table["site"] == site).to_numpy() & (sizes > 0) & ~np.isnan(counts)
    bins, places = np.unique(np.floor(np.log2(sizes[shown])).astype(np.int64), return_inverse=True)
    sums = np.bincount(places, counts[shown], minlength=len(bins))
    return pd.Series(sums.astype(float), index=np.int64(1) << bins)


def _all_bins(histograms: Iterable[pd.Series]) -> list[int]:
    """Every power of two up to the largest bin of any histogram."""
    largest = max((int(each.index.max()) for each in histograms if len(each)), default=0)
    return [1 << power for power in range(largest.bit_length())]


def _sites_seen(drawn: Sequence[Lane]) -> list[str]:
    """Sites that ever took the lock."""
    seen = set()
    for lane in drawn:
        if "per_second" in lane.table:
            seen |= set(lane.table.loc[lane.table["per_second"] > 0, "site"])
    return [site for site in SITES if site in seen]


def bin_width_ns(table: pd.DataFrame) -> int:
    """Width of a table's bins, the smallest distance between two; 0 if there are not two."""
    if table.empty:
        return 0
    starts = np.unique(table["time_ns"].to_numpy())
    return int(np.diff(starts).min()) if len(starts) > 1 else 0


def rates(table: pd.DataFrame, width_ns: int, origin_ns: int) -> pd.DataFrame:
    """Acquisitions per second by site and bin; a bin without rows saw none."""
    if table.empty:
        return table
    since_ns = table["time_s"] * 1e9 if "time_s" in table else table["time_ns"] - origin_ns
    bins = (since_ns // width_ns).astype("int64")
    first = int(bins.min())
    rows, sites = pd.factorize(table["site"])
    width, length = width_ns / 1e9, int(bins.max()) + 1 - first
    taken = table["acquisitions"].to_numpy(float, na_value=0.0)
    cells = rows * length + bins.to_numpy() - first
    counts = np.bincount(cells, np.nan_to_num(taken), minlength=len(sites) * length)
    return pd.DataFrame(
        {
            "site": np.repeat(np.asarray(sites, object), length),
            "per_second": counts / width,
            "time_s": np.tile(first + np.arange(length), len(sites)) * width,
        }
    )


RATES = ("succeeded", "failed", "stalled")


@FigureFunction
def outcomes(measured: Tables, predicted: Tables, order: int) -> Drawing:
    """Requests of one order: asked, succeeded, failed, stalled; NA values leave their reason.

    Args:
        measured: `outcomes` table or tables by label.
        predicted: the same from replays.
        order: of the requests; 9 is a transparent huge page on x86-64.
    """
    drawn = lanes(measured, predicted)
    grid = PanelGrid(
        [""],
        title=f"Outcome of order-{order} requests",
        x_title="",
        y_title="requests",
        x_axis={"type": "category"},
        y_axis={"rangemode": "tozero"},
    )
    absent = {}
    for lane in drawn:
        counts, reason = _outcomes_counts(lane.table, order)
        if reason:
            absent[lane.label] = reason
        grid.add(count_trace(lane, counts, "outcomes"), 0)
    if absent:
        grid.write_below(missing_words(absent))
    return grid.drawing()


def _outcomes_counts(table: pd.DataFrame, order: int) -> tuple[pd.Series, str]:
    """Known counts of one order, and why others are NA ("" if none is)."""
    names = ["asked", *RATES]
    rows = table[table["order"] == order] if len(table) else table
    if rows.empty:
        return pd.Series(dtype=float), "not available: no such request"
    known = [name for name in names if rows[name].notna().all()]
    reason = ""
    if len(known) < len(names) and "reason" in rows:
        missing = ", ".join(name for name in names if name not in known)
        reasons = [str(each) for each in rows["reason"].dropna().unique() if str(each)]
        reason = f"{missing} not available: {'; '.join(reasons)}"
    return rows[known].astype(float).sum(), reason


@FigureFunction
def ownership_over_time(predicted: Tables) -> Drawing:
    """One panel per quantity: what zone->lock took so far, and how broken up free memory is.

    Args:
        predicted: time_ns, quantity, value; or such tables by label.
    """
    drawn = lanes(None, predicted)
    keys = sorted(keys_seen(drawn, "quantity"), reverse=True)
    return small_multiples(
        drawn,
        keys=keys,
        key_column="quantity",
        value="value",
        panel_title=str,
        colour=lambda _: PREDICTION_COLOURS[0],
        title="zone->lock, and the fragmentation it is paid with",
        y_title="",
        columns=2,
    ).drawing()


SMALLEST_NS = 64
STEP_POWERS = 4
"""Bins are shown in groups of so many: up to 1 us, to 16 us, to 262 us."""
LABEL_EVERY = 2
"""Bins from one label to the next: so they stand upright in a panel of half a page."""
UNITS = (("s", 1e9), ("ms", 1e6), ("us", 1e3), ("ns", 1.0))
PANELS = (
    ("refills, held", "refill", "hold_ns"),
    ("drains, held", "drain", "hold_ns"),
    ("refills, waited for", "refill", "wait_ns"),
    ("drains, waited for", "drain", "wait_ns"),
)
EMPTY_REFILL = "empty_refill"
EMPTY_PANELS = (
    ("empty refills, held", EMPTY_REFILL, "hold_ns"),
    ("empty refills, waited for", EMPTY_REFILL, "wait_ns"),
)
"""Refills that found no page; drawn where there are any."""


def _in_words(time_ns: int) -> str:
    """A time to two digits, short enough to stand below a bar."""
    unit, size = next((unit, size) for unit, size in UNITS if time_ns >= 0.99 * size)
    return f"{float(f'{time_ns / size:.2g}'):g}{unit}"


WORDS = [_in_words(SMALLEST_NS << power) for power in range(32)]
"""Of all bins, up to minutes; bins are drawn at their numbers, so that more move in place."""
HOVER = "%{customdata}: %{y}<extra>%{fullData.name}</extra>"


@FigureFunction
def lock_times(predicted: Tables) -> Drawing:
    """How many refills and drains held, and waited for, zone->lock for how long.

    Times are binned by powers of two; who did not wait is left out. The counts' axis is
    logarithmic where there are many.

    Args:
        predicted: acquisitions with `site`, `hold_ns` and `wait_ns`, or such tables by label.
    """
    drawn = lanes(None, predicted)
    panels = PANELS
    if any((lane.table["site"] == EMPTY_REFILL).any() for lane in drawn):
        panels += EMPTY_PANELS
    grid = PanelGrid(
        [title for title, _, _ in panels],
        title="zone->lock: time held and time waited for",
        x_title="time (from t up to 2t)",
        y_title="acquisitions",
        columns=2,
        x_axis={
            "tickvals": list(range(0, len(WORDS), LABEL_EVERY)),
            "ticktext": WORDS[::LABEL_EVERY],
            "tickangle": 0,
        },
    )
    for panel, (_, site, column) in enumerate(panels):
        counts = {lane.key: _binned(lane, site, column) for lane in drawn}
        bins = _lock_times_all_bins(list(counts.values()))
        grid.count_along(
            "y", panel, max((each.max() for each in counts.values() if len(each)), default=0)
        )
        absent = {lane.label: "none" for lane in drawn if counts[lane.key].empty}
        for lane in drawn:
            shown = counts[lane.key].reindex(bins)
            shown.index = range(len(bins))
            trace = count_trace(lane, shown, f"{site}/{column}", in_legend=panel == 0)
            grid.add(trace | {"customdata": WORDS, "hovertemplate": HOVER}, panel)
        grid.note_missing(panel, absent)
    return grid.drawing()


def _binned(lane: Lane, site: str, column: str) -> pd.Series:
    """Acquisitions by the largest power of two (ns) not above their time."""
    times = lane.table[column].to_numpy()
    times = times[(lane.table["site"] == site).to_numpy() & (times > 0)]
    powers = np.floor(np.log2(np.maximum(times.astype(np.int64), SMALLEST_NS))).astype(np.int64)
    bins, counts = np.unique(powers, return_counts=True)
    return pd.Series(counts.astype(float), index=np.int64(1) << bins)


def _lock_times_all_bins(counts: list[pd.Series]) -> list[int]:
    """Every power of two from `SMALLEST_NS` to the largest bin of any histogram.

    The end is rounded up to steps of `STEP_POWERS`, so that another policy seldom has another.
    """
    seen = [int(each).bit_length() - 1 for count in counts for each in count.index]
    if not seen:
        return []
    begin = SMALLEST_NS.bit_length() - 1
    end = -(-(max(seen) + 1 - begin) // STEP_POWERS) * STEP_POWERS + begin
    return [1 << power for power in range(begin, end)]


COLUMNS = 3
RATE_PARTS = 40
"""Rates are means over this part of the time, or over the tables' own bins if those are wider."""

CUT_BELOW = 0.5
"""Where all values are above this share of the largest, the axis does not begin at zero."""

ROOM = 0.08
"""Above and below what an axis shows, as a share of it."""

CUT = " (axis cut)"


@dataclass(frozen=True, kw_only=True)
class _Panel:
    """A quantity.

    Attributes:
        words: its title, with the unit.
        by_lane: seconds and values by lane; a lane that has none is missing.
    """

    words: str
    by_lane: Mapping[str, tuple[np.ndarray, np.ndarray]]

    @property
    def moves(self) -> bool:
        """Whether any lane's value changes, or lanes differ."""
        values = np.concatenate([values for _, values in self.by_lane.values()])
        return bool(len(values)) and float(values.min()) != float(values.max())


@FigureFunction
def at_a_glance(measured: Any, predicted: Any) -> Drawing:
    """Free memory, per-CPU lists, holds of zone->lock, boosts and pageblocks over time.

    Marks are measured, lines predicted. An axis that does not begin at zero says so.

    Args:
        measured: what has the tables `free_pages`, `pcp`, `lock`, `boosts` and `pageblocks`.
        predicted: the same of a replay, or of several by label.
    """
    sources = dict(predicted) if isinstance(predicted, Mapping) else {"predicted": predicted}
    lanes = [Lane(label="measured", table=measured.lock, measured=True, rank=0)]
    lanes += [
        Lane(
            label=label,
            table=each.lock,
            measured=False,
            rank=rank,
            colour=PREDICTION_COLOURS[rank % len(PREDICTION_COLOURS)],
        )
        for rank, (label, each) in enumerate(sources.items())
    ]
    lanes[0] = replace(lanes[0], colour=INK)
    tables = dict(zip((lane.key for lane in lanes), (measured, *sources.values()), strict=True))
    origin = min(int(each.free_pages["time_ns"].min()) for each in sources.values())
    panels = list(_panels(tables, origin))
    shown = [panel for panel in panels if panel.moves]
    quiet = [panel.words for panel in panels if not panel.moves]
    return _drawn(shown, quiet, lanes)


def _drawn(shown: Sequence[_Panel], quiet: Sequence[str], lanes: Sequence[Lane]) -> Drawing:
    spans = [_axis(panel) for panel in shown]
    titles = [panel.words + (CUT if axis else "") for panel, axis in zip(shown, spans, strict=True)]
    grid = PanelGrid(
        titles,
        title="What happens, and what the model predicts of it",
        x_title=TIME_AXIS,
        y_title="",
        columns=COLUMNS,
        y_axis={"rangemode": "tozero"},
    )
    grid.add_legend(lanes)
    for number, (panel, axis) in enumerate(zip(shown, spans, strict=True)):
        absent = {}
        for lane in lanes:
            if lane.key in panel.by_lane:
                seconds, values = panel.by_lane[lane.key]
                grid.add(line_trace(lane, seconds, values, panel.words, INK), number)
            else:
                absent[lane.label] = reason_of(lane)
        grid.note_missing(number, absent)
        if axis:
            grid.cut_axis(number, axis)
    if quiet:
        grid.write_below(f"Nothing changes in: {'; '.join(quiet)}.")
    return grid.drawing()


def _axis(panel: _Panel) -> tuple[float, float] | None:
    """Where an axis begins and ends that does not begin at zero, None for one that does."""
    values = np.concatenate([values for _, values in panel.by_lane.values()])
    low, high = float(values.min()), float(values.max())
    if low < CUT_BELOW * high:
        return None
    room = ROOM * (high - low)
    return low - room, high + room


def _panels(tables: Mapping[str, Any], origin: int) -> Iterator[_Panel]:
    yield from _by_key(tables, "free_pages", "zone", "pages", "free pages, {}", origin)
    yield from _by_key(tables, "pcp", "zone", "count", "pages on per-CPU lists, {}", origin)
    locks = {key: each.lock for key, each in tables.items()}
    ends = [int(each.free_pages["time_ns"].max()) for each in tables.values()]
    width = max(
        (max(ends) - origin) // RATE_PARTS, *(bin_width_ns(each) for each in locks.values())
    )
    found = {key: rates(table, width, origin) for key, table in locks.items()}
    held = {
        key: _summed(table, "time_s", "per_second") for key, table in found.items() if len(table)
    }
    if held:
        yield _Panel(words="holds of zone->lock per second", by_lane=held)
    yield from _by_key(tables, "boosts", "zone", "pages", "watermark boost (pages), {}", origin)
    yield from _by_key(tables, "pageblocks", "migratetype", "blocks", "pageblocks: {}", origin)


def _by_key(
    tables: Mapping[str, Any], name: str, key: str, value: str, words: str, origin: int
) -> Iterator[_Panel]:
    """A panel for each key of a table that ever holds anything, summed over all else."""
    every = {lane: getattr(each, name) for lane, each in tables.items()}
    found = [
        each.loc[each[value].fillna(0) > 0, key] for each in every.values() if key in each.columns
    ]
    for wanted in dict.fromkeys(pd.concat(found)) if found else ():
        by_lane = {}
        for lane, table in every.items():
            mine = table[table[key] == wanted] if key in table.columns else table
            if len(mine):
                seconds = (mine["time_ns"] - origin) / 1e9
                by_lane[lane] = _summed(mine.assign(time_s=seconds), "time_s", value)
        yield _Panel(words=words.format(wanted), by_lane=by_lane)


def _summed(table: pd.DataFrame, time: str, value: str) -> tuple[np.ndarray, np.ndarray]:
    sums = table.groupby(time)[value].sum(min_count=1).dropna()
    return sums.index.to_numpy(float), sums.to_numpy(float)
