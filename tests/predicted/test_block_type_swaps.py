"""Swaps of block types by a kernel, against lists of numbers."""

from __future__ import annotations

import numpy as np
import pytest

from pagealloc_model.predicted.start.evidence import swap_closer


def swapped(
    types: list[int], pairs: list[tuple[int, int]], changes: list[list[int]], off: list[list[int]]
) -> list[int]:
    """Types after each swap that brings two of them closer to what is wanted."""
    for (left, right), change in zip(pairs, changes, strict=True):
        a, b = types[left], types[right]
        if a == b:
            continue
        grown = [have + more for have, more in zip(off[a], change, strict=True)]
        shrunk = [have - more for have, more in zip(off[b], change, strict=True)]
        if sum(map(abs, grown + shrunk)) < sum(map(abs, off[a] + off[b])):
            off[a], off[b] = grown, shrunk
            types[left], types[right] = b, a
    return types


@pytest.mark.parametrize("seed", range(10))
def test_types_are_swapped_while_that_brings_them_closer(seed: int) -> None:
    random = np.random.default_rng(seed)
    types = random.integers(0, 3, 20).astype(np.int8)
    pairs = random.integers(0, 20, (200, 2))
    changes = random.integers(-5, 6, (200, 4))
    off = random.integers(-30, 31, (3, 4))
    expected = swapped(types.tolist(), pairs.tolist(), changes.tolist(), off.tolist())
    assert expected != types.tolist()
    swap_closer(types, pairs[:, 0].copy(), pairs[:, 1].copy(), changes, off)
    assert types.tolist() == expected
