"""Chance without a memory: the n-th draw is the same whoever asks, and whenever."""

from __future__ import annotations

SPREADER = 2654435761
"""Spreads numbers over 32-bit words."""

PER = 1000
"""Chances are given in so many parts."""


def is_drawn(number: int, per_1000: int) -> bool:
    """Whether the draw of a number is among so many of 1000."""
    word = number * SPREADER % (1 << 32)
    return word * PER >> 32 < per_1000
