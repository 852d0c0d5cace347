"""Chance without a memory: the n-th draw is the same whoever asks, and whenever."""

from __future__ import annotations

MASK = (1 << 64) - 1
"""64-bit words."""

PER = 1000
"""Chances are given in so many parts."""


def mixed(number: int) -> int:
    """The word that splitmix64 makes of a number, starting from seed 0."""
    word = (number + 1) * 0x9E3779B97F4A7C15 & MASK
    word = (word ^ word >> 30) * 0xBF58476D1CE4E5B9 & MASK
    word = (word ^ word >> 27) * 0x94D049BB133111EB & MASK
    return word ^ word >> 31


def is_drawn(number: int, per_1000: int) -> bool:
    """Whether the draw of a number is among so many of 1000."""
    return mixed(number) % PER < per_1000
