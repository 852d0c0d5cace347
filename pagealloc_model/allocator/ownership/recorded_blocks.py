"""A CPU's list of owned blocks with fragments in the zone's lists, oldest first (S12.5)."""

from __future__ import annotations

import numpy as np

from pagealloc_model.allocator.core import layout as at
from pagealloc_model.allocator.core import ownership_layout as own
from pagealloc_model.allocator.core.offsets import owned_block_at, owned_set_at
from pagealloc_model.base.jit import inner


@inner
def record_block(st: np.ndarray, zone: int, cpu: int, block: int) -> None:
    """Append a block to its owner's list."""
    lst = owned_set_at(st, zone, cpu) + own.SET_RECORDED
    words = owned_block_at(st, block)
    tail = st[lst + at.TAIL]
    st[words + own.BLOCK_IS_RECORDED] = 1
    st[words + own.BLOCK_PREV] = tail
    st[words + own.BLOCK_NEXT] = -1
    if tail >= 0:
        st[owned_block_at(st, tail) + own.BLOCK_NEXT] = block
    else:
        st[lst + at.HEAD] = block
    st[lst + at.TAIL] = block
    st[lst + at.ENTRIES] += 1


@inner
def unrecord_block(st: np.ndarray, zone: int, cpu: int, block: int) -> None:
    """Take a block off its owner's list."""
    lst = owned_set_at(st, zone, cpu) + own.SET_RECORDED
    words = owned_block_at(st, block)
    following = st[words + own.BLOCK_NEXT]
    preceding = st[words + own.BLOCK_PREV]
    if preceding >= 0:
        st[owned_block_at(st, preceding) + own.BLOCK_NEXT] = following
    else:
        st[lst + at.HEAD] = following
    if following >= 0:
        st[owned_block_at(st, following) + own.BLOCK_PREV] = preceding
    else:
        st[lst + at.TAIL] = preceding
    st[lst + at.ENTRIES] -= 1
    st[words + own.BLOCK_IS_RECORDED] = 0
