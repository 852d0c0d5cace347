"""Pages in use, and whether they could be migrated (S6.3, T10.9)."""

from __future__ import annotations


class AllocatedPages:
    """Base pages handed out; each knows whether it was requested as MOVABLE.

    The kernel asks whether a page is on the LRU or has movable operations. Neither is in a
    recording, so the requested migratetype stands for it.
    """

    def __init__(self) -> None:
        self._movable: dict[int, bool] = {}

    def __len__(self) -> int:
        return len(self._movable)

    def __contains__(self, pfn: int) -> bool:
        return pfn in self._movable

    def add(self, pfn: int, order: int, movable: bool) -> None:
        """No kernel function: hand out a page.

        Raises:
            ValueError: part of it is handed out already.
        """
        for each in range(pfn, pfn + (1 << order)):
            if each in self._movable:
                raise ValueError(f"page {each} is allocated already")
            self._movable[each] = movable

    def remove(self, pfn: int, order: int) -> None:
        """No kernel function: take a page back (T10.1).

        It may be only a part of what was handed out.

        Raises:
            ValueError: part of it is not handed out.
        """
        for each in range(pfn, pfn + (1 << order)):
            if each not in self._movable:
                raise ValueError(f"page {each} is freed but not allocated")
            del self._movable[each]

    def is_movable(self, pfn: int) -> bool:
        """No kernel function: return whether the page is in use and MOVABLE.

        It was requested as such.
        """
        return self._movable.get(pfn, False)

    def pages(self) -> list[int]:
        """No kernel function: return all pages in use."""
        return list(self._movable)
