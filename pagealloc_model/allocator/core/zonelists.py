"""In which order a request tries the zones of all nodes (S1.4)."""

from __future__ import annotations

from pagealloc_model.recording.machine import Machine


def node_orders(machine: Machine) -> tuple[tuple[int, ...], ...]:
    """Nodes with memory in the order in which requests of each node try them, by node index.

    A node's own memory comes first, then repeatedly the node with the least distance; nodes
    numbered below the own one and nodes with CPUs are put back by one each. Ties go to the node
    that fewer lists made before name first of several at one distance, then to the lower number.
    """
    count = len(machine.nodes)
    has_memory = [
        any(zone.managed for zone in machine.zones if zone.node == node) for node in machine.nodes
    ]
    has_cpus = [machine.cpus_of_node(node) > 0 for node in range(count)]
    load = [0] * count
    orders = []
    for local in range(count):
        left = [node for node in range(count) if has_memory[node]]
        previous = local
        order: list[int] = []
        while left:
            costs = {
                node: (
                    machine.distance(local, node) + (node < local) + has_cpus[node],
                    load[node],
                )
                for node in left
            }
            nearest = local if local in left else min(left, key=lambda node: costs[node])
            if machine.distance(local, nearest) != machine.distance(local, previous):
                load[nearest] += 1
            left.remove(nearest)
            order.append(nearest)
            previous = nearest
        orders.append(tuple(order))
    return tuple(orders)


def zonelist(machine: Machine, nodes: tuple[int, ...], highest_type: int) -> tuple[int, ...]:
    """Numbers of the zones with managed pages: node after node, highest type first."""
    types = len(machine.zone_types)
    return tuple(
        zone
        for node in nodes
        for zone in range(node * types + highest_type, node * types - 1, -1)
        if machine.zones[zone].managed
    )
