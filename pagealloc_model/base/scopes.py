"""How rows of tables name the zone they are about."""

from __future__ import annotations

from collections.abc import Collection


def zone_scope(node: int, zone: str, nodes: Collection[int]) -> str:
    """A zone in a scope: "zone=Normal", with several nodes "node=1,zone=Normal".

    Args:
        node: the zone's node number.
        zone: its name.
        nodes: all node numbers.
    """
    return f"zone={zone}" if len(nodes) == 1 else f"node={node},zone={zone}"
