"""What no kernel's source judges (docs/your_kernel.md), worked out by hand.

In which order nodes are tried (S1.4), who takes pcp->lock (S4.11, S11.3), and what a literal replay
does because its recording says so (S10.4).
"""

from __future__ import annotations

import pytest

from tests.oracle import Bits, Migratetype, Oracle, OracleAssumptions, OracleMachine, OraclePolicy
from tests.oracle.page_alloc import node_orders
from tests.oracle.scenarios import (
    BLOCK,
    KERNEL,
    asked,
    events_named,
    one_zone,
    oracle,
    put_free_memory,
    two_nodes,
    zone,
)
from tests.oracle.test_ownership import PAGES, counts, owning, take

MOVABLE, HIGHATOMIC = Migratetype.MOVABLE, Migratetype.HIGHATOMIC

DMA32, NORMAL = 0, 1  # types of zones, and zones of the first node

SINGLE = OraclePolicy(pcp_batch=1, pcp_high_min=0, pcp_high_max=0)
"""Per-CPU lists that hold nothing back."""

NOTHING = OracleAssumptions(kswapd_recorded=True, direct_reclaim_recorded=True)
"""Reclaim is the recording's affair."""
LISTED = 3  # a page that some tests free to a list


def machine_of(
    *blocks: int, cpu_nodes: tuple[int, ...], distances: tuple[tuple[int, ...], ...] = ()
) -> OracleMachine:
    """One zone of so many blocks per node."""
    zones = tuple(
        zone("Normal", sum(blocks[:node]), size, node=node) for node, size in enumerate(blocks)
    )
    return OracleMachine(
        zones=zones, nr_cpus=len(cpu_nodes), cpu_nodes=cpu_nodes, distances=distances
    )


@pytest.mark.parametrize(
    ("machine", "orders"),
    [
        (machine_of(1, 1, 1, cpu_nodes=(0, 1)), {0: (0, 2, 1), 1: (1, 2, 0), 2: (2, 0, 1)}),
        (
            machine_of(1, 1, 1, 1, cpu_nodes=(0, 1, 2, 3)),
            {0: (0, 1, 2, 3), 1: (1, 2, 3, 0), 2: (2, 3, 0, 1), 3: (3, 0, 1, 2)},
        ),
        (
            machine_of(
                *(1, 1, 1), cpu_nodes=(0, 1), distances=((10, 20, 20), (20, 10, 25), (25, 25, 10))
            ),
            {0: (0, 2, 1), 1: (1, 0, 2), 2: (2, 1, 0)},
        ),
        (
            machine_of(
                *(1, 1, 1),
                cpu_nodes=(0, 1, 2),
                distances=((10, 40, 20), (40, 10, 30), (20, 30, 10)),
            ),
            {0: (0, 2, 1), 1: (1, 2, 0), 2: (2, 0, 1)},
        ),
        (machine_of(1, 0, 1, cpu_nodes=(0, 1)), {0: (0, 2), 1: (2, 0), 2: (2, 0)}),
    ],
    ids=["no CPUs first", "round", "led other lists", "distance", "no memory"],
)
def test_nodes_follow_one_another(
    machine: OracleMachine, orders: dict[int, tuple[int, ...]]
) -> None:
    """S1.4: 20 against 20 + 1 for a node with CPUs, and one more for a lower number.

    In the third machine node 0 is first after node 1, so it yields to node 1 after node 2.
    """
    assert node_orders(machine) == orders


def locks(target: Oracle, cpu: int = 0) -> tuple[int, int, int]:
    """Acquisitions, holds to drain, hand-overs of a CPU."""
    found = counts(target, cpu)
    return found.lock_acquisitions, found.lock_drain_holds, found.lock_handovers


def test_a_remote_free_takes_it_away_and_the_owner_takes_it_back() -> None:
    target = owning()
    take(target, PAGES)
    target.free(1, 3, 0)
    target.free(1, 5, 0)
    assert locks(target, cpu=1) == (2, 0, 1)
    take(target)
    assert locks(target, cpu=0) == (PAGES + 1, 0, 1)


def in_pieces() -> Oracle:
    """One page of a block in use, one on CPU 0's list, the others free; two reserved blocks."""
    target = oracle(one_zone(8, nr_cpus=2), "7.2")
    target.put_allocated(0, 2, movable=True)
    for order in range(2, 9):
        target.put_free(1 << order, order, MOVABLE)
    for block in (5, 7):
        target.set_block_type(block, HIGHATOMIC)
        target.put_free(block * BLOCK, 9, HIGHATOMIC)
    target.free(0, LISTED, 0)
    target.events.clear()
    return target


