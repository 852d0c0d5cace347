"""Objects of an elastic replay: pieces, base pages, absorbed requests; sound at every step."""

from __future__ import annotations

from typing import TypeVar

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from pagealloc_model.allocator import layout as at
from pagealloc_model.allocator import pressure_layout as pr
from pagealloc_model.allocator.invariants import broken_invariants, broken_pieces, owners
from pagealloc_model.allocator.pressure_layout import compactor_at
from pagealloc_model.policy.assumptions import ElasticAssumptions
from pagealloc_model.policy.ownership_options import OwnershipOptions
from pagealloc_model.policy.policy import Policy
from tests.allocator.elastic_state import BLOCK, KERNEL, Pressed, bits_of, pressed_zone
from tests.allocator.test_compaction import sparse

SomePressed = TypeVar("SomePressed", bound=Pressed)
MOVABLE = at.MOVABLE
THP = bits_of(pr.ANON, KERNEL | at.GFP_NOMEMALLOC)
FILE = bits_of(pr.FILE)


def two_free_blocks() -> Pressed:
    pressed = Pressed(machine=pressed_zone(4, 0))
    pressed.put_free(9, 0, BLOCK)
    return pressed


def only_single_pages() -> Pressed:
    """No buddy above order 0 is free, and nothing moves."""
    pressed = Pressed(machine=pressed_zone(4, 0))
    pressed.put_allocated(0, *range(0, 4 * BLOCK, 2))
    pressed.put_free(0, *range(1, 4 * BLOCK, 2))
    return pressed


def sound(pressed: Pressed) -> list[str]:
    return broken_invariants(pressed.state) + broken_pieces(pressed.state, pressed.places)


def test_part_of_an_object_is_freed() -> None:
    pressed = two_free_blocks()
    number = pressed.alloc(3, MOVABLE, FILE)
    pressed.free(number, 1, offset=2)
    assert sorted(pressed.pieces(number)) == [0, 4]
    assert sound(pressed) == []
    for offset, order in ((0, 1), (4, 2)):
        pressed.free(number, order, offset=offset)
    assert pressed.places[number] == pr.LOST
    assert sound(pressed) == []


def test_a_huge_page_refused_becomes_base_pages_that_are_freed_together() -> None:
    pressed = only_single_pages()
    number = pressed.alloc(9, MOVABLE, THP | pr.GFP_NORETRY)
    assert sorted(pressed.pieces(number)) == list(range(BLOCK))
    assert pressed.count("thp_fault_fallback") == 1
    assert pressed.state.st[at.COUNT_IN_BASE_PAGES] == 1
    pressed.free(number, 9)
    assert pressed.pieces(number) == {}
    assert sound(pressed) == []


@pytest.mark.parametrize("touched", [9, 0])
def test_only_touched_pages_come_in_place_of_a_huge_page(touched: int) -> None:
    elastic = ElasticAssumptions(base_pages_per_huge=touched)
    pressed = Pressed(machine=pressed_zone(4, 0), elastic=elastic)
    pressed.put_allocated(0, *range(0, 4 * BLOCK, 2))
    pressed.put_free(0, *range(1, 4 * BLOCK, 2))
    number = pressed.alloc(9, MOVABLE, THP | pr.GFP_NORETRY)
    assert sorted(pressed.pieces(number)) == list(range(BLOCK - touched, BLOCK))
    pressed.free(number, 9)
    assert pressed.pieces(number) == {}
    assert sound(pressed) == []


def test_an_atomic_request_that_fails_stays_a_failure() -> None:
    pressed = only_single_pages()
    number = pressed.alloc(3, at.UNMOVABLE, at.GFP_HIGH)
    assert pressed.places[number] == -1
    assert pressed.word(pr.DEMAND_FAILED) == 1


