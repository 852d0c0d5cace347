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

    def lruvec_add_folio(self, folio: Folio) -> None:
        """lruvec_add_folio(): put a folio at the head of its list."""
        key = folio.kind, folio.active
        self.lists[key].push_head(folio.pfn)
        self.pages[key] += folio.size

    def remove(self, folio: Folio) -> None:
        """lruvec_del_folio(): take a folio off its list."""
        key = folio.kind, folio.active
        self.lists[key].remove(folio.pfn)
        self.pages[key] -= folio.size

    def tail(self, kind: Kind, *, active: bool) -> int | None:
        """lru_to_folio(): return the first page of the list's last folio."""
        pages = self.lists[kind, active]
        return pages.tail if pages else None

    def of_kind(self, kind: Kind) -> int:
        """No kernel function: return the pages of a class."""
        return self.pages[kind, False] + self.pages[kind, True]

    def inactive_is_low(self, kind: Kind) -> bool:
        """inactive_is_low(): return whether the inactive list is too short.

        It is compared with the active one.
        """
        ratio = max(1, isqrt(10 * (self.of_kind(kind) >> 18)))
        return self.pages[kind, False] * ratio < self.pages[kind, True]
