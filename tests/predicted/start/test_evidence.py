"""What is known of the pages at the start: those seen allocated."""

from __future__ import annotations

import numpy as np

from pagealloc_model.allocator import objects as resolved
from pagealloc_model.predicted.start.evidence import first_seen_allocated


def test_pages_of_a_larger_piece_are_known_one_by_one() -> None:
    """A huge page in whose block others were freed before: the rest was free at the start."""
    found = np.zeros(4, resolved.OBJECT)
    found["pfn"] = (8, 8, 16, 24)
    found["order"] = (0, 3, 0, 1)
    found["kind"] = (resolved.AT_START, resolved.RECORDED, resolved.RECORDED, resolved.HIDDEN)
    assert np.flatnonzero(first_seen_allocated(found, 32)).tolist() == [*range(9, 16), 16]
