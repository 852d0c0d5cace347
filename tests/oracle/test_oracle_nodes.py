"""Several nodes by hand: zonelists, locality, kswapd per node (S1.4, S2.7, S3.1, S10)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.oracle import Bits, Migratetype, Oracle, OracleAssumptions, OracleMachine, OraclePolicy
from tests.oracle.page_alloc import node_orders, zonelist
from tests.oracle.scenarios import (
    BLOCK,
    KERNEL,
    events_named,
    oracle,
    put_free_blocks,
    put_free_memory,
    two_nodes,
    zone,
)

MOVABLE = Migratetype.MOVABLE
UNMOVABLE = Migratetype.UNMOVABLE

DMA32_0, NORMAL_0, DMA32_1, NORMAL_1 = range(4)
"""Zones of `two_nodes`."""

DMA32, NORMAL = 0, 1
"""Its types of zones."""

SMALL = OraclePolicy(pcp_batch=1, pcp_high_min=0, pcp_high_max=0)
"""Per-CPU lists that hold nothing back."""

NOTHING = OracleAssumptions(kswapd_recorded=True, direct_reclaim_recorded=True)
"""Reclaim is the recording's affair."""


def nodes(
    *blocks: int, cpu_nodes: tuple[int, ...], distances: tuple[tuple[int, ...], ...] = ()
) -> OracleMachine:
    """One zone of so many blocks per node."""
    zones = tuple(
        zone("Normal", sum(blocks[:node]), size, node=node) for node, size in enumerate(blocks)
    )
    return OracleMachine(
        zones=zones, nr_cpus=len(cpu_nodes), cpu_nodes=cpu_nodes, distances=distances
    )


def ready(rules: str = "6.12", **marks: dict[str, int]) -> Oracle:
    """Two nodes, all memory free; marks by zone: normal_0, dma32_0, normal_1."""
    machine = two_nodes()
    names = ("dma32_0", "normal_0", "dma32_1", "normal_1")
    zones = tuple(
        replace(each, **marks.get(name, {}))
        for name, each in zip(names, machine.zones, strict=True)
    )
    target = oracle(replace(machine, zones=zones), rules, SMALL)
    for index in (DMA32_0, NORMAL_0, NORMAL_1):
        put_free_memory(target, index)
    return target


FULL = {"min": 4 * BLOCK, "low": 4 * BLOCK, "high": 4 * BLOCK}
"""Marks that a zone of four blocks never keeps."""


def test_a_node_without_cpus_comes_before_others_as_far_away() -> None:
    """20 against 20 + 1 for the node with CPUs; from node 2, both others are 20 + 1 + 1."""
    machine = nodes(1, 1, 1, cpu_nodes=(0, 1))
    assert node_orders(machine) == {0: (0, 2, 1), 1: (1, 2, 0), 2: (2, 0, 1)}


def test_equal_nodes_follow_one_another_round() -> None:
    """The next higher number first, for a lower one counts one farther."""
    machine = nodes(1, 1, 1, 1, cpu_nodes=(0, 1, 2, 3))
    assert node_orders(machine) == {
        0: (0, 1, 2, 3),
        1: (1, 2, 3, 0),
        2: (2, 3, 0, 1),
        3: (3, 0, 1, 2),
    }


def test_a_node_that_leads_other_lists_yields_to_its_equal() -> None:
    """Node 0 is first after node 1; to node 2, nodes 0 and 1 are both 25 + 1 + 1."""
    distances = ((10, 20, 20), (20, 10, 25), (25, 25, 10))
    machine = nodes(1, 1, 1, cpu_nodes=(0, 1), distances=distances)
    assert node_orders(machine) == {0: (0, 2, 1), 1: (1, 0, 2), 2: (2, 1, 0)}


def test_distance_outweighs_all_else() -> None:
    distances = ((10, 40, 20), (40, 10, 30), (20, 30, 10))
    machine = nodes(1, 1, 1, cpu_nodes=(0, 1, 2), distances=distances)
    assert node_orders(machine) == {0: (0, 2, 1), 1: (1, 2, 0), 2: (2, 0, 1)}


def test_a_node_without_memory_is_in_no_list() -> None:
    machine = nodes(1, 0, 1, cpu_nodes=(0, 1))
    assert node_orders(machine) == {0: (0, 2), 1: (2, 0), 2: (2, 0)}


def test_zones_come_by_node_and_then_from_the_highest_type_down() -> None:
    machine = two_nodes()
    assert zonelist(machine, (0, 1), NORMAL) == [NORMAL_0, DMA32_0, NORMAL_1]
    assert zonelist(machine, (1, 0), NORMAL) == [NORMAL_1, NORMAL_0, DMA32_0]
    assert zonelist(machine, (1, 0), DMA32) == [DMA32_0]


