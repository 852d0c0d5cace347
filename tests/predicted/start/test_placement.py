"""Free buddies placed so that merging leaves exactly those wanted."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pagealloc_model.allocator import layout as at
from pagealloc_model.allocator.state import maximal_buddies
from pagealloc_model.predicted.start.evidence import swap_closer
from pagealloc_model.predicted.start.placement import place_exactly

PAGEBLOCK_ORDER, MAX_ORDER, BLOCKS = 4, 5, 24
PAGES = BLOCKS << PAGEBLOCK_ORDER


class Placed(NamedTuple):
    free: np.ndarray
    block_types: np.ndarray
    unmet: np.ndarray


def placed(
    wanted: np.ndarray,
    blocks: list[int],
    usable: np.ndarray | None = None,
    preferred: np.ndarray | None = None,
    seed: int = 0,
) -> Placed:
    chosen = place_exactly(
        np.ones(PAGES, bool) if usable is None else usable,
        np.zeros(PAGES, bool) if preferred is None else preferred,
        np.ones(BLOCKS, bool),
        np.zeros((at.MIGRATETYPES, BLOCKS), np.int64),
        wanted,
        np.array(blocks + [0] * (at.MIGRATETYPES - len(blocks))),
        PAGEBLOCK_ORDER,
        MAX_ORDER,
        np.random.default_rng(seed),
    )
    return Placed(*chosen)


def table_of(found: Placed) -> np.ndarray:
    table = np.zeros((at.ORDERS, at.MIGRATETYPES), np.int64)
    pfns, orders = maximal_buddies(found.free, found.block_types, PAGEBLOCK_ORDER, MAX_ORDER)
    np.add.at(table, (orders.astype(int), found.block_types[pfns >> PAGEBLOCK_ORDER]), 1)
    return table


def wanted_of(rows: dict[int, list[int]]) -> np.ndarray:
    """Buddies by order: counts of Unmovable, Movable, Reclaimable and HighAtomic."""
    wanted = np.zeros((at.ORDERS, at.MIGRATETYPES), np.int64)
    for order, counts in rows.items():
        wanted[order, : len(counts)] = counts
    return wanted


def test_pages_in_use_are_not_free_and_preferred_ones_are() -> None:
    usable, preferred = np.ones(PAGES, bool), np.zeros(PAGES, bool)
    usable[::7] = False
    preferred[[33, 34, 35, 88, 200]] = True
    found = placed(wanted_of({0: [0, 12], 1: [0, 4]}), [0, 24], usable, preferred)
    assert not (found.free & ~usable).any()
    assert found.free[[33, 34, 88, 200]].all()
    assert table_of(found)[:2, at.MOVABLE].tolist() == [12, 4]


def test_what_finds_no_room_is_halved_and_said() -> None:
    usable = np.ones(PAGES, bool)
    usable[8::16] = False
    found = placed(wanted_of({4: [0, 2]}), [0, 24], usable)
    assert found.unmet[4, at.MOVABLE] == 2
    assert found.free.sum() == 32
    assert table_of(found)[3, at.MOVABLE] == 4


@settings(max_examples=60)
@given(st.data())
def test_any_table_that_a_buddy_system_can_show_is_met(data: st.DataObject) -> None:
    """Draw a machine's free pages and types, count, place the counts, count again."""
    drawn = data.draw(st.lists(st.integers(0, 3), min_size=BLOCKS // 2, max_size=BLOCKS // 2))
    types = np.repeat(np.array(drawn, np.int8), 2)
    seed = data.draw(st.integers(0, 1 << 30))
    random = np.random.default_rng(seed)
    free = np.repeat(random.random(PAGES // 4) < 0.7, 4)
    free &= random.random(PAGES) < data.draw(st.sampled_from([0.6, 0.95, 0.995]))
    real = Placed(free=free, block_types=types, unmet=np.zeros((1, 1)))
    wanted = table_of(real)
    found = placed(wanted, np.bincount(types, minlength=4).tolist(), seed=seed)
    lost = int(found.unmet.sum())
    if not lost:
        assert table_of(found).tolist() == wanted.tolist()
    assert found.free.sum() == free.sum() - found.unmet[0].sum()
    assert lost == 0 or (wanted[PAGEBLOCK_ORDER:].sum() > 0)


@pytest.mark.parametrize("seed", [0, 1])
def test_seeds_move_pages_and_keep_counts(seed: int) -> None:
    wanted = wanted_of({3: [1, 4], 0: [3, 9]})
    found = placed(wanted, [4, 20], seed=seed)
    assert table_of(found).tolist() == wanted.tolist()
    other = placed(wanted, [4, 20], seed=seed + 2)
    assert not np.array_equal(found.free, other.free)


# Swaps of block types by a kernel, against lists of numbers


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
