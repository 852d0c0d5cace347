"""Page frames by number: where memory begins far up or has large holes, its frames close up."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

LARGEST_ORDER = 14
"""Of a buddy in any kernel's configuration (S1.1)."""
SECTION = 1 << 15
"""Page frames of a memory section, to which the kernel fills kpageflags up."""
END_OF_MEMORY = 1 << 31
"""Page frames that a model has room for: 8 TiB of 4 KiB pages."""
END_OF_NUMBERS = 1 << 52
"""Page frames that no kernel numbers: 64 bits of address with 4 KiB pages."""
SMALLEST_HOLE = 1 << 24
"""Page frames of a hole that closes: 64 GiB of 4 KiB pages."""


@dataclass(frozen=True)
class PageFrames:
    """The page frames of a machine's memory, counted without the large holes before and in it.

    Arrays are indexed by that count, and sections stay aligned, so a buddy's page is the same
    `pfn ^ (1 << order)`. Most machines have no such hole: a frame's index is its number.

    Attributes:
        holes: first and end page frame of each, ascending; whole sections.
    """

    holes: tuple[tuple[int, int], ...] = ()

    @staticmethod
    def of(spans: Iterable[tuple[int, int]]) -> PageFrames:
        """Those of memory in spans of page frames, each a first one and an end."""
        holes, end = [], 0
        for first, last in sorted(spans):
            hole = -(-end // SECTION) * SECTION, first // SECTION * SECTION
            if hole[1] - hole[0] >= SMALLEST_HOLE:
                holes.append(hole)
            end = max(end, last)
        return PageFrames(tuple(holes))

    def indices(self, pfn: np.ndarray) -> np.ndarray:
        """The index of each page frame, in the same type; of one in a hole, none of any page.

        Negative numbers, which stand for no page, stay.
        """
        if not self.holes:
            return pfn
        frames = pfn.astype(np.int64)
        begins, ends, closed = self._tables()
        number = np.searchsorted(begins, frames, "right")
        in_hole = (number > 0) & (frames < ends[number - 1])
        return np.where(in_hole, frames + END_OF_NUMBERS, frames - closed[number]).astype(pfn.dtype)

    def numbers(self, index: np.ndarray) -> np.ndarray:
        """The page frame of each index: what `indices` was given, below `END_OF_NUMBERS`."""
        if not self.holes:
            return index
        frames = index.astype(np.int64)
        begins, _, closed = self._tables()
        number = np.searchsorted(begins - closed[:-1], frames, "right")
        from_hole = (frames >= END_OF_NUMBERS) & (frames < 2 * END_OF_NUMBERS)
        opened = frames + np.where(frames < 0, 0, closed[number])
        return np.where(from_hole, frames - END_OF_NUMBERS, opened).astype(index.dtype)

    def index(self, pfn: int) -> int:
        """The index of one page frame."""
        return int(self.indices(np.array([pfn], np.int64))[0])

    def _tables(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Begins and ends of holes, and page frames in so many holes."""
        begins, ends = np.array(self.holes, np.int64).T
        return begins, ends, np.concatenate([[0], np.cumsum(ends - begins)])


NO_HOLES = PageFrames()
