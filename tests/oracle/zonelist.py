"""Which zones a request may use, in which order (S1.4)."""

from __future__ import annotations

from tests.oracle.machine import OracleMachine


def node_orders(machine: OracleMachine) -> dict[int, tuple[int, ...]]:
    """find_next_best_node(): return for each node the order in which its requests go on.

    It holds nodes with memory. A node's own memory comes first. The others follow by distance; a
    node of a lower number, and one with CPUs, counts as a little farther away. Between equals that
    one is chosen which came less often first among its equals in the lists built before, then the
    lower number.
    """
    load = dict.fromkeys(machine.nodes, 0)
    return {node: _node_order(machine, node, load) for node in machine.nodes}


def zonelist(machine: OracleMachine, nodes: tuple[int, ...], highest_type: int) -> list[int]:
    """build_zonerefs_node(): return the zones with memory, node by node.

    Within a node they go from the highest allowed type down.
    """
    return [
        zone
        for node in nodes
        for zone in machine.zones_of(node)[highest_type::-1]
        if machine.zones[zone].present
    ]


def _node_order(machine: OracleMachine, local: int, load: dict[int, int]) -> tuple[int, ...]:
    """build_zonelists(): return the order of nodes for one node."""
    order: list[int] = []
    previous = local
    for _ in range(len(_with_memory(machine))):
        node = _find_next_best_node(machine, local, order, load)
        if machine.distance(local, node) != machine.distance(local, previous):
            load[node] += 1
        order.append(node)
        previous = node
    return tuple(order)


def _find_next_best_node(
    machine: OracleMachine, local: int, used: list[int], load: dict[int, int]
) -> int:
    """find_next_best_node(): return the next node to try."""
    unused = [node for node in _with_memory(machine) if node not in used]
    if local in unused:
        return local
    return min(unused, key=lambda node: (_remoteness(machine, local, node), load[node], node))


def _remoteness(machine: OracleMachine, local: int, node: int) -> int:
    """Part of find_next_best_node(): return how far away a node counts as."""
    return machine.distance(local, node) + (node < local) + bool(machine.cpus_of(node))


def _with_memory(machine: OracleMachine) -> list[int]:
    """No kernel function: return the nodes with memory."""
    return [
        node
        for node in machine.nodes
        if any(machine.zones[zone].present for zone in machine.zones_of(node))
    ]
