"""The null model of per-CPU lists: last in, first out, fed with recorded refills and drains.

It knows nothing of limits, sizes, block types or the buddy. A page it did not expect tells it that
all pages above that one have gone.
"""

from __future__ import annotations

from pagealloc_model.allocator.choices.judged import Judged
from pagealloc_model.allocator.choices.true_state import NOTE_WORDS, notes_at
from pagealloc_model.allocator.core import layout as at
from pagealloc_model.allocator.core.page_lists import list_add, list_add_tail, list_del
from pagealloc_model.base.jit import inner


@inner
def null_list_at(m: at.MachineArrays, pcp: int, index: int) -> int:
    """No kernel function: return the offset of the null model's list in `st`."""
    return notes_at(m, pcp) + NOTE_WORDS + index * at.LIST_WORDS


@inner
def null_forget(m: at.MachineArrays, j: Judged, pfn: int) -> None:
    """No kernel function: take a page off whatever null list it is on."""
    lst = int(j.track[pfn]["null_list"])
    if lst > 0:
        list_del(j.track, m.st, lst, pfn)
        j.track[pfn]["null_list"] = 0


@inner
def null_add(m: at.MachineArrays, j: Judged, pcp: int, index: int, pfn: int, tail: bool) -> None:
    """No kernel function: put a refilled page at a list's tail, a freed one at its head."""
    null_forget(m, j, pfn)
    lst = null_list_at(m, pcp, index)
    j.track[pfn]["null_list"] = lst
    if tail:
        list_add_tail(j.track, m.st, lst, pfn)
    else:
        list_add(j.track, m.st, lst, pfn)


@inner
def null_pop(m: at.MachineArrays, j: Judged, pcp: int, index: int, pfn: int) -> bool:
    """No kernel function: take the page that the kernel took.

    Returns whether it is the one the null model names.
    """
    lst = null_list_at(m, pcp, index)
    hit = m.st[lst + at.HEAD] == pfn
    if int(j.track[pfn]["null_list"]) == lst:
        while m.st[lst + at.HEAD] != pfn:
            null_forget(m, j, m.st[lst + at.HEAD])
    null_forget(m, j, pfn)
    return hit
