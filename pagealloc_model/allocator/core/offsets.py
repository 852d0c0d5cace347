"""Where regions and lists begin in `st` (see `layout`)."""

from __future__ import annotations

import numpy as np

from pagealloc_model.allocator.core import layout as at
from pagealloc_model.allocator.core import ownership_layout as own
from pagealloc_model.base.jit import inner


@inner
def zone_at(zone: int) -> int:
    """Offset of a zone's region."""
    return at.ZONES + zone * at.ZONE_STRIDE


@inner
def free_list_at(zone: int, order: int, migratetype: int) -> int:
    """Offset of a free list."""
    return (
        at.ZONES
        + zone * at.ZONE_STRIDE
        + at.ZONE_LISTS
        + (order * at.MIGRATETYPES + migratetype) * at.LIST_WORDS
    )


@inner
def pcp_at(st: np.ndarray, zone: int, cpu: int) -> int:
    """Offset of a CPU's pageset of a zone."""
    return st[at.PCP_BASE] + (zone * st[at.NR_CPUS] + cpu) * at.PCP_STRIDE


@inner
def node_at(st: np.ndarray, node: int) -> int:
    """Offset of a node's region, by node index."""
    return st[at.NODE_BASE] + node * at.NODE_STRIDE


@inner
def cpu_at(st: np.ndarray, cpu: int) -> int:
    """Offset of what concerns a CPU as a whole."""
    return st[at.CPU_BASE] + cpu * at.CPU_STRIDE


@inner
def owned_set_at(st: np.ndarray, zone: int, cpu: int) -> int:
    """Offset of a CPU's part in the ownership of a zone's blocks."""
    return st[st[at.OWNERSHIP] + own.SETS] + (zone * st[at.NR_CPUS] + cpu) * own.SET_STRIDE


@inner
def owned_block_at(st: np.ndarray, block: int) -> int:
    """Offset of who owns a pageblock."""
    return st[st[at.OWNERSHIP] + own.BLOCKS] + block * own.BLOCK_WORDS


@inner
def zonelist_at(st: np.ndarray, cpu: int, highest_type: int, bits: int) -> int:
    """Offset of the zonelist of a request by a CPU (S1.4): zone numbers, ended by -1.

    A request's node is that of its CPU: no event names another.
    """
    lst = st[st[at.CPU_NODE_BASE] + cpu]
    if bits & at.GFP_THISNODE:
        lst += st[at.NR_NODES]
    lst = lst * st[at.ZONE_TYPES] + highest_type
    return st[at.ZONELIST_BASE] + lst * (st[at.NR_ZONES] + 1)
