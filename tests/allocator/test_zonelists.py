"""In which order nodes and zones are tried, worked out by hand (S1.4)."""

from __future__ import annotations

from collections.abc import Sequence

from pagealloc_model.allocator.state import node_orders, zonelist
from pagealloc_model.recording.machine import Machine, Zone

BLOCK = 512


def machine_of(
    pages: Sequence[int],
    cpu_nodes: tuple[int, ...],
    distances: tuple[tuple[int, ...], ...] = (),
) -> Machine:
    """A Normal zone of so many pages on each node, below it DMA32, on node 0 only."""
    zones = []
    start = 8 * BLOCK
    for node, count in enumerate(pages):
        low = 8 * BLOCK if node == 0 and count else 0
        for name, first, size in (("DMA32", 0, low), ("Normal", start, count)):
            zones.append(
                Zone(
                    node=node,
                    name=name,
                    start_pfn=first,
                    spanned=size,
                    present=size,
                    managed=size,
                    min=0,
                    low=0,
                    high=0,
                )
            )
        start += count
    return Machine(
        zones=tuple(zones), nr_cpus=len(cpu_nodes), cpu_nodes=cpu_nodes, distances=distances
    )


def test_own_node_first_then_the_next_ones() -> None:
    """At one distance nodes below the own one come last: 0, 1, 2 each begin at their own."""
    assert node_orders(machine_of([BLOCK] * 3, (0, 1, 2))) == ((0, 1, 2), (1, 2, 0), (2, 0, 1))


def test_distance_comes_before_everything_but_the_own_node() -> None:
    distances = ((10, 30, 20), (30, 10, 20), (20, 20, 10))
    orders = node_orders(machine_of([BLOCK] * 3, (0, 1, 2), distances))
    assert orders[0] == (0, 2, 1)
    assert orders[1] == (1, 2, 0)


def test_a_node_without_cpus_wins_a_tie() -> None:
    assert node_orders(machine_of([BLOCK] * 3, (0, 1)))[0] == (0, 2, 1)


def test_ties_spread_over_the_nodes_first_in_earlier_lists() -> None:
    """Nodes 2 and 3 are equally far from 0 and from 1; each is the first of them once."""
    distances = ((10, 15, 20, 20), (15, 10, 20, 20), (20, 20, 10, 15), (20, 20, 15, 10))
    orders = node_orders(machine_of([BLOCK] * 4, (0, 1, 2, 3), distances))
    assert orders[0] == (0, 1, 2, 3)
    assert orders[1] == (1, 0, 3, 2)


def test_a_node_without_memory_has_no_place_in_lists() -> None:
    assert node_orders(machine_of([BLOCK, 0, BLOCK], (0, 1, 2))) == ((0, 2), (2, 0), (2, 0))


def test_zones_of_a_node_come_highest_first_and_empty_ones_not_at_all() -> None:
    machine = machine_of([BLOCK, BLOCK], (0, 1))
    assert zonelist(machine, (1, 0), 1) == (3, 1, 0)
    assert zonelist(machine, (1, 0), 0) == (0,)
