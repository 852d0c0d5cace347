"""Transactions counted by size as the log is emptied, so that no row of it need be kept."""

from __future__ import annotations

import numpy as np
import pandas as pd

from pagealloc_model.allocator.core import layout as at
from pagealloc_model.predicted.hold_sites import SITE_NAMES, named_sites
from pagealloc_model.recording.machine import Machine

_KEPT_APART = 1 << 16


class TransactionCounts:
    """A histogram of zone->lock holds that grows with its bins, not with the holds.

    Args:
        machine: its zones and CPUs.
    """

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._keys = [np.zeros(0, np.int64)]
        self._counts = [np.zeros(0, np.int64)]

    def add(self, log: np.ndarray) -> None:
        """Count the transactions among log rows, int64, shape (rows, LOG_COLUMNS)."""
        log = log[log[:, 0] < at.SITES]
        list_of = log[:, 2] * self._machine.nr_cpus + log[:, 3]
        place = list_of * len(SITE_NAMES) + named_sites(log)
        keys, counts = np.unique(place << 32 | log[:, 6], return_counts=True)
        self._keys.append(keys)
        self._counts.append(counts)
        if sum(map(len, self._keys[1:])) > max(_KEPT_APART, len(self._keys[0])):
            self._fold()

    @property
    def transactions(self) -> pd.DataFrame:
        """The table that `Replay.transactions` is."""
        self._fold()
        keys, machine = self._keys[0], self._machine
        place = keys >> 32
        zone, cpu = np.divmod(place // len(SITE_NAMES), machine.nr_cpus)
        names = [SITE_NAMES[site] for site in range(len(SITE_NAMES))]
        site = place % len(SITE_NAMES)
        frame = pd.DataFrame(
            {
                "node": np.array([each.node for each in machine.zones])[zone],
                "zone": np.array([each.name for each in machine.zones], object)[zone],
                "cpu": cpu,
                "site": np.array([name for name, _ in names], object)[site],
                "cause": np.array([cause for _, cause in names], object)[site],
                "objects": keys & ((1 << 32) - 1),
                "transactions": self._counts[0],
            }
        )
        by = ["node", "zone", "cpu", "site", "cause", "objects"]
        return frame.sort_values(by).reset_index(drop=True)

    def _fold(self) -> None:
        """Bring equal keys together."""
        keys, inverse = np.unique(np.concatenate(self._keys), return_inverse=True)
        counts = np.zeros(len(keys), np.int64)
        np.add.at(counts, inverse, np.concatenate(self._counts))
        self._keys, self._counts = [keys], [counts]
