"""Pages that a probe at the return of alloc_pages_bulk() names."""

from __future__ import annotations

import numpy as np

from pagealloc_model.recording.trace.bulk import bulk_pages

BASE = 0xFFFF_EA00_0000_0000


def test_pages_are_those_that_the_probe_saw() -> None:
    returns = {
        "got": np.array([0, 3]),
        "base": np.array([BASE, BASE], np.uint64),
        "page0": np.array([0, BASE + 64 * 7], np.uint64),
        "page1": np.array([0, BASE + 64 * 9], np.uint64),
    }
    assert list(bulk_pages(returns, 0)) == []
    assert list(bulk_pages(returns, 1)) == [7, 9, -1]
    assert list(bulk_pages({"got": np.array([2])}, 0)) == [-1, -1]
