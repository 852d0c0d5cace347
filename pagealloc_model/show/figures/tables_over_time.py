"""One replay beside what was measured: free memory, lists, reserve, fallbacks, zone->lock.

`measured` is the recording's table of that name, `predicted` that of a replay; either may be
several by label, or None. A `zone` is such as "Normal"; None adds up all zones.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from pagealloc_model.allocator.sites import EMPTY_SITES
from pagealloc_model.show.figures.faceted import (
    CUT,
    FOOTER_HEIGHT,
    HEADER_HEIGHT,
    INK,
    MARGIN,
    MIGRATETYPE_COLOURS,
    ORDER_COLOURS,
    PREDICTION_COLOURS,
    SITE_COLOURS,
    TIME_AXIS,
    Drawing,
    FigureFunction,
    Lane,
    Line,
    PanelGrid,
    Tables,
    axis_cut,
    common_origin,
    count_trace,
    cycled,
    keys_seen,
    lanes,
    missing_words,
    series_by_key,
    small_multiples,
)

PAGES = "free pages (4 KiB)"


def _titled(words: str, zone: str | None) -> str:
    return f"{words}, {f'zone {zone}' if zone else 'all zones'}"


@FigureFunction
def free_pages_by_order(measured: Tables, predicted: Tables, zone: str | None = None) -> Drawing:
    """Free pages in buddies of each order over time, one panel per order (S5)."""
    return small_multiples(
        lanes(measured, predicted, zone),
        "order",
        "pages",
        _titled("Free pages by order", zone),
        PAGES,
        words="order {}".format,
        colour=lambda order: ORDER_COLOURS[min(order, len(ORDER_COLOURS) - 1)],
    ).drawing()


@FigureFunction
def free_pages_by_migratetype(
    measured: Tables, predicted: Tables, zone: str | None = None
) -> Drawing:
    """Free pages on the lists of each migratetype over time (S1.3)."""
    title = _titled("Free pages by migratetype", zone)
    return _by_kind(lanes(measured, predicted, zone), "migratetype", "pages", title, PAGES)


@FigureFunction
def pageblocks_by_type(measured: Tables, predicted: Tables, zone: str | None = None) -> Drawing:
    """Pageblocks of each migratetype over time, as /proc/pagetypeinfo counts them."""
    title = _titled("Pageblocks by migratetype", zone)
    return _by_kind(lanes(measured, predicted, zone), "migratetype", "blocks", title, "pageblocks")


_COLOURS = {"migratetype": MIGRATETYPE_COLOURS, "site": SITE_COLOURS}


def _by_kind(drawn: Sequence[Lane], kind: str, value: str, title: str, y_title: str) -> Drawing:
    """A panel for each kind that has a colour and ever holds anything, in the colours' order."""
    seen, colours = keys_seen(drawn, kind, value), _COLOURS[kind]
    look: dict[str, Any] = {"columns": 3 if kind == "site" else 4, "colour": colours.__getitem__}
    look["keys"] = [name for name in colours if name in seen]
    return small_multiples(drawn, kind, value, title, y_title, **look).drawing()


CPU_PANELS = 8
"""Per-CPU panels up to this many; on larger machines the CPUs of a zone are added up."""


@FigureFunction
def pcp_counts(measured: Tables, predicted: Tables, zone: str | None = None) -> Drawing:
    """Pages on per-CPU lists (`pcp->count`) over time, per zone and CPU (S4.1).

    Machines with more than `CPU_PANELS` lists get one panel per zone with all CPUs added up.
    """
    drawn = lanes(measured, predicted, zone)
    named, names = _with_list_names(drawn, lambda table: ", CPU " + table["cpu"].astype(str))
    if len(names) > CPU_PANELS:
        named, names = _with_list_names(drawn, lambda _: ", all CPUs")
    colours = {name: cycled(PREDICTION_COLOURS, place) for place, name in enumerate(names)}
    title = _titled("Pages on per-CPU lists (pcp->count)", zone)
    look: dict[str, Any] = {"keys": names, "columns": 2, "colour": colours.__getitem__}
    return small_multiples(named, "list_name", "count", title, "pages (4 KiB)", **look).drawing()


