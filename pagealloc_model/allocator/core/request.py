"""A request: its first attempt, the slow path, what becomes of the page (S2)."""

from __future__ import annotations

from pagealloc_model.allocator.core import layout as at
from pagealloc_model.allocator.core.alloc_context import AllocContext, fast_path_flags
from pagealloc_model.allocator.core.slow_path import __alloc_pages_slowpath
from pagealloc_model.allocator.core.zone_walk import get_page_from_freelist
from pagealloc_model.base.jit import hot


@hot
def __alloc_frozen_pages(m: at.MachineArrays, ac: AllocContext) -> int:
    """__alloc_frozen_pages(): serve a request.

    Returns the page, or -1 if the model has no such page left. In 6.12 the function is called
    __alloc_pages().
    """
    flags = fast_path_flags(m, ac)
    pfn = get_page_from_freelist(m, ac, flags)
    if pfn < 0:
        pfn = __alloc_pages_slowpath(m, ac, flags)
    if pfn >= 0:
        prep_new_page(m, pfn, ac.order, ac.migratetype)
    return pfn


@hot
def prep_new_page(m: at.MachineArrays, pfn: int, order: int, migratetype: int) -> None:
    """prep_new_page(): describe an allocation's first page."""
    m.pages[pfn]["order"] = order
    m.pages[pfn]["where"] = at.ALLOCATED
    m.pages[pfn]["tag"] = 1 if migratetype == at.MOVABLE else 0