def test_zones_must_be_the_same_types_in_each_node() -> None:
    zones = (zone("DMA32", 0, 1), zone("Normal", 1, 1), zone("Normal", 2, 1, node=1))
    with pytest.raises(ValueError, match="same types"):
        OracleMachine(zones=zones, nr_cpus=1)


def test_page_sets_share_a_zone_among_the_cpus_of_its_node() -> None:
    """S4.3: low 1200 over 2 CPUs, 1 CPU, and all 3 where the node has none."""
    machine = nodes(1, 1, 1, cpu_nodes=(0, 0, 1))
    machine = replace(machine, zones=tuple(replace(each, low=1200) for each in machine.zones))
    target = oracle(machine)
    assert [each.pcp[0].high_min for each in target.zones] == [600, 1200, 400]


@pytest.mark.parametrize(("cpu", "served_by"), [(0, NORMAL_0), (1, NORMAL_1)])
def test_a_request_is_served_by_its_cpus_node(cpu: int, served_by: int) -> None:
    target = ready()
    pfn = target.alloc(cpu, 0, MOVABLE, NORMAL, KERNEL)
    assert pfn is not None
    assert target.zone_of(pfn).index == served_by


def test_the_whole_node_is_tried_before_another() -> None:
    target = ready(normal_0=FULL)
    pfn = target.alloc(0, 0, MOVABLE, NORMAL, KERNEL)
    assert pfn is not None
    assert target.zone_of(pfn).index == DMA32_0


def test_this_node_means_no_other() -> None:
    """S2.3: the request fails beside plenty of memory, and wakes no remote kswapd."""
    target = ready(normal_1=FULL)
    bits = KERNEL | Bits.THISNODE
    assert target.alloc(1, 0, MOVABLE, NORMAL, bits, recorded_success=False) is None
    assert [target.kswapd[node].active for node in (0, 1)] == [False, True]
    pfn = target.alloc(1, 0, MOVABLE, NORMAL, KERNEL)
    assert pfn is not None
    assert target.zone_of(pfn).index == NORMAL_0


def fragmented(policy: OraclePolicy = SMALL) -> Oracle:
    """Unmovable memory only elsewhere: node 0 has a movable buddy, node 1 unmovable blocks."""
    target = oracle(two_nodes(), "6.12", policy)
    target.put_free(4 * BLOCK, 4, MOVABLE)
    put_free_blocks(target, 8, 2, UNMOVABLE)
    return target


def test_the_own_node_is_fragmented_before_another_is_used() -> None:
    """S3.1: two futile tries in Normal and two in DMA32, then without NOFRAGMENT."""
    target = fragmented()
    pfn = target.alloc(0, 0, UNMOVABLE, NORMAL, KERNEL)
    assert pfn == 4 * BLOCK
    assert [event[1:] for event in events_named(target, "hold")] == [
        ("refill", "", 0),
        ("buddy_alloc", "", 0),
        ("refill", "", 1),
    ]


def test_without_a_lower_zone_nothing_avoids_fragmenting() -> None:
    """S2.7: node 1 has no DMA32, so its requests fragment at once."""
    target = oracle(two_nodes(), "6.12", SMALL)
    target.put_free(8 * BLOCK, 4, MOVABLE)
    assert target.alloc(1, 0, UNMOVABLE, NORMAL, KERNEL) == 8 * BLOCK
    assert events_named(target, "hold") == [("hold", "refill", "", 1)]


def test_defrag_mode_goes_to_another_node_instead() -> None:
    """S8.6: NOFRAGMENT outweighs locality."""
    target = fragmented(replace(SMALL, defrag_mode=True))
    assert target.alloc(0, 0, UNMOVABLE, NORMAL, KERNEL) == 8 * BLOCK


@pytest.mark.parametrize(("rules", "served_by"), [("6.12", NORMAL_0), ("6.18", NORMAL_1)])
def test_nodes_that_kswapd_works_on_are_skipped(rules: str, served_by: int) -> None:
    target = ready(rules)
    target.start_kswapd(0, NORMAL)
    pfn = target.alloc(0, 0, MOVABLE, NORMAL, KERNEL)
    assert pfn is not None
    assert target.zone_of(pfn).index == served_by


def test_busy_nodes_serve_if_no_other_does() -> None:
    target = ready("7.2", normal_1=FULL)
    target.start_kswapd(0, NORMAL)
    pfn = target.alloc(0, 0, MOVABLE, NORMAL, KERNEL)
    assert pfn is not None
    assert target.zone_of(pfn).index == NORMAL_0


