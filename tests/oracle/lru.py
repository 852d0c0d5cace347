"""A node's LRU lists: inactive and active, of anonymous pages and of files (S10.5)."""

from __future__ import annotations

from math import isqrt

from tests.oracle.folios import Folio, Kind
from tests.oracle.page_list import PageList

LISTS = tuple((kind, active) for kind in (Kind.ANON, Kind.FILE) for active in (False, True))
"""In the order in which dumps number them."""


class NodeLru:
    """Folios by first page; head first.

    Attributes:
        lists: see `LISTS`.
        pages: base pages on each.
    """

    def __init__(self) -> None:
        self.lists = {key: PageList() for key in LISTS}
        self.pages = dict.fromkeys(LISTS, 0)

    def push(self, folio: Folio) -> None:
        """Put a folio at the head of its list."""
        key = folio.kind, folio.active
        self.lists[key].push_head(folio.pfn)
        self.pages[key] += folio.size

    def remove(self, folio: Folio) -> None:
        """Take a folio off its list."""
        key = folio.kind, folio.active
        self.lists[key].remove(folio.pfn)
        self.pages[key] -= folio.size

    def tail(self, kind: Kind, *, active: bool) -> int | None:
        """First page of the list's last folio."""
        pages = self.lists[kind, active]
        return pages.tail if pages else None

    def of_kind(self, kind: Kind) -> int:
        """Pages of a class."""
        return self.pages[kind, False] + self.pages[kind, True]

    def lacks_inactive(self, kind: Kind) -> bool:
        """Whether the inactive list is too short beside the active one."""
        ratio = max(1, isqrt(10 * (self.of_kind(kind) >> 18)))
        return self.pages[kind, False] * ratio < self.pages[kind, True]
