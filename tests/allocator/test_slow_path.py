"""The slow path stage by stage (S8) on small states: who reclaims, compacts, gives up."""

from __future__ import annotations

import pytest

from pagealloc_model.allocator import layout as at
from pagealloc_model.allocator import pressure_layout as pr
from pagealloc_model.policy.policy import Policy
from tests.allocator.elastic_state import BLOCK, KERNEL, Pressed, bits_of, pressed_zone

MOVABLE, UNMOVABLE = at.MOVABLE, at.UNMOVABLE
ATOMIC = at.GFP_HIGH | at.GFP_KSWAPD_RECLAIM
SECOND = 1_000_000_000


def with_free(pages: int, *, kind: int = pr.KERNEL, **more: object) -> Pressed:
    """Four blocks in use but for some single pages; min 32, low 64, high 96."""
    pressed = Pressed(machine=pressed_zone(4, 64), **more)  # type: ignore[arg-type]
    first = 4 * BLOCK - 2 * pages
    pressed.put_allocated(0, *range(first), kind=kind)
    pressed.put_allocated(0, *range(first, 4 * BLOCK, 2))
    pressed.put_free(0, *range(first + 1, 4 * BLOCK, 2))
    return pressed


@pytest.mark.parametrize(("bits", "served"), [(at.GFP_KSWAPD_RECLAIM, False), (ATOMIC, True)])
def test_atomic_requests_go_below_the_min_mark(bits: int, served: bool) -> None:
    pressed = with_free(20)
    number = pressed.alloc(0, UNMOVABLE, bits)
    assert (pressed.places[number] >= 0) == served
    assert pressed.word(pr.DEMAND_FAILED) == (not served)


def test_reclaim_needs_the_right_to_wait() -> None:
    pressed = with_free(20, kind=pr.FILE)
    pressed.alloc(0, MOVABLE, bits_of(pr.FILE, at.GFP_KSWAPD_RECLAIM))
    assert pressed.count("pgscan_direct") == 0
    pressed.alloc(0, MOVABLE, bits_of(pr.FILE))
    assert pressed.count("pgscan_direct") > 0


def test_with_nothing_to_reclaim_the_oom_killer_is_called() -> None:
    pressed = with_free(20)
    pressed.alloc(0, UNMOVABLE)
    assert pressed.count("oom_kill") == 1
    assert pressed.word(pr.DEMAND_FAILED) == 1


def test_a_request_that_must_not_fail_takes_what_there_is() -> None:
    pressed = with_free(20)
    number = pressed.alloc(0, UNMOVABLE, KERNEL | pr.GFP_NOFAIL)
    assert pressed.places[number] >= 0
    assert pressed.word(pr.FORCED_BY_NOFAIL) == 1


def test_reclaims_own_requests_ignore_marks() -> None:
    pressed = with_free(20)
    assert pressed.places[pressed.alloc(0, UNMOVABLE, KERNEL | at.GFP_MEMALLOC)] >= 0
    assert pressed.word(pr.ALLOCSTALL) == 0


def test_a_request_that_must_not_retry_stops_after_one_turn() -> None:
    pressed = with_free(20)
    pressed.alloc(0, UNMOVABLE, KERNEL | pr.GFP_NORETRY)
    assert pressed.count("oom_kill") == 0
    assert pressed.word(pr.ALLOCSTALL) == 2, "fruitless reclaim is repeated once"


@pytest.mark.parametrize(("rules", "reclaims"), [("6.12", 0), ("7.2", 1)])
def test_a_costly_request_reclaims_by_version(rules: str, reclaims: int) -> None:
    """6.12 gives up as compaction was skipped; 7.2 does not look at that (S8.1)."""
    pressed = with_free(20, kind=pr.FILE, rules=rules)
    bits = KERNEL | at.GFP_NOMEMALLOC | pr.GFP_NORETRY
    pressed.alloc(9, MOVABLE, bits_of(pr.ANON, bits), operation=at.RECORDED_FAILURE)
    assert pressed.word(pr.ALLOCSTALL) == reclaims


