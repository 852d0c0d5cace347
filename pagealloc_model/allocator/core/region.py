"""Words of the state, each named and given its place once."""

from __future__ import annotations


class Region:
    """A stretch of int64 words; a name's offset follows from what was declared before it.

    Attributes:
        size: words declared so far: the stretch's length once all are.
    """

    def __init__(self) -> None:
        """No kernel function: begin with no word."""
        self.size = 0

    def word(self) -> int:
        """No kernel function: declare one word; returns its offset."""
        return self.words(1)

    def words(self, count: int) -> int:
        """No kernel function: declare several words in a row; returns the first one's offset."""
        first = self.size
        self.size += count
        return first
