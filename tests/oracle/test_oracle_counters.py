"""Counters that lag, by hand: when a CPU passes on what it kept back, and who is misled (S1.10)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.oracle import Migratetype, Oracle, OracleAssumptions, OraclePolicy, OracleZone
from tests.oracle.scenarios import BLOCK, KERNEL, one_zone, oracle, put_free_blocks, zone
from tests.oracle.vmstat import calculate_normal_threshold, calculate_pressure_threshold, drift_mark

MOVABLE, UNMOVABLE = Migratetype.MOVABLE, Migratetype.UNMOVABLE
CMA = 4

FOUR_TYPES = ("Unmovable", "Movable", "Reclaimable", "HighAtomic")

LAGGED = OracleAssumptions(counters="lagged")

SINGLE = OraclePolicy(pcp_batch=1, pcp_high_min=0, pcp_high_max=0)
"""Per-CPU lists that hold nothing back: every page is one update."""

FREE = 2 * BLOCK


def lagging(rules: str = "6.12", policy: OraclePolicy = SINGLE, **marks: int) -> Oracle:
    """Two CPUs, a zone of 2048 pages of which 1024 are free: a CPU may keep back 4 pages."""
    target = oracle(one_zone(4, nr_cpus=2, **marks), rules, policy, LAGGED)
    put_free_blocks(target, 0, 2)
    assert target.dump_counters()["counters"][0]["threshold"] == 4
    return target


def seen(target: Oracle) -> int:
    """Free pages as CPUs read them."""
    return int(target.dump_counters()["counters"][0]["free"])


def kept(target: Oracle, cpu: int) -> int:
    """What a CPU keeps back."""
    return int(target.dump_counters()["cpus"][0, cpu]["free"])


def marked(minimum: int, low: int, high: int) -> OracleZone:
    return zone("Normal", 0, 4, min=minimum, low=low, high=high)


@pytest.mark.parametrize(
    ("managed", "nr_cpus", "threshold"),
    [
        (4096, 1, 2),
        (4096, 2, 4),
        (32767, 2, 4),
        (32768, 2, 8),
        (1 << 20, 4, 42),
        (1 << 30, 64, 125),
    ],
)
def test_thresholds_grow_with_cpus_and_memory(managed: int, nr_cpus: int, threshold: int) -> None:
    """2 * digits of the CPUs * (1 + digits of the 128 MiB units), at most 125."""
    assert calculate_normal_threshold(managed, nr_cpus) == threshold


@pytest.mark.parametrize(("distance", "threshold"), [(0, 1), (7, 2), (30, 10), (4000, 125)])
def test_under_pressure_the_distance_of_the_marks_decides(distance: int, threshold: int) -> None:
    assert calculate_pressure_threshold(marked(100, 100 + distance, 999), 3) == threshold


def test_the_drift_mark_is_set_where_min_could_be_missed() -> None:
    """Two CPUs keep back up to 8 pages."""
    assert drift_mark(marked(100, 108, 116), 2) == 0
    assert drift_mark(marked(100, 107, 114), 2) == 122


def test_changes_are_kept_back_up_to_the_threshold() -> None:
    """Four pages stay unnoticed, the fifth brings all to light; each CPU keeps its own."""
    target = lagging()
    for taken in range(1, 5):
        target.alloc(0, 0, MOVABLE, 0, KERNEL)
        assert (seen(target), kept(target, 0)) == (FREE, -taken)
    target.alloc(1, 0, MOVABLE, 0, KERNEL)
    target.alloc(0, 0, MOVABLE, 0, KERNEL)
    assert (seen(target), kept(target, 0), kept(target, 1)) == (FREE - 5, 0, -1)
    target.check()


def test_frees_and_allocations_of_a_cpu_cancel_out() -> None:
    target = lagging()
    pfns = [target.alloc(0, 0, MOVABLE, 0, KERNEL) for _ in range(3)]
    for pfn in pfns[:2]:
        assert pfn is not None
        target.free(0, pfn, 0)
    assert (seen(target), kept(target, 0)) == (FREE, -1)


def test_a_merge_is_no_update() -> None:
    """Freed next to its free buddy of another type: one page in, whatever becomes of it."""
    target = lagging()
    target.set_block_type(2, UNMOVABLE)
    target.put_allocated(2 * BLOCK, 0, movable=False)
    target.put_free(2 * BLOCK + 1, 0, UNMOVABLE)
    target.free(0, 2 * BLOCK, 0)
    assert (seen(target), kept(target, 0)) == (FREE + 1, 1)


def test_claiming_a_whole_block_is_two_updates() -> None:
    """-512 and +511 both pass at once, so nothing is kept; a net -1 would be."""
    target = lagging()
    target.alloc(0, 0, MOVABLE, 0, KERNEL)
    assert kept(target, 0) == -1
    target.alloc(0, 0, UNMOVABLE, 0, KERNEL)
    assert (seen(target), kept(target, 0)) == (FREE - 2, 0)


def test_moving_free_pages_pushes_out_what_was_kept() -> None:
    """A claim in part: -16 pushes the CPU's -1 out, +16 comes after; then one page is taken."""
    target = oracle(one_zone(4, nr_cpus=2), "6.12", SINGLE, LAGGED)
    target.put_free(0, 4, MOVABLE)
    target.put_free(BLOCK, 0, MOVABLE)
    for page in range(16, BLOCK, 16):
        target.put_allocated(page, 4, movable=False)
    target.alloc(0, 0, MOVABLE, 0, KERNEL)
    assert kept(target, 0) == -1
    assert target.alloc(0, 0, UNMOVABLE, 0, KERNEL) == 0
    assert target.dump()["blocks"][0] == UNMOVABLE
    assert (seen(target), kept(target, 0)) == (16, -1)


