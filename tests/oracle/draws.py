"""Seeded draws: what reclaim and compaction find at a page (S10.5)."""

from __future__ import annotations

from enum import IntEnum

MASK = (1 << 31) - 1
FACTOR = 0x45D9F3B


class Purpose(IntEnum):
    """What is drawn."""

    REFERENCED = 1
    DIRTY = 2
    MIGRATES = 3
    CONTENDS = 4


def mixed(value: int) -> int:
    """No kernel function: return a number of 31 bits that depends on all bits of another."""
    value &= MASK
    for _ in range(2):
        value ^= value >> 16
        value = value * FACTOR & MASK
    return value ^ (value >> 16)


def draw(seed: int, key: int, purpose: Purpose, number: int) -> int:
    """No kernel function: return the number-th draw of a key for a purpose, from 0 to 999."""
    return mixed(mixed(mixed(seed + key) + purpose) + number) % 1000
