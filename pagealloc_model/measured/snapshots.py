"""Tables read off the machine's own snapshots: exact at each file's own instant (T12)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pandas as pd

from pagealloc_model.recording.snapshot import Snapshot

FREE_PAGES = ("time_ns", "node", "zone", "order", "migratetype", "buddies", "pages")
PAGEBLOCKS = ("time_ns", "node", "zone", "migratetype", "blocks")
BOOSTS = ("time_ns", "node", "zone", "pages")
PCP = ("time_ns", "node", "zone", "cpu", "count", "high")
VMSTAT = ("name", "time_ns", "value")


def free_pages_table(snapshots: Iterable[Snapshot]) -> pd.DataFrame:
    """Free buddies by zone, order and migratetype.

    A cell the kernel printed as `>100000` is only a lower bound, so `buddies` and `pages` are NA.
    """
    return _table(
        FREE_PAGES,
        (row for snapshot in snapshots for row in _free_lists(snapshot)),
        nullable=("buddies", "pages"),
    )


def _free_lists(snapshot: Snapshot) -> Iterator[tuple[object, ...]]:
    info = snapshot.pagetypeinfo
    for row in info.free_lists if info else ():
        key = (snapshot.time_ns, row.node, row.zone)
        for order, (count, bound) in enumerate(zip(row.buddies, row.lower_bound, strict=True)):
            values = (pd.NA, pd.NA) if bound else (count, count << order)
            yield (*key, order, row.migratetype, *values)


def pageblocks_table(snapshots: Iterable[Snapshot]) -> pd.DataFrame:
    """Pageblocks by zone and type."""
    return _table(
        PAGEBLOCKS, (row for snapshot in snapshots for row in _pageblocks(snapshot)), nullable=()
    )


def _pageblocks(snapshot: Snapshot) -> Iterator[tuple[object, ...]]:
    info = snapshot.pagetypeinfo
    if info is None:
        return
    for row in info.pageblocks:
        for migratetype, blocks in zip(info.migratetypes, row.blocks, strict=True):
            yield (snapshot.time_ns, row.node, row.zone, migratetype, blocks)


def boosts_table(snapshots: Iterable[Snapshot]) -> pd.DataFrame:
    """Watermark boosts by zone, where the kernel prints them."""
    return _table(
        BOOSTS,
        (
            (snapshot.time_ns, zone.node, zone.name, zone.boost)
            for snapshot in snapshots
            for zone in (snapshot.zoneinfo.zones if snapshot.zoneinfo else ())
            if zone.boost is not None
        ),
        nullable=(),
    )


def pcp_table(snapshots: Iterable[Snapshot]) -> pd.DataFrame:
    """Pages on per-CPU lists and their limit, by zone and CPU."""
    table = _table(PCP, (row for snapshot in snapshots for row in _pagesets(snapshot)), nullable=())
    return table.astype({"high": "Float64"})


def _pagesets(snapshot: Snapshot) -> Iterator[tuple[object, ...]]:
    info = snapshot.zoneinfo
    for zone in info.zones if info else ():
        for pageset in zone.pagesets:
            key = (snapshot.time_ns, zone.node, zone.name)
            yield (*key, pageset.cpu, pageset.count, pageset.high)


def vmstat_table(snapshots: Iterable[Snapshot]) -> pd.DataFrame:
    """The kernel's counters under its own names."""
    return _table(
        VMSTAT,
        (
            (name, snapshot.time_ns, value)
            for snapshot in snapshots
            for name, value in (snapshot.vmstat.values if snapshot.vmstat else {}).items()
        ),
        nullable=(),
    )


_TEXT = ("name", "zone", "migratetype")


def _table(
    columns: tuple[str, ...], rows: Iterable[tuple[object, ...]], *, nullable: tuple[str, ...]
) -> pd.DataFrame:
    types = {
        name: "str" if name in _TEXT else "Int64" if name in nullable else "int64"
        for name in columns
    }
    return pd.DataFrame.from_records(list(rows), columns=list(columns)).astype(types)
