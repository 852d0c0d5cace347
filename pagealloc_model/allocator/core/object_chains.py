"""Objects of a literal replay: one allocation each, or a chain of single pages (T10.1)."""

from __future__ import annotations

from pagealloc_model.allocator.core import layout as at
from pagealloc_model.allocator.core.alloc_context import AllocContext, prepare_alloc_pages
from pagealloc_model.allocator.core.page_free import __free_frozen_pages
from pagealloc_model.allocator.core.request import __alloc_frozen_pages, retry_as_recorded
from pagealloc_model.base.jit import cold, hot


@hot
def allocate_object(
    m: at.MachineArrays, cpu: int, order: int, migratetype: int, highest_type: int, bits: int
) -> int:
    """No kernel function: find an object a place; returns it, or -1 if memory has run out.

    See `layout.CHAINED`.
    """
    ac = prepare_alloc_pages(m, cpu, order, migratetype, highest_type, bits)
    pfn = __alloc_frozen_pages(m, ac, retry_as_recorded)
    if pfn < 0:
        return allocate_in_pieces(m, ac)
    m.pages[pfn]["next"] = -1
    return pfn


@cold
def allocate_in_pieces(m: at.MachineArrays, ac: AllocContext) -> int:
    """No kernel function: return a place for an object that found none as a whole, or -1.

    Where the recording found a buddy, perhaps by compaction, and the model has none, the object
    becomes a chain of single pages: its memory is used all the same, as its caller would have
    fallen back to small pages.
    """
    left = 1 << ac.order
    if ac.order == 0:
        m.st[at.COUNT_FAILED] += 1
        left = 0
    else:
        m.st[at.COUNT_IN_BASE_PAGES] += 1
    first = -1
    single = prepare_alloc_pages(m, ac.cpu, 0, ac.migratetype, ac.highest_type, ac.bits)
    while left > 0:
        pfn = __alloc_frozen_pages(m, single, retry_as_recorded)
        if pfn >= 0:
            m.pages[pfn]["next"] = first
            first = pfn
            left -= 1
        else:
            m.st[at.COUNT_FAILED] += 1
            left = 0
    return at.CHAINED - first if first >= 0 else -1


@hot
def free_object(
    m: at.MachineArrays, cpu: int, place: int, offset: int, order: int, in_batch: bool
) -> int:
    """No kernel function: free a piece of an object.

    Returns the object's place for what remains of it.
    """
    if place < -1:
        return free_chained(m, cpu, place, order, in_batch)
    __free_frozen_pages(m, cpu, place + offset, order, in_batch)
    return place


@cold
def free_chained(m: at.MachineArrays, cpu: int, place: int, order: int, in_batch: bool) -> int:
    """No kernel function: free the first single pages of a chain.

    Returns the place of what remains, or -1.
    """
    pfn = at.CHAINED - place
    left = 1 << order
    while left > 0 and pfn >= 0:
        following = int(m.pages[pfn]["next"])
        __free_frozen_pages(m, cpu, pfn, 0, in_batch)
        pfn = following
        left -= 1
    return at.CHAINED - pfn if pfn >= 0 else -1