@pytest.mark.parametrize("succeeds", [True, False])
def test_requests_in_place_of_a_failure_are_made_only_if_it_fails_again(succeeds: bool) -> None:
    pressed = two_free_blocks() if succeeds else only_single_pages()
    lead = pressed.alloc(9, MOVABLE, THP | pr.GFP_NORETRY, operation=at.RECORDED_FAILURE)
    pressed.leads[pressed.objects] = lead
    member = pressed.alloc(0, MOVABLE, bits_of(pr.ANON))
    assert (pressed.places[lead] >= 0) == succeeds
    assert (pressed.places[member] == pr.ABSORBED) == succeeds
    pressed.free(member)
    assert pressed.word(pr.ABSORBED_FREES) == succeeds
    assert sound(pressed) == []


@pytest.mark.parametrize("madvised", [False, True])
def test_a_huge_page_refused_nearby_is_asked_of_all_nodes(madvised: bool) -> None:
    """The local attempt fails before it reclaims; in madvised memory the second retries (S8.5)."""
    elastic = ElasticAssumptions(thp_madvised=madvised)
    pressed = Pressed(
        machine=pressed_zone(8, 64), policy=Policy(extfrag_threshold=0), elastic=elastic
    )
    for pfn in range(0, 8 * BLOCK, 4):
        pressed.put_allocated(0, pfn, kind=pr.FILE)
        pressed.put_free(0, pfn + 1)
        pressed.put_free(1, pfn + 2)
    pressed.state.blocks["migratetype"][:] = at.UNMOVABLE
    pressed.state.st[at.RULE_LISTS_MATCH_BLOCKS] = 0
    pressed.alloc(9, MOVABLE, THP | pr.GFP_NORETRY | at.GFP_THISNODE)
    assert pressed.count("compact_stall") >= 2
    mode = pressed.state.st[compactor_at.py_func(pressed.state.arrays(), 0) + pr.RUN_MODE]
    assert mode == (pr.SYNC_LIGHT if madvised else pr.ASYNC)


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


REQUESTS = st.tuples(
    st.sampled_from([0, 0, 0, 1, 2, 3, 5, 9, 9]),
    st.sampled_from([(0, pr.KERNEL), (1, pr.ANON), (1, pr.FILE), (2, pr.RECLAIMABLE)]),
    st.sampled_from([KERNEL, KERNEL | pr.GFP_NORETRY, at.GFP_KSWAPD_RECLAIM, at.GFP_HIGH | 0x800]),
    st.integers(0, 3),
)
POLICIES = (Policy(), Policy(defrag_mode=True), Policy(compact_gap=8, extfrag_threshold=0))


@settings(
    max_examples=6,
    deadline=None,
    derandomize=True,
    phases=(Phase.generate,),
    suppress_health_check=list(HealthCheck),
)
@given(
    st.lists(REQUESTS, min_size=60, max_size=120),
    st.sampled_from(POLICIES),
    st.sampled_from(["6.1", "6.12", "7.2"]),
)
def test_no_page_is_lost_whatever_is_asked(
    requests: list[tuple[int, tuple[int, int], int, int]], policy: Policy, rules: str
) -> None:
    pressed = hostile(policy, rules)
    live: list[tuple[int, int]] = []
    for step, (order, (migratetype, kind), bits, wait) in enumerate(requests):
        live.append((pressed.alloc(order, migratetype, bits_of(kind, bits)), order))
        if step % 3 == 2:
            number, size = live.pop(step % len(live))
            pressed.free(number, size)
        pressed.let_pass(wait * 400_000)
        if step % 10 == 0:
            assert sound(pressed) == []
    assert sound(pressed) == []
    assert all_pages(pressed) == 6 * BLOCK


