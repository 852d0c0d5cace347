"""Where regions and lists begin in `st` (see `layout`)."""

from __future__ import annotations

from pagealloc_model.allocator.core import layout as at
from pagealloc_model.allocator.core import ownership_layout as own
from pagealloc_model.base.jit import inner


@inner
def zone_at(zone: int) -> int:
    """No kernel function: return the offset of a zone's region."""
    return at.ZONES + zone * at.ZONE_STRIDE


@inner
def free_list_at(zone: int, order: int, migratetype: int) -> int:
    """No kernel function: return the offset of a free list."""
    return (
        at.ZONES
        + zone * at.ZONE_STRIDE
        + at.ZONE_LISTS
        + (order * at.MIGRATETYPES + migratetype) * at.LIST_WORDS
    )


@inner
def pcp_at(m: at.MachineArrays, zone: int, cpu: int) -> int:
    """No kernel function: return the offset of a CPU's pageset of a zone."""
    return m.st[at.PCP_BASE] + (zone * m.st[at.NR_CPUS] + cpu) * at.PCP_STRIDE


@inner
def node_at(m: at.MachineArrays, node: int) -> int:
    """No kernel function: return the offset of a node's region, by node index."""
    return m.st[at.NODE_BASE] + node * at.NODE_STRIDE


@inner
def cpu_at(m: at.MachineArrays, cpu: int) -> int:
    """No kernel function: return the offset of what concerns a CPU as a whole."""
    return m.st[at.CPU_BASE] + cpu * at.CPU_STRIDE


@inner
def owned_set_at(m: at.MachineArrays, zone: int, cpu: int) -> int:
    """No kernel function: return the offset of a CPU's part in the ownership of a zone's blocks."""
    return m.st[m.st[at.OWNERSHIP] + own.SETS] + (zone * m.st[at.NR_CPUS] + cpu) * own.SET_STRIDE


@inner
def owner_at(m: at.MachineArrays, block: int) -> int:
    """No kernel function: return the offset of who owns a pageblock."""
    return m.st[m.st[at.OWNERSHIP] + own.OWNERS] + block


@inner
def owned_block_at(m: at.MachineArrays, block: int) -> int:
    """No kernel function: return the offset of what records a pageblock that is owned."""
    return m.st[m.st[at.OWNERSHIP] + own.BLOCKS] + block * own.BLOCK_WORDS


@inner
def node_zonelist(m: at.MachineArrays, cpu: int, highest_type: int, bits: int) -> int:
    """node_zonelist(): return the offset of the zonelist of a request by a CPU (S1.4).

    It holds zone numbers, ended by -1. A request's node is that of its CPU: no event names another.
    """
    lst = m.st[m.st[at.CPU_NODE_BASE] + cpu]
    if bits & at.GFP_THISNODE:
        lst += m.st[at.NR_NODES]
    lst = lst * m.st[at.ZONE_TYPES] + highest_type
    return m.st[at.ZONELIST_BASE] + lst * (m.st[at.NR_ZONES] + 1)
