"""Compaction (S9) on small states: gates, movement, capture, deferral, kcompactd."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pagealloc_model.allocator import layout as at
from pagealloc_model.allocator import pressure_layout as pr
from pagealloc_model.allocator.invariants import broken_invariants, broken_pieces
from pagealloc_model.allocator.layout import zone_at
from pagealloc_model.policy.assumptions import ElasticAssumptions
from pagealloc_model.policy.policy import Policy
from tests.allocator.elastic_state import BLOCK, CALM, KERNEL, Pressed, bits_of, pressed_zone

MOVABLE, UNMOVABLE = at.MOVABLE, at.UNMOVABLE
THP = bits_of(pr.ANON, KERNEL | at.GFP_NOMEMALLOC)
BACKGROUND = bits_of(pr.ANON, at.GFP_KSWAPD_RECLAIM | at.GFP_NOMEMALLOC)
SECOND = 1_000_000_000
SMALL_GAP = Policy(compact_gap=32)
"""kswapd hands over to kcompactd after few pages."""


def sparse(
    *,
    every: int = 4,
    kind: int = pr.FILE,
    low: int = 64,
    elastic: ElasticAssumptions = CALM,
    **more: object,
) -> Pressed:
    """Eight blocks; one page of every few is in use, the others are free."""
    pressed = Pressed(machine=pressed_zone(8, low), elastic=elastic, **more)  # type: ignore[arg-type]
    for pfn in range(0, 8 * BLOCK, every):
        pressed.put_allocated(0, pfn, kind=kind)
        pressed.put_free(0, pfn + 1)
        if every == 4:
            pressed.put_free(1, pfn + 2)
    return pressed


def assert_sound(pressed: Pressed) -> None:
    assert broken_invariants(pressed.state) == []
    assert broken_pieces(pressed.state, pressed.places) == []


def test_a_huge_page_is_made_by_moving_pages() -> None:
    pressed = sparse()
    number = pressed.alloc(9, MOVABLE, THP)
    assert pressed.places[number] == 0
    assert pressed.count("compact_success") == 1
    moved = [pfn for pfn in range(BLOCK // 4) if pressed.places[pfn] != 4 * pfn]
    assert len(moved) == BLOCK // 4
    assert_sound(pressed)


def test_a_moved_page_is_freed_where_it_is_now() -> None:
    pressed = sparse()
    pressed.alloc(9, MOVABLE, THP)
    now = int(pressed.places[0])
    pressed.free(0)
    assert pressed.state.pages["where"][now] == at.ON_PCP
    assert_sound(pressed)


@pytest.mark.parametrize("share", [0, 1000])
def test_a_run_that_met_others_gives_way_at_the_end_of_its_block(share: int) -> None:
    """The first block has a page that cannot move: without others the next one is emptied."""
    elastic = replace(CALM, compaction_contended_per_mille=share)
    pressed = Pressed(machine=pressed_zone(8, 64), elastic=elastic)
    for pfn in range(0, 8 * BLOCK, 4):
        pressed.put_allocated(0, pfn, kind=pr.KERNEL if pfn == 8 else pr.FILE)
        pressed.put_free(0, pfn + 1)
        pressed.put_free(1, pfn + 2)
    pressed.alloc(9, MOVABLE, THP | pr.GFP_NORETRY)
    assert (pressed.count("compact_fail") > 0) == (share > 0)
    assert pressed.count("compact_migrate_scanned") > 0
    assert_sound(pressed)


@pytest.mark.parametrize("kind", [pr.KERNEL, pr.RECLAIMABLE])
def test_kernel_pages_do_not_move(kind: int) -> None:
    pressed = sparse(kind=kind)
    number = pressed.alloc(9, MOVABLE, THP | pr.GFP_NORETRY)
    assert pressed.count("pgmigrate_success") == 0
    assert pressed.count("compact_fail") == pressed.count("compact_stall") > 0
    assert pressed.count("thp_fault_fallback") == 1
    assert len(pressed.pieces(number)) == BLOCK
    assert_sound(pressed)


def test_moves_that_fail_leave_pages_where_they_were() -> None:
    pressed = sparse(elastic=replace(CALM, file_migration_fails_per_mille=1000))
    pressed.alloc(9, MOVABLE, THP | pr.GFP_NORETRY)
    assert pressed.count("pgmigrate_success") == 0
    assert pressed.count("pgmigrate_fail") > 0
    assert [int(pressed.places[n]) for n in range(4)] == [0, 4, 8, 12]
    assert_sound(pressed)


def test_without_free_pages_compaction_is_skipped() -> None:
    pressed = Pressed(machine=pressed_zone(8, 64))
    pressed.put_allocated(0, *range(8 * BLOCK - 200), kind=pr.FILE)
    pressed.put_free(0, *range(8 * BLOCK - 200, 8 * BLOCK, 2))
    bits = THP | pr.GFP_NORETRY
    pressed.alloc(9, MOVABLE, bits, operation=at.RECORDED_FAILURE)
    assert pressed.count("compact_stall") == 0
    assert pressed.count("pgscan_direct") == 0


@pytest.mark.parametrize(("gap", "stalls"), [(0, 0), (32, 1)])
def test_the_gap_asked_for_may_be_capped(gap: int, stalls: int) -> None:
    pressed = Pressed(machine=pressed_zone(8, 64), policy=Policy(compact_gap=gap))
    for pfn in range(0, 8 * BLOCK, 8):
        pressed.put_allocated(0, *range(pfn, pfn + 7), kind=pr.FILE)
        pressed.put_free(0, pfn + 7)
    pressed.alloc(9, MOVABLE, THP | pr.GFP_NORETRY)
    assert (pressed.count("compact_stall") > 0) == bool(stalls)


def test_memory_too_scarce_rather_than_fragmented_is_left_to_reclaim() -> None:
    strict = sparse(policy=Policy(extfrag_threshold=1000))
    strict.alloc(9, MOVABLE, THP | pr.GFP_NORETRY)
    assert strict.count("compact_stall") == 0


@pytest.mark.parametrize(("rules", "moved"), [("6.1", 0), ("6.12", BLOCK // 2)])
def test_large_folios_move_in_later_kernels_only(rules: str, moved: int) -> None:
    pressed = Pressed(machine=pressed_zone(8, 64), elastic=CALM, rules=rules)
    for pfn in range(0, 8 * BLOCK, 16):
        pressed.put_allocated(3, pfn, kind=pr.FILE)
        pressed.put_free(3, pfn + 8)
    pressed.alloc(9, MOVABLE, THP)
    assert pressed.count("pgmigrate_success") == moved
    assert_sound(pressed)


def test_targets_of_6_1_are_the_last_pages_of_what_is_free() -> None:
    targets = {}
    for rules in ("6.1", "6.12"):
        pressed = Pressed(machine=pressed_zone(8, 64), elastic=CALM, rules=rules)
        for pfn in (0, 12):
            pressed.put_allocated(0, pfn, kind=pr.FILE)
        for order, pfn in ((0, 1), (1, 2), (2, 4), (2, 8), (0, 13), (1, 14)):
            pressed.put_free(order, pfn)
        for pfn in range(BLOCK, 8 * BLOCK, 4):
            pressed.put_allocated(0, pfn, kind=pr.KERNEL)
            pressed.put_free(1, pfn + 2)
        pressed.alloc(4, MOVABLE, THP)
        assert pressed.count("pgmigrate_success") == 2
        targets[rules] = int(pressed.places[1]) % 4
        assert_sound(pressed)
    assert targets == {"6.1": 3, "6.12": 2}


def test_what_compaction_completes_is_taken_at_once() -> None:
    pressed = sparse()
    pressed.alloc(9, MOVABLE, THP)
    assert pressed.state.st[at.CAPTURED] == 0


def test_failures_of_kcompactd_defer_later_attempts() -> None:
    pressed = sparse(kind=pr.KERNEL, policy=SMALL_GAP)
    for pfn in range(7 * BLOCK, 8 * BLOCK, 4):
        pressed.make_reclaimable(pfn)
    for expected in (1, 2):
        pressed.alloc(9, MOVABLE, BACKGROUND)
        pressed.let_pass(SECOND)
        assert pressed.zone[pr.ZONE_DEFER_SHIFT] == expected
        pressed.zone[pr.ZONE_CONSIDERED] = 1 << expected
    assert pressed.zone[pr.ZONE_ORDER_FAILED] == 9


def test_kcompactd_makes_what_a_request_could_not_wait_for() -> None:
    pressed = sparse(policy=SMALL_GAP)
    refused = pressed.alloc(9, MOVABLE, BACKGROUND)
    assert len(pressed.pieces(refused)) == BLOCK
    pressed.let_pass(SECOND)
    assert pressed.count("compact_daemon_wake") == 1
    assert pressed.count("compact_daemon_migrate_scanned") > 0
    assert len(pressed.pieces(pressed.alloc(9, MOVABLE, BACKGROUND))) == 1
    assert_sound(pressed)


@pytest.mark.parametrize(("watermarks", "blocks"), [(False, 2), (True, 3)])
def test_kcompactd_may_go_on_until_the_mark_is_met_in_whole_blocks(
    watermarks: bool, blocks: int
) -> None:
    """The zone begins at page 0, which stands for no block: its lists are drained one later."""
    pressed = sparse(low=600, policy=replace(SMALL_GAP, defrag_watermarks=watermarks))
    pressed.alloc(9, MOVABLE, BACKGROUND, operation=at.RECORDED_FAILURE)
    pressed.let_pass(SECOND)
    free = pressed.state.free_buddies()[0]
    assert free[9].sum() + 2 * free[10].sum() == blocks


@pytest.mark.parametrize("proactiveness", [0, 20])
def test_fragmented_memory_is_compacted_unasked(proactiveness: int) -> None:
    pressed = sparse(policy=Policy(compaction_proactiveness=proactiveness))
    pressed.node[pr.PROACTIVE_DUE] = SECOND // 2
    pressed.let_pass(SECOND)
    assert (pressed.count("pgmigrate_success") > 0) == (proactiveness > 0)
    assert_sound(pressed)


def test_half_a_move_keeps_every_page_in_one_place() -> None:
    pressed = sparse(policy=SMALL_GAP)
    pressed.alloc(9, MOVABLE, BACKGROUND)
    for _ in range(20):
        pressed.let_pass(60_000)
        assert_sound(pressed)
    assert pressed.count("pgmigrate_success") > 0


@pytest.mark.parametrize("migratetype", [MOVABLE, UNMOVABLE])
def test_an_asynchronous_run_moves_pages_of_the_requests_own_blocks(migratetype: int) -> None:
    pressed = sparse(policy=Policy(extfrag_threshold=0))
    bits = bits_of(pr.KERNEL, KERNEL | pr.GFP_NORETRY | at.GFP_THISNODE)
    pressed.alloc(9, migratetype, bits)
    assert (pressed.count("pgmigrate_success") > 0) == (migratetype == MOVABLE)


def reserving(**policy: bool) -> Pressed:
    """Eight blocks in pieces and five free reserved ones; kcompactd looks once."""
    pressed = Pressed(machine=pressed_zone(13, 64), elastic=CALM, policy=Policy(**policy))
    for pfn in range(0, 8 * BLOCK, 4):
        pressed.put_allocated(0, pfn, kind=pr.FILE)
        pressed.put_free(0, pfn + 1)
        pressed.put_free(1, pfn + 2)
    pressed.state.blocks["migratetype"][8:13] = at.HIGHATOMIC
    pressed.put_free(9, 12 * BLOCK)
    pressed.put_free(10, 8 * BLOCK, 10 * BLOCK)
    pressed.state.st[zone_at.py_func(0) + at.ZONE_RESERVED_HIGHATOMIC] = 5 * BLOCK
    pressed.node[pr.PROACTIVE_DUE] = SECOND // 2
    pressed.let_pass(SECOND // 2 + 1_000_000)
    assert_sound(pressed)
    return pressed


@pytest.mark.parametrize("left_out", [False, True])
def test_free_reserved_blocks_keep_kcompactd_idle_unless_the_score_leaves_them_out(
    left_out: bool,
) -> None:
    pressed = reserving(score_without_highatomic=left_out)
    assert (pressed.count("pgmigrate_success") > 0) == left_out


@pytest.mark.parametrize("gives_back", [False, True])
def test_kcompactd_gives_free_reserved_blocks_back(gives_back: bool) -> None:
    pressed = reserving(kcompactd_unreserves=gives_back)
    types = pressed.state.blocks["migratetype"][8:13]
    assert set(types) == {MOVABLE if gives_back else at.HIGHATOMIC}
    reserved = pressed.state.st[zone_at.py_func(0) + at.ZONE_RESERVED_HIGHATOMIC]
    assert reserved == (0 if gives_back else 5 * BLOCK)