def test_a_reserved_block_is_released_where_reclaim_did_not_do() -> None:
    """Reclaim makes progress, but the only free order 3 lies in the reserve (S8.2, S7.4)."""
    pressed = Pressed(machine=pressed_zone(6, 64))
    pressed.put_allocated(0, *range(3 * BLOCK), kind=pr.FILE)
    pressed.put_allocated(0, *range(3 * BLOCK, 4 * BLOCK, 2))
    pressed.put_free(0, *range(3 * BLOCK + 1, 4 * BLOCK, 2))
    pressed.state.blocks["migratetype"][4:6] = at.HIGHATOMIC
    pressed.state.zone_region(0)[at.ZONE_RESERVED_HIGHATOMIC] = 2 * BLOCK
    pressed.put_free(9, 4 * BLOCK, 5 * BLOCK)
    number = pressed.alloc(3, UNMOVABLE, at.GFP_DIRECT_RECLAIM)
    assert pressed.places[number] >= 0
    assert pressed.state.zone_region(0)[at.ZONE_RESERVED_HIGHATOMIC] == BLOCK


@pytest.mark.parametrize(
    ("rules", "fastpath", "draws"),
    [("7.2", None, False), ("7.2", True, True), ("7.3", None, True), ("7.3", False, False)],
)
def test_atomics_may_draw_on_the_reserve_before_they_are_in_need(
    rules: str, fastpath: bool | None, draws: bool
) -> None:
    policy = Policy(highatomic_fastpath=fastpath)
    pressed = Pressed(rules, machine=pressed_zone(4, 64), policy=policy)
    pressed.state.blocks["migratetype"][0] = at.HIGHATOMIC
    pressed.state.zone_region(0)[at.ZONE_RESERVED_HIGHATOMIC] = BLOCK
    pressed.put_free(9, 0, BLOCK)
    number = pressed.alloc(2, UNMOVABLE, ATOMIC)
    assert (pressed.places[number] < BLOCK) == draws


@pytest.mark.parametrize(
    ("rules", "only", "grows"), [("7.2", None, True), ("7.2", True, False), ("7.3", None, False)]
)
def test_first_attempts_make_the_reserve_grow_by_version(
    rules: str, only: bool | None, grows: bool
) -> None:
    """All memory is free, so that the first attempt succeeds (S7.1)."""
    policy = Policy(highatomic_fastpath=True, highatomic_slowpath_only=only)
    pressed = Pressed(rules, machine=pressed_zone(4, 64), policy=policy)
    pressed.state.zone_region(0)[at.ZONE_MANAGED] = 100 * BLOCK
    pressed.put_free(9, *range(0, 4 * BLOCK, BLOCK))
    assert pressed.places[pressed.alloc(4, UNMOVABLE, ATOMIC)] >= 0
    assert (pressed.state.zone_region(0)[at.ZONE_RESERVED_HIGHATOMIC] > 0) == grows


@pytest.mark.parametrize("defrag", [False, True])
def test_defrag_mode_bans_fallbacks_within_blocks(defrag: bool) -> None:
    """Only single movable pages are free: without the ban one is stolen at once (S8.6)."""
    policy = Policy(defrag_mode=defrag, defrag_kswapd_assist=False, defrag_watermarks=False)
    pressed = with_free(200, policy=policy)
    number = pressed.alloc(0, UNMOVABLE, at.GFP_KSWAPD_RECLAIM)
    assert (pressed.places[number] >= 0) != defrag


def test_the_ban_is_lifted_before_a_request_fails() -> None:
    pressed = with_free(200, policy=Policy(defrag_mode=True))
    assert pressed.places[pressed.alloc(0, UNMOVABLE)] >= 0
    assert pressed.word(pr.ALLOCSTALL) > 0


def test_newer_kernels_lift_it_at_once_for_requests_that_cannot_wait() -> None:
    pressed = with_free(200, rules="7.2", policy=Policy(defrag_mode=True))
    assert pressed.places[pressed.alloc(0, UNMOVABLE, at.GFP_KSWAPD_RECLAIM)] >= 0


@pytest.mark.parametrize(
    ("rules", "given", "served"),
    [("6.12", None, False), ("6.12", True, True), ("7.2", None, True), ("7.2", False, False)],
)
def test_that_fix_is_a_switch_of_its_own(rules: str, given: bool | None, served: bool) -> None:
    policy = Policy(defrag_mode=True, defrag_atomic_falls_back=given)
    pressed = with_free(200, rules=rules, policy=policy)
    number = pressed.alloc(0, UNMOVABLE, at.GFP_KSWAPD_RECLAIM)
    assert (pressed.places[number] >= 0) == served