@settings(
    max_examples=3,
    deadline=None,
    derandomize=True,
    phases=(Phase.generate,),
    suppress_health_check=list(HealthCheck),
)
@given(
    st.lists(REQUESTS, min_size=40, max_size=60),
    st.sampled_from(["6.12", "7.2", "7.3"]),
    st.sampled_from(["drain", "free"]),
)
def test_blocks_are_owned_soundly_after_every_step(
    requests: list[tuple[int, tuple[int, int], int, int]], rules: str, merges_at: str
) -> None:
    options = OwnershipOptions(fit_test="always", merges_at=merges_at)
    policy = Policy(pageblock_ownership="pcp_buddy", ownership=options)
    pressed = hostile(policy, rules, whole=2)
    live = [(pressed.alloc(0, MOVABLE, FILE), 0)]
    assert (owners(pressed.state) > 0).any()
    for step, (order, (migratetype, kind), bits, wait) in enumerate(requests):
        live.append((pressed.alloc(order, migratetype, bits_of(kind, bits)), order))
        assert sound(pressed) == []
        if step % 2:
            number, size = live.pop(step % len(live))
            pressed.free(number, size)
            assert sound(pressed) == []
        pressed.let_pass(wait * 400_000)
        assert sound(pressed) == []
    assert all_pages(pressed) == 6 * BLOCK


def test_pages_that_compaction_takes_are_plain() -> None:
    """Both those that folios move to and the one that is captured (S12.8)."""
    pressed = sparse()
    pressed.state.pages["flags"] = at.MERGEABLE
    number = pressed.alloc(9, MOVABLE, THP)
    flags = pressed.state.pages["flags"]
    moved = [
        int(pressed.places[pfn]) for pfn in range(BLOCK // 4) if pressed.places[pfn] != 4 * pfn
    ]
    assert len(moved) == BLOCK // 4
    assert not flags[[*moved, int(pressed.places[number])]].any()


def test_both_halves_of_a_piece_are_mergeable_or_plain_as_the_whole_was() -> None:
    pressed = two_free_blocks()
    number = pressed.alloc(3, MOVABLE, FILE)
    pressed.state.pages["flags"][pressed.places[number]] = at.MERGEABLE
    pressed.free(number, 1, offset=2)
    assert pressed.state.pages["flags"][list(pressed.pieces(number).values())].all()


def demand_of(pressed: Pressed, seed: int) -> np.ndarray:
    """Events over 20 ms: requests of several orders and classes, most of them freed."""
    rng = np.random.default_rng(seed)
    events = np.zeros(400, at.EVENT)
    events["time_ns"] = np.sort(rng.integers(1, 20_000_000, len(events)))
    live: list[tuple[int, int]] = []
    for event in events:
        if live and rng.random() < 0.4:
            number, order = live.pop(int(rng.integers(len(live))))
            event["operation"] = at.FREE
        else:
            number, order = pressed.objects, int(rng.choice([0, 0, 1, 2, 9]))
            pressed.objects += 1
            live.append((number, order))
            kind = int(rng.choice([pr.KERNEL, pr.ANON, pr.FILE]))
            event["operation"], event["migratetype"] = at.ALLOC, int(kind >= pr.ANON)
            event["bits"] = bits_of(kind, KERNEL | pr.GFP_NORETRY)
        event["object"], event["order"] = number, order
    return events


@pytest.mark.parametrize("step", [1, 7, 100])
def test_a_replay_goes_on_anywhere_as_if_it_had_not_stopped(step: int) -> None:
    ends = []
    for size in (400, step):
        pressed = hostile(Policy(), "7.2")
        events = demand_of(pressed, seed=3)
        for low in range(0, len(events), size):
            pressed.replay(events, low, min(low + size, len(events)))
        ends.append(pressed)
    for name in ("pages", "blocks", "st", "folios"):
        whole, parts = (getattr(end.state, name) for end in ends)
        np.testing.assert_array_equal(whole, parts)
    np.testing.assert_array_equal(ends[0].places, ends[1].places)


def all_pages(pressed: Pressed) -> int:
    """Pages in buddies, on per-CPU lists, in use, and held by compaction."""
    heads = pressed.state.pages["where"] != at.NOWHERE
    return int((1 << pressed.state.pages["order"][heads].astype(np.int64)).sum())
