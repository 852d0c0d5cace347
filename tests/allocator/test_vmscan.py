"""Slabs of reclaimable caches under the model's reclaim (S10.8), on small states."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest

from pagealloc_model.allocator import layout as at
from pagealloc_model.allocator import pressure_layout as pr
from pagealloc_model.allocator.vmscan import do_shrink_slab
from pagealloc_model.base.jit import entry
from pagealloc_model.policy.assumptions import ElasticAssumptions
from pagealloc_model.policy.policy import Policy
from tests.allocator.invariants import broken_invariants
from tests.allocator.small_state import BLOCK, CALM, KERNEL, Pressed, bits_of, pressed_zone

SLAB = bits_of(pr.RECLAIMABLE, KERNEL | pr.GFP_FS)
EMPTIED = replace(CALM, slab_survivors_per_mille=0)  # every slab can be emptied
EACH = 4 * 2  # objects of a slab on one CPU


@entry
def shrink_once(m: at.Arrays, sc: int) -> int:
    """One call of node 0's shrinker; the pages that became free."""
    return do_shrink_slab(m, 0, sc)


def pressed(
    elastic: ElasticAssumptions = EMPTIED, policy: Policy | None = None, *, used: int = 0
) -> Pressed:
    """A zone of four blocks, the first one free; the others full of files, but for used pages."""
    state = Pressed(machine=pressed_zone(4, 64), elastic=elastic, policy=policy or Policy())
    state.put_free(9, 0)
    state.put_allocated(0, *range(BLOCK, BLOCK + used))
    state.put_allocated(0, *range(BLOCK + used, 4 * BLOCK), kind=pr.FILE)
    return state


def slabs(state: Pressed, count: int, bits: int = SLAB) -> list[int]:
    return [state.alloc(0, at.RECLAIMABLE, bits) for _ in range(count)]


def demand(state: Pressed, count: int) -> None:
    """Ask for kernel memory, which makes reclaim free something."""
    for _ in range(count):
        state.alloc(0, at.UNMOVABLE, KERNEL | pr.GFP_FS)
        state.let_pass(1_000_000)


def listed(state: Pressed) -> int:
    return int(state.node[pr.SLAB_LIST + at.ENTRIES])


def shrink_at(state: Pressed, priority: int) -> int:
    """One pass of node 0's shrinker; the pages that became free."""
    base = int(state.state.st[at.PRESSURE_BASE])
    state.state.st[base + pr.DIRECT_SCAN + pr.SC_PRIORITY] = priority
    state.state.st[base + pr.DIRECT_SCAN + pr.SC_MAY_FS] = 1
    return shrink_once(state.state.arrays(state.places), base + pr.DIRECT_SCAN)


def test_slabs_join_their_list_and_leave_it_with_their_objects() -> None:
    state = pressed()
    first, second, third = slabs(state, 3)
    assert listed(state) == 3
    assert state.node[pr.SLAB_FREEABLE] == 3 * EACH
    state.free(second)
    assert state.node[pr.SLAB_FREEABLE] == 2 * EACH
    state.free(first)
    state.free(third)
    assert (listed(state), state.node[pr.SLAB_FREEABLE]) == (0, 0)
    assert broken_invariants(state.state) == []


def test_few_objects_are_deferred_while_other_pages_can_go() -> None:
    state = pressed()
    slabs(state, 60)
    demand(state, 200)
    assert state.count("pgsteal_kswapd") + state.count("pgsteal_direct") > 0
    assert state.count("slabs_scanned") == 0
    assert listed(state) == 60
    assert state.node[pr.SLAB_DEFERRED] > 0


@pytest.mark.parametrize(
    ("objects", "deferred", "priority", "scanned", "left_over"),
    [
        # What was deferred counts by the priority, too, at most twice the objects.
        (8, 4096, 5, 16, 16),
        (512, 1000, 3, 128, 1000),
        (512, 128, 0, 1024, 128),
        # Few objects are all taken where more are to be scanned.
        (16, 0, 0, 32, 0),
        (16, 0, 1, 16, 0),
        (16, 0, 2, 0, 8),
    ],
)
def test_the_share_of_a_pass_worked_by_hand(
    objects: int, deferred: int, priority: int, scanned: int, left_over: int
) -> None:
    check_pass(pressed(), objects, deferred, priority, scanned, left_over)


