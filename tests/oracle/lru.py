"""A node's LRU lists: inactive and active, of anonymous pages and of files (S10.5)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
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

    def __init__(self, zone_type_of: Callable[[Folio], int]) -> None:
        self.lists = {key: PageList() for key in LISTS}
        self.pages = dict.fromkeys(LISTS, 0)
        self._zone_type_of = zone_type_of
        self._pages_of_type: Counter[tuple[Kind, bool, int]] = Counter()

    def lruvec_add_folio(self, folio: Folio) -> None:
        """lruvec_add_folio(): put a folio at the head of its list."""
        self.lists[folio.kind, folio.active].push_head(folio.pfn)
        self._count(folio, folio.size)

    def remove(self, folio: Folio) -> None:
        """lruvec_del_folio(): take a folio off its list."""
        self.lists[folio.kind, folio.active].remove(folio.pfn)
        self._count(folio, -folio.size)

    def tail(self, kind: Kind, *, active: bool) -> int | None:
        """lru_to_folio(): return the first page of the list's last folio."""
        pages = self.lists[kind, active]
        return pages.tail if pages else None

    def of_kind(self, kind: Kind) -> int:
        """No kernel function: return the pages of a class."""
        return self.pages[kind, False] + self.pages[kind, True]

    def pages_up_to(self, kind: Kind, highest: int, *, active: bool) -> int:
        """lruvec_lru_size(): return a list's pages in zones up to a type."""
        return sum(self._pages_of_type[kind, active, each] for each in range(highest + 1))

    def pages_in(self, kind: Kind, zone_type: int) -> int:
        """No kernel function: return the pages of a class in the node's zone of a type."""
        return sum(self._pages_of_type[kind, active, zone_type] for active in (False, True))

    def inactive_is_low(self, kind: Kind) -> bool:
        """inactive_is_low(): return whether the inactive list is too short.

        It is compared with the active one.
        """
        ratio = max(1, isqrt(10 * (self.of_kind(kind) >> 18)))
        return self.pages[kind, False] * ratio < self.pages[kind, True]

    def _count(self, folio: Folio, pages: int) -> None:
        """update_lru_size(): count pages that came or went."""
        self.pages[folio.kind, folio.active] += pages
        self._pages_of_type[folio.kind, folio.active, self._zone_type_of(folio)] += pages
