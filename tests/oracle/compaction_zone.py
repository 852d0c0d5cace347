"""What compaction remembers of a zone: where scanners stopped, blocks to leave out (S9.3)."""

from __future__ import annotations

from tests.oracle.compaction_gates import Deferral
from tests.oracle.elastic_memory import ElasticMemory
from tests.oracle.machine import Migratetype
from tests.oracle.zone import Zone


class ZoneCompaction:
    """A zone's scanners between runs.

    Attributes:
        zone: the zone.
        deferral: see `Deferral`.
        sampled: every so many-th page of a block is looked at before its mark is cleared.
        migrate: cached position of the source scanner, by whether the run is synchronous.
        free: cached position of the target scanner.
        whole_from: a run whose source begins no higher is one of the whole zone.
        whole_to: a search for targets that begins no lower is one from the zone's end.
        skipped: first pages of blocks to leave out.
        flush: marks are cleared when kswapd goes to nap.
    """

    def __init__(self, zone: Zone, memory: ElasticMemory) -> None:
        self.zone = zone
        self.memory = memory
        self.sampled = 1 << zone.policy.costly_order
        self.deferral = Deferral(zone.machine.max_order)
        self.skipped: set[int] = set()
        self.flush = False
        self.migrate = {False: 0, True: 0}
        self.free = self.whole_from = self.whole_to = 0
        if zone.spec.managed:
            self.reset_cached_positions()
            self.whole_from, self.whole_to = self.first, self.last_block

    @property
    def first(self) -> int:
        """No kernel function: return the zone's first page."""
        return self.zone.spec.start_pfn

    @property
    def last_block(self) -> int:
        """No kernel function: return the first page of the zone's last block."""
        return self.zone.blocks.start(self.zone.spec.end_pfn - 1)

    def is_skipped(self, pfn: int) -> bool:
        """get_pageblock_skip(): return whether a page's block has the mark."""
        return self.zone.blocks.start(pfn) in self.skipped

    def skip(self, pfn: int) -> None:
        """set_pageblock_skip(): mark a page's block."""
        self.skipped.add(self.zone.blocks.start(pfn))

    def reset_cached_positions(self) -> None:
        """reset_cached_positions(): let both scanners start at their ends."""
        self.migrate = {False: self.first, True: self.first}
        self.free = self.last_block

    def reset_isolation_suitable(self) -> None:
        """__reset_isolation_suitable(): clear marks of blocks that might be of use.

        Scanners start anew at the outermost of them. Nothing happens unless `flush` is set.
        """
        if not self.flush:
            return
        self.flush = False
        low, high = self.first, self.zone.spec.end_pfn - 1
        source: int | None = None
        target: int | None = None
        while low < high:
            found = self._reset_isolation_pfn(low, source=True, target=source is not None)
            if found and source is None:
                source = self.whole_from = low
                self.migrate = {False: low, True: low}
            found = self._reset_isolation_pfn(high, source=target is not None, target=True)
            if found and target is None:
                target = self.whole_to = self.free = high
            low += self.zone.blocks.pages
            high -= self.zone.blocks.pages
        lowest = self.zone.spec.end_pfn - 1 if source is None else source
        highest = self.first if target is None else target
        if lowest >= highest:
            self.migrate = {False: low, True: low}
            self.free = high

    def holds_large_page(self, pfn: int) -> bool:
        """pageblock_skip_persistent(): return whether a page's block is one allocation's."""
        folio = self.memory.folio_around(pfn)
        return folio is not None and folio.order >= self.zone.blocks.order

    def _reset_isolation_pfn(self, pfn: int, *, source: bool, target: bool) -> bool:
        """__reset_isolation_pfn(): clear a block's mark if it may be a source, or a target."""
        blocks = self.zone.blocks
        if self.holds_large_page(pfn):
            return False
        if source and target and not self.is_skipped(pfn):
            return True
        if not source and blocks.type_of(pfn) != Migratetype.MOVABLE:
            return False
        begin = max(blocks.start(pfn), self.first)
        end = min(blocks.start(pfn) + blocks.pages, self.zone.spec.end_pfn)
        for each in range(begin, end, self.sampled):
            folio = self.memory.folio_around(each)
            is_source = source and folio is not None and folio.on_lru
            if is_source or (target and self.zone.buddy.at(each) is not None):
                self.skipped.discard(blocks.start(pfn))
                return True
        return False
