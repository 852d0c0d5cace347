"""What per-CPU lists cost beside zone->lock: their own locks, and the work of pageblock ownership.

Counters are cumulative; those of ownership are NA where blocks are never owned (S11.3, S12.8).
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from pagealloc_model.allocator.core import layout as at
from pagealloc_model.allocator.core import ownership_layout as own
from pagealloc_model.allocator.core.state import State
from pagealloc_model.allocator.ownership.ownership_invariants import set_words
from pagealloc_model.recording.machine import Machine

LOCK_COLUMNS = ("lock_acquisitions", "lock_hand_overs", "lock_drain_holds")
"""Of pcp->lock: to allocate or free; taken over from another CPU; to drain only."""

OWNERSHIP_COLUMNS = {
    "blocks_claimed": own.BLOCKS_CLAIMED,
    "blocks_recorded": own.BLOCKS_RECORDED,
    "blocks_recovered": own.BLOCKS_RECOVERED,
    "ownerships_ended": own.OWNERSHIPS_ENDED,
    "remote_frees": own.REMOTE_FREES,
    "remote_busy": own.REMOTE_BUSY,
    "list_splits": own.LIST_SPLITS,
    "list_merges": own.LIST_MERGES,
    "merge_entries": own.MERGE_ENTRIES,
    "recorded_entries": own.RECORDED_ENTRIES,
}
"""What ownership adds, by counter."""

PHASES = ("recover", "claim", "chunk", "classic")


def list_words(state: State) -> np.ndarray:
    """Counters of pcp->lock, int64, shape (zones, 3), see `LOCK_COLUMNS`."""
    return state.pcp_words(at.PCP_LOCKS, len(LOCK_COLUMNS)).sum(axis=1)


def ownership_counters(state: State) -> np.ndarray:
    """Counters of ownership, int64, shape (zones, SET_STRIDE), or (zones, 0) without it."""
    if not state.st[at.OWNERSHIP]:
        return np.zeros((len(state.machine.zones), 0), np.int64)
    return set_words(state).sum(axis=1)


def list_use(
    machine: Machine, time_ns: np.ndarray, locks: np.ndarray, owned: np.ndarray
) -> pd.DataFrame:
    """time_ns, node, zone, then `LOCK_COLUMNS` and `OWNERSHIP_COLUMNS`, Int64.

    Args:
        machine: names of zones.
        time_ns: int64, shape (samples,).
        locks: `list_words` at each, shape (samples, zones, 3).
        owned: `ownership_counters` at each, shape (samples, zones, SET_STRIDE or 0).
    """
    frame, zones = _by_zone(machine, time_ns)
    for place, name in enumerate(LOCK_COLUMNS):
        frame[name] = pd.array(locks[:, zones, place].ravel(), dtype="Int64")
    for name, counter in OWNERSHIP_COLUMNS.items():
        frame[name] = _counted(owned, zones, counter, len(frame))
    return frame


def refill_phases(machine: Machine, time_ns: np.ndarray, owned: np.ndarray) -> pd.DataFrame:
    """time_ns, node, zone, phase, refills, objects, pages of refills by phase (S12.3), Int64.

    Args:
        machine: names of zones.
        time_ns: int64, shape (samples,).
        owned: `ownership_counters` at each, shape (samples, zones, SET_STRIDE or 0).
    """
    parts = []
    for number, phase in enumerate(PHASES):
        frame, zones = _by_zone(machine, time_ns)
        frame["phase"] = phase
        for word, name in enumerate(("refills", "objects", "pages")):
            counter = own.SET_PHASES + number * own.PHASE_WORDS + word
            frame[name] = _counted(owned, zones, counter, len(frame))
        parts.append(frame)
    return pd.concat(parts, ignore_index=True)


def _by_zone(machine: Machine, time_ns: np.ndarray) -> tuple[pd.DataFrame, list[int]]:
    """One row per time and populated zone; and the numbers of those zones."""
    zones = [index for index, zone in enumerate(machine.zones) if zone.managed]
    frame = pd.DataFrame(
        {
            "time_ns": np.repeat(time_ns, len(zones)),
            "node": [machine.zones[zone].node for zone in zones] * len(time_ns),
            "zone": [machine.zones[zone].name for zone in zones] * len(time_ns),
        }
    )
    return frame, zones


def _counted(owned: np.ndarray, zones: list[int], counter: int, rows: int) -> pd.Series:
    if owned.shape[-1] == 0:
        return pd.array([pd.NA] * rows, dtype="Int64")
    return pd.array(owned[:, zones, counter].ravel(), dtype="Int64")
