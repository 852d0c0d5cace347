"""Migratetype of every pageblock (S1.2, S1.3)."""

from __future__ import annotations

from collections.abc import Callable

from tests.oracle.machine import Migratetype, OracleMachine


class Pageblocks:
    """Types by pageblock number (pfn >> pageblock order); MOVABLE until told otherwise.

    Attributes:
        watchers: called with block, type before and type after as a block is retagged.
    """

    def __init__(self, machine: OracleMachine) -> None:
        self.order = machine.pageblock_order
        self.pages = machine.pages_per_block
        self._types: dict[int, int] = {}
        self.watchers: list[Callable[[int, int, int], None]] = []
        for zone in machine.zones:
            if zone.spanned:
                first, last = zone.start_pfn >> self.order, (zone.end_pfn - 1) >> self.order
                self._types.update(dict.fromkeys(range(first, last + 1), int(Migratetype.MOVABLE)))

    def number(self, pfn: int) -> int:
        """No kernel function: return the block a page lies in."""
        return pfn >> self.order

    def start(self, pfn: int) -> int:
        """pageblock_start_pfn(): return the first page of the block a page lies in."""
        return pfn & ~(self.pages - 1)

    def type_of(self, pfn: int) -> int:
        """get_pfnblock_migratetype(): return the type of the block a page lies in."""
        return self._types[self.number(pfn)]

    def set_type(self, block: int, migratetype: int) -> None:
        """set_pageblock_migratetype(): retag one block."""
        before = self._types.get(block, migratetype)
        self._types[block] = migratetype
        for each in self.watchers:
            each(block, before, migratetype)

    def change_pageblock_range(self, pfn: int, order: int, migratetype: int) -> None:
        """change_pageblock_range(): retag all blocks of a page.

        It is of at least pageblock order.
        """
        for start in range(pfn, pfn + (1 << order), self.pages):
            self.set_type(self.number(start), migratetype)

    def note_free_buddy(self, pfn: int, order: int) -> None:
        """No kernel function: note that a free merged into a buddy of whole blocks.

        Types alone do not care.
        """

    def as_dict(self) -> dict[int, int]:
        """No kernel function: return the types by block number."""
        return dict(self._types)
