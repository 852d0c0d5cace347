"""Migratetype of every pageblock (S1.2, S1.3)."""

from __future__ import annotations

from tests.oracle.machine import Migratetype, OracleMachine


class Pageblocks:
    """Types by pageblock number (pfn >> pageblock order); MOVABLE until told otherwise."""

    def __init__(self, machine: OracleMachine) -> None:
        self.order = machine.pageblock_order
        self.pages = machine.pages_per_block
        self._types: dict[int, int] = {}
        for zone in machine.zones:
            if zone.spanned:
                first, last = zone.start_pfn >> self.order, (zone.end_pfn - 1) >> self.order
                self._types.update(dict.fromkeys(range(first, last + 1), int(Migratetype.MOVABLE)))

    def number(self, pfn: int) -> int:
        """The block a page lies in."""
        return pfn >> self.order

    def start(self, pfn: int) -> int:
        """First page of the block a page lies in."""
        return pfn & ~(self.pages - 1)

    def type_of(self, pfn: int) -> int:
        """Type of the block a page lies in."""
        return self._types[self.number(pfn)]

    def set_type(self, block: int, migratetype: int) -> None:
        """Retag one block."""
        self._types[block] = migratetype

    def set_range(self, pfn: int, order: int, migratetype: int) -> None:
        """Retag all blocks of a page of at least pageblock order."""
        for start in range(pfn, pfn + (1 << order), self.pages):
            self.set_type(self.number(start), migratetype)

    def note_free_buddy(self, pfn: int, order: int) -> None:
        """A free merged into a buddy of whole blocks; types alone do not care."""

    def as_dict(self) -> dict[int, int]:
        """Types by block number."""
        return dict(self._types)