@pytest.mark.parametrize(
    ("rules", "promotes", "migratetype", "compacts"),
    [
        ("6.12", None, UNMOVABLE, False),
        ("6.12", True, UNMOVABLE, True),
        ("7.2", None, UNMOVABLE, True),
        ("7.2", False, UNMOVABLE, False),
        ("7.3", None, UNMOVABLE, True),
        ("7.3", None, MOVABLE, False),
    ],
)
def test_who_must_not_fragment_makes_whole_blocks(
    rules: str, promotes: bool | None, migratetype: int, compacts: bool
) -> None:
    """A single kernel page, of which movable blocks have no room: 7.2 compacts for it (S8.7)."""
    policy = Policy(
        defrag_mode=True, defrag_promotes_order=promotes, compact_gap=8, extfrag_threshold=0
    )
    pressed = with_free(200, kind=pr.ANON, rules=rules, policy=policy)
    assert pressed.places[pressed.alloc(0, migratetype)] >= 0
    assert (pressed.count("compact_stall") > 0) == compacts


@pytest.mark.parametrize(("assist", "order"), [(False, 0), (True, 9)])
def test_kswapd_may_be_woken_for_whole_blocks(assist: bool, order: int) -> None:
    policy = Policy(defrag_kswapd_assist=assist)
    pressed = with_free(20, kind=pr.FILE, policy=policy)
    pressed.alloc(0, MOVABLE, bits_of(pr.FILE, at.GFP_KSWAPD_RECLAIM))
    assert pressed.node[pr.KSWAPD_WANTED_ORDER] == order


@pytest.mark.parametrize(
    ("setting", "direct"), [("always", True), ("madvise", False), ("never", False)]
)
def test_the_setting_decides_what_a_fault_may_do(setting: str, direct: bool) -> None:
    pressed = with_free(20, kind=pr.FILE, policy=Policy(thp_defrag=setting, compact_gap=8))
    pressed.let_pass(SECOND)
    bits = bits_of(pr.ANON, KERNEL | at.GFP_NOMEMALLOC)
    number = pressed.alloc(9, MOVABLE, bits, operation=at.RECORDED_FAILURE)
    assert pressed.places[number] == -1
    assert pressed.word(pr.REQUEST_STALLED) == direct
    assert pressed.count("thp_fault_fallback") == 1


@pytest.mark.parametrize("boosts", [False, True])
def test_atomic_requests_in_need_boost_their_zones_once_a_second(boosts: bool) -> None:
    """A thousandth of 2048 pages is 2; the high mark, 96, is far (S1.11)."""
    pressed = with_free(20, policy=Policy(atomic_boost=boosts, watermark_boost_factor=0))
    zone = pressed.state.zone_region(0)
    for _ in range(2):
        pressed.alloc(0, UNMOVABLE, ATOMIC)
    assert zone[at.ZONE_BOOST] == 2 * boosts
    pressed.alloc(0, UNMOVABLE, at.GFP_KSWAPD_RECLAIM)
    assert zone[at.ZONE_BOOST] == 2 * boosts, "not a request without __GFP_HIGH"


@pytest.mark.parametrize("rules", ["6.12", "7.2"])
@pytest.mark.parametrize(("reclaims", "stalls"), [(False, 0), (True, 1)])
def test_local_attempts_at_huge_pages_reclaim_where_they_did(
    rules: str, reclaims: bool, stalls: int
) -> None:
    """Compaction runs and makes no huge page, as kernel pages sit in all blocks (S8.8)."""
    pressed = Pressed(
        rules,
        machine=pressed_zone(8, 64),
        policy=Policy(local_thp_reclaims=reclaims, compact_gap=32),
    )
    pressed.put_allocated(0, *range(0, 8 * BLOCK, 4))
    for offset in (1, 2):
        pressed.put_allocated(0, *range(offset, 8 * BLOCK, 4), kind=pr.FILE)
    pressed.put_free(0, *range(3, 8 * BLOCK, 4))
    bits = KERNEL | at.GFP_NOMEMALLOC | pr.GFP_NORETRY | at.GFP_THISNODE
    pressed.alloc(9, MOVABLE, bits_of(pr.ANON, bits), operation=at.RECORDED_FAILURE)
    assert pressed.word(pr.ALLOCSTALL) == stalls
    assert pressed.count("compact_fail") > 0
