"""A CPU's list of owned blocks with fragments in the zone's lists, oldest first (S12.5)."""

from __future__ import annotations

from pagealloc_model.allocator.core import layout as at
from pagealloc_model.allocator.core import ownership_layout as own
from pagealloc_model.allocator.core.offsets import owned_block_at, owned_set_at
from pagealloc_model.base.jit import inner


@inner
def record_block(m: at.MachineArrays, zone: int, cpu: int, block: int) -> None:
    """No kernel function: append a block to its owner's list."""
    lst = owned_set_at(m, zone, cpu) + own.SET_RECORDED
    words = owned_block_at(m, block)
    tail = m.st[lst + at.TAIL]
    m.st[words + own.BLOCK_IS_RECORDED] = 1
    m.st[words + own.BLOCK_PREV] = tail
    m.st[words + own.BLOCK_NEXT] = -1
    if tail >= 0:
        m.st[owned_block_at(m, tail) + own.BLOCK_NEXT] = block
    else:
        m.st[lst + at.HEAD] = block
    m.st[lst + at.TAIL] = block
    m.st[lst + at.ENTRIES] += 1


@inner
def unrecord_block(m: at.MachineArrays, zone: int, cpu: int, block: int) -> None:
    """No kernel function: take a block off its owner's list."""
    lst = owned_set_at(m, zone, cpu) + own.SET_RECORDED
    words = owned_block_at(m, block)
    following = m.st[words + own.BLOCK_NEXT]
    preceding = m.st[words + own.BLOCK_PREV]
    if preceding >= 0:
        m.st[owned_block_at(m, preceding) + own.BLOCK_NEXT] = following
    else:
        m.st[lst + at.HEAD] = following
    if following >= 0:
        m.st[owned_block_at(m, following) + own.BLOCK_PREV] = preceding
    else:
        m.st[lst + at.TAIL] = preceding
    m.st[lst + at.ENTRIES] -= 1
    m.st[words + own.BLOCK_IS_RECORDED] = 0
