"""Pageblocks counted from what changed are those counted anew."""

from __future__ import annotations

import numpy as np

from pagealloc_model.allocator import layout as at
from pagealloc_model.predicted.run import BlockCounter
from tests.allocator.event_sequence import start_state


def test_counts_follow_blocks_that_change() -> None:
    state = start_state()
    counter = BlockCounter(state)
    rng = np.random.default_rng(3)
    for changes in (0, 1, 5, 0, len(state.blocks)):
        chosen = rng.choice(len(state.blocks), min(changes, len(state.blocks)), replace=False)
        state.blocks["migratetype"][chosen] = rng.integers(0, at.MIGRATETYPES, len(chosen))
        found = counter.counts()
        assert found.dtype == np.int64
        assert (found == state.block_counts()).all()
    state.blocks["zone"][:2] = 2
    assert (counter.counts() == state.block_counts()).all()
