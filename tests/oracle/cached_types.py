"""The type a page carries while it is outside the buddy (6.1, S5.6)."""

from __future__ import annotations


class CachedTypes:
    """Types by page: of the list it was taken from, later of its block when it was freed.

    A page goes from a per-CPU list back to the buddy under this type, whatever has become of its
    block meanwhile.
    """

    def __init__(self) -> None:
        self._types: dict[int, int] = {}

    def note(self, pfn: int, migratetype: int) -> None:
        """set_pcppage_migratetype(): note the type as which a page was taken or freed."""
        self._types[pfn] = migratetype

    def of(self, pfn: int) -> int:
        """get_pcppage_migratetype(): return the type noted last for a page.

        It was taken or freed.
        """
        return self._types[pfn]
