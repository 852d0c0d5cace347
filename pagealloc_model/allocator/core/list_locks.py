"""How often each pcp->lock is taken, and by whom (S11.3)."""

from __future__ import annotations

from pagealloc_model.allocator.core import layout as at
from pagealloc_model.allocator.core.offsets import cpu_at, pcp_at
from pagealloc_model.base.jit import hot, inner

BATCH_MAX = 31
"""Pages that one folio batch frees at most (S4.11)."""


@hot
def hand_over(m: at.MachineArrays, pcp: int, mine: int) -> None:
    """No kernel function: note that the CPU at work takes the lock of a pageset.

    `mine` is its own pageset there. It is the CPU at work that the acquisition counts for.
    """
    holder = m.st[at.EVENT_CPU] + 1
    last = m.st[pcp + at.PCP_LOCK_HOLDER]
    if last != holder:
        m.st[pcp + at.PCP_LOCK_HOLDER] = holder
        if last != 0:
            m.st[mine + at.PCP_LOCK_HANDOVERS] += 1


@hot
def is_locked_by_holder(m: at.MachineArrays, cpu: int, pcp: int) -> bool:
    """pcp_spin_trylock(): return whether it fails to take a pageset's lock (S4.10).

    The CPU holds the lock itself, for the folio batch, the refill or the drain that the request or
    free at work interrupts: one that interrupts none has ended them.
    """
    words = cpu_at(m, cpu)
    return m.st[words + at.CPU_BATCH_SET] == pcp or m.st[words + at.CPU_LOCKED_SET] == pcp


@inner
def let_go_of_lists(m: at.MachineArrays, cpu: int) -> None:
    """No kernel function: end what a CPU did under a list's lock, as it does something else."""
    words = cpu_at(m, cpu)
    m.st[words + at.CPU_BATCH_SET] = 0
    m.st[words + at.CPU_LOCKED_SET] = 0


@inner
def hold_refilled(m: at.MachineArrays, cpu: int, pcp: int) -> None:
    """No kernel function: hold a pageset's lock for the interrupts that come into its refill."""
    m.st[cpu_at(m, cpu) + at.CPU_LOCKED_SET] = pcp


@inner
def note_drain(m: at.MachineArrays, pcp: int) -> None:
    """No kernel function: note that a free of the CPU at work has drained a pageset.

    An interrupt that was held off meanwhile comes now, under the pageset's lock (S4.10).
    """
    word = cpu_at(m, m.st[at.EVENT_CPU]) + at.CPU_LOCKED_SET
    if m.st[word] <= 0:
        m.st[word] = -pcp


@inner
def hold_drained(m: at.MachineArrays, cpu: int) -> None:
    """No kernel function: hold the lock of the pageset that a CPU's last free drained, if it did.

    A folio batch is over.
    """
    words = cpu_at(m, cpu)
    m.st[words + at.CPU_BATCH_SET] = 0
    m.st[words + at.CPU_LOCKED_SET] = abs(m.st[words + at.CPU_LOCKED_SET])


@hot
def lock_list(m: at.MachineArrays, zone: int, pcp: int) -> None:
    """Part of rmqueue_pcplist(): take a pageset's lock for an allocation."""
    mine = pcp_at(m, zone, m.st[at.EVENT_CPU])
    hand_over(m, pcp, mine)
    m.st[mine + at.PCP_LOCKS] += 1


@hot
def lock_list_to_free(m: at.MachineArrays, zone: int, pcp: int, in_batch: bool) -> None:
    """__free_frozen_pages() and free_unref_folios(): take a pageset's lock for a free.

    A batch of frees may hold it already.
    """
    cpu = m.st[at.EVENT_CPU]
    mine = pcp_at(m, zone, cpu)
    words = cpu_at(m, cpu)
    if in_batch:
        m.st[words + at.CPU_BATCHED] += 1
        if m.st[words + at.CPU_BATCH_SET] == pcp and m.st[words + at.CPU_BATCHED] <= BATCH_MAX:
            return
        m.st[words + at.CPU_BATCH_SET] = pcp
        m.st[words + at.CPU_BATCHED] = 1
    hand_over(m, pcp, mine)
    m.st[mine + at.PCP_LOCKS] += 1


@inner
def lock_list_to_drain(m: at.MachineArrays, zone: int, pcp: int) -> None:
    """No kernel function: take a pageset's lock only to drain it."""
    mine = pcp_at(m, zone, m.st[at.EVENT_CPU])
    hand_over(m, pcp, mine)
    m.st[mine + at.PCP_DRAIN_LOCKS] += 1
