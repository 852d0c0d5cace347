"""Where the regions of `pressure_layout` begin in `st`."""

from __future__ import annotations

import numpy as np

from pagealloc_model.allocator.core import layout as at
from pagealloc_model.allocator.core import pressure_layout as pr
from pagealloc_model.base.jit import inner


@inner
def word_at(st: np.ndarray, name: int) -> int:
    """Offset of a scalar or counter."""
    return st[at.PRESSURE_BASE] + name


@inner
def value_of(st: np.ndarray, name: int) -> int:
    """A scalar's value."""
    return st[st[at.PRESSURE_BASE] + name]


@inner
def node_pressure_at(st: np.ndarray, node: int) -> int:
    """Offset of a node's words."""
    return st[st[at.PRESSURE_BASE] + pr.NODES_BASE] + node * pr.NODE_WORDS


@inner
def zone_pressure_at(st: np.ndarray, zone: int) -> int:
    """Offset of a zone's words."""
    return st[st[at.PRESSURE_BASE] + pr.ZONES_BASE] + zone * pr.ZONE_WORDS


@inner
def compactor_at(st: np.ndarray, number: int) -> int:
    """Offset of a compactor's words."""
    return st[st[at.PRESSURE_BASE] + pr.COMPACTORS_BASE] + number * pr.COMPACTOR_WORDS
