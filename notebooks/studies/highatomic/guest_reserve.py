"""The reserve in guests, snapshot by snapshot; free lists and counters tell it without events."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pandas as pd

from pagealloc_model.measured.measured import snapshot_tables
from pagealloc_model.recording.recording import Recording
from pagealloc_model.recording.snapshot import Snapshot

COUNTERS = (
    "thp_fault_alloc",
    "thp_fault_fallback",
    "compact_daemon_migrate_scanned",
    "pgscan_kswapd",
)
ASKED = 5
"""Huge pages are asked for in earnest once so many faults were counted: the set-up has a few."""
MARK = 90
"""Proactive compaction begins above it at `compaction_proactiveness` 20 (S9.6)."""
PAGES = 512
"""Of a pageblock, in the guests that ship."""
HUGE_ORDER = 9
"""Of a huge page of x86-64."""


def reserve_over_time(snapshots: Sequence[Snapshot]) -> pd.DataFrame:
    """Content of the reserve, and the score of S9.6, at each snapshot.

    Returns:
        Columns second since the first; reserved_blocks; whole_blocks, its free huge buddies;
        partly_used, its other free pages; free_pages, all; low_mark, pages; score and
        score_without_reserve, percent of the free pages in pieces smaller than a pageblock; and
        `COUNTERS` since the first snapshot.
    """
    usable = [one for one in snapshots if one.pagetypeinfo and one.zoneinfo and one.vmstat]
    free = snapshot_tables(usable)["free_pages"]
    blocks = snapshot_tables(usable)["pageblocks"]
    order = next((state.pagetypeinfo.pageblock_order for state in usable if state.pagetypeinfo), 9)
    reserved = free["migratetype"] == "HighAtomic"
    whole = free["order"] >= order
    pages = free["pages"].astype(float)
    sums = {
        "free_pages": pages,
        "in_pieces": pages.where(~whole, 0),
        "own": pages.where(reserved, 0),
        "partly_used": pages.where(reserved & ~whole, 0),
    }
    table = pd.DataFrame(sums).groupby(free["time_ns"]).sum().astype(int)
    rest = table["free_pages"] - table["own"]
    table["score"] = 100 * table["in_pieces"] // table["free_pages"]
    table["score_without_reserve"] = 100 * (table["in_pieces"] - table["partly_used"]) // rest
    table["whole_blocks"] = (table["own"] - table["partly_used"]) // (1 << order)
    held = blocks[blocks["migratetype"] == "HighAtomic"].groupby("time_ns")["blocks"].sum()
    table["reserved_blocks"] = held
    zones = [state.zoneinfo.zones for state in usable if state.zoneinfo]
    table["low_mark"] = [sum(zone.low or 0 for zone in part if zone.managed) for part in zones]
    values = [state.vmstat for state in usable if state.vmstat]
    for name in COUNTERS:
        table[name] = [(value.get(name) or 0) - (values[0].get(name) or 0) for value in values]
    table["second"] = (table.index - table.index[0]) / 1e9
    return table.drop(columns=["in_pieces", "own"]).reset_index(drop=True)


def reserve_by_run(table: pd.DataFrame) -> pd.DataFrame:
    """Growth of each run's reserve, and its state when huge pages were asked for."""
    rows = []
    for name, own in table.groupby("run", sort=False):
        faults = own["thp_fault_alloc"] + own["thp_fault_fallback"]
        quiet = own[faults < ASKED].iloc[-1]
        busy, last = own[faults >= ASKED], own.iloc[-1]
        grown = own.loc[own["reserved_blocks"].diff() > 0, "second"]
        held_back = (busy["score"] <= MARK) & (busy["score_without_reserve"] > MARK)
        rows.append(
            {"run": name, "first_block_s": grown.min(), "last_block_s": grown.max()}
            | {name: quiet[name] for name in ("reserved_blocks", "whole_blocks", "partly_used")}
            | {
                "in_use": PAGES * (quiet["reserved_blocks"] - quiet["whole_blocks"])
                - quiet["partly_used"]
            }
            | {"free_pages": quiet["free_pages"], "held_back": held_back.mean()}
            | {"thp_success": last["thp_fault_alloc"] / faults.iloc[-1]}
            | {"kcompactd_scanned": last["compact_daemon_migrate_scanned"]}
            | {"kswapd_scanned": last["pgscan_kswapd"]}
        )
    return pd.DataFrame(rows)


NOT_TAKEN = ("HighAtomic", "Isolate")
"""Types whose free pages no huge page may take."""


def index_states(recordings: Iterable[Recording]) -> pd.DataFrame:
    """States of zones whose only free huge buddies are of types that no huge page may take.

    The fragmentation index is -1000 there, so that compaction is never declined (S9.2).

    Returns:
        A row a snapshot and zone: recording, zone, hidden, these buddies, and index_without, what
        the index is without such types. From 0 to `extfrag_threshold` (500) it declines.
    """
    rows = []
    for recording in recordings:
        usable = [one for one in recording.dated_snapshots if one.pagetypeinfo and one.zoneinfo]
        free = snapshot_tables(usable)["free_pages"]
        free = free.assign(huge=free["buddies"].where(free["order"] >= HUGE_ORDER, 0))
        for (_, _, zone), state in free.groupby(["time_ns", "node", "zone"]):
            own = state[~state["migratetype"].isin(NOT_TAKEN)]
            hidden = state["huge"].sum()
            if hidden and not own["huge"].sum():
                index = _fragmentation_index(own["pages"].sum(), own["buddies"].sum())
                rows.append((recording.name, zone, hidden, index))
    return pd.DataFrame(rows, columns=["recording", "zone", "hidden", "index_without"])


def _fragmentation_index(pages: int, buddies: int) -> int:
    """__fragmentation_index() of a huge page for which no buddy suffices (S9.2)."""
    return 1000 - (1000 + 1000 * pages // (1 << HUGE_ORDER)) // buddies if buddies else 0