def _with_list_names(
    drawn: Sequence[Lane], cpus: Callable[[pd.DataFrame], Any]
) -> tuple[list[Lane], list[str]]:
    """Lanes whose rows name their list, and the lists that ever held a page, by zone and CPU."""
    named = []
    first_seen: dict[str, tuple[str, int]] = {}
    for lane in drawn:
        table = lane.table
        if len(table):
            names = table["zone"].astype(str) + cpus(table)
            if table["node"].nunique() > 1:
                names = "node " + table["node"].astype(str) + ", " + names
            table = table.assign(list_name=names)
            held = table[table["count"].fillna(0) > 0].drop_duplicates("list_name")
            for name, zone, cpu in held[["list_name", "zone", "cpu"]].itertuples(index=False):
                first_seen.setdefault(str(name), (str(zone), int(cpu)))
        named.append(replace(lane, table=table))
    return named, sorted(first_seen, key=lambda name: first_seen[name])


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
    drawn, every = [], "all zones"
    for lane in lanes(measured, predicted):
        colour = INK if lane.measured else cycled(PREDICTION_COLOURS, lane.rank)
        table = lane.table
        if len(table):
            reserve = table[table["migratetype"] == "HighAtomic"]
            table = pd.concat([reserve, reserve.assign(zone=every)])
        drawn.append(replace(lane, table=table, colour=colour))
    zones = [zone for zone in keys_seen(drawn, "zone", "blocks") if zone != every]
    look: dict[str, Any] = {"keys": [*zones, every], "columns": 3, "colour": lambda _: INK}
    look["words"] = lambda zone: zone if zone == every else f"zone {zone}"
    grid = small_multiples(drawn, "zone", "blocks", "HighAtomic pageblocks", "pageblocks", **look)
    if posted is not None:
        rows = posted[posted["quantity"] == "HighAtomic pageblocks per host"]
        values = "; ".join(f"{row.variant}: {row.value}" for row in rows.itertuples())
        machines = ", ".join(rows["machine"].unique())
        grid.write_below(f"posted with the proposal for other machines ({machines}): {values}")
    return grid.drawing()


@FigureFunction
def fallbacks(measured: Tables, predicted: Tables) -> Drawing:
    """Allocations served from another migratetype, by pair of types and by kind (S6.2 to S6.4).

    The counts' axis is logarithmic where there are many: some kinds are thousands of times as
    frequent as others. Where none happened, one line says so.
    """
    drawn = lanes(measured, predicted)
    kinds = {"claim_block": "claims a whole block of", "claim": "claims a part-used block of"}
    kinds["steal"] = "steals from"
    counts, absent = {}, {}
    for lane in drawn:
        table = lane.table
        if len(table):
            words = table["kind"].map(lambda kind: f" {kinds.get(kind, kind)} ")
            words = table["alloc_migratetype"].astype(str) + words
            words += table["fallback_migratetype"].astype(str)
            counts[lane.key] = table["count"].astype(float).groupby(words).sum()
        elif table.attrs.get("reason"):
            absent[lane.label] = lane.reason
        else:
            counts[lane.key] = pd.Series(dtype=float)
    names = sorted(set().union(*(series.index for series in counts.values())), reverse=True)
    counts = {key: series.reindex(names, fill_value=0.0) for key, series in counts.items()}
    y_axis = {"showticklabels": bool(names)}
    grid = PanelGrid([""], "Fallbacks by kind", "events", y_axis=y_axis)
    # room for "Unmovable claims a part-used block of Movable"; stacked figures lose their margins
    grid.set_axis("x", 0, {"domain": [0.3, 1]})
    grid.draw_counts(0, drawn, counts, "fallbacks", absent if names else {}, along="x")
    height = HEADER_HEIGHT + FOOTER_HEIGHT
    if names:
        height += 26 * max(len(names), 3)
        return grid.drawing(height=height, margin=MARGIN, barmode="group", bargap=0.35)
    for letter in "xy":  # the title and a line instead of empty axes
        grid.set_axis(letter, 0, {"visible": False, "fixedrange": True})
    grid.note_missing(0, {"fallbacks": missing_words(absent) or "none happened"})
    return grid.drawing(height=height + 24, margin=MARGIN)