def test_at_priority_12_a_batch_needs_262144_objects() -> None:
    """At 64 times the pressure 2,048 objects count as 131,072, of which the share is 64."""
    pressure = Policy(vfs_cache_pressure=6400)
    check_pass(pressed(policy=pressure), 1 << 11, 0, 12, 0, 64)
    check_pass(pressed(policy=pressure), 1 << 12, 0, 12, 128, 0)


def check_pass(
    state: Pressed, objects: int, deferred: int, priority: int, scanned: int, left_over: int
) -> None:
    """One slab; what one pass scans of it and leaves over."""
    st = state.state.st
    st[st[at.PRESSURE_BASE] + pr.SLAB_OBJECTS] = objects
    slab = slabs(state, 1)[0]
    state.node[pr.SLAB_DEFERRED] = deferred
    freed = shrink_at(state, priority)
    assert state.count("slabs_scanned") == scanned
    assert state.node[pr.SLAB_DEFERRED] == left_over
    assert freed == (scanned >= objects)
    assert (state.places[slab] == pr.LOST) == (scanned >= objects)
    assert state.node[pr.SLAB_FREEABLE] == max(objects - scanned, 0)


def test_slabs_lose_their_objects_in_turn() -> None:
    """One batch takes 7 of 8 objects of each of 18 slabs, and the last one of the oldest two."""
    state = pressed()
    numbers = slabs(state, 18)
    assert shrink_at(state, priority=1) == 2
    assert (state.places[numbers] == pr.LOST).tolist() == [True] * 2 + [False] * 16
    assert state.node[pr.SLAB_FREEABLE] == 16
    assert broken_invariants(state.state) == []


def test_slabs_go_oldest_first_where_nothing_else_can_go() -> None:
    state = pressed(used=3 * BLOCK)
    numbers = slabs(state, 300)
    demand(state, 300)
    gone = np.array([state.places[number] < 0 for number in numbers])
    assert gone.any()
    assert not gone[int(gone.sum()) :].any()
    assert state.word(pr.RECLAIMED_SLABS) == gone.sum()
    assert state.count("slabs_scanned") >= gone.sum() * EACH
    assert broken_invariants(state.state) == []


def test_survivors_lose_what_they_can_and_are_left_to_the_recording() -> None:
    state = pressed(CALM, used=3 * BLOCK)
    numbers = slabs(state, 300)
    assert state.node[pr.SLAB_FREEABLE] == 300 * (EACH - 1)
    demand(state, 300)
    assert (state.places[numbers] >= 0).all()
    assert state.count("slabs_scanned") > 0
    assert state.word(pr.RECLAIMED_SLABS) == listed(state) == 0
    state.free(numbers[7])
    assert state.places[numbers[7]] == pr.LOST


def test_reclaim_that_may_not_enter_file_systems_defers() -> None:
    """No time passes, so that only direct reclaim works."""
    state = pressed(used=3 * BLOCK)
    slabs(state, 400)
    for _ in range(200):
        state.alloc(0, at.UNMOVABLE, KERNEL)
    assert state.word(pr.ALLOCSTALL) > 0
    assert state.count("slabs_scanned") == 0
    assert state.node[pr.SLAB_DEFERRED] == 2 * state.node[pr.SLAB_FREEABLE]


@pytest.mark.parametrize("seed", range(2))
def test_every_slab_is_freed_once_at_most(seed: int) -> None:
    """Random requests and frees: invariants hold, and each page is free, or one object's."""
    rng = random.Random(seed)
    state = pressed(ElasticAssumptions(slab_survivors_per_mille=300), used=2 * BLOCK)
    alive: dict[int, int] = {}
    for _ in range(600):
        draw = rng.random()
        if draw < 0.6:
            order = rng.choice((0, 0, 1, 2))
            alive[state.alloc(order, at.RECLAIMABLE, SLAB)] = order
        elif draw < 0.8 and alive:
            number = rng.choice(list(alive))
            order = alive.pop(number)
            if order and rng.random() < 0.5:
                state.free(number, order - 1)
                state.free(number, order - 1, offset=1 << (order - 1))
            else:
                state.free(number, order)
        else:
            demand(state, 1)
        assert listed(state) <= state.node[pr.SLAB_FREEABLE] <= listed(state) * EACH
    assert broken_invariants(state.state) == []
    assert listed(state) == (state.state.folios["slab"] > 0).sum()
    assert state.word(pr.RECLAIMED_SLABS) > 0
