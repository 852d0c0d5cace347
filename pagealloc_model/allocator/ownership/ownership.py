"""Who owns a pageblock, and what ends that (S12.2, S12.8)."""

from __future__ import annotations

import numpy as np

from pagealloc_model.allocator.core import layout as at
from pagealloc_model.allocator.core import ownership_layout as own
from pagealloc_model.allocator.core.offsets import cpu_at, owned_block_at, owned_set_at
from pagealloc_model.allocator.ownership.recorded_blocks import record_block, unrecord_block
from pagealloc_model.base.jit import inner


@inner
def option(st: np.ndarray, which: int) -> int:
    """An ownership option."""
    return st[st[at.OWNERSHIP] + which]


@inner
def owner_of(st: np.ndarray, block: int) -> int:
    """The CPU that owns a block, -1 if none does."""
    return st[owned_block_at(st, block) + own.BLOCK_OWNER] - 1


@inner
def count_owning(st: np.ndarray, zone: int, counter: int, change: int) -> None:
    """Count what the CPU at work did in a zone."""
    st[owned_set_at(st, zone, st[at.EVENT_CPU]) + counter] += change


@inner
def take_ownership(st: np.ndarray, zone: int, cpu: int, block: int) -> None:
    """Make a CPU the owner of a block that is free as a whole."""
    st[owned_block_at(st, block) + own.BLOCK_OWNER] = cpu + 1
    count_owning(st, zone, own.BLOCKS_CLAIMED, 1)


@inner
def end_ownership(blocks: np.ndarray, st: np.ndarray, block: int) -> None:
    """A block has no owner any more; nothing happens if it had none."""
    words = owned_block_at(st, block)
    cpu = st[words + own.BLOCK_OWNER] - 1
    if cpu < 0:
        return
    zone = int(blocks[block]["zone"]) - 1
    if st[words + own.BLOCK_IS_RECORDED]:
        unrecord_block(st, zone, cpu, block)
    st[words + own.BLOCK_OWNER] = 0
    count_owning(st, zone, own.OWNERSHIPS_ENDED, 1)


@inner
def end_where_whole(blocks: np.ndarray, st: np.ndarray, pfn: int, order: int) -> None:
    """End the ownership of every block that a free buddy covers."""
    block_order = st[at.PAGEBLOCK_ORDER]
    first = pfn >> block_order
    for block in range(first, first + (1 << (order - block_order))):
        end_ownership(blocks, st, block)


@inner
def end_where_retyped(blocks: np.ndarray, st: np.ndarray, block: int, migratetype: int) -> None:
    """End a block's ownership if it cannot be kept with the type that it is about to get."""
    if int(blocks[block]["migratetype"]) != migratetype and (
        migratetype >= at.PCP_TYPES or option(st, own.OPTION_TYPE_CHANGE) == own.TYPE_CHANGE_ENDS
    ):
        end_ownership(blocks, st, block)


@inner
def end_recorded(blocks: np.ndarray, st: np.ndarray, zone: int, cpu: int) -> None:
    """End the ownership of all blocks on a CPU's list of recorded ones."""
    lst = owned_set_at(st, zone, cpu) + own.SET_RECORDED
    while st[lst + at.HEAD] >= 0:
        end_ownership(blocks, st, st[lst + at.HEAD])


@inner
def note_drained(blocks: np.ndarray, st: np.ndarray, zone: int, block: int) -> None:
    """A fragment of a block went to the zone's lists: record the block, if it is owned."""
    words = owned_block_at(st, block)
    cpu = st[words + own.BLOCK_OWNER] - 1
    if cpu < 0:
        return
    if option(st, own.OPTION_OWNERSHIP_ENDS) == own.ENDS_DRAINED:
        end_ownership(blocks, st, block)
    elif not st[words + own.BLOCK_IS_RECORDED]:
        cap = option(st, own.OPTION_RECORDED_CAP)
        entries = st[owned_set_at(st, zone, cpu) + own.SET_RECORDED + at.ENTRIES]
        if cap > 0 and entries >= cap:
            end_ownership(blocks, st, block)
        else:
            record_block(st, zone, cpu, block)
            count_owning(st, zone, own.BLOCKS_RECORDED, 1)


@inner
def age_ownership(blocks: np.ndarray, st: np.ndarray, zone: int, cpu: int) -> None:
    """A tick of a CPU ends the ownership of its recorded blocks, where that comes with age."""
    if st[at.OWNERSHIP] and option(st, own.OPTION_OWNERSHIP_ENDS) == own.ENDS_AGED:
        end_recorded(blocks, st, zone, cpu)


@inner
def after_full_drain(blocks: np.ndarray, st: np.ndarray, zone: int, cpu: int) -> None:
    """A full drain may end the ownership of the recorded blocks."""
    if st[at.OWNERSHIP] and option(st, own.OPTION_FULL_DRAIN) == own.FULL_DRAIN_ENDS:
        end_recorded(blocks, st, zone, cpu)


@inner
def disown_cpu(blocks: np.ndarray, st: np.ndarray, cpu: int) -> None:
    """A CPU that goes offline loses its blocks, unless it keeps them for its return."""
    if not st[at.OWNERSHIP] or option(st, own.OPTION_OFFLINE_OWNER) == own.OFFLINE_KEEPS:
        return
    for block in range(blocks.shape[0]):
        if owner_of(st, block) == cpu:
            end_ownership(blocks, st, block)


@inner
def receiver_of(st: np.ndarray, block: int, is_plain: bool, cpu: int) -> int:
    """The CPU whose lists a page freed by `cpu` should go to: the owner's, or its own."""
    owner = owner_of(st, block)
    if owner < 0 or owner == cpu or not option(st, own.OPTION_ROUTES_FREES):
        return cpu
    if is_plain and option(st, own.OPTION_PLAIN_FREES) == own.PLAIN_STAYS_LOCAL:
        return cpu
    return cpu if st[cpu_at(st, owner) + at.CPU_IS_DEAD] else owner
