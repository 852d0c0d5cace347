"""Where the regions of `pressure_layout` begin in `st`."""

from __future__ import annotations

from pagealloc_model.allocator.core import layout as at
from pagealloc_model.allocator.core import pressure_layout as pr
from pagealloc_model.base.jit import inner


@inner
def word_at(m: at.MachineArrays, name: int) -> int:
    """No kernel function: return the offset of a scalar or counter."""
    return m.st[at.PRESSURE_BASE] + name


@inner
def value_of(m: at.MachineArrays, name: int) -> int:
    """No kernel function: return a scalar's value."""
    return m.st[m.st[at.PRESSURE_BASE] + name]


@inner
def node_pressure_at(m: at.MachineArrays, node: int) -> int:
    """No kernel function: return the offset of a node's words."""
    return m.st[m.st[at.PRESSURE_BASE] + pr.NODES_BASE] + node * pr.NODE_WORDS


@inner
def zone_pressure_at(m: at.MachineArrays, zone: int) -> int:
    """No kernel function: return the offset of a zone's words."""
    return m.st[m.st[at.PRESSURE_BASE] + pr.ZONES_BASE] + zone * pr.ZONE_WORDS


@inner
def compactor_at(m: at.MachineArrays, number: int) -> int:
    """No kernel function: return the offset of a compactor's words."""
    return m.st[m.st[at.PRESSURE_BASE] + pr.COMPACTORS_BASE] + number * pr.COMPACTOR_WORDS