def test_busy_nodes_serve_before_fragmentation_is_accepted() -> None:
    """S3.1: the second sweep still has NOFRAGMENT, and finds the unmovable page in DMA32.

    With a remote zone to come to, the first sweep has given NOFRAGMENT up already.
    """
    for bits, expected in ((KERNEL | Bits.THISNODE, 0), (KERNEL, 4 * BLOCK)):
        target = oracle(two_nodes(), "7.2", SMALL)
        target.put_free(4 * BLOCK, 4, MOVABLE)
        target.set_block_type(0, UNMOVABLE)
        target.put_free(0, 0, UNMOVABLE)
        target.start_kswapd(0, NORMAL)
        assert target.alloc(0, 0, UNMOVABLE, NORMAL, bits) == expected


def test_the_slow_path_wakes_every_node_of_the_list() -> None:
    target = ready(dma32_0=FULL, normal_0=FULL, normal_1=FULL)
    target.alloc(0, 0, MOVABLE, NORMAL, KERNEL)
    assert [target.kswapd[node].active for node in (0, 1)] == [True, True]


def test_a_run_marks_only_zones_that_its_waker_may_use() -> None:
    """S10.2: a DMA32 request; Normal's boost stays when the run ends."""
    target = ready(dma32_0={**FULL, "boost": 30}, normal_0={**FULL, "boost": 40})
    target.alloc(1, 0, MOVABLE, DMA32, KERNEL)
    zones = target.dump()["zones"]
    assert [zones[index]["reclaim_active"] for index in range(4)] == [True, False, False, False]
    target.events.clear()
    target.stop_kswapd(0)
    zones = target.dump()["zones"]
    assert [zones[index]["boost"] for index in (DMA32_0, NORMAL_0)] == [0, 40]
    assert target.events == [("hold", "boost_reset", "", 0)], "a hold for each boost taken back"
    assert not zones[DMA32_0]["reclaim_active"]


def test_a_boosted_zone_wakes_its_own_node_up_to_its_own_type() -> None:
    """S3.2: a request from node 0 claims part of a DMA32 block of node 1."""
    machine = two_nodes()
    zones = list(machine.zones)
    zones[DMA32_1] = zone("DMA32", 12, 4, node=1, high=2 * BLOCK)
    target = oracle(replace(machine, zones=tuple(zones)), "6.12", SMALL)
    target.put_free(12 * BLOCK, 4, MOVABLE)
    assert target.alloc(0, 0, UNMOVABLE, NORMAL, KERNEL) == 12 * BLOCK
    assert [target.kswapd[node].active for node in (0, 1)] == [False, True]
    state = target.dump()["zones"]
    assert [state[index]["reclaim_active"] for index in (DMA32_1, NORMAL_1)] == [True, False]


def test_a_run_ends_when_its_own_node_is_balanced() -> None:
    """Freed pages lift node 1 above its mark; node 0 stays below."""
    target = ready(dma32_0=FULL, normal_0=FULL)
    target.start_kswapd(0, NORMAL)
    target.start_kswapd(1, NORMAL)
    pfn = target.alloc(1, 0, MOVABLE, NORMAL, KERNEL)
    assert pfn is not None
    target.free(0, pfn, 0)
    assert [target.kswapd[node].active for node in (0, 1)] == [True, False]


def test_a_page_goes_to_the_freeing_cpus_list_of_its_own_zone() -> None:
    policy = OraclePolicy(pcp_batch=4, pcp_high_min=32, pcp_high_max=32)
    target = oracle(two_nodes(), "6.12", policy)
    target.put_allocated(8 * BLOCK, 0, movable=True)
    target.free(0, 8 * BLOCK, 0)
    assert target.dump()["pcp"][NORMAL_1, 0, MOVABLE] == [8 * BLOCK]


def test_unreserving_follows_the_requests_own_list() -> None:
    """S7.4: node 1's reserve first for its CPU; THISNODE leaves the other's alone."""
    target = oracle(two_nodes(), "6.12", SMALL)
    for block in (4, 5, 8, 9):
        target.set_block_type(block, Migratetype.HIGHATOMIC)
        target.put_free(block * BLOCK, 9, Migratetype.HIGHATOMIC)
    assert target.alloc(1, 0, MOVABLE, NORMAL, KERNEL) == 8 * BLOCK
    zones = target.dump()["zones"]
    reserved = [zones[index]["reserved_highatomic"] for index in (NORMAL_0, NORMAL_1)]
    assert reserved == [2 * BLOCK, BLOCK]


