"""Pageblocks by zone and migratetype, counted at every sample of a replay, which changes few."""

from __future__ import annotations

import numpy as np

from pagealloc_model.allocator.core import layout as at
from pagealloc_model.allocator.core.state import State

TYPES = 256
"""Values of a block's first byte, its migratetype; the second is its zone's number plus one."""


class BlockCounter:
    """What `State.block_counts` counts, from what changed since it was last asked."""

    def __init__(self, state: State) -> None:
        """Count all blocks once.

        Args:
            state: its array of blocks is read whenever counts are asked for.
        """
        self._blocks = state.blocks.view("<u2")
        self._seen = self._blocks.copy()
        self._counts = np.bincount(self._seen, minlength=(len(state.machine.zones) + 1) * TYPES)

    def counts(self) -> np.ndarray:
        """Pageblocks now, int64, shape (zones, migratetypes)."""
        changed = np.flatnonzero(self._blocks != self._seen)
        if len(changed):
            np.subtract.at(self._counts, self._seen[changed], 1)
            self._seen[changed] = self._blocks[changed]
            np.add.at(self._counts, self._seen[changed], 1)
        return self._counts.reshape(-1, TYPES)[1:, : at.MIGRATETYPES].astype(np.int64)
