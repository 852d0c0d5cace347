"""States reached by any sequence are sound, and `State.check` tells those that are not."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from pagealloc_model.allocator import layout as at
from pagealloc_model.allocator import pressure_layout as pr
from pagealloc_model.allocator.state import State
from pagealloc_model.policy.assumptions import ElasticAssumptions
from pagealloc_model.policy.ownership_options import OwnershipOptions
from pagealloc_model.policy.policy import Policy
from tests.allocator.invariants import broken_invariants, broken_pieces, owners
from tests.allocator.model_driver import state_like
from tests.allocator.small_state import KERNEL, Pressed, bits_of, pressed_zone
from tests.oracle import Oracle
from tests.oracle.scenarios import BLOCK, one_zone, oracle, put_free_blocks

SomePressed = TypeVar("SomePressed", bound=Pressed)

REQUESTS = st.tuples(
    st.sampled_from([0, 0, 0, 1, 2, 3, 5, 9, 9]),
    st.sampled_from([(0, pr.KERNEL), (1, pr.ANON), (1, pr.FILE), (2, pr.RECLAIMABLE)]),
    st.sampled_from([KERNEL, KERNEL | pr.GFP_NORETRY, at.GFP_KSWAPD_RECLAIM, at.GFP_HIGH | 0x800]),
    st.integers(0, 3),
)
POLICIES = (
    Policy(),
    Policy(defrag_mode=True),
    Policy(compact_gap=8, extfrag_threshold=0),
    *(
        Policy(
            pageblock_ownership="pcp_buddy",
            ownership=OwnershipOptions(fit_test="always", merges_at=merges_at),
        )
        for merges_at in ("drain", "free")
    ),
)


def hostile(
    policy: Policy, rules: str, whole: int = 0, kind_of_state: type[SomePressed] = Pressed
) -> SomePressed:
    """A zone half in use, where scans and moves have every outcome; `whole` blocks are free."""
    elastic = ElasticAssumptions(
        file_referenced_per_mille=200,
        file_dirty_per_mille=200,
        anon_referenced_per_mille=300,
        anon_scan_percent=50,
        anon_migration_fails_per_mille=200,
        file_migration_fails_per_mille=200,
        compaction_contended_per_mille=50,
    )
    pressed = kind_of_state(rules, pressed_zone(6, 96), policy, elastic)
    rng = np.random.default_rng(1)
    for block in range(whole):
        pressed.put_free(9, block * BLOCK)
    for pfn in range(whole * BLOCK, 6 * BLOCK, 8):
        kind = int(rng.choice([pr.KERNEL, pr.ANON, pr.FILE, pr.FILE, -1]))
        if kind < 0:
            pressed.put_free(0, pfn + 1)
        else:
            pressed.put_allocated(0, pfn + 1, kind=kind)
        pressed.put_allocated(0, pfn, kind=pr.FILE)
        pressed.put_free(1, pfn + 2)
        pressed.put_free(2, pfn + 4)
    pressed.node[pr.PROACTIVE_DUE] = 1
    return pressed


def sound(pressed: Pressed) -> list[str]:
    return broken_invariants(pressed.state) + broken_pieces(pressed.state, pressed.places)


def all_pages(pressed: Pressed) -> int:
    """Pages in buddies, on per-CPU lists, in use, and held by compaction."""
    heads = pressed.state.pages["where"] != at.NOWHERE
    return int((1 << pressed.state.pages["order"][heads].astype(np.int64)).sum())


@settings(max_examples=9, phases=(Phase.generate,))
@given(
    st.lists(REQUESTS, min_size=40, max_size=100),
    st.sampled_from(POLICIES),
    st.sampled_from(["6.12", "7.2", "7.3"]),
)
def test_no_page_is_lost_whatever_is_asked(
    requests: list[tuple[int, tuple[int, int], int, int]], policy: Policy, rules: str
) -> None:
    owns = policy.pageblock_ownership is not None
    pressed = hostile(policy, rules, whole=2 if owns else 0)
    live = [(pressed.alloc(0, at.MOVABLE, bits_of(pr.FILE)), 0)]
    assert not owns or (owners(pressed.state) > 0).any()
    for step, (order, (migratetype, kind), bits, wait) in enumerate(requests):
        live.append((pressed.alloc(order, migratetype, bits_of(kind, bits)), order))
        if step % 3 == 2:
            number, size = live.pop(step % len(live))
            pressed.free(number, size)
        pressed.let_pass(wait * 400_000)
        if owns or step % 10 == 0:
            assert sound(pressed) == []
    assert sound(pressed) == []
    assert all_pages(pressed) == 6 * BLOCK


def sound_state() -> State:
    """One zone with two free blocks, a whole one and one cut to pieces, and an allocation."""
    target: Oracle = oracle(one_zone(4))
    put_free_blocks(target, 0, 1)
    for pfn in range(BLOCK, 2 * BLOCK, 2):
        target.put_free(pfn, 0, 1)
        target.put_allocated(pfn + 1, 0, movable=True)
    return state_like(target)


def test_the_state_to_be_broken_is_sound() -> None:
    assert broken_invariants(sound_state()) == []


def put(record: np.ndarray | np.void, key: int | str, value: int) -> None:
    record[key] = value


def leave_a_pair_unmerged(state: State) -> None:
    lists = state.zone_region(0)[at.ZONE_LISTS :].reshape(-1, at.MIGRATETYPES, at.LIST_WORDS)
    words = lists[0, at.MOVABLE]
    tail, pfn = int(words[at.TAIL]), 3 * BLOCK - 1
    for each, before in ((pfn - 1, tail), (pfn, pfn - 1)):
        state.pages[before]["next"] = each
        state.pages[each] = (-1, before, 0, at.BUDDY, at.MOVABLE, 0)
    words[at.TAIL] = pfn
    words[at.ENTRIES] += 2
    state.zone_region(0)[at.ZONE_FREE] += 2


SPOILT: dict[str, Callable[[State], None]] = {
    "linked": lambda state: put(state.pages[BLOCK], "next", -1),
    "pages on free lists": lambda state: put(state.zone_region(0), at.ZONE_FREE, 1),
    "free highatomic pages miscounted": (
        lambda state: put(state.zone_region(0), at.ZONE_FREE_HIGHATOMIC, 1)
    ),
    "pages listed": lambda state: put(state.pcp_region(0, 0), at.PCP_COUNT, 1),
    "not marked as its free buddy": lambda state: put(state.pages[BLOCK], "where", at.NOWHERE),
    "block of another type or zone": (
        lambda state: put(state.blocks[1], "migratetype", at.UNMOVABLE)
    ),
    "pages reserved": (lambda state: put(state.zone_region(0), at.ZONE_RESERVED_HIGHATOMIC, BLOCK)),
    "overlaps free pages": lambda state: put(state.pages[BLOCK + 1], "order", 1),
    "marked as of another list": lambda state: put(state.pages[BLOCK], "tag", at.UNMOVABLE),
    "have not merged": leave_a_pair_unmerged,
}
"""Ways to break a state, by words of the complaint."""


@pytest.mark.parametrize("words", SPOILT)
def test_check_names_what_is_broken(words: str) -> None:
    state = sound_state()
    SPOILT[words](state)
    assert any(words in line for line in broken_invariants(state))


def test_a_block_given_back_whole_stays_beside_its_free_neighbour() -> None:
    """S7.4: the pair merges only when one of the two is freed again."""
    target = oracle(one_zone(6))
    target.set_block_type(1, at.HIGHATOMIC)
    target.put_free(BLOCK, 9, at.HIGHATOMIC)
    put_free_blocks(target, 0, 1)
    state = state_like(target)
    assert broken_invariants(state) == []
    lists = state.zone_region(0)[at.ZONE_LISTS :].reshape(-1, at.MIGRATETYPES, at.LIST_WORDS)
    lists[9, at.MOVABLE] = np.array([0, BLOCK, 2])
    lists[9, at.HIGHATOMIC] = np.array([-1, -1, 0])
    state.pages[0]["next"], state.pages[BLOCK]["prev"] = BLOCK, 0
    state.pages[BLOCK]["tag"] = state.blocks[1]["migratetype"] = at.MOVABLE
    state.zone_region(0)[[at.ZONE_FREE_HIGHATOMIC, at.ZONE_RESERVED_HIGHATOMIC]] = 0
    assert any("have not merged" in line for line in broken_invariants(state))
    unreserve = at.PCP_SITES + at.SITE_UNRESERVE * at.SITE_WORDS
    state.pcp_region(0, 0)[unreserve + at.SITE_OBJECTS] = 1
    assert broken_invariants(state) == []


def test_6_1_may_list_pages_apart_from_their_blocks_but_not_reserve_less_than_is_tagged() -> None:
    """S6.5, S7.4: fallbacks lose HIGHATOMIC tags that the count still holds, never the reverse."""
    target = oracle(one_zone(4), "6.1")
    put_free_blocks(target, 0, 1)
    state = state_like(target)
    state.blocks[0]["migratetype"] = at.UNMOVABLE
    state.zone_region(0)[at.ZONE_RESERVED_HIGHATOMIC] = BLOCK
    assert broken_invariants(state) == []
    state.blocks[1]["migratetype"] = state.blocks[2]["migratetype"] = at.HIGHATOMIC
    assert any("pages reserved" in line for line in broken_invariants(state))