@pytest.mark.parametrize("reclaimed", [0, 1])
def test_a_failure_made_room_if_reclaim_freed_pages_for_it(reclaimed: int) -> None:
    target = in_pieces()
    target.fail_as_recorded(asked(1, 9, MOVABLE, DMA32, Bits.DIRECT_RECLAIM, reclaim=reclaimed))
    sites = [event[1:3] for event in events_named(target, "hold")]
    assert sites == [("unreserve", ""), ("drain", "drain_all")] * reclaimed
    assert target.zones[0].pcp[0].count == 1 - reclaimed
    assert target.zones[0].reserve.reserved == (2 - reclaimed) * BLOCK


def with_two_zones() -> Oracle:
    """DMA32 on one node has free memory, and so have Normal there and Normal on another."""
    target = oracle(two_nodes(), "7.2")
    for index in (0, 1, 3):
        put_free_memory(target, index)
    return target


def served_by(target: Oracle, only_zone: int | None, bits: Bits = KERNEL) -> int:
    """The zone of a page that CPU 0 is given."""
    request = asked(0, 0, MOVABLE, NORMAL, bits, only_zone=only_zone)
    ((pfn, _),) = target.alloc_as_recorded(request)
    return target.zone_of(pfn).index


def test_the_imposed_zone_serves() -> None:
    target = with_two_zones()
    assert [served_by(target, zone) for zone in (None, 0, 1, 3)] == [1, 0, 1, 3]
    assert target.forced == 0


def pressed(normal_free: int, dma32_free: int) -> Oracle:
    """Four blocks each in two zones, with so many single MOVABLE pages free in their first ones."""
    marks = {"DMA32": 110, "Normal": 100}
    zones = tuple(
        zone(name, 4 * place, 4, **dict.fromkeys(("min", "low", "high"), pages))
        for place, (name, pages) in enumerate(marks.items())
    )
    target = oracle(OracleMachine(zones=zones, nr_cpus=1), "6.12", SINGLE)
    for block, count in ((0, dma32_free), (4, normal_free)):
        target.set_block_type(block, MOVABLE)
        for index in range(count):
            target.put_free(block * BLOCK + 2 * index, 0, MOVABLE)
    return target


def test_of_equals_the_preferred_zone_serves() -> None:
    """Both lack 90 pages; with one page fewer Normal lacks 91."""
    for normal_free, serves in ((10, NORMAL), (9, DMA32)):
        target = pressed(normal_free, 20)
        pfn = target.alloc(asked(0, 0, Migratetype.UNMOVABLE, NORMAL, Bits.NOMEMALLOC))
        assert target.forced == 1
        assert target.zone_of(pfn).index == serves


@pytest.mark.parametrize("reclaimed", [0, 1])
def test_recorded_direct_reclaim_makes_room_or_does_not(reclaimed: int) -> None:
    """S8.2: the page on the other CPU's list is found only if the lists are drained."""
    policy = OraclePolicy(pcp_batch=4, pcp_high_min=32, pcp_high_max=32)
    target = oracle(two_nodes(), "6.12", policy, NOTHING)
    target.put_pcp(3, 0, MOVABLE, 8 * BLOCK)
    pfn = target.alloc(asked(1, 0, MOVABLE, NORMAL, KERNEL, reclaim=reclaimed))
    assert pfn == (8 * BLOCK if reclaimed else None)


@pytest.mark.parametrize(("freed", "drained"), [(0, True), (1, False)])
def test_room_is_made_only_if_reclaim_left_no_more_than_before(freed: int, drained: bool) -> None:
    """S10.4: what is missing stays missing; a page more since reclaim began served the request."""
    target = oracle(two_nodes(), "6.12", SINGLE, NOTHING)
    put_free_memory(target, 3)
    for part in target.zones:
        part.watermarks.boost = 100 * BLOCK
    held = [target.alloc(asked(1, 4, MOVABLE, NORMAL, KERNEL)) for _ in range(2)]
    target.events.clear()
    target.put_pcp(3, 0, MOVABLE, 8 * BLOCK - 1)
    target.begin_reclaim(asked(1, 0, MOVABLE, NORMAL, KERNEL, reclaim=1))
    for pfn in held[:freed]:
        target.free(1, pfn, 4)
    target.events.clear()
    request = asked(1, 0, MOVABLE, NORMAL, KERNEL, reclaim=1)
    assert target.alloc(request) is not None
    assert bool(events_named(target, "drain")) == drained
