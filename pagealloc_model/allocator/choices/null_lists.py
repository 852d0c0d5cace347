"""The null model of per-CPU lists: last in, first out, fed with recorded refills and drains.

It knows nothing of limits, sizes, block types or the buddy. A page it did not expect tells it that
all pages above that one have gone.
"""

from __future__ import annotations

import numpy as np

from pagealloc_model.allocator.choices.true_state import NOTE_WORDS, notes_at
from pagealloc_model.allocator.core import layout as at
from pagealloc_model.allocator.core.buddy import push_head, push_tail, unlink
from pagealloc_model.base.jit import inner


@inner
def null_list_at(st: np.ndarray, pcp: int, index: int) -> int:
    """Offset of the null model's list in `st`."""
    return notes_at(st, pcp) + NOTE_WORDS + index * at.LIST_WORDS


@inner
def null_forget(track: np.ndarray, st: np.ndarray, pfn: int) -> None:
    """Take a page off whatever null list it is on."""
    lst = int(track[pfn]["null_list"])
    if lst > 0:
        unlink(track, st, lst, pfn)
        track[pfn]["null_list"] = 0


@inner
def null_add(track: np.ndarray, st: np.ndarray, pcp: int, index: int, pfn: int, tail: bool) -> None:
    """Put a refilled page at a list's tail, a freed one at its head."""
    null_forget(track, st, pfn)
    lst = null_list_at(st, pcp, index)
    track[pfn]["null_list"] = lst
    if tail:
        push_tail(track, st, lst, pfn)
    else:
        push_head(track, st, lst, pfn)


@inner
def null_pop(track: np.ndarray, st: np.ndarray, pcp: int, index: int, pfn: int) -> bool:
    """Take the page that the kernel took; whether it is the one the null model names."""
    lst = null_list_at(st, pcp, index)
    hit = st[lst + at.HEAD] == pfn
    if int(track[pfn]["null_list"]) == lst:
        while st[lst + at.HEAD] != pfn:
            null_forget(track, st, st[lst + at.HEAD])
    null_forget(track, st, pfn)
    return hit