def test_recorded_kswapd_is_not_woken() -> None:
    machine = ready(dma32_0=FULL, normal_0=FULL, normal_1=FULL).machine
    target = oracle(machine, "6.12", SMALL, NOTHING)
    put_free_memory(target, NORMAL_1)
    assert target.alloc(1, 0, MOVABLE, NORMAL, KERNEL) is not None
    assert not target.kswapd[1].active


def test_recorded_kswapd_ends_as_recorded() -> None:
    """A node that is balanced keeps its run; stopping once more does nothing."""
    target = oracle(two_nodes(), "6.12", SMALL, NOTHING)
    put_free_memory(target, NORMAL_1)
    pfn = target.alloc(1, 0, MOVABLE, NORMAL, KERNEL)
    assert pfn is not None
    target.start_kswapd(1, NORMAL)
    target.free(1, pfn, 0)
    assert target.kswapd[1].active
    target.stop_kswapd(1)
    target.stop_kswapd(1)
    assert not target.kswapd[1].active


def test_a_run_that_begins_ends_the_one_before() -> None:
    """S1.7: 5 pages of boost that the first run saw go when the second begins."""
    target = oracle(two_nodes(), "6.12", SMALL, NOTHING)
    marks = target.zones[NORMAL_1].watermarks
    marks.boost = 5
    target.start_kswapd(1, NORMAL)
    marks.boost += 7
    target.start_kswapd(1, NORMAL)
    assert marks.boost == 7
    target.stop_kswapd(1)
    assert marks.boost == 0


@pytest.mark.parametrize("reclaimed", [0, 1])
def test_recorded_direct_reclaim_makes_room_or_does_not(reclaimed: int) -> None:
    """S8.2: the page on the other CPU's list is found only if the lists are drained."""
    policy = OraclePolicy(pcp_batch=4, pcp_high_min=32, pcp_high_max=32)
    target = oracle(two_nodes(), "6.12", policy, NOTHING)
    target.put_pcp(NORMAL_1, 0, MOVABLE, 8 * BLOCK)
    pfn = target.alloc(1, 0, MOVABLE, NORMAL, KERNEL, reclaimed=reclaimed)
    assert pfn == (8 * BLOCK if reclaimed else None)


@pytest.mark.parametrize(("freed", "drained"), [(0, True), (1, False)])
def test_room_is_made_only_if_reclaim_left_no_more_than_before(freed: int, drained: bool) -> None:
    """S10.4: what is missing stays missing; a page more since reclaim began served the request."""
    target = oracle(two_nodes(), "6.12", SMALL, NOTHING)
    put_free_memory(target, NORMAL_1)
    for each in target.zones:
        each.watermarks.boost = 100 * BLOCK
    held = [target.alloc(1, 4, MOVABLE, NORMAL, KERNEL) for _ in range(2)]
    target.events.clear()
    target.put_pcp(NORMAL_1, 0, MOVABLE, 8 * BLOCK - 1)
    target.begin_reclaim(1, 1, 0, MOVABLE, NORMAL, KERNEL)
    for pfn in held[:freed]:
        target.free(1, pfn, 4)
    target.events.clear()
    assert target.alloc(1, 0, MOVABLE, NORMAL, KERNEL, reclaimed=1) is not None
    assert bool(events_named(target, "drain")) == drained


def test_only_requests_that_may_reclaim_make_room() -> None:
    target = oracle(two_nodes(), "6.12", OraclePolicy(), NOTHING)
    target.put_pcp(NORMAL_1, 0, MOVABLE, 8 * BLOCK)
    assert target.alloc(1, 0, MOVABLE, NORMAL, Bits.KSWAPD, reclaimed=1) is None


@pytest.mark.parametrize(
    ("bits", "forced"), [(Bits.MEMALLOC, 0), (Bits.MEMALLOC | Bits.NOMEMALLOC, 1), (Bits.NONE, 1)]
)
def test_memalloc_requests_need_no_watermark(bits: Bits, forced: int) -> None:
    """S2.6: without the right, only what the recording had is given below the marks."""
    target = ready(dma32_0=FULL, normal_0=FULL, normal_1=FULL)
    assert target.alloc(1, 0, MOVABLE, NORMAL, bits) is not None
    assert target.forced == forced


def test_a_failing_memalloc_request_tries_no_more_than_the_kernel() -> None:
    """Nothing is free: the slow flags fail at the marks, the replaced ones in each zone."""
    target = oracle(nodes(1, cpu_nodes=(0,)), "6.12", SMALL)
    assert target.alloc(0, 0, MOVABLE, 0, Bits.MEMALLOC) is None
    assert [event[1] for event in events_named(target, "hold")] == ["refill", "buddy_alloc"]
    assert target.failed == 1
