"""Who owns a pageblock, and what ends that; owned blocks with fragments (S12.2, S12.5, S12.8)."""

from __future__ import annotations

from pagealloc_model.allocator.core import layout as at
from pagealloc_model.allocator.core import ownership_layout as own
from pagealloc_model.allocator.core.offsets import cpu_at, owned_block_at, owned_set_at, owner_at
from pagealloc_model.base.jit import inner


@inner
def option(m: at.MachineArrays, which: int) -> int:
    """No kernel function: return an ownership option."""
    return m.st[m.st[at.OWNERSHIP] + which]


@inner
def owner_of(m: at.MachineArrays, block: int) -> int:
    """No kernel function: return the CPU that owns a block, or -1."""
    return m.st[owner_at(m, block)] - 1


@inner
def count_owning(m: at.MachineArrays, zone: int, counter: int, change: int) -> None:
    """No kernel function: count what the CPU at work did in a zone."""
    m.st[owned_set_at(m, zone, m.st[at.EVENT_CPU]) + counter] += change


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


@inner
def take_ownership(m: at.MachineArrays, zone: int, cpu: int, block: int) -> None:
    """No kernel function: make a CPU the owner of a block that is free as a whole."""
    m.st[owner_at(m, block)] = cpu + 1
    count_owning(m, zone, own.BLOCKS_CLAIMED, 1)


@inner
def end_ownership(m: at.MachineArrays, block: int) -> None:
    """No kernel function: end the ownership of a block, if it has an owner."""
    cpu = owner_of(m, block)
    if cpu < 0:
        return
    zone = int(m.blocks[block]["zone"]) - 1
    if m.st[owned_block_at(m, block) + own.BLOCK_IS_RECORDED]:
        unrecord_block(m, zone, cpu, block)
    m.st[owner_at(m, block)] = 0
    count_owning(m, zone, own.OWNERSHIPS_ENDED, 1)


@inner
def end_where_whole(m: at.MachineArrays, pfn: int, order: int) -> None:
    """No kernel function: end the ownership of every block that a free buddy covers."""
    block_order = m.st[at.PAGEBLOCK_ORDER]
    first = pfn >> block_order
    for block in range(first, first + (1 << (order - block_order))):
        end_ownership(m, block)


@inner
def end_where_retyped(m: at.MachineArrays, block: int, migratetype: int) -> None:
    """No kernel function: end a block's ownership if its next type cannot keep it."""
    if int(m.blocks[block]["migratetype"]) != migratetype and (
        migratetype >= at.PCP_TYPES or option(m, own.OPTION_TYPE_CHANGE) == own.TYPE_CHANGE_ENDS
    ):
        end_ownership(m, block)


@inner
def end_recorded(m: at.MachineArrays, zone: int, cpu: int) -> None:
    """No kernel function: end the ownership of all blocks on a CPU's list of recorded ones."""
    lst = owned_set_at(m, zone, cpu) + own.SET_RECORDED
    while m.st[lst + at.HEAD] >= 0:
        end_ownership(m, m.st[lst + at.HEAD])


@inner
def note_drained(m: at.MachineArrays, zone: int, block: int) -> None:
    """No kernel function: record an owned block of which a fragment went to the zone's lists."""
    cpu = owner_of(m, block)
    if cpu < 0:
        return
    if option(m, own.OPTION_OWNERSHIP_ENDS) == own.ENDS_DRAINED:
        end_ownership(m, block)
    elif not m.st[owned_block_at(m, block) + own.BLOCK_IS_RECORDED]:
        cap = option(m, own.OPTION_RECORDED_CAP)
        entries = m.st[owned_set_at(m, zone, cpu) + own.SET_RECORDED + at.ENTRIES]
        if cap > 0 and entries >= cap:
            end_ownership(m, block)
        else:
            record_block(m, zone, cpu, block)
            count_owning(m, zone, own.BLOCKS_RECORDED, 1)


@inner
def age_ownership(m: at.MachineArrays, zone: int, cpu: int) -> None:
    """No kernel function: end the ownership of a CPU's recorded blocks on its tick.

    That is so where ownership ends with age.
    """
    if m.st[at.OWNERSHIP] and option(m, own.OPTION_OWNERSHIP_ENDS) == own.ENDS_AGED:
        end_recorded(m, zone, cpu)


@inner
def after_full_drain(m: at.MachineArrays, zone: int, cpu: int) -> None:
    """No kernel function: end the ownership of recorded blocks, if a full drain does so."""
    if m.st[at.OWNERSHIP] and option(m, own.OPTION_FULL_DRAIN) == own.FULL_DRAIN_ENDS:
        end_recorded(m, zone, cpu)


@inner
def disown_cpu(m: at.MachineArrays, cpu: int) -> None:
    """No kernel function: take an offline CPU's blocks, unless it keeps them for its return."""
    if not m.st[at.OWNERSHIP] or option(m, own.OPTION_OFFLINE_OWNER) == own.OFFLINE_KEEPS:
        return
    for block in range(m.blocks.shape[0]):
        if owner_of(m, block) == cpu:
            end_ownership(m, block)


@inner
def receiver_of(m: at.MachineArrays, owner: int, is_plain: bool, cpu: int) -> int:
    """No kernel function: return the CPU whose lists a page freed by `cpu` should go to.

    It is the owner, which is another CPU, or `cpu` itself.
    """
    if not option(m, own.OPTION_ROUTES_FREES):
        return cpu
    if is_plain and option(m, own.OPTION_PLAIN_FREES) == own.PLAIN_STAYS_LOCAL:
        return cpu
    return cpu if m.st[cpu_at(m, owner) + at.CPU_IS_DEAD] else owner
