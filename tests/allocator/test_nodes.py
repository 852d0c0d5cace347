"""Several nodes, CMA and lagging counters, on machines small enough to work out by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pagealloc_model.allocator import layout as at
from pagealloc_model.allocator.state import counter_thresholds, make_state
from pagealloc_model.policy.kernel_rules import KernelRules
from pagealloc_model.policy.policy import Assumptions, Policy
from pagealloc_model.recording.machine import Machine, Zone
from tests.allocator.small_state import BLOCK, KERNEL, Small

DMA32, NORMAL = 0, 1
DMA32_0, NORMAL_0, DMA32_1, NORMAL_1 = range(4)
ATOMIC = at.GFP_HIGH | at.GFP_KSWAPD_RECLAIM
WITH_CMA = ("Unmovable", "Movable", "Reclaimable", "HighAtomic", "CMA", "Isolate")
CMA = 4
ONE_BY_ONE = Policy(pcp_batch=1, pcp_high_min=0, pcp_high_max=0)
"""Per-CPU lists that keep nothing."""


def zone(name: str, node: int, first_block: int, blocks: int, **marks: int) -> Zone:
    pages = blocks * BLOCK
    plain = Zone(
        node=node,
        name=name,
        start_pfn=first_block * BLOCK,
        spanned=pages,
        present=pages,
        managed=pages,
        min=0,
        low=0,
        high=0,
    )
    return replace(plain, **marks)


def two_nodes(**marks: dict[str, int]) -> Machine:
    """A CPU on each node; DMA32 and Normal on node 0, Normal on node 1, 4 blocks each."""
    return Machine(
        zones=(
            zone("DMA32", 0, 0, 4, **marks.get("dma32_0", {})),
            zone("Normal", 0, 4, 4, **marks.get("normal_0", {})),
            zone("DMA32", 1, 0, 0),
            zone("Normal", 1, 8, 4, **marks.get("normal_1", {})),
        ),
        nr_cpus=2,
        cpu_nodes=(0, 1),
    )


def filled(rules: str = "6.12", policy: Policy = ONE_BY_ONE, **marks: dict[str, int]) -> Small:
    """All memory of `two_nodes` free, in blocks."""
    small = Small(rules, two_nodes(**marks), policy)
    small.put_free(9, *range(0, 12 * BLOCK, BLOCK))
    return small


def home(pfn: int) -> int:
    """Number of the zone that a page of `two_nodes` lies in."""
    return (DMA32_0, NORMAL_0, NORMAL_1)[pfn // (4 * BLOCK)]


def test_a_request_prefers_the_node_of_its_cpu() -> None:
    small = filled()
    assert home(small.alloc(0, 0, cpu=0, highest=NORMAL)) == NORMAL_0
    assert home(small.alloc(0, 0, cpu=1, highest=NORMAL)) == NORMAL_1


def test_a_low_zone_is_taken_where_there_is_one() -> None:
    assert home(filled().alloc(0, 0, cpu=1, highest=DMA32)) == DMA32_0


def test_the_next_node_serves_what_the_own_one_cannot() -> None:
    small = filled(normal_1={"min": 9000, "low": 9000, "high": 9000})
    assert home(small.alloc(0, 1, cpu=1, highest=NORMAL)) == NORMAL_0


def test_this_node_means_no_other() -> None:
    """Where the watermark forbids it, the last resort is to take the page all the same."""
    small = filled(normal_1={"min": 9000, "low": 9000, "high": 9000})
    bits = KERNEL | at.GFP_THISNODE
    assert home(small.alloc(0, 1, bits, cpu=1, highest=NORMAL)) == NORMAL_1
    assert small.state.st[at.COUNT_FORCED] == 1
    assert small.alloc(0, 1, bits, cpu=1, highest=DMA32) == -1


def test_a_block_of_the_own_node_is_broken_before_another_node_is_asked() -> None:
    """Node 0 has whole blocks below Normal, so NOFRAGMENT sends requests there, not to node 1."""
    small = filled()
    small.state.blocks["migratetype"][4:8] = at.MOVABLE
    for _ in range(4):
        assert home(small.alloc(9, 0, cpu=0, highest=NORMAL)) == NORMAL_0
    assert home(small.alloc(0, 0, cpu=0, highest=NORMAL)) == DMA32_0


def test_nofragment_needs_a_zone_below_on_the_same_node() -> None:
    flags = [
        filled().state.zone_region(number)[at.ZONE_AVOIDS_FRAGMENTATION] for number in range(4)
    ]
    assert flags == [0, 1, 0, 0]
    alone = make_state(
        Machine(zones=(zone("Normal", 0, 0, 4),), nr_cpus=1), KernelRules.preset("6.12")
    )
    assert alone.zone_region(0)[at.ZONE_AVOIDS_FRAGMENTATION] == 1


@pytest.mark.parametrize(("rules", "served_by"), [("6.12", NORMAL_0), ("6.18", NORMAL_1)])
def test_nodes_that_kswapd_works_on_are_left_out_at_first(rules: str, served_by: int) -> None:
    small = filled(rules)
    small.state.st[at.KSWAPD_RECORDED] = 1
    small.start_kswapd(0, NORMAL)
    assert home(small.alloc(0, 0, cpu=0, highest=NORMAL)) == served_by
    small.start_kswapd(1, NORMAL)
    assert home(small.alloc(0, 0, cpu=0, highest=NORMAL)) == NORMAL_0


def test_kswapd_is_each_nodes_own_and_stays_below_its_wakers_zones() -> None:
    small = filled()
    small.start_kswapd(0, DMA32)
    active = [small.state.zone_region(number)[at.ZONE_RECLAIM_ACTIVE] for number in range(4)]
    assert active == [1, 0, 0, 0]
    small.start_kswapd(1, NORMAL)
    small.stop_kswapd(0)
    active = [small.state.zone_region(number)[at.ZONE_RECLAIM_ACTIVE] for number in range(4)]
    assert active == [0, 0, 0, 1]


def test_the_slow_path_wakes_every_node_of_the_list_that_is_not_balanced() -> None:
    marks = {"min": 0, "low": 9000, "high": 9000}
    small = filled(normal_0=marks, dma32_0=marks, normal_1=marks)
    small.alloc(0, 1, cpu=0, highest=NORMAL)
    assert small.state.st[at.COUNT_KSWAPD_WAKES] == 2
    small = filled(normal_0=marks, dma32_0={"low": 9000}, normal_1={"low": 9000})
    small.alloc(0, 1, cpu=1, highest=NORMAL)
    assert small.state.st[at.COUNT_KSWAPD_WAKES] == 0


def test_limits_of_lists_share_a_zone_among_the_cpus_of_its_node() -> None:
    low = {"low": 1000, "high": 1000}
    plain = two_nodes(normal_0=low, normal_1=low)
    machine = replace(plain, nr_cpus=3, cpu_nodes=(0, 0, 0))
    state = make_state(machine, KernelRules.preset("6.12"), Policy(pcp_batch=1))
    assert state.pcp_region(NORMAL_0, 0)[at.PCP_HIGH_MIN] == 1000 // 3
    assert state.pcp_region(NORMAL_1, 0)[at.PCP_HIGH_MIN] == 1000 // 3
    machine = replace(plain, nr_cpus=3, cpu_nodes=(0, 0, 1))
    state = make_state(machine, KernelRules.preset("6.12"), Policy(pcp_batch=1))
    assert state.pcp_region(NORMAL_0, 0)[at.PCP_HIGH_MIN] == 500
    assert state.pcp_region(NORMAL_1, 0)[at.PCP_HIGH_MIN] == 1000


def test_a_remote_list_expires_on_the_third_quiet_tick() -> None:
    """The tick that sees the change counts as the first of three; a batch goes, then again."""
    small = filled(policy=Policy(pcp_batch=4, pcp_high_min=100, pcp_high_max=100))
    pfns = [small.alloc(0, 1, cpu=0, highest=NORMAL) for _ in range(6)]
    for pfn in pfns:
        small.free(pfn, cpu=1)
    remote = small.state.pcp_region(NORMAL_0, 1)
    assert remote[at.PCP_COUNT] == 6
    small.tick(cpu=1)
    assert (remote[at.PCP_EXPIRE], remote[at.PCP_COUNT]) == (0, 6), "nothing left the buddy here"
    remote[at.PCP_TOUCHED] = 1
    found = []
    for _ in range(7):
        small.tick(cpu=1)
        found.append(int(remote[at.PCP_COUNT]))
    assert found == [6, 6, 2, 2, 2, 0, 0]


def test_a_local_list_never_expires() -> None:
    small = filled(policy=Policy(pcp_batch=4, pcp_high_min=100, pcp_high_max=100))
    small.alloc(0, 1, cpu=0, highest=NORMAL)
    local = small.state.pcp_region(NORMAL_0, 0)
    before = int(local[at.PCP_COUNT])
    for _ in range(5):
        small.tick(cpu=0)
    assert local[at.PCP_COUNT] == before > 0


def cma_machine(**marks: int) -> Machine:
    pages = 4 * BLOCK
    whole = Zone(
        name="DMA32", start_pfn=0, spanned=pages, present=pages, managed=pages, min=0, low=0, high=0
    )
    return Machine(zones=(replace(whole, **marks),), nr_cpus=1, migratetypes=WITH_CMA)


def with_cma(*cma_blocks: int, **marks: int) -> Small:
    """Four free blocks, those named CMA; the others MOVABLE."""
    small = Small("6.12", cma_machine(**marks), ONE_BY_ONE)
    for block in cma_blocks:
        small.tag(block, CMA)
    small.put_free(9, *range(0, 4 * BLOCK, BLOCK))
    return small


def test_cma_is_for_movable_requests_only() -> None:
    small = with_cma(0, 1, 2, 3)
    assert small.alloc(0, at.UNMOVABLE) == -1
    assert small.alloc(0, at.MOVABLE) == 0
    assert small.removals == [(at.LOG_ZONE_LOCKED, 0, 0, CMA)]
    assert small.zone[at.ZONE_FREE_CMA] == small.zone[at.ZONE_FREE] == 4 * BLOCK - 1


def test_cma_comes_first_while_most_free_memory_is_there() -> None:
    """Two of four blocks are no more than half; three are."""
    assert with_cma(2, 3).alloc(0, at.MOVABLE) < 2 * BLOCK
    assert with_cma(1, 2, 3).alloc(0, at.MOVABLE) >= BLOCK


def test_free_cma_pages_do_not_help_others_over_the_watermark() -> None:
    """The request may only be forced; a movable one passes."""
    marks = {"min": 600, "low": 600, "high": 600}
    small = with_cma(1, 2, 3, **marks)
    small.alloc(0, at.UNMOVABLE)
    assert small.state.st[at.COUNT_FORCED] == 1
    small = with_cma(1, 2, 3, **marks)
    small.alloc(0, at.MOVABLE)
    assert small.state.st[at.COUNT_FORCED] == 0


def test_isolated_pages_are_on_lists_but_not_counted() -> None:
    small = with_cma(2, 3)
    small.put_allocated(0, BLOCK)
    isolate = WITH_CMA.index("Isolate")
    small.state.blocks[1]["migratetype"] = isolate
    before = int(small.zone[at.ZONE_FREE])
    small.free(BLOCK)
    assert BLOCK in small.list(0, isolate)
    assert small.zone[at.ZONE_FREE] == before


def lagged(policy: Policy = ONE_BY_ONE) -> Small:
    """As `with_cma`, one CPU, threshold 2 * 1 * (1 + 0) = 2 pages."""
    small = Small("6.12", cma_machine(), policy, Assumptions(counters="lagged"))
    small.put_free(9, *range(0, 4 * BLOCK, BLOCK))
    return small


def seen(small: Small) -> int:
    return int(small.zone[at.ZONE_FREE] - small.zone[at.ZONE_FREE_UNFOLDED])


def test_changes_are_seen_once_they_exceed_the_threshold() -> None:
    small = lagged()
    assert small.zone[at.ZONE_THRESHOLD] == 2
    found = []
    for _ in range(4):
        small.alloc(0, at.MOVABLE)
        found.append(4 * BLOCK - seen(small))
    assert found == [0, 0, 3, 3]


def test_a_tick_folds_what_is_left() -> None:
    small = lagged()
    small.alloc(0, at.MOVABLE)
    small.tick()
    assert seen(small) == 4 * BLOCK - 1
    assert small.pageset[at.PCP_FREE_DELTA] == 0


def test_a_claimed_block_makes_a_cpu_pass_on_what_it_held_back() -> None:
    """The block leaves one type and joins another: two updates, each beyond the threshold."""
    small = lagged()
    small.alloc(0, at.MOVABLE)
    small.alloc(0, at.MOVABLE)
    assert seen(small) == 4 * BLOCK
    small.alloc(0, at.UNMOVABLE)
    assert seen(small) == 4 * BLOCK - 3


@pytest.mark.parametrize(
    ("gib", "cpus", "asleep", "awake"), [(0, 1, 2, 15), (4, 2, 28, 7), (64, 1024, 125, 1)]
)
def test_thresholds(gib: int, cpus: int, asleep: int, awake: int) -> None:
    """As the kernel's comment tabulates them; the distance from min to low is 15 pages."""
    large = zone("Normal", 0, 0, 1, managed=max(gib << 18, 1000), min=5, low=20, high=40)
    assert counter_thresholds(large, cpus) == (asleep, awake)


def test_memalloc_takes_what_the_watermarks_keep() -> None:
    """Without being forced, though it has to fail at them first (S2.6)."""
    marks = {"min": 9000, "low": 9000, "high": 9000}
    small = filled(normal_0=marks, dma32_0=marks, normal_1=marks)
    assert small.alloc(0, 1, KERNEL | at.GFP_MEMALLOC, cpu=0, highest=NORMAL) >= 0
    assert small.state.st[at.COUNT_FORCED] == 0
    small.alloc(0, 1, KERNEL | at.GFP_MEMALLOC | at.GFP_NOMEMALLOC, cpu=0, highest=NORMAL)
    assert small.state.st[at.COUNT_FORCED] == 1
