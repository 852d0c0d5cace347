"""Whose holds of zone->lock made others wait, from lock:contended_release (T8)."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd

from pagealloc_model.measured.contention import (
    BEGIN,
    END,
    SITES,
    SPIN,
    next_events,
    sites_by_event,
    zone_of_address,
)
from pagealloc_model.recording.trace.columns import Trace
from pagealloc_model.recording.zone_map import UNKNOWN_ZONE, ZoneMap

RELEASE = "lock:contended_release"
_COLUMNS = {
    "time_ns": "int64",
    "node": "int64",
    "zone": "str",
    "cpu": "int64",
    "site": "str",
    "waiting": "Int64",
}


def contended_releases(trace: Trace, zones: ZoneMap) -> pd.DataFrame:
    """Releases of the zones' locks that somebody waited for.

    A lock is a zone's, and a hold is a site's, by what its CPU did just before it let go.

    Args:
        trace: the events.
        zones: which zone a page belongs to.

    Returns:
        time_ns, node, zone, cpu, site, waiting (how many CPUs had begun to wait for that lock and
        not ended, NA where waits were not recorded). Empty where there are no such events, as where
        spinlocks emit none.
    """
    table = trace.tables.get(RELEASE)
    if table is None:
        return pd.DataFrame({name: pd.array([], kind) for name, kind in _COLUMNS.items()})
    rows = np.arange(len(table["time_ns"]))
    preceding = next_events(trace, table, rows, before=True)
    zone, _ = zone_of_address(trace, zones, np.asarray(table["lock_addr"]), preceding)
    rows = rows[zone != UNKNOWN_ZONE]
    zone, preceding = zone[rows], preceding[rows]
    return pd.DataFrame(
        {
            "time_ns": np.asarray(table["time_ns"])[rows],
            "node": [zones.zones[code].node for code in zone],
            "zone": [zones.zones[code].name for code in zone],
            "cpu": np.asarray(table["cpu"])[rows],
            "site": np.array(SITES, object)[sites_by_event(trace, preceding)],
            "waiting": _waiting(trace, table, rows),
        }
    ).astype(_COLUMNS)


def _waiting(trace: Trace, table: Mapping[str, np.ndarray], rows: np.ndarray) -> pd.array:
    """Waits for each release's lock that had begun before it and not ended."""
    begins, ends = trace.tables.get(BEGIN), trace.tables.get(END)
    waiting = pd.array([pd.NA] * len(rows), "Int64")
    if begins is None or ends is None:
        return waiting
    address = np.asarray(table["lock_addr"])[rows]
    time = np.asarray(table["time_ns"])[rows]
    spins = (np.asarray(begins["flags"]) & SPIN) != 0
    for lock in np.unique(address):
        same = address == lock
        begun = np.asarray(begins["time_ns"])[spins & (begins["lock_addr"] == lock)]
        ended = np.asarray(ends["time_ns"])[np.asarray(ends["lock_addr"]) == lock]
        count = np.searchsorted(begun, time[same]) - np.searchsorted(ended, time[same])
        waiting[np.flatnonzero(same)] = np.maximum(count, 0)
    return waiting
