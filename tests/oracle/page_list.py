"""An ordered list of pages that can be entered and left at either end or in the middle."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator


class PageList:
    """Page frame numbers, head first; a page is on a list at most once."""

    def __init__(self) -> None:
        self._pages: OrderedDict[int, None] = OrderedDict()

    def __iter__(self) -> Iterator[int]:
        return iter(self._pages)

    def __len__(self) -> int:
        return len(self._pages)

    def __contains__(self, pfn: int) -> bool:
        return pfn in self._pages

    @property
    def head(self) -> int:
        """No kernel function: return the first page; the list must not be empty."""
        return next(iter(self._pages))

    @property
    def tail(self) -> int:
        """No kernel function: return the last page; the list must not be empty."""
        return next(reversed(self._pages))

    def push_head(self, pfn: int) -> None:
        """list_add(): put a page in front of all others."""
        self.push_tail(pfn)
        self._pages.move_to_end(pfn, last=False)

    def push_tail(self, pfn: int) -> None:
        """list_add_tail(): put a page behind all others.

        Raises:
            ValueError: the page is on the list already.
        """
        if pfn in self._pages:
            raise ValueError(f"page {pfn} is on this list already")
        self._pages[pfn] = None

    def pop_head(self) -> int:
        """No kernel function: take the first page; returns it."""
        return self._pages.popitem(last=False)[0]

    def pop_tail(self) -> int:
        """No kernel function: take the last page; returns it."""
        return self._pages.popitem(last=True)[0]

    def move_freelist_tail(self, pfn: int) -> None:
        """move_freelist_tail(): put a page, and all before it, behind the last one."""
        for each in list(self._pages):
            self._pages.move_to_end(each)
            if each == pfn:
                return

    def move_freelist_head(self, pfn: int) -> None:
        """move_freelist_head(): make a page the first; all before it go behind the last one."""
        while self.head != pfn:
            self._pages.move_to_end(self.head)

    def remove(self, pfn: int) -> None:
        """list_del(): take a page from wherever it is."""
        del self._pages[pfn]
