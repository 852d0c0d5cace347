"""What compaction remembers of a zone: where scanners stopped, blocks to leave out (S9.3)."""

from __future__ import annotations

from tests.oracle.compaction_gates import Deferral
from tests.oracle.zone import Zone


class ZoneCompaction:
    """A zone's scanners between runs.

    Attributes:
        zone: the zone.
        deferral: see `Deferral`.
        migrate: cached position of the source scanner, by whether the run is synchronous.
        free: cached position of the target scanner.
        skipped: first pages of blocks to leave out.
        flush: `skipped` is forgotten when kswapd goes to nap.
    """

    def __init__(self, zone: Zone) -> None:
        self.zone = zone
        self.deferral = Deferral(zone.machine.max_order)
        self.skipped: set[int] = set()
        self.flush = False
        self.migrate = {False: 0, True: 0}
        self.free = 0
        if zone.spec.managed:
            self.reset_cached_positions()

    @property
    def first_block(self) -> int:
        """No kernel function: return the first page of the zone's first block."""
        return self.zone.blocks.start(self.zone.spec.start_pfn)

    @property
    def last_block(self) -> int:
        """No kernel function: return the first page of the zone's last block."""
        return self.zone.blocks.start(self.zone.spec.end_pfn - 1)

    def reset_cached_positions(self) -> None:
        """reset_cached_positions(): let both scanners start at their ends."""
        self.migrate = {False: self.first_block, True: self.first_block}
        self.free = self.last_block

    def reset_isolation_suitable(self) -> None:
        """__reset_isolation_suitable(): leave no block out any more.

        Scanners start anew.
        """
        self.skipped.clear()
        self.flush = False
        self.reset_cached_positions()
