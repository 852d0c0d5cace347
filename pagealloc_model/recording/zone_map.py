"""Page frames to zones: kmem events name neither node nor zone (T1.2)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pagealloc_model.recording.proc.zoneinfo import ZoneInfo, ZoneInfoZone

UNKNOWN_ZONE = -1
DEFAULT_BATCH = 63
"""pcp->batch of every zone of 1 GiB or more (S4.2)."""


@dataclass(frozen=True, kw_only=True)
class ZoneMap:
    """Zones with pages, in order of their first page frame; a zone's code is its place here."""

    zones: tuple[ZoneInfoZone, ...]

    @staticmethod
    def of(zoneinfo: ZoneInfo | None) -> ZoneMap:
        """The map of one snapshot's zones; without one, every page's zone is unknown."""
        zones = zoneinfo.zones if zoneinfo else ()
        with_pages = [zone for zone in zones if zone.start_pfn is not None]
        return ZoneMap(zones=tuple(sorted(with_pages, key=lambda zone: zone.start_pfn or 0)))

    @property
    def overlaps(self) -> bool:
        """Nodes interleave, so that some page frames could belong to either zone."""
        return any(
            before.end_pfn > after.start_pfn
            for before, after in zip(self.zones[:-1], self.zones[1:], strict=True)
        )

    def codes(self, pfn: np.ndarray) -> np.ndarray:
        """int8 zone code of each page frame, `UNKNOWN_ZONE` outside all zones."""
        if not self.zones:
            return np.full(len(pfn), UNKNOWN_ZONE, np.int8)
        starts = np.array([zone.start_pfn for zone in self.zones], np.int64)
        ends = np.array([zone.end_pfn for zone in self.zones], np.int64)
        code = np.searchsorted(starts, pfn, "right") - 1
        return np.where((code >= 0) & (pfn < ends[code]), code, UNKNOWN_ZONE).astype(np.int8)

    def batches(self) -> np.ndarray:
        """int64 pcp->batch by zone code, and of an unknown zone at the end (code -1)."""
        batches = [
            zone.pagesets[0].batch if zone.pagesets else DEFAULT_BATCH for zone in self.zones
        ]
        return np.array([*batches, DEFAULT_BATCH], np.int64)