LONE_BIN_NS = 1_000_000_000
"""Width assumed of a table that has no two bins to tell it from."""


@FigureFunction
def transaction_rates(measured: Tables, predicted: Tables, zone: str | None = None) -> Drawing:
    """zone->lock acquisitions per second by site over time (S11.1).

    All tables are brought to the widest of their bins.
    """
    drawn = lanes(measured, predicted, zone)
    widths = [_bin_width_ns(lane.table) or LONE_BIN_NS for lane in drawn if len(lane.table)]
    width_ns, origin = max(widths, default=LONE_BIN_NS), common_origin(drawn)
    drawn = [replace(lane, table=_rates(lane.table, width_ns, origin)) for lane in drawn]
    title = _titled("zone->lock acquisitions by site", zone)
    return _by_kind(drawn, "site", "per_second", title, "acquisitions/s")


def _bin_width_ns(table: pd.DataFrame) -> int:
    """Width of a table's bins, the smallest distance between two; 0 if there are not two."""
    starts = np.unique(table["time_ns"].to_numpy()) if len(table) else ()
    return int(np.diff(starts).min()) if len(starts) > 1 else 0


def _rates(table: pd.DataFrame, width_ns: int, origin_ns: int) -> pd.DataFrame:
    """Acquisitions per second by site and bin; a bin without rows saw none."""
    if table.empty:
        return table.assign(per_second=0.0)
    since_ns = table["time_s"] * 1e9 if "time_s" in table else table["time_ns"] - origin_ns
    bins = (since_ns // width_ns).astype("int64")
    first = int(bins.min())
    rows, sites = pd.factorize(table["site"])
    width, length = width_ns / 1e9, int(bins.max()) + 1 - first
    taken = table["acquisitions"].to_numpy(float, na_value=0.0)
    cells = rows * length + bins.to_numpy() - first
    counts = np.bincount(cells, np.nan_to_num(taken), minlength=len(sites) * length)
    rates = pd.DataFrame(
        {
            "site": np.repeat(np.asarray(sites, object), length),
            "per_second": counts / width,
            "time_s": np.tile(first + np.arange(length), len(sites)) * width,
        }
    )
    rates.attrs.update(table.attrs)
    return rates


@FigureFunction
def transaction_sizes(measured: Tables, predicted: Tables, zone: str | None = None) -> Drawing:
    """Counts of refills and drains by the objects moved under one zone->lock hold (S4.4, S4.7).

    Sizes are binned by powers of two; the counts' axis is logarithmic where there are many.
    """
    drawn = lanes(measured, predicted, zone)
    sites = ("refill", "drain")
    title = _titled("Transaction sizes under zone->lock", zone)
    axes = ("objects per transaction (n up to 2n - 1)", "transactions")
    grid = PanelGrid(sites, title, *axes, columns=2, x_axis={"type": "category"})
    for panel, site in enumerate(sites):
        counts = {}
        for lane in drawn:
            values: list[np.ndarray] = []
            if len(lane.table):
                own = (lane.table["site"] == site).to_numpy()
                columns = (lane.table[name] for name in ("objects", "transactions"))
                values = [column.to_numpy(float, na_value=np.nan)[own] for column in columns]
            counts[lane.key] = _by_power_of_two(*values)
        absent = {lane.label: lane.reason for lane in drawn if counts[lane.key].empty}
        powers = [power for series in counts.values() for power in series.index]
        bins = range(max(powers, default=-1) + 1)
        for key, series in counts.items():
            counts[key] = series.reindex(bins).rename(lambda power: str(1 << power))
        grid.draw_counts(panel, drawn, counts, site, absent)
    return grid.drawing()


def _by_power_of_two(sizes: Any = (), counts: Any = None) -> pd.Series:
    """Counts by the largest power of two not above a size; sizes of 0 and unknown ones count not.

    Each of the sizes, shape (n,), counts once, or as often as `counts` says.
    """
    sizes = np.asarray(sizes, float)
    counts = np.ones(len(sizes)) if counts is None else counts
    shown = (sizes > 0) & ~np.isnan(counts)
    powers = np.floor(np.log2(sizes[shown])).astype(np.int64)
    bins, places = np.unique(powers, return_inverse=True)
    return pd.Series(np.bincount(places, counts[shown], minlength=len(bins)), bins, dtype=float)


@FigureFunction
def outcomes(measured: Tables, predicted: Tables, order: int) -> Drawing:
    """Requests of one order: asked, succeeded, failed, stalled; NA values leave their reason.

    Args:
        measured: `outcomes` table or tables by label.
        predicted: the same from replays.
        order: of the requests; 9 is a transparent huge page on x86-64.
    """
    title = f"Outcome of order-{order} requests"
    axes = {"x_axis": {"type": "category"}, "y_axis": {"rangemode": "tozero"}}
    grid = PanelGrid([""], title, "", "requests", **axes)
    absent = {}
    names = ("asked", "succeeded", "failed", "stalled")
    for lane in lanes(measured, predicted):
        rows = lane.table[lane.table["order"] == order] if len(lane.table) else lane.table
        known = [name for name in names if len(rows) and rows[name].notna().all()]
        if rows.empty:
            absent[lane.label] = "not available: no such request"
        elif len(known) < len(names) and "reason" in rows:
            missing = ", ".join(name for name in names if name not in known)
            reasons = "; ".join(str(why) for why in rows["reason"].dropna().unique() if why)
            absent[lane.label] = f"{missing} not available: {reasons}"
        trace = count_trace(lane, rows[known].astype(float).sum(), "outcomes")
        grid.add(trace, 0, once=True)
    if absent:
        grid.write_below(missing_words(absent))
    return grid.drawing()


@FigureFunction
def folios(measured: Tables, predicted: Tables) -> Drawing:
    """Share of requests for folios that were served, by order; anonymous memory and page cache.

    Args:
        measured: `folios` table or tables by label.
        predicted: the same from replays.
    """
    lanes_by_class: dict[str, list[tuple[Lane, pd.Series]]] = {"anon": [], "file": []}
    for (name, drawn), lane in itertools.product(
        lanes_by_class.items(), lanes(measured, predicted)
    ):
        rows = lane.table[(lane.table["class"] == name) & (lane.table["order"] > 0)]
        if len(rows):
            served = 1 - rows["failed"].astype(float) / rows["asked"].astype(float)
            drawn.append((lane, served.set_axis(rows["order"])))
    names = [name for name, drawn in lanes_by_class.items() if drawn or name == "anon"]
    axes = {"x_axis": {"dtick": 1}, "y_axis": {"rangemode": "tozero"}}
    grid = PanelGrid(names, "Requests for folios that were served", "order", "share", **axes)
    for place, name in enumerate(names):
        for lane, by_order in lanes_by_class[name]:
            grid.add(count_trace(lane, by_order, "folios"), place, once=True)
    return grid.drawing()


@FigureFunction
def ownership_over_time(measured: Tables, predicted: Tables) -> Drawing:
    """One panel per quantity: what zone->lock took so far, and how broken up free memory is.

    An axis that does not begin at zero says so.

    Args:
        measured: time_ns, quantity, value; None where the load was not recorded.
        predicted: the same, or such tables by label, with all quantities in the panels' order.
    """
    drawn = lanes(measured, predicted)
    origin = common_origin(drawn)
    series = {lane.key: series_by_key(lane.table, "quantity", "value", origin) for lane in drawn}
    panels, cuts = [], []
    for name in drawn[-1].table["quantity"].unique():
        lines = {lane: by_name[name] for lane, by_name in series.items() if name in by_name}
        cut = axis_cut(lines.values()) or {}
        panels.append((name + CUT * bool(cut), PREDICTION_COLOURS[0], lines))
        cuts.append(cut)
    title = "zone->lock, and the fragmentation it is paid with"
    names = [name for name, _, _ in panels]
    grid = PanelGrid(names, title, TIME_AXIS, y_axis={"rangemode": "tozero"})
    grid.draw_lines(drawn, panels)
    for panel, cut in enumerate(cuts):
        grid.set_axis("y", panel, cut)
    return grid.drawing()


SMALLEST_NS = 64
"""Refills that found no page; drawn where there are any."""


def _in_words(time_ns: int) -> str:
    """A time to two digits, short enough to stand below a bar."""
    units = (("s", 1e9), ("ms", 1e6), ("us", 1e3), ("ns", 1.0))
    unit, size = next((unit, size) for unit, size in units if time_ns >= 0.99 * size)
    return f"{float(f'{time_ns / size:.2g}'):g}{unit}"


WORDS = [_in_words(SMALLEST_NS << power) for power in range(32)]
"""Of all bins, up to minutes; bins are drawn at their numbers, so that more move in place."""


@FigureFunction
def lock_times(predicted: Tables) -> Drawing:
    """Counts of refills and drains by the time that they held, and waited for, zone->lock.

    Times are binned by powers of two; who did not wait is left out, and so are waits where there
    are none. The counts' axis is logarithmic where there are many.

    Args:
        predicted: acquisitions with `site`, `hold_ns` and `wait_ns`, or such tables by label.
    """
    drawn = lanes(None, predicted)
    columns = [("held", "hold_ns"), ("waited for", "wait_ns")]
    waits = any(lane.table["wait_ns"].any() for lane in drawn)
    if not waits:
        columns.pop()
    panels = [(site, *column) for column in columns for site in ("refill", "drain")]
    if any((lane.table["site"] == EMPTY_SITES[0]).any() for lane in drawn):
        panels += [(EMPTY_SITES[0], *column) for column in columns]
    titles = [f"{site.replace('_', ' ')}s, {words}" for site, words, _ in panels]
    words = ("zone->lock: time held and time waited for", "time (from t up to 2t)", "acquisitions")
    # few bins have a label: so they stand upright in a narrow panel
    step = 4 if len(panels) > 2 else 2
    ticks = {"tickvals": list(range(0, len(WORDS), step)), "ticktext": WORDS[::step]}
    ticks["tickangle"] = 0
    grid = PanelGrid(titles, *words, columns=4 if len(panels) <= 4 else 3, x_axis=ticks)
    hover = "%{customdata}: %{y}<extra>%{fullData.name}</extra>"
    begin = SMALLEST_NS.bit_length() - 1
    for panel, (site, _, column) in enumerate(panels):
        counts = {}
        for lane in drawn:
            times = lane.table[column].to_numpy()[(lane.table["site"] == site).to_numpy()]
            whole = times.astype(np.int64).clip(SMALLEST_NS)
            counts[lane.key] = _by_power_of_two(np.where(times > 0, whole, 0))
        # bins up to 1 us, to 16 us, to 262 us: so another policy seldom has another end
        ends = [int(power) + 1 for series in counts.values() for power in series.index]
        bins = range(begin, begin + -(-(max(ends, default=begin) - begin) // 4) * 4)
        absent = {lane.label: "none" for lane in drawn if counts[lane.key].empty}
        shown = {key: series.reindex(bins).reset_index(drop=True) for key, series in counts.items()}
        look = {"customdata": WORDS, "hovertemplate": hover}
        grid.draw_counts(panel, drawn, shown, f"{site}/{column}", absent, **look)
    if not waits:
        grid.write_below("Nothing waits for zone->lock.")
    return grid.drawing()


@FigureFunction
def at_a_glance(measured: Any, predicted: Any) -> Drawing:
    """Free memory, per-CPU lists, holds of zone->lock, boosts and pageblocks over time.

    Marks are measured, lines predicted. An axis that does not begin at zero says so.

    Args:
        measured: what has the tables `free_pages`, `pcp`, `lock`, `boosts` and `pageblocks`.
        predicted: the same of a replay, or of several by label.
    """
    replays = dict(predicted) if isinstance(predicted, Mapping) else {"predicted": predicted}
    drawn = lanes(measured.lock, {label: replay.lock for label, replay in replays.items()})
    if len(drawn) == 2:
        colours = (INK, PREDICTION_COLOURS[0])
        drawn = [replace(lane, colour=colour) for lane, colour in zip(drawn, colours, strict=True)]
    sources = dict(zip((lane.key for lane in drawn), (measured, *replays.values()), strict=True))
    origin = min(int(replay.free_pages["time_ns"].min()) for replay in replays.values())
    quiet, panels, cuts = [], {}, []
    for words, lines in _quantities(sources, origin):
        cut = axis_cut(lines.values())
        if cut is None:
            quiet.append(words)
            continue
        cuts.append(cut)
        panels[words + CUT * bool(cut)] = (words, INK, lines)
    title = "What happens, and what the model predicts of it"
    y_axis = {"rangemode": "tozero"}
    grid = PanelGrid(list(panels), title, TIME_AXIS, y_axis=y_axis)
    grid.draw_lines(drawn, panels.values())
    for panel, cut in enumerate(cuts):
        grid.set_axis("y", panel, cut)
    if quiet:
        grid.write_below(f"Nothing changes in: {'; '.join(quiet)}.")
    return grid.drawing()


def _quantities(sources: Mapping[str, Any], origin: int) -> Iterator[tuple[str, dict[str, Line]]]:
    """Words and lines by lane, for each quantity and key that ever holds anything."""
    for name, key, value, words in (
        ("free_pages", "zone", "pages", "free pages, {}"),
        ("pcp", "zone", "count", "pages on per-CPU lists, {}"),
        ("lock", "all", "per_second", "holds of zone->lock per second"),
        ("boosts", "zone", "pages", "watermark boost (pages), {}"),
        ("pageblocks", "migratetype", "blocks", "pageblocks: {}"),
    ):
        tables = {lane: getattr(source, name) for lane, source in sources.items()}
        if name == "lock":
            known_times = (source.free_pages["time_ns"] for source in sources.values())
            end = max(int(times.max()) for times in known_times if len(times))
            # means over a fortieth of the time, or over the tables' own bins if those are wider
            width = max((end - origin) // 40, *map(_bin_width_ns, tables.values()))
            known = {lane: table for lane, table in tables.items() if len(table)}
            tables = {
                lane: _rates(table, width, origin).groupby("time_s", as_index=False)[[value]].sum()
                for lane, table in known.items()
            }
            tables = {lane: table.assign(all=True) for lane, table in tables.items()}
            keys = [table[key] for table in tables.values()]
        else:
            with_key = [table for table in tables.values() if key in table]
            keys = [table.loc[table[value].fillna(0) > 0, key] for table in with_key]
        series = {lane: series_by_key(table, key, value, origin) for lane, table in tables.items()}
        for wanted in dict.fromkeys(pd.concat(keys)) if keys else ():
            lines = {lane: by_key[wanted] for lane, by_key in series.items() if wanted in by_key}
            yield words.format(wanted), lines
