"""When pageblocks got another type, from the kprobe pa:block_type."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from pagealloc_model.recording.trace.columns import Trace
from pagealloc_model.recording.zone_map import ZoneMap

PROBE = "pa:block_type"
_TYPE_BITS = 7
_PAGE_BYTES = 64
"""Size of struct page on x86, where a page's place in vmemmap is its frame number."""
_BASE_ALIGNMENT = 1 << 30
"""Of vmemmap. An anonymised recording's base has lost it: frame numbers are then unknown."""


def block_types_table(trace: Trace, zones: ZoneMap, *, migratetypes: Sequence[str]) -> pd.DataFrame:
    """Every setting of a pageblock's type while the probe was on.

    Args:
        trace: the events.
        zones: which zone a page belongs to.
        migratetypes: names by number.

    Returns:
        time_ns, node, zone, cpu, pfn (of the block's first page), migratetype (the new one, NA for
        a number without a name). pfn, node and zone are NA where the probe could not tell. Empty
        without the probe, or where nothing changed.
    """
    table = trace.tables.get(PROBE, {})
    number = np.asarray(table.get("mt", np.zeros(0)), np.int64)
    rows = np.arange(len(number))
    if "mask" in table:
        rows = np.flatnonzero(np.asarray(table["mask"]) & _TYPE_BITS)
    pfn = _frames(table, len(number))[rows]
    code = zones.codes(pfn)
    node = pd.array([*(zone.node for zone in zones.zones), pd.NA], "Int64")
    zone = np.array([*(zone.name for zone in zones.zones), None], object)
    names = np.array([*migratetypes, None], object)
    type_bits = number[rows] & _TYPE_BITS
    empty = np.zeros(0, np.int64)
    return pd.DataFrame(
        {
            "time_ns": np.asarray(table.get("time_ns", empty))[rows],
            "node": node[code],
            "zone": pd.Series(zone[code], dtype="str"),
            "cpu": np.asarray(table.get("cpu", empty)).astype(np.int64)[rows],
            "pfn": pd.arrays.IntegerArray(pfn, pfn < 0),
            "migratetype": pd.Series(names[np.minimum(type_bits, len(migratetypes))], dtype="str"),
        }
    )


def _frames(table: Mapping[str, np.ndarray], rows: int) -> np.ndarray:
    """Page frame number of each setting, int64, -1 where unknown."""
    if "pfn" in table:
        return np.asarray(table["pfn"]).astype(np.int64)
    if "base" not in table:
        return np.full(rows, -1, np.int64)
    page, base = np.asarray(table["page"], np.uint64), np.asarray(table["base"], np.uint64)
    known = (base % np.uint64(_BASE_ALIGNMENT) == 0) & (page >= base)
    frames = ((page - base) // np.uint64(_PAGE_BYTES)).astype(np.int64)
    return np.where(known, frames, -1)
