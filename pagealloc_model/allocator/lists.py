"""Doubly linked lists of pages: enter at either end or in between, leave from anywhere."""

from __future__ import annotations

import numpy as np

from pagealloc_model.allocator import layout as at
from pagealloc_model.base.jit import hot


@hot
def list_add(pages: np.ndarray, st: np.ndarray, lst: int, pfn: int) -> None:
    """list_add(): insert a page at the head of the list at `lst`."""
    head = st[lst + at.HEAD]
    pages[pfn]["next"] = head
    pages[pfn]["prev"] = -1
    if head >= 0:
        pages[head]["prev"] = pfn
    else:
        st[lst + at.TAIL] = pfn
    st[lst + at.HEAD] = pfn
    st[lst + at.ENTRIES] += 1


@hot
def list_add_tail(pages: np.ndarray, st: np.ndarray, lst: int, pfn: int) -> None:
    """list_add_tail(): insert a page at the tail of the list at `lst`."""
    tail = st[lst + at.TAIL]
    pages[pfn]["prev"] = tail
    pages[pfn]["next"] = -1
    if tail >= 0:
        pages[tail]["next"] = pfn
    else:
        st[lst + at.HEAD] = pfn
    st[lst + at.TAIL] = pfn
    st[lst + at.ENTRIES] += 1


@hot
def list_del(pages: np.ndarray, st: np.ndarray, lst: int, pfn: int) -> None:
    """list_del(): take a page out of the list at `lst`, wherever it is in it."""
    following = int(pages[pfn]["next"])
    preceding = int(pages[pfn]["prev"])
    if preceding >= 0:
        pages[preceding]["next"] = following
    else:
        st[lst + at.HEAD] = following
    if following >= 0:
        pages[following]["prev"] = preceding
    else:
        st[lst + at.TAIL] = preceding
    st[lst + at.ENTRIES] -= 1
