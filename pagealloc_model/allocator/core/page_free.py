"""Freeing pages: to a per-CPU list or the buddy, as a part of an allocation too (S4.6)."""

from __future__ import annotations

from pagealloc_model.allocator.core import layout as at
from pagealloc_model.allocator.core.buddy import free_one_page
from pagealloc_model.allocator.core.kswapd_runs import stop_balanced_kswapds
from pagealloc_model.allocator.core.list_locks import is_locked_by_holder, lock_list_to_free
from pagealloc_model.allocator.core.offsets import pcp_at
from pagealloc_model.allocator.core.pcp import free_frozen_page_commit, order_to_pindex
from pagealloc_model.allocator.ownership.owned_frees import free_owned
from pagealloc_model.base.jit import cold, hot


@cold
def split_allocation(m: at.MachineArrays, pfn: int, order: int) -> None:
    """No kernel function: cut an allocation so that a piece at `pfn` stands alone (T10.1).

    The piece is of the order given.
    """
    for above in range(order, m.st[at.MAX_ORDER] + 1):
        head = pfn & ~((1 << above) - 1)
        if int(m.pages[head]["where"]) == at.ALLOCATED and int(m.pages[head]["order"]) >= above:
            tag = int(m.pages[head]["tag"])
            flags = int(m.pages[head]["flags"])
            for current in range(int(m.pages[head]["order"]) - 1, order - 1, -1):
                half = pfn & ~((1 << current) - 1)
                other = half ^ (1 << current)
                for piece in (half, other):
                    m.pages[piece]["where"] = at.ALLOCATED
                    m.pages[piece]["order"] = current
                    m.pages[piece]["tag"] = tag
                    m.pages[piece]["flags"] = flags
            return


@hot
def __free_frozen_pages(
    m: at.MachineArrays, cpu: int, pfn: int, order: int, in_batch: bool
) -> None:
    """__free_frozen_pages(): free pages on a CPU (S4.6).

    They go to its lists or, where those do not take them, to the buddy. In 6.12 the function is
    called free_unref_page(). `in_batch`: a folio batch frees them.
    """
    if int(m.pages[pfn]["where"]) != at.ALLOCATED or int(m.pages[pfn]["order"]) != order:
        split_allocation(m, pfn, order)
    block_order = m.st[at.PAGEBLOCK_ORDER]
    block = pfn >> block_order
    zone = int(m.blocks[block]["zone"]) - 1
    migratetype = int(m.blocks[block]["migratetype"])
    listed = migratetype if migratetype < at.PCP_TYPES else at.MOVABLE
    index = order_to_pindex(m, order, listed)
    if m.st[at.OWNERSHIP]:
        if order > block_order:
            index = -1
    elif not in_batch and is_locked_by_holder(m, cpu, pcp_at(m, zone, cpu)):
        index = -1
    if index >= 0 and migratetype != m.st[at.ISOLATE]:
        if m.st[at.OWNERSHIP]:
            free_owned(m, zone, cpu, pfn, order, in_batch)
        else:
            lock_list_to_free(m, zone, pcp_at(m, zone, cpu), in_batch)
            free_frozen_page_commit(m, zone, cpu, pfn, order, index, migratetype)
    else:
        free_one_page(m, zone, cpu, pfn, order)
    if m.st[at.KSWAPD_RUNS] and not m.st[at.KSWAPD_RECORDED]:
        stop_balanced_kswapds(m)