def test_a_small_move_leaves_what_was_kept() -> None:
    """-2 and +2 stay within the threshold."""
    target = lagging()
    target.alloc(0, 0, MOVABLE, 0, KERNEL)
    target.zones[0].counters.move(2, MOVABLE, UNMOVABLE)
    assert (seen(target), kept(target, 0)) == (FREE, -1)


def test_6_1_counts_a_refill_as_a_whole() -> None:
    """S1.10: four pages, one update; 6.12 passes on the third with its two predecessors."""
    policy = OraclePolicy(pcp_batch=6, pcp_high_min=32, pcp_high_max=32)
    for rules, expected in (("6.1", (FREE - 6, 0)), ("6.12", (FREE - 5, -1))):
        target = lagging(rules, policy)
        target.alloc(0, 0, MOVABLE, 0, KERNEL)
        assert (seen(target), kept(target, 0)) == expected


@pytest.mark.parametrize("rules", ["6.1", "6.12"])
def test_merging_is_no_update(rules: str) -> None:
    """A page freed in a CMA block merges three times, at last with 4 pages: one update of 1."""
    machine = replace(one_zone(4), migratetypes=(*FOUR_TYPES, "CMA", "Isolate"))
    target = oracle(machine, rules, SINGLE, LAGGED)
    target.set_block_type(0, CMA)
    target.put_allocated(0, 0, movable=True)
    for pfn, order in ((1, 0), (2, 1), (4, 2)):
        target.put_free(pfn, order, CMA)
    target.free(0, 0, 0)
    assert list(target.zones[0].buddy.lists[3, CMA]) == [0]
    counters = target.zones[0].counters
    assert (counters.cma.shared, counters.cma.pending) == (7, [1])
    assert (counters.free.shared, counters.free.pending) == (7, [1])


def test_a_tick_passes_everything_on() -> None:
    target = lagging()
    target.alloc(0, 0, MOVABLE, 0, KERNEL)
    target.alloc(1, 0, MOVABLE, 0, KERNEL)
    target.tick(0)
    assert (seen(target), kept(target, 0), kept(target, 1)) == (FREE - 1, 0, -1)


def test_watermarks_are_tested_against_what_is_seen() -> None:
    """Low is 1020: the fifth page of a CPU makes requests see 1019."""
    target = lagging(low=FREE - 4, high=FREE - 4)
    for _ in range(4):
        target.alloc(0, 0, MOVABLE, 0, KERNEL)
    assert not target.dump()["zones"][0]["below_high"]
    target.alloc(0, 0, MOVABLE, 0, KERNEL)
    target.alloc(0, 0, MOVABLE, 0, KERNEL)
    assert target.dump()["zones"][0]["below_high"]


def test_counts_are_never_read_as_negative() -> None:
    target = lagging()
    target.zones[0].counters.free.shared = -3
    assert target.zones[0].counters.free.read() == 0
    target.zones[0].counters.free.pending[1] = 2
    assert target.zones[0].counters.free_for_balance() == 0


def test_kswapd_looks_at_the_true_number_below_the_drift_mark() -> None:
    """High 1020, seen 1024, true 1019: too close to trust, so the node is not balanced."""
    target = lagging(min=1000, low=1007, high=FREE - 4)
    for cpu, count in ((0, 4), (1, 1)):
        for _ in range(count):
            target.alloc(cpu, 0, MOVABLE, 0, KERNEL)
    assert seen(target) == FREE
    target.kswapd[0].wake(0, 0)
    assert target.kswapd[0].active


def test_kswapd_trusts_the_counter_where_the_lag_cannot_matter() -> None:
    """The same, but low is far above min."""
    target = lagging(min=100, low=1007, high=FREE - 4)
    for cpu, count in ((0, 4), (1, 1)):
        for _ in range(count):
            target.alloc(cpu, 0, MOVABLE, 0, KERNEL)
    target.kswapd[0].wake(0, 0)
    assert not target.kswapd[0].active


def test_while_kswapd_works_less_is_kept_back() -> None:
    """(5 - 0) / 2 CPUs; what is kept already stays until the next update."""
    target = lagging(min=0, low=5, high=10)
    for _ in range(4):
        target.alloc(0, 0, MOVABLE, 0, KERNEL)
    target.start_kswapd(0, 0)
    assert target.dump_counters()["counters"][0]["threshold"] == 2
    assert kept(target, 0) == -4
    target.alloc(0, 0, MOVABLE, 0, KERNEL)
    assert (seen(target), kept(target, 0)) == (FREE - 5, 0)
    target.stop_kswapd(0)
    assert target.dump_counters()["counters"][0]["threshold"] == 4


def test_pressure_changes_nothing_where_the_lag_cannot_matter() -> None:
    target = lagging(min=0, low=8, high=16)
    target.start_kswapd(0, 0)
    assert target.dump_counters()["counters"][0]["threshold"] == 4


def test_free_highatomic_pages_never_lag() -> None:
    target = lagging()
    target.set_block_type(2, Migratetype.HIGHATOMIC)
    target.put_free(2 * BLOCK, 2, Migratetype.HIGHATOMIC)
    target.zones[0].buddy.take(2 * BLOCK, 0)
    assert target.zones[0].counters.highatomic == 3
    assert kept(target, 0) == -1


def test_exact_counters_keep_nothing_back() -> None:
    target = oracle(one_zone(4, nr_cpus=2), "6.12", SINGLE)
    put_free_blocks(target, 0, 2)
    target.alloc(0, 0, MOVABLE, 0, KERNEL)
    assert (seen(target), kept(target, 0)) == (FREE - 1, 0)
